"""Runs checks in a process of their own, one after the other, and keeps a record of each.

A check that raises ends its process, and so does one that is killed. The next process does the rest. Another start with
the same file skips the checks that came to their end, and repeats the others.
"""

from __future__ import annotations

import gc
import platform
import sys
import time
from collections.abc import Mapping, Sequence
from importlib import metadata
from multiprocessing import get_context
from pathlib import Path

from benchmarks.gpu.record import Check, Figures, Machine, append, latest, read, record_of
from crbc_lab.interrupts import end_with_parent


def run(checks: Mapping[str, Check], machine: Machine, out: Path, again: Sequence[str] = ()) -> bool:
    """Run the checks that are not in `out`, and those named in `again`; whether the newest record of each is ok."""
    before = latest(out, machine)
    todo = [name for name in checks if name in again or name not in before or "error" in before[name]]
    if len(todo) < len(checks):
        print(f"{len(checks) - len(todo)} checks are in {out} and are not repeated", flush=True)
    context = get_context("spawn")  # a forked process could not use a GPU that its parent has looked at
    while todo:
        lines = len(read(out))
        child = context.Process(target=_work, args=({name: checks[name] for name in todo}, machine, out), daemon=True)
        child.start()
        child.join()
        new = read(out)[lines:]
        if child.exitcode and not (new and "error" in new[-1]):
            new.append(record_of(todo[len(new)], machine, {}, 0.0, f"died with exit status {child.exitcode}"))
            append(out, new[-1])
        todo = todo[len(new) :]
    after = latest(out, machine)
    return all(after[name]["ok"] for name in checks)


def _work(checks: Mapping[str, Check], machine: Machine, out: Path) -> None:
    """The child: the checks in order, up to the first that raises."""
    end_with_parent()  # no second run may find this one still writing
    about = versions(machine)
    for name, check in checks.items():
        print(f"{name} ...", flush=True)
        found: Figures = {}
        begun = time.perf_counter()
        try:
            found = check(machine)
        finally:  # an error is noted here, and then ends this process with a traceback
            kind, error, _ = sys.exc_info()
            said = f"{kind.__name__}: {error}"[:500] if kind else ""
            append(out, record_of(name, machine, found, time.perf_counter() - begun, said, **about))
        _free(machine)


def versions(machine: Machine) -> dict[str, object]:
    """The device's name, and the versions of what computes there."""
    found: dict[str, object] = {package: metadata.version(package) for package in ("torch", "transformers")}
    found["python"] = platform.python_version()
    name = f"CPU, {platform.machine()}"
    if machine.device == "cuda":
        import torch

        name, found["cuda"] = torch.cuda.get_device_name(), torch.version.cuda
    return {"device_name": name, "versions": found}


def _free(machine: Machine) -> None:
    """Give back what a check left on the GPU, so that the next one's peak is its own."""
    gc.collect()
    if machine.device == "cuda":
        import torch

        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()


def table(checks: Sequence[str], machine: Machine, out: Path) -> str:
    """The newest records as text: a line for each check, and one for each of its figures."""
    records = latest(out, machine)
    lines = []
    for name in checks:
        if name not in records:
            continue
        record = records[name]
        lines.append(f"{'ok    ' if record['ok'] else 'FAILED'} {name}, {record['seconds']:.1f} s")
        if "error" in record:
            lines.append(f"         {record['error'].splitlines()[0]}")
        for key, value in record["figures"].items():
            least, most = record["bounds"].get(key, (None, None))
            bound = f"  at most {most:g}" if most is not None else ""
            bound += f"  at least {least:g}" if least is not None else ""
            lines.append(f"         {key:<44} {value:>12.5g} {record['units'][key]}{bound}")
    return "\n".join(lines)
