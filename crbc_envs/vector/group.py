"""GroupVectorEnv: G copies of each of several tasks. It checks that copies start alike and merges their transitions."""

from __future__ import annotations

import operator
import weakref
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any, cast

import gymnasium
import numpy as np
from gymnasium.envs.registration import EnvSpec
from gymnasium.spaces import Box
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space, concatenate, create_empty_array
from numpy.typing import NDArray

from anchors import GroupError, InternedRollouts, RolloutGroup, TransitionCounts
from crbc_envs.core import Infos, Outcome, ShowingMembers
from crbc_envs.errors import EnvError
from crbc_envs.vector.contract import ForeignEnv
from crbc_envs.vector.frames import FrameArrays
from crbc_envs.vector.members import INDEPENDENT, dynamics_of, make_member, noise_seed, prove_alike, scatter
from crbc_envs.vector.recorder import Recorder
from crbc_envs.vector.workers import make_backend

LARGEST_SEED = 2**63 - 1
"""The largest seed of a group."""


class GroupVectorEnv(VectorEnv[Any, Any, Any]):
    """`num_groups` tasks with `group_size` copies each, as one Gymnasium vector environment.

    Member m belongs to group m // group_size. `reset` begins one task per group, the ones given as
    `options={"task": [...]}` or drawn from `np_random`. It checks that the copies of each group start
    alike in all that an agent sees: task, anchor, label, admissible actions, step and observation, to the byte.

    `dynamics` says what the copies of a group share beyond their start. With "shared", they have one seed, so equal
    actions lead to equal results. With "independent", each copy has its own noise from the same start, as rollouts of
    one policy in a stochastic environment must: its seed is computed from the group's seed and the member's number.
    The default, None, is "independent" where the environment declares `stochastic`. A deterministic environment plays
    alike under both. The attribute `dynamics` tells which it is.

    A member that has ended is no longer `active` and is never stepped. Its entry in `actions` is ignored. It keeps its
    last observation, its reward is 0 and it has no info. Its flags are False, because flags belong to a step: an
    episode ends once.

    `transition_counts()` gives the merged counts of each group at any time. Once every member has ended,
    `interned()` gives the rollouts as integers for credit, and `groups()` the same rollouts by name.
    `env_id` is a registered id or an `EnvSpec`. `env_kwargs` and `more`, all other keywords, go to the environment's
    constructor; one with a name of this list, such as `timeout`, goes there by the former. The environment is an
    `AnchorEnv`, or any other whose `info` has the same keys; its wrappers are kept, and without a `panel` a task is a
    seed. A `label` it does not give is the anchor. `anchor_name` tells the kind and version of its anchors, as a
    recording's header does. After an error in `step`, call `reset`. The constructor raises `ValueError` for a size,
    `dynamics` or backend that there is not, and what the environment's constructor raises.

    `backend` says where the members run: "sync" in this process, "process" in `num_workers` worker processes
    (default: one per processor), "ray" in Ray actors. A worker holds whole groups. The same seeds give the
    same bytes with every backend. A worker that dies, raises, or does not answer within `timeout` seconds is
    replaced, and its members are replayed. If that fails, `crbc_envs.vector.workers.WorkerError` is raised.
    """

    metadata = {"autoreset_mode": AutoresetMode.DISABLED}  # noqa: RUF012

    def __init__(
        self,
        env_id: str | EnvSpec,
        num_groups: int = 1,
        group_size: int = 8,
        backend: str = "sync",
        num_workers: int | None = None,
        timeout: float = 60.0,
        dynamics: str | None = None,
        env_kwargs: dict[str, Any] | None = None,
        **more: Any,
    ) -> None:
        for name, value in (("num_groups", num_groups), ("group_size", group_size)):
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ValueError(f"{name} must be a positive integer, got {value!r}")
        self.num_groups, self.group_size = num_groups, group_size
        self.num_envs = num_groups * group_size
        env_kwargs = {**(env_kwargs or {}), **more}
        env = make_member(env_id, env_kwargs)  # tells the spaces and the panel
        with ExitStack() as opened:
            opened.callback(env.close)
            if isinstance(env, ForeignEnv):
                env.check()
            self.dynamics = dynamics_of(env, dynamics)
            if self.dynamics == INDEPENDENT:
                env.reset(seed=0, options={"task": 0})
                env.seed_noise(0)  # refused at once where it would be in every reset
            self.members = make_backend(backend, env_id, env_kwargs, num_groups, group_size, num_workers, timeout)
            opened.callback(self.members.close)
            self.metadata = {**env.metadata, **self.metadata}
            self.domain, self.templates = env.domain, env.templates
            self.stochastic, self.placeholder, self.replies = env.stochastic, env.placeholder, env.replies
            self.panel, self.max_steps, self.anchor_name = env.panel, env.max_steps, env.anchor_name
            self.render_mode = env.render_mode
            self.single_observation_space = env.observation_space
            self.single_action_space = env.action_space
            self.observation_space = batch_space(env.observation_space, self.num_envs)
            self.action_space = batch_space(env.action_space, self.num_envs)
            # The panel may play the first environment. Gymnasium 1.4 closes no environment that is dropped.
            self._close = weakref.finalize(self, opened.pop_all().close)
            self._close.atexit = False
        self._over = np.zeros(self.num_envs, dtype=np.bool_)
        self._everyone = list(range(self.num_envs))
        self._observations: Any = [None] * self.num_envs
        self._frames: FrameArrays | None = None
        if isinstance(self.observation_space, Box) and isinstance(self.members, ShowingMembers):
            self._frames = FrameArrays(self.observation_space.shape, self.observation_space.dtype)
        self._recorder = Recorder(num_groups, group_size)
        self._started = False

    # ---- Gymnasium ----------------------------------------------------------------------------

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin one task per group.

        `options["task"]` and `options["group_seed"]` are one number for all groups, or one per group. Without them
        they are drawn from `seed`. `options["reset_mask"]` (num_envs,) bool resets the groups it selects and leaves
        the others unchanged. A mask that selects nobody changes nothing: it draws nothing and seeds nothing.

        A refused option changes nothing either. Raises `GroupError` if the copies of a group do not start alike, or if
        a mask selects part of a group, and `ValueError`, `TypeError` or `IndexError` for a wrong option.
        """
        options = dict(options or {})
        groups = self._groups_of(options.pop("reset_mask", None))
        tasks = self._given_tasks(options.pop("task", None))
        seeds = self._given_seeds(options.pop("group_seed", None))
        if options:
            raise ValueError(f"reset: unknown option {sorted(options)[0]!r}; known: 'task', 'group_seed', 'reset_mask'")
        if not groups:
            return self._batched_observations([], None), {}
        super().reset(seed=seed)
        if tasks is None:
            tasks = self.np_random.integers(len(self.panel), size=self.num_groups).tolist()
        if seeds is None:  # drawn after the tasks, so that given seeds do not change the tasks
            seeds = self.np_random.integers(2**31, size=self.num_groups).tolist()
        self._started = False  # stays False if a group fails its check, so that it cannot be stepped
        members = [m for group in groups for m in range(group * self.group_size, (group + 1) * self.group_size)]
        outcome = self._begin(members, tasks, seeds)
        prove_alike(groups, self.group_size, outcome)
        self._over[members] = False
        self._recorder.begin(groups, outcome.infos)
        self._store_observations(members, outcome)
        self._started = True
        return self._batched_observations(members, outcome), self._scattered_infos(members, outcome.infos)

    def step(
        self, actions: Sequence[str | None]
    ) -> tuple[Any, NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_], dict[str, Any]]:
        """Step the active members. `actions` has one text per member; it is ignored for those that have ended.

        Returns observations, num_envs texts or an array (num_envs, ...); rewards, terminated and truncated, (num_envs,)
        each; and infos, a column under each name and its mask under `_name`. Raises `gymnasium.error.ResetNeeded` if no
        member is active, and `ValueError` or `TypeError` for a missing action.
        """
        active = np.flatnonzero(self.active)
        members = active.tolist()
        if not members:
            self._refuse_ended(range(self.num_envs))
        if len(actions) != self.num_envs:
            raise ValueError(f"step: {len(actions)} actions for {self.num_envs} members")
        replies = actions if len(members) == self.num_envs else [actions[m] for m in members]
        outcome = self._advance(members, active, replies, shown=self._frames is None)
        rewards = np.zeros(self.num_envs, dtype=np.float64)
        rewards[active] = outcome.rewards
        terminated, truncated = np.zeros((2, self.num_envs), dtype=np.bool_)
        terminated[active], truncated[active] = outcome.terminated, outcome.truncated
        observations = self._batched_observations(members, outcome)
        return observations, rewards, terminated, truncated, self._scattered_infos(members, outcome.infos)

    def step_members(self, members: Sequence[int], actions: Sequence[str | None]) -> Outcome:
        """Step some of the active members: `actions[i]` goes to `members[i]`. The others wait.

        A rollout uses this when replies arrive one by one. Returns the outcome of `members`, in their order.
        Raises `gymnasium.error.ResetNeeded` for a member that is not active, and `ValueError` if `members` is
        empty or names a member twice.
        """
        members = [int(member) for member in members]
        self._refuse_ended(members)
        if len(set(members)) < max(1, len(members)):
            raise ValueError(f"step: name at least one member, and each one once; got {members}")
        return self._advance(members, np.array(members, dtype=np.intp), actions)

    def close_extras(self, **kwargs: Any) -> None:
        """Close the members: Gymnasium's `close` calls this, with `kwargs` that are not used."""
        if hasattr(self, "_close"):  # Gymnasium's finalizer comes here, too, where the constructor failed
            self._close()

    def render(self) -> tuple[Any, ...]:
        return self.members.render()

    @property
    def restarts(self) -> int:
        """The number of workers lost and replaced so far."""
        return getattr(self.members, "restarts", 0)

    # ---- records of the groups ----------------------------------------------------------------

    @property
    def active(self) -> NDArray[np.bool_]:
        """Mask of the members whose episode has not ended, (num_envs,) bool."""
        return ~self._over if self._started else np.zeros(self.num_envs, dtype=np.bool_)

    def transition_counts(self) -> list[TransitionCounts]:
        """The merged N(s, a, x) of every group so far."""
        return self._recorder.transition_counts() if self._started else []

    def interned(self) -> InternedRollouts:
        """The rollouts of every group as integers, for credit. Raises `GroupError` while a member is active."""
        self._refuse_unfinished("interned")
        return self._recorder.interned()

    def groups(self) -> list[RolloutGroup]:
        """The rollouts of every group, by name. Raises `GroupError` while a member is active."""
        self._refuse_unfinished("groups")
        return self._recorder.interned().groups()

    # ---- internals ----------------------------------------------------------------------------

    def _begin(self, members: Sequence[int], tasks: Sequence[int], seeds: Sequence[int]) -> Outcome:
        """Reset `members`, which are whole groups. `tasks` and `seeds` have one value for each of all groups."""
        places = [divmod(m, self.group_size) for m in members]
        columns = [[tasks[g] for g, _ in places], [seeds[g] for g, _ in places]]
        if self.dynamics == INDEPENDENT:
            columns.append([noise_seed(seeds[g], i) for g, i in places])
        return self.members.reset(members, *columns)

    def _advance(
        self, members: Sequence[int], chosen: NDArray[np.intp], actions: Sequence[str | None], shown: bool = True
    ) -> Outcome:
        """Step active members; `chosen` are the same. Unless `shown`, the outcome has no observations."""
        if set(map(type, actions)) == {str} and len(actions) == len(members):
            replies = cast(Sequence[str], actions)
        else:
            replies = [_checked_action(action, m) for m, action in zip(members, actions, strict=True)]
        # All actions are checked by now: a refused step changes nothing. An error from here on needs a reset.
        self._started = False
        if shown:
            outcome = self.members.step(members, replies)
        else:
            outcome = cast(ShowingMembers, self.members).step(members, replies, shown=False)
        self._recorder.add(chosen, outcome)
        self._over[chosen] = outcome.terminated | outcome.truncated
        self._store_observations(members, outcome)
        self._started = True
        return outcome

    def _refuse_ended(self, members: Sequence[int]) -> None:
        """Raise `ResetNeeded` if one of `members` is not active, or nobody is."""
        active = set(np.flatnonzero(self.active).tolist())
        ended = [m for m in members if m not in active]
        if ended or not active:
            why = f"member {ended[0]} has ended" if active else "every member has ended"
            why = why if self._started else "no episode has begun"
            raise gymnasium.error.ResetNeeded(f"step: {why}; call reset() first")

    def _store_observations(self, members: Sequence[int], outcome: Outcome) -> None:
        """Keep the last observation of `members`, which later batches repeat while they are not stepped.

        Members that show their frames at any time need no copy of them here.
        """
        if self._frames is not None:
            return
        if isinstance(outcome.observations, np.ndarray):
            if not isinstance(self._observations, np.ndarray):
                self._observations = create_empty_array(self.single_observation_space, self.num_envs)
            self._observations[members] = outcome.observations
            return
        if members == self._everyone:
            self._observations = list(outcome.observations)
            return
        for m, observation in zip(members, outcome.observations, strict=True):
            self._observations[m] = observation

    def _batched_observations(self, members: Sequence[int], outcome: Outcome | None) -> Any:
        """The batch of observations: those of `outcome` for `members`, the last ones of the others."""
        whole = outcome.observations if outcome is not None and len(members) == self.num_envs else None
        if isinstance(whole, np.ndarray):
            return whole
        if self._frames is not None:
            frames = self._frames.take()
            cast(ShowingMembers, self.members).show(frames)
            return frames
        if isinstance(self._observations, np.ndarray):
            return self._observations.copy()
        space = self.single_observation_space
        out: Any = create_empty_array(space, self.num_envs)
        try:
            return concatenate(space, self._observations, out)
        except TypeError as error:
            raise EnvError(f"{self.domain}: an observation is none of its space {space}: {error}") from error

    def _scattered_infos(self, members: Sequence[int], infos: Infos) -> Infos:
        return infos if len(members) == self.num_envs else scatter([(members, infos)], self.num_envs)

    def _refuse_unfinished(self, caller: str) -> None:
        active = np.flatnonzero(self.active)
        if not self._started or active.size:
            why = f"member {active[0]} has not ended" if active.size else "no episode has begun"
            raise GroupError(f"{caller}: {why}; step until `envs.active` is False everywhere")

    def _groups_of(self, mask: NDArray[np.bool_] | None) -> list[int]:
        """The groups that a reset mask selects; all groups without a mask."""
        if mask is None:
            return list(range(self.num_groups))
        if not self._started:
            raise gymnasium.error.ResetNeeded("reset: the first reset takes no mask; call reset() without one")
        table = np.asarray(mask)
        if table.dtype != np.bool_:
            raise TypeError(f"reset: reset_mask must be bool, True for the members to reset; it is {table.dtype}")
        if table.shape != (self.num_envs,):
            raise ValueError(f"reset: reset_mask has shape {table.shape}, there are {self.num_envs} members")
        table = table.reshape(self.num_groups, self.group_size)
        partial_groups = np.flatnonzero(table.any(axis=1) & ~table.all(axis=1))
        if partial_groups.size:
            raise GroupError(f"reset: the mask selects part of group {partial_groups[0]}; select all of it or none")
        return np.flatnonzero(table.all(axis=1)).tolist()

    def _given_seeds(self, given: Any) -> list[int] | None:
        """The seed of each group, from `options["group_seed"]`."""
        if given is None:
            return None
        single = isinstance(given, str) or not (isinstance(given, Sequence) or np.ndim(given) > 0)
        seeds = [given] * self.num_groups if single else list(given)
        if len(seeds) != self.num_groups:
            raise ValueError(f"reset: {len(seeds)} group seeds for {self.num_groups} groups; give one each")
        for seed in seeds:
            integer = isinstance(seed, int | np.integer) and not isinstance(seed, bool)
            if not integer or not 0 <= seed <= LARGEST_SEED:
                raise ValueError(f"reset: a group seed must be an integer from 0 to 2**63 - 1, got {seed!r}")
        return [int(seed) for seed in seeds]

    def _given_tasks(self, given: Any) -> list[int] | None:
        """The task index of each group, from `options["task"]`."""
        if given is None:
            return None
        tasks = [given] * self.num_groups if np.ndim(given) == 0 else list(given)
        if len(tasks) != self.num_groups:
            raise ValueError(f"reset: {len(tasks)} tasks for {self.num_groups} groups; give one, or one per group")
        return [self.panel.index(operator.index(task)) for task in tasks]


def _checked_action(action: str | None, member: int) -> str:
    if action is None:
        raise ValueError(f"step: member {member} is active and has no action")
    if not isinstance(action, str):
        raise TypeError(f"step: member {member} got {type(action).__name__}; an action must be a str")
    return action
