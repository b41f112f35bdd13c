"""The estimators and options that the credit accuracy study compares.

Each is an `Estimator`: a name, a method of `credit.METHODS` or a function of one's own, and options. To judge one more,
add it to `options_of_crbc`, or pass it to `credit_accuracy.judge` beside these.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from anchors import EmpiricalProcess
from anchors.columns import Floats
from crbc_rl import credit
from crbc_rl.credit.api import Method

CRBC = "crbc"
PLUS = "crbc_plus"
ORACLE = "truth"
"""The true credit itself, the last row of every table."""

LIMIT = "limit"
"""In options: the number of steps after which the judged world cuts an episode."""

PAPER: dict[str, dict[str, Any]] = {"graphgpo": {"omega": 0.8}}
"""The paper's settings on Sokoban, where they differ from a method's defaults; used in all worlds."""

STEP = {"w_group": 0.0, "w_step": 1.0}
"""The step term alone, of every method that has one."""

UNBIASED = {"horizon": LIMIT, "beta": 1.0, "normalise": None, "w_group": 0.0}
"""The options of `crbc_plus` whose expected gradient has the true direction, if anchors are states."""


@dataclass(frozen=True, slots=True)
class Estimator:
    """`method` with `options`, under a `name`. `method` maps a process to one value per step."""

    name: str
    method: str | Method
    options: Mapping[str, Any] = field(default_factory=dict)

    def values(self, process: EmpiricalProcess, limit: int) -> Floats:
        """The advantage of every step (n,), in a world that cuts episodes after `limit` steps. Raises `CreditError`
        unless these are finite numbers, one per step."""
        options = {
            name: limit if isinstance(value, str) and value == LIMIT else value for name, value in self.options.items()
        }
        return credit.estimator_of(self.method)(process, **options)


def standard(depths: Sequence[int] = (0, 1, 2, 3)) -> list[Estimator]:
    """Every method of `credit.METHODS` with its variants, then CRBC at finite depths and with each of its options,
    and `crbc_plus` without bias."""
    estimators = [Estimator(name, method, options) for method in credit.METHODS for name, options in variants(method)]
    for name, options in options_of_crbc(depths):
        estimators.append(Estimator(f"{CRBC} {name}", CRBC, options))
    estimators.append(Estimator(f"{PLUS} unbiased", PLUS, UNBIASED))
    return estimators


def variants(method: str) -> list[tuple[str, dict[str, Any]]]:
    """The forms of a method: as it is trained on, without the division by the standard deviation ("mean"), and of both
    the step term alone ("step")."""
    known = credit.METHODS[method].options
    modes = [("", dict(PAPER.get(method, {})))]
    if "mode" in known:
        modes.append((" mean", {**modes[0][1], "mode": "mean_norm"}))
    forms = []
    for mode, options in modes:
        forms.append((method + mode, options))
        if "w_step" in known and known["w_group"] != 0.0:
            forms.append((f"{method}{mode} step", {**options, **STEP}))
    return forms


def options_of_crbc(depths: Sequence[int]) -> list[tuple[str, dict[str, Any]]]:
    """One axis after the other: depth, beta, truncation, horizon, scale and its floor, weight of the group term."""
    successor = {"truncation": "successor"}
    forms: list[tuple[str, dict[str, Any]]] = [(f"K={depth}", {"depth": depth}) for depth in depths]
    forms += [(f"K={depth} step", {"depth": depth, **STEP}) for depth in depths]
    forms += [(f"beta={beta}", {"beta": beta}) for beta in (0.9, 0.95, 0.99, 1.0, "auto")]
    forms += [("successor", successor)]
    forms += [(f"successor beta={beta}", {"beta": beta, **successor}) for beta in (0.9, 0.95, "auto")]
    forms += [(f"horizon beta={beta}", {"beta": beta, "horizon": LIMIT, **successor}) for beta in (0.95, 0.98, 1.0)]
    for scale in ("group", None):
        name = scale or "raw"
        forms += [(f"scale={name}", {"normalise": scale}), (f"scale={name} step", {"normalise": scale, **STEP})]
    forms += [(f"sigma_min={floor}", {"sigma_min": floor}) for floor in (0.2, 0.3)]
    forms += [(f"w_group={weight}", {"w_group": weight}) for weight in (0.05, 0.2)]
    return forms
