"""The section `env` inside other trainers, and what verl's chat template was given in a folder of its checkpoint."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import gymnasium
import lake_env
import pytest
from transformers import AutoTokenizer

from crbc_rl.adapters.chat_env import chat_episode, env_config
from crbc_rl.adapters.verl_folder import keep_in_template
from crbc_rl.errors import ConfigError

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(
    ("env", "told"),
    [
        ({}, r"data\.env\.id names no environment"),
        ({"id": "CRBC-Sokoban-v0", "promt": "text"}, r"data: unknown key 'env\.promt'; did you mean 'prompt'"),
        ({"id": "CRBC-Sokoban-v0", "revision": "0" * 64}, r"data\.env\.revision: it is of installed official data"),
    ],
)
def test_a_wrong_section_is_one_sentence(env: Any, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        env_config(env, "data")


def test_an_environment_has_arguments_that_an_episode_has_too() -> None:
    def make(prompt: str, history: int, **options: Any) -> Any:
        made = lake_env.make(**options)
        made.told = prompt, history
        return made

    gymnasium.register("Told-v0", entry_point=make)
    play = chat_episode(env_config({"id": "Told-v0", "kwargs": {"prompt": "mine", "history": 7}}, "data"), "train")
    assert play.env.unwrapped.told == ("mine", 7)
    assert play.begin(0, 0)[0]["content"].startswith("Task: Walk on the ice")


def test_a_folder_s_template_has_what_it_was_given_in_training(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(ROOT / "warmstarts/sokoban-tiny", folder)
    template = (
        "{{ messages[0].content }}{% if thinking is defined and not thinking %} {{ name }} {{ nothing }}{% endif %}"
    )
    (folder / "chat_template.jinja").write_text(template, "utf-8")
    given: dict[str, Any] = {"thinking": False, "name": 'it\'s "up"\n', "nothing": None}
    trained = AutoTokenizer.from_pretrained(folder)
    messages = [{"role": "user", "content": "up"}]
    keep_in_template({}, folder)
    assert (folder / "chat_template.jinja").read_text("utf-8") == template
    keep_in_template(given, folder)
    kept = AutoTokenizer.from_pretrained(folder).apply_chat_template(messages, tokenize=False)
    assert kept == trained.apply_chat_template(messages, tokenize=False, **given) == 'up it\'s "up"\n None'
    keep_in_template({"chat_template": "another{{ thinking }}", "thinking": True}, folder)
    assert AutoTokenizer.from_pretrained(folder).apply_chat_template(messages, tokenize=False) == "anotherTrue"
