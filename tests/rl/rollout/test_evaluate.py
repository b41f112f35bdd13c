"""Evaluation: the figures of a held-out panel, and by kind of task where it has kinds."""

from __future__ import annotations

import re
from contextlib import closing
from itertools import permutations
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from learner_fixtures import fresh_policy, small

from crbc_envs.actions import tagged
from crbc_envs.prompts import PromptWindow
from crbc_envs.storage.rollouts import read_groups, write_groups
from crbc_lab.agents.results import success as agent_success
from crbc_lab.evaluation.record import columns_of, record_metrics
from crbc_lab.studies.agent import Rate
from crbc_rl.batches import Turn
from crbc_rl.rollout.collect import collect, open_groups
from crbc_rl.rollout.evaluate import evaluate, independent_tasks, play_panel, summarise, wilson


@pytest.fixture(scope="module")
def policy():
    return fresh_policy()


def test_households_are_told_by_family(policy):
    config = small(Path("unused"), env={"id": "CRBC-ALFWorld-v0", "kwargs": {"rooms": "small", "max_steps": 1}})
    told = evaluate(policy, config, "test", 12, seed=0)
    assert told.kinds == dict.fromkeys(["clean", "cool", "heat", "look", "pick", "pick2"], (0, 2))
    assert told.to_dict()["success/heat"] == 0.0
    assert "kinds" not in told.to_dict()


def test_the_interval_is_one_over_rooms(policy):
    """The paper's panel repeats boards; the suite's own has no layout twice."""
    own, paper = (
        evaluate(
            policy,
            small(Path("unused"), env={"kwargs": {"panel": panel, "observation": "text", "max_steps": 4}}),
            "test",
            40,
            0,
        )
        for panel in ("v3", "paper")
    )
    assert own.different == own.independent == own.episodes == 40
    assert own.interval == wilson(own.successes, 40)
    assert paper.different < 40 and paper.independent <= 40
    assert f"40 test tasks, {paper.different} different)" in str(paper)
    assert "different" not in str(own)


def test_repeated_tasks_widen_the_interval_as_far_as_they_agree():
    outcomes = np.array([True, False] * 10)
    rooms = [f"room {i}" for i in range(10)]
    assert independent_tasks(outcomes, [f"task {i}" for i in range(20)]) == 20
    assert independent_tasks(np.repeat(outcomes[:10], 2), np.repeat(rooms, 2).tolist()) == pytest.approx(10)
    assert independent_tasks(outcomes, np.repeat(rooms, 2).tolist()) == 19  # a room's two outcomes disagree
    assert independent_tasks(np.ones(20, bool), np.repeat(rooms, 2).tolist()) == 10
    assert independent_tasks(outcomes, ["the room"] * 20) == 1, "one room says nothing about others"
    assert wilson(5, 10)[0] < wilson(10, 20)[0]


KINDS = ["pick", "pick", "pick", "heat", "heat", "cool"]


def test_every_interval_is_over_the_independent_tasks():
    """Of three contents, twice each: both won, one of both, none. The contents' sums of success - 1/2 are 1, 0 and -1,
    so the variance of the mean is 3/2 of 2/36, that of 4 independent tasks: neither 3 contents nor 6 episodes."""
    won, content = [True, True, True, False, False, False], ["a", "a", "b", "b", "c", "c"]
    # p = 1/2, n = 4, z = 1.96: (p + 0.4802 -+ 1.96 sqrt(0.0625 + 0.060025)) / 1.9604
    low, high = (pytest.approx(end, abs=1e-5) for end in (0.150036, 0.849964))
    counts = {"repeat": 0, "truncated": False, "score": 0.0, "return": 0.0, "length": 1, "invalid": 0, "shortened": 0}
    rows = [
        {**counts, "task": task, "success": success, "kind": KINDS[task], "content": which, "cluster": "xyzxyw"[task]}
        for task, (success, which) in enumerate(zip(won, content, strict=True))
    ]
    found = summarise("test", columns_of(rows))
    for order in permutations(rows, len(rows)):
        again = summarise("test", columns_of(list(order)))
        assert (again.to_dict(), again.outcomes) == (found.to_dict(), found.outcomes)
        assert again.kinds == {"cool": (0, 1), "heat": (0, 2), "pick": (3, 3)}
    assert found.interval == (low, high) and (found.different, found.independent) == (3, pytest.approx(4))
    assert [found.to_dict()[end] for end in ("low", "high")] == [low, high]
    written = record_metrics("test", rows)
    assert written["interval"] == [low, high] and written["independent_tasks"] == pytest.approx(4)
    assert written["cluster_interval"] == list(wilson(2.75, 5.5)) and written["clusters"] == 4  # x and y: one of both
    assert written["distinct_tasks"] == 3
    records = [{"solved_at": 2 if one else None, "content": which} for one, which in zip(won, content, strict=True)]
    agent = agent_success(records)
    assert (agent["low"], agent["high"], agent["different_tasks"]) == (low, high, 3)
    rate = Rate.of(won, content)
    assert (rate.low, rate.high, rate.tasks) == (low, high, 6)


def test_a_purchase_that_is_nearly_right_has_its_score_everywhere(tmp_path):
    """In what a group keeps, in what is recorded and in evaluations; success it is none."""
    shopper = Shopper("CRBC-WebShop-v0")
    options = {"max_steps": 4, "panel": "official"}
    config = small(Path("unused"), env={"id": "CRBC-WebShop-v0", "prompt": "compact", "kwargs": options})
    with closing(open_groups(config, "test", 2, 1)) as envs:
        batch = collect(envs, shopper, [2, 19], [0, 1], prompt="compact", temperature=1.0, max_new_tokens=4)
        scores = [shopper.score(task) for task in (2, 19)]
        assert scores == [pytest.approx(1 / 2), pytest.approx(1 / 7)]
        assert [rollout.score for group in envs.groups() for rollout in group.rollouts] == scores
        assert envs.interned().score.tolist() == batch.rollouts.score.tolist() == scores
        assert not batch.rollouts.success.any() and not batch.rollouts.truncated.any()
    write_groups(tmp_path / "a.parquet", batch.rollouts)
    assert [group.rollouts[0].score for group in read_groups(tmp_path / "a.parquet")] == scores
    assert play_panel(shopper, config, "test", [19, 2], seed=0)["score"].tolist() == scores[::-1]
    told = evaluate(shopper, config, "test", 6, seed=0)  # of the first six, one has a score
    assert told.score == told.to_dict()["score"] == pytest.approx(1 / 12)
    assert (told.successes, told.reward, told.length) == (0, 0.0, 3.0)


class Shopper:
    """Searches for makeup removers, opens the first product and buys it."""

    def __init__(self, env_id):
        self.env = gymnasium.make(env_id, split="test", panel="official", disable_env_checker=True).unwrapped

    def generate(self, prompts, seeds, temperature, max_new_tokens):
        return [Turn([1], [1], [0.0], tagged(self.say(prompt.text))) for prompt in prompts]

    def say(self, text):
        found = re.search(r"\[(buy now|b0gen\w+)\]", text)
        return f"click[{found[1]}]" if found else "search[makeup removers]"

    def score(self, task):
        """Of the same purchase, by the environment itself."""
        window = PromptWindow.of(self.env, "compact")
        seen, info = self.env.reset(seed=0, options={"task": task})
        for _ in range(3):
            seen, *_, info = self.env.step(self.say(window.prompt(seen, info)))
        return info["score"]
