"""Every shape in which models reply, by every door: an agent that knows the way succeeds, and a reply that is none says
why."""

from __future__ import annotations

import json
import shlex
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from chat_server import Server
from paths import ROOT
from reply_shapes import SHAPES, Shape, expert_moves, expert_replies, known_move

from crbc_envs import ChatEpisode, read_recording
from crbc_lab import cli
from crbc_lab.evaluation.record import read_evaluation
from crbc_rl.adapters.trl_rollouts import GroupRollouts
from crbc_rl.config import load_config

KWARGS = {"observation": "text", "num_boxes": 1, "height": 5, "width": 5, "max_steps": 20}
TASKS = range(2)
shapes = pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
in_text = pytest.mark.parametrize("shape", [s for s in SHAPES if s.in_text], ids=lambda shape: shape.name)
"""The others are fields of a server's message: a text alone cannot have them."""


@pytest.fixture(scope="module")
def moves() -> dict[str, str]:
    return expert_moves("CRBC-Sokoban-v0", "test", TASKS, **KWARGS)


@pytest.fixture
def serve(moves: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Any:
    """The address of a server that replies in a shape."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    servers = []

    def serve(shape: Shape, known: dict[str, str] = moves) -> Server:
        server = Server()
        servers.append(server)
        server.answer = lambda body: (200, {}, shape.completion(*known_move(known, body["messages"][-1]["content"])))
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        return server

    yield serve
    for server in servers:
        server.shutdown()
        server.server_close()


def crbc(*words: object) -> int:
    try:
        cli.main([str(word) for word in words])
    except SystemExit as ended:
        return int(ended.code or 0)
    return 0


def write_config(path: Path, **sections: Any) -> Path:
    env = {"id": "CRBC-Sokoban-v0", "kwargs": KWARGS, "history": 0, **sections.pop("env", {})}
    path.write_text(json.dumps({"env": env, **sections}))
    return path


@pytest.mark.parametrize(
    ("shape", "prompt"),
    [*((shape, "compact") for shape in SHAPES), (SHAPES[0], "text")],
    ids=lambda value: getattr(value, "name", value),
)
def test_an_evaluation_by_endpoint_tells_the_success(
    shape: Shape, prompt: str, serve: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    config = write_config(tmp_path / "c.yaml", name="x", model="nowhere", env={"prompt": prompt})
    server = serve(shape)
    where = ["--endpoint", server.url, "--model", "m", "--tasks", "0,1", "--out", "x.json"]
    status = crbc("eval", config, *where)
    result, printed = read_evaluation(Path("x.json"))["result"], capsys.readouterr().out
    assert (status, result["success"]) == ((1, 0.0) if shape.cause else (0, 1.0))
    assert result.get("invalid_by_cause", {}) == ({shape.cause: 1.0} if shape.cause else {})
    assert not shape.cause or f"invalid replies by cause: {shape.cause} 100.0%" in printed
    asked = server.bodies[0]
    assert "<action>" in asked["messages"][-1]["content"] and asked["max_tokens"] == 4_096
    assert ("how to reply is added" in printed) == (prompt == "compact")
    kept = read_recording("x.transcripts.parquet")
    assert len(kept.groups) == 2 and kept.env_id == "CRBC-Sokoban-v0" and kept.turns
    assert asked["messages"][-1]["content"] in [turn.prompt for turn in kept.turns]
    assert {turn.cause for turn in kept.turns} == {shape.cause or ""}


@shapes
def test_a_prompting_agent_tells_the_success(
    shape: Shape, serve: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    config = write_config(tmp_path / "a.yaml", name="x", agent="direct", episodes=2, env={"prompt": "text"})
    status = crbc("agents", config, "--endpoint", serve(shape).url, "--model", "m", "--run", "run")
    assert status == (1 if shape.cause else 0)
    result = json.loads(Path("run/agents.json").read_text())
    assert result["success"]["success"] == (0.0 if shape.cause else 1.0)
    kept = read_recording("run/transcripts/test-000000.parquet")
    files = [read_recording(f"run/rollouts/seed0/{task:06d}.parquet") for task in range(2)]
    assert [one for file in files for one in file.groups] == kept.groups and kept.anchor == files[0].anchor
    assert result["invalid_by_cause"] == ({shape.cause: 1.0} if shape.cause else {})
    kept = result["invalid_replies"].get(shape.cause, ())
    assert bool(kept) == bool(shape.cause) and len(kept) == len(set(kept)) <= 3


@shapes
def test_a_react_agent_reads_a_line_behind_any_thought(
    shape: Shape, serve: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    config = write_config(tmp_path / "a.yaml", name="x", agent="react", episodes=1, react={"examples": 0})
    status = crbc("agents", config, "--endpoint", serve(shape).url, "--model", "m", "--run", "run")
    assert status == (1 if shape.cause else 0)
    result = json.loads(Path("run/agents.json").read_text())
    assert result["success"]["success"] == (0.0 if shape.cause else 1.0)
    assert set(result["invalid_by_cause"]) == ({shape.cause} if shape.cause else set())


@shapes
def test_a_conversation_of_ones_own_tells_the_success(shape: Shape, moves: dict[str, str]) -> None:
    episode = ChatEpisode("CRBC-Sokoban-v0", split="test", history=0, **KWARGS)
    messages = episode.begin(0)
    while messages:
        move = known_move(moves, messages[-1]["content"])
        messages = episode.reply(shape.text(*move), shape.finish_reason)
    assert episode.success == (not shape.cause)
    assert set(episode.causes) == {shape.cause} and len(episode.causes) == len(episode.rows)


@in_text
def test_a_trainer_of_trl_tells_the_success(shape: Shape, moves: dict[str, str]) -> None:
    rollouts = GroupRollouts("CRBC-Sokoban-v0", 2, history=0, prompt="text", **KWARGS)

    def generate(asked: list[str], *_: Any) -> tuple[list[list[int]], None]:
        end = [] if shape.ended == "length" else [0]
        return [[*map(ord, shape.text(*known_move(moves, text))), *end] for text in asked], None

    trainer = SimpleNamespace(
        args=SimpleNamespace(seed=0),
        state=SimpleNamespace(global_step=0),
        accelerator=SimpleNamespace(process_index=0),
        eos_token_ids=[0],
        processing_class=SimpleNamespace(decode=lambda ids: "".join(map(chr, ids))),
        _tokenize_prompts=lambda prompts: ([messages[-1]["content"] for messages in prompts], None, None),
        _generate_single_turn=generate,
    )
    table = rollouts(["test/0"] * rollouts.rows, trainer)
    assert set(table["success"]) == {0.0 if shape.cause else 1.0}
    assert {cause for episode in rollouts.played for cause in episode.causes} == {shape.cause}


README = ("all four tags", "bare words", "thought opened by the template", "thought kept apart by the server")


@pytest.mark.parametrize("shape", [s for s in SHAPES if s.name in README], ids=lambda shape: shape.name)
def test_the_readmes_line_for_a_served_model_tells_its_success(
    shape: Shape, household: dict[str, str], serve: Any, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.chdir(ROOT)
    (line,) = (line for line in (ROOT / "README.md").read_text().splitlines() if line.startswith("crbc eval configs/"))
    server = serve(shape, household)
    words = shlex.split(line, comments=True)[1:]
    words[words.index("http://localhost:8000/v1")] = server.url
    assert crbc(*words, "--episodes", 3) == 0
    assert "NAME: success 100.0%" in capsys.readouterr().out


@pytest.fixture(scope="module")
def household() -> dict[str, str]:
    return expert_replies(load_config(ROOT / "configs/alfworld_tiny.yaml"), "test", range(3))
