"""`crbc serve`: which command is meant, what it needs installed, and the same printed result as without a server."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import httpx
import pytest
import torch
from learner_fixtures import small
from refusals import refusal
from served import serving
from warm import Warm

from crbc_lab import cli
from crbc_lab.commands import serving as commands
from crbc_lab.evaluation.record import read_evaluation
from crbc_rl.errors import ConfigError
from crbc_rl.policies.load import load_policy
from crbc_rl.runs.folder import Run


@pytest.fixture(scope="module")
def run(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that has only begun: its initial model."""
    folder = tmp_path_factory.mktemp("runs") / "begun"
    Run.start(folder, small(model), resume=False)
    return folder


def test_an_evaluation_prints_the_same_lines(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.chdir(run.parent)
    asked = ["eval", str(run), "--episodes", "12", "--out"]
    cli.main([*asked, "here.json", "--policy", "start"])
    expected = capsys.readouterr().out
    with serving(commands.load(run, "start"), "start") as url, pytest.raises(SystemExit) as ended:
        cli.main([*asked, "there.json", "--endpoint", url, "--model", "start"])
    asked_as, printed = capsys.readouterr().out.split("\n", 1)
    printed = printed.replace("there.transcripts", "here.transcripts")
    figures = [line for line in expected.splitlines() if not line.startswith(("    ", "wrote"))]  # but for raw replies
    assert figures == [line for line in printed.splitlines() if not line.startswith(("    ", "wrote"))]
    assert "12 test tasks" in expected and "start was trained by crbc" in asked_as
    one, other = (read_evaluation(Path(name))["rows"] for name in ("here.json", "there.json"))
    assert one == other
    assert "invalid 100.0%" in printed and ended.value.code == 1  # it was never trained


@pytest.mark.parametrize(("which", "served"), [(None, "last"), ("last", "last"), ("best", "best"), ("start", "start")])
def test_the_last_policy_of_a_run_is_meant_where_none_is_named(
    run: Path, monkeypatch: pytest.MonkeyPatch, which: str | None, served: str
) -> None:
    policies = {name: SimpleNamespace(name=name) for name in ("last", "best", "start")}
    monkeypatch.setattr(Run, "policy", lambda self, name: policies[name])
    assert commands.load(run, which) is policies[served]


def test_a_run_without_a_checkpoint_has_no_last_policy(run: Path) -> None:
    with pytest.raises(ConfigError, match="no checkpoint yet"):
        commands.load(run, None)


def test_an_adapter_is_served_on_its_base(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    peft = pytest.importorskip("peft")
    plain, tuned = load_policy(model), load_policy(model)
    kinds = {"r": 4, "target_modules": ["q_proj", "down_proj"], "init_lora_weights": False}
    adapted = peft.get_peft_model(tuned.model, peft.LoraConfig(lora_alpha=16, task_type="CAUSAL_LM", **kinds))
    adapted.save_pretrained(tmp_path)
    ids = torch.tensor([plain.encode_text("Go.")])
    expected = adapted(ids).logits
    assert (plain.model(ids).logits - expected).abs().max() > 1e-2
    for base in (None, str(model)):
        found = commands.load(tmp_path, None, base)
        error = (found.model(ids).logits - expected).abs().max()  # they are merged in bfloat16
        assert error < 0.1 * (plain.model(ids).logits - expected).abs().max() and not found.adapted
    about = json.loads((tmp_path / "adapter_config.json").read_text())
    wrong = {"peft_type": "IA3"}, {"megatron_config": {"a": 1}}, {"r": 8}, {"target_modules": ["q_proj"]}
    for change in (*wrong, {"base_model_name_or_path": None}):
        (tmp_path / "adapter_config.json").write_text(json.dumps(about | change))
        with pytest.raises(ConfigError, match="adapter") as told:
            commands.load(tmp_path, None)
        assert "\n" not in str(told.value)
    with pytest.raises(ConfigError, match="no adapter, leave the option out"):
        commands.load(model, None, "other")


@pytest.mark.slow
def test_ctrl_c_ends_the_server_while_it_generates(warm: Warm, model: Path, tmp_path: Path) -> None:
    process = warm.start(["serve", "model", model, "--port", "0", "--name", "tiny"], tmp_path)
    process.until(lambda: "\n" in process.shown())
    line = process.shown()
    assert line.startswith("model tiny at http://127.0.0.1:") and "(Ctrl-C ends it)" in line
    url = line.split()[3]
    body = {"model": "tiny", "prompt": "Go.", "max_tokens": 2_000, "n": 128}
    answers: list[int] = []

    def ask() -> None:
        answers.append(httpx.post(f"{url}/completions", json=body, timeout=60, trust_env=False).status_code)

    thread = threading.Thread(target=ask)
    thread.start()
    time.sleep(1.0)
    os.kill(process.pid, signal.SIGINT)
    ended = process.wait()
    thread.join()
    assert (ended.out, ended.err, ended.status) == (f"{line}closed\n", "", 0) and answers == [500]


def test_openenv_gets_its_options(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    stub = ModuleType("crbc_rl.adapters.openenv_server")
    stub.serve = lambda *args, **options: asked.append((args, options))  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, stub.__name__, stub)
    monkeypatch.setattr(cli, "require", lambda *asked: None)
    words = ["CRBC-Sokoban-v0", "--set", "size=6", "replies=thought", "--prompt", "compact", "--sessions", "3"]
    cli.main(["serve", "openenv", *words, "--port", "0"])
    (args, options), *_ = asked
    assert args == ("CRBC-Sokoban-v0", {"prompt": "compact", "size": 6, "replies": "thought"})
    del options["console"]
    limits = {"sessions": 3, "idle_seconds": 600.0}
    assert options == {"host": "127.0.0.1", "port": 0, "exposed": False, **limits}


def test_each_command_asks_for_its_own_extras(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    wanted = {"train": ["torch"], "serve": ["uvicorn"], "openenv": ["openenv"]}
    monkeypatch.setattr(cli, "packages", lambda extra: wanted[extra])

    def told(missing: str, *args: str) -> str:
        monkeypatch.setattr(cli, "version", lambda name: None if name == missing else "1.0")
        return refusal(capsys, *args)

    assert "crbc serve model needs uvicorn" in told("uvicorn", "serve", "model", "nowhere")
    assert "crbc serve model needs torch" in told("torch", "serve", "model", "nowhere")
    assert "crbc serve openenv needs openenv" in told("openenv", "serve", "openenv", "CRBC-Sokoban-v0")
    assert "the crbc command needs torch" in told("torch", "serve", "webshop")
    assert "torch" not in told("torch", "serve", "openenv", "CRBC-Sokoban-v0", "--set", "size")


def test_reading_a_command_line_needs_no_learner(run_python: Callable[..., str]) -> None:
    """The commands are listed in an environment with tyro, rich and pyyaml."""
    code = "import sys, crbc_lab.commands.table; print(*{name.split('.')[0] for name in sys.modules})"
    loaded = set(run_python(code).split())
    assert "tyro" in loaded
    assert not loaded & {"torch", "transformers", "pydantic", "jinja2", "httpx2", "openai", "starlette", "openenv"}


def test_a_shop_at_a_port_in_use_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        said = refusal(capsys, "serve", "webshop", "--port", str(port), "--goals", "human", "--split", "test")
    assert f"cannot serve at 127.0.0.1 port {port}: Address already in use; choose another --port" in said
