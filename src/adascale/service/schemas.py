"""What requests and answers look like, for OpenAPI."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

# The smallest PNG, one white pixel: an example that the service really reads.
_PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGP4DwABAQEAG7buVgAAAABJRU5ErkJggg=="
_MEANINGS = {
    400: "The request makes no sense.",
    401: "The token is missing or wrong.",
    403: "A page of another site sent this.",
    404: "There is no such thing here.",
    408: "The request was not complete in time.",
    413: "Too many bytes or images.",
    415: "A content type or encoding that is not taken.",
    422: "The request cannot be read, or its single image.",
    500: "An error of the service.",
    503: "Too much work at a time, or the service is stopping; Retry-After says when to try again.",
    504: "The answer was not ready in time.",
}


class Failure(BaseModel):
    """Why a request was not served, in one line."""

    error: str


class Verdict(BaseModel):
    """The answer for one image. With ``explain=true`` also probability, evidence and explanation."""

    model_config = ConfigDict(populate_by_name=True)

    id: str = Field(description="For feedback on this verdict.", examples=["9f3c2a7d51e08b64"])
    name: str = Field(description="The file name that the form gave.", examples=["photo.jpg"])
    prediction: int | None = Field(examples=[3], description="The predicted class.")
    class_: str | None = Field(alias="class", examples=["tabby cat"], description="Its name, if it is known.")
    score: float | None = Field(examples=[-8.1], description="Higher is more out-of-distribution.")
    p_value: float | None = Field(examples=[0.42], description="Share of calibration images at least as unusual.")
    is_ood: bool | None = Field(examples=[False])
    early: bool | None = Field(examples=[None], description="decide: whether the clean pass alone settled it.")
    error: str | None = Field(examples=[None], description="Why there is no answer for this image.")
    probability: float | None = None
    evidence: dict[str, float] | None = None
    explanation: dict[str, Any] | None = None


class Histogram(BaseModel):
    """The scores of the calibration images."""

    n: int
    edges: list[float]
    counts: list[int]


class Described(BaseModel):
    """A detector that is served."""

    name: str
    method: str
    setting: str
    guarantee: str
    alpha: float
    level: float | None
    threshold: float | None
    images_seen: int
    classes: list[str]
    calibration: Histogram
    input: dict[str, Any]


class Opinion(BaseModel):
    """What a person says about a verdict."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"id": "9f3c2a7d51e08b64", "label": "known"}]})

    id: str = Field(max_length=64)
    label: Literal["known", "unknown"]


class Opinions(BaseModel):
    """How many verdicts of this detector have a label, by label."""

    id: str
    label: str
    counts: dict[str, int]


def failures(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The refusals that an endpoint can answer with; every one can be refused at the gate."""
    every = sorted({401, 403, 500, 503, *statuses})
    return {status: {"model": Failure, "description": _MEANINGS[status]} for status in every}


IMAGES: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "description": "One image as it is, a form of images, or images in base64.",
        "content": {
            **{kind: {"schema": {"type": "string", "format": "binary"}} for kind in ("image/png", "image/jpeg")},
            "application/octet-stream": {"schema": {"type": "string", "format": "binary"}},
            "multipart/form-data": {
                "schema": {
                    "type": "object",
                    "required": ["images"],
                    "properties": {"images": {"type": "array", "items": {"type": "string", "format": "binary"}}},
                }
            },
            "application/json": {
                "schema": {
                    "type": "object",
                    "required": ["images"],
                    "properties": {"images": {"type": "array", "minItems": 1, "items": {"type": "string"}}},
                },
                "example": {"images": [_PIXEL]},
            },
        },
    }
}
INFER: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "description": "Tensors by name; with binary data they follow the JSON, as application/octet-stream.",
        "content": {
            "application/json": {
                "schema": {
                    "type": "object",
                    "required": ["inputs"],
                    "properties": {
                        "id": {"type": "string"},
                        "inputs": {
                            "type": "array",
                            "minItems": 1,
                            "items": {
                                "type": "object",
                                "required": ["name", "datatype", "shape", "data"],
                                "properties": {
                                    "name": {"enum": ["images", "pixels"]},
                                    "datatype": {"enum": ["FP32", "UINT8", "BYTES"]},
                                    "shape": {"type": "array", "items": {"type": "integer", "minimum": 0}},
                                    "data": {"type": "array"},
                                },
                            },
                        },
                    },
                },
                "example": {"inputs": [{"name": "pixels", "datatype": "BYTES", "shape": [1], "data": [_PIXEL]}]},
            }
        },
    }
}
