"""The network in int8: static quantisation of its convolutions and matrix products, channel by channel.

The method, its head product and the calibration stay in floating point. A quantised network is another network: a
detector has to be fitted and calibrated on its features.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from adascale.core.errors import InputError
from adascale.core.extras import optional
from adascale.core.types import Outputs, View
from adascale.export import onnx_file
from adascale.export.engines import Run, session_run
from adascale.export.graph import OUTPUTS, DecisionGraph, Fitted, finite_images

_BETWEEN = ("finite", "features")  # what passes from the network to the decision
# What is computed in int8. An activation function that follows one of the first three is part of it.
_PRODUCTS = ("Conv", "Gemm", "MatMul")
_OPERATORS = (*_PRODUCTS, "Relu", "Clip")
_BATCH = 8


class NetworkPart(nn.Module):
    """``images -> finite (N,), features (N, 1 + views, D)``: the clean features, then those of each view."""

    def __init__(self, graph: DecisionGraph) -> None:
        super().__init__()
        self.decision = graph  # the name "graph" belongs to the tracer

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        outputs = self.decision.outputs(images)
        return finite_images(images), torch.stack([outputs.features, *outputs.views.values()], 1)


class DecisionPart(nn.Module):
    """``(finite, features, alpha) -> logits, prediction, score, p_value, is_ood``: what `NetworkPart` leaves to do."""

    def __init__(self, graph: DecisionGraph) -> None:
        super().__init__()
        self.register_buffer("weight", graph.network.get_buffer("weight"))
        self.register_buffer("bias", graph.network.get_buffer("bias"))
        graph.network, graph.steps = nn.Identity(), nn.ModuleList()  # what the other part holds is not written twice
        self.decision = graph
        self.weight: Tensor
        self.bias: Tensor

    def forward(self, finite: Tensor, features: Tensor, alpha: Tensor) -> tuple[Tensor, ...]:
        outputs = as_outputs(features, self.weight, self.bias, self.decision.method.views)
        return outputs.logits, outputs.logits.argmax(1), *self.decision.decided(finite, outputs, alpha)


def as_outputs(features: Tensor, weight: Tensor, bias: Tensor, views: Sequence[View]) -> Outputs:
    """What a method is given, from the features (N, 1 + views, D)."""
    clean, *perturbed = features.unbind(1)
    logits = nn.functional.linear(clean, weight, bias)
    return Outputs.bare(logits, clean, dict(zip(views, perturbed, strict=True)))


@dataclass(frozen=True, eq=False)
class QuantisedNetwork:
    """A network in int8, run by onnxruntime. model: its ONNX graph. weight, bias: those of the head, in float32."""

    model: Any
    weight: Tensor
    bias: Tensor
    views: tuple[View, ...]

    def outputs(self, images: Tensor, batch_size: int = 32) -> Outputs:
        """What a method is given for these inputs (N, C, H, W)."""
        parts = [self._features(part) for part in torch.split(images, batch_size)]
        found = as_outputs(torch.cat(parts), self.weight, self.bias, self.views)
        return Outputs(found.logits, found.features, found.views)

    def _features(self, images: Tensor) -> Tensor:
        found = self._run({"images": images.float().contiguous().numpy()})
        features = torch.from_numpy(found["features"])
        # An integer has no NaN: quantised images with one would have features like any other.
        return torch.where(torch.from_numpy(found["finite"])[:, None, None], features, torch.nan)

    @cached_property
    def _run(self) -> Run:
        return session_run(self.model.SerializeToString(), list(_BETWEEN))

    @cached_property
    def fingerprint(self) -> str:
        """A hash of the quantised network's bytes."""
        return hashlib.sha256(self.model.SerializeToString(deterministic=True)).hexdigest()


