"""Builds a release, tests it in empty environments, and prepares the tree for it. It uploads nothing.

    python scripts/release.py 0.2.0            # dry: the archives go to dist/, and the changes of files are shown
    python scripts/release.py 0.2.0 --write    # the same, and the changes are written

The archives are made from the last commit with the changes, so what is not committed is not in them. The tests are the
part `packaging` of scripts/full.sh: each archive is installed from the index into an environment of its own, plays,
trains and reports. That takes seven minutes.
"""

from __future__ import annotations

import argparse
import difflib
import io
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from datetime import UTC, datetime
from pathlib import Path

from packaging.version import InvalidVersion, Version

ROOT = Path(__file__).resolve().parents[1]
PLACES = {
    "crbc_rl/version.py": r'(?<=__version__ = ")[^"]+',
    "CITATION.cff": r"(?<=\nversion: ).+",
    "docs/install.md": r"(?<=dist/crbc-)[^-]+(?=-py3)",
    "CHANGELOG.md": r"## Unreleased(?=\n)",
}
"""By file, the one place that names the version."""


def changed(name: str, text: str, version: str, day: str) -> str:
    """The text of a file for a release. Raises `SystemExit` unless the version stands in exactly one place."""
    new = f"## Unreleased\n\n## {version} ({day})" if name == "CHANGELOG.md" else version
    text, count = re.subn(PLACES[name], new, text)
    if count != 1:
        raise SystemExit(f"{name} names the version in {count} places; it needs one")
    return text


def plan(version: str, root: Path = ROOT) -> dict[str, str]:
    """By file, its text for a release. Raises `SystemExit` for a version that is none, or not above today's."""
    (today,) = re.findall(PLACES["crbc_rl/version.py"], (root / "crbc_rl/version.py").read_text(encoding="utf-8"))
    try:
        later = Version(version) > Version(today) and str(Version(version)) == version
    except InvalidVersion:
        later = False
    if not later:
        raise SystemExit(f"a release needs a version such as 0.2.0 above {today}, got {version!r}")
    day = datetime.now(UTC).date().isoformat()
    return {name: changed(name, (root / name).read_text(encoding="utf-8"), version, day) for name in PLACES}


def build(files: dict[str, str], tree: Path) -> None:
    """Export the last commit into `tree`, with `files` as they will be, and make wheel and source archive there."""
    archive = subprocess.run(["git", "archive", "HEAD"], cwd=ROOT, check=True, capture_output=True).stdout
    with tarfile.open(fileobj=io.BytesIO(archive)) as committed:
        committed.extractall(tree, filter="data")
    for name, text in files.items():
        (tree / name).write_text(text, encoding="utf-8")
    subprocess.run([sys.executable, "-m", "hatchling", "build"], cwd=tree, check=True)


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Build, test and prepare a release. Nothing is uploaded.")
    parser.add_argument("version")
    parser.add_argument("--write", action="store_true", help="write the changes into this tree")
    options = parser.parse_args(argv)
    files = plan(options.version)
    for name, text in files.items():
        before = (ROOT / name).read_text(encoding="utf-8").splitlines()
        print("\n".join(difflib.unified_diff(before, text.splitlines(), name, name, n=0, lineterm="")))
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder)
        build(files, tree)
        tests = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/test_distribution.py"]
        subprocess.run(tests, cwd=tree, env={**os.environ, "CRBC_TEST_FULL": "1"}, check=True)
        (ROOT / "dist").mkdir(exist_ok=True)
        for made in (tree / "dist").iterdir():
            shutil.copy(made, ROOT / "dist")
            print(f"tested: dist/{made.name}")
    if options.write:
        for name, text in files.items():
            (ROOT / name).write_text(text, encoding="utf-8")
        print(f"written; next: git commit -am 'Release {options.version}' && git tag v{options.version}")
    else:
        print("dry: no file of the tree was changed; --write changes them")
    print("nothing was uploaded")


if __name__ == "__main__":
    main()
