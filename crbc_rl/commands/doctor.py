"""`crbc doctor`: what is installed, what is missing, and the command that installs it."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path

from rich.console import Console
from rich.table import Table

from crbc_envs.webshop.site.browser import find_program, missing
from crbc_rl.plan.findings import Finding, package

CORE = ("numpy", "scipy", "gymnasium", "platformdirs", "rapidfuzz", "threadpoolctl")
TRAIN = (
    "torch",
    "transformers",
    "tokenizers",
    "safetensors",
    "pyarrow",
    "pydantic",
    "pyyaml",
    "tyro",
    "rich",
    "tensorboard",
    "jinja2",
    "matplotlib",
    "pillow",
    "httpx",
)
TESTS = ("pytest", "hypothesis", "ruff", "mypy")
OPTIONAL = (
    ("alfworld", "[alfworld]", 'ALFWorld with engine="textworld"'),
    ("ray", "[ray]", 'groups with backend="ray"'),
    ("vllm", "[vllm]", "generation with vLLM"),
)


def examine() -> list[Finding]:
    """Check the interpreter, the packages by purpose, the browser, the processors, and the warm start."""
    version = ".".join(map(str, sys.version_info[:3]))
    findings = [Finding("python", version, "" if sys.version_info >= (3, 11) else "install Python 3.11 or newer")]
    for packages, extra, purpose in (
        (CORE, "", "everything"),
        (TRAIN, "[train]", "the learner"),
        (TESTS, "[dev]", "tests"),
    ):
        findings += [package(name, extra, purpose) for name in packages]
    findings += [replace(package(name, extra, purpose), optional=True) for name, extra, purpose in OPTIONAL]
    findings += _browser()
    findings.append(_processors())
    warm = Path("warmstarts/sokoban-tiny/model.safetensors")
    fix = "" if warm.is_file() else "crbc warmstart configs/warmstart_sokoban.yaml  (from a clone of the project)"
    findings.append(Finding("warm start", str(warm.parent) if not fix else "-", fix, "the tiny agent"))
    return findings


def show(findings: list[Finding], console: Console) -> bool:
    """Print the findings as a table and return whether nothing is missing."""
    table = Table("what", "found", "needed for", "to fix")
    for finding in findings:
        mark = "[green]" if finding.ok else "[yellow]" if finding.optional else "[red]"
        table.add_row(f"{mark}{finding.name}[/]", finding.found, finding.needed_for, finding.fix.replace("[", "\\["))
    console.print(table)
    missing = [finding.name for finding in findings if not finding.ok and not finding.optional]
    console.print(
        f"[red]{len(missing)} missing: {', '.join(missing)}[/]" if missing else "[green]nothing is missing[/]"
    )
    return not missing


def _browser() -> list[Finding]:
    """The browser of CRBC-WebShopSite-v0."""
    purpose, lacking = "CRBC-WebShopSite-v0", dict(missing())
    return [
        Finding(name, find_program(name) if name not in lacking else "-", lacking.get(name, ""), purpose, optional=True)
        for name in ("selenium", "chromium", "chromedriver")
    ]


def _processors() -> Finding:
    cores = f"{os.cpu_count()} CPU cores"
    try:
        import torch
    except ImportError:
        return Finding("processors", cores, "", "speed")
    names = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    return Finding("processors", f"{cores}; {', '.join(names) or 'no GPU seen by torch'}", "", "speed")
