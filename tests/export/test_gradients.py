"""Gradients and perturbed views inside a graph, and inside an ONNX file."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from torch import Tensor, nn

from adascale import Classifier, InputError, View
from adascale.export.gradients import Perturbation, with_gradients
from adascale.extraction.perturb import perturb
from adascale.network.traceable import as_graph
from tests.conftest import SmallNet, images, seeded
from tests.export.engines import check_against_python, error, in_onnxruntime
from tests.export.nets import MIDDLES, Apply, Net, Parted, Viewed, net_with

pytestmark = pytest.mark.usefixtures("unguarded")
ODIN = View("all", step=0.0014, temperature=1000.0, std=(0.2, 0.3, 0.4))
VIEWS = [View(), View("salient", 0.1), View("all"), ODIN, View("random")]


@pytest.mark.parametrize("name", MIDDLES)
def test_gradients_are_those_of_autograd(name: str) -> None:
    network = net_with(name).double()
    x = images(5, size=12).double()
    features, logits, gradients = Classifier(network, "fc").forward_with_gradients(x, [None, 10.0])
    graph = with_gradients(Parted(copy.deepcopy(network)), x[:2], [None, 10.0])
    with torch.no_grad():
        found = graph(x)
    for actual, expected in zip(found, (features, logits, *gradients), strict=True):
        assert error(actual, expected) < 1e-7  # PyTorch's own hard sigmoid has a float32 constant
    assert len(graph(x[:1])[2]) == 1


def test_the_graph_shares_the_parameters() -> None:
    network = Parted(seeded(SmallNet))
    weights = {p.data_ptr() for p in network.parameters()}
    for graph in (with_gradients(network, images(2), [None]), as_graph(network, images(2))):
        assert {p.data_ptr() for p in graph.parameters()} == weights


@pytest.mark.parametrize(
    ("middle", "words"),
    [
        (
            Apply(lambda x: nn.functional.grid_sample(x, x[:, :2].permute(0, 2, 3, 1), align_corners=False)),
            "gradient of grid_sampler_2d",
        ),
        (Apply(lambda x: nn.functional.conv2d(x, x.mean((0, 2, 3)).view(1, 8, 1, 1))), "gradient of convolution"),
        (Apply(lambda x: x.detach()), "blocks gradients"),
        (Apply(lambda x: x if float(x.sum()) > 0 else -x), "cannot trace Parted"),
    ],
)
def test_what_has_no_gradient_as_a_graph_is_refused_by_name(middle: nn.Module, words: str) -> None:
    network = Net(middle).eval()
    with torch.no_grad():
        network(images(2))
    with pytest.raises(InputError, match=words) as caught:
        with_gradients(Parted(network), images(2), [None])
    assert "pixels='random'" in str(caught.value) or words == "cannot trace Parted"
    assert "\n" not in str(caught.value)


def test_one_example_is_too_few() -> None:
    with pytest.raises(InputError, match="two or more"):
        with_gradients(Parted(seeded(SmallNet)), images(1), [None])


def hard_gradients() -> Tensor:
    """Rows of ties, zeros of both signs, infinities and NaN."""
    g = images(14, size=4, seed=1)
    g[1], g[2], g[3, 0], g[4], g[5], g[6, 1], g[7, 0, 0] = 0, 1, 0, g[4].round(), math.nan, math.nan, math.inf
    g[8], g[9, :2], g[10], g[11, 0], g[11, 1], g[12], g[13] = (
        -0.0,
        math.nan,
        -1,
        -math.inf,
        math.inf,
        math.inf,
        math.nan,
    )
    g[12, 1], g[13, 0, 0, 0] = math.nan, 1
    return g


CHOICES = [
    *[View(fraction=share) for share in (0.25, 0.5, 1.0)],
    *[View("salient", 0.25), View("salient", 0.6), View("all"), View(fraction=0.3, temperature=1.0), ODIN],
    View("random", 0.25),
]


class Choices(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.views = nn.ModuleList(Perturbation(view, (3, 4, 4)) for view in CHOICES)

    def forward(self, x: Tensor, gradient: Tensor) -> list[Tensor]:
        return [view(x, gradient) for view in self.views]


@pytest.mark.filterwarnings("ignore")
def test_the_exported_choice_is_the_same_on_ties_zeros_and_nan() -> None:
    gradient, x = hard_gradients(), images(14, size=4)
    found = in_onnxruntime(Choices(), (x[:2], gradient[:2]))(x, gradient)
    equal = [torch.equal(y, perturb(x, gradient, view)) for view, y in zip(CHOICES, found, strict=True)]
    assert equal == [True] * len(CHOICES)


@pytest.mark.filterwarnings("ignore")
def test_a_small_network_in_one_file_with_every_kind_of_view() -> None:
    network = net_with("max pooling")
    x = images(32, size=12)
    run = in_onnxruntime(Viewed(Parted(copy.deepcopy(network)), x[:2], VIEWS), (x[:2],))
    check_against_python(network, x, VIEWS, run, pixels=0.998, features=1e-5)
