"""The credit benchmark runs and measures what it says; how fast is never asserted."""

from __future__ import annotations

import re

import numpy as np
import pytest

from anchors import EmpiricalProcess, InternedRollouts
from benchmarks import credit as benchmark
from benchmarks import public_credit, systems
from crbc_rl import credit

SMALL = benchmark.Size("small", 2, 3, 6, 5, 0.2)


def test_quick_prints_every_estimator_and_the_paper_s_figures_as_the_paper_s(capsys):
    benchmark.main(["--quick"])
    printed = capsys.readouterr().out
    for method in credit.METHODS:
        assert f"  {method} " in printed
    for line in ("CRBC advantages, all of it", "Bellman residual", "hashing", "bytes a step", benchmark.PAPER):
        assert line in printed
    assert "random graph, 1,000" in printed
    assert "GraphGPO and G2PO are left out" in printed
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


def test_every_worst_case_can_be_solved_and_says_which_was_slowest(monkeypatch, capsys):
    monkeypatch.setattr(
        benchmark, "WORST", {"a small grid": lambda: systems.grid(5), "a star": lambda: systems.star(9)}
    )
    benchmark.worst(["a small grid", "a star"], betas=(0.5, 1.0))
    lines = capsys.readouterr().out.splitlines()
    assert [len(re.findall(r"\d\.\d\d s", line)) for line in lines[2:]] == [2, 2, 1]
    assert lines[-1].startswith("  the slowest: a s")


OURS = """
import numpy as np, torch
from verl import DataProto
def compute_step_discounted_returns(batch: DataProto, gamma):
    assert torch.float32 is torch.float64 and np.float32 is np.float64
    return torch.zeros(len(batch.non_tensor_batch["uid"]))
def compute_gigpo_outcome_advantage(token_level_rewards, **rest):
    return token_level_rewards * FACTOR, None
"""


def test_public_code_is_loaded_from_where_the_user_says_and_compared(tmp_path):
    rollouts = InternedRollouts(**benchmark.update(SMALL))
    file = tmp_path / public_credit.FILES["gigpo"]
    file.parent.mkdir()
    file.write_text(OURS + "FACTOR = 0.0\n")
    theirs = public_credit.public("gigpo", public_credit.load("gigpo", [tmp_path]), rollouts)()
    np.testing.assert_array_equal(theirs, np.zeros(len(rollouts.anchor)))
    with pytest.raises(ValueError, match="gigpo: ours and the public code differ by"):
        public_credit.difference("gigpo", theirs, rollouts)
    ours = credit.advantages_interned(rollouts, "gigpo", weighting="step")
    assert public_credit.difference("gigpo", ours, rollouts) == 0.0
