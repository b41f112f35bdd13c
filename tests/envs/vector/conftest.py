"""What tests of worker processes share."""

from __future__ import annotations

import gc
import signal
import time

import pytest
from worker_processes import workers


@pytest.fixture(autouse=True)
def nothing_is_left_running():
    yield
    if workers():
        gc.collect()
    deadline = time.monotonic() + 10
    while workers() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not workers()


@pytest.fixture
def listens_to_ctrl_c():
    """A shell that runs something in the background has it ignore Ctrl-C, and so would what it starts."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
