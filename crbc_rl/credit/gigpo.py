"""GiGPO: each visit's discounted return compared with those of the same anchor (arXiv 2505.10978)."""

from __future__ import annotations

from anchors import EmpiricalProcess
from crbc_rl.credit.estimator import estimator
from crbc_rl.credit.groups import Floats, Mode, check_discount, check_mode, normalise
from crbc_rl.credit.rewards import Earned


@estimator(w_group=1.0)
def gigpo(process: EmpiricalProcess, earned: Earned, *, gamma: float = 0.95, mode: Mode = "mean_std_norm") -> Floats:
    """A_S normalises `Earned.returns` over all the visits to the step's anchor.

    It is eq. 4 of the paper with the public trainer's rewards. A_E, the group's term, is GRPO, or Dr. GRPO with
    "mean_norm", which drops the standard deviation (the sample one) from both. Settings of the paper: gamma 0.95,
    weights 1 and 1, "mean_norm" on Sokoban; the public scripts use it on WebShop too.

    Anchors are matched exactly; upstream's similarity matching depends on the order of the rows. An anchor visited
    once, and one whose returns are all equal, get zeros. Note for "mean_std_norm": in a group of failures with one
    malformed reply, the -0.1 among n - 1 zeros becomes about -sqrt(n).
    """
    check_discount("gamma", gamma)
    check_mode(mode)
    return normalise(earned.returns(gamma), earned.rollouts.anchor, process.num_anchors, mode)
