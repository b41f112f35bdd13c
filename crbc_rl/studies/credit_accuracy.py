"""The error of each credit estimator, where the true credit can be computed exactly.

A one-box Sokoban room has few states, so the true advantage of a move under a known behaviour policy is a short
recursion: Q_t - V_t with the remaining steps taken into account, averaged over the times at which the behaviour is at
the state. The study samples rollout groups from such behaviours and computes the step credit of every estimator in
`credit.METHODS`. It compares them pair by pair, over the (anchor, action) pairs whose anchor has two or more observed
actions, in groups with at least one success.

`crbc study credit-accuracy` runs it. In 300 rooms at G = 8 the rank correlation with the truth rises with
every step of depth and is highest for the closure. CRBC is not ahead of shortest paths: the puzzle is deterministic,
and a large step along GraphGPO gains more. docs/credit/accuracy.md has the figures.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from anchors import EmpiricalProcess, sum_by
from anchors.coverage import coverage_statistics
from crbc_envs.sokoban.panels import SokobanPanel
from crbc_envs.sokoban.rules import MOVES
from crbc_rl import credit
from crbc_rl.studies.tabular import TabularRoom, Truth, evaluate, mixture, sample_groups, soft, success_rates

Floats = NDArray[np.float64]

CLOSURE = "crbc"
NORMALISED = "crbc / sigma"
"""CRBC's Q - V as the learner uses it, divided by max(sigma, 0.1) at each anchor (eq. 13)."""
SOKOBAN: dict[str, dict[str, Any]] = {"graphgpo": {"omega": 0.8}}
"""The paper's settings on Sokoban, where they differ from a method's defaults."""
ORACLE = "truth"
"""The true advantage itself at the visited pairs: the gain of the best possible credit."""

METRICS = {
    "rank": "rank correlation with the truth (Spearman), within a group",
    "sign": "share of pairs with the sign of the truth; no credit counts as wrong",
    "zero": "share of pairs with a true effect and exactly no credit",
    "rmse_scaled": "root mean square error, each estimator times its best constant",
    "rmse": "root mean square error as it is, where credit is in units of success probability",
    "gain_small": "exact change of 15-step success after one small reweighting step, of equal size for all",
    "gain": "the same after one large step",
}
"""The metrics, with their descriptions."""

BY_GROUP = ("rank", "sign", "zero", "gain_small", "gain")
"""The metrics with a value per group. The two errors pool pairs instead."""

_SUMS = ("n", "tt", "ct", "cc", "ee")
_TINY = 1e-9
"""A true advantage below this counts as zero, such as that of moves at a dead end."""


@dataclass(frozen=True, slots=True)
class Settings:
    """The sample: `rooms` of the train panel x `groups` per room x `behaviours` x `group_sizes`.

    A behaviour is "mix0.3", a best move with probability 0.3 and any move otherwise, or "soft0.7",
    softmax(-0.7 x steps lost + N(0, 1)). `steps` are the sizes eta of the small and of the large reweighting step.
    `beta` is that of CRBC.
    """

    rooms: int = 300
    groups: int = 2
    behaviours: tuple[str, ...] = ("mix0", "mix0.15", "mix0.3", "mix0.5", "soft0", "soft0.3", "soft0.7", "soft1.5")
    group_sizes: tuple[int, ...] = (4, 8, 16, 32)
    depths: tuple[int, ...] = (0, 1, 2, 3)
    steps: tuple[float, float] = (0.25, 2.0)
    beta: float = 0.98
    seed: int = 0


QUICK = Settings(rooms=25, behaviours=("mix0.15", "soft0.7"), group_sizes=(4, 8))


