"""Nothing that a game, a recording, a config, a server or a model holds acts on the terminal or as markup."""

from __future__ import annotations

import io
import shlex
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium
import pytest
from learner_fixtures import write_config
from play_session import session
from rich.console import Console
from warm import Warm

from anchors import anchor_key
from crbc_envs import AnchorEnv
from crbc_envs.spaces import UnicodeText
from crbc_envs.tasks import Task, TaskPanel
from crbc_lab import cli
from crbc_lab.commands import evaluate, train
from crbc_lab.commands.console import PlainConsole, view_command
from crbc_lab.plan.show import print_plan
from crbc_rl.policies.chat import ChatPolicy

HOSTILE = {
    "colours": "\x1b[31mX\x1b[0m",
    "clears": "X\x1bc\x9b2J",
    "returns": "X\r\b\x00",
    "reversed": "X\u202e\u2066\u200f",
    "half a pair": "X\ud800",
    "markup": "[red]X[/red]",
    "open markup": "[link=x]X[/] :boom: [bold",
    "long": "X" * 1_000_000,
}


@pytest.fixture(params=HOSTILE.values(), ids=HOSTILE)
def text(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def acts(printed: str) -> str:
    """The characters of what was printed that a terminal would not merely show."""
    return "".join({symbol for symbol in printed if not symbol.isprintable() and symbol != "\n"})


def fits(printed: str, text: str) -> None:
    assert "X" in printed and not acts(printed)
    assert len(printed) < 600_000
    if text.isprintable() and len(text) < 100:  # markup is shown as it is
        assert text in printed


class Tasks(TaskPanel[str]):
    def __init__(self, text: str) -> None:
        super().__init__("train", size=2)
        self.text = text

    def _task(self, index: int) -> Task[str]:
        return Task(f"x/train/{index} {self.text}", self.text, self.text, f"{index}")


class HostileEnv(AnchorEnv[str, str]):
    """Holds one text wherever an environment has one."""

    domain = "hostile"

    def __init__(self, text: str, as_page: bool = False) -> None:
        super().__init__(Tasks(text), 3)
        self.text, self.as_page = text, as_page
        self.action_space = UnicodeText(examples=(text,))
        self.observation_space = UnicodeText(max_length=2_000_000)

    def _begin(self, task: str) -> None:
        self.steps = 0

    def _execute(self, action: str) -> float:
        self.steps += 1
        return 0.0

    def _admissible(self) -> tuple[str, ...]:
        return (self.text, f"take {self.text}", f"take {self.text} 2", *(f"go {i} {self.text[:50]}" for i in range(12)))

    def _observation(self) -> str:
        return f"You see {self.text}"

    def _label(self) -> str:
        return self._observation()

    def _anchor(self) -> str:
        return anchor_key(str(self.steps))

    def _success(self) -> bool:
        return False

    def page(self) -> Any:
        return [("Here:", self.text), (self.text,), ("a", "b", self.text)] if self.as_page else None


@pytest.fixture(params=[False, True], ids=["text", "page"])
def env_id(request: pytest.FixtureRequest, text: str) -> Iterator[str]:
    name = "HostileTest-v0"
    gymnasium.register(name, entry_point=lambda split="train": HostileEnv(text, request.param))
    yield name
    gymnasium.registry.pop(name)


def test_a_game_is_shown(env_id: str, text: str) -> None:
    with suppress(UnicodeEncodeError):  # half a pair is no action
        printed = "".join(session("help", "go", text[:100], "again", "q", env_id=env_id, task=0))
        fits(printed, text)


def test_an_error_is_one_line(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    cli.tell(f"a\n{text}")
    printed = capsys.readouterr().err
    assert printed.count("\n") == 1
    fits(printed, text)


ARGUMENTS = [
    ("{}",),
    ("train", "{}"),
    ("train", "sokoban-tiny", "--set", "{}"),
    ("train", "sokoban-tiny", "--set", "env.id={}", "--dry-run"),
    ("train", "sokoban-tiny", "--seed", "{}"),
    ("play", "{}"),
    ("view", "{}"),
    ("eval", "sokoban-tiny", "--endpoint", "http://{}/v1", "--model", "{}", "--episodes", "1"),
    ("data", "webshop", "--from", "{}"),
    ("serve", "webshop", "--host", "{}"),
    ("init", "{}"),
]


@pytest.mark.parametrize("args", ARGUMENTS, ids=" ".join)
def test_a_wrong_argument_is_one_line(
    args: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("clears", "reversed", "markup"):
        filled = [word.format(HOSTILE[name].replace("\0", "")) for word in args]
        with pytest.raises(SystemExit) as ended:
            cli.main(filled)
        assert ended.value.code == 2, (name, capsys.readouterr())
        printed = capsys.readouterr()
        assert not acts(printed.out + printed.err) and printed.err.count("\n") == 1, name


def print_results(console: Console, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """All that `crbc eval` prints."""
    numbers = {"truncated": False, "score": 1.0, "return": 1.0, "length": 3, "invalid": 1, "shortened": 1}
    texts = {"kind": text, "cluster": text, "content": text}
    rows = [{"task": i, "repeat": 0, "success": i == 0, **numbers, **texts} for i in range(2)]
    monkeypatch.setattr(evaluate, "_played", lambda *args: rows)
    monkeypatch.setattr(evaluate, "check_run", lambda *args, **kwargs: SimpleNamespace(require=lambda: None))
    monkeypatch.setattr(ChatPolicy, "check", lambda policy: False)
    config = write_config(Path("c.yaml"), Path("none"))
    evaluate.evaluate(config, ChatPolicy("http://127.0.0.1:9/v1", text), evaluate.Order("test", 2), console)


def print_outcome(console: Console, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """All that `crbc train` prints at its end."""
    record = {"update": 3, "test/success": 0.5, "test/low": 0.1, "test/high": 0.9, "test/episodes": 2}
    monkeypatch.setattr(train, "write_report", lambda folder: folder)
    monkeypatch.setattr(train, "read_metrics", lambda folder: [record | {f"test/success/{text}": 0.5}] * 2)
    train.show_outcome(Path(text), 3, console)
    monkeypatch.setattr(train, "read_metrics", lambda folder: [])
    train.show_outcome(Path(text), 3, console)


def print_a_plan(console: Console, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from crbc_lab.plan.plan import make_plan
    from crbc_rl.config import load_config

    config = load_config(write_config(Path("c.yaml"), Path("none")))
    config = config.model_copy(update={"name": text})
    print_plan(make_plan(config, None, 80.0, False), console, Path("runs"))


PRINTS = [print_results, print_outcome, print_a_plan]


@pytest.mark.parametrize("prints", PRINTS, ids=lambda function: function.__name__)
def test_what_commands_print_is_shown(
    prints: Callable[..., None], text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "\0" in text or len(text) > 1_000:
        text = "X\r\b\x0c"
    monkeypatch.chdir(tmp_path)
    out = io.StringIO()
    console = PlainConsole()
    console.file, console.width = out, 400
    prints(console, text, monkeypatch)
    fits(out.getvalue(), text)


def test_colours_of_our_own_are_still_sent() -> None:
    out = io.StringIO()
    console = PlainConsole()
    console.file, console._force_terminal, console._color_system = out, True, console._color_system
    console.print("[bold]X[/]\x1b[31m")
    assert "\x1b[31m" not in out.getvalue() and "X\ufffd[31m" in out.getvalue().replace("\x1b[0m", "")


CODE = """
import logging, warnings
from crbc_lab import cli
from crbc_lab.commands import table
from crbc_rl.errors import keep_secret

def fail():
    "Fails."
    keep_secret("hush-hush")
    logging.getLogger("crbc_rl.x").warning("%s", {text!r} + " hush-hush")
    warnings.warn({text!r} + " http://me:hush@host")
    raise KeyError({text!r} + " hush-hush")

table.COMMANDS["doctor"] = fail
cli.main(["doctor"])
"""


@pytest.mark.parametrize("name", ["returns", "markup"])
def test_warnings_logs_and_bugs_are_one_line_each_without_keys(warm: Warm, name: str, tmp_path: Path) -> None:
    err = warm.run(["-c", CODE.format(text=HOSTILE[name])], tmp_path, {"TMPDIR": str(tmp_path)}).err
    assert err.count("\n") == 3 and "hush" not in err and not acts(err)
    assert err.count("[key]") == 3 and "warning: " in err and "a bug in crbc" in err
    (kept,) = tmp_path.glob("crbc-error-*.log")
    assert "hush" not in kept.read_text()
    assert kept.stat().st_mode & 0o077 == 0


def test_a_printed_command_is_one_that_a_shell_takes() -> None:
    assert view_command(Path("r/a.parquet")) == "crbc view r/a.parquet"
    path = "my run/it's $(mine).parquet"
    assert shlex.split(view_command(Path(path))) == ["crbc", "view", path]
