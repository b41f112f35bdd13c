"""Measures the environments and compares them with others: `python -m benchmarks.envs --env sokoban`.

Each environment has its own module here. It takes the other arguments: add --help to see them.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from importlib import import_module

ENVS = {"alfworld": "benchmarks.alfworld", "sokoban": "benchmarks.sokoban", "webshop": "benchmarks.webshop"}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.envs", description=__doc__, add_help=False)
    parser.add_argument("--env", choices=sorted(ENVS), required=True)
    parser.add_argument("--recovery", action="store_true", help="measure how fast a lost worker is replaced")
    given, others = parser.parse_known_args(arguments)
    if given.recovery:
        import_module("benchmarks.recovery").main(["--env", given.env, "--recovery", *others])
    else:
        import_module(ENVS[given.env]).main(others)


if __name__ == "__main__":
    main()
