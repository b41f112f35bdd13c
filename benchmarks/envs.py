"""The cost of the environments, beside those of others: `python -m benchmarks.envs --env sokoban`.

Each environment has a module of its own here, which takes the other arguments: add --help to see them.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from importlib import import_module

ENVS = {"alfworld": "benchmarks.alfworld", "sokoban": "benchmarks.sokoban"}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.envs", description=__doc__, add_help=False)
    parser.add_argument("--env", choices=sorted(ENVS), required=True)
    given, others = parser.parse_known_args(arguments)
    import_module(ENVS[given.env]).main(others)


if __name__ == "__main__":
    main()
