"""`crbc play`: play an environment in the terminal, with its anchors and admissible actions."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
from gymnasium.envs.registration import load_env_creator
from rich.console import Console
from rich.panel import Panel
from rich.text import Text

import crbc_envs  # noqa: F401  registers the ids
from crbc_envs.core import AnchorEnv
from crbc_envs.vector.members import make_member
from crbc_rl.config.extensions import allow, is_extension, registered_id
from crbc_rl.errors import ConfigError
from crbc_rl.plan.environment import unknown_id

_TILES = {
    "#": ("  ", "on grey30"),
    "_": ("  ", "on grey85"),
    ".": ("()", "bold red on grey85"),
    "*": ("[]", "bold white on green"),
    "$": ("[]", "bold black on orange3"),
    "@": ("@@", "bold green4 on grey85"),
    "+": ("@@", "bold green4 on red3"),
}


def play(
    env_id: str,
    split: str,
    task: int | None,
    seed: int,
    console: Console,
    read: Callable[[str], str] = input,
) -> None:
    """Play episodes until the user quits. `read` returns the user's input for a prompt.

    Raises `ConfigError` for an id that is not registered, and for a task that the panel does not have.
    """
    env = _make(env_id, split)
    rng, size = np.random.default_rng(seed), len(env.panel)
    current = int(rng.integers(size)) if task is None else task
    if not 0 <= current < size:
        raise ConfigError(f"--task {task}: the {split} panel of {env_id} has tasks 0 to {size - 1}")
    console.print("[dim]Type an action or its first letters; 'again' restarts, 'next' is another task, 'quit' ends.[/]")
    _, info = env.reset(seed=seed, options={"task": current})
    over = False
    while True:
        _show(console, info)
        try:
            line = read("action> ").strip()
        except (EOFError, KeyboardInterrupt):
            return
        if line == "quit":
            return
        if line in ("again", "next"):
            current = current if line == "again" else int(rng.integers(size))
            _, info = env.reset(options={"task": current})
            over = False
        elif over:
            console.print("[yellow]The episode is over: 'again', 'next' or 'quit'.[/]")
        elif line:
            _, reward, terminated, truncated, info = env.step(complete(line, info["admissible_actions"]))
            over = terminated or truncated
            console.print(_verdict(info, reward, terminated, truncated))


def complete(line: str, admissible: tuple[str, ...]) -> str:
    """The admissible action that begins with `line` if there is exactly one, else `line`."""
    matches = [action for action in admissible if action.startswith(line.lower())]
    return matches[0] if len(matches) == 1 else line


def _make(env_id: str, split: str) -> AnchorEnv[Any, Any]:
    """The environment, with text observations where it has a choice.

    The module of a "module:Id" may be in the current folder. Whoever types its name has permitted its import.
    """
    if is_extension(env_id):
        allow()
    name = registered_id(env_id, {}, "the environment").rpartition(":")[2]
    if name not in gymnasium.registry:
        raise ConfigError(unknown_id(env_id))
    creator = load_env_creator(gymnasium.spec(name).entry_point)
    text = "observation" in inspect.signature(creator).parameters
    return make_member(name, {"split": split, **({"observation": "text"} if text else {})})


def _show(console: Console, info: dict[str, Any]) -> None:
    console.print(Panel.fit(picture(info["label"]), title=f"{info['task_id']}  step {info['step']}"))
    console.print(f"{info['task']}", highlight=False, markup=False)
    console.print(f"[dim]anchor     {info['anchor']}[/]", highlight=False)
    admissible = ", ".join(info["admissible_actions"])
    if admissible not in info["label"]:  # some observations already list them
        console.print(Text.assemble(("admissible ", "dim"), admissible))


def picture(label: str) -> Text:
    """An anchor's label for the terminal: a Sokoban board in colour, any other text unchanged."""
    if not set(label) <= {*_TILES, " ", "\n"}:
        return Text(label)
    text = Text()
    for line in label.splitlines():
        for symbol in line.replace(" ", ""):
            text.append(*_TILES[symbol])
        text.append("\n")
    return text


def _verdict(info: dict[str, Any], reward: float, terminated: bool, truncated: bool) -> str:
    colour = "green" if info["success"] else "red" if truncated else "cyan" if info["valid"] else "yellow"
    end = "  solved" if info["success"] else "  out of steps" if truncated else "  over" if terminated else ""
    return f"[{colour}]{Text(info['action']).markup}  reward {reward:+.1f}  score {info['score']:.2f}{end}[/]"
