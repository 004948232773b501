"""`Preprocess` as an ONNX graph: pixels of any size in, the network's inputs out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from adascale.core.errors import InputError
from adascale.core.extras import optional
from adascale.export.onnx_file import EXTRA
from adascale.images.preprocess import Preprocess, sides

INPUT = "inputs"  # what the graph gives, and the decision takes
# Pillow leaves out what lies beyond the edge and scales the rest. ONNX can do that for cubic filters alone; linear ones
# repeat the edge, which changes the outermost pixels.
_MODES: Mapping[str, Mapping[str, Any]] = {
    "bilinear": {"mode": "linear"},
    "bicubic": {"mode": "cubic", "cubic_coeff_a": -0.5, "exclude_outside": 1},
}


def check_pixels(preprocess: Preprocess | None, shape: tuple[int, ...]) -> Preprocess:
    """Refuse a preprocessing that has no equal in ONNX. shape: (C, H, W) of the network's input."""
    if preprocess is None:
        raise InputError(
            "pixels=True needs a detector that says how images become inputs; fit it with "
            "preprocess=Preprocess(size=, crop=, mean=, std=)."
        )
    if preprocess.interpolation not in _MODES:
        raise InputError(
            f"interpolation={preprocess.interpolation!r} has no equal in ONNX; fit the detector with bilinear or "
            "bicubic, or export it without pixels=True."
        )
    size = sides(preprocess.size)
    if preprocess.crop is not None and any(
        crop > side for crop, side in zip(preprocess.side, size * (3 - len(size)), strict=True)
    ):
        raise InputError(
            f"crop={preprocess.crop} is larger than size={preprocess.size}, so the file would have to fill the border; "
            "export it without pixels=True, or fit with a crop of at most the size."
        )
    made = (len(preprocess.mean), *preprocess.side)
    if made != shape:
        raise InputError(
            f"The detector was fitted on inputs {shape}, and its preprocess makes {made}; fit it on images that went "
            "through its preprocess."
        )
    return preprocess


def pixels_graph(preprocess: Preprocess, opset: int, ir_version: int) -> Any:
    """The ``onnx.ModelProto``: ``images`` uint8 (N, H, W, C) -> ``inputs`` float32 (N, C, h, w).

    Sizes are those of Pillow's path: the longer side is ``floor(size * long / short)``, the crop begins at
    ``round((side - crop) / 2)``, where halves go to the even number. An image whose shape does not become (h, w), which
    is possible without a crop alone, is refused by the engine.
    """
    onnx = optional("onnx", EXTRA)
    make, kinds = onnx.helper, onnx.TensorProto
    channels, (height, width) = len(preprocess.mean), preprocess.side
    constants: dict[str, npt.NDArray[Any]] = {
        "two": np.array([2]),
        "four": np.array([4]),
        "zero": np.array([0]),
        "spatial": np.array([2, 3]),
        "half": np.array(2, np.float32),
        "size": np.array(preprocess.size),
        "crop": np.array([height, width]),
        "white": np.array(255, np.float32),
        "mean": np.array(preprocess.mean, np.float32).reshape(-1, 1, 1),
        "std": np.array(preprocess.std, np.float32).reshape(-1, 1, 1),
        "shape": np.array([0, channels, height, width]),
    }
    nodes = [
        make.make_node("Transpose", ["images"], ["planes"], perm=[0, 3, 1, 2]),
        make.make_node("Shape", ["planes"], ["all_sides"]),
        make.make_node("Slice", ["all_sides", "zero", "two"], ["rows"]),
        *_target(make, preprocess),
        make.make_node("Concat", ["rows", "target"], ["sizes"], axis=0),
        # On bytes onnxruntime rounds between the two passes, as Pillow does.
        make.make_node(
            "Resize",
            ["planes", "", "", "sizes"],
            ["resized"],
            antialias=1,
            coordinate_transformation_mode="half_pixel",
            **_MODES[preprocess.interpolation],
        ),
        *(
            _crop(make, kinds)
            if preprocess.crop is not None
            else [make.make_node("Identity", ["resized"], ["cropped"])]
        ),
        make.make_node("Cast", ["cropped"], ["levels"], to=kinds.FLOAT),
        make.make_node("Div", ["levels", "white"], ["shares"]),
        make.make_node("Sub", ["shares", "mean"], ["centred"]),
        make.make_node("Div", ["centred", "std"], ["normalised"]),
        make.make_node("Reshape", ["normalised", "shape"], [INPUT]),
    ]
    used = {name for node in nodes for name in node.input}
    graph = make.make_graph(
        nodes,
        "preprocess",
        [make.make_tensor_value_info("images", kinds.UINT8, ["batch", "height", "width", channels])],
        [make.make_tensor_value_info(INPUT, kinds.FLOAT, ["batch", channels, height, width])],
        [onnx.numpy_helper.from_array(value, name) for name, value in constants.items() if name in used],
    )
    return make.make_model(graph, opset_imports=[make.make_opsetid("", opset)], ir_version=ir_version)


def _target(make: Any, preprocess: Preprocess) -> list[Any]:
    """The height and width after resizing, in whole numbers."""
    if not isinstance(preprocess.size, int):
        return [make.make_node("Identity", ["size"], ["target"])]
    return [
        make.make_node("Slice", ["all_sides", "two", "four"], ["sides"]),
        make.make_node("ReduceMin", ["sides"], ["short"], keepdims=1),
        make.make_node("Mul", ["sides", "size"], ["enlarged"]),
        make.make_node("Div", ["enlarged", "short"], ["target"]),
    ]


def _crop(make: Any, kinds: Any) -> list[Any]:
    return [
        make.make_node("Sub", ["target", "crop"], ["beyond"]),
        make.make_node("Cast", ["beyond"], ["margins"], to=kinds.FLOAT),
        make.make_node("Div", ["margins", "half"], ["halves"]),
        make.make_node("Round", ["halves"], ["corner"]),  # halves go to the even number, as in Python
        make.make_node("Cast", ["corner"], ["start"], to=kinds.INT64),
        make.make_node("Add", ["start", "crop"], ["end"]),
        make.make_node("Slice", ["resized", "start", "end", "spatial"], ["cropped"]),
    ]


def made_pictures(preprocess: Preprocess) -> list[npt.NDArray[np.uint8]]:
    """Batches of made-up pictures (n, H, W, C): tall, wide and small ones, coarse noise and fine noise."""
    generator, channels = np.random.default_rng(0), len(preprocess.mean)
    side = max(sides(preprocess.size))
    square = preprocess.crop is None and isinstance(preprocess.size, int)
    shapes = [(side, side), (side + 9, side + 9), (max(4, side // 2),) * 2]
    if not square:
        shapes = [
            (side + side // 3, 2 * side + 1),
            (2 * side + 3, side + 5),
            (max(4, side // 2), max(4, side // 2) + 2),
        ]
    return [generator.integers(0, 256, (2, *shape, channels), dtype=np.uint8) for shape in shapes]
