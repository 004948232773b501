"""Small networks, one for each kind of operation whose derivative a graph has to hold, and the passes of a view."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from adascale import View
from adascale.export.gradients import Perturbation, with_gradients
from adascale.network.traceable import as_graph


class Parted(nn.Module):
    """``x -> (features, logits)`` from a network whose head is ``fc``."""

    def __init__(self, network: nn.Module, head: str = "fc") -> None:
        super().__init__()
        self.head = network.get_submodule(head)
        network.set_submodule(head, nn.Identity())
        self.body = network
        self.eval().requires_grad_(False)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        features = self.body(x)
        return features, self.head(features)


class Net(nn.Module):
    """A convolution, the operation in question, the mean of the sigmoid over the places, a head."""

    def __init__(self, middle: nn.Module) -> None:
        super().__init__()
        self.first, self.middle, self.fc = nn.Conv2d(3, 8, 3, padding=1), middle, nn.LazyLinear(5)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.fc(self.middle(self.first(x)).flatten(2).sigmoid().mean(2))
        return logits


class Apply(nn.Module):
    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


class Tokens(nn.Module):
    """The places as tokens through a transformer layer, the first token out."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, 0.1, activation="gelu", batch_first=True)
        self.token = nn.Parameter(torch.ones(1, 1, 8))

    def forward(self, x: Tensor) -> Tensor:
        places = x.flatten(2).transpose(1, 2)
        tokens = torch.cat((self.token.expand(len(x), -1, -1), places), 1)  # len(x) fixes the size of a first trace
        out: Tensor = self.layer(tokens)[:, 0]
        return out.unsqueeze(2)


class Squeezed(nn.Module):
    """Squeeze and excitation."""

    def __init__(self) -> None:
        super().__init__()
        self.down, self.up = nn.Conv2d(8, 4, 1), nn.Conv2d(4, 8, 1)

    def forward(self, x: Tensor) -> Tensor:
        gate: Tensor = self.up(F.silu(self.down(F.adaptive_avg_pool2d(x, 1)))).sigmoid()
        return x * gate


MIDDLES: dict[str, Callable[[], nn.Module]] = {
    "convolutions": lambda: nn.Sequential(
        nn.Conv2d(8, 12, 3, 2, 1), nn.Conv2d(12, 12, 5, padding=2, groups=4), nn.Conv2d(12, 6, 1, 2), nn.Tanh()
    ),
    "depthwise": lambda: nn.Sequential(nn.Conv2d(8, 8, 3, 2, 1, groups=8), nn.ReLU6(), nn.Conv2d(8, 8, 3, groups=8)),
    "dilated": lambda: nn.Sequential(nn.Conv2d(8, 8, 3, padding=2, dilation=2), nn.Conv2d(8, 8, (3, 1), (3, 2), 3)),
    "transposed": lambda: nn.Sequential(nn.ConvTranspose2d(8, 6, 3, 2, 1, 1, groups=2), nn.ELU()),
    "batch norm": lambda: nn.Sequential(nn.BatchNorm2d(8), nn.ReLU(), nn.BatchNorm2d(8, affine=False)),
    "other norms": lambda: nn.Sequential(
        nn.GroupNorm(2, 8), nn.InstanceNorm2d(8, affine=True), nn.LayerNorm([8, 12, 12])
    ),
    "max pooling": lambda: nn.Sequential(nn.ReLU(), nn.MaxPool2d(3, 2, 1), nn.MaxPool2d(2, ceil_mode=True)),
    "average pooling": lambda: nn.Sequential(
        nn.AvgPool2d(2), nn.Tanh(), nn.AvgPool2d(3, 1, 1, count_include_pad=False)
    ),
    "ragged pooling": lambda: nn.Sequential(
        nn.AvgPool2d(3, 2, 1, ceil_mode=True), nn.SiLU(), nn.AdaptiveAvgPool2d((3, 4))
    ),
    "activations": lambda: nn.Sequential(
        nn.GELU(), nn.SiLU(), nn.Hardswish(), nn.Mish(), nn.LeakyReLU(), nn.Softplus()
    ),
    "gates": lambda: nn.Sequential(
        nn.Hardsigmoid(), nn.PReLU(8), nn.GELU("tanh"), nn.GLU(1), nn.Hardtanh(), nn.LogSigmoid()
    ),
    "softmax": lambda: nn.Sequential(nn.Softmax(1), nn.LogSoftmax(2)),
    "squeeze": Squeezed,
    "transformer": Tokens,
    "slices": lambda: Apply(lambda x: F.pad(x[:, 2:-1, ::2, 1::3], (0, 0, 0, 0, 1, 2)) ** 2),
    "joined": lambda: Apply(lambda x: torch.cat([x.relu(), x[:, 3].unsqueeze(1), *x.tanh().chunk(2, 1)[:1]], 1)),
    "shuffled": lambda: nn.Sequential(nn.ChannelShuffle(4), nn.PixelUnshuffle(2), nn.Tanh(), nn.PixelShuffle(2)),
    "reduced": lambda: Apply(lambda x: x * x.amax((2, 3), keepdim=True) / x.std((2, 3), keepdim=True)),
}


def net_with(name: str, seed: int = 0) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = Net(MIDDLES[name]()).eval()
        with torch.no_grad():
            network(torch.randn(2, 3, 12, 12))
            for buffer in network.buffers():
                if buffer.is_floating_point():
                    buffer.uniform_(0.5, 1.5)
        return network


class Viewed(nn.Module):
    """``x -> (features, logits, features of each view..., gradients...)``, as an exported detector computes them."""

    def __init__(self, network: nn.Module, example: Tensor, views: list[View]) -> None:
        super().__init__()
        self.objectives = list(dict.fromkeys(view.temperature for view in views if view.needs_gradient))
        self.passes, self.again = with_gradients(network, example, self.objectives), as_graph(network, example)
        self.moves = nn.ModuleList(Perturbation(view, tuple(example.shape[1:])) for view in views)
        self.temperatures = [view.temperature for view in views]

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        features, logits, *gradients = self.passes(x)
        of = dict(zip(self.objectives, gradients, strict=True))
        perturbed = [self.again(move(x, of.get(t)))[0] for move, t in zip(self.moves, self.temperatures, strict=True)]
        return features, logits, *perturbed, *gradients
