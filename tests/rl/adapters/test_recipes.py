"""The functions of docs/adapters/recipes.md, run as printed on objects with their trainers' fields."""

from __future__ import annotations

import asyncio
import random
import re
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import recorded_groups
from paths import ROOT

GROUPS = recorded_groups.read()
WANTED = [0.1 * credit for credit in recorded_groups.advantages(GROUPS, "crbc")]
SIZE = recorded_groups.SIZE
ROLLOUTS = [rollout for group in GROUPS for rollout in group.rollouts]


def recipe(name: str) -> dict[str, Any]:
    """What the block of that trainer defines."""
    page = (ROOT / "docs/adapters/recipes.md").read_text(encoding="utf-8")
    (code,) = re.findall(rf"```python\n(# {name}: .*?)```", page, re.DOTALL)
    defined: dict[str, Any] = {}
    exec(compile(code, name, "exec"), defined)  # noqa: S102 (code of our own page)
    return defined


def test_slime_gets_a_value_for_each_sample_in_any_order() -> None:
    samples = [
        (number, step, SimpleNamespace(metadata={"crbc": row}))
        for number, rollout in enumerate(ROLLOUTS)
        for step, row in enumerate(rollout.rows)
    ]
    random.Random(0).shuffle(samples)
    flat = [sample for _, _, sample in samples]
    given = [flat[0], flat[1:5], *flat[5:]]  # some as lists, as a function that fans out returns them
    raw, values = recipe("slime")["step_credit"](SimpleNamespace(n_samples_per_prompt=SIZE), given)
    np.testing.assert_allclose(values, [WANTED[number][step] for number, step, _ in samples], atol=1e-6)
    assert raw == [float(sample.metadata["crbc"]["success"]) for sample in flat] and any(values)


def stand_in(monkeypatch: pytest.MonkeyPatch, name: str, **defined: Any) -> None:
    parts = name.split(".")
    for end in range(1, len(parts) + 1):
        monkeypatch.setitem(sys.modules, ".".join(parts[:end]), ModuleType(".".join(parts[:end])))
    for key, value in defined.items():
        setattr(sys.modules[name], key, value)


def test_rllm_gets_a_value_for_each_token(monkeypatch: pytest.MonkeyPatch) -> None:
    def grouped(episodes: Any, transform_config: Any, compact_filtering_config: Any) -> Any:
        return [SimpleNamespace(trajectories=episodes[start : start + SIZE]) for start in range(0, len(episodes), SIZE)]

    stand_in(monkeypatch, "rllm.trainer.algorithms.transform", _default_traj_grouping_hook=grouped)
    made = recipe("rllm")
    made["step_credit"].__globals__["SIZE"] = SIZE
    episodes = [
        SimpleNamespace(
            steps=[
                SimpleNamespace(info={"crbc": row}, response_ids=[1] * (3 + row["step"]), advantage=None)
                for row in rollout.rows
            ]
        )
        for rollout in ROLLOUTS
    ]
    assert made["step_credit"]([], None) == [] and len(made["step_credit"](episodes[:1], None)) == 1  # validation
    assert episodes[0].steps[0].advantage is None
    groups = made["step_credit"](episodes, None)
    found = [trajectory for group in groups for trajectory in group.trajectories]
    for trajectory, wanted in zip(found, WANTED, strict=True):
        for step, value in zip(trajectory.steps, wanted, strict=True):
            assert step.advantage == pytest.approx([value] * len(step.response_ids), abs=1e-6)


@pytest.mark.parametrize("lost", [False, True])
def test_prime_rl_gets_a_value_for_each_sampled_token(monkeypatch: pytest.MonkeyPatch, lost: bool) -> None:
    given: dict[int, list[float]] = {}
    base = {
        "Algorithm": object,
        "iter_trainable_traces": lambda episodes: [(one, one.trace) for one in episodes if not one.trace.has_error],
    }
    stand_in(monkeypatch, "prime_rl.orchestrator.algo.routing", assign_advantages=lambda t, v: given.update({t.id: v}))
    base_module = ModuleType("prime_rl.orchestrator.algo.base")
    base_module.__dict__.update(base)
    monkeypatch.setitem(sys.modules, base_module.__name__, base_module)
    made = recipe("prime-rl")
    made["CrbcAlgorithm"].score_group.__globals__["SIZE"] = SIZE
    algorithm = made["CrbcAlgorithm"]()
    for start in range(0, len(ROLLOUTS), SIZE):
        episodes = []
        for number in range(start, start + SIZE):
            rows = ROLLOUTS[number].rows
            prompts = [SimpleNamespace(mask=[False] * 4) for _ in rows]
            replies = [SimpleNamespace(mask=[True] * (2 + row["step"])) for row in rows]
            nodes = [node for pair in zip(prompts, replies, strict=True) for node in pair]
            failed = lost and number == start
            trace = SimpleNamespace(id=number, nodes=nodes, info={"crbc": {"rows": rows}}, has_error=failed)
            episodes.append(SimpleNamespace(trace=trace))
        if lost:
            with pytest.warns(UserWarning, match="1 of 1 groups get no credit"):
                asyncio.run(algorithm.score_group(episodes))
        else:
            asyncio.run(algorithm.score_group(episodes))
    for number, values in given.items():
        rows = ROLLOUTS[number].rows
        wanted = [0.0 if lost else WANTED[number][row["step"]] for row in rows for _ in range(2 + row["step"])]
        assert values == pytest.approx(wanted, abs=1e-6)
    assert len(given) == len(ROLLOUTS) - lost * len(GROUPS)
