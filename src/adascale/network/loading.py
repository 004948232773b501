"""Networks named by a short text, such as ``torchvision:NAME`` or ``path/to/file.py:factory``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from adascale.core import modules
from adascale.core.errors import AdascaleError, InputError
from adascale.core.extras import optional
from adascale.core.suggestions import meant
from adascale.images.preprocess import Preprocess
from adascale.network import cifar as networks
from adascale.network import digits, hub
from adascale.network.specs import check_spec, factories
from adascale.network.weights import read_weights, with_state

State = dict[str, Tensor] | None
Made = tuple[nn.Module, Preprocess | None]
_PIL_FILTERS: tuple[Any, ...] = ("nearest", "lanczos", "bilinear", "bicubic", "box", "hamming")


def load_network(spec: str, weights: str | Path | None = None) -> Made:
    """The network in evaluation mode and its own preprocessing (None where its source does not say).

    ``weights``: a .safetensors file, or a .pth/.pt state dict, which is read with ``weights_only``. Without it
    torchvision, timm and Hugging Face fetch their pretrained weights. ``adascale:wrn-28-10``, ``densenet-100-12`` and
    ``resnet-18`` are networks for CIFAR, whose weights ``adascale train`` makes. ``digits`` is the small network of the
    suite of that name, trained on the spot (some seconds).

    For example:

        >>> network, preprocess = load_network("net.py:network")
        >>> preprocess.size
        16
    """
    check_spec(spec)
    state = read_weights(weights) if weights is not None else None
    if spec == "digits":
        network = digits.train_network(digits.digit_images("train"))
        return with_state(network, state, spec).eval(), Preprocess(**digits.PREPROCESS)
    source, _, name = spec.partition(":")
    file, _, factory = spec.rpartition(":")
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


def _own(name: str, state: State) -> Made:
    networks.network_class(name)
    if state is None:
        raise InputError(f"adascale:{name} comes without weights; pass weights= (adascale train makes them).")
    return networks.made_for(name, state), networks.CIFAR


def _torchvision(name: str, state: State, new_classes: int | None = None) -> Made:
    models = optional("torchvision.models", "torchvision")
    known = models.list_models(module=models)
    if name in set(models.list_models()) - set(known):
        raise InputError(f"torchvision's {name} is no classifier of images; see torchvision.models.list_models().")
    if name not in known:
        hint = meant(name, known)
        raise InputError(f"torchvision has no classifier {name!r}{hint} See torchvision.models.list_models().")
    presets = models.get_model_weights(name).DEFAULT.transforms()
    classes = _classes(shapes_only(lambda: models.get_model(name, weights=None)), state, new_classes)
    fetched = "DEFAULT" if state is None and new_classes is None else None
    model = models.get_model(name, weights=fetched, **classes)
    size, crop = presets.resize_size[0], presets.crop_size[0]
    preprocess = Preprocess(size, crop, tuple(presets.mean), tuple(presets.std), presets.interpolation.value)
    return with_state(model, state, f"torchvision:{name}"), preprocess


def _timm(name: str, state: State, new_classes: int | None = None) -> Made:
    timm = optional("timm", "timm")
    if not timm.is_model(name.partition(".")[0]) and not name.startswith(("hf-hub:", "hf_hub:", "local-dir:")):
        raise InputError(f"timm has no network {name!r}{meant(name, timm.list_models())} See timm.list_models().")
    classes = _classes(shapes_only(lambda: timm.create_model(name)), state, new_classes)
    model = timm.create_model(name, pretrained=state is None and new_classes is None, **classes)
    config = timm.data.resolve_model_data_config(model)
    height, width = config["input_size"][1:]
    scaled = (int(height / config["crop_pct"]), int(width / config["crop_pct"]))
    size = scaled if config["crop_mode"] == "squash" or height != width else scaled[0]
    mean, std = tuple(config["mean"]), tuple(config["std"])
    model = with_state(model, state, f"timm:{name}")
    return model, Preprocess(size, (height, width), mean, std, config["interpolation"])


def _huggingface(name: str, state: State) -> Made:
    optional("torchvision", "torchvision")  # the image processors need it, and it may need our help to import
    transformers = optional("transformers", "huggingface")
    local = Path(name).is_dir() or hub.offline()
    try:
        if state is None:
            model = transformers.AutoModelForImageClassification.from_pretrained(name, local_files_only=local)
        else:
            config = transformers.AutoConfig.from_pretrained(name, local_files_only=local)
            model = with_state(transformers.AutoModelForImageClassification.from_config(config), state, f"hf:{name}")
    except OSError as error:
        if not local or Path(name).is_dir():
            raise
        raise InputError(
            f"hf:{name}: there is no folder {name} here, the Hugging Face hub cannot be reached, and no network of "
            "this name was fetched before; give the folder of a saved network, or go online."
        ) from error
    try:
        settings = transformers.AutoImageProcessor.from_pretrained(name, local_files_only=local).to_dict()
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
    module = modules.load_file(path)
    made = getattr(module, name, None)
    with modules.importable(path.parent.resolve()):  # factories may import what stands beside their file
        model = made() if callable(made) and not isinstance(made, nn.Module) else made
    if not isinstance(model, nn.Module):
        offered = [other for other in factories(path) if other != name]
        rest = f" It has {', '.join(offered)}." if offered else ""
        if not hasattr(module, name):
            raise InputError(f"{path} has no {name!r}{meant(name, offered)}{rest}")
        what = f"makes {_kind(model)}" if callable(made) else f"is {_kind(made)}"
        raise InputError(f"{name!r} of {path} {what}, not a torch.nn.Module.{rest}")
    described = getattr(module, "PREPROCESS", {})
    described = described.get(name, described) if isinstance(described, Mapping) else {}
    model = with_state(model, state, f"{path}:{name}")
    return model, Preprocess(**described) if "mean" in described else None


def _kind(value: object) -> str:
    return "None" if value is None else f"an object of type {type(value).__name__}"


def shapes_only(make: Callable[[], nn.Module]) -> nn.Module:
    """The network without memory for its weights, or with it where its constructor computes with numbers (RegNet)."""
    try:
        with torch.device("meta"):
            return make()
    except NotImplementedError:
        return make()


def _classes(sample: nn.Module, state: State, new: int | None) -> dict[str, int]:
    """The number of classes asked for, or that of fine-tuned weights, which is the rows of their last matrix."""
    if new is not None:
        return {"num_classes": new}
    matrices = [name for name, tensor in sample.named_parameters() if tensor.ndim == 2 and name.endswith("weight")]
    if state is None or not matrices or matrices[-1] not in state:
        return {}
    return {"num_classes": len(state[matrices[-1]])}


_LOADERS: Mapping[str, Callable[[str, State], Made]] = {
    "torchvision": _torchvision,
    "timm": _timm,
    "hf": _huggingface,
    "adascale": _own,
}
