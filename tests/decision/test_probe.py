"""The probe in a detector file does not depend on whether passes were made before."""

from __future__ import annotations

import torch
from torch import nn

from adascale import Classifier
from adascale.decision.detector_file import NetworkIdentity


def network() -> nn.Module:
    torch.manual_seed(0)
    layers = [nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 16, 3), nn.BatchNorm2d(16), nn.ReLU()]
    made = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 4))
    made.train()(torch.randn(32, 3, 16, 16))  # the norms have seen something
    return made.eval()


def test_a_run_that_found_all_its_passes_in_the_cache_probes_as_the_first_one_did() -> None:
    model = network()
    first = Classifier(model).locate(torch.randn(2, 3, 16, 16, generator=torch.Generator().manual_seed(1)))
    resumed = Classifier(model).adopt(first.head_name or "")
    assert not resumed.located
    probes = [NetworkIdentity(one).probe((3, 16, 16))[1] for one in (first, resumed)]
    assert torch.equal(*probes)
