"""A power of a discount is the same on every machine: NumPy's own is not, and credit took it from there once."""

from __future__ import annotations

import ast
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

import anchors
from crbc_rl import credit
from crbc_rl.credit.rewards import powers

SOURCES = [file for package in (anchors, credit) for file in sorted(Path(package.__path__[0]).glob("*.py"))]
DEPTHS = 150
ELSEWHERE = {
    "powers": "powers of Python's floats",
    "hgpo": "a power of Python's floats",
    "_certified": "logarithms for a whole number, which is compared with what it is to be",
}


@pytest.mark.parametrize("base", [0.1, 0.2, 0.5, 0.8, 0.9, 0.95, 0.98, 0.99, 1.0])
def test_a_power_is_the_exact_one_rounded(base):
    exact = [float(Fraction(base) ** k) for k in range(DEPTHS)]
    assert powers(base, np.arange(DEPTHS)).tolist() == exact
    assert [float(powers(base, k)) for k in range(DEPTHS)] == exact


def test_each_step_has_its_own_base():
    base, exponent = np.array([0.95, 0.5, 0.95, 1.0]), np.array([3, 0, 1, 2])
    assert powers(base, exponent).tolist() == [0.95**3, 1.0, 0.95, 1.0]
    assert powers(base, 1).tolist() == base.tolist()
    assert powers(0.5, np.zeros(0, dtype=np.int64)).shape == (0,)


@pytest.mark.parametrize("file", SOURCES, ids=lambda file: f"{file.parent.name}/{file.name}")
def test_no_estimator_takes_a_power_of_numpy_s(file):
    for function in ast.walk(ast.parse(file.read_text())):
        if isinstance(function, ast.FunctionDef) and function.name not in ELSEWHERE:
            assert not [ast.unparse(node) for node in ast.walk(function) if _numpy_s(node)], f"{file}: {function.name}"


def _numpy_s(node: ast.AST) -> bool:
    """Whether a node is a power that is not a square, or one of the functions NumPy has another of for AVX-512."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow):
        return not (isinstance(node.right, ast.Constant) and node.right.value == 2)
    return isinstance(node, ast.Attribute) and node.attr in {"power", "float_power", "exp", "expm1", "log", "log1p"}
