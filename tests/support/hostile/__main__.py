"""Runs the corpus and prints a table of what was a fault."""

from __future__ import annotations

import argparse
from pathlib import Path

from paths import ROOT

from hostile.corpus import CASES
from hostile.lab import Lab, scratch


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m hostile", description=__doc__)
    parser.add_argument("names", nargs="*", help="cases, or the beginnings of their names; all by default")
    parser.add_argument("--tree", type=Path, default=ROOT, help="the clone whose package is attacked")
    options = parser.parse_args()
    chosen = [case for name, case in CASES.items() if not options.names or name.startswith(tuple(options.names))]
    faults, most, slowest = 0, 0.0, 0.0
    with Lab(options.tree.resolve()) as lab:
        for case in chosen:
            with scratch() as folder:
                try:
                    outcome = lab.judge(case, Path(folder))
                    line = f"{outcome.seconds:5.2f} s {outcome.megabytes:4.0f} MB  {outcome.err.strip()[:150]}"
                    most, slowest = max(most, outcome.megabytes), max(slowest, outcome.seconds)
                except AssertionError as error:
                    faults += 1
                    line = f"FAULT  {' '.join(str(error).split())[:400]}"
            print(f"{case.name:44} {line}", flush=True)
    print(f"{len(chosen)} cases, {faults} faults; of the others at most {slowest:.1f} s and {most:.0f} MB")


if __name__ == "__main__":
    main()
