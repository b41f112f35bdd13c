"""Lessons with made-up words: what is common stays, the rest changes alike in prompt and reply."""

from __future__ import annotations

import re

import numpy as np
import pytest

from crbc_rl.errors import ConfigError
from crbc_rl.policies.copying import Exchange, MadeUpWords

THINGS = [
    f"{a}{b}" for a in ("apple", "ladle", "pillow", "kettle", "statue") for b in ("wood", "ware", "let", "ish", "ory")
]
LESSONS = [(f"Task: bring the {thing}.\n[{thing}] 12\n{thing.capitalize()}", f"take {thing} now") for thing in THINGS]


def exchanged(lesson, seed=0):
    return MadeUpWords.of(LESSONS).exchange(*lesson, np.random.default_rng(seed))


def test_a_rare_word_becomes_the_same_other_word_everywhere():
    prompt, reply = exchanged(LESSONS[0])
    thing = re.fullmatch(r"take (\w+) now", reply)[1]
    assert thing not in THINGS[:1]
    assert prompt == LESSONS[0][0].replace("applewood", thing).replace("Applewood", thing.capitalize())


def test_a_code_keeps_its_first_half_and_changes_alike():
    prompt, reply = exchanged(("take[b0genj7xq]\nB0GENJ7XQ 1234567 bring", "take[b0genj7xq]"))
    code = re.fullmatch(r"take\[(b0ge\w{5})\]", reply)[1]
    assert code != "b0genj7xq" and prompt == f"take[{code}]\n{code.upper()} 1234567 bring"


def test_words_of_the_form_and_numbers_stay():
    words = MadeUpWords.of(LESSONS)
    assert {"task", "bring", "the", "take", "now"} <= words.common and not words.common & set(THINGS)
    assert "] 12\n" in exchanged(LESSONS[3])[0]


def test_the_draws_are_the_generators():
    assert exchanged(LESSONS[1], seed=4) == exchanged(LESSONS[1], seed=4) != exchanged(LESSONS[1], seed=5)


def test_no_two_words_become_one_and_none_becomes_a_common_one():
    words = MadeUpWords({"apple", "let"}, THINGS)
    for seed in range(20):
        one = Exchange(words, np.random.default_rng(seed))
        made = one.made(" ".join(THINGS)).split()
        assert len(set(made)) == len(THINGS) and not words.common & set(made)
        assert one.original(" ".join(made)) == " ".join(THINGS)


def test_a_single_rare_word_leaves_no_other_one():
    assert Exchange(MadeUpWords({}, ["apple"]), np.random.default_rng(0)).made("apple ladle") == "appple appple"


def test_lessons_of_common_words_alone_stay_as_they_are():
    words = MadeUpWords.of([("go up", "up")] * 30)
    assert words.exchange("go up", "up", np.random.default_rng(0)) == ("go up", "up")


def test_what_is_said_in_made_up_words_comes_back_in_the_original_ones():
    words = MadeUpWords.of(LESSONS)
    one = Exchange(words, np.random.default_rng(0))
    text = "Task: bring the applewood.\n[B0GENJ7XQ] Kettleory"
    made = one.made(text)
    assert made != text and one.original(made) == text
    assert one.original("take unknown 7 and the b0gen00") == "take unknown 7 and the b0gen00"


def test_words_are_saved_and_read_again(tmp_path):
    words = MadeUpWords.of(LESSONS)
    words.save(tmp_path)
    again = MadeUpWords.load(tmp_path)
    assert again.common == words.common and again.rare == words.rare


@pytest.mark.parametrize("text", [None, "", "{}", "[]", '{"common": []}', '{"common": 1, "rare": 2}', "\xff"])
def test_a_folder_without_words_is_one_error(tmp_path, text):
    if text is not None:
        (tmp_path / "words.json").write_text(text, encoding="latin-1")
    with pytest.raises(ConfigError, match=r"rollout\.made_up: .* has no readable words\.json"):
        MadeUpWords.load(tmp_path)
