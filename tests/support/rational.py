"""Credit in rational arithmetic, straight from the definitions; roots are taken in floats at the very end.

What the estimators and their options are held against. It shares no code with the library but the rollouts themselves.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from math import inf, lcm, sqrt

import numpy as np

from anchors import INVALID, SUCCESS, Rollout, RolloutGroup, Step

END = None
"""The boundary: nothing is earned beyond it."""
EPSILON = 1e-6
Pair = tuple[str, str]
Row = tuple[int, int]


def exact(number) -> Fraction:
    """A float as the decimal that people write: 0.1 is one tenth."""
    return Fraction(str(number))


@dataclass(frozen=True)
class Visit:
    """Step t of rollout i: at `anchor` it takes `action`, earns `reward`, and leads to `successor`."""

    row: Row
    anchor: str
    action: str
    reward: Fraction
    successor: str | None
    penalty: bool

    @property
    def pair(self) -> Pair:
        return self.anchor, self.action


def visits(group: RolloutGroup, truncation: str = "failure", reward: str = "outcome") -> list[Visit]:
    left = {step.anchor for played in group.rollouts for step in played.steps}
    found = []
    for i, played in enumerate(group.rollouts):
        after = [step.anchor for step in played.steps[1:]]
        on = truncation == "successor" and played.truncated and played.final_anchor in left
        for t, step in enumerate(played.steps):
            last = t == len(played) - 1
            if reward == "step":
                earned = exact(step.reward)
            elif not last:
                earned = Fraction(0)
            else:
                earned = Fraction(played.success) if reward == "outcome" else Fraction(0) if on else exact(played.score)
            successor = after[t] if not last else played.final_anchor if on else END
            found.append(Visit((i, t), step.anchor, step.action, earned, successor, not step.valid))
    return found


def mean(values: Iterable[Fraction]) -> Fraction:
    """Summed over one denominator: reducing every partial sum takes several times as long."""
    values = list(values)
    scale = lcm(*(value.denominator for value in values))
    return Fraction(sum(value.numerator * (scale // value.denominator) for value in values), scale * len(values))


def by(key, values) -> dict:
    found = defaultdict(list)
    for value in values:
        found[key(value)].append(value)
    return dict(found)


# ---- the closure ----------------------------------------------------------------------------------


class Closure:
    """V by anchor, Q and A by pair, and sigma^2 by anchor; `closed` are the anchors that nothing leads away from."""

    def __init__(self, group, beta=Fraction(98, 100), depth=None, horizon=None, truncation="failure", reward="outcome"):
        self.visits = visits(group, truncation, reward)
        self.beta = auto(group) if beta == "auto" else exact(beta)
        self.at = by(lambda v: v.anchor, self.visits)
        self.of = by(lambda v: v.pair, self.visits)
        self.actions = {s: {v.action for v in here} for s, here in self.at.items()}
        self.closed = set(self.at) - self._leading_out()
        if horizon == "auto":  # the longest rollout where the group knows a limit
            horizon = max(map(len, group.rollouts)) if any(r.truncated for r in group.rollouts) else None
        if horizon is not None:
            self._within(horizon)
        else:
            self.V, self.Q = self._solved() if depth is None else self._after(depth)
            self.A = {pair: q - self.V[pair[0]] for pair, q in self.Q.items()}
        self.variance = {s: mean(self.A[v.pair] ** 2 for v in here) for s, here in self.at.items()}

    def backup(self, V):
        """Q(s, a): beta times the mean of r + V(x) over the visits to (s, a)."""
        V = {**V, END: Fraction(0)}
        return {pair: self.beta * mean(v.reward + V[v.successor] for v in some) for pair, some in self.of.items()}

    def states(self, Q):
        """V(s): the mean of Q over the visits to s."""
        return {s: mean(Q[v.pair] for v in here) for s, here in self.at.items()}

    def _leading_out(self):
        """The anchors from which some path leads to the end."""
        known = {END}
        while True:
            more = {v.anchor for v in self.visits if v.successor in known} - known
            if not more:
                return known - {END}
            known |= more

    def _solved(self):
        """The least fixed point. Where beta is 1, what only leads to itself earns nothing."""
        unknown = [s for s in self.at if self.beta < 1 or s not in self.closed]
        number = {s: i for i, s in enumerate(unknown)}
        rows = []
        for s in unknown:
            row = [Fraction(0)] * len(unknown) + [self.beta * mean(v.reward for v in self.at[s])]
            row[number[s]] += 1
            for v in self.at[s]:
                if v.successor in number:
                    row[number[v.successor]] -= self.beta / len(self.at[s])
            rows.append(row)
        V = {s: Fraction(0) for s in self.at} | dict(zip(unknown, eliminated(rows), strict=True))
        return V, self.backup(V)

    def _after(self, depth):
        G = {}
        for v in reversed(self.visits):
            i, t = v.row
            G[v.row] = self.beta * (v.reward + G.get((i, t + 1), Fraction(0)))
        Q = {pair: mean(G[v.row] for v in some) for pair, some in self.of.items()}
        V = self.states(Q)
        for _ in range(depth):
            Q = self.backup(V)
            V = self.states(Q)
        return V, Q

    def _within(self, horizon):
        V, left = {s: Fraction(0) for s in self.at}, {}
        for h in range(1, horizon + 1):
            Q = self.backup(V)
            V = self.states(Q)
            left[h] = V, Q
        steps = {s: [horizon - v.row[1] for v in here] for s, here in self.at.items()}
        self.V = {s: mean(left[h][0][s] for h in steps[s]) for s in self.at}
        self.Q = {pair: mean(left[h][1][pair] for h in steps[pair[0]]) for pair in self.of}
        self.A = {pair: mean(left[h][1][pair] - left[h][0][pair[0]] for h in steps[pair[0]]) for pair in self.of}


def auto(group) -> Fraction:
    lengths = [len(played) for played in group.rollouts if played.success]
    return 1 - 1 / max(Fraction(sum(lengths), len(lengths)), Fraction(2)) if lengths else Fraction(98, 100)


def eliminated(rows: list[list[Fraction]]) -> list[Fraction]:
    """The solution of the regular system whose last column is its right-hand side."""
    size = len(rows)
    for k in range(size):
        pivot = next(i for i in range(k, size) if rows[i][k])
        rows[k], rows[pivot] = rows[pivot], rows[k]
        rows[k] = [x / rows[k][k] for x in rows[k]]
        for i in range(size):
            if i != k and rows[i][k]:
                factor = rows[i][k]
                rows[i] = [x - factor * y for x, y in zip(rows[i], rows[k], strict=True)]
    return [row[-1] for row in rows]


# ---- the estimators -------------------------------------------------------------------------------


def crbc(
    group,
    beta=0.98,
    depth=None,
    horizon=None,
    truncation="failure",
    reward="outcome",
    normalise="anchor",
    sigma_min=0.1,
    w_group=1.0,
    w_step=5.0,
    **options,
) -> dict[Row, float]:
    """The final advantage of every step. `options` are `trajectory`'s, its method as `group` of the library's."""
    found = Closure(group, beta, depth, horizon, truncation, reward)
    open_visits = [v for v in found.visits if len(found.actions[v.anchor]) >= 2]
    whole = mean(found.variance[v.anchor] for v in open_visits) if open_visits else Fraction(0)

    def scale(s):
        if normalise is None:
            return 1.0
        return max(sqrt(found.variance[s] if normalise == "anchor" else whole), sigma_min)

    outer = trajectory(group, reward=reward, **options)
    gated = {v.row: found.A[v.pair] if v in open_visits else 0.0 for v in found.visits}
    return {v.row: w_group * outer[v.row] + w_step * float(gated[v.row]) / scale(v.anchor) for v in found.visits}


def normalised(values: dict[Row, Fraction], mode: str, ddof: int = 1) -> dict[Row, float]:
    middle = mean(values.values())
    apart = {row: x - middle for row, x in values.items()}
    if mode == "mean_norm":
        return {row: float(x) for row, x in apart.items()}
    variance = sum(x * x for x in apart.values()) / max(len(apart) - ddof, 1)
    return {row: float(x) / (sqrt(variance) + EPSILON) for row, x in apart.items()}


def normalised_by(key, values: dict[Row, Fraction], mode: str, ddof: int = 1) -> dict[Row, float]:
    found = {}
    for rows in by(key, values).values():
        found |= normalised({row: values[row] for row in rows}, mode, ddof)
    return found


def earned(played: Rollout, reward: str, success_reward) -> Fraction:
    """What a rollout earns in all."""
    if reward == "step":
        return sum((exact(step.reward) for step in played.steps), Fraction(0))
    return exact(success_reward) * (Fraction(played.success) if reward == "outcome" else exact(played.score))


def trajectory(
    group, method="grpo", success_reward=10.0, invalid_penalty=0.1, weighting="rollout", reward="outcome"
) -> dict[Row, float]:
    """GRPO, Dr. GRPO or RLOO of the rollouts, or of the step rows."""
    rows = [v.row for v in visits(group)]
    bad = {v.row: exact(invalid_penalty) * v.penalty for v in visits(group)}
    total = {i: earned(played, reward, success_reward) for i, played in enumerate(group.rollouts)}
    if weighting == "step":
        x = {row: total[row[0]] - bad[row] for row in rows}
    else:
        x = {(i, 0): total[i] - sum(bad[row] for row in rows if row[0] == i) for i in total}
    found = normalised(x, "mean_std_norm" if method == "grpo" else "mean_norm")
    if method == "rloo":
        found = {row: value * len(x) / max(len(x) - 1, 1) for row, value in found.items()}
    return {row: found[row if weighting == "step" else (row[0], 0)] for row in rows}


def episode(group, mode, options) -> dict[Row, float]:
    return trajectory(group, "grpo" if mode == "mean_std_norm" else "drgrpo", **options)


def step_returns(group, gamma, success_reward=10.0, invalid_penalty=0.1, reward="outcome") -> dict[Row, Fraction]:
    """sum_k gamma^k r_(t+k), less the penalty at the malformed step alone."""
    G = {}
    for v in reversed(visits(group, reward=reward)):
        r = v.reward if reward == "step" else exact(success_reward) * v.reward
        G[v.row] = r + exact(gamma) * G.get((v.row[0], v.row[1] + 1), Fraction(0))
    return {v.row: G[v.row] - exact(invalid_penalty) * v.penalty for v in visits(group)}


def gigpo(group, gamma=0.95, mode="mean_std_norm", w_group=1.0, w_step=1.0, **options) -> dict[Row, float]:
    at = {v.row: v.anchor for v in visits(group)}
    inner = {name: value for name, value in options.items() if name != "weighting"}
    local = normalised_by(at.__getitem__, step_returns(group, gamma, **inner), mode)
    outer = episode(group, mode, options)
    return {row: w_group * outer[row] + w_step * local[row] for row in at}


def hgpo(group, gamma=0.95, history=2, alpha=1.0, first_weight=1.0, mode="mean_std_norm", **options):
    returns = step_returns(group, gamma, **options)
    at = {v.row: v.anchor for v in visits(group)}
    total, weights = dict.fromkeys(at, 0.0), dict.fromkeys(at, 0.0)
    for k in range(1, history + 2):
        known = {row: returns[row] for row in at if row[1] >= k - 1}
        level = normalised_by(lambda row, k=k: tuple(at[row[0], row[1] - j] for j in range(k)), known, mode, ddof=0)
        for row, value in level.items():
            if value:
                total[row] += (first_weight + k - 1) ** alpha * value
                weights[row] += (first_weight + k - 1) ** alpha
    return {row: total[row] / weights[row] if weights[row] else 0.0 for row in at}


def graphgpo(
    group, omega=0.1, mode="mean_std_norm", w_group=1.0, w_step=1.0, success_reward=10.0, invalid_penalty=0.1, **options
) -> dict[Row, float]:
    """A step into a node earns omega to its distance from success, over the edges of the whole group; a failure that
    ended nobody knows where is one further than all else."""
    found = visits(group)
    at, into = {v.row: v.anchor for v in found}, {}
    for i, t in at:
        played = group.rollouts[i]
        end = SUCCESS if played.success else played.final_anchor or ("lost", i)
        into[i, t] = at.get((i, t + 1), end)
    away = {SUCCESS: 0}
    while nearer := {at[row] for row, node in into.items() if node in away} - set(away):
        away |= dict.fromkeys(nearer, max(away.values()) + 1)
    beyond = max(away.values()) + 1
    factor, penalty = exact(success_reward), exact(invalid_penalty)
    r = {v.row: factor * exact(omega) ** away.get(into[v.row], beyond) - penalty * v.penalty for v in found}
    local = normalised_by(at.__getitem__, r, mode)
    outer = episode(group, mode, {"success_reward": success_reward, "invalid_penalty": invalid_penalty, **options})
    return {row: w_group * outer[row] + w_step * local[row] for row in at}


def g2po(group, gamma=0.95, mode="mean_std_norm", w_group=1.0, w_step=1.0, **options) -> dict[Row, float]:
    kind = options.get("reward", "outcome")
    factor, penalty = exact(options.get("success_reward", 10.0)), exact(options.get("invalid_penalty", 0.1))
    found = visits(group, reward=kind)
    G = {}
    for v in reversed(found):
        G[v.row] = exact(gamma) * (factor * v.reward + G.get((v.row[0], v.row[1] + 1), Fraction(0)))
    V = {s: mean(G[v.row] for v in here) for s, here in by(lambda v: v.anchor, found).items()}
    reached = {v.row: factor * v.reward if v.successor is END else V[v.successor] for v in found}
    at = {v.row: v.anchor for v in found}
    edge = normalised_by(at.__getitem__, {v.row: reached[v.row] - penalty * v.penalty for v in found}, mode)
    gain = normalised({v.row: reached[v.row] - V[v.anchor] for v in found}, mode)
    outer = episode(group, mode, options)
    return {row: w_group * outer[row] + w_step * (edge[row] + gain[row]) for row in at}


def rtmc(group, gamma=0.99, prior=2.0, pooling="state", mode="mean_norm", **options) -> dict[Row, float]:
    returns = step_returns(group, gamma, **options)
    found = visits(group)
    kind, factor = options.get("reward", "outcome"), options.get("success_reward", 10.0)
    outcomes = {(i, 0): earned(played, kind, factor) for i, played in enumerate(group.rollouts)}

    def first(key):
        """The return of each rollout's first visit to each key, by (rollout, key)."""
        seen = {}
        for v in found:
            seen.setdefault((v.row[0], key(v)), returns[v.row])
        return seen

    pairs, states = first(lambda v: v.pair), first(lambda v: v.anchor)
    pooled = {(i, s, a): x for (i, (s, a)), x in pairs.items()} if pooling == "pair" else states
    scale = 1.0
    if mode == "mean_std_norm":
        middle = mean(outcomes.values())
        deviation = sqrt(sum((x - middle) ** 2 for x in outcomes.values()) / max(len(outcomes) - 1, 1))
        scale = deviation + EPSILON if deviation else inf  # equal outcomes: zeros
    values = {}
    for v in found:
        Q = mean(x for (_, pair), x in pairs.items() if pair == v.pair)
        here = [x for key, x in pooled.items() if key[1] == v.anchor]
        shrunk = (sum(here) + exact(prior) * mean(outcomes.values())) / (len(here) + exact(prior))
        values[v.row] = float(Q - shrunk) / scale
    return values


