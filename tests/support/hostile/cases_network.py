"""Chat servers, and texts that would act on the terminal."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

from raw_server import raw_server, reply

from hostile.case import Case

KEY = 'sk-not/a+re"al=key-93517'
ASKS = ("eval", "sokoban-tiny", "--episodes", "2", "--endpoint", "{url}", "--model", "m")
ESCAPES = "\x1b[2J\x1b]0;title\x07\x9b31m\u202e\r\b"


COMPLETION = json.dumps({"choices": [{"message": {"content": "up"}}]}).encode()


def chat(name: str, finding: str, says: tuple[str, ...], data: bytes, **options: object) -> Case:
    return Case(
        **{
            "name": f"chat-{name}",
            "finding": finding,
            "status": 2,
            "says": says,
            "argv": ASKS,
            "serve": partial(raw_server, lambda connection, request: connection.sendall(data)),
            **options,
        }
    )  # type: ignore[arg-type]


CHAT = [
    chat("honest", "what is honest still works", ("success",), reply(COMPLETION), status=0),
    chat(
        "echoes-key",
        "a key is in no message",
        ("answered 401", "[key]"),
        reply(f"no such key: {KEY} .".encode(), "401 Unauthorized"),
        argv=(*ASKS, "--key-variable", "SOME_KEY"),
        never=("real", "93517"),
        env={"SOME_KEY": KEY},
    ),
    chat(
        "escapes",
        "text on the terminal",
        ("answered 400", "[red]no"),
        reply(f"[red]no[/]{ESCAPES}".encode(), "400 Bad"),
    ),
    chat(
        "model-of-markup",
        "text on the terminal",
        ("[/]: success",),
        reply(COMPLETION),
        status=0,
        argv=(*ASKS[:-1], "[/]"),
    ),
]


# ---- the site's browser -----------------------------------------------------------------------------

SITE: list[Case] = []
if hasattr(os, "geteuid") and os.geteuid() == 0:
    SITE.append(
        Case(
            "browser-as-root",
            "the browser's sandbox",
            2,
            ("sandbox", "crbc_unsafe_root=1"),
            argv=("play", "CRBC-WebShopSite-v0"),
            env={"CRBC_UNSAFE_ROOT": ""},
            stdin="quit\n",
        )
    )


# ---- texts ------------------------------------------------------------------------------------------

GAME = """
import gymnasium
TEXT = {text!r}

class Game(gymnasium.Env):
    action_space = gymnasium.spaces.Text(99)
    observation_space = gymnasium.spaces.Text(99_999)

    def __init__(self, split="train"):
        self.spec = None

    def _info(self):
        return {{"anchor": "a", "admissible_actions": (TEXT, "go " + TEXT), "task": TEXT, "task_id": TEXT, "step": 0,
                 "label": TEXT, "action": TEXT, "valid": True, "success": False, "score": 0.0}}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return TEXT, self._info()

    def step(self, action):
        return TEXT, 0.0, False, False, self._info()

gymnasium.register("Hostile-v0", entry_point=Game)
"""


def game(text: str) -> Callable[[Path], None]:
    return lambda folder: (folder / "here" / "hostile_game.py").write_text(GAME.format(text=text), "utf-8") and None


def recording(text: str) -> Callable[[Path], None]:
    def make(folder: Path) -> None:
        from anchors import Rollout, RolloutGroup, Step
        from crbc_envs.storage.rollouts import RecordedTurn, write_groups

        group = RolloutGroup([Rollout([Step(text, text, 0.0, text)], True)], text)
        turn = RecordedTurn("p", text, -1.0, (1,), (2,))
        write_groups(folder / "here" / "r.parquet", [group], env_id=text, update=1, turns=[turn])

    return make


TEXTS = {
    "escapes": f"see {ESCAPES}",
    "markup": "see [/] [link=http://x]here[/link] [bold",
    "long": "see " + "x" * 600_000,
}


PRINTED = [
    Case(
        f"{what}-{name}",
        "text on the terminal",
        0,
        ("see",),
        make=make(text),
        argv=argv,
        stdin="\nquit\n",
    )
    for what, make, argv, names in (
        ("play", game, ("play", "hostile_game:Hostile-v0"), ("escapes", "markup")),
        ("replay", recording, ("play", "--replay", "r.parquet"), ("escapes", "long")),
    )
    for name, text in TEXTS.items()
    if name in names
]
PRINTED += [
    Case("argument-of-escapes", "text on the terminal", 2, ("no environment",), argv=("play", f"X{ESCAPES}")),
]

CASES = [*CHAT, *SITE, *PRINTED]
