"""The names of a network's classes: from a file, from Python, or from what the network's source says.

Importing this module does not import PyTorch.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from adascale.core.errors import InputError
from adascale.core.extras import optional

Names = tuple[str, ...]
_FORMS = "give a file with a name on each line, a JSON list, or a JSON object from index to name"


def class_names(source: str | os.PathLike[str] | Sequence[str] | Mapping[Any, Any]) -> Names:
    """The names in the order of the classes.

    source: a file with a name on each line, a JSON list or a JSON object; or such a list or mapping. A mapping goes
    from index to name, or from name to index, as ``ImageFolder.class_to_idx`` does; ``["n01440764", "tench"]`` in the
    place of a name stands for its last part.

    For example:

        >>> class_names({"cat": 0, "dog": 1})
        ('cat', 'dog')
    """
    if isinstance(source, str | os.PathLike):
        return _checked(_read(Path(source)), f"classes={os.fspath(source)}")
    return _checked(source, "classes")


def check_count(names: Names, classes: int) -> Names:
    """The names, if there is one for each class of the network."""
    if names and len(names) != classes:
        raise InputError(
            f"classes= has {len(names)} names ({names[0]}, ...), and the network has {classes} classes; "
            "give one name for each class, in their order."
        )
    return names


def names_from_source(spec: str, model: Any) -> Names:
    """What torchvision, timm or Hugging Face calls the classes of this network; empty where that is not known.

    torchvision and timm know the classes of ImageNet. They are taken for any network of theirs with as many classes.
    """
    source, _, name = spec.partition(":")
    if source == "hf":
        labels = dict(getattr(model.config, "id2label", None) or {})
        unnamed = all(str(label) == f"LABEL_{index}" for index, label in labels.items())
        return () if unnamed else tuple(str(labels[index]) for index in sorted(labels))
    if source == "torchvision":
        models = optional("torchvision.models", "torchvision")
        names = tuple(models.get_model_weights(name).DEFAULT.meta.get("categories") or ())
        matrices = [tensor for tensor in model.parameters() if tensor.ndim == 2]
        return names if matrices and len(matrices[-1]) == len(names) else ()
    if source == "timm":
        return _timm_names(optional("timm.data", "timm"), model)
    return ()


def _timm_names(data: Any, model: Any) -> Names:
    own = model.pretrained_cfg.get("label_names")
    if own and len(own) == model.num_classes:
        return tuple(map(str, own))
    subset = data.infer_imagenet_subset(model)
    if subset is None:
        return ()
    known = data.ImageNetInfo(subset)
    return tuple(known.index_to_description(index) for index in range(known.num_classes()))


def _read(path: Path) -> Any:
    if not path.is_file():
        raise InputError(f"There is no file of class names {path}; {_FORMS}.")
    text = path.read_text("utf-8-sig", "replace").strip()
    if text[:1] not in ("[", "{"):
        return [line.strip() for line in text.splitlines()]
    try:
        return json.loads(text)
    except ValueError as error:
        raise InputError(f"{path} cannot be read as JSON ({error}); {_FORMS}.") from error


def _checked(found: Any, given: str) -> Names:
    if isinstance(found, Mapping):
        found = _in_order(found, given)
    if not isinstance(found, Sequence) or isinstance(found, str | bytes) or not len(found):
        raise InputError(f"{given} holds no list of names; {_FORMS}.")
    names = [name[-1] if isinstance(name, Sequence) and not isinstance(name, str) and name else name for name in found]
    if wrong := [index for index, name in enumerate(names) if not isinstance(name, str) or not name.strip()]:
        raise InputError(f"{given} has no name for class {wrong[0]} (the first is class 0); {_FORMS}.")
    return tuple(names)


def _in_order(found: Mapping[Any, Any], given: str) -> list[Any]:
    """The names of a mapping in the order of the indices, which are its keys or its values."""
    by_name = all(isinstance(value, int) for value in found.values())
    pairs = [(value, key) if by_name else (key, value) for key, value in found.items()]
    try:
        names = {int(index): name for index, name in pairs}
    except (TypeError, ValueError):
        raise InputError(f"{given} has keys that are no class indices; {_FORMS}.") from None
    if sorted(names) != list(range(len(pairs))):
        raise InputError(f"{given} has {len(pairs)} names, but not the indices 0 to {len(pairs) - 1}; {_FORMS}.")
    return [names[index] for index in range(len(names))]
