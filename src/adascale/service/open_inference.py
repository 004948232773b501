"""The Open Inference Protocol (version 2), which clients of KServe and Triton speak, with its binary tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse
from torch import Tensor

from adascale.core.version import __version__
from adascale.service.bodies import Lease, check_head
from adascale.service.gate import State
from adascale.service.house import House
from adascale.service.lane import Answered
from adascale.service.pictures import Picture, Unreadable, too_many
from adascale.service.refusals import Refused
from adascale.service.schemas import INFER, failures
from adascale.service.served import Served
from adascale.service.tensors import Asked, asked_of, response_of

_TYPES = {"logits": "FP32", "prediction": "INT64", "score": "FP64", "p_value": "FP64", "is_ood": "BOOL"}
_MODEL = failures(404)


def v2_routes(house: House, state: State) -> APIRouter:
    """The endpoints of a service."""
    router = APIRouter(prefix="/v2")

    @router.get("", responses=failures())
    async def server() -> dict[str, Any]:
        """What this server is."""
        return {"name": "adascale", "version": __version__, "extensions": ["binary_tensor_data"]}

    @router.get("/health/live")
    async def live() -> dict[str, bool]:
        """Whether the process runs. Open without a token."""
        return {"live": True}

    @router.get("/health/ready", responses=failures())
    async def ready() -> JSONResponse:
        """Whether images are taken on. Open without a token."""
        return _ready(house, state)

    @router.get("/models/{name}", responses=_MODEL)
    @router.get("/models/{name}/versions/1", responses=_MODEL, include_in_schema=False)
    async def model(name: str) -> dict[str, Any]:
        """The tensors that a detector takes and gives."""
        return _described(house.named(name))

    @router.get("/models/{name}/ready", responses=_MODEL)
    @router.get("/models/{name}/versions/1/ready", responses=_MODEL, include_in_schema=False)
    async def model_ready(name: str) -> JSONResponse:
        """Whether this detector takes images on."""
        house.named(name)
        return _ready(house, state)

    @router.post("/models/{name}/infer", responses=failures(400, 404, 408, 413, 415, 504), openapi_extra=INFER)
    @router.post("/models/{name}/versions/1/infer", include_in_schema=False)
    async def infer(name: str, request: Request) -> Response:
        """Judge ``images`` (normalised, FP32) or ``pixels`` (encoded images as BYTES, or UINT8)."""
        return await _inferred(house, house.named(name), request)

    return router


def _ready(house: House, state: State) -> JSONResponse:
    ready = house.alive and not state.draining
    return JSONResponse({"ready": ready}, 200 if ready else 503)


def _described(served: Served) -> dict[str, Any]:
    judge = served.judge
    shape = [-1, *(judge.shape or (len(judge.preprocess.mean), -1, -1))]
    sizes = {"logits": [-1, judge.classes]}
    return {
        "name": served.name,
        "versions": ["1"],
        "platform": "adascale",
        "inputs": [
            {"name": "images", "datatype": "FP32", "shape": shape},
            {"name": "pixels", "datatype": "BYTES", "shape": [-1]},
        ],
        "outputs": [{"name": n, "datatype": kind, "shape": sizes.get(n, [-1])} for n, kind in _TYPES.items()],
    }


async def _inferred(house: House, served: Served, request: Request) -> Response:
    check_head(request.headers, house.limits)
    served.lane.check()
    until, lease = request.state.until, house.lease()
    try:
        asked, given = await _given(house, served, request, lease)
        results = await house.judged(served, given, "score", lease, until)
    finally:
        lease.drop()
    for index, (_, _, found) in enumerate(results):
        if isinstance(found, Exception):
            unreadable = isinstance(found, Unreadable)
            raise Refused(400 if unreadable else 500, f"Image {index} cannot be judged: {found}.")
    answers = [found for _, _, found in results if isinstance(found, Answered)]
    flagged = sum(answer.row["is_ood"] for answer in answers)
    request.state.told = {"detector": served.name, "images": len(answers), "flagged": flagged}
    return response_of(served.name, asked, _outputs(answers), _TYPES)


async def _given(
    house: House, served: Served, request: Request, lease: Lease
) -> tuple[Asked, list[Picture] | list[Tensor]]:
    body = await request.state.incoming.body(house.limits, lease)
    length = request.headers.get("inference-header-content-length")

    def work() -> tuple[Asked, list[Picture] | list[Tensor]]:
        asked = asked_of(body, length)
        if unknown := [name for name in asked.outputs if name not in _TYPES]:
            raise Refused(400, f"There is no output {unknown[0]!r}; there is {', '.join(_TYPES)}.")
        return asked, _images(house, served, asked)

    return await house.in_pool(work, request.state.until)


def _images(house: House, served: Served, asked: Asked) -> list[Picture] | list[Tensor]:
    """What is to be judged: encoded images, or inputs."""
    given, most = asked.inputs, house.limits.max_images
    if len(given) != 1 or next(iter(given)) not in ("images", "pixels"):
        raise Refused(400, f"The inputs are {', '.join(given) or 'none'}; give either 'images' or 'pixels'.")
    ((name, tensor),) = given.items()
    if len(tensor) > most:
        raise too_many(len(tensor), most)
    if not len(tensor):
        raise Refused(400, "There are no images; give at least one.")
    if isinstance(tensor, list):
        if name == "images":
            raise Refused(400, "'images' is BYTES; give FP32 (N, C, H, W), or encoded images as 'pixels'.")
        return [Picture("", data) for data in tensor]
    return _inputs(tensor, served, house) if name == "images" else _from_pixels(tensor, served, house)


def _inputs(array: np.ndarray[Any, Any], served: Served, house: House) -> list[Tensor]:
    channels, shape = len(served.judge.preprocess.mean), array.shape[1:]
    fits = shape == tuple(served.judge.shape) if served.judge.shape is not None else shape[:1] == (channels,)
    if array.dtype != np.float32 or array.ndim != 4 or not fits or array[0, 0].size > house.limits.max_pixels:
        wanted = tuple(served.judge.shape or (channels, "H", "W"))
        raise Refused(400, f"'images' is {array.dtype} {array.shape}; give FP32 (N, {', '.join(map(str, wanted))}).")
    if not np.isfinite(array).all():
        raise Refused(400, "'images' holds NaN or infinite values.")
    return list(torch.from_numpy(array))


def _from_pixels(array: np.ndarray[Any, Any], served: Served, house: House) -> list[Tensor]:
    preprocess = served.judge.preprocess
    if array.dtype != np.uint8 or array.ndim != 4 or array.shape[3] not in (1, 3, 4) or 0 in array.shape:
        raise Refused(400, f"'pixels' is {array.dtype} {array.shape}; give UINT8 (N, H, W, 3), or encoded as BYTES.")
    if array.shape[1] * array.shape[2] > house.limits.max_pixels:
        raise Refused(400, f"The images have more than {house.limits.max_pixels} pixels.")
    return [preprocess(picture) for picture in array]


def _outputs(answers: list[Answered]) -> dict[str, np.ndarray[Any, Any]]:
    """The columns of the answers as tensors; a score that is not finite is NaN."""
    logits = torch.stack([answer.logits for answer in answers if answer.logits is not None])
    columns = {name: [answer.row[name] for answer in answers] for name in ("prediction", "score", "p_value", "is_ood")}
    score = [np.nan if value is None else value for value in columns["score"]]
    return {
        "logits": logits.float().numpy(),
        "prediction": np.array(columns["prediction"], np.int64),
        "score": np.array(score, np.float64),
        "p_value": np.array(columns["p_value"], np.float64),
        "is_ood": np.array(columns["is_ood"], np.bool_),
    }
