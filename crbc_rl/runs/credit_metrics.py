"""The metrics of credit: see crbc_rl/credit/metrics.py."""

from __future__ import annotations

from crbc_rl.runs.metric import Metric

_COVERAGE = (
    "share of a group's rollouts whose evidence reaches a visit {}, mean over the visits at anchors "
    'with two or more actions (paper, appendix "Closure Depth and Evidence Coverage")'
)
_FULL_ACCESS = "share of those visits that the evidence of every rollout of the group reaches {}"
_CERTIFIED = (
    "share of the anchors with sigma > 0 at which the closure {} is certain to point where the full one "
    "does (Corollary 3 of the paper; at depth 0 with the residual of pairs added)"
)

CREDIT = (
    Metric(
        "gate_open",
        "credit",
        "Gate-open share",
        "share",
        "share of steps at anchors with two or more observed actions, the only ones with a step credit",
        "near 0: anchors are hardly ever met twice, or the policy always does the same",
    ),
    Metric("coverage/0", "credit", "Coverage at depth 0", "share", _COVERAGE.format("at depth 0")),
    Metric("coverage/1", "credit", "Coverage at depth 1", "share", _COVERAGE.format("at depth 1")),
    Metric("coverage/3", "credit", "Coverage at depth 3", "share", _COVERAGE.format("at depth 3")),
    Metric(
        "coverage/full",
        "credit",
        "Coverage, full closure",
        "share",
        _COVERAGE.format("under the full closure"),
        "no higher than at depth 0: nothing is propagated",
    ),
    Metric("full_access/0", "credit", "Full access at depth 0", "share", _FULL_ACCESS.format("at depth 0")),
    Metric("full_access/1", "credit", "Full access at depth 1", "share", _FULL_ACCESS.format("at depth 1")),
    Metric("full_access/3", "credit", "Full access at depth 3", "share", _FULL_ACCESS.format("at depth 3")),
    Metric(
        "full_access/full",
        "credit",
        "Full access, full closure",
        "share",
        _FULL_ACCESS.format("under the full closure"),
    ),
    Metric("anchors_per_group", "credit", "Anchors per group", "anchors", "distinct anchors of a group, mean"),
    Metric(
        "revisit_share",
        "credit",
        "Revisit share",
        "share",
        "share of steps at an anchor that another rollout of the group visits too",
        "near 0: rollouts share nothing, and step credit is that of single rollouts",
    ),
    Metric("step_term", "credit", "Size of the step term", "", "|w_step A_S| of a step, mean over steps"),
    Metric(
        "group_term",
        "credit",
        "Size of the group term",
        "",
        "|w_group A_G| of a step, mean over steps",
        "many times the step term, or a small part of it: one of the two decides alone",
    ),
    Metric(
        "turned",
        "credit",
        "Turned steps",
        "share",
        "share of steps whose final advantage has the other sign than their group advantage",
        "0: the step term changes nothing but sizes",
    ),
    Metric("certified/0", "credit", "Certified at depth 0", "share", _CERTIFIED.format("at depth 0")),
    Metric("certified/1", "credit", "Certified at depth 1", "share", _CERTIFIED.format("at depth 1")),
    Metric("certified/3", "credit", "Certified at depth 3", "share", _CERTIFIED.format("at depth 3")),
)
"""Metrics of credit: those of anchors for every method, of two terms where a method has two, of certified depths for
CRBC. An update without a visit or an anchor that a share is of has no such figure."""
