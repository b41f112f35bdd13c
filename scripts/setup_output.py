"""What the output of pip, uv and apt-get means: what they are doing, and why they failed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

COMPILED = "building {name} (it may be compiled, for minutes)"
SIGNS = (  # what pip, uv and apt-get print, and what they are doing then
    (r"Downloading (?P<file>\S+?)(?<!\.metadata) \((?P<size>[^)]+)\)", "downloading {name} ({size})"),
    (r"(?:Collecting|Downloading) (?P<name>[\w.-]+)", "looking up {name}"),
    (r"Installing build dep|Getting requirements to build|Preparing metadata", COMPILED),
    (r"Building (?:wheel for |editable for )?(?!wheels for|dependency)(?P<name>[\w.-]+)", COMPILED),
    (r"Installing collected packages: (?P<list>.*)", "installing {count} packages, {installed} done"),
    (r"Prepared (?P<count>\d+) packages?", "installing {count} packages, {installed} done"),
    (r"Installed \d+ packages?", "compiling to bytecode"),
    (r"(?:Unpacking|Setting up) (?P<name>[\w.+-]+)", "installing {name}"),
    (r"WARNING: Retrying", "the package index does not answer; trying again"),
)
HINTS = (  # a failed step's log, and how to mend it
    (
        r"(?:DO NOT MATCH THE HASHES[^\n]*\n\s*|Hash mismatch for `)(?P<package>[^\s`]+)",
        "the file of {package} that came is not the one that requirements/ names: it was changed, or the index has a "
        "build of its own; nothing of this step was installed",
    ),
    (
        r"No space left|Disk quota",
        "the disk is full: free some space",
    ),
    (
        r"Temporary failure|Failed to establish|Max retries|error sending request|dns error|timed out|ProxyError",
        "the package index does not answer: check the network, its proxy and pip's configuration",
    ),
    (
        r"No matching distribution|No solution found",
        "the index has nothing that fits this Python and the versions asked for (CRBC_UNLOCKED=1 asks for the ranges "
        "of pyproject.toml instead)",
    ),
    (r"Python\.h", "the headers of Python are missing (Debian: apt-get install python3-dev)"),
)


def activity(lines: Sequence[str], downloads: Path, installed: int) -> str:
    """What pip, uv or apt-get is doing, from what it has printed; empty where that is not known.

    `downloads` is pip's temporary folder, `installed` how many packages this step has installed.
    """
    for line in reversed(lines):
        for sign, doing in SIGNS:
            if not (match := re.search(sign, line)):
                continue
            # A build that is prepared, and may compile by then, is of what was looked up last.
            collected = re.findall(r"^ *Collecting ([\w.-]+)", "\n".join(lines), re.MULTILINE)
            words = {"name": collected[-1] if collected else "crbc"} | match.groupdict()
            if file := words.get("file"):
                words["name"] = re.sub(r"(-\d[^-]*).*", r"\1", file).removesuffix(".tar.gz")
                sizes = [path.stat().st_size for path in downloads.glob(f"pip-unpack-*/{file}")]
                words["size"] += f", {sizes[0] / 1e6:.0f} MB so far" if sizes else ""
            if packages := words.get("list"):
                words["count"] = str(len(packages.split(",")))
            return doing.format(**words, installed=installed)
    return ""


def explain(lines: Sequence[str]) -> str:
    """The lines of a failed step that matter, and how to mend it."""
    told = [line.rstrip() for line in lines if line.strip()]
    told = [line for line in told if re.search(r"error|×|╰|├", line, re.IGNORECASE)][-6:] or told[-6:]
    text = "\n".join(lines)
    hints = [hint.format(**match.groupdict()) for sign, hint in HINTS if (match := re.search(sign, text))]
    return "\n".join([*(f"    {line[:300]}" for line in told), *hints[:1]])
