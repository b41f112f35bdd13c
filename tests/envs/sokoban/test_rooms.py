"""Sokoban: rules, solver and generated rooms."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice

import numpy as np
import pytest
from sokoban_boards import after, generate_room, parse_room

import crbc_envs  # noqa: F401  registers the id
from crbc_envs.sokoban.published import paper_room
from crbc_envs.sokoban.rooms import empty_rooms
from crbc_envs.sokoban.rules import MOVES, State
from crbc_envs.sokoban.solver import Starts, best_moves, distances, solve

CORRIDOR = "#######\n#@$_._#\n#_____#\n#######"
TWO = "#######\n#@$.__#\n#_$.__#\n#######"


@pytest.fixture(scope="module")
def rooms():
    rng = np.random.default_rng(11)
    return [generate_room(rng) for _ in range(200)]


# ---- rules ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("what", "board", "moves", "expected"),
    [
        ("walk", CORRIDOR, ["down"], "#######\n#_$_._#\n#@____#\n#######"),
        ("walk into a wall", CORRIDOR, ["up"], CORRIDOR),
        ("push", CORRIDOR, ["right"], "#######\n#_@$._#\n#_____#\n#######"),
        ("push onto a target", CORRIDOR, ["right", "right"], "#######\n#__@*_#\n#_____#\n#######"),
        ("push off a target", CORRIDOR, ["right"] * 3, "#######\n#___+$#\n#_____#\n#######"),
        ("push into a wall", CORRIDOR, ["right"] * 4, "#######\n#___+$#\n#_____#\n#######"),
        ("push a box into a box", "######\n#@$$_#\n#..__#\n######", ["right"], "######\n#@$$_#\n#..__#\n######"),
        ("never pull", CORRIDOR, ["right", "left"], "#######\n#@_$._#\n#_____#\n#######"),
        ("push upwards", "#####\n#._##\n#$_##\n#@_##\n#####", ["up"], "#####\n#*_##\n#@_##\n#__##\n#####"),
    ],
)
def test_a_move_does_what_sokoban_does(what, board, moves, expected):
    assert after(board, *moves) == expected, what


def test_a_room_is_solved_when_every_box_is_on_a_target():
    room = parse_room(TWO)
    one = room.move(room.start, "right")
    assert [room.solved(room.start), room.solved(one)] == [False, False]
    assert room.solved(State(one.player, room.targets))


def test_text_and_room_are_two_forms_of_one_thing(rooms):
    for room in rooms:
        assert parse_room(room.text(room.start)) == room
        done = replace(room, start=State(min(room.floor - room.targets), room.targets))
        assert parse_room(done.text(done.start).replace(" ", "")) == done


# ---- solver ---------------------------------------------------------------------------------------


def test_best_moves_are_exactly_those_that_bring_a_solution_nearer(rooms):
    for room in rooms[:50]:
        distance = distances(room)
        for state in list(distance)[:40]:
            best = best_moves(room, state, distance)
            nearer = [m for m in MOVES if distance.get(room.move(state, m), np.inf) < distance[state]]
            assert list(best) == nearer
            assert bool(best) == (distance[state] > 0)
            assert all(distance[room.move(state, move)] == distance[state] - 1 for move in best)


def test_a_dead_end_has_no_distance_and_no_best_move():
    room = parse_room("#####\n#$_@#\n#__.#\n#####")
    distance = distances(room)
    assert room.start not in distance
    assert best_moves(room, room.start, distance) == ()


def random_states(room, rng, count):
    """States a random walk comes to, dead ends among them."""
    state = room.start
    for _ in range(count):
        for _ in range(rng.integers(1, 8)):
            state = room.move(state, MOVES[rng.integers(4)])
        yield state


@pytest.mark.parametrize("boxes", [1, 2, 3])
def test_a_solution_is_a_shortest_one_and_there_is_none_at_a_dead_end(boxes):
    rng = np.random.default_rng(boxes)
    dead = 0
    for _ in range(12):
        room = generate_room(rng, num_boxes=boxes)
        distance = distances(room)
        for state in (room.start, *random_states(room, rng, 12)):
            solution = solve(room, state)
            assert (solution is None) == (state not in distance)
            dead += solution is None
            if solution is not None:
                assert len(solution) == distance[state]
                for move in solution:
                    assert not room.solved(state)
                    state = room.move(state, move)
                assert room.solved(state)
    assert dead > 10


def test_a_published_board_with_three_boxes_is_solved_in_as_few_moves_as_can_be():
    room = paper_room(0, 8, 8, 3)
    assert len(solve(room)) == distances(room)[room.start] == 17


def test_a_search_that_does_not_settle_a_room_says_so():
    with pytest.raises(ValueError, match="solve: 5 states are too few for this 8x8 room"):
        solve(paper_room(0, 8, 8, 3), max_expanded=5)


def test_distances_are_a_mapping_of_states():
    room = parse_room(CORRIDOR)
    distance = distances(room)
    assert dict(distance)[room.start] == distance[room.start] == 2
    assert len(distance) == len(list(distance)) == sum(map(len, distance.layers))
    with pytest.raises(KeyError):
        distance[State(0, room.targets)]  # a player in a wall


# ---- rooms ---------------------------------------------------------------------------------------


def test_every_generated_room_starts_unsolved_and_can_be_solved_in_twelve_moves(rooms):
    for room in rooms:
        assert 1 <= distances(room)[room.start] <= 12
        assert not room.start.boxes & room.targets
        assert room.start.player in room.floor - room.start.boxes
        assert len(room.start.boxes) == len(room.targets) == 1


def test_a_bound_on_the_distance_is_kept():
    rng = np.random.default_rng(8)
    for _ in range(20):
        room = generate_room(rng, max_length=3)
        assert 1 <= distances(room)[room.start] <= 3


@pytest.mark.parametrize(("height", "width", "boxes"), [(3, 4, 1), (4, 4, 2), (6, 6, 8), (0, 0, 1)])
def test_a_room_too_small_for_its_boxes_is_refused(height, width, boxes):
    with pytest.raises(ValueError, match=f"a {height}x{width} room is too small for {boxes} boxes"):
        next(empty_rooms(np.random.default_rng(0), height, width, boxes))


def test_a_room_without_boxes_is_refused():
    with pytest.raises(ValueError, match="a room has at least one box"):
        next(empty_rooms(np.random.default_rng(0), 6, 6, 0))


def test_a_size_no_room_has_is_not_searched_for_ever():
    layouts = list(islice(empty_rooms(np.random.default_rng(0), 4, 4, 1), 2_000))
    assert len(layouts) < 2_000
    assert not any(Starts(layout, 12).of_length for layout in layouts)
