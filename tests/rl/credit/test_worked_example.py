"""The tables of docs/credit/example.md, every number recomputed with the library."""

from __future__ import annotations

import ast
from fractions import Fraction

import numpy as np
import pytest
from paths import ROOT
from strategies import group

from anchors import EmpiricalProcess
from crbc_rl import credit

PAGE = ROOT / "docs" / "credit" / "example.md"
EXAMPLE = group("s:left m:jump +", "s:left m:jump n:walk -", "s:right n:walk +")

Row = tuple[str, list[str]]


def tables() -> dict[str, list[Row]]:
    """The page's tables by their first heading: the first cell of each row, and the others."""
    found: dict[str, list[Row]] = {}
    rows: list[Row] = []
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")] if line.startswith("|") else []
        if not cells:
            rows = []
        elif set(cells[0]) <= {"-"}:
            continue
        elif not rows:
            rows = found.setdefault(cells[0], [(cells[0], cells[1:])])
        else:
            rows.append((cells[0].strip("`"), cells[1:]))
    return {heading: rows[1:] for heading, rows in found.items()}


def number(cell: str) -> tuple[float, float]:
    """The value a cell states and how far off it may be: a fraction is exact, a decimal is rounded."""
    if "." in cell:
        return float(cell), 0.5 * 10.0 ** -len(cell.split(".")[1]) + 1e-5  # 1e-5: the 1e-6 beside each std
    return float(Fraction(cell)), 1e-12


def agree(computed: list[float], cells: list[str]) -> None:
    assert len(computed) == len(cells)
    for got, cell in zip(computed, cells, strict=True):
        stated, tolerance = number(cell)
        assert got == pytest.approx(stated, abs=tolerance), (computed, cells)


@pytest.mark.parametrize(("depth", "cells"), tables()["depth"], ids=lambda part: part if isinstance(part, str) else "")
def test_values_and_credit_at_each_depth(depth: str, cells: list[str]) -> None:
    process = EmpiricalProcess.from_group(EXAMPLE)
    result = credit.closure(process, beta=1.0, depth=ast.literal_eval(depth))
    pair = {(process.anchors[s], action): i for i, (s, action) in enumerate(process.pairs)}
    left, right = pair["s", "left"], pair["s", "right"]
    s, m, n = (process.anchors.index(name) for name in "smn")
    V = result.V
    agree([result.Q[left], result.Q[right], V[s], V[m], V[n], result.A[left], result.A[right]], cells)


@pytest.mark.parametrize(("call", "cells"), tables()["call"], ids=lambda part: part if isinstance(part, str) else "")
def test_every_method_step_by_step(call: str, cells: list[str]) -> None:
    parsed = ast.parse(call, mode="eval").body
    assert isinstance(parsed, ast.Call) and isinstance(parsed.func, ast.Name)
    options = {str(keyword.arg): ast.literal_eval(keyword.value) for keyword in parsed.keywords}
    agree(np.concatenate(credit.advantages(EXAMPLE, parsed.func.id, **options)).tolist(), cells)


def test_every_method_has_a_row() -> None:
    assert {call.split("(")[0] for call, _ in tables()["call"]} == {*credit.METHODS, "scores"}


def test_the_critic_pages_rows() -> None:
    process = EmpiricalProcess.from_group(EXAMPLE)
    V = dict(zip(process.anchors, credit.closure(process, beta=1.0).V, strict=True))
    value = [V[step.anchor] for rollout in EXAMPLE.rollouts for step in rollout.steps]
    rewards = credit.row_rewards(process, success_reward=1.0)
    # every environment step is a sequence of its own, here of one token
    advantage, _ = credit.gae(rewards, value, np.ones(len(value), dtype=np.int64))
    np.testing.assert_allclose(advantage, [1 / 3, 1 / 4, -2 / 3, -3 / 4, -1 / 2, 1 / 3, 1 / 2], atol=1e-12)
