"""Clients of KServe and Triton work unchanged."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import numpy as np
import pytest
import torch

from adascale import OODDetector
from tests.images.pictures import picture
from tests.service.serving import png

triton, utils = pytest.importorskip("tritonclient.http"), pytest.importorskip("tritonclient.utils")
DATA = [png(seed) for seed in range(300, 305)]  # not those of the calibration, whose scores would be ties
OUTPUTS = ("logits", "prediction", "score", "p_value", "is_ood")


@pytest.fixture(scope="module")
def remote(client: httpx.Client) -> Iterator[Any]:
    found = triton.InferenceServerClient(f"127.0.0.1:{client.base_url.port}")
    yield found
    found.close()


def given(name: str, array: np.ndarray[Any, Any], datatype: str, binary: bool) -> Any:
    made = triton.InferInput(name, array.shape, datatype)
    made.set_data_from_numpy(array, binary_data=binary)
    return made


def check(answer: Any, fitted: OODDetector, inputs: Any) -> None:
    verdict = fitted(inputs)
    for name in OUTPUTS:
        expected = getattr(verdict, name).numpy()
        assert answer.as_numpy(name).dtype == expected.dtype
        assert np.allclose(answer.as_numpy(name), expected, rtol=1e-3, atol=1e-5), name


def test_health_and_metadata(remote: Any) -> None:
    assert remote.is_server_live()
    assert remote.is_server_ready()
    assert remote.is_model_ready("first")
    assert remote.is_model_ready("first", "1")
    assert "binary_tensor_data" in remote.get_server_metadata()["extensions"]
    about = remote.get_model_metadata("first")
    assert [one["name"] for one in about["inputs"]] == ["images", "pixels"]
    assert about["inputs"][0]["shape"] == [-1, 3, 16, 16]
    assert [one["name"] for one in about["outputs"]] == list(OUTPUTS)
    assert not remote.is_model_ready("third")


@pytest.mark.parametrize("binary_in", [True, False])
@pytest.mark.parametrize("binary_out", [True, False])
def test_normalised_images(remote: Any, fitted: OODDetector, binary_in: bool, binary_out: bool) -> None:
    assert fitted.preprocess is not None
    inputs = torch.stack([fitted.preprocess(one) for one in DATA])
    wanted = [triton.InferRequestedOutput(name, binary_data=binary_out) for name in OUTPUTS]
    sent = [given("images", inputs.numpy(), "FP32", binary_in)]
    answer = remote.infer("first", sent, outputs=wanted, request_id="7")
    check(answer, fitted, inputs)
    assert answer.get_response()["id"] == "7"


def test_encoded_images_and_all_outputs(remote: Any, fitted: OODDetector) -> None:
    answer = remote.infer("first", [given("pixels", np.array(DATA, dtype=object), "BYTES", True)])
    check(answer, fitted, DATA)


def test_pixels(remote: Any, fitted: OODDetector) -> None:
    pictures = np.stack([np.asarray(picture(seed=seed)) for seed in range(300, 303)])
    check(remote.infer("first", [given("pixels", pictures, "UINT8", True)]), fitted, list(pictures))


def test_what_is_wrong_is_said(remote: Any) -> None:
    def refusal(*sent: Any, model: str = "first", **more: Any) -> str:
        with pytest.raises(utils.InferenceServerException) as caught:
            remote.infer(model, list(sent), **more)
        return str(caught.value)

    image = np.zeros((1, 3, 16, 16), np.float32)
    assert "(N, 3, 16, 16)" in refusal(given("images", image[:, :, :8], "FP32", True))
    assert "NaN" in refusal(given("images", image * np.nan, "FP32", True))
    assert "'images' or 'pixels'" in refusal(given("others", image, "FP32", True))
    assert "Image 0" in refusal(given("pixels", np.array([b"no image"], dtype=object), "BYTES", True))
    wanted = [triton.InferRequestedOutput("nothing")]
    assert "no output 'nothing'" in refusal(given("images", image, "FP32", True), outputs=wanted)
    assert "no detector 'third'" in refusal(given("images", image, "FP32", True), model="third")
