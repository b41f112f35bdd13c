"""Measures `crbc serve model` under 64 clients, one with the heaviest request that its bounds allow: the slowest answer
of two tokens to the 63 others, and the server's memory during and after it: `python -m benchmarks.served`.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from statistics import median
from typing import Any

import httpx
import numpy as np

LIGHT = {"model": "m", "messages": [{"role": "user", "content": "Go."}], "max_tokens": 2, "seed": 1}
ROWS, TOKENS = 128, 2_040


def heaviest() -> bytes:
    """The body of a request with `ROWS` prompts of `TOKENS` ids, of which each is listed with 20 others."""
    prompts = np.random.default_rng(0).integers(5, 200, (ROWS, TOKENS)).tolist()
    return json.dumps({"model": "m", "prompt": prompts, "max_tokens": 0, "echo": True, "logprobs": 20}).encode()


def megabytes(pid: int, what: str) -> int:
    """VmRSS or VmHWM of a process."""
    status = Path(f"/proc/{pid}/status").read_text().split(f"{what}:")[1]
    return int(status.split()[0]) // 1_024


def client() -> httpx.Client:
    return httpx.Client(trust_env=False, timeout=900, verify=False)


def ask_heavily(url: str, told: list[str]) -> None:
    begun, size = time.monotonic(), 0
    kind = {"Content-Type": "application/json"}
    with client() as http, http.stream("POST", f"{url}/completions", content=heaviest(), headers=kind) as answer:
        for piece in answer.iter_bytes():
            size += len(piece)
    told.append(f"{size / 1e6:.0f} MB in {time.monotonic() - begun:.1f} s")


def ask_lightly(url: str, busy: threading.Event, seconds: list[float], pause: float) -> None:
    with client() as http:
        while busy.is_set():
            begun = time.monotonic()
            http.post(f"{url}/chat/completions", json=LIGHT).raise_for_status()
            seconds.append(time.monotonic() - begun)
            time.sleep(pause)


def measure(process: subprocess.Popen[str], url: str, clients: int, pause: float) -> None:
    told: list[str] = []
    seconds: list[float] = []
    busy = threading.Event()
    busy.set()
    before = megabytes(process.pid, "VmRSS")
    heavy = threading.Thread(target=ask_heavily, args=(url, told))
    light = [threading.Thread(target=ask_lightly, args=(url, busy, seconds, pause)) for _ in range(clients - 1)]
    for thread in [heavy, *light]:
        thread.start()
    heavy.join()
    busy.clear()
    for thread in light:
        thread.join()
    time.sleep(1)
    print(f"two tokens, {len(seconds):,} times: median {median(seconds):.2f} s, slowest {max(seconds):.2f} s")
    print(f"the heavy answer: {told[0]}")
    peak, after = (megabytes(process.pid, what) for what in ("VmHWM", "VmRSS"))
    print(f"memory: {before} MB before, at most {peak} MB, {after} MB afterwards")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="warmstarts/sokoban-tiny")
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--pause", type=float, default=0.5, help="seconds between two light requests of a client")
    parser.add_argument("--times", type=int, default=1)
    asked = parser.parse_args()
    serve = [sys.executable, "-m", "crbc_lab.cli", "serve", "model", asked.model, "--port", "0", "--name", "m"]
    process = subprocess.Popen(serve, stdout=subprocess.PIPE, text=True, env={**os.environ, "COLUMNS": "200"})
    try:
        assert process.stdout is not None
        url: Any = process.stdout.readline().split()[3]
        for _ in range(asked.times):
            measure(process, url, asked.clients, asked.pause)
    finally:
        process.send_signal(signal.SIGINT)
        process.wait()


if __name__ == "__main__":
    main()
