"""A group of episodes through OpenEnv, all at once, and the credit of each of its steps.

    pip install ".[openenv]"
    python examples/openenv_client.py                                # starts a server of its own
    python examples/openenv_client.py --url http://127.0.0.1:8000    # of a server, such as
                                                   # crbc serve openenv CRBC-Sokoban-v0 --set observation=text

The policy is random. In a trainer, `policy` is the model, and each row's advantage goes to the tokens of its reply.
"""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from crbc_envs.tasks import stream
from crbc_rl import credit
from crbc_rl.adapters.openenv import CrbcAction, CrbcClient, CrbcObservation

SERVER = """
from rich.console import Console
from crbc_rl.adapters.openenv_server import serve
serve("CRBC-Sokoban-v0", {"observation": "text"}, host="127.0.0.1", port=0, sessions=64, idle_seconds=600,
      exposed=False, console=Console(width=200))
"""


@contextmanager
def server() -> Iterator[str]:
    """The address of a server in another process, as `crbc serve openenv` starts it."""
    with subprocess.Popen([sys.executable, "-c", SERVER], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().split(" at ")[1].split(" for ")[0]
        finally:
            process.terminate()


def policy(seen: CrbcObservation, rng: np.random.Generator) -> str:
    """A reply to `seen.messages`, the whole prompt: here any admissible action."""
    return f"<think></think><action>{rng.choice(seen.admissible_actions)}</action>"


async def play(url: str, task: int, member: int, update: int = 0) -> list[dict[str, Any]]:
    """One member of the group: the rows of its episode. The task, the seed and the group are those of all members; the
    update is a part of the group's name, so that rows of several updates can be pooled."""
    rng, group = np.random.default_rng([task, member]), f"update {update}, task {task}"
    async with CrbcClient(base_url=url) as client:
        seed = stream("group", update, task)
        seen = (await client.reset(index=task, seed=seed, group=group, rollout=member)).observation
        while not seen.done:
            seen = (await client.step(CrbcAction(text=policy(seen, rng)))).observation
    return seen.rows


async def play_group(url: str, task: int, size: int) -> list[dict[str, Any]]:
    members = await asyncio.gather(*(play(url, task, member) for member in range(size)))
    return [row for rows in members for row in rows]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--url", help="an address of crbc serve openenv; default: a server of its own")
    parser.add_argument("--task", type=int, default=1)
    parser.add_argument("--group-size", type=int, default=8)
    parser.add_argument("--method", default="crbc")
    args = parser.parse_args()
    if args.url:
        rows = asyncio.run(play_group(args.url, args.task, args.group_size))
    else:
        with server() as url:
            rows = asyncio.run(play_group(url, args.task, args.group_size))
    advantages, figures = credit.advantages_of_update(rows, method=args.method, group_size=args.group_size)
    for row, advantage in zip(rows, advantages, strict=True):
        end = "" if row["step"] + 1 < row["length"] else "  solved" if row["success"] else "  failed"
        where = f"rollout {row['rollout']}  step {row['step']:2}  {row['anchor'][:8]}  {row['action']:9}"
        print(f"{where}  {advantage:+7.2f}{end}")
    print(", ".join(f"{name} {value:.3g}" for name, value in figures.items()))


if __name__ == "__main__":
    main()
