"""Trainings side by side, each in a process and a run folder of its own: several seeds, or the trainings of a study.

A child is what `crbc train` runs, so it stops, resumes and locks its folder as any run does. One that fails ends no
other. Children end in order when their parent is stopped, and when it dies.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from crbc_envs.storage.files import WriteErrors, refuse_link, replace_file
from crbc_lab.interrupts import CHILD, PATIENT, Interrupts
from crbc_rl.config import TrainConfig
from crbc_rl.runs.initial_eval_cache import LIKE, evaluated_start
from crbc_rl.runs.own import ASKED, LOG

VISIBLE = "CUDA_VISIBLE_DEVICES"
POLL = 0.2
"""Seconds between two looks at the processes."""
GRACE = 10.0
"""Seconds that a process has to end after a signal to end at once."""
STOPPED = (128 + signal.SIGINT, -signal.SIGTERM)
"""The exit statuses of a run that a signal ended before it could save anything."""


@dataclass(slots=True)
class ChildRun:
    """A training: a config, the folder of its run, which it begins or continues, and the processes that share it, one
    for each GPU.

    `status` is its exit status: 0 also where it was stopped with everything saved, None before it has ended.
    """

    name: str
    config: TrainConfig
    folder: Path
    processes: int = 1
    alike: Sequence[Path] = ()
    """Folders of runs that begin as this one does: the first that has evaluated its start gives it to this one."""
    follow_links: bool = False
    gpus: str = ""
    """The GPUs that it sees, as CUDA_VISIBLE_DEVICES names them; as this process does where it is empty."""
    status: int | None = None
    process: subprocess.Popen[bytes] | None = None
    stopped: bool = False
    """Whether `stop` was called."""

    @property
    def running(self) -> bool:
        return self.process is not None and self.status is None

    @property
    def failed(self) -> bool:
        return self.status not in (None, 0) and not (self.stopped and self.status in STOPPED)

    def stop(self) -> None:
        """Tell it to stop: the first time after its update, the second time at once."""
        if self.process is None or self.process.poll() is not None:
            return
        first, self.stopped = not self.stopped, True
        if first and self.processes > 1:
            # A signal would go to torchrun, which ends its processes at once. They read this one's standard input.
            assert self.process.stdin is not None
            self.process.stdin.close()
        else:
            self.process.terminate()

    def start(self) -> None:
        """Start its process, which reads its config from RUN/train.yaml and writes to the end of RUN/train.log."""
        config = refuse_link(self.folder / ASKED)
        with WriteErrors(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
            replace_file(config, yaml.safe_dump(self._asked(), sort_keys=False).encode())
        launched: list[str | Path] = ["crbc_lab.cli", "train", config, "--run", self.folder, "--start-or-resume"]
        if self.follow_links:
            launched.append("--follow-links")
        if self.processes > 1:
            options = [PATIENT, "--standalone", f"--nproc-per-node={self.processes}", "-m", "--"]
            launched = ["torch.distributed.run", *options, *launched]
        command = [sys.executable, "-m", *launched]
        like = next((str(folder) for folder in self.alike if evaluated_start(folder) is not None), "")
        with WriteErrors(path := self.folder / LOG), refuse_link(path).open("ab") as log:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,  # it closes when this process ends, however it ends
                stdout=log,
                stderr=log,
                env={**os.environ, CHILD: "1", LIKE: like, **({VISIBLE: self.gpus} if self.gpus else {})},
                start_new_session=True,  # a Ctrl-C at the terminal comes to this process alone
            )

    def _asked(self) -> dict[str, Any]:
        """Its config as plain data, without a limit of replies that nobody named: its process derives that."""
        derived = set() if self.config.rollout.limit_named else {"max_new_tokens"}
        return self.config.model_dump(mode="json", exclude={"rollout": derived})

    def last_log_line(self) -> str:
        """The last line of its log."""
        lines = (self.folder / LOG).read_text(encoding="utf-8", errors="replace")[-2_000:].splitlines()
        return lines[-1].strip() if lines else ""


def gpu_sets(each: int) -> list[str]:
    """The GPUs that this process sees in sets of `each`, as CUDA_VISIBLE_DEVICES names them."""
    from torch.cuda import device_count  # only then, as it takes seconds

    count = device_count()
    names = (os.environ.get(VISIBLE) or ",".join(map(str, range(count)))).split(",")[:count]
    return [",".join(names[first : first + each]) for first in range(0, len(names) - each + 1, each)]


def side_by_side(config: TrainConfig, processes: int = 1) -> int:
    """How many children fit this machine: its cores by `threads`, and where there are GPUs, these by `processes`."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(cores // (config.threads * processes), len(gpu_sets(processes)) or cores))


def run_children(
    children: Sequence[ChildRun],
    jobs: int,
    look: Callable[[], None] = lambda: None,
    stopping: Callable[[], None] = lambda: None,
) -> bool:
    """Run children in order, at most `jobs` at a time, each on GPUs of its own where there are any; False if stopped.

    `look` is called now and then. The first Ctrl-C or SIGTERM calls `stopping`, stops each running child after its
    update, with everything saved, and starts no other; the second ends them at once and raises `KeyboardInterrupt`.
    """
    stopped: list[bool] = []
    sets = gpu_sets(max(child.processes for child in children)) if jobs > 1 and children else []

    def stop() -> None:
        stopped.append(True)
        for child in children:
            child.stop()
        stopping()

    with Interrupts() as interrupts, _ended(children):
        interrupts.stop = stop
        waiting = [child for child in children if child.status is None]
        while any(child.running for child in children) or (waiting and not stopped):
            while waiting and not stopped and sum(child.running for child in children) < jobs:
                child = waiting.pop(0)
                taken = [other.gpus for other in children if other.running]
                child.gpus = min(sets, key=taken.count, default="")
                child.start()
                if stopped:  # the signal came meanwhile, and found no process
                    child.stop()
            time.sleep(POLL)
            for child in children:
                if child.process is not None:
                    child.status = child.process.poll()
            look()
        interrupts.stop = None
    return not stopped


@contextmanager
def _ended(children: Iterable[ChildRun]) -> Iterator[None]:
    """Ends what still runs behind it."""
    try:
        yield
    finally:
        running = [child for child in children if child.process is not None and child.process.poll() is None]
        for child in running * 2:
            child.stop()
            time.sleep(POLL)
        until = time.monotonic() + GRACE
        for process in filter(None, (child.process for child in running)):
            try:
                process.wait(max(0.0, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
