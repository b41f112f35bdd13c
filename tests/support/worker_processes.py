"""Worker processes under test: which run, and what happens to them."""

from __future__ import annotations

import multiprocessing
import os
import signal

SOON = 0.5
"""The timeout of tests in which a worker hangs."""


def workers():
    """The worker processes of this test, in the order they were started."""
    return sorted(multiprocessing.active_children(), key=lambda process: process.pid)


def inflict(fault, faults):
    """One fault: on a worker from outside, or in an environment at its next step."""
    if fault in ("SIGKILL", "SIGSTOP"):
        os.kill(workers()[0].pid, getattr(signal, fault))
    else:
        (faults / fault).touch()
