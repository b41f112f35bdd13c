"""`crbc play`: a scripted reader plays."""

from __future__ import annotations

import io
import sys
from contextlib import closing
from pathlib import Path

import foreign_envs  # noqa: F401  registers Countdown-v0 and HintedSokoban-v0
import gymnasium
import lake_env
import numpy as np
import pytest
from play_session import session
from rich.console import Console

from crbc_envs.checking.fuzz import fuzzed_reply
from crbc_envs.vector.members import make_member
from crbc_lab import cli
from crbc_lab.commands.play import play
from crbc_rl.errors import ConfigError


def seen_in(env_id: str, task: int, *replies: str, **options: object) -> str:
    """The last observation after these replies."""
    with closing(gymnasium.make(env_id, **options).unwrapped) as env:
        observation, _ = env.reset(seed=0, options={"task": task})
        for reply in replies:
            observation, *_ = env.step(reply)
    return observation


def test_the_board_has_the_symbols_of_the_text():
    first, moved, _ = session("r")
    for shown, replies in ((first, ()), (moved, ("right",))):
        for line in seen_in("CRBC-Sokoban-v0", 12, *replies, observation="text").splitlines():
            assert f"  {line}\n" in shown
    assert "sokoban-v3/train/12  step 0 of 15" in first and "sokoban-v3/train/12  step 1 of 15" in moved
    assert "anchor  " in first and "up, down, left, right" in first
    assert "right  reward -0.1  score 0.00" in moved


def test_a_line_that_is_no_action_is_sent_only_if_it_is_entered_again():
    _, refused, sent, suggested, _ = session("bogus", "bogus", "rigth")
    assert "'bogus' is no action here" in refused and "step" not in refused
    assert "step 1 of 15" in sent and "<invalid>" in sent
    assert "did you mean 'right'?" in suggested and "step 2" not in suggested


def test_another_line_between_ends_the_insistence():
    assert "step 1" not in "".join(session("bogus", "help", "bogus", "h", "bogus"))


def test_play_ends_the_episode_at_its_limit():
    *_, last, over, restarted, _ = session(*["bogus"] * 30, "up", "again", "quit")
    assert "out of steps" in last and "The episode is over" in last
    assert over.strip() == "The episode is over: 'again', 'next' or 'quit'."
    assert "train/12  step 0" in restarted


def test_the_shop_is_a_page():
    first, results, item, _ = session("search remote control", "click[b0", env_id="CRBC-WebShop-v0", task=3, width=80)
    assert "Instruction:  " in first and "[search]" in first
    assert "[SEP]" not in first + results and "[button]" not in first + results
    assert "[back to search]  Page 1 (Total results: 16)  [next >]" in results
    assert "search[remote control]  reward +0.0" in results
    assert "'click[b0' may be: click[b0gen" in item
    assert all(len(line) <= 80 for line in (first + results).splitlines())


def test_a_button_that_is_called_like_a_command():
    env_id = "CRBC-WebShop-v0"
    _, _, asked, clicked, _, other, _ = session("search[lamp]", "next", "next >", "next", "next", env_id=env_id, task=3)
    assert "The action is 'click[next >]'. Enter 'next' again for another task." in asked
    assert "Page 2" in clicked
    assert "step 0 of 15" in other and "train/3 " not in other


def test_any_environment_that_keeps_the_contract_can_be_played():
    first, moved, *_ = session("r", env_id="lake_env:Lake-v0", task=5)
    assert "Ice lies right." in first and "step 1 of 100" in moved
    assert "two  reward +0.0" in session("tw", env_id="foreign_envs:Countdown-v0", task=4)[1]
    first, refused, *_ = session("bogus", env_id="foreign_envs:HintedSokoban-v0", task=12)
    assert "  # # # # # #\n" in first and "is no action" in refused


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"env_id": "CartPole-v1"}, "CartPole-v1 cannot be played: info has no 'anchor' at reset; .*AnchorWrapper"),
        ({"env_id": "foreign_envs:NumberedSokoban-v0"}, "its actions are not text but Discrete"),
        ({"env_id": "foreign_envs:Countdown-v0", "split": "test"}, "--split test: Countdown-v0 has no"),
        ({"task": 100_000}, "--task 100000: "),
        ({"env_id": "Narrow-v0", "task": 0}, "task 0: FrozenLake: none of 200 seeds begins a task"),
    ],
)
def test_what_cannot_be_played_is_one_line(options, message):
    with pytest.raises(ConfigError, match=message) as caught:
        session(**options)
    assert "\n" not in str(caught.value)


def narrow_lake(split: str = "train", **options: object) -> gymnasium.Env:
    """Two tasks are wanted of an environment that always begins alike; the train split has it by chance, or not."""
    from crbc_envs import AnchorWrapper

    inner = gymnasium.make("FrozenLake-v1")
    return AnchorWrapper(inner, lambda env, cell: "bow" + str(cell), success=lambda *seen: False, tasks=2, split=split)


gymnasium.register("Narrow-v0", entry_point=narrow_lake)


def test_input_that_is_closed_ends_the_game(monkeypatch, capsys):
    monkeypatch.setattr("sys.stdin", None)
    cli.main(["play", "CRBC-Sokoban-v0", "--task", "1"])
    assert "step 0 of 15" in capsys.readouterr().out


def test_ctrl_c_ends_the_game():
    def interrupt(prompt: str) -> str:
        raise KeyboardInterrupt

    play("CRBC-Sokoban-v0", "train", 1, 0, Console(file=io.StringIO()), interrupt)


@pytest.mark.parametrize("env_id", ["CRBC-Sokoban-v0", "CRBC-ALFWorld-v0", "CRBC-WebShop-v0", "HintedSokoban-v0"])
def test_an_environment_accepts_exactly_what_it_then_executes(env_id):
    rng, accepted = np.random.default_rng(0), 0
    with closing(make_member(env_id, {})) as env:
        over = True
        for episode in range(300):
            if over:
                _, info = env.reset(seed=episode)
            admissible = info["admissible_actions"]
            reply = str(rng.choice(admissible)) if episode % 2 else fuzzed_reply(rng, admissible)
            told = env.accepts(reply)
            assert env.accepts(reply) == told
            *_, terminated, truncated, info = env.step(reply)
            assert info["valid"] == told
            over = terminated or truncated
            accepted += told
    assert 150 <= accepted < 300


def test_the_module_of_ones_own_environment_may_lie_here(tmp_path: Path, monkeypatch):
    source = Path(lake_env.__file__).read_text(encoding="utf-8").replace("Lake-v0", "Pond-v0")
    (tmp_path / "pond_env.py").write_text(source, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [*sys.path])
    first, *_ = session(env_id="pond_env:Pond-v0", task=5)
    assert "step 0 of 100" in first
