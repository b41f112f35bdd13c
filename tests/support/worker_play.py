"""What the tests of workers share: episodes played from a seed, and all they gave as plain data."""

from __future__ import annotations

from contextlib import closing

import faulty_env  # noqa: F401  registers FaultyCorridor-v0
import numpy as np

from crbc_envs import GroupVectorEnv

REPLIES = ["jump", "", "<think>a", "<think>a</think><action>left</action>", "\0\ud800", "x" * 2_000]


def plain(value):
    """Everything about a value that could differ, down to types and the order of keys."""
    if isinstance(value, dict):
        return [(key, plain(entry)) for key, entry in value.items()]
    if isinstance(value, list | tuple):
        return type(value).__name__, [plain(entry) for entry in value]
    if isinstance(value, np.ndarray):
        entries = [plain(entry) for entry in value.tolist()] if value.dtype == object else value.tobytes()
        return value.dtype.str, value.shape, entries
    return type(value).__name__, repr(value)


def replies(envs, info, rng):
    """A random reply per live member, admissible or malformed; None for those that ended."""
    given = []
    for m, live in enumerate(envs.active):
        known = info["admissible_actions"][m] if live else None
        wild = rng.random() < 0.3
        given.append(None if not live else REPLIES[rng.integers(len(REPLIES))] if wild else rng.choice(known))
    return given


def play(envs, seed, restart=True, before_step=lambda: None):
    """One episode of every group, and with `restart` a second one of each group that ends while others play."""
    rng = np.random.default_rng(seed)
    obs, info = envs.reset(seed=seed)
    trace = [plain((obs, info))]
    restarted = not restart
    while envs.active.any():
        before_step()
        step = envs.step(replies(envs, info, rng))
        info = step[-1]
        trace.append(plain(step))
        over = ~envs.active.reshape(envs.num_groups, envs.group_size).any(axis=1)
        if not restarted and over.any() and not over.all():
            restarted = True
            trace.append(plain([sorted(counts.items()) for counts in envs.transition_counts()]))
            obs, begun = envs.reset(options={"reset_mask": np.repeat(over, envs.group_size)})
            trace.append(plain((obs, begun)))
            info = dict(info)
            info["admissible_actions"] = np.where(
                begun["_step"], begun["admissible_actions"], info["admissible_actions"]
            )
    trace.append(plain([sorted(counts.items()) for counts in envs.transition_counts()]))
    trace.append(repr(envs.groups()))
    return trace


def traces(env_id, num_groups, group_size, **options):
    """Two plays of these groups, each from its own seed."""
    with closing(GroupVectorEnv(env_id, num_groups, group_size, **options)) as envs:
        return [play(envs, seed) for seed in range(2)]


def corridors(num_groups=3, group_size=2, **options):
    return GroupVectorEnv("FaultyCorridor-v0", num_groups, group_size, **options)


def processes(folder, what="made"):
    """The processes that made, or "closed", environments with that folder of faults."""
    return {int(path.name.split()[-1]) for path in folder.glob(f"{what} by *")}
