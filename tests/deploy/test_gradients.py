"""Gradients and perturbed views inside a graph, and inside an ONNX file."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor, nn

from adascale import Classifier, InputError, View, load_network
from adascale.deploy.gradients import Perturbation, as_graph, with_gradients
from adascale.extraction.perturb import perturb, selected
from adascale.images.loader import load_batches
from adascale.images.sources import find_images
from tests.conftest import DATA, SmallNet, images, needs_data, seeded
from tests.deploy.nets import MIDDLES, Apply, Net, Parted, Viewed, net_with

pytestmark = pytest.mark.usefixtures("unguarded")
Run = Callable[..., list[Tensor]]
ODIN = View("all", step=0.0014, temperature=1000.0, std=(0.2, 0.3, 0.4))
VIEWS = [View(), View("salient", 0.1), View("all"), ODIN, View("random")]


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
        (Apply(lambda x: x if float(x.sum()) > 0 else -x), "cannot be exported"),
    ],
)
def test_what_has_no_gradient_as_a_graph_is_refused_by_name(middle: nn.Module, words: str) -> None:
    network = Net(middle).eval()
    with torch.no_grad():
        network(images(2))
    with pytest.raises(InputError, match=words) as caught:
        with_gradients(Parted(network), images(2), [None])
    assert "pixels='random'" in str(caught.value) or words == "cannot be exported"
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


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "view",
    [View(fraction=f) for f in (0.25, 0.5, 1.0)]
    + [View("salient", 0.25), View("salient", 0.6), View("all"), View(fraction=0.3, temperature=1.0), ODIN]
    + [View("random", 0.25)],
    ids=str,
)
def test_the_exported_choice_is_the_same_on_ties_zeros_and_nan(view: View) -> None:
    gradient, x = hard_gradients(), images(14, size=4)
    run = in_onnxruntime(Perturbation(view, (3, 4, 4)), (x[:2], gradient[:2]))
    assert torch.equal(run(x, gradient)[0], perturb(x, gradient, view))


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
            assert error(seen, expected) < features
            if view.needs_gradient:
                chosen, same = (selected(g[view.temperature], view) for g in (of, graph_of))
                assert float((chosen & same).sum() / chosen.sum()) >= pixels


@pytest.mark.filterwarnings("ignore")
def test_a_small_network_in_one_file_with_every_kind_of_view() -> None:
    network = net_with("max pooling")
    x = images(32, size=12)
    run = in_onnxruntime(Viewed(Parted(copy.deepcopy(network)), x[:2], VIEWS), (x[:2],))
    check_against_python(network, x, VIEWS, run, pixels=0.998, features=1e-5)


def real(name: str) -> tuple[nn.Module, Tensor]:
    """A network of the shared data, and 32 test images as it wants them."""
    network, preprocess = load_network(f"{DATA / 'networks.py'}:{name}")
    assert preprocess is not None
    found = find_images(DATA / ("imagenet/val" if name.startswith("imagenet") else "cifar/cifar10_test.npz"))
    return network, next(iter(load_batches(found, preprocess, 32))).images


def check_real(name: str, head: str, pixels: float, features: float) -> None:
    network, x = real(name)
    run = in_onnxruntime(Viewed(Parted(copy.deepcopy(network), head), x[:2], [View()]), (x[:2],))
    check_against_python(network, x, [View()], run, pixels, features)


@needs_data
@pytest.mark.filterwarnings("ignore")
def test_resnet20_in_one_file() -> None:
    check_real("cifar10_resnet20", "linear", pixels=0.9999, features=1e-5)


@needs_data
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("name", "head", "pixels", "features"),
    [
        # A change of the memory layout alone moves as many pixels: a ReLU at zero opens or closes.
        ("imagenet_resnet50", "fc", 0.98, 0.05),
        ("imagenet_efficientnet_lite0", "_fc", 0.98, 0.05),
        ("cifar10_densenet101", "fc", 0.98, 0.05),
        ("cifar10_vit", "mlp_head.1", 0.9999, 1e-5),
    ],
)
def test_large_networks_in_one_file(name: str, head: str, pixels: float, features: float) -> None:
    check_real(name, head, pixels, features)
