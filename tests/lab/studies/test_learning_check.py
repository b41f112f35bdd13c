"""The learning study's verdicts beside those of a program that shares no code with the package."""

from __future__ import annotations

import numpy as np
import pytest
from paths import ROOT

from benchmarks import learning_check
from crbc_lab.studies.learning.study import BOUNDS, Result, read
from crbc_lab.studies.learning.tables import table


def kept(folder: str) -> list[Result]:
    return [read(path) for path in sorted((ROOT / "results" / folder).glob("*/*/*.json"))]


@pytest.mark.parametrize(
    "folder",
    [
        "learning",
        "learning_hidden",
        "learning_all/methods",
        "learning_all/options",
        "learning_all/alike",
        "learning_all/group-4",
        "learning_all/group-16",
        "learning_fresh",
        "learning_trust",
    ],
)
def test_the_verdicts_follow_from_the_files_alone(folder: str) -> None:
    theirs = learning_check.separated(learning_check.read(ROOT / "results" / folder))
    ours = {
        (setting, row.result.estimator): row
        for setting, rows in table(kept(folder)).items()
        for row in rows
        if row.beside is not None and row.result.estimator not in BOUNDS
    }
    assert theirs.keys() == ours.keys() and theirs
    for place, (difference, corrected, seen) in theirs.items():
        row = ours[place]
        assert row.beside is not None
        assert difference == pytest.approx(row.beside.difference.value, abs=1e-12), place
        assert (corrected, seen) == (pytest.approx(row.beside.corrected, rel=1e-9), row.separated), place


def test_shuffling_exchanges_names_within_a_seed() -> None:
    areas = {"w": {name: np.arange(12.0).reshape(4, 3) + 100 * k for k, name in enumerate(("crbc", "a", "b"))}}
    mixed = np.stack(list(learning_check.shuffled(areas, 2, np.random.default_rng(0))["w"].values()))
    assert mixed.shape == (3, 2, 3)
    assert all(sorted(mixed[:, seed, 0] // 100) == [0, 1, 2] for seed in range(2))
    assert np.array_equal(mixed % 100 - mixed[:, :, :1] % 100, np.broadcast_to(np.arange(3.0), (3, 2, 3)))
