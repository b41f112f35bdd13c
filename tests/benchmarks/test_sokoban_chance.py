import pytest

from benchmarks.sokoban_chance import chance
from crbc_envs.sokoban.rules import Room, State


@pytest.mark.parametrize(("steps", "all_four", "avoiding"), [(1, 1 / 4, 1 / 2), (2, 1 / 4 + 1 / 8, 1 / 2)])
def test_chance_is_that_of_the_draws(steps, all_four, avoiding):
    """A corridor of four cells, player in the second, box in the third, target in the fourth: one push right."""
    room = Room(3, 6, frozenset({7, 8, 9, 10}), frozenset({10}), State(8, frozenset({9})))
    assert chance(room, steps) == pytest.approx(all_four)
    assert chance(room, steps, 0.0) == pytest.approx(avoiding)
    assert chance(room, 1, 0.4) == pytest.approx(0.6 / 2)
