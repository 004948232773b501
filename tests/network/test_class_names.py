"""Names of classes: from files and Python, and from what the source of a network says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from adascale import InputError
from adascale.core.extras import optional
from adascale.network.class_names import check_count, class_names
from adascale.network.ready import ready_network
from tests.conftest import seeded


@pytest.mark.parametrize(
    "content",
    [
        "tench\ngreat white shark\nhen\n",
        "\ufefftench\r\ngreat white shark\r\nhen",
        json.dumps(["tench", "great white shark", "hen"]),
        json.dumps({"2": "hen", "0": "tench", "1": "great white shark"}),
        json.dumps({"0": ["n01440764", "tench"], "1": ["n01484850", "great white shark"], "2": ["n01514859", "hen"]}),
        json.dumps({"tench": 0, "hen": 2, "great white shark": 1}),
    ],
    ids=["lines", "windows", "list", "object", "keras", "class_to_idx"],
)
def test_files_of_names(content: str, tmp_path: Path) -> None:
    (tmp_path / "names").write_text(content, "utf8")
    assert class_names(tmp_path / "names") == ("tench", "great white shark", "hen")


def test_names_in_python() -> None:
    assert class_names(["a", "b"]) == class_names({1: "b", 0: "a"}) == class_names({"b": 1, "a": 0}) == ("a", "b")
    assert check_count(("a", "b"), 2) == ("a", "b")
    with pytest.raises(InputError, match=r"has 2 names .* and the network has 3 classes; give one name for each"):
        check_count(("a", "b"), 3)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("", "holds no list of names"),
        ("a\n\nb", "no name for class 1"),
        ("{", "cannot be read as JSON"),
        ('{"x": "a"}', "no class indices"),
        ('{"0": "a", "2": "b"}', "not the indices 0 to 1"),
        ("[1, 2]", "no name for class 0"),
    ],
)
def test_wrong_files_are_told_in_one_line(given: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "names").write_text(given)
    with pytest.raises(InputError, match=words) as caught:
        class_names(tmp_path / "names")
    assert "\n" not in str(caught.value)


def test_torchvision_and_timm_know_imagenet(tmp_path: Path) -> None:
    models, timm = optional("torchvision.models", "torchvision"), optional("timm", "timm")
    makers: dict[str, Any] = {
        "torchvision:shufflenet_v2_x0_5": lambda n: models.shufflenet_v2_x0_5(weights=None, num_classes=n),
        "timm:resnet10t": lambda n: timm.create_model("resnet10t", num_classes=n),
    }
    for spec, make in makers.items():
        for classes in (1000, 7):  # a fine-tuned network has other classes
            save_file(seeded(lambda make=make, classes=classes: make(classes)).state_dict(), tmp_path / "w.safetensors")  # type: ignore[misc]
            names = ready_network(spec, tmp_path / "w.safetensors")[0].class_names
            assert [name.split(",")[0] for name in names[:2]] == ([] if classes == 7 else ["tench", "goldfish"])
            assert len(names) == (0 if classes == 7 else 1000)


def test_hugging_face_labels_and_a_folder_without_a_processor(tmp_path: Path) -> None:
    optional("torchvision", "torchvision")
    transformers = optional("transformers", "huggingface")
    for labels, names in (({0: "ant", 1: "bee", 2: "cat"}, ("ant", "bee", "cat")), ({}, ())):
        config = transformers.ResNetConfig(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], num_labels=3)
        if labels:
            config.id2label, config.label2id = labels, {name: index for index, name in labels.items()}
        torch.manual_seed(0)
        transformers.ResNetForImageClassification(config).save_pretrained(tmp_path / str(len(labels)))
        classifier, preprocess = ready_network(f"hf:{tmp_path / str(len(labels))}")
        assert classifier.class_names == names
        assert preprocess is None  # there is no preprocessor_config.json
