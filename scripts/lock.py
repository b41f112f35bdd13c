"""Writes requirements/: the version of every package that the set-up installs but torch, and the digests of its files.

    python3 scripts/lock.py                             # after a change of pyproject.toml: keeps the versions that fit
    python3 scripts/lock.py --upgrade-package pillow    # takes its newest version; any option of `uv pip compile`
    python3 scripts/lock.py --upgrade                   # takes the newest of all

It needs uv (`pip install uv`) and the package index. The versions are for Python 3.11 to 3.13, on every system.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable, Sequence
from pathlib import Path

from setup import LOCKS, ROOT, TORCH

BUILDERS = ("pip", "setuptools")  # what builds the packages that have no wheel; pyproject.toml names what builds crbc
LEFT_OUT = re.compile(r"torch|triton|nvidia-.*|cuda-.*")
HEAD = """\
# {what}
# Written by scripts/lock.py. Installed with --require-hashes: another file of a package is refused.
# Not in it: torch, triton and CUDA's packages. Their builds differ between machines and indexes, so they have no one
# digest; scripts/setup.py chooses them by their version.
"""
WHAT = {
    "build": "What installs and builds packages; it is installed before the rest.",
    "train": "What `crbc train` needs, beside build.txt.",
    "dev": "What the tests need, beside build.txt and train.txt.",
}

FILES = {name: ROOT / "requirements" / f"{name}.txt" for name in LOCKS["dev"]}

Blocks = dict[str, str]
"""Of each package, all its lines: one version, or one for each range of Pythons."""


def compile_blocks(uv: Sequence[str], names: Sequence[str], extras: Sequence[str], pins: Path) -> Blocks:
    """The packages that `names` and extras of this project need. The versions in the file `pins` are preferred."""
    with tempfile.TemporaryDirectory() as folder:
        torch = Path(folder, "torch.txt")
        torch.write_text(f"torch=={TORCH}\n")
        found = Path(folder, "found.txt")
        found.write_text(pins.read_text())
        quiet = ("--quiet", "--no-header", "--no-annotate", "--no-emit-index-url", "--no-emit-find-links")
        command = ["uv", "pip", "compile", "--universal", "--python-version", "3.11", "--generate-hashes", *quiet]
        command += ["--constraint", str(torch), "--output-file", str(found), *uv, "-"]
        command += [word for extra in extras for word in ("--extra", extra)] + (["pyproject.toml"] if extras else [])
        subprocess.run(command, cwd=ROOT, input="\n".join(names), text=True, check=True)
        return blocks(found.read_text())


def blocks(text: str) -> Blocks:
    """The entries of a file of requirements, by their packages' names."""
    found: Blocks = {}
    for entry in re.findall(r"^[\w.-]+==.*\n(?:    .*\n)*", text, re.MULTILINE):
        name = re.split("==", entry)[0]
        if not LEFT_OUT.fullmatch(name):
            found[name] = found.get(name, "") + entry
    return found


def write(name: str, entries: Iterable[str]) -> None:
    text = HEAD.format(what=WHAT[name]) + "".join(entries)
    FILES[name].write_text(text)
    print(f"{FILES[name].relative_to(ROOT)}: {len(blocks(text))} packages")


def main(uv: Sequence[str]) -> int:
    """Writes the three files; `uv` are further options of `uv pip compile`."""
    builders = [*BUILDERS, *tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]]
    with tempfile.TemporaryDirectory() as folder:
        pins = Path(folder, "pins.txt")
        pins.write_text("".join(path.read_text() for path in FILES.values() if path.is_file()))
        everything = compile_blocks(uv, builders, ["dev"], pins)
        # One resolution decides every version; the others say which of them a smaller set-up needs.
        pins.write_text("".join(everything.values()))
        build = compile_blocks((), builders, [], pins)
        train = compile_blocks((), builders, ["train"], pins)
    write("build", (everything[name] for name in build))
    write("train", (everything[name] for name in train if name not in build))
    write("dev", (entry for name, entry in everything.items() if name not in train))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
