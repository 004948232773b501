"""From the body of a request to inputs of a network: a raw image, a form with many images, or JSON with base64."""

from __future__ import annotations

import base64
import binascii
import json
from dataclasses import dataclass
from typing import Any

from python_multipart import MultipartParser
from python_multipart.exceptions import FormParserError
from python_multipart.multipart import parse_options_header
from torch import Tensor

from adascale.images.pixels import READ_ERRORS, opened, why_unreadable
from adascale.images.preprocess import Preprocess
from adascale.service.refusals import Refused

# Others are left out, because some of Pillow's readers start programs (EPS) or trust sizes within the file (ICO).
FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")
_LONGEST_NAME = 200
_WAYS = "send one image as the body, a form (multipart/form-data) of images, or JSON {'images': [base64, ...]}"


@dataclass(frozen=True, eq=False)
class Picture:
    """An encoded image, and what the client calls it."""

    name: str
    data: bytes


class Unreadable(ValueError):
    """An image that cannot be decoded; the message says why."""


def decoded(data: bytes, preprocess: Preprocess, most: int) -> Tensor:
    """The input (C, H, W) of an encoded image with at most so many pixels."""
    try:
        with opened(data, preprocess.least, most, FORMATS) as image:
            return preprocess.normalised(image)
    except READ_ERRORS as error:
        raise Unreadable(why_unreadable(error)) from error
    except Exception as error:  # decoders raise whatever a damaged file leads them to
        raise Unreadable(f"it is damaged ({type(error).__name__})") from error


def pictures_of(body: bytes, content_type: str, most: int) -> list[Picture]:
    """The images of a request, at most so many."""
    kind, options = parse_options_header(content_type)
    if not body:
        raise Refused(422, f"The request is empty; {_WAYS}.")
    if kind == b"multipart/form-data":
        found = _of_form(body, options.get(b"boundary", b""), most)
    elif kind == b"application/json":
        found = _of_json(body, most)
    elif is_single(content_type):
        found = [Picture("", body)]
    else:
        raise Refused(415, f"The content type is {_shown(kind)}; {_WAYS}.")
    if not found:
        raise Refused(422, f"The request has no image; {_WAYS}.")
    return found


def is_single(content_type: str) -> bool:
    """Whether a body of this type is one image as it is; the last type is what curl says where it is told none."""
    kind = content_type.partition(";")[0].strip().lower()
    return kind.startswith("image/") or kind in ("", "application/octet-stream", "application/x-www-form-urlencoded")


def too_many(found: int, most: int) -> Refused:
    return Refused(413, f"The request has {found} images or more; at most {most} are taken.")


def parsed(body: bytes) -> Any:
    """The JSON document of a request."""
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as error:
        raise Refused(422, f"The body is no JSON: {error}.") from None


def from_base64(text: Any, what: str) -> bytes:
    """The bytes; a data URL may stand for them."""
    if not isinstance(text, str):
        raise Refused(422, f"{what} is {type(text).__name__}; give it as text in base64.")
    if text.startswith("data:"):
        text = text.partition(",")[2]
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise Refused(422, f"{what} is no base64: {error}.") from None


def _of_json(body: bytes, most: int) -> list[Picture]:
    document = parsed(body)
    images = document.get("images") if isinstance(document, dict) else None
    if not isinstance(images, list):
        raise Refused(422, "The JSON has no list 'images'; send {'images': [base64, ...]}.")
    if len(images) > most:
        raise too_many(len(images), most)
    return [Picture("", from_base64(text, f"Image {i}")) for i, text in enumerate(images)]


def _of_form(body: bytes, boundary: bytes, most: int) -> list[Picture]:
    if not boundary:
        raise Refused(422, "The form has no boundary in its content type.")
    form = _Form(most)
    try:
        parser = MultipartParser(boundary, form.callbacks())
        parser.write(body)
        parser.finalize()
    except (FormParserError, ValueError) as error:
        raise Refused(422, f"The form cannot be read: {error}.") from None
    if not form.complete:
        raise Refused(422, "The form ends before its last boundary.")
    return form.pictures


class _Form:
    """Gathers the parts of a form that have a file name; other fields are left out."""

    def __init__(self, most: int) -> None:
        self.pictures: list[Picture] = []
        self.complete = False
        self._most, self._parts = most, 0
        self._field, self._value = bytearray(), bytearray()
        self._headers: dict[bytes, bytes] = {}
        self._data: list[bytes] = []

    def callbacks(self) -> Any:
        return {
            "on_part_begin": self._begin,
            "on_header_field": lambda data, start, end: self._field.extend(data[start:end]),
            "on_header_value": lambda data, start, end: self._value.extend(data[start:end]),
            "on_header_end": self._header,
            "on_part_data": lambda data, start, end: self._data.append(data[start:end]),
            "on_part_end": self._end,
            "on_end": self._finish,
        }

    def _begin(self) -> None:
        self._headers, self._data = {}, []
        self._parts += 1
        if self._parts > self._most:
            raise too_many(self._parts, self._most)

    def _header(self) -> None:
        self._headers[bytes(self._field).lower()] = bytes(self._value)
        self._field.clear()
        self._value.clear()

    def _end(self) -> None:
        _, options = parse_options_header(self._headers.get(b"content-disposition", b""))
        name = options.get(b"filename")
        if name is not None:
            self.pictures.append(Picture(_shown(name), b"".join(self._data)))

    def _finish(self) -> None:
        self.complete = True


def _shown(text: bytes) -> str:
    """What a client calls something, short and printable."""
    return "".join(c for c in text.decode("utf8", "replace") if c.isprintable())[:_LONGEST_NAME]
