"""One recorded file of groups, as other trainers hand it over: out of order, repeated, padded, with a row dropped."""

from __future__ import annotations

import json
import re
from typing import Any

import numpy as np
import pytest
import recorded_groups
import torch
from recorded_groups import Row

from anchors import GroupError
from crbc_envs import ChatEpisode
from crbc_rl import credit

GROUPS = recorded_groups.read()
ROWS = [row for group in GROUPS for rollout in group.rollouts for row in rollout.rows]


def columns(rows: list[Row]) -> dict[str, list[Any]]:
    return {name: [row[name] for row in rows] for name in rows[0]}


def wanted(method: str, **options: Any) -> np.ndarray:
    return np.concatenate(recorded_groups.advantages(GROUPS, method, **options))


def test_the_file_is_what_the_environment_plays() -> None:
    episode = ChatEpisode(recorded_groups.ENV_ID, **recorded_groups.KWARGS)
    for number, group in enumerate(GROUPS):
        for member, recorded in enumerate(group.rollouts):
            episode.begin(group.task, group.seed, group=number, rollout=member)
            for reply in recorded.replies:
                episode.reply(reply)
            assert episode.rows == recorded.rows
            assert episode.rollout() == recorded.rollout()
    ends = {(row["success"], row["truncated"]) for row in ROWS}
    assert ends == {(True, False), (False, True)} and not all(row["valid"] for row in ROWS)


@pytest.mark.parametrize(("method", "options"), recorded_groups.KINDS, ids=str)
@pytest.mark.parametrize("kind", ["lists", "numpy", "torch"])
def test_shuffled_rows_keep_their_credit(method: str, options: dict[str, Any], kind: str) -> None:
    order = np.random.default_rng(3).permutation(len(ROWS))
    table: dict[str, Any] = columns([ROWS[row] for row in order])
    if kind == "numpy":
        table = {name: np.array(values) for name, values in table.items()}
    if kind == "torch":
        numbers = ("group", "rollout", "step", "success", "length", "valid", "reward", "truncated", "score")
        table |= {name: torch.tensor(table[name]) for name in numbers}
    named = {"earns" if name == "reward" else name: value for name, value in options.items()}
    found = credit.advantages_from_rows(**table, method=method, **named)
    np.testing.assert_allclose(found, wanted(method, **options)[order], atol=1e-6, rtol=0)
    assert found.any()


@pytest.mark.parametrize("options", [{}, {"kind": "reward", "gamma": 0.9, "normalise": "anchor"}], ids=str)
def test_a_judges_scores_travel_with_the_rows(options: dict[str, Any]) -> None:
    """As the environment's rows have them, in JSON, in any order."""
    episode = ChatEpisode(recorded_groups.ENV_ID, judge=recorded_groups.judge, **recorded_groups.KWARGS)
    rows: list[Row] = []
    for number, group in enumerate(GROUPS):
        for member, recorded in enumerate(group.rollouts):
            episode.begin(group.task, group.seed, group=number, rollout=member)
            for reply in recorded.replies:
                episode.reply(reply)
            rows += json.loads(json.dumps(episode.rows))
    assert [{name: row[name] for name in row if name != "scores"} for row in rows] == ROWS
    order = np.random.default_rng(4).permutation(len(rows))
    found = credit.advantages_from_rows(**columns([rows[row] for row in order]), method="scores", **options)
    np.testing.assert_allclose(found, wanted("scores", **options)[order], atol=1e-6, rtol=0)
    assert found.any()


@pytest.mark.parametrize("method", ["crbc", "grpo"])
def test_padding_rows_get_nothing(method: str) -> None:
    """A padded batch: fillers have no record, and a mask over tokens says which rows are real."""
    padded: list[Row | None] = [None, *ROWS[:20], None, None, *ROWS[20:], None]
    live = np.array([row is not None for row in padded])
    values = np.zeros(len(padded))
    values[live] = credit.advantages_from_rows(**columns([row for row in padded if row]), method=method)
    mask = np.repeat(live[:, None], 3, axis=1)
    mask[:, 2] &= np.arange(len(padded)) % 2 == 0
    tokens = credit.per_token(values, mask)
    assert not tokens[~mask].any()
    np.testing.assert_allclose(tokens[live, 0], wanted(method), atol=1e-6, rtol=0)


@pytest.mark.parametrize("lost", range(len(ROWS)), ids=lambda row: "{group}-{rollout}-{step}".format(**ROWS[row]))
def test_every_dropped_row_is_named(lost: int) -> None:
    """Also a rollout's last row, after which the rows alone look complete."""
    row = ROWS[lost]
    said = f"group {row['group']}, rollout {row['rollout']}, step {row['step']}: the row is lost"
    with pytest.raises(GroupError, match=re.escape(said)):
        credit.advantages_from_rows(**columns([*ROWS[:lost], *ROWS[lost + 1 :]]))


@pytest.mark.parametrize("twice", [0, 17, len(ROWS) - 1])
def test_a_repeated_row_is_named(twice: int) -> None:
    row = ROWS[twice]
    said = f"group {row['group']}, rollout {row['rollout']}, step {row['step']} is there twice"
    with pytest.raises(GroupError, match=re.escape(said)):
        credit.advantages_from_rows(**columns([*ROWS, row]))


def test_a_rollout_that_is_lost_whole_is_named_where_the_size_is_known() -> None:
    """No row tells how many rollouts a group has. Without the size, the credit is that of a smaller group."""
    table = columns([row for row in ROWS if (row["group"], row["rollout"]) != (1, 3)])
    assert len(credit.advantages_from_rows(**table)) == len(table["step"])
    with pytest.raises(GroupError, match="group 1: rows of 3 rollouts are there, of 4 in a group"):
        credit.advantages_from_rows(**table, group_size=recorded_groups.SIZE)
    whole = credit.advantages_from_rows(**columns(ROWS), group_size=recorded_groups.SIZE)
    np.testing.assert_allclose(whole, wanted("crbc"), atol=1e-6)