def accumulated(delta: dict[Row, Fraction], factor: Fraction) -> dict[Row, Fraction]:
    """A_t = delta_t + factor A_(t+1) along each rollout."""
    found = {}
    for i, t in sorted(delta, reverse=True):
        found[i, t] = delta[i, t] + factor * found.get((i, t + 1), Fraction(0))
    return {row: found[row] for row in delta}


def graft(
    group, beta=0.98, lam=0.0, truncation="failure", reward="outcome", w_group=0.0, w_step=1.0, **options
) -> dict[Row, float]:
    """delta = beta (r + V(x)) - V(s) with the closure's V, accumulated along the rollout."""
    found = Closure(group, beta, truncation=truncation, reward=reward)
    V = {**found.V, END: Fraction(0)}
    delta = {v.row: found.beta * (v.reward + V[v.successor]) - V[v.anchor] for v in found.visits}
    local = accumulated(delta, found.beta * exact(lam))
    outer = trajectory(group, reward=reward, **options)
    return {row: w_group * outer[row] + w_step * float(local[row]) for row in local}


def gagpo(
    group, gamma=0.95, lam=0.95, mode="mean_std_norm", success_reward=10.0, invalid_penalty=0.1, reward="outcome"
) -> dict[Row, float]:
    """GAE over the means of the returns at each anchor, penalties included, normalised over the group's steps."""
    found = visits(group, reward=reward)
    scale = Fraction(1) if reward == "step" else exact(success_reward)
    r = {v.row: scale * v.reward - exact(invalid_penalty) * v.penalty for v in found}
    returns = accumulated(r, exact(gamma))
    V = {s: mean(returns[v.row] for v in here) for s, here in by(lambda v: v.anchor, found).items()} | {
        END: Fraction(0)
    }
    delta = {v.row: r[v.row] + exact(gamma) * V[v.successor] - V[v.anchor] for v in found}
    return normalised(accumulated(delta, exact(gamma) * exact(lam)), mode)


