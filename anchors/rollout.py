"""A rollout group: the G rollouts of one task from one initial condition (paper, eq. 1)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

SUCCESS = "<success>"
"""The absorbing success boundary z+, as a successor in transition counts."""
FAILURE = "<failure>"
"""The absorbing failure boundary z-. A truncated rollout ends here too."""
INVALID = "<invalid>"
"""The action label of all malformed replies. Unique labels would open the credit gate everywhere."""


class GroupError(ValueError):
    """A rollout, a group or its counts are invalid or inconsistent."""


@dataclass(frozen=True, slots=True)
class Step:
    """One environment step: the key of the `anchor` s_t it was taken at and the semantic `action` a_t executed.

    `action` is `INVALID` for any malformed reply. `reward` is the environment's own reward for the step. `label` is a
    readable form of the anchor, for people. Credit never uses it.
    """

    anchor: str
    action: str
    reward: float = 0.0
    label: str = field(default="", compare=False)

    @property
    def valid(self) -> bool:
        """Whether the reply was well formed: the action is not `INVALID`."""
        return self.action != INVALID


@dataclass(frozen=True, slots=True)
class Rollout:
    """tau_i = ((s_t, a_t, x_t) for t = 1..T, R): T `steps` in order, at least one, and the binary outcome R, `success`.

    The successor x_t is the next step's anchor. After the last step it is the success boundary if `success`, else the
    failure boundary. A `truncated` rollout, which ran out of steps, is a failure in this representation.

    `final_anchor` is the anchor of the last observation, after the last step, if known. It is not part of N(s, a, x):
    only shortest-path estimators (GraphGPO) use the final anchor of a failure. `score` is the task score in [0, 1] if
    the benchmark grades its outcomes, as WebShop does; otherwise it is the success. Raises `GroupError` for an outcome
    that is not binary, a truncated success, no steps, an empty anchor or action, and an anchor that is a boundary.
    """

    steps: tuple[Step, ...]
    success: bool
    truncated: bool = False
    final_anchor: str | None = None
    score: float = 0.0

    def __init__(
        self,
        steps: Iterable[Step],
        success: bool,
        truncated: bool = False,
        final_anchor: str | None = None,
        score: float | None = None,
    ) -> None:
        object.__setattr__(self, "steps", tuple(steps))
        object.__setattr__(self, "success", success)
        object.__setattr__(self, "truncated", truncated)
        object.__setattr__(self, "final_anchor", final_anchor)
        self._check()
        object.__setattr__(self, "score", float(self.success if score is None else score))

    def _check(self) -> None:
        if self.success not in (0, 1):  # numpy booleans pass, a score of 0.5 does not
            raise GroupError(f"rollout: the outcome must be binary, got success={self.success!r}")
        if self.truncated not in (0, 1):
            raise GroupError(f"rollout: truncated must be binary, got {self.truncated!r}")
        object.__setattr__(self, "success", bool(self.success))
        object.__setattr__(self, "truncated", bool(self.truncated))
        if self.success and self.truncated:
            raise GroupError("rollout: it cannot both succeed and be truncated; success takes precedence")
        if not self.steps:
            raise GroupError("rollout: it has no steps; a rollout holds at least one")
        for t, step in enumerate(self.steps):
            if not isinstance(step.anchor, str) or not step.anchor:
                raise GroupError(f"rollout: step {t}: an anchor is a text that is not empty, got {step.anchor!r}")
            if step.anchor in (SUCCESS, FAILURE):
                raise GroupError(f"rollout: step {t} uses the boundary name {step.anchor!r} as its anchor")
            if not isinstance(step.action, str) or not step.action:
                raise GroupError(
                    f"rollout: step {t}: an action is a text that is not empty, got {step.action!r} "
                    f"(a malformed reply is {INVALID!r})"
                )
        final = self.final_anchor
        if final is not None and (not isinstance(final, str) or not final or final in (SUCCESS, FAILURE)):
            raise GroupError(f"rollout: the final anchor is an anchor's key or None, got {final!r}")

    def __len__(self) -> int:
        return len(self.steps)

    @property
    def reward(self) -> float:
        """The sum of the environment's own rewards."""
        return sum(step.reward for step in self.steps)

    @property
    def invalid(self) -> int:
        """The number of malformed replies."""
        return sum(not step.valid for step in self.steps)


@dataclass(frozen=True, slots=True)
class RolloutGroup:
    """D_g: complete `rollouts` of one `task`, an id for people, that all start at the same anchor (eq. 1).

    Anchors match within the group only. Raises `GroupError` for an empty group, and for rollouts that start at
    different anchors.
    """

    rollouts: tuple[Rollout, ...]
    task: str = ""

    def __init__(self, rollouts: Iterable[Rollout], task: str = "") -> None:
        object.__setattr__(self, "rollouts", tuple(rollouts))
        object.__setattr__(self, "task", task)
        if not self.rollouts:
            raise GroupError("group: it has no rollouts")
        start = self.rollouts[0].steps[0].anchor
        for i, rollout in enumerate(self.rollouts):
            first = rollout.steps[0].anchor
            if first != start:
                raise GroupError(
                    f"group {task!r}: rollout {i} starts at anchor {first}, rollout 0 at {start}; "
                    "the members of a group share one task and one initial condition"
                )

    def __len__(self) -> int:
        return len(self.rollouts)

    @property
    def success_rate(self) -> float:
        """The fraction of the rollouts that succeeded."""
        return sum(rollout.success for rollout in self.rollouts) / len(self.rollouts)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON. `from_dict` reads it back."""
        return {
            "task": self.task,
            "rollouts": [
                {
                    "success": rollout.success,
                    "truncated": rollout.truncated,
                    "final_anchor": rollout.final_anchor,
                    "score": rollout.score,
                    "steps": [[s.anchor, s.action, s.reward, s.label] for s in rollout.steps],
                }
                for rollout in self.rollouts
            ],
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> RolloutGroup:
        """The group of which `to_dict` made `data`. Raises `KeyError` for a missing key, and `GroupError` as here."""
        return cls(
            (
                Rollout(
                    [Step(*step) for step in rollout["steps"]],
                    rollout["success"],
                    rollout["truncated"],
                    rollout.get("final_anchor"),  # older files do not have it
                    rollout.get("score"),  # older files do not have it
                )
                for rollout in data["rollouts"]
            ),
            data["task"],
        )
