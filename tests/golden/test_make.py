"""The golden files are what `make` writes, and stay small."""

from __future__ import annotations

import ast

import numpy as np
import pytest

from tests.golden import make
from tests.golden.cases import cases
from tests.golden.files import FOLDER, arrays, manifest
from tests.reference.methods import METHODS, UNPUBLISHED


@pytest.mark.parametrize("name", [*cases(), "network", "metrics"])
def test_made_again_they_are_the_same(name: str) -> None:
    makers = {"network": make.network_arrays, "metrics": make.metric_arrays}
    again = makers[name]() if name in makers else make.case_arrays(cases()[name])
    stored = arrays(name)
    assert again.keys() == stored.keys()
    for key, value in again.items():
        # RMDS subtracts two nearly equal distances: another LAPACK may move its last digits further.
        relative = 1e-9 if key == "rmds" else 1e-12
        np.testing.assert_allclose(value, stored[key].numpy(), rtol=relative, atol=1e-12, err_msg=f"{name}: {key}")


def test_the_manifest_is_current() -> None:
    now, stored = make.manifest(manifest()["compared"]), manifest()
    assert now["cases"] == stored["cases"]
    assert now["about"] == stored["about"]


def test_expected_values_are_finite_and_not_trivial() -> None:
    for name in manifest()["cases"]:
        for key in manifest()["cases"][name]["entries"]:
            values = arrays(name)[key]
            assert values.isfinite().all(), f"{name}: {key}"
            assert values.std() > 0, f"{name}: {key}"


def test_every_transcribed_method_was_compared_with_published_scores() -> None:
    compared = manifest()["compared"]["largest"]
    assert METHODS.keys() - compared.keys() == UNPUBLISHED
    assert max(float(value) for value in compared.values()) < 1e-6


def test_the_transcription_shares_no_code_with_the_package() -> None:
    for path in (FOLDER.parent / "reference").glob("[!t_]*.py"):
        imported = [
            name
            for node in ast.walk(ast.parse(path.read_text()))
            for name in ([alias.name for alias in node.names] if isinstance(node, ast.Import) else [])
            + ([str(node.module)] if isinstance(node, ast.ImportFrom) else [])
        ]
        assert imported, path.name
        assert not {name.split(".")[0] for name in imported} & {"adascale", "torch"}, path.name


def test_they_stay_small() -> None:
    sizes = {path.name: path.stat().st_size for path in FOLDER.iterdir() if path.suffix in (".npz", ".json")}
    assert max(sizes.values()) < 200_000
    assert sum(sizes.values()) < 1_000_000
