"""`crbc play --replay`: a scripted reader steps through a recorded file."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from play_session import typed
from rich.console import Console
from strategies import group, random_group

from anchors import EmpiricalProcess, Rollout, RolloutGroup, Step
from crbc_envs.errors import DataError
from crbc_envs.storage.rollouts import RecordedTurn, write_groups
from crbc_lab.commands.replay import replay, step_values
from crbc_rl import credit
from crbc_rl.errors import ConfigError

BOARD = "# # #\n# @ #\n# # #"
GROUPS = [
    RolloutGroup(
        [
            Rollout([Step("hall", "up", -0.1, BOARD), Step("yard", "go", 10.9, "a yard")], True),
            Rollout([Step("hall", "down", -0.1, BOARD)], False, truncated=True),
        ],
        "sokoban/train/12",
    ),
    RolloutGroup([Rollout([Step("cave", "<invalid>", -0.1, "a [bold]cave[/]")], False)], "sokoban/train/13"),
]


def session(path: Path, *lines: str, group: int = 0, rollout: int = 0) -> list[str]:
    """What is shown first, and after each line, with a copy of the prompt between."""
    out = io.StringIO()
    replay(path, group, rollout, Console(file=out, width=100), typed(out, lines))
    return out.getvalue().split("replay> ")


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    turns = [
        RecordedTurn("p", f"<think>t{t}</think>\x1b[2J", -1.5, (1,), (2,))
        for g in GROUPS
        for r in g.rollouts
        for t in range(len(r))
    ]
    write_groups(tmp_path / "a.parquet", GROUPS, env_id="CRBC-Sokoban-v0", update=30, turns=turns)
    return tmp_path / "a.parquet"


def test_a_reader_sees_every_step(recorded: Path) -> None:
    first, second, stuck, back, end = session(recorded, "", "n", "b", "q")
    assert "CRBC-Sokoban-v0  update 30  2 groups" in first
    assert "sokoban/train/12  group 0 of 2  rollout 0 of 2  step 0 of 2" in first
    assert "# @ #" in first and "anchor  hall" in first and "action  up  reward -0.1\n" in first
    # hall is left once to success by way of the yard and once to failure: V = 0.98^2 / 2.
    assert "V 0.480  Q 0.960  Q - V +0.480" in first
    assert "a yard" in second and "reward +10.9  solved" in second and "V 0.980  Q 0.980  Q - V +0.000" in second
    assert "That was the last step" in stuck and "step 1 of 2" in stuck
    assert "step 0 of 2" in back
    assert end == ""


def test_the_next_failure_is_found_in_any_group_where_it_ended(recorded: Path, tmp_path: Path) -> None:
    round_again = "no failure behind this step; this is the first"
    first, cut, odd, again, _ = session(recorded, "f", "f", "failure", "q")
    told = " ".join(first.split())
    assert "Letter and Enter: 'n' or none" in told and "'f' the next failure's end" in told
    assert "group 0 of 2  rollout 1 of 2" in cut and round_again not in cut + odd
    assert "group 1 of 2  rollout 0 of 1" in odd and "group 0 of 2  rollout 1 of 2" in again and round_again in again
    lost = Rollout([Step("hall", "up", -0.1), Step("yard", "go", -0.1), Step("hall", "up", -0.1)], False)
    write_groups(tmp_path / "lost.parquet", [RolloutGroup([lost, lost], "t")])
    first, own, other, _ = session(tmp_path / "lost.parquet", "f", "f", "q")
    assert "rollout 0 of 2  step 0 of 3" in first and "rollout 0 of 2  step 2 of 3" in own
    assert "rollout 1 of 2  step 2 of 3" in other and "failed" in other
    write_groups(tmp_path / "won.parquet", [RolloutGroup([GROUPS[0].rollouts[0]] * 2, "t")])
    _, none, _ = session(tmp_path / "won.parquet", "f", "q")
    assert "Every rollout of this file succeeded." in none and "rollout 0 of 2  step 0" in none


@pytest.mark.parametrize(
    ("told", "header", "value"),
    [
        (None, "closure at beta 0.98; the file does not tell the run's credit", "V 0.480  Q 0.960"),
        (
            ("crbc", {"beta": 0.5, "depth": None, "w_step": 5.0}),
            "closure at beta 0.5, depth full, as",
            "V 0.125  Q 0.250",
        ),
        (("crbc", {"beta": 0.5, "depth": 0}), "closure at beta 0.5, depth 0, as in the run", "V 0.125  Q 0.250"),
        (("gigpo", {"gamma": 0.5}), "closure at beta 0.5 (gigpo had this discount)", "V 0.125"),
        (("grpo", {}), "closure at beta 0.98 (grpo has no discount)", "V 0.480"),
    ],
)
def test_credit_is_the_runs_own(tmp_path: Path, told: tuple | None, header: str, value: str) -> None:
    kept = None if told is None else dict(zip(("method", "options"), told, strict=True))
    write_groups(tmp_path / "a.parquet", GROUPS, credit=kept)
    shown = session(tmp_path / "a.parquet", "q")[0]
    assert header in shown and value in shown


def test_credit_that_cannot_be_computed_is_one_sentence(tmp_path: Path) -> None:
    write_groups(tmp_path / "a.parquet", GROUPS, credit={"method": "crbc", "options": {"beta": 7}})
    with pytest.raises(ConfigError, match=r"a\.parquet: no closure at beta 7, depth full, as in the run: "):
        session(tmp_path / "a.parquet", "q")


def test_rollouts_and_groups_go_round(recorded: Path) -> None:
    _, other, again, next_group, first_group, odd, _ = session(recorded, "r", "r", "G", "g", "what", "quit")
    assert "rollout 1 of 2" in other and "out of steps" in other and "Q - V -0.480" in other
    assert "rollout 0 of 2" in again
    assert "group 1 of 2" in next_group and "a [bold]cave[/]" in next_group and "<invalid>" in next_group
    assert "group 0 of 2" in first_group
    assert "Enter or 'n'" in odd and "group 0 of 2" in odd


def test_a_reply_is_shown_and_cannot_steer_the_terminal(recorded: Path) -> None:
    shown = session(recorded)[0]
    assert "<think>t0</think>" in shown and "logprob -1.50" in shown and "invalid: tags" not in shown
    assert "\x1b" not in shown and "\ufffd[2J" in shown


def test_the_cause_of_an_invalid_reply_is_shown(tmp_path: Path) -> None:
    turns = [RecordedTurn("p", "up", 0.0, (), (), "tags")] * 4
    write_groups(tmp_path / "a.parquet", GROUPS, turns=turns)
    assert "reply   up  invalid: tags" in session(tmp_path / "a.parquet", "q")[0]


def test_the_prompt_of_a_step_is_shown_on_demand(tmp_path: Path) -> None:
    turns = [RecordedTurn(f"prompt {n}\nof [bold]two[/] lines\x1b[2J", "up", 0.0, (), ()) for n in range(4)]
    write_groups(tmp_path / "a.parquet", GROUPS, turns=turns)
    first, prompt, second, other, _ = session(tmp_path / "a.parquet", "p", "", "prompt", "q")
    assert "prompt 0" not in first and "prompt 0" in prompt and "of [bold]two[/] lines" in prompt
    assert "step 0 of 2" not in prompt and "step 1 of 2" in second and "prompt 1" in other
    assert "\x1b" not in prompt
    assert "logprob" not in first, "a model behind a server tells no token ids"


def test_it_begins_where_asked(recorded: Path) -> None:
    assert "group 0 of 2  rollout 1 of 2" in session(recorded, rollout=1)[0]
    assert "group 1 of 2  rollout 0 of 1" in session(recorded, group=1)[0]
    with pytest.raises(ConfigError, match="it has no group 2: choose one from 0 to 1 with --group"):
        session(recorded, group=2)
    with pytest.raises(ConfigError, match="it has no rollout 1: choose one from 0 to 0 with --rollout"):
        session(recorded, group=1, rollout=1)
    with pytest.raises(DataError, match="no such file"):
        session(recorded.parent / "nowhere")


def test_values_are_those_of_the_groups_closure() -> None:
    drawn = random_group(np.random.default_rng(4))
    process = EmpiricalProcess.from_group(drawn)
    result = credit.closure(process)
    index = {name: i for i, name in enumerate(process.anchors)}
    pairs = {pair: i for i, pair in enumerate(process.pairs)}
    for rollout, values in zip(drawn.rollouts, step_values(drawn), strict=True):
        assert values.shape == (len(rollout), 3)
        for step, (v, q, a) in zip(rollout.steps, values, strict=True):
            pair = pairs[index[step.anchor], step.action]
            assert (v, q, a) == (result.V[index[step.anchor]], result.Q[pair], result.A[pair])
    first = EmpiricalProcess.from_group(drawn).steps()[1][0]
    result = credit.closure(process, 0.5, 1)
    assert step_values(drawn, {"beta": 0.5, "depth": 1})[0][0, 1] == result.Q[first]
    assert step_values(group("s:a -"))[0].tolist() == [[0.0, 0.0, 0.0]]
