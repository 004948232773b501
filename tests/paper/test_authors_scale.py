"""SCALE as its authors compute it agrees with ours."""

from __future__ import annotations

import torch

from adascale import Head, Outputs, detectors
from adascale.paper.studies.latency import scale_of_authors, scale_score_of_authors


def test_scale_of_its_authors_is_scale() -> None:
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(20, 200, generator=generator).relu()
    head = Head(torch.randn(7, 200, generator=generator), torch.randn(7, generator=generator))
    before = features.clone()
    for percentile in (65, 85, 95):
        method = detectors.SCALE(percentile=percentile).fit(None, head)
        expected = method.score(Outputs(head(features).float(), features))
        assert torch.allclose(scale_score_of_authors(features, head, percentile).double(), expected, rtol=1e-4)
    by_hand = features[0] * torch.exp(features[0].sum() / features[0].sort().values[-30:].sum())
    assert torch.allclose(scale_of_authors(features)[0], by_hand)
    assert torch.equal(features, before)
