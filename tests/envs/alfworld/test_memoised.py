"""TextWorld memoised, as the long comparison plays it: it must answer as TextWorld does."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("textworld")

from crbc_envs.alfworld import conformance
from crbc_envs.alfworld.engine.conformance import INVALID_COMMANDS, conform
from crbc_envs.alfworld.engine.game import parse
from crbc_envs.alfworld.engine.memoised import memoised
from crbc_envs.alfworld.engine.textworld import TextWorldGame
from crbc_envs.alfworld.experts.expert import plan
from crbc_envs.alfworld.games.generate import VERBS, generate_game, reworded
from crbc_envs.storage.outcomes import read_outcomes


def answers(file, commands, rng):
    """What TextWorld says along the commands, each after a random one, and the answer to that."""
    game, told = TextWorldGame(file), []
    node = game.root
    for command in commands:
        options = (*node.admissible, *INVALID_COMMANDS)
        other = game.step(node, options[rng.integers(len(options))])
        node = game.step(node, command)
        told += [(n.feedback, n.admissible, n.won, n.added, n.removed) for n in (other, node)]
    return told


@pytest.mark.full
@pytest.mark.parametrize("verb", VERBS)
def test_memoised_answers_are_textworld_s_own(verb):
    """Two games one after the other, so that what the first left behind would show."""
    files = [generate_game(np.random.default_rng(n), ("pick2", "heat")[n], size="small", verb=verb) for n in range(2)]
    walks = [("inventory", "help", *plan(parse(file)), "look") for file in files]
    own = [answers(file, walk, np.random.default_rng(0)) for file, walk in zip(files, walks, strict=True)]
    with memoised():
        fast = [answers(file, walk, np.random.default_rng(0)) for file, walk in zip(files, walks, strict=True)]
    assert fast == own
    assert own[0] != own[1]


def test_memoising_ends_with_its_context():
    import fast_downward
    from textworld.envs.pddl import logic, textgen

    def changed():
        return fast_downward.pddl2sas, logic._parse_and_convert, textgen._parse_and_convert, textgen.copy_context

    before = changed()
    with memoised():
        assert all(now is not own for now, own in zip(changed(), before, strict=True))
    assert changed() == before


def test_a_game_in_other_words_is_the_same_game():
    new = generate_game(np.random.default_rng(4), "pick", size="small")
    new = conformance._planned(new)
    old = reworded(new, "put")
    assert old.problem == new.problem and old.grammar != new.grammar
    assert any(command.startswith("put ") and " in/on " in command for command in old.walkthrough)
    assert reworded(old, "move").walkthrough == new.walkthrough
    assert parse(old).task == parse(new).task
    with memoised():
        assert not conform(old, steps=12, seed=0).difference


def test_everything_has_both_wordings_and_goes_on_where_it_stopped(tmp_path, monkeypatch):
    from crbc_envs.alfworld.games.generate import write_game

    for n in range(3):
        game = generate_game(np.random.default_rng(n), "pick", size="small")
        write_game(game, tmp_path / "train" / f"t{n}" / "trial")
    monkeypatch.setattr(conformance, "GENERATED", 1)
    games = conformance.everything(tmp_path)
    assert [game.name for game in games] == ["t0/trial (move)", "t1/trial (put)", "t2/trial (move)", "generated/0"]
    out = tmp_path / "done.jsonl"
    first = next(conformance.play_everything(games, 6, 0, out))
    assert (first.game, first.difference) == ("t0/trial (move)", "")
    outcomes = list(conformance.play_everything(games, 6, 0, out))
    assert [o.game for o in outcomes] == [game.name for game in games]
    assert all(o.steps >= 6 and o.won and not o.difference for o in outcomes)
    assert read_outcomes(out) == outcomes
