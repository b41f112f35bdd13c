"""The environment's own expert on the tasks that an agent plays: what could be won there, in the same steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from crbc_envs.core import Expert
from crbc_envs.tasks import rng
from crbc_envs.vector.contract import Member
from crbc_envs.vector.members import INDEPENDENT, begin, make_member, noise_seed


@dataclass(frozen=True, slots=True)
class Start:
    """A task before its first step: its distance to success (`AnchorEnv.distance`), and whether the expert wins from
    there; None where there is no expert. `open_forms` has the beginnings of actions that take words of one's own.
    """

    distance: float | None
    won: bool | None
    open_forms: tuple[str, ...] = ()


def play_teacher(
    env_id: str,
    env_kwargs: Mapping[str, Any],
    tasks: Sequence[int],
    seeds: Sequence[int],
    dynamics: str | None,
    options: Mapping[str, Any],
    progress: Callable[[int], None] = lambda done: None,
) -> list[Start]:
    """One `Start` for each of `tasks`.

    A task begins as the first member of a group with its seed begins, and has its noise. `options` go to the
    environment's `expert`, whose `ValueError` or `TypeError` about them is raised. An expert that has no advice any
    more has lost.
    """
    starts = []
    with closing(make_member(env_id, dict(env_kwargs))) as env:
        for done, (task, seed) in enumerate(zip(tasks, seeds, strict=True), 1):
            own = (dynamics == INDEPENDENT) if dynamics else env.stochastic
            first = begin(env, seed, {"task": task}, noise_seed(seed, 0) if own else None)
            distance = env.distance()
            expert = env.expert(rng("teacher", seed), **options)
            forms = _open_forms(first[1]["admissible_actions"], env.placeholder)
            starts.append(Start(distance, None if expert is None else _wins(env, expert, *first), forms))
            progress(done)
    return starts


def _open_forms(actions: Sequence[str], placeholder: str) -> tuple[str, ...]:
    heads = (action.partition(placeholder)[0] for action in actions if placeholder and placeholder in action)
    return tuple(dict.fromkeys(head for head in heads if head))


def _wins(env: Member, expert: Expert, observation: Any, info: dict[str, Any]) -> bool:
    over = False
    while not over:
        try:
            reply = expert(observation, info)
        except ValueError:
            return False
        observation, _, terminated, truncated, info = env.step(reply)
        over = terminated or truncated
    return bool(info["success"])
