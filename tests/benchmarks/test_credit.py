"""The credit benchmark runs and measures what it says; how fast is never asserted."""

from __future__ import annotations

import numpy as np

from anchors import EmpiricalProcess, InternedRollouts
from benchmarks import credit as benchmark
from crbc_rl import credit

SMALL = benchmark.Size("small", 2, 3, 6, 5, 0.2)


def test_quick_prints_every_estimator_and_the_paper_s_figures_as_the_paper_s(capsys):
    benchmark.main(["--quick"])
    printed = capsys.readouterr().out
    for method in credit.METHODS:
        assert f"  {method} " in printed
    for line in ("CRBC advantages, all of it", "Bellman residual", "hashing", "bytes a step", benchmark.PAPER):
        assert line in printed
    assert benchmark.SIZES[1].name not in printed


def test_the_update_of_the_paper_has_the_paper_s_size():
    process = EmpiricalProcess.from_interned(InternedRollouts(**benchmark.update(benchmark.SIZES[0])))
    assert process.rollouts is not None
    rollouts = process.rollouts
    assert (rollouts.num_groups, len(rollouts.length), rollouts.length.max()) == (16, 128, 50)
    assert 4_000 < len(process.pair) < 5_500
    assert 1_000 < process.num_anchors < 1_600


def test_an_update_is_the_same_as_numbers_and_as_strings():
    columns = benchmark.update(SMALL)
    groups = benchmark.as_groups(columns, [f"anchor {number}" for number in columns["anchor"]])
    by_name = credit.advantages_batch(groups)
    by_number = credit.advantages_batch(InternedRollouts(**columns))
    assert len(by_name) == len(by_number) == 2
    for one, other in zip(by_name, by_number, strict=True):
        np.testing.assert_allclose(np.concatenate(one), np.concatenate(other), rtol=0, atol=1e-12)
