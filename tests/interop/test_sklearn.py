"""The conventions of scikit-learn's outlier detectors."""

from __future__ import annotations

import numpy as np
import pytest

from adascale import NotFittedError, OODDetector
from tests.conftest import SmallNet, images, seeded


@pytest.mark.filterwarnings("ignore::adascale.AdascaleWarning")
def test_decisions_are_minus_one_where_the_decision_function_is_negative() -> None:
    detector = OODDetector(seeded(SmallNet), "scale", alpha=0.3).fit(images(60))
    given = images(40, seed=1)
    predicted, decided = detector.predict(given), detector.decision_function(given)
    assert set(predicted.tolist()) == {-1, 1}
    assert np.array_equal(predicted, np.where(decided < 0, -1, 1))
    assert np.array_equal(predicted == -1, detector.is_ood(given).numpy())
    assert np.allclose(decided, detector.score_samples(given) - (-detector.threshold))
    assert np.array_equal(detector.score_samples(given), -detector.score(given).numpy())


def test_an_image_at_the_threshold_is_not_flagged() -> None:
    detector = OODDetector(seeded(SmallNet), "mls").fit(images(60))
    flagged = detector.decision_function(images(60)) < 0
    assert flagged.sum() <= 3  # 5 % of the images that set the threshold


def test_before_fit() -> None:
    detector = OODDetector(seeded(SmallNet), "mls")
    with pytest.raises(NotFittedError):
        detector.predict(images(2))
