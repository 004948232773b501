"""Tensors of the Open Inference Protocol: as JSON, or as bytes behind it (the binary data extension)."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from fastapi.responses import JSONResponse, Response

from adascale.service.pictures import from_base64, parsed
from adascale.service.refusals import Refused

_LENGTH = "Inference-Header-Content-Length"
_ARRAYS = {"FP32": "<f4", "UINT8": "u1"}
Given = np.ndarray[Any, Any] | list[bytes]


@dataclass(frozen=True, eq=False)
class Asked:
    """A request: its tensors by name; outputs: whether each that is wanted is to come as bytes; all_binary: if none is
    named.
    """

    id: str | None
    inputs: dict[str, Given]
    outputs: dict[str, bool]
    all_binary: bool


def asked_of(body: bytes, length: str | None) -> Asked:
    """The request of a body. length: of its JSON, where bytes follow it."""
    try:
        size = len(body) if length is None else int(length)
    except ValueError:
        raise Refused(400, f"{_LENGTH} is {length[:40]!r}; it must be a number.") from None  # type: ignore[index]
    if not 0 <= size <= len(body):
        raise Refused(400, f"{_LENGTH} is {size}, and the body has {len(body)} bytes.")
    try:
        document, rest = parsed(body[:size]), memoryview(body)[size:]
    except Refused as error:
        raise Refused(400, error.message) from None
    try:
        return _asked(document, rest)
    except (KeyError, TypeError, AttributeError, ValueError, OverflowError) as error:
        raise Refused(400, f"The request is not as the protocol says: {type(error).__name__} {error}.") from None


def _asked(document: Any, rest: memoryview) -> Asked:
    inputs: dict[str, Given] = {}
    for tensor in document["inputs"]:
        size = tensor.get("parameters", {}).get("binary_data_size")
        if size is not None:
            if not 0 <= int(size) <= len(rest):
                raise ValueError("binary_data_size goes beyond the body")
            inputs[str(tensor["name"])] = _from_bytes(tensor, rest[: int(size)])
            rest = rest[int(size) :]
        else:
            inputs[str(tensor["name"])] = _from_json(tensor)
    if len(rest):
        raise ValueError(f"{len(rest)} bytes belong to no tensor")
    every = bool(document.get("parameters", {}).get("binary_data_output", False))
    outputs = {
        str(one["name"]): bool(one.get("parameters", {}).get("binary_data", every))
        for one in document.get("outputs", [])
    }
    id = document.get("id")
    return Asked(None if id is None else str(id)[:200], inputs, outputs, every)


def _shape(tensor: Any) -> tuple[int, ...]:
    shape = tuple(tensor["shape"])
    if not all(isinstance(side, int) and not isinstance(side, bool) and side >= 0 for side in shape):
        raise ValueError(f"the shape {str(shape)[:80]} is no list of numbers from 0 on")
    return shape


def _from_bytes(tensor: Any, data: memoryview) -> Given:
    kind, shape = tensor["datatype"], _shape(tensor)
    if kind == "BYTES":
        return _checked(_elements(data), shape)
    array = np.frombuffer(data, _ARRAYS[kind] if kind in _ARRAYS else _unknown(kind))
    filled: np.ndarray[Any, Any] = _filled(array, shape).copy()
    return filled  # a copy, because the body is given back before the images are judged


def _from_json(tensor: Any) -> Given:
    kind, shape = tensor["datatype"], _shape(tensor)
    if kind == "BYTES":
        flat = tensor["data"]
        return _checked([from_base64(one, "An element of BYTES") for one in flat], shape)
    if kind not in _ARRAYS:
        _unknown(kind)
    values = np.asarray(tensor["data"], np.float64).ravel()
    if kind == "UINT8" and len(values) and not ((values >= 0) & (values <= 255) & (values % 1 == 0)).all():
        raise ValueError("UINT8 has other values than 0 to 255")
    return _filled(values.astype(_ARRAYS[kind]), shape)


def _unknown(kind: Any) -> str:
    raise ValueError(f"the datatype {str(kind)[:40]} is none of BYTES, {', '.join(_ARRAYS)}")


def _filled(array: np.ndarray[Any, Any], shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    if math.prod(shape) != array.size:
        raise ValueError(f"the shape {str(shape)[:80]} does not hold {array.size} values")
    return array.reshape(shape)


def _elements(data: memoryview) -> list[bytes]:
    """Each element comes with its length before it, in 4 bytes."""
    found, start = [], 0
    while start < len(data):
        length = int.from_bytes(data[start : start + 4], "little")
        if start + 4 + length > len(data):
            raise ValueError("an element of BYTES goes beyond its tensor")
        found.append(bytes(data[start + 4 : start + 4 + length]))
        start += 4 + length
    return found


def _checked(elements: list[bytes], shape: tuple[int, ...]) -> list[bytes]:
    if math.prod(shape) != len(elements):
        raise ValueError(f"the shape {str(shape)[:80]} does not hold {len(elements)} elements")
    return elements


def response_of(
    model: str, asked: Asked, outputs: Mapping[str, np.ndarray[Any, Any]], types: Mapping[str, str]
) -> Response:
    """The outputs that were asked for, by default all."""
    wanted = asked.outputs or dict.fromkeys(outputs, asked.all_binary)
    described, parts = [], []
    for name, binary in wanted.items():
        array = outputs[name]
        one: dict[str, Any] = {"name": name, "datatype": types[name], "shape": list(array.shape)}
        if binary:
            parts.append(np.ascontiguousarray(array).tobytes())
            one["parameters"] = {"binary_data_size": len(parts[-1])}
        else:
            one["data"] = [_number(value) for value in array.ravel().tolist()]
        described.append(one)
    document = {"model_name": model, "model_version": "1", "outputs": described}
    document |= {} if asked.id is None else {"id": asked.id}
    if not parts:
        return JSONResponse(document)
    head = json.dumps(document).encode()
    return Response(b"".join([head, *parts]), media_type="application/octet-stream", headers={_LENGTH: str(len(head))})


def _number(value: Any) -> Any:
    """JSON has no NaN and no infinity."""
    return None if isinstance(value, float) and not math.isfinite(value) else value