@dataclass(frozen=True, slots=True)
class Estimator:
    """Two functions that map a process of several groups to one value per pair.

    `credit` is compared with the truth, `direction` is the form that the learner uses. With `probability`, credit is in
    units of success probability.
    """

    name: str
    credit: Callable[[EmpiricalProcess], Floats]
    direction: Callable[[EmpiricalProcess], Floats]
    probability: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Cell:
    """The outcome for one behaviour and group size: over R rooms and E estimators (the oracle last).

    `success` (R,): the true J. `failed`: the fraction of groups without a success, which are left out. `scores`: by
    metric (R, E), nan where a room has none. `sums` (R, E, 5): the sums for the two errors. `coverage`: the fraction of
    eligible visits that all G rollouts reach, at each depth of the study and for the closure.
    """

    behaviour: str
    group_size: int
    success: Floats
    failed: float
    scores: dict[str, Floats]
    sums: Floats
    coverage: Floats


# ---- estimators ---------------------------------------------------------------------------------


def estimators(depths: Sequence[int], beta: float) -> list[Estimator]:
    """CRBC at each depth and its closure, then the step term of every other method of `credit.METHODS`."""
    found = [_family(f"{CLOSURE} K={depth}", beta, depth) for depth in depths]
    found.append(_family(CLOSURE, beta, None))
    normalised = partial(credit.step_credit, beta=beta)
    found.append(Estimator(NORMALISED, normalised, normalised))
    for method in credit.METHODS:
        if method != CLOSURE:
            for name, options in variants(method).items():
                by_pair = partial(_mean_over_visits, method, options)
                found.append(Estimator(name, by_pair, by_pair))
    return found


def variants(method: str) -> dict[str, dict[str, Any]]:
    """The options of a method's step term, with its Sokoban settings; "NAME mean" is the mode without the division by
    the standard deviation."""
    known = inspect.signature(credit.METHODS[method]).parameters
    options: dict[str, Any] = {**SOKOBAN.get(method, {})}
    if "w_step" in known:
        options |= {"w_group": 0.0, "w_step": 1.0}
    found = {method: options}
    if "mode" in known:
        found[f"{method} mean"] = {**options, "mode": "mean_norm"}
    return found


def _family(name: str, beta: float, depth: int | None) -> Estimator:
    return Estimator(
        name,
        lambda process: credit.closure(process, beta, depth).A,
        partial(credit.step_credit, beta=beta, depth=depth),
        probability=True,
    )


def _mean_over_visits(method: str, options: dict[str, Any], process: EmpiricalProcess) -> Floats:
    """A method's advantage per step, averaged over the visits of each pair."""
    assert process.rollouts is not None
    per_step = credit.METHODS[method](process, **options)
    return sum_by(process.pair, per_step, len(process.pairs)) / process.pair_count


# ---- one behaviour, one group size --------------------------------------------------------------


def behaviour_of(name: str, room: TabularRoom, rng: np.random.Generator) -> Floats:
    """The policy of a behaviour's name, (n, 4). Raises `ValueError` for an unknown name."""
    if name.startswith("mix"):
        return mixture(room, float(name.removeprefix("mix")))
    if name.startswith("soft"):
        return soft(room, float(name.removeprefix("soft")), rng)
    raise ValueError(f"behaviour must be mixW or softA with a number, got {name!r}")


