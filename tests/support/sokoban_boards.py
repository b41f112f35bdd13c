"""Sokoban on a board that is written down."""

from __future__ import annotations

from crbc_envs.sokoban.env import SokobanEnv
from crbc_envs.sokoban.rules import Room, parse_room
from crbc_envs.tasks import Task, TaskPanel


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
