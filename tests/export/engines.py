"""Modules exported to ONNX and run by an engine, compared with the network in Python."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor, nn

from adascale import Classifier, View
from adascale.extraction.perturb import perturb, selected

Run = Callable[..., list[Tensor]]


def in_onnxruntime(module: nn.Module, example: tuple[Tensor, ...]) -> Run:
    """The module exported with a free batch size, as a function."""
    runtime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    shapes = tuple({0: torch.export.Dim.DYNAMIC} for _ in example)
    program = torch.onnx.export(module.eval(), example, dynamo=True, dynamic_shapes=shapes, verbose=False)
    assert program is not None
    options = runtime.SessionOptions()
    options.intra_op_num_threads = 1
    session = runtime.InferenceSession(program.model_proto.SerializeToString(), options)
    names = [given.name for given in session.get_inputs()]

    def run(*inputs: Tensor) -> list[Tensor]:
        feed = {name: given.numpy() for name, given in zip(names, inputs, strict=False)}
        return [torch.from_numpy(out) for out in session.run(None, feed)]

    return run


def error(actual: Tensor, expected: Tensor) -> float:
    """The largest difference, relative to the largest value."""
    return float((actual - expected).abs().max() / expected.abs().max())


def check_against_python(
    network: nn.Module, x: Tensor, views: Sequence[View], run: Run, pixels: float, features: float
) -> None:
    """The file's features, logits, gradients, pixels and perturbed features are those of `Classifier`, in any batch."""
    classifier = Classifier(network).locate(x[:2])
    objectives = list(dict.fromkeys(view.temperature for view in views if view.needs_gradient))
    for batch in (x[:1], x[:7], x):
        clean, logits, gradients = classifier.forward_with_gradients(batch, objectives)
        of = dict(zip(objectives, gradients, strict=True))
        found = run(batch)
        assert error(found[0], clean) < 1e-5
        assert error(found[1], logits) < 1e-5
        graph_of = dict(zip(objectives, found[2 + len(views) :], strict=True))
        for view, seen in zip(views, found[2:], strict=False):
            expected = classifier.features(perturb(batch, of.get(view.temperature), view))
            assert float((seen - expected).norm() / expected.norm()) < features
            if view.needs_gradient:
                chosen, same = (selected(g[view.temperature], view) for g in (of, graph_of))
                assert float((chosen & same).sum() / chosen.sum()) >= pixels
