"""What the record and the tensors of a detector file must be; a crafted file can have a right checksum."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from types import NoneType
from typing import Any, get_args

import torch
from torch import Tensor

from adascale.core.errors import InputError
from adascale.core.types import Head, Outputs
from adascale.decision.audit import Change, audit_of
from adascale.detectors import Detector
from adascale.images.preprocess import as_preprocess
from adascale.maths.conformal import Calibration

Kinds = tuple[type, ...]
_NUMBER: Kinds = (int, float)
# What is read of a record, by section. A field that may be missing also takes None.
_TOP: Mapping[str, Kinds] = {
    **{"method": (str,), "parameters": (dict,), "setting": (str, NoneType), "fitted": (dict, NoneType)},
    **dict.fromkeys(("calibration", "head", "network", "input", "about"), (dict,)),
    **{"class_names": (list, NoneType), "origin": (dict, NoneType), "audit": (list, NoneType)},
}
_AUDIT: Mapping[str, Kinds] = {"change": (str,), "date": (str,), "images": (int,), "source": (str,)}
_SECTIONS: Mapping[str, Mapping[str, Kinds]] = {
    "calibration": {
        **{"alpha": _NUMBER, "confidence": (*_NUMBER, NoneType)},
        **{"split_seed": (int,), "reference_images": (int,)},
    },
    "head": {"name": (str,), "fingerprint": (str,)},
    "network": {
        **{"class": (str,), "fingerprint": (str,)},
        **{"precision": (str, NoneType), "engine": (str, NoneType)},
    },
    "input": {"shape": (list, NoneType), "preprocess": (dict, NoneType)},
    "about": {"model": (str, NoneType), "weights": (str, NoneType)},
}


def check_content(record: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
    """Refuse a record or tensors of another form than `save_detector` writes: an `InputError` names the field."""
    _check_fields(record, _TOP, "")
    for section, fields in _SECTIONS.items():
        _check_fields(record[section], fields, f"{section}.")
    if not all(type(side) is int and side > 0 for side in record["input"].get("shape") or ()):
        raise InputError(f"its input.shape is {record['input']['shape']}")
    if not all(isinstance(name, str) for name in record.get("class_names") or ()):
        raise InputError("its class_names are not all texts")
    try:
        as_preprocess(record["input"].get("preprocess"))
    except TypeError as error:
        raise InputError(f"its input.preprocess cannot be used ({error})") from error
    scores = tensors.get("calibration.scores")
    if scores is None or scores.ndim != 1 or not len(scores) or not scores.is_floating_point():
        raise InputError("it has no list of calibration.scores")
    if scores.isnan().any():
        raise InputError("its calibration.scores hold NaN")
    Calibration(scores, record["calibration"]["alpha"], record["calibration"].get("confidence"))
    _check_audit(record, tensors)
    probe = [tensors[name] for name in ("probe.images", "probe.features") if name in tensors]
    if len(probe) == 1 or not all(part.is_floating_point() and part.ndim and len(part) for part in probe):
        raise InputError("its probe is incomplete")


def _check_audit(record: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
    for i, entry in enumerate(record.get("audit") or ()):
        if not isinstance(entry, dict):
            raise InputError(f"its audit.{i} is a {type(entry).__name__}")
        _check_fields(entry, _AUDIT, f"audit.{i}.")
        if entry["change"] not in get_args(Change):
            raise InputError(f"its audit.{i}.change is {entry['change']!r}")
    try:
        known = all(isinstance(name, str) for entry in audit_of(record, tensors) for name in entry.names)
    except (TypeError, ValueError) as error:
        raise InputError(f"its audit cannot be read ({error})") from error
    if not known:
        raise InputError("the names of its audit are not all texts")
    classes = tensors.get("calibration.classes")
    if classes is not None and (classes.ndim != 1 or classes.is_floating_point() or bool((classes < 0).any())):
        raise InputError("its calibration.classes are no list of classes")


def _check_fields(record: Mapping[str, Any], fields: Mapping[str, Kinds], where: str) -> None:
    for name, kinds in fields.items():
        value = record.get(name)
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            given = "missing" if name not in record else f"a {type(value).__name__}"
            raise InputError(f"its {where}{name} is {given}")


def check_learned(method: Detector, head: Head) -> None:
    """Let a restored method score two made-up rows: tensors that do not fit it are an `InputError`."""
    generator = torch.Generator().manual_seed(0)
    features = torch.rand(2, head.weight.shape[1], generator=generator)
    logits = features @ head.weight.float().T + (0 if head.bias is None else head.bias.float())
    if method.taps:
        return  # the widths of inner layers are known to the network alone
    rows = Outputs(logits, features, {view: features.flip(0) for view in method.views})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            method.score(rows)
        except InputError:
            pass  # these rows are none for this method; those of images may be
        except Exception as error:
            reason = " ".join(str(error).split())[:200]
            raise InputError(f"what {method.name} has learned does not fit it ({reason})") from error
