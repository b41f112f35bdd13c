"""Metrics of an update's credit: coverage of its anchors, and sizes of its terms."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from anchors import EmpiricalProcess
from anchors.coverage import coverages, eligible
from crbc_rl.credit.closure import BETA
from crbc_rl.credit.diagnose import certified_shares
from crbc_rl.credit.estimator import Terms

DEPTHS = {"0": 0, "1": 1, "3": 3, "full": None}
"""Depths by their names in a metric."""


def credit_figures(
    process: EmpiricalProcess, found: Terms | None = None, method: str = "", options: Mapping[str, Any] | None = None
) -> dict[str, float]:
    """The metrics of `process`, and of the terms that `method` found with `options`.

    A figure that an update or a method does not have is left out.
    """
    rollouts = process.steps()[0]
    gate = eligible(process)
    coverage = coverages(process, tuple(DEPTHS.values()))[:, rollouts.anchor]  # (D, n)
    figures = {
        "gate_open": float(gate.mean()),
        "anchors_per_group": process.num_anchors / rollouts.num_groups,
        "revisit_share": float((coverage[0] > 1).mean()),
    }
    if gate.any():
        share = (coverage / np.bincount(rollouts.group)[rollouts.group[rollouts.rollout]])[:, gate]
        for name, of_depth in zip(DEPTHS, share, strict=True):
            figures[f"coverage/{name}"] = float(of_depth.mean())
            figures[f"full_access/{name}"] = float((of_depth == 1.0).mean())
    if found is not None and found.step is not None and found.group is not None:
        figures["step_term"] = float(np.abs(found.step).mean())
        figures["group_term"] = float(np.abs(found.group).mean())
        figures["turned"] = float((np.sign(found.final) * np.sign(found.group) < 0).mean())
    if method in ("crbc", "crbc_plus"):
        certified = certified_shares(process, (options or {}).get("beta", BETA))
        figures |= {f"certified/{depth}": share for depth, share in certified.items()}
    return figures
