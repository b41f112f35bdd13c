"""`crbc doctor`: what is installed, what is missing or set so that it harms, and the command that mends it."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from crbc_envs.errors import install, packages, remove_stranger, version
from crbc_envs.webshop.site.browser import ROOT_REMEDY, find_program, is_root, missing, root_permitted
from crbc_lab.commands.data import datasets
from crbc_lab.plan.findings import Finding, package
from crbc_rl.names import shipped

EXTRAS = {
    "train": "the learner and this command",
    "vllm": "generator.engine=vllm",
    "ray": 'groups with backend="ray"',
    "alfworld": 'CRBC-ALFWorld-v0 with engine="textworld"',
    "sokoban": 'CRBC-Sokoban-v0 with engine="gym"',
    "babyai": "CRBC-BabyAI-v0",
    "site": "CRBC-WebShopSite-v0",
    "lora": "policy.lora_rank",
    "wandb": "tracking=wandb",
    "serve": "crbc serve model",
    "models": "crbc model get",
    "openenv": "crbc serve openenv, and its clients",
    "sb3": "PPO of Stable-Baselines3",
    "trl": "GRPOTrainer of TRL",
    "docs": "scripts/site.sh",
    "dev": "the tests",
}
"""The extras, and what each is for. Only `train` is needed by every use of this command."""

COMPILERS = "apt-get install -y build-essential cmake"
INDEX = "https://download.pytorch.org/whl/"
DRIVERS = ("/proc/driver/nvidia/version", "/dev/kfd")
"""Files that are there where a GPU of NVIDIA or AMD can be used."""

Section = tuple[str, list[Finding]]


def examine() -> list[Section]:
    """The findings, in sections with titles."""
    here = ".".join(map(str, sys.version_info[:3]))
    python = Finding("python", here, "" if sys.version_info >= (3, 11) else "install Python 3.11 or newer")
    core = [package(name, "", "everything") for name in packages("")]
    return [
        ("core", [python, *core, *_strangers()]),
        *_extras(),
        ("compilers: they build the extra [alfworld]", list(_compilers())),
        ("browser: CRBC-WebShopSite-v0", list(_browser())),
        ("official data (crbc plays generated tasks without it)", list(_datasets())),
        ("warm starts", [_warm_starts()]),
        ("processors", list(_processors())),
    ]


def print_sections(sections: list[Section], console: Console) -> bool:
    """Print the findings, and return whether nothing that is needed is missing."""
    for title, findings in sections:
        console.print(f"[bold]{escape(title)}[/]", highlight=False)
        present = [f"{finding.name} {finding.state}".strip() for finding in findings if finding.ok]
        if present:
            console.print("  " + escape(", ".join(present)), highlight=False, soft_wrap=not console.is_terminal)
        lacking: dict[str, list[Finding]] = {}
        for finding in findings:
            if not finding.ok:
                lacking.setdefault(finding.fix, []).append(finding)
        for fix, together in lacking.items():
            colour = "yellow" if all(finding.optional for finding in together) else "red"
            names = ", ".join(f"{finding.name} {finding.state}".removesuffix(" -").strip() for finding in together)
            label = "missing" if all(finding.state == "-" for finding in together) else "to change"
            console.print(f"  [{colour}]{label}: {escape(names)}[/]", highlight=False, soft_wrap=True)
            console.print(f"    {escape(fix)}", highlight=False, soft_wrap=True)
    every = [finding for _, findings in sections for finding in findings]
    needed = [finding.name for finding in every if not finding.ok and not finding.optional]
    console.print(
        f"[red]{len(needed)} missing that are needed: {escape(', '.join(needed))}[/]"
        if needed
        else "[green]nothing is missing that training needs[/]",
        highlight=False,
    )
    return not needed


def _strangers() -> Iterator[Finding]:
    """A package of somebody else's that lies over ours: the two cannot be in one environment."""
    if fix := remove_stranger():
        yield Finding(
            f"anchors {version('anchors')} of another project, in the place of crbc's own", "", fix, optional=True
        )


def _extras() -> Iterator[Section]:
    """A section for each extra, with the packages that no extra before it asks for."""
    seen: set[str] = set()
    for extra, purpose in EXTRAS.items():
        names = [name for name in packages(extra) if name not in seen]
        seen |= set(names)
        yield f"extra [{extra}]: {purpose}", [package(name, extra, purpose, extra != "train") for name in names]


def _compilers() -> Iterator[Finding]:
    for name in ("c++", "make", "cmake"):
        path = shutil.which(name)
        yield Finding(name, path or "-", "" if path else COMPILERS, "the extra [alfworld]", optional=True)


def _browser() -> Iterator[Finding]:
    lacking = dict(missing())
    for name in ("selenium", "chromium", "chromedriver"):
        path = "-" if name in lacking else find_program(name)
        yield Finding(name, path or "-", lacking.get(name, ""), "CRBC-WebShopSite-v0", optional=True)
    if is_root():
        fix = "" if root_permitted() else ROOT_REMEDY
        yield Finding("sandbox", "none, as you are root", fix, "CRBC-WebShopSite-v0", optional=True)


def _datasets() -> Iterator[Finding]:
    for name, dataset in datasets().items():
        there = dataset.folder.is_dir()
        yield Finding(
            name,
            str(dataset.folder) if there else "-",
            "" if there else dataset.command,
            'data="official"',
            optional=True,
        )


def _warm_starts() -> Finding:
    names = sorted(path.parent.name for path in (shipped() / "warmstarts").glob("*/model.safetensors"))
    fix = "" if names else "crbc warmstart warmstart-sokoban"
    return Finding(", ".join(names) or "warm starts", "" if names else "-", fix, "the tiny agents")


def _processors() -> Iterator[Finding]:
    yield Finding(f"{os.cpu_count()} CPU cores", "")
    number, build = version("torch"), torch_build()
    driver = any(map(os.path.exists, DRIVERS)) or shutil.which("nvidia-smi") is not None
    if number is None or not driver:
        if build == "cuda":
            fix = install("--force-reinstall", "torch", "--index-url", f"{INDEX}cpu")
            state = f"{number} is a CUDA build of several GB, and no GPU is here"
            yield Finding("a torch for the CPU", state, fix, "room on the disk", optional=True)
        yield Finding("no GPU", "")
        return
    if build == "cpu":
        fix = install("--force-reinstall", "torch", "--index-url", f"{INDEX}cu128")
        yield Finding("a torch for the GPU", f"{number} is a CPU build", fix, "GPUs", optional=True)
    import torch  # it takes seconds, and only where it may see a GPU

    gpus = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    yield Finding(", ".join(gpus) or "no GPU seen by torch", "")


def torch_build() -> str:
    """ "cuda", "hip" or "cpu", as version.py of torch says without its import; "" where there is none."""
    spec = find_spec("torch")
    if spec is None or spec.origin is None:
        return ""
    text = Path(spec.origin).with_name("version.py").read_text(encoding="utf-8")
    return next((kind for kind in ("cuda", "hip") if re.search(rf"^{kind}\b.*= *['\"]", text, re.M)), "cpu")
