"""Early decisions in exported files: the perturbed pass runs only where it can still change the answer.

``pair``: a second file for servers, ``model.clean.onnx``, decides what the clean pass settles; the rest goes to the
full file. ``if``: one file in which the perturbed pass is a branch; made for one image at a time.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from adascale.core.errors import InputError
from adascale.core.extras import optional
from adascale.core.types import Outputs
from adascale.export import onnx_file
from adascale.export.graph import INPUTS, DecisionGraph, Fitted, example, finite_images, finite_outputs

Early = Literal["pair", "if"]
CLEAN_OUTPUTS = ("logits", "prediction", "is_ood", "early")
# Bounds and scores are rounded differently, in float32 by some engines; this is far above the difference.
_MARGIN = 1e-5


def clean_path(path: Path) -> Path:
    """The second file of a pair."""
    return path.with_name(f"{path.stem}.clean{path.suffix}")


def check_early(fitted: Fitted) -> None:
    """Refuse a method for which the clean pass settles nothing."""
    method, head = fitted.method, fitted.method.head_
    if not method.views:
        raise InputError(f"{method.name} needs no perturbed pass, so that nothing could be decided early.")
    features = torch.rand(2, head.weight.shape[1], generator=torch.Generator().manual_seed(0))
    clean = Outputs.bare(head(features).float(), features, {})
    if method.formula_bounds(clean) is None:
        raise InputError(f"{method.name} has no bounds before the perturbed pass; export it without early.")


class CleanGraph(nn.Module):
    """``(images, alpha) -> logits, prediction, is_ood, early`` from the clean pass alone.

    The score lies between its bounds (see `Detector.bounds`). If both ends have the same answer, the image is decided:
    ``early``. For the others ``is_ood`` has no meaning yet.
    """

    def __init__(self, fitted: Fitted, keep_features: bool = False) -> None:
        super().__init__()
        self.full, self.keep_features = DecisionGraph(fitted), keep_features

    def forward(self, images: Tensor, alpha: Tensor) -> tuple[Tensor, ...]:
        outputs = self.clean(images)
        is_ood, early = self.settled(images, outputs, alpha)
        more = (outputs.features,) if self.keep_features else ()
        return outputs.logits, outputs.logits.argmax(1), is_ood, early, *more

    def clean(self, images: Tensor) -> Outputs:
        features, logits = self.full.network(images)
        return Outputs.bare(logits, features, {})

    def settled(self, images: Tensor, outputs: Outputs, alpha: Tensor) -> tuple[Tensor, Tensor]:
        """Whether each image is flagged, and whether that is settled."""
        bounds = self.full.method.formula_bounds(outputs)
        assert bounds is not None  # see `check_early`
        low, high = bounds
        allowed = self.full.allowed(alpha)
        flagged = self.full.rank(low - _MARGIN * (1 + low.abs())) <= allowed
        passed = self.full.rank(high + _MARGIN * (1 + high.abs())) > allowed
        broken = ~(finite_images(images) & finite_outputs(outputs))
        return flagged | broken, flagged | passed | broken


class RestGraph(nn.Module):
    """``(images, features, logits, alpha) -> is_ood``: the perturbed pass and all that follows from it."""

    def __init__(self, full: DecisionGraph) -> None:
        super().__init__()
        self.full = full

    def forward(self, images: Tensor, features: Tensor, logits: Tensor, alpha: Tensor) -> Tensor:
        return self.full.judged(images, Outputs.bare(logits, features, self.full.perturbed(images)), alpha)[-1]


def branching(fitted: Fitted) -> Any:
    """The ``onnx.ModelProto`` of the clean graph, in which an ``If`` runs the rest where an image of the batch is open.

    Both parts are exported alone and joined here: within a trace, a branch could not look into the network.
    """
    graph = CleanGraph(fitted, keep_features=True).eval()
    images, alpha = example(fitted)
    clean = onnx_file.to_onnx(graph, (images, alpha), INPUTS, (*CLEAN_OUTPUTS, "features"))
    known = graph.clean(images)
    given = (images, known.features, known.logits, alpha)
    names = ("images", "features", "logits", "alpha")
    rest = onnx_file.to_onnx(RestGraph(graph.full).eval(), given, names, ("is_ood",), batched=3)
    return _joined(clean, rest)


def _joined(clean: Any, rest: Any) -> Any:
    """``is_ood`` of the clean graph becomes that of the rest, unless every image was decided."""
    onnx = optional("onnx", onnx_file.EXTRA)
    make, graph = onnx.helper, clean.graph
    have = {one.name: one.SerializeToString() for one in graph.initializer}
    shared = {one.name for one in rest.graph.initializer if have.get(one.name) == one.SerializeToString()}
    outer = {"images", "features", "logits", "alpha", *shared}
    inner = onnx.compose.add_prefix_graph(rest.graph, "rest/")
    for node in inner.node:
        node.input[:] = [_outer(name, outer) for name in node.input]
    graph.initializer.extend(one for one in inner.initializer if one.name.removeprefix("rest/") not in shared)
    for node in graph.node:
        node.output[:] = ["settled" if name == "is_ood" else name for name in node.output]
        node.input[:] = ["settled" if name == "is_ood" else name for name in node.input]
    answer = make.make_tensor_value_info("known", onnx.TensorProto.BOOL, ["batch"])
    known = make.make_graph([make.make_node("Identity", ["settled"], ["known"])], "known", [], [answer])
    computed = make.make_graph(list(inner.node), "computed", [], list(inner.output))
    graph.node.extend(
        [
            make.make_node("Cast", ["early"], ["early_numbers"], to=onnx.TensorProto.INT32),
            make.make_node("ReduceMin", ["early_numbers"], ["least_early"], keepdims=0),
            make.make_node("Cast", ["least_early"], ["all_early"], to=onnx.TensorProto.BOOL),
            make.make_node("If", ["all_early"], ["is_ood"], then_branch=known, else_branch=computed),
        ]
    )
    del graph.output[len(CLEAN_OUTPUTS) :]  # the features were needed for the branch alone
    del graph.value_info[:]
    return clean


def _outer(name: str, outer: Collection[str]) -> str:
    """The name in the graph around the branch, for what comes from there."""
    bare = name.removeprefix("rest/")
    return bare if bare in outer else name
