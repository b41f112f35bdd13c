"""The two terms apart: together they are the method's advantage to the bit, for every method and option."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest
import recorded_groups
from strategies import group

from anchors import EmpiricalProcess, RolloutGroup
from crbc_rl import credit

GROUPS = [RolloutGroup([played.rollout() for played in g.rollouts]) for g in recorded_groups.read()]
PROCESS = EmpiricalProcess.from_groups(GROUPS)
OPTIONS = {
    "w_group": (0.0, 0.05, 2.5),
    "w_step": (0.0, 3.0),
    "group": ("drgrpo", "rloo"),
    "mode": ("mean_norm",),
    "weighting": ("step",),
    "reward": ("score", "step"),
    "group_reward": ("step",),
    "success_reward": (1.0,),
    "invalid_penalty": (0.5,),
    "depth": (0,),
}


def cases() -> Iterator[tuple[str, dict[str, object]]]:
    for name, estimator in credit.METHODS.items():
        yield name, {}
        for option in OPTIONS.keys() & estimator.options.keys():
            yield from ((name, {option: value}) for value in OPTIONS[option])


@pytest.mark.parametrize(("method", "options"), sorted(cases(), key=str))
def test_the_terms_add_up_to_the_advantage_to_the_bit(method: str, options: dict[str, object]) -> None:
    try:
        whole = credit.advantages_interned(PROCESS.steps()[0], method, **options)
    except credit.CreditError:  # a method has no definition for some rewards
        with pytest.raises(credit.CreditError):
            credit.METHODS[method].terms(PROCESS, **options)
    else:
        np.testing.assert_array_equal(credit.METHODS[method].terms(PROCESS, **options).final, whole)


def test_the_terms_of_a_group_by_hand() -> None:
    process = EmpiricalProcess.from_group(group("s:a +", "s:b -"))
    found = credit.METHODS["crbc"].terms(process, w_group=2.0, w_step=3.0, group="drgrpo", success_reward=1.0)
    np.testing.assert_allclose(found.group, [1.0, -1.0])  # 2 (R - 1/2)
    np.testing.assert_allclose(found.step, [3.0, -3.0])  # Q - V = +-0.49, sigma = 0.49


@pytest.mark.parametrize(
    ("method", "options", "group_term", "step_term"),
    [
        ("crbc", {}, True, True),
        ("crbc", {"w_group": 0.0}, False, True),
        ("graft", {}, False, True),
        ("grpo", {}, True, False),
        ("hgpo", {}, False, True),
        (lambda process: np.ones(len(process.steps()[1])), {}, False, True),
    ],
)
def test_only_the_terms_that_a_method_has_are_made_and_timed(method, options, group_term, step_term) -> None:
    timed: list[str] = []

    @contextmanager
    def timer(name: str) -> Iterator[None]:
        timed.append(name)
        yield

    terms = credit.estimator_of(method).terms(PROCESS, timer, **options)
    assert (terms.group is not None, terms.step is not None) == (group_term, step_term)
    assert timed == ["group_advantage"] * group_term
