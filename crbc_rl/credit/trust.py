"""CRBC that knows when not to: where anchors hide state, a visit's own return takes the closure's place."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from anchors import EmpiricalProcess
from crbc_rl.credit.crbc import BETA, discounts
from crbc_rl.credit.errors import CreditError
from crbc_rl.credit.estimator import Estimator
from crbc_rl.credit.groups import Floats, normalise
from crbc_rl.credit.metrics import NO_SLOPE, Slope, run_calibration
from crbc_rl.credit.rewards import Earned, suffix_returns

Trust = Slope | Literal["slope"] | None
"""None: the closure always, as in the paper. "slope": while the slopes of these groups allow it. A `Slope`: that of
the updates before, which is pooled with that of these groups."""
MEMORY = 0.95
"""What the slope of an update weighs beside that of the next."""


def pooled(before: Slope, process: EmpiricalProcess, options: Mapping[str, Any]) -> Slope:
    """The slope of the updates `before` and of these groups, under CRBC's `options`: `trust` for the next update."""
    return before.then(run_calibration(process, "crbc", options), MEMORY)


def trusting(closed: Estimator) -> Estimator:
    """The estimator `closed`, whose step term is a closure's, with the further option `trust`.

    Where the slopes fail (`Slope.fails`), the step term is each visit's own discounted return, normalised among those
    of its anchor as GiGPO does, with `closed`'s beta and GiGPO's weight: 1, or `w_step` where that is less.
    docs/credit/hidden_state.md has the derivation.
    """
    closure_term = closed.step_term
    assert closure_term is not None

    def step_term(
        process: EmpiricalProcess, earned: Earned, *, trust: Trust = None, w_step: float = 1.0, **options: Any
    ) -> Floats:
        if trust is not None:
            if trust != "slope" and not isinstance(trust, Slope):
                raise CreditError(f'trust must be None, "slope" or a Slope of the updates before; got {trust!r}')
            before = NO_SLOPE if trust == "slope" else trust
            if pooled(before, process, {**options, "reward": earned.reward}).fails:
                returns = own_returns(process, earned, options["beta"], options["invalid_cost"])
                return returns / max(w_step, 1.0)  # which the joint multiplies by w_step
        return closure_term(process, earned, **options)

    weights = {name: closed.options[name] for name in ("w_group", "w_step")}
    own = {**weights, **closed.own, "trust": None}
    made = Estimator(closed.name, step_term, rewards=closed.rewards, on_success=closed.on_success, **own)
    made.takes_any = False  # `options` are those of `closed`
    return made


def own_returns(
    process: EmpiricalProcess, earned: Earned, beta: float | Literal["auto"] = BETA, invalid_cost: float = 0.0
) -> Floats:
    """Each visit's discounted return less the mean at its anchor, by its standard deviation there, (n,)."""
    rollouts = process.steps()[0]
    returns = suffix_returns(rollouts, discounts(process, beta), earned.reward, invalid_cost=invalid_cost)
    return normalise(returns, rollouts.anchor, process.num_anchors, "mean_std_norm")
