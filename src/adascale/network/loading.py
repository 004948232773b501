"""Networks named by a short text, such as ``torchvision:NAME`` or ``path/to/file.py:factory``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from adascale.core import modules
from adascale.core.errors import AdascaleError, InputError
from adascale.core.extras import optional
from adascale.images.preprocess import Preprocess
from adascale.network import FORMS, digits
from adascale.network import cifar as networks

State = dict[str, Tensor] | None
Made = tuple[nn.Module, Preprocess | None]
_PIL_FILTERS: tuple[Any, ...] = ("nearest", "lanczos", "bilinear", "bicubic", "box", "hamming")


def load_network(spec: str, weights: str | Path | None = None) -> Made:
    """The network in evaluation mode and its own preprocessing (None where its source does not say).

    ``weights``: a .safetensors file, or a .pth/.pt state dict, which is read with ``weights_only``. Without it
    torchvision, timm and Hugging Face fetch their pretrained weights. ``adascale:wrn-28-10``, ``densenet-100-12`` and
    ``resnet-18`` are networks for CIFAR, whose weights ``adascale train`` makes. ``digits`` is the small network of the
    suite of that name, trained on the spot (some seconds).
    """
    state = read_weights(weights) if weights is not None else None
    if spec == "digits":
        network = digits.train_network(digits.digit_images("train"))
        return _with_state(network, state).eval(), Preprocess(**digits.PREPROCESS)
    source, _, name = spec.partition(":")
    file, _, factory = spec.rpartition(":")
    if not name or (source not in _LOADERS and not file.endswith(".py")):
        raise InputError(f"The network {spec!r} has none of the forms {FORMS}.")
    try:
        made = _LOADERS[source](name, state) if source in _LOADERS else _factory(Path(file), factory, state)
    except AdascaleError:
        raise
    except Exception as error:
        reason = " ".join(str(error).split())[:300]
        raise InputError(f"The network {spec} could not be made: {type(error).__name__}: {reason}") from error
    return made[0].eval(), made[1]


def new_network(spec: str, classes: int, width: float = 1.0) -> Made:
    """The network with random weights and so many classes, to be trained. ``path/to/file.py:factory`` is taken as made.

    ``width`` scales the channels of ``adascale:`` networks.
    """
    source, _, name = spec.partition(":")
    if width != 1 and source != "adascale":
        raise InputError(f"width={width} for {spec}; only adascale: networks come in several widths, leave it out.")
    if source == "adascale":
        return networks.make(name, classes, width), networks.CIFAR
    if source == "torchvision":
        return _torchvision(name, None, classes)
    if source == "timm":
        return _timm(name, None, classes)
    if source == "hf":
        raise InputError(f"{spec} can only be trained further: start from its weights with init='pretrained'.")
    return load_network(spec)


def read_weights(path: str | Path) -> dict[str, Tensor]:
    """A state dict from disk; wrappers such as ``{"state_dict": ...}`` and ``module.`` prefixes are removed."""
    path = Path(path)
    if not path.is_file():
        raise InputError(f"There is no weights file {path}.")
    try:
        safe = path.suffix == ".safetensors"
        state: Any = load_file(path) if safe else torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # garbage makes the readers raise almost anything
        reason = " ".join(str(error).split())[:200]
        raise InputError(
            f"{path} cannot be read as weights: {reason}. It must be .safetensors, or a state dict saved by torch.save."
        ) from error
    for key in ("state_dict", "model_state_dict", "model"):
        if isinstance(state, Mapping) and isinstance(state.get(key), Mapping):
            state = state[key]
    if not isinstance(state, Mapping) or not all(isinstance(value, Tensor) for value in state.values()):
        raise InputError(f"{path} holds no state dict (a mapping from names to tensors).")
    prefix = "module." if all(key.startswith("module.") for key in state) else ""
    return {key.removeprefix(prefix): value for key, value in state.items()}


def _own(name: str, state: State) -> Made:
    networks.network_class(name)
    if state is None:
        raise InputError(f"adascale:{name} comes without weights; pass weights= (adascale train makes them).")
    return networks.made_for(name, state), networks.CIFAR


def _torchvision(name: str, state: State, new_classes: int | None = None) -> Made:
    models = optional("torchvision.models", "torchvision")
    if name not in models.list_models(module=models):
        raise InputError(f"torchvision has no classifier {name!r}; see torchvision.models.list_models().")
    presets = models.get_model_weights(name).DEFAULT.transforms()
    with torch.device("meta"):
        classes = _classes(models.get_model(name, weights=None), state, new_classes)
    fetched = "DEFAULT" if state is None and new_classes is None else None
    model = models.get_model(name, weights=fetched, **classes)
    size, crop = presets.resize_size[0], presets.crop_size[0]
    preprocess = Preprocess(size, crop, tuple(presets.mean), tuple(presets.std), presets.interpolation.value)
    return _with_state(model, state), preprocess


def _timm(name: str, state: State, new_classes: int | None = None) -> Made:
    timm = optional("timm", "timm")
    with torch.device("meta"):
        classes = _classes(timm.create_model(name), state, new_classes)
    model = timm.create_model(name, pretrained=state is None and new_classes is None, **classes)
    config = timm.data.resolve_model_data_config(model)
    height, width = config["input_size"][1:]
    scaled = (int(height / config["crop_pct"]), int(width / config["crop_pct"]))
    size = scaled if config["crop_mode"] == "squash" or height != width else scaled[0]
    mean, std = tuple(config["mean"]), tuple(config["std"])
    return _with_state(model, state), Preprocess(size, (height, width), mean, std, config["interpolation"])


def _huggingface(name: str, state: State) -> Made:
    optional("torchvision", "torchvision")  # the image processors need it, and it may need our help to import
    transformers = optional("transformers", "huggingface")
    if state is None:
        model = transformers.AutoModelForImageClassification.from_pretrained(name)
    else:
        config = transformers.AutoConfig.from_pretrained(name)
        model = _with_state(transformers.AutoModelForImageClassification.from_config(config), state)
    try:
        settings = transformers.AutoImageProcessor.from_pretrained(name).to_dict()
    except (OSError, ValueError):  # the folder says nothing about its images
        return model, None
    return model, from_huggingface(settings)


def from_huggingface(config: Mapping[str, Any]) -> Preprocess | None:
    """A Hugging Face image processor's settings as a `Preprocess`; None where it cannot express them."""
    size, crop = config.get("size") or {}, config.get("crop_size") or {}
    if not all(config.get(step, True) for step in ("do_normalize", "do_rescale", "do_resize")):
        return None
    target: Any = (size["height"], size["width"]) if "height" in size else size.get("shortest_edge")
    cropped: Any = (crop["height"], crop["width"]) if config.get("do_center_crop") else None
    share = config.get("crop_pct")
    if share and isinstance(target, int):  # ConvNeXt: resize to side / crop_pct, then crop; squash from 384 on
        cropped, target = (target, int(target / share)) if target < 384 else (None, (target, target))
    if target is None:
        return None
    if cropped is None and isinstance(target, int):
        cropped = target
    mean, std = tuple(config["image_mean"]), tuple(config["image_std"])
    return Preprocess(target, cropped, mean, std, _PIL_FILTERS[int(config.get("resample", 2))])


