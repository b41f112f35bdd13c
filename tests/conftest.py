"""What the tests share: reproducible hypothesis runs and a clean interpreter to ask."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from effort import FULL, effort
from hypothesis import HealthCheck, settings
from warm import Warm

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # Started in the background of a shell. The processes that tests interrupt must not inherit it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
if hasattr(os, "geteuid") and os.geteuid() == 0:
    os.environ["CRBC_UNSAFE_ROOT"] = "1"  # the tests open pages of their own server alone
os.environ.setdefault("GOMP_SPINCOUNT", "1000")  # as the crbc command has it; before torch is imported

settings.register_profile(
    "crbc",
    derandomize=True,
    deadline=None,
    database=None,
    max_examples=effort(25, full=100),
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("crbc")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what is marked `full`, but with CRBC_TEST_FULL=1. The longest tests begin first: one that began last
    would leave the other worker without work."""
    if not FULL and (left_out := [item for item in items if item.get_closest_marker("full")]):
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if not item.get_closest_marker("full")]
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)


def pytest_collection_finish() -> None:
    """Take what imports and collection made out of the sight of the garbage collector, which looked at all of it in
    each full collection, for most of a second."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def no_permission(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test has --allow-import of one before it, which is kept in the environment."""
    monkeypatch.setenv("CRBC_ALLOW_IMPORT", "")


@pytest.fixture
def run_python() -> Callable[..., str]:
    """Run code in a fresh interpreter, under a given PYTHONHASHSEED; what it printed, stripped."""

    def run(code: str, hash_seed: str = "0") -> str:
        env = {**os.environ, "PYTHONHASHSEED": hash_seed}
        done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    return run


@pytest.fixture
def one_hash_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    """`check_anchor_env` compares this process with one other, not with two. This one has a hash seed of its own."""
    monkeypatch.setattr("crbc_envs.checking.check.HASH_SEEDS", ("1",))


@pytest.fixture(scope="session")
def warm() -> Iterator[Warm]:
    """Runs the `crbc` command in forks of one process that has imported torch and the learner."""
    with Warm() as running:
        yield running


@pytest.fixture(scope="session")
def project() -> Path:
    """The root of the project."""
    return Path(__file__).resolve().parents[1]


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a fresh tiny policy, to be read only."""
    from learner_fixtures import fresh_policy  # here, so that tests without a learner do without torch

    folder = tmp_path_factory.mktemp("model")
    fresh_policy().save(folder)
    return folder
