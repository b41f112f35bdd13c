"""The published generator of the paper's Sokoban boards. It gives the original board for each seed.

`paper_room` draws the boards of RAGEN's variant (MIT) of gym-sokoban (mpSchrader/gym-sokoban, MIT), as used by
verl-agent (Apache-2.0), from which we infer that the paper's runs came. It digs a floor by a random walk, places the
player and the targets, puts a box on each target, and searches backwards, by pulling boxes, for the state with the
highest score. Then it moves the player a few steps.

The original draws from the global streams of Python and numpy. Here each board has its own two streams with the same
seeds, so it depends on its arguments alone.

If a try fails (too few floor cells, or no box that can be pulled), the next try continues the same streams, as in
gym-sokoban. verl-agent restarts a failed seed from `abs(hash(str(seed)))`, which differs between processes unless
PYTHONHASHSEED is set. Such a seed (6 of the first 16,000 at 6x6 with one box) has no fixed board there; here it has
the board of the next try.
"""

from __future__ import annotations

import random
from typing import NamedTuple

import numpy as np

from crbc_envs.sokoban.rules import Room, State

MAX_TRIES = 1_000
"""The maximum number of tries per board. At 6x6 one or two are enough."""

MAX_STATES = 300_000
"""The maximum number of states that either search visits. A 6x6 room with one box has fewer than 500."""

_HEADINGS = ((1, 0), (0, 1), (-1, 0), (0, -1))

_BRUSHES = (
    ((0, -1), (0, 0), (0, 1)),
    ((-1, 0), (0, 0), (1, 0)),
    ((0, -1), (0, 0), (1, 0)),
    ((0, -1), (0, 0), (1, -1), (1, 0)),
    ((0, 0), (0, 1), (1, 0)),
)
"""The cells that one step of the digging walk clears, as (row, column) offsets."""


class _Best(NamedTuple):
    score: int
    displacement: int
    player: int
    boxes: tuple[int, ...]


def paper_room(seed: int, height: int = 6, width: int = 6, num_boxes: int = 1, search_depth: int = 30) -> Room:
    """The board of verl-agent's Sokoban for `seed`. The defaults are its settings.

    Raises `ValueError` if no such room of this size was found, or for a seed outside 0 to 2**32 - 1.
    """
    chance = random.Random(seed)
    room, displacement = _draw(chance, seed, (height, width), num_boxes, search_depth)
    player = _move_player(chance, room, 0.8 if displacement == 1 else 0.5)
    return Room(height, width, room.floor, room.targets, State(player, room.start.boxes))


def _draw(chance: random.Random, seed: int, shape: tuple[int, int], num_boxes: int, depth: int) -> tuple[Room, int]:
    """The first valid room, and the distance of its boxes from their targets."""
    height, width = shape
    if num_boxes < 1:
        raise ValueError(f"a room has at least one box, got num_boxes={num_boxes}")
    if min(shape) < 3 or (height - 2) * (width - 2) < num_boxes + 2:
        raise ValueError(f"a {height}x{width} room is too small for {num_boxes} boxes")
    places = np.random.RandomState(seed)
    for _ in range(MAX_TRIES):
        cells = _dig(chance, height, width)
        if len(cells) < num_boxes + 2:
            continue
        player, *targets = (cells.pop(places.randint(len(cells))) for _ in range(num_boxes + 1))
        floor = frozenset(cells).union(targets, [player])
        best = _search_backwards(floor, width, player, tuple(targets), depth)
        if best.score > 0:
            start = State(best.player, frozenset(best.boxes))
            return Room(height, width, floor, frozenset(targets), start), best.displacement
    raise ValueError(f"no {height}x{width} room with {num_boxes} boxes in {MAX_TRIES} tries")


def _dig(chance: random.Random, height: int, width: int) -> list[int]:
    """The cells that a random walk clears, sorted. The outermost ring stays wall."""
    brushes = [[row * width + column for row, column in brush] for brush in _BRUSHES]
    heading = chance.choice(_HEADINGS)
    row, column = chance.randint(1, height - 1), chance.randint(1, width - 1)
    cleared: set[int] = set()
    for _ in range(int(1.7 * (height + width))):
        if chance.random() < 0.35:
            heading = chance.choice(_HEADINGS)
        row = min(max(row + heading[0], 1), height - 2)
        column = min(max(column + heading[1], 1), width - 2)
        cell = row * width + column
        cleared.update([cell + offset for offset in chance.choice(brushes)])
    return sorted(c for c in cleared if 0 < c // width < height - 1 and 0 < c % width < width - 1)


def _search_backwards(floor: frozenset[int], width: int, player: int, targets: tuple[int, ...], depth: int) -> _Best:
    """The first state with the highest score, in a depth-first search of `depth` - 1 levels from the solved board.

    The score of a state is its swaps, which are pulls of another box than the one before, times the distance of its
    boxes from their targets, and 0 while a target is covered. Each board is visited once, on the first path that
    reaches it and with the depth left on that path, so the search order matters. A board where a box was pulled away
    and back counts as another board, because the published boards depend on it.
    """
    area = max(floor) + 1
    away = [[abs(c // width - t // width) + abs(c % width - t % width) for c in range(area)] for t in targets]
    shifts = (1, -1, width, -width)
    # Last in, first out: up is tried first.
    goals = frozenset(targets)
    best = _Best(0, 0, player, targets)
    entered: set[int] = set()
    # A board has one bit per box: at its cell, or at its cell + `area` once it was pulled.
    stack = [(player, targets, sum(1 << t for t in targets), 0, -1, depth - 1)]
    while stack and len(entered) < MAX_STATES:
        player, boxes, board, swaps, last, left = stack.pop()
        key = board * area + player
        if key in entered:
            continue
        entered.add(key)
        if swaps and player not in goals and goals.isdisjoint(boxes):
            displacement = sum([row[box] for row, box in zip(away, boxes, strict=True)])
            if swaps * displacement > best.score:
                best = _Best(swaps * displacement, displacement, player, boxes)
        if left < 2:
            continue
        for shift in shifts:
            ahead, behind = player + shift, player - shift
            if ahead not in floor or ahead in boxes:
                continue
            if behind in boxes:
                i = boxes.index(behind)
                pulled = (*boxes[:i], player, *boxes[i + 1 :])
                was = 1 << behind if board >> behind & 1 else 1 << area + behind
                stack.append((ahead, pulled, board - was + (1 << area + player), swaps + (i != last), i, left - 1))
            else:  # without a box behind, a pull is a walk
                stack.append((ahead, boxes, board, swaps, last, left - 1))
    return best


def _move_player(chance: random.Random, room: Room, likelihood: float) -> int:
    """The player's start cell. With probability `likelihood` it first takes one to three steps, without going back."""
    player, boxes = room.start
    if chance.random() > likelihood:
        return player
    free = set(room.floor - boxes)
    for _ in range(3):
        free.discard(player)
        ways = [player + shift for shift in room.shifts.values() if player + shift in free]
        if not ways:
            break
        player = chance.choice(ways)
        if chance.random() > 0.5:
            break
    return player
