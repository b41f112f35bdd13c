"""Sokoban on a board that is written down."""

from __future__ import annotations

from crbc_envs.sokoban.env import SokobanEnv
from crbc_envs.sokoban.rooms import empty_rooms
from crbc_envs.sokoban.rules import BOX, BOX_ON_TARGET, PLAYER, PLAYER_ON_TARGET, SYMBOLS, TARGET, WALL, Room, State
from crbc_envs.sokoban.solver import Starts
from crbc_envs.tasks import Task, TaskPanel


def parse_room(text):
    """The room of a board in XSB notation. Spaces between symbols are allowed."""
    rows = [line.replace(" ", "") for line in text.strip().splitlines()]
    codes = [SYMBOLS.index(symbol) for symbol in "".join(rows)]

    def at(*kinds):
        return frozenset(cell for cell, code in enumerate(codes) if code in kinds)

    (player,) = at(PLAYER, PLAYER_ON_TARGET)
    floor, targets = frozenset(range(len(codes))) - at(WALL), at(TARGET, BOX_ON_TARGET, PLAYER_ON_TARGET)
    return Room(len(rows), len(rows[0]), floor, targets, State(player, at(BOX, BOX_ON_TARGET)))


def generate_room(rng, height=6, width=6, num_boxes=1, max_length=12):
    """Draw a room with no box on a target, 1 to `max_length` moves from a solution."""
    for room in empty_rooms(rng, height, width, num_boxes):
        starts = Starts(room, max_length)
        if lengths := list(starts.of_length):
            return starts.draw(rng, lengths[rng.integers(len(lengths))])
    raise AssertionError(f"no solvable {height}x{width} room with {num_boxes} boxes")


class OneBoard(TaskPanel[Room]):
    """A panel whose only task is the given board."""

    def __init__(self, room):
        super().__init__("train", 1)
        self.room = room

    def _task(self, index):
        return Task("board/0", "Solve it.", self.room, "0")


def on_board(board, **options):
    """An environment that has just begun the given board."""
    room = parse_room(board)
    env = SokobanEnv(height=room.height, width=room.width, num_boxes=len(room.targets), **options)
    env.panel = OneBoard(room)
    env.reset(seed=0)
    return env


def after(board, *moves):
    """A board as text after some moves."""
    room = parse_room(board)
    state = room.start
    for move in moves:
        state = room.move(state, move)
    return room.text(state).replace(" ", "")
