"""Anchors, rollout groups and the empirical process (paper, sections 3 and 4.1). Needs numpy only.

Data flows one way: `Step` -> `Rollout` -> `RolloutGroup` -> `InternedRollouts` -> `EmpiricalProcess`.
"""

from anchors.columns import sum_by
from anchors.interned import InternedRollouts
from anchors.key import ANCHOR_VERSION, anchor_key
from anchors.process import EmpiricalProcess, Sparse, TransitionCounts
from anchors.rollout import FAILURE, INVALID, SUCCESS, GroupError, Rollout, RolloutGroup, Step

__all__ = [
    "ANCHOR_VERSION",
    "FAILURE",
    "INVALID",
    "SUCCESS",
    "EmpiricalProcess",
    "GroupError",
    "InternedRollouts",
    "Rollout",
    "RolloutGroup",
    "Sparse",
    "Step",
    "TransitionCounts",
    "anchor_key",
    "sum_by",
]
