"""What a step costs through OpenEnv's server, compared with a direct call: `python -m benchmarks.openenv_sessions`.

So many clients in this process play at once, each an episode after another, against a server in a process of its own.
Seconds are CPU seconds of the server, of the clients, and of direct calls of `ChatEpisode`. Memory is what the server's
process has grown by while all sessions are in an episode.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from crbc_envs import ChatEpisode
from crbc_rl.adapters.openenv import CrbcAction, CrbcClient

ENVS = ("CRBC-Sokoban-v0", "CRBC-ALFWorld-v0", "CRBC-WebShop-v0")
KWARGS: dict[str, dict[str, Any]] = {"CRBC-Sokoban-v0": {"observation": "text"}}

PROGRAM = """
import json, sys
from rich.console import Console
from crbc_rl.adapters.openenv_server import serve
env_id, sessions, kwargs = sys.argv[1], int(sys.argv[2]), json.loads(sys.argv[3])
serve(env_id, kwargs, host="127.0.0.1", port=0, sessions=sessions, idle_seconds=600, exposed=False,
      console=Console(width=200))
"""


@contextmanager
def served(env_id: str, sessions: int) -> Iterator[tuple[str, int]]:
    """The address and the process id of a server."""
    command = [sys.executable, "-c", PROGRAM, env_id, str(sessions), json.dumps(KWARGS.get(env_id, {}))]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().split(" at ")[1].split(" for ")[0], process.pid
        finally:
            process.kill()


def reply(admissible: list[str], turn: int) -> str:
    action = admissible[turn * 7 % len(admissible)].replace("<your query>", "red shoe")
    return f"<think></think><action>{action}</action>"


def direct(env_id: str, sessions: int, steps: int) -> float:
    """CPU seconds of a step, of tasks that have been played before, as those of the clients."""
    episode = ChatEpisode(env_id, **KWARGS.get(env_id, {}))
    for _ in range(2):
        start, done, task = time.process_time(), 0, 0
        while done < steps:
            over, turn, task = episode.begin(task % sessions) is None, 0, task + 1
            while not over:
                over = episode.reply(reply(episode.info["admissible_actions"], turn)) is None
                done, turn = done + 1, turn + 1
    return (time.process_time() - start) / done


async def play(client: CrbcClient, index: int, steps: int) -> int:
    """Play whole episodes until so many steps are done; how many it were."""
    done = 0
    while done < steps:
        seen, turn = (await client.reset(index=index)).observation, 0
        while not seen.done:
            seen = (await client.step(CrbcAction(text=reply(seen.admissible_actions, turn)))).observation
            done, turn = done + 1, turn + 1
    return done


async def measure(env_id: str, url: str, server: int, sessions: int, steps: int) -> str:
    clients = [CrbcClient(base_url=url, connect_timeout_s=60) for _ in range(sessions)]
    await clients[0].connect()
    for index in range(sessions):
        await play(clients[0], index, 1)  # every task has been played before
    before = memory(server)
    for index, client in enumerate(clients):
        await client.connect()
        await client.reset(index=index)
    grown = (memory(server) - before) / sessions
    wall, own, theirs = time.perf_counter(), time.process_time(), cpu_seconds(server)
    done = sum(await asyncio.gather(*(play(client, index, steps) for index, client in enumerate(clients))))
    wall, own = time.perf_counter() - wall, time.process_time() - own
    theirs, alone = cpu_seconds(server) - theirs, direct(env_id, sessions, 10 * steps)
    for client in clients:
        await client.close()
    ms = 1000 / done
    return (
        f"{env_id:18}  direct {1000 * alone:.3f} ms  server {theirs * ms:.3f} ms ({theirs / done / alone:.1f} times)  "
        f"clients {own * ms:.3f} ms  {done / wall:.0f} steps/s with {sessions} sessions  {grown / 2**20:.2f} MB each"
    )


def cpu_seconds(process: int) -> float:
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory(process: int) -> int:
    return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--env", choices=ENVS, nargs="*", default=ENVS)
    parser.add_argument("--sessions", type=int, default=64)
    parser.add_argument("--steps", type=int, default=100, help="of each session")
    args = parser.parse_args()
    for env_id in args.env:
        with served(env_id, args.sessions) as (url, process):
            print(asyncio.run(measure(env_id, url, process, args.sessions, args.steps)), flush=True)


if __name__ == "__main__":
    main()
