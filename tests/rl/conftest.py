"""The device of the tests: with `CRBC_TEST_DEVICE=cuda` a GPU, with `pretended` one that the CPU pretends to have.

CRBC_TEST_DEVICE=cuda python -m pytest tests/rl/training tests/rl/policies
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    import torch

NAME = os.environ.get("CRBC_TEST_DEVICE", "cpu")
if NAME == "pretended":
    import pretended_gpu

    pretended_gpu.install()


@pytest.fixture(scope="session")
def device() -> torch.device:
    """Where this run of the tests wants models to be."""
    import torch  # here, since most tests do without it

    torch.backends.cudnn.allow_tf32 = False  # torch allows it for convolutions, which cut frames into patches

    return torch.device("cpu") if NAME == "cpu" else torch.device(NAME, 0)


@pytest.fixture(autouse=NAME != "cpu", scope="session")
def elsewhere(device: torch.device) -> Iterator[None]:
    """Models are loaded and trained on the device where a test names none."""
    from crbc_rl.distributed import Distributed
    from crbc_rl.policies.load import load_policy

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Distributed.__init__, "__defaults__", (0, 1, device, None))
        patch.setattr(load_policy, "__defaults__", (device, None, None))
        yield
