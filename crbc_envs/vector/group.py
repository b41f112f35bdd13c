"""GroupVectorEnv: G copies of each of several tasks, proved identical, with their transitions merged."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from functools import partial
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space, concatenate, create_empty_array
from numpy.typing import NDArray

from anchors import GroupError, InternedRollouts, RolloutGroup, TransitionCounts
from crbc_envs.core import Infos, Outcome
from crbc_envs.vector.members import make_member, scatter
from crbc_envs.vector.recorder import ActionNumbers, GroupRecorder, interned
from crbc_envs.vector.workers import make_backend


class GroupVectorEnv(VectorEnv[Any, Any, Any]):
    """`num_groups` tasks with `group_size` copies each, as one Gymnasium vector environment.

    Member m belongs to group m // group_size. `reset` begins one task per group, the ones given as
    `options={"task": [...]}` or drawn from `np_random`, and proves that the copies of each group
    start alike: same task, same text, same anchor. Members that have ended are no longer `active` and
    never stepped: their entry in `actions` is not looked at, they keep their last observation, their
    reward is 0, their flags are False (they are those of a step, so an episode ends once) and they have
    no info.

    `transition_counts()` are the merged counts of each group at any time. Once every member has ended,
    `interned()` are the rollouts as credit reads them, and `groups()` the same with names, for people.
    `env_kwargs` go to the environment's constructor. An error out of a step leaves nothing to go on
    from: reset.

    `backend` says where members are played: "sync" in this process, "process" in `num_workers` others
    (by default one per processor), "ray" in Ray actors. Groups stay whole, and the same seeds give the
    same bytes. A worker that dies, hangs longer than `timeout` seconds or raises is replaced and its
    members are replayed; what cannot be brought back raises `crbc_envs.vector.workers.WorkerError`.
    """

    metadata = {"autoreset_mode": AutoresetMode.DISABLED}  # noqa: RUF012

    def __init__(
        self,
        env_id: str,
        num_groups: int = 1,
        group_size: int = 8,
        backend: str = "sync",
        num_workers: int | None = None,
        timeout: float = 60.0,
        **env_kwargs: Any,
    ) -> None:
        for name, value in (("num_groups", num_groups), ("group_size", group_size)):
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ValueError(f"{name} must be a positive integer, got {value!r}")
        self.num_groups, self.group_size = num_groups, group_size
        self.num_envs = num_groups * group_size
        one = make_member(env_id, env_kwargs)
        self.members = make_backend(backend, env_id, env_kwargs, num_groups, group_size, num_workers, timeout)
        self.metadata = {**one.metadata, **self.metadata}
        self.domain, self.templates = one.domain, one.templates
        self.panel = one.panel
        self.render_mode = one.render_mode
        self.single_observation_space = one.observation_space
        self.single_action_space = one.action_space
        self.observation_space = batch_space(one.observation_space, self.num_envs)
        self.action_space = batch_space(one.action_space, self.num_envs)
        one.close()
        self._over = np.zeros(self.num_envs, dtype=np.bool_)
        self._observations: Any = None
        self._actions = ActionNumbers()
        self._recorders: dict[int, GroupRecorder] = {}
        self._started = False

    # ---- Gymnasium ----------------------------------------------------------------------------

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin one task per group. `options["task"]` is one index for all groups or one per group;
        `options["group_seed"]` has one seed per group, else they are drawn from `seed`;
        `options["reset_mask"]` (num_envs,) restarts whole groups and leaves the others as they are.

        Raises `GroupError` where the copies of a group do not start alike, or a mask cuts a group.
        """
        super().reset(seed=seed)
        options = dict(options or {})
        groups = self._groups_of(options.pop("reset_mask", None))
        tasks = self._tasks(options.pop("task", None))
        # Copies of one group share the seed of their dynamics too; drawn after the tasks, which so do not depend on it.
        seeds = options.pop("group_seed", None)
        if seeds is None:
            seeds = self.np_random.integers(2**31, size=self.num_groups).tolist()
        if len(seeds) != self.num_groups:
            raise ValueError(f"reset: {len(seeds)} group seeds for {self.num_groups} groups")
        if options:
            raise ValueError(f"reset: unknown option {sorted(options)[0]!r}; known: 'task', 'group_seed', 'reset_mask'")
        self._started = False  # a group that fails its proof cannot be played
        members = [m for group in groups for m in self._members_of(group)]
        of_member = [m // self.group_size for m in members]
        outcome = self.members.reset(members, [tasks[g] for g in of_member], [seeds[g] for g in of_member])
        self._over[members] = False
        if len(groups) == self.num_groups:
            self._actions = ActionNumbers()
        for place, group in enumerate(groups):
            self._open(group, slice(place * self.group_size, (place + 1) * self.group_size), outcome.infos)
        self._started = True
        self._keep(members, outcome)
        return self._show(members, outcome), self._spread(members, outcome.infos)

    def step(
        self, actions: Sequence[str | None]
    ) -> tuple[Any, NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_], dict[str, Any]]:
        """Step the live members; `actions` has one text per member, anything for those that ended.

        Raises `gymnasium.error.ResetNeeded` where none is live.
        """
        live = np.flatnonzero(self.active).tolist()
        if live and len(actions) != self.num_envs:
            raise ValueError(f"step: {len(actions)} actions for {self.num_envs} members")
        outcome = self.step_members(live, [actions[m] for m in live])
        rewards = np.zeros(self.num_envs, dtype=np.float64)
        rewards[live] = outcome.rewards
        flags = np.zeros((2, self.num_envs), dtype=np.bool_)
        flags[:, live] = outcome.terminated, outcome.truncated
        return self._show(live, outcome), rewards, flags[0], flags[1], self._spread(live, outcome.infos)

    def step_members(self, members: Sequence[int], actions: Sequence[str | None]) -> Outcome:
        """Step some of the live members while the others wait, as a rollout does whose replies come one by one:
        `actions[i]` to `members[i]`; what they answered, in that order.

        Raises `gymnasium.error.ResetNeeded` for members that are not live, `ValueError` for none, or one named twice.
        """
        live = set(np.flatnonzero(self.active).tolist())
        ended = [m for m in members if m not in live]
        if ended or not live:
            why = f"member {ended[0]} has ended" if live else "every member has ended"
            why = why if self._started else "nothing was begun"
            raise gymnasium.error.ResetNeeded(f"step: {why}; call reset() first")
        if len(set(members)) < max(1, len(members)):
            raise ValueError(f"step: members are to be named, each once; got {list(members)}")
        replies = [_text(action, m) for m, action in zip(members, actions, strict=True)]
        self._started = False  # replies were read before the first moves: a refused step changes nothing
        outcome = self.members.step(members, replies)
        self._started = True
        self._record(members, outcome)
        self._over[members] |= outcome.terminated | outcome.truncated
        self._keep(members, outcome)
        return outcome

    def close_extras(self, **kwargs: Any) -> None:
        self.members.close()

    def render(self) -> tuple[Any, ...]:
        return self.members.render()

    @property
    def restarts(self) -> int:
        """How many workers were lost and replaced so far."""
        return getattr(self.members, "restarts", 0)

    # ---- what a group knows -------------------------------------------------------------------

    @property
    def active(self) -> NDArray[np.bool_]:
        """Which members are still playing, (num_envs,)."""
        return ~self._over if self._started else np.zeros(self.num_envs, dtype=np.bool_)

    def transition_counts(self) -> list[TransitionCounts]:
        """The merged N(s, a, x) of every group so far."""
        return [self._recorders[g].transition_counts() for g in range(self.num_groups)] if self._started else []

    def interned(self) -> InternedRollouts:
        """The rollouts of every group as integers, ready for credit. Raises `GroupError` while a member
        is still playing."""
        return interned(self._complete("interned"))

    def groups(self) -> list[RolloutGroup]:
        """The rollouts of every group. Raises `GroupError` while a member is still playing."""
        return interned(self._complete("groups")).groups()

    # ---- inside -------------------------------------------------------------------------------

    def _open(self, group: int, part: slice, infos: Infos) -> None:
        """Prove that a group's copies start alike, and begin its record."""
        first, *others = self._members_of(group)
        for what in ("task_id", "task", "anchor"):
            leader, *rest = infos[what][part].tolist()
            for m, value in zip(others, rest, strict=True):
                if value != leader:
                    raise GroupError(
                        f"group {group} is not identical at reset: member {m} has {what} {value!r}, "
                        f"member {first} has {leader!r}"
                    )
        task_id, anchor, label = (infos[what][part.start] for what in ("task_id", "anchor", "label"))
        self._recorders[group] = GroupRecorder(task_id, anchor, label, self.group_size, self._actions)

    def _record(self, members: Sequence[int], outcome: Outcome) -> None:
        infos, size = outcome.infos, self.group_size
        columns = (
            infos["action"].tolist(),
            outcome.rewards.tolist(),
            infos["anchor"].tolist(),
            infos["label"].tolist(),
            outcome.terminated.tolist(),
            outcome.truncated.tolist(),
            infos["success"].tolist(),
            infos["score"].tolist(),
        )
        for m, *step in zip(members, *columns, strict=True):
            self._recorders[m // size].add(m % size, *step)

    def _keep(self, members: Sequence[int], outcome: Outcome) -> None:
        """Remember what `members` see, for when they only wait."""
        if isinstance(outcome.observations, np.ndarray):
            if not isinstance(self._observations, np.ndarray):
                self._observations = create_empty_array(self.single_observation_space, self.num_envs)
            self._observations[members] = outcome.observations
            return
        if not isinstance(self._observations, list):
            self._observations = [None] * self.num_envs
        for m, observation in zip(members, outcome.observations, strict=True):
            self._observations[m] = observation

    def _show(self, members: Sequence[int], outcome: Outcome) -> Any:
        """The batch of observations: what `members` see now, the others as they last stood."""
        if isinstance(outcome.observations, np.ndarray):
            return outcome.observations if len(members) == self.num_envs else self._observations.copy()
        space = self.single_observation_space
        return concatenate(space, self._observations, create_empty_array(space, self.num_envs))

    def _spread(self, members: Sequence[int], infos: Infos) -> Infos:
        return infos if len(members) == self.num_envs else scatter([(members, infos)], self.num_envs)

    def _complete(self, who: str) -> list[GroupRecorder]:
        playing = np.flatnonzero(self.active)
        if not self._started or playing.size:
            why = f"member {playing[0]} is still playing" if playing.size else "nothing was played yet"
            raise GroupError(f"{who}: {why}; step until `envs.active` is False everywhere")
        return [self._recorders[g] for g in range(self.num_groups)]

    def _members_of(self, group: int) -> range:
        return range(group * self.group_size, (group + 1) * self.group_size)

    def _groups_of(self, mask: NDArray[np.bool_] | None) -> list[int]:
        """The groups a reset mask covers; all of them without one."""
        if mask is None:
            return list(range(self.num_groups))
        if not self._started:
            raise gymnasium.error.ResetNeeded("reset: the first reset takes no mask")
        table = np.asarray(mask, dtype=np.bool_)
        if table.shape != (self.num_envs,):
            raise ValueError(f"reset: reset_mask has shape {table.shape}, there are {self.num_envs} members")
        table = table.reshape(self.num_groups, self.group_size)
        cut = np.flatnonzero(table.any(axis=1) & ~table.all(axis=1))
        if cut.size:
            raise GroupError(f"reset: the mask cuts group {cut[0]}; a group restarts as a whole or not at all")
        return np.flatnonzero(table.all(axis=1)).tolist()

    def _tasks(self, wanted: Any) -> list[int]:
        size = len(self.panel)
        if wanted is None:
            return self.np_random.integers(size, size=self.num_groups).tolist()
        tasks = [wanted] * self.num_groups if np.ndim(wanted) == 0 else list(wanted)
        if len(tasks) != self.num_groups:
            raise ValueError(f"reset: {len(tasks)} tasks for {self.num_groups} groups")
        return [self.panel.index(operator.index(task)) for task in tasks]


def _text(action: str | None, member: int) -> str:
    if action is None:
        raise ValueError(f"step: member {member} is live and has no action")
    if not isinstance(action, str):
        raise TypeError(f"step: member {member} got {type(action).__name__}; an action is text")
    return action


def one_group(env_id: str, num_envs: int, max_episode_steps: int | None = None, **kwargs: Any) -> GroupVectorEnv:
    """What `gymnasium.make_vec` makes of the suite's environments: one group of `num_envs` copies."""
    if max_episode_steps is not None:
        kwargs["max_steps"] = max_episode_steps
    return GroupVectorEnv(env_id, num_groups=1, group_size=num_envs, **kwargs)


sokoban_group = partial(one_group, "CRBC-Sokoban-v0")
alfworld_group = partial(one_group, "CRBC-ALFWorld-v0")
webshop_group = partial(one_group, "CRBC-WebShop-v0")
webshop_site_group = partial(one_group, "CRBC-WebShopSite-v0")