# ---- random groups --------------------------------------------------------------------------------

ANCHORS = ("s0", "s1", "s2", "s3", "s4", "s5")
ACTIONS = ("left", "right", "look", INVALID)
REWARDS = {"none": (0.0,), "push": (-0.1, -0.1, -0.1, 0.9, -1.1, 10.9), "any": (-2.0, -0.5, 0.0, 0.25, 1.0, 3.75)}


def random_group(rng: np.random.Generator) -> RolloutGroup:
    """One to eight rollouts of up to ten steps, some cut at anchors that others left, with scores and rewards."""
    anchors, actions = int(rng.integers(1, 7)), int(rng.integers(1, 5))
    rate = rng.choice([0.0, 0.3, 0.7, 1.0], p=[0.1, 0.4, 0.4, 0.1])
    cuts = rng.choice([0.0, 0.6, 1.0])
    rewards = REWARDS[rng.choice(list(REWARDS))]
    rollouts = []
    for _ in range(rng.integers(1, 9)):
        length = int(rng.integers(1, 11))
        where = [0, *rng.integers(anchors, size=length - 1).tolist()]
        what = rng.integers(actions, size=length).tolist()
        earned = rng.choice(rewards, size=length).tolist()
        steps = [Step(ANCHORS[s], ACTIONS[a], r) for s, a, r in zip(where, what, earned, strict=True)]
        success = bool(rng.random() < rate)
        final = rng.choice([None, "never left", *ANCHORS[:anchors], *ANCHORS[:anchors]])
        score = 1.0 if success else float(rng.choice([0.0, 0.0, 0.1, 0.25, 0.5, 0.9]))
        rollouts.append(Rollout(steps, success, not success and bool(rng.random() < cuts), final, score))
    return RolloutGroup(rollouts)