def measure(
    rooms: Sequence[TabularRoom], name: str, group_size: int, which: Sequence[Estimator], settings: Settings
) -> Cell:
    """Sample groups in every room and score every estimator's credit on them."""
    # The policy depends on seed, behaviour and room, but not on the group size.
    stream = [settings.seed, *name.encode()]
    policies = [behaviour_of(name, room, np.random.default_rng([*stream, i])) for i, room in enumerate(rooms)]
    truths = [evaluate(room, policy) for room, policy in zip(rooms, policies, strict=True)]
    draws = np.random.default_rng([*stream, len(rooms), group_size])
    owners, groups = [], []
    for i, (room, policy) in enumerate(zip(rooms, policies, strict=True)):
        for group in sample_groups(room, policy, settings.groups, group_size, draws):
            if group.success_rate > 0.0:
                owners.append(i)
                groups.append(group)

    process = EmpiricalProcess.from_groups(groups)
    shape = (len(rooms), settings.groups, len(which) + 1)
    scores = {metric: np.full(shape, np.nan) for metric in BY_GROUP}
    sums = np.zeros((len(rooms), len(which) + 1, len(_SUMS)))
    scored = [0] * len(rooms)
    for i, part in zip(owners, _by_group(process, which), strict=True):
        slot = scored[i]
        scored[i] += 1
        values, totals = _compare(rooms[i], policies[i], truths[i], part, settings.steps)
        for metric, value in values.items():
            scores[metric][i, slot] = value
        sums[i] += totals
    return Cell(
        name,
        group_size,
        np.array([truth.success for truth in truths]),
        1.0 - len(groups) / (len(rooms) * settings.groups),
        {metric: _mean(values, axis=1) for metric, values in scores.items()},
        sums,
        coverage_statistics(process, (*settings.depths, None)).full_access,
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Part:
    """One group's p visited pairs: `state`, `move`, `count` N(s, a), `gated` (p,), `credit`, `direction` (E, p)."""

    state: NDArray[np.int64]
    move: NDArray[np.int64]
    count: Floats
    gated: NDArray[np.bool_]
    credit: Floats
    direction: Floats


def _by_group(process: EmpiricalProcess, which: Sequence[Estimator]) -> Iterator[_Part]:
    """The values of all estimators, computed for all groups together and split by group in order."""
    assert process.rollouts is not None
    values = np.stack([e.credit(process) for e in which])
    directions = np.stack([e.direction(process) for e in which])
    state = np.array([int(anchor) for anchor in process.anchors])[process.pair_anchor]
    move = np.array([MOVES.index(action) for _, action in process.pairs])
    gated = process.actions_per_anchor[process.pair_anchor] >= 2
    group = np.zeros(len(process.pairs), dtype=np.int64)
    group[process.pair] = process.rollouts.group[process.rollouts.rollout]
    # Pairs are sorted by anchor and anchors by group, so a group's pairs are neighbours.
    for pairs in np.split(np.arange(len(group)), np.flatnonzero(np.diff(group)) + 1):
        yield _Part(
            state[pairs], move[pairs], process.pair_count[pairs], gated[pairs], values[:, pairs], directions[:, pairs]
        )


def _compare(
    room: TabularRoom, policy: Floats, truth: Truth, part: _Part, steps: Sequence[float]
) -> tuple[dict[str, Floats], Floats]:
    """One group's scores, each (E + 1,), and the sums behind its errors, (E + 1, 5)."""
    gated = part.gated
    t = truth.A[part.state[gated], part.move[gated]]
    c = np.vstack([part.credit[:, gated], t])
    nothing = np.full(len(c), np.nan)
    values = {"rank": nothing, "sign": nothing, "zero": nothing}
    effect = np.abs(t) > _TINY
    if effect.any():
        # Rounding must not break ties: credit is compared at ten digits relative to the group's largest.
        digits = np.round(c / np.maximum(np.abs(c).max(axis=1, keepdims=True), 1e-300), 10)
        values["rank"] = _spearman(digits, np.round(t, 10))
        values["sign"] = (np.sign(digits[:, effect]) == np.sign(t[effect])).mean(axis=1)
        values["zero"] = (digits[:, effect] == 0.0).mean(axis=1)
    direction = _unit_directions(room, truth, part)
    for name, eta in zip(("gain_small", "gain"), steps, strict=True):
        better = policy * np.exp(eta * (direction - direction.max(axis=2, keepdims=True)))
        values[name] = success_rates(room, better / better.sum(axis=2, keepdims=True)) - truth.success
    totals = [np.full(len(c), len(t)), np.full(len(c), t @ t), c @ t, (c * c).sum(axis=1), ((c - t) ** 2).sum(axis=1)]
    return values, np.stack(totals, axis=1)


def _spearman(values: Floats, truth: Floats) -> Floats:
    """Rank correlation of each row with `truth`; zero for a constant row."""
    ranks = rankdata(np.vstack([values, truth]), axis=1)
    ranks -= ranks.mean(axis=1, keepdims=True)
    norm = np.sqrt((ranks**2).sum(axis=1))
    product: Floats = ranks[:-1] @ ranks[-1]
    return product / np.where(norm[:-1] > 0.0, norm[:-1] * norm[-1], np.inf)


def _unit_directions(room: TabularRoom, truth: Truth, part: _Part) -> Floats:
    """The direction in which each estimator, and last the truth, moves the logits of the policy, (E + 1, n, 4).

    Each is scaled to root mean square one over the group's gated visits, so that all steps have the same size. The
    truth is divided by its standard deviation at the anchor, as CRBC's credit is.
    """
    true = np.where(part.gated, truth.A[part.state, part.move], 0.0)
    visits = sum_by(part.state, part.count, len(room))
    sigma = np.sqrt(sum_by(part.state, part.count * true**2, len(room))[part.state] / visits[part.state])
    direction = np.vstack([part.direction, true / np.maximum(sigma, 0.1)])
    weight = part.count * part.gated
    size = np.sqrt(direction**2 @ weight / max(float(weight.sum()), 1.0))[:, None]
    logits = np.zeros((len(direction), *truth.A.shape))
    logits[:, part.state, part.move] = direction / np.where(size > _TINY, size, np.inf)
    return logits


# ---- pooling ------------------------------------------------------------------------------------


def pool(cells: Sequence[Cell]) -> dict[str, tuple[Floats, Floats]]:
    """Mean and standard error over rooms of every metric, each (E,); cells are averaged within a room.

    The errors pool all pairs. Their standard errors are a jackknife over rooms.
    """
    result = {metric: _mean_and_error(_stacked(cells, metric)) for metric in BY_GROUP}
    sums = np.sum([cell.sums for cell in cells], axis=0)
    for metric in ("rmse_scaled", "rmse"):
        result[metric] = (_rmse(sums.sum(axis=0), metric), _jackknife(sums, metric))
    return result


def lead(cells: Sequence[Cell], metric: str, reference: int) -> tuple[Floats, Floats]:
    """Mean and standard error over rooms of the reference estimator's score minus each one's, paired."""
    scores = _stacked(cells, metric)
    return _mean_and_error(scores[:, reference, None] - scores)


def _stacked(cells: Sequence[Cell], metric: str) -> Floats:
    return _mean(np.stack([cell.scores[metric] for cell in cells]), axis=0)


def _mean(values: Floats, axis: int) -> Floats:
    """The mean without nan; nan where there is no value."""
    there = ~np.isnan(values)
    count = there.sum(axis=axis)
    total: Floats = np.where(there, values, 0.0).sum(axis=axis)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def _mean_and_error(values: Floats) -> tuple[Floats, Floats]:
    mean = _mean(values, axis=0)
    count = np.maximum((~np.isnan(values)).sum(axis=0), 1)
    variance = _mean((values - mean) ** 2, axis=0) * count / np.maximum(count - 1, 1)
    return mean, np.sqrt(variance / count)


def _rmse(sums: Floats, metric: str) -> Floats:
    n, tt, ct, cc, ee = np.moveaxis(sums, -1, 0)
    if metric == "rmse_scaled":
        ee = np.maximum(tt - np.divide(ct**2, cc, out=np.zeros_like(ct), where=cc > 0.0), 0.0)
    error: Floats = np.sqrt(ee / n)
    return error


def _jackknife(sums: Floats, metric: str) -> Floats:
    rooms = len(sums)
    without = _rmse(sums.sum(axis=0) - sums, metric)
    error: Floats = np.sqrt((rooms - 1) * ((without - without.mean(axis=0)) ** 2).mean(axis=0))
    return error


# ---- the study ----------------------------------------------------------------------------------


def rooms_of(settings: Settings) -> list[TabularRoom]:
    panel = SokobanPanel("train")
    return [TabularRoom.of(panel[index].content) for index in range(settings.rooms)]


def run(settings: Settings, progress: Callable[[int, int], None] = lambda done, total: None) -> list[Cell]:
    """Run every behaviour at every group size; `progress(done, total)` is called after each cell."""
    rooms = rooms_of(settings)
    which = estimators(settings.depths, settings.beta)
    plan = [(name, size) for size in settings.group_sizes for name in settings.behaviours]
    cells = []
    for done, (name, size) in enumerate(plan, start=1):
        cells.append(measure(rooms, name, size, which, settings))
        progress(done, len(plan))
    return cells