def _factory(path: Path, name: str, state: State) -> Made:
    """``name`` of the Python file ``path``: an nn.Module, or a callable that makes one.

    The file may say how its networks want their images: ``PREPROCESS = {"size": ..., "crop": ..., "mean": ...,
    "std": ...}``, or one such dict for each name.
    """
    if not path.is_file():
        raise InputError(f"There is no Python file {path}; a network is given as {FORMS}.")
    module = modules.load_file(path)
    made = getattr(module, name, None)
    with modules.importable(path.parent.resolve()):  # factories may import what stands beside their file
        model = made() if callable(made) and not isinstance(made, nn.Module) else made
    if not isinstance(model, nn.Module):
        raise InputError(f"{path} has no {name!r} that is, or makes, a torch.nn.Module.")
    described = getattr(module, "PREPROCESS", {})
    described = described.get(name, described) if isinstance(described, Mapping) else {}
    return _with_state(model, state), Preprocess(**described) if "mean" in described else None


def _classes(sample: nn.Module, state: State, new: int | None) -> dict[str, int]:
    """The number of classes asked for, or that of fine-tuned weights, which is the rows of their last matrix."""
    if new is not None:
        return {"num_classes": new}
    matrices = [name for name, tensor in sample.named_parameters() if tensor.ndim == 2 and name.endswith("weight")]
    if state is None or not matrices or matrices[-1] not in state:
        return {}
    return {"num_classes": len(state[matrices[-1]])}


def _with_state(model: nn.Module, state: State) -> nn.Module:
    if state is not None:
        model.load_state_dict(state)
    return model


_LOADERS: Mapping[str, Callable[[str, State], Made]] = {
    "torchvision": _torchvision,
    "timm": _timm,
    "hf": _huggingface,
    "adascale": _own,
}
