"""Credit estimators, the group's term, and the one place where both meet: A = w_group A_G + w_step A_S (eq. 14)."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from difflib import get_close_matches
from functools import update_wrapper
from typing import Any, Literal, get_args

import numpy as np

from anchors import EmpiricalProcess, sum_by
from crbc_rl.credit.errors import CreditError
from crbc_rl.credit.groups import Floats, Ints, centre, check_finite, check_weights, normalise
from crbc_rl.credit.rewards import Earned, Reward, check_reward

Weighting = Literal["rollout", "step"]

StepTerm = Callable[..., Floats]
"""(process, earned, **own options) -> A_S, one value per step (n,) in the order of `EmpiricalProcess.steps`."""

_ONE = ("depth", "group", "group_reward", "horizon")
CHARGE = "invalid_step_penalty"
"""The option that charges a malformed reply at its own step, whatever the estimator."""
_EARNED = {"reward": "outcome", "success_reward": 10.0, "invalid_penalty": 0.1}


# ---- the group's term: one value per rollout, for all of its steps (section 3) ---------------------------


def grpo(x: Floats, group: Ints) -> Floats:
    """GRPO: (x_i - mean) / (std + 1e-6) within the group (eq. 3; Shao et al. 2024).

    std is the sample standard deviation (n - 1), as in the public code derived from DeepSeekMath; the paper does not
    specify it. A group with equal returns, a group of one included, gets exact zeros.
    """
    return normalise(x, group, int(group[-1]) + 1, "mean_std_norm")


def drgrpo(x: Floats, group: Ints) -> Floats:
    """Dr. GRPO: x_i - mean, without the division by std (Liu et al. 2025)."""
    return normalise(x, group, int(group[-1]) + 1, "mean_norm")


def rloo(x: Floats, group: Ints) -> Floats:
    """RLOO: x_i minus the mean of the others = n / (n - 1) (x_i - mean) (Ahmadian et al. 2024).

    A group of one gets zero.
    """
    n, deviation = centre(x, group, int(group[-1]) + 1)
    return deviation * (n / np.maximum(n - 1, 1))[group]


GROUP_TERMS: dict[str, Callable[[Floats, Ints], Floats]] = {"grpo": grpo, "drgrpo": drgrpo, "rloo": rloo}


def group_term(name: str, earned: Earned, weighting: Weighting) -> Floats:
    """A_G by one of `GROUP_TERMS`, one value per step (n,). GRPO, Dr. GRPO and RLOO are this term alone.

    The return of rollout i is x_i = success_reward R_i - invalid_penalty (number of malformed replies),
    the paper's protocol ("Details of Training"); with `success_reward=1, invalid_penalty=0` it is the
    bare R_i of eq. 3. With `reward="score"` the rollout's score replaces R_i. With `reward="step"` the sum of the
    environment's own rewards, on their own scale, replaces success_reward R_i.

    `weighting` selects the units of the group's statistics. "rollout" counts every rollout once, as in the paper.
    "step" counts a rollout once per step, with the penalty on the malformed row only, as public trainers with one row
    per step do. Long failures then have more weight.
    """
    rollouts = earned.rollouts
    if weighting == "step":
        x = earned.by_rollout()[rollouts.rollout] - earned.penalties
        return GROUP_TERMS[name](x, rollouts.group[rollouts.rollout])
    x = earned.by_rollout() - sum_by(rollouts.rollout, earned.penalties, len(rollouts.length))
    return GROUP_TERMS[name](x, rollouts.group)[rollouts.rollout]


def check_weighting(weighting: str) -> None:
    if weighting not in get_args(Weighting):
        raise CreditError(f"weighting must be one of {', '.join(get_args(Weighting))}; got {weighting!r}")


# ---- both terms ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class Terms:
    """w_group A_G and w_step A_S, one value per step (n,) each; None where a method has no such term."""

    group: Floats | None
    step: Floats | None

    @property
    def final(self) -> Floats:
        """The advantage of every step."""
        if self.step is None or self.group is None:
            only = self.group if self.step is None else self.step
            assert only is not None
            return only
        return self.step + self.group


class Estimator:
    """A credit estimator, of a `name`: the term of a step, its own options, and how it is joined to the group's term.

    `step_term` maps a process, what its steps `Earned`, and the estimator's own options to A_S. Its keyword parameters
    declare these options; `options` has them all with their defaults, the joint's too. Without a step term the
    estimator is one of `GROUP_TERMS`, of that name. `CHARGE` is an option of all.

    `w_group` and `w_step` are the default weights, `defaults` those of options in place of the step term's. `rewards`
    are the kinds of reward that the step term is defined for, by default all; others raise `CreditError`. With
    `on_success` it is about success alone: where a run compares the environment's own rewards, only its group term
    does. Called with a process and options, an estimator returns `terms(...).final`, (n,).
    """

    def __init__(
        self,
        name: str,
        step_term: StepTerm | None,
        *,
        w_group: float = 0.0,
        w_step: float = 1.0,
        rewards: Sequence[str] = get_args(Reward),
        on_success: bool = False,
        **defaults: Any,
    ) -> None:
        odd = [kind for kind in rewards if kind not in get_args(Reward)]
        if odd or isinstance(rewards, str):
            kinds = ", ".join(map(repr, get_args(Reward)))
            raise CreditError(f"{name}: rewards is a tuple of some of {kinds}, got {rewards!r}")
        self.name, self.step_term, self.rewards, self.on_success = name, step_term, tuple(rewards), on_success
        self.own, self.takes_any = ({}, False) if step_term is None else _declared(step_term, leading=2)
        self.own |= defaults
        self.weighs: Set[str] = frozenset()  # the weights that a plain function applies by itself
        joined: dict[str, Any] = {}
        if step_term is not None:
            joined = {"w_group": w_group, "w_step": w_step, "group": None, "group_reward": None}
            update_wrapper(self, step_term)
        earned = {**_EARNED, "weighting": "rollout", CHARGE: 0.0, **self.own}
        self.options: Mapping[str, Any] = {**self.own, **joined, **earned, **joined}  # a declared weight is the joint's

    @classmethod
    def of(cls, method: Callable[..., Any]) -> Estimator:
        """`method` itself, or the estimator of a plain function: its values are A_S, and its options are handed to it.

        Where it has an option `reward`, that is what its steps earn. Where it has none, it earns nothing, so that
        `reward` is refused. A weight among its options, `w_step` or `w_group`, is its own affair.
        Raises `CreditError` for what is no function of a process.
        """
        if isinstance(method, Estimator):
            return method
        if isinstance(method, type) or not callable(method):
            raise CreditError(f"a credit method is a name or a function of the process, got {method!r}")
        own, takes_any = _declared(method, leading=1)
        estimator = cls(_name(method), lambda process, earned, **options: method(process, **options))
        estimator.own, estimator.takes_any, estimator.weighs = own, takes_any, {"w_group", "w_step"} & own.keys()
        joint = {name: value for name, value in estimator.options.items() if name != "reward"}
        estimator.options = {**joint, **own}
        return estimator

    def variant(self, name: str, w_group: float, **defaults: Any) -> Estimator:
        """This estimator under another `name`, with another default `w_group`, and other `defaults` of its own options
        or of `w_step`. Raises `CreditError` for others."""
        weights = {"w_group": w_group, "w_step": defaults.pop("w_step", self.options.get("w_step"))}
        own = {option: value for option, value in self.own.items() if option not in weights}
        odd = [] if self.takes_any else [option for option in defaults if option not in own]
        if odd or self.step_term is None:
            raise CreditError(f"{self.name} has no {odd[0] if odd else 'step term'!r} of its own to vary")
        own |= defaults
        made = Estimator(name, self.step_term, rewards=self.rewards, on_success=self.on_success, **weights, **own)
        made.takes_any, made.weighs = self.takes_any, self.weighs
        return made

    def check(self, given: Iterable[str]) -> None:
        """Raise `CreditError` where the names `given` have an option that is not one of these, or lack a needed one."""
        given = list(given)
        for name, default in self.own.items():
            if default is inspect.Parameter.empty and name not in given:
                hint = "give it, or mark a function of (process, earned) with @credit.estimator()"
                raise CreditError(f"{self.name} has no default for its option {name!r}: {hint}")
        for name in () if self.takes_any else given:
            if name not in self.options:
                raise CreditError(f"{self.name} has no option {name!r}{nearest(name, self.options)}")

    def __call__(self, process: EmpiricalProcess, **given: Any) -> Floats:
        """The advantage of every step behind `process`, (n,)."""
        return self.terms(process, **given).final

    def terms(
        self,
        process: EmpiricalProcess,
        timed: Callable[[str], AbstractContextManager[None]] = lambda name: nullcontext(),
        **given: Any,
    ) -> Terms:
        """Both terms of `process` with options `given`; `timed` opens a context, "group_advantage", around the group's.

        Raises `CreditError` for options that are unknown or out of range, and for a step term that is not one finite
        number per step.
        """
        self.check(given)
        options = {**self.options, **given}
        for name, value in given.items():
            known = name in _ONE or isinstance(self.options.get(name), str | float)
            if known and isinstance(value, list | tuple | dict | set | np.ndarray):
                raise CreditError(f"{self.name}: {name} takes one value, got {value!r}")
        earned = self._earned(process, options)
        step = None
        if self.step_term is not None:
            own = {name: value for name, value in options.items() if name in self.own or name not in self.options}
            try:
                values = self._checked(self.step_term(process, earned, **own), len(earned.rollouts.rollout))
            except TypeError as error:
                told = ", ".join(f"{name}={value!r}" for name, value in own.items())
                raise CreditError(f"{self.name} cannot compute with {told or 'no options'}: {error}") from error
            step = values if "w_step" in self.weighs else options["w_step"] * values
        if options[CHARGE] and CHARGE not in self.own:
            charged = -options[CHARGE] * ~earned.rollouts.valid
            step = charged if step is None else step + charged
        if step is not None and ("w_group" in self.weighs or not options.get("w_group", 1.0)):
            return Terms(None, step)
        with timed("group_advantage"):
            return Terms(self._group(earned, options), step)

    def _earned(self, process: EmpiricalProcess, options: Mapping[str, Any]) -> Earned:
        """What steps earn. Raises `CreditError` for options of the joint that are out of range."""
        kinds = {name: options[name] for name in _EARNED if name in options}
        check_finite(**{name: options[name] for name in ("success_reward", "invalid_penalty", CHARGE)})
        check_reward(kinds.get("reward", "outcome"), self.rewards)
        check_weighting(options["weighting"])
        if self.step_term is not None:
            check_weights(w_group=options["w_group"], w_step=options["w_step"])
            if options["group_reward"] is not None:
                check_reward(options["group_reward"])
            if options["group"] is not None and options["group"] not in GROUP_TERMS:
                raise CreditError(f"group must be one of {', '.join(GROUP_TERMS)}; got {options['group']!r}")
        return Earned(process.steps()[0], **kinds)

    def _group(self, earned: Earned, options: Mapping[str, Any]) -> Floats:
        """w_group A_G. A_G is GRPO unless `group` says another, or `mode` that nothing is divided by a deviation."""
        if self.step_term is None:
            return group_term(self.name, earned, options["weighting"])
        name = options["group"] or ("drgrpo" if options.get("mode") == "mean_norm" else "grpo")
        if options["group_reward"] is not None:
            earned = earned.of(options["group_reward"])
        weight: float = options["w_group"]
        return weight * group_term(name, earned, options["weighting"])

    def _checked(self, given: Any, steps: int) -> Floats:
        """What a step term gave. Raises `CreditError` unless that is one finite number per step."""
        try:
            values = np.asarray(given)
        except (RuntimeError, TypeError, ValueError):  # lists of unequal length, a tensor with a gradient
            values = np.asarray(None)
        if values.dtype.kind not in "biuf":
            got = f"what is no array of numbers ({type(given).__name__})"
        elif values.shape != (steps,) or not np.isfinite(values).all():
            shaped = f"an array of shape {values.shape}"
            got = shaped if values.shape != (steps,) else f"{values[~np.isfinite(values)][0]} among its numbers"
        else:
            return values.astype(np.float64, copy=False)
        raise CreditError(f"{self.name} gave {got}; it must give {steps} finite numbers, one per step")


def estimator(
    *misplaced: object,
    w_group: float = 0.0,
    w_step: float = 1.0,
    rewards: Sequence[str] = get_args(Reward),
    on_success: bool = False,
) -> Callable[[StepTerm], Estimator]:
    """Makes a step term the `Estimator` of the function's name; `w_group`, `w_step`, `rewards` and `on_success` are as
    there. Raises `CreditError` without parentheses, where the function comes as `misplaced`."""
    if misplaced:
        name = getattr(misplaced[0], "__name__", misplaced[0])
        raise CreditError(f"write @credit.estimator() with its parentheses above {name}")
    return lambda step_term: Estimator(
        _name(step_term), step_term, w_group=w_group, w_step=w_step, rewards=rewards, on_success=on_success
    )


def _declared(function: Callable[..., Any], leading: int) -> tuple[dict[str, Any], bool]:
    """The options of a function behind its `leading` parameters with their defaults, and whether it takes any other."""
    every = list(inspect.signature(function).parameters.values())
    parameters, places = every[leading:], [p for p in every if p.kind not in (p.KEYWORD_ONLY, p.VAR_KEYWORD)]
    if len(places) < leading and not any(p.kind is p.VAR_POSITIONAL for p in places):
        wanted = "(process, earned, **options)" if leading == 2 else "(process, **options)"
        raise CreditError(f"{_name(function)} takes {inspect.signature(function)}, and is called with {wanted}")
    named = {p.name: p.default for p in parameters if p.kind in (p.KEYWORD_ONLY, p.POSITIONAL_OR_KEYWORD)}
    return named, any(p.kind is p.VAR_KEYWORD for p in parameters)


def _name(method: Callable[..., Any]) -> str:
    return getattr(method, "__name__", repr(method))


def nearest(name: str, known: Iterable[str]) -> str:
    """The end of a message about an unknown `name`: the known one that is meant, or all of them."""
    near = get_close_matches(name.lower(), list(known), n=1)
    return f"; did you mean {near[0]!r}?" if near else f"; known: {', '.join(known)}"