def quantise(fitted: Fitted, images: Tensor) -> QuantisedNetwork:
    """The network of a detector in int8. images: inputs (N, C, H, W) that show the range of every activation."""
    if gradient := [view for view in fitted.method.views if view.needs_gradient]:
        raise InputError(
            f"{fitted.method.name} with the view {gradient[0]} needs a gradient, which int8 does not have; "
            "fit it with pixels='random', which needs none."
        )
    graph = DecisionGraph(fitted).eval()
    example = (images[:2].float(),) if len(images) > 1 else (images[:1].repeat(2, 1, 1, 1).float(),)
    model = onnx_file.to_onnx(NetworkPart(graph), example, ("images",), _BETWEEN)
    model.graph.name = "network"
    weight, bias = (graph.network.get_buffer(name).clone() for name in ("weight", "bias"))
    return QuantisedNetwork(_quantised(model, images), weight, bias, graph.method.views)


def decision_on(network: QuantisedNetwork, fitted: Fitted, name: str = "images") -> Any:
    """The whole decision as one ``onnx.ModelProto``: the quantised network, then what was fitted on it. name: that of
    the images.
    """
    part = DecisionPart(DecisionGraph(fitted)).eval()
    features = torch.randn(
        2, 1 + len(network.views), network.weight.shape[1], generator=torch.Generator().manual_seed(0)
    )
    example = torch.ones(2, dtype=torch.bool), features, torch.tensor(fitted.calibration.alpha, dtype=torch.float32)
    model = onnx_file.to_onnx(part, example, (*_BETWEEN, "alpha"), OUTPUTS, batched=2)
    whole = onnx_file.joined(network.model, model, _BETWEEN)
    for value in [given for given in whole.graph.input if given.name == "images"]:
        value.name = name
    for node in whole.graph.node:
        node.input[:] = [name if given == "images" else given for given in node.input]
    return whole


def _quantised(model: Any, images: Tensor) -> Any:
    """Weights get 7 bits and activations 8: products of 8 bits overflow on processors without VNNI, so that the same
    file would score otherwise there.
    """
    onnx, tool = optional("onnx", onnx_file.EXTRA), optional("onnxruntime.quantization", onnx_file.EXTRA)
    prepare = optional("onnxruntime.quantization.shape_inference", onnx_file.EXTRA).quant_pre_process
    with tempfile.TemporaryDirectory() as name, onnx_file.quiet():
        given, prepared, made = (Path(name) / f"{part}.onnx" for part in ("given", "prepared", "made"))
        onnx.save_model(model, given)
        prepare(str(given), str(prepared), skip_symbolic_shape=True)
        tool.quantize_static(
            str(prepared),
            str(made),
            _reader(tool, images),
            quant_format=tool.QuantFormat.QDQ,
            per_channel=True,
            reduce_range=True,
            activation_type=tool.QuantType.QUInt8,
            weight_type=tool.QuantType.QInt8,
            op_types_to_quantize=list(_OPERATORS),
            nodes_to_exclude=_first_product(onnx.load(prepared)),
        )
        found = onnx.load(made)
    if not any(node.op_type == "QuantizeLinear" for node in found.graph.node):
        raise InputError("The network has no convolution or matrix product to quantise; export it without int8.")
    _read_images(found)
    return found


def _read_images(model: Any) -> None:
    """Let all but products read the images as they are: onnxruntime quantises them for every node."""
    nodes = model.graph.node
    rounded = {node.output[0] for node in nodes if node.op_type == "QuantizeLinear" and node.input[0] == "images"}
    again = {node.output[0] for node in nodes if node.op_type == "DequantizeLinear" and node.input[0] in rounded}
    for node in nodes:
        if node.op_type not in _PRODUCTS:
            node.input[:] = ["images" if given in again else given for given in node.input]


def _first_product(model: Any) -> list[str]:
    """The name of the first convolution or matrix product, which stays in floating point where there are others: it
    reads the images, whose rounding every later layer would see, and it is a small part of the work.
    """
    products = [node.name for node in model.graph.node if node.op_type in _PRODUCTS]
    return products[:1] if len(products) > 1 else []


def _reader(tool: Any, images: Tensor) -> Any:
    """The images in batches, as onnxruntime's calibration asks for them."""
    parts: Iterator[Tensor] = iter(torch.split(images.float(), _BATCH))

    class Reader(tool.CalibrationDataReader):  # type: ignore[misc]
        def get_next(self) -> dict[str, Any] | None:
            part = next(parts, None)
            return None if part is None else {"images": part.contiguous().numpy()}

    return Reader()
