"""Parents that die in random states, and what they leave: `python tests/support/dying_parents.py [count] [seed]`.

Each parent is a script with two workers, in a group of processes that only it and what it starts can come from: the
environment variable `CRBC_DYING_PARENT` names it, and every process that inherits the variable belongs to it. It is
killed, or ends itself, at a random moment, while a worker hangs in C with the interpreter's lock, sleeps, is stopped or
plays, while its fork server is stopped or dead, or with a forked child that lives on. A process that runs or is stopped
`WITHIN` seconds later was left behind. A zombie was not: it waits for whoever adopted it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np

ROOT, SUPPORT = Path(__file__).parents[2], Path(__file__).parent
WITHIN = 10.0
BATCH = 25  # what a batch leaves ends within seconds, which are waited for together
MARK = "CRBC_DYING_PARENT"

Left = tuple[int, str, str]
"""A process: its id, its state and its command."""

STATES = ("play", "hang", "sleep", "stop worker", "stop server", "kill server", "stop all", "forked child")
DEATHS = ("SIGKILL", "_exit", "SIGSEGV", "SIGTERM", "group", "exit")

SCRIPT = """
import os, signal, sys, time
import faulty_env
from crbc_envs import GroupVectorEnv
from worker_processes import server_pid

def main(folder, state, death, delay):
    envs = GroupVectorEnv("FaultyCorridor-v0", 2, 2, backend="process", num_workers=2, faults=folder)
    envs.reset(seed=0)
    pids = [supervisor.worker.process.pid for supervisor in envs.members.supervisors]
    if state == "forked child" and os.fork() == 0:
        open(os.path.join(folder, f"child {os.getpid()}"), "w").close()
        time.sleep(60)
        os._exit(0)
    if state in ("hang", "sleep"):
        open(os.path.join(folder, "hold" if state == "hang" else "hang"), "w").close()
    if state in ("stop worker", "stop all"):
        os.kill(pids[0], signal.SIGSTOP)
    if state in ("stop server", "stop all"):
        os.kill(server_pid(), signal.SIGSTOP)
    if state == "kill server":
        os.kill(server_pid(), signal.SIGKILL)
    print("ready", flush=True)
    if death == "_exit":
        signal.signal(signal.SIGALRM, lambda *_: os._exit(1))
        signal.setitimer(signal.ITIMER_REAL, delay)
    if death == "exit":
        signal.signal(signal.SIGALRM, lambda *_: sys.exit(1))
        signal.setitimer(signal.ITIMER_REAL, delay)
    while True:
        envs.step(["?"] * 4)
        if not envs.active.any():
            envs.reset(seed=0)

if __name__ == "__main__":
    main(*sys.argv[1:4], float(sys.argv[4]))
"""


def marked(mark: str) -> Iterator[Left]:
    """The processes that inherited a mark and are no zombies."""
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if f"{MARK}={mark}".encode() in (folder / "environ").read_bytes().split(b"\0"):
                state = (folder / "stat").read_text().rpartition(")")[2].split()[0]
                if state not in "ZX":
                    command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                    yield int(folder.name), state, command[-80:]


class Parent:
    """One script that is going to die."""

    def __init__(self, mark: str, rng: np.random.Generator, folder: Path, states: Sequence[str]) -> None:
        self.state, self.death = str(rng.choice(states)), str(rng.choice(DEATHS))
        self.mark, self.delay = mark, float(rng.uniform(0, 0.3))
        self.early = bool(rng.random() < 0.2)  # dies before or while its workers are started
        self.faults = folder / mark
        self.faults.mkdir()
        (folder / "script.py").write_text(SCRIPT)
        path = os.pathsep.join([str(SUPPORT), str(ROOT), *sys.path])
        self.process = subprocess.Popen(
            [sys.executable, str(folder / "script.py"), str(self.faults), self.state, self.death, str(self.delay)],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
            env={**os.environ, "PYTHONPATH": path, MARK: mark, "OPENBLAS_NUM_THREADS": "1"},
        )

    def die(self) -> None:
        """Wait until the parent is in its state, and for a random moment; then end it."""
        assert self.process.stdout is not None
        if self.early:
            time.sleep(self.delay * 5)
        else:
            self.process.stdout.readline()
            time.sleep(self.delay)
        if self.death == "group":
            os.killpg(self.process.pid, signal.SIGKILL)
        elif self.death in ("SIGKILL", "SIGSEGV", "SIGTERM") or self.early:
            self.process.send_signal(getattr(signal, self.death, signal.SIGKILL))
        self.process.stdout.close()
        with suppress(subprocess.TimeoutExpired):  # a parent that does not end is itself left
            self.process.wait(WITHIN)
        self.died = time.monotonic()

    def left(self) -> list[Left]:
        """What it left after `WITHIN` seconds, except a child of its own that lives on. All of it is killed then."""
        children = {int(path.name.split()[-1]) for path in self.faults.glob("child *")}
        found = list(marked(self.mark))
        while {pid for pid, _, _ in found} - children and time.monotonic() < self.died + WITHIN:
            time.sleep(0.1)
            found = list(marked(self.mark))
        self.lasted = time.monotonic() - self.died
        for pid, _, _ in found:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return [process for process in found if process[0] not in children]


def kill_parents(
    count: int, seed: int, folder: Path, states: Sequence[str] = STATES
) -> tuple[Counter[str], list[str], float]:
    """Kill parents in batches. Returns how many died in which state, what was left, and the longest wait in seconds."""
    rng, died, left, longest = np.random.default_rng(seed), Counter[str](), list[str](), 0.0
    names = [f"{os.getpid()}-{i}" for i in range(count)]
    for first in range(0, count, BATCH):
        parents = [Parent(name, rng, folder, states) for name in names[first : first + BATCH]]
        for parent in parents:
            parent.die()
        for parent in parents:
            where = "early" if parent.early else parent.state
            died[f"{where}, {parent.death}"] += 1
            left += [f"{where}, {parent.death}: {process}" for process in parent.left()]
            longest = max(longest, parent.lasted)
    return died, left, longest


def main(count: str = "50", seed: str = "0") -> None:
    shared = set(os.listdir("/dev/shm"))
    with tempfile.TemporaryDirectory() as folder:
        died, left, longest = kill_parents(int(count), int(seed), Path(folder))
    for what, number in sorted(died.items()):
        print(f"{number:5}  {what}")
    print(
        f"{sum(died.values())} parents died, {len(left)} processes left after {WITHIN:g} s, the last gone after "
        f"{longest:.1f} s, new in /dev/shm: {sorted(set(os.listdir('/dev/shm')) - shared)}"
    )
    print(*left, sep="\n")
    sys.exit(bool(left))


if __name__ == "__main__":
    main(*sys.argv[1:])
