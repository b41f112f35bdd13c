"""`crbc play`: play an environment in the terminal, with its anchors and admissible actions."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from crbc_envs.actions import tagged
from crbc_envs.core import Infos, Rows
from crbc_envs.errors import DataError
from crbc_envs.printable import printable
from crbc_envs.vector.contract import ForeignEnv, Member
from crbc_envs.vector.members import creator, make_member
from crbc_lab.commands import screen
from crbc_lab.commands.bench import arguments
from crbc_lab.commands.terminal import ARROWS, Keyboard, Lines, keyboard
from crbc_lab.commands.words import COMMANDS, Form, meaning
from crbc_rl.config import RunConfig, parse, read_mapping
from crbc_rl.config.extensions import environment_errors, is_extension, typed_id
from crbc_rl.errors import ConfigError, nearest
from crbc_rl.names import find_config, known, names

KEYS = {"?": "help", "A": "again", "N": "next", "Q": "quit"}
"""Keys that act at once where the arrow keys do. Small letters begin an action."""
MANY = 12
"""From so many actions on, they are listed in groups, and not all of those that a line may have meant are named."""
BESIDE = 6
"""Lines that the screen needs beside a page."""
OVER = "The episode is over: 'again', 'next' or 'quit'."
INTRODUCTION = "Type an action or its first letters. Tab completes. Free of cost: help, again, next, quit."


def play(
    given: str,
    split: str,
    task: int | None,
    seed: int,
    console: Console,
    read: Callable[[str], str] | None = None,
    settings: Sequence[str] = (),
    unsafe_root: bool = False,
) -> None:
    """Play episodes until the user quits, in an environment or in that of a config or a run. `settings` are its options
    as key=value. `read` returns the user's input for a prompt; by default the terminal does. `unsafe_root` lets an
    environment run its browser as root.

    Raises `ConfigError` for an id that is not registered or not playable, and for a task that the panel does not have.
    """
    env_id, options = named(given)
    options |= arguments(settings, "split", "unsafe_root")
    with closing(_make(env_id, options, split, unsafe_root)) as env:
        size = len(env.panel)
        if task is not None and not 0 <= task < size:
            raise ConfigError(f"--task {task}: the {split} panel of {env_id} has tasks 0 to {size - 1}")
        Game(env, console, Lines(read) if read else keyboard(), seed).run(task)


def named(given: str) -> tuple[str, dict[str, Any]]:
    """The registered id of an environment, and its options: those that a config or a run has.

    The module of a "module:Id" may be in the current folder. Whoever types its name has permitted its import.
    """
    if is_extension(given) or given.rpartition(":")[2] in gymnasium.registry:
        return typed_id(given), {}
    if not (Path(given).exists() or known(Path(given), "config", "run")):
        ids = [name for name in gymnasium.registry if name.startswith("CRBC-")]
        near = nearest(given, ids if get_close_matches(given, ids) else [*ids, *names()], cutoff=0.6)
        raise ConfigError(f"no environment {given!r}, and no config or run of that name{near}")
    path = find_config(Path(given))
    data = {key: value for key, value in read_mapping(path).items() if key in RunConfig.model_fields}
    config = parse(RunConfig, data, str(path), path.parent)
    return config.registered_id(), dict(config.env.kwargs)


def _make(name: str, options: Mapping[str, Any], split: str, unsafe_root: bool) -> Member:
    """The environment. Raises `ConfigError` if it is none that can be played."""
    with environment_errors(f"{name} cannot be played", name):
        env = make_member(name, {**options, **_options(name, split, unsafe_root)})
        if isinstance(env, ForeignEnv):
            env.check()
    return env


def _options(env_id: str, split: str, unsafe_root: bool) -> dict[str, Any]:
    """The arguments of the environment. Raises `ConfigError` for an option that it has no use for."""
    parameters = inspect.signature(creator(env_id)).parameters
    takes_any = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    takes_split = takes_any or "split" in parameters
    if not takes_split and split != "train":
        raise ConfigError(f"--split {split}: {env_id} has no splits, leave the option out")
    if unsafe_root and "unsafe_root" not in parameters:
        raise ConfigError(f"--unsafe-root: {env_id} starts no browser, leave the option out")
    return {**({"split": split} if takes_split else {}), **({"unsafe_root": True} if unsafe_root else {})}


class Game:
    """A person at an environment: the episode that is played, and what is shown of it."""

    def __init__(self, env: Member, console: Console, person: Lines | Keyboard, seed: int) -> None:
        self.env, self.console, self.person = env, console, person
        self.rng = np.random.default_rng(seed)
        self.task, self.seed = 0, seed
        self.observation: Any = None
        self.info: Infos = {}
        self.over = False
        self.forms: dict[Form, None] = {}
        """The actions with words of one's own met so far. They may be admissible where they are not listed."""
        self.refused = ""
        """The last line, if it was not sent because it is no action."""

    def run(self, task: int | None) -> None:
        """Play until the user quits, which the end of the input and Ctrl-C do too."""
        try:
            self._begin(self._drawn() if task is None else task, self.seed)
            if not self._keys():
                self._say(INTRODUCTION, "dim")
            while self._do(self.person.ask("action> ", self._words(), self._keys()).strip()):
                pass
        except (EOFError, KeyboardInterrupt):
            self.console.print()

    # ---- what can be typed and pressed -----------------------------------------------------------

    @property
    def _actions(self) -> tuple[str, ...]:
        return tuple(self.info["admissible_actions"])

    def _words(self) -> list[str]:
        """The words that Tab completes. An action with words of one's own is completed up to these."""
        own = self.env.placeholder
        shown = (action for action in self._actions if action.isprintable())
        return [*(action.partition(own)[0] if own else action for action in shown), *COMMANDS]

    def _keys(self) -> dict[str, str]:
        """The line that each key stands for. Unless an arrow key is an action there are none, and lines are typed."""
        arrows = {name: name for name in ARROWS if name in self._actions}
        if not arrows or not self.person.has_keys:
            return {}
        taken = {action[:1] for action in self._actions}
        return arrows | {key: line for key, line in KEYS.items() if key not in taken}

    def _do(self, line: str) -> bool:
        """Do what the line says. False if it ends the game."""
        if not line:
            return True
        meant = meaning(line, self._actions, self.env.accepts, self.forms)
        insisted, self.refused = line == self.refused, ""
        if meant.command and meant.choices and not insisted:
            self.refused = line
            self._say(f"The action is {meant.choices[0]!r}. Enter {line!r} again for {COMMANDS[line]}.", "yellow")
            return True
        if meant.command == "quit":
            return False
        if meant.command == "help":
            self._help()
        elif meant.command in ("again", "next"):
            task = self.task if meant.command == "again" else self._drawn()
            self._begin(task, self.seed + 1)  # another seed, so that noise is not repeated
        elif self.over:
            self._say(OVER, "yellow")
        elif meant.choices:
            more = f" and {len(meant.choices) - MANY} more" * (len(meant.choices) > MANY)
            self._say(f"{line!r} may be: {', '.join(meant.choices[:MANY])}{more}", "yellow")
        elif meant.reply or insisted:
            self._step(meant.reply or line)
        else:
            self.refused = line
            near = f"; did you mean {meant.near!r}?" if meant.near else "."
            self._say(f"{line!r} is no action here{near} It was not sent; enter it again to send it so.", "yellow")
        return True

    # ---- what is done ------------------------------------------------------------------------------

    def _drawn(self) -> int:
        return int(self.rng.integers(len(self.env.panel)))

    def _begin(self, task: int, seed: int) -> None:
        self.task, self.seed, self.over = task, seed, False
        try:
            observation, info = self.env.reset(seed=seed, options={"task": task})
        except DataError:
            raise
        except ValueError as error:  # some panels can only be judged with a task
            raise ConfigError(f"task {task}: {error}") from error
        self._see(observation, info)

    def _step(self, reply: str) -> None:
        observation, reward, terminated, truncated, info = self.env.step(reply)
        self.over = terminated or truncated
        self._see(observation, info)
        self._say(*_verdict(self.info, float(reward), terminated, truncated))
        if self.over:
            self._say(OVER, "yellow")

    def _see(self, observation: Any, info: Infos) -> None:
        self.observation, self.info = observation, info
        for action in self._actions:
            head, own, tail = action.partition(self.env.placeholder or "\n")
            if own:
                self.forms[head, tail] = None
        self._show()

    # ---- what is shown -------------------------------------------------------------------------------

    def _say(self, text: str, style: str = "") -> None:
        self.console.print(Text(printable(text), style=style))

    def _show(self) -> None:
        """The situation. A game that is played with keys stays where it is on the terminal; any other scrolls."""
        if self._keys():
            self.console.clear()
        limit = f" of {self.env.max_steps}" if self.env.max_steps else ""
        title = f"{self.info['task_id']}  step {self.info['step']}{limit}"
        self.console.rule(Text(printable(title)), align="left", style="dim")
        rows = self.env.page()
        if rows is None:
            self._show_text(self.observation if isinstance(self.observation, str) else str(self.info["label"]))
        else:
            self._show_page(rows)
        self._say(f"anchor     {self.info['anchor']}", "dim")
        if self._keys():
            self._say(_footer(self._keys()), "dim")

    def _show_text(self, text: str) -> None:
        self._show_task(text)
        listed = ", ".join(self._actions)
        if len(listed) > self.console.width:  # they are easier to read below
            text = text.replace(listed, "listed below")
        self.console.print(Padding(screen.picture(text, self.env.legend), (0, 0, 0, 2), expand=False))
        if listed not in text:
            self._list_actions()

    def _show_page(self, rows: Rows) -> None:
        said = "\n".join(cell for row in rows for cell in row)
        self._show_task(said)
        room = self.console.height - BESIDE if self.console.is_terminal else None
        self.console.print(screen.page(rows, self._actions, self.console.width, room))
        if not all(screen.bracket(action) in said for action in self._actions):
            self._list_actions()

    def _show_task(self, said: str) -> None:
        if self.info["task"] and self.info["task"] not in said:
            self._say(f"Task: {self.info['task']}")

    def _list_actions(self) -> None:
        if len(self._actions) < MANY:
            self.console.print(Text.assemble(("admissible ", "dim"), printable(", ".join(self._actions))))
        else:
            self.console.print(screen.page(screen.grouped(self._actions), self._actions, self.console.width))

    def _help(self) -> None:
        keys = self._keys()
        rows = [
            ("Task:", self.info["task"]),
            *([("Keys:", _footer(keys))] if keys else []),
            ("Actions:", "type one, or its first letters where they are clear; Tab completes it on a terminal."),
            *((f"{command}:", what) for command, what in COMMANDS.items()),
        ]
        self.console.print(screen.page(rows, (), self.console.width))
        if self.env.legend:
            self.console.print(Text("Symbols:  ") + screen.explained(self.env.legend))
        for action in self._actions:
            if action in COMMANDS:
                self._say(f"The environment has a {action!r} of its own, which costs a step: {tagged(action)}")
        self._list_actions()


def _footer(keys: Mapping[str, str]) -> str:
    return "   ".join(["arrow keys move", *(f"{key} {line}" for key, line in keys.items() if key in KEYS)])


def _verdict(info: Infos, reward: float, terminated: bool, truncated: bool) -> tuple[str, str]:
    """What a step came to, and its colour."""
    colour = "green" if info["success"] else "red" if truncated else "cyan" if info["valid"] else "yellow"
    end = "  solved" if info["success"] else "  out of steps" if truncated else "  over" if terminated else ""
    return f"{info['action']}  reward {reward:+.1f}  score {info['score']:.2f}{end}", colour
