"""The rates of this machine's processor, measured in about a second."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

import torch

from crbc_lab.plan.hardware import Hardware

SIZE = 768
"""Rows and columns of the matrices: as wide as the models that a processor trains."""
COPIED = 2**26
"""Bytes of the tensor that is copied, which no cache holds."""
SECONDS = 0.4
"""How long each rate is measured."""
BESIDE = 85
"""The hidden units of a model at which all that is no matrix product takes as long as the products do: they grow with
the square of the width, and the rest with the width. Fitted to an update of configs/alfworld_short.yaml."""
RESERVE = 2**30
"""Bytes of the program and its packages. Without tensors, a process has about half of it."""
EAGER = 0.3e-3
"""Seconds of the program itself for each layer of a decode step."""


def this_processor(threads: int, hidden: int) -> Hardware:
    """Rates of `threads` threads in float32, as a training with as many of a model with `hidden` units has them, if
    nothing else runs."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        matrix, product = torch.ones(SIZE, SIZE), torch.empty(SIZE, SIZE)
        source, target = torch.ones(COPIED // 4), torch.empty(COPIED // 4)
        flops = 2 * SIZE**3 / _fastest(lambda: torch.mm(matrix, matrix, out=product))
        memory = 2 * COPIED / _fastest(lambda: target.copy_(source))
    finally:
        torch.set_num_threads(before)
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0  # not on Windows
    name = f"this machine's processor, {threads} thread{'s' * (threads > 1)}, at a load of {load:.1f}"
    return Hardware(
        name,
        flops,
        memory,
        link=memory,
        network=memory,
        flops_share=hidden / (hidden + BESIDE),
        memory_share=1.0,
        eager=EAGER,
        device="processor",
        reserve=RESERVE,
        shares=True,
    )


def main_memory() -> float:
    """GiB of this machine."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30


def _fastest(call: Callable[[], object]) -> float:
    """Seconds of the fastest call of those that `SECONDS` have room for."""
    end, best = time.perf_counter() + SECONDS, float("inf")
    while time.perf_counter() < end:
        start = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - start)
    return best
