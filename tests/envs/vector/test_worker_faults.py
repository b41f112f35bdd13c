"""Hundreds of random faults over process workers: no group is lost, and every byte is that of a run without."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import Counter
from contextlib import closing, suppress

import numpy as np
import pytest
from effort import FULL, effort
from worker_play import corridors, play

FAULTS = {
    "SIGKILL": effort(45, full=150),
    "SIGSTOP": effort(30, full=100),
    "raise": effort(45, full=150),
    "hang": effort(30, full=100),
}
SEEDS = 12
SIZES = {"num_groups": 4, "group_size": 2}


class Saboteur(threading.Thread):
    """Inflicts `FAULTS` in random order at random moments: in calls, between them, and into recoveries.

    They come alone or in pairs, after which it waits for calls to succeed again: four in a row over
    one call are rightly an error.
    """

    def __init__(self, envs, folder, rng):
        super().__init__(daemon=True)
        self.envs, self.folder, self.rng = envs, folder, rng
        self.calls = 0
        self.inflicted = Counter()
        self.gave_up = threading.Event()

    def run(self):
        kinds = np.repeat(list(FAULTS), list(FAULTS.values()))
        self.rng.shuffle(kinds)
        kinds = kinds.tolist()
        while kinds:
            for _ in range(min(len(kinds), 1 + self.rng.integers(2))):
                noticed = self.envs.restarts
                self.inflict(kinds.pop())
                if self.rng.random() < 0.7:
                    self.wait(lambda noticed=noticed: self.envs.restarts > noticed)
                time.sleep(self.rng.uniform(0, 0.05))  # a recovery takes about as long
            seen = self.calls
            self.wait(lambda seen=seen: self.calls > seen + 2 and not self.waiting())

    def inflict(self, kind):
        while not self.gave_up.is_set():
            with suppress(AttributeError, ValueError, ProcessLookupError):  # a worker that is being replaced just now
                if kind in ("raise", "hang"):
                    (self.folder / kind).touch()
                else:
                    supervisor = self.rng.choice(self.envs.members.supervisors)
                    os.kill(supervisor.worker.process.pid, getattr(signal, kind))
                self.inflicted[kind] += 1
                break
            time.sleep(0.001)

    def waiting(self):
        """Whether a fault is still to be met by an environment."""
        return any((self.folder / kind).exists() for kind in ("raise", "hang"))

    def wait(self, until):
        """An idle worker's fault is noticed by nobody for a while, so not for ever."""
        deadline = time.monotonic() + 5
        while not until() and not self.gave_up.is_set() and time.monotonic() < deadline:
            time.sleep(0.001)

    def count(self):
        self.calls += 1


@pytest.mark.full
def test_hundreds_of_random_faults_change_nothing(tmp_path, caplog, capsys):
    with closing(corridors(**SIZES)) as envs:
        expected = [play(envs, seed) for seed in range(SEEDS)]
    options = {"backend": "process", "num_workers": 2, "timeout": 0.5, "faults": str(tmp_path)}
    episodes = 0
    with closing(corridors(**SIZES, **options)) as envs:
        saboteur = Saboteur(envs, tmp_path, np.random.default_rng(0))
        saboteur.start()
        try:
            while saboteur.is_alive():
                assert play(envs, episodes % SEEDS, before_step=saboteur.count) == expected[episodes % SEEDS]
                episodes += 1
        finally:
            saboteur.gave_up.set()
            saboteur.join()
        assert saboteur.inflicted == FAULTS
        replaced = envs.restarts
    assert replaced > 0.9 * sum(FAULTS.values())  # two faults at once may be one loss
    at = Counter(record.args[1] for record in caplog.records if record.name == "crbc_envs.vector.workers")
    seldom = {"make", "reset"} if FULL else set()  # a few of five hundred; test_workers.py has one of each
    assert {"step", "replay step"} | seldom <= set(at)
    with capsys.disabled():
        print(
            f"\n{sum(FAULTS.values())} faults, {replaced} workers replaced, lost at {dict(at)}; "
            f"{episodes} episodes, all as without faults"
        )
