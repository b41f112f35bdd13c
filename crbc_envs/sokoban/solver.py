"""Exact search: the distance of each state to a solution, the best moves, and the value of a state.

A state is encoded as one integer: high bits for the floor cells of boxes, low bits for the number of the player's cell.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from heapq import heappop, heappush

import numpy as np

from crbc_envs.sokoban.rules import MOVES, Room, State

MAX_STATES = 200_000
"""The number of states at which the backward search stops. A 6x6 room with three boxes has fewer than 8,000."""

MAX_LAYOUT_STATES = 50_000
"""The number of states at which the search of one layout stops adding layers."""

MAX_EXPANDED = 2_000_000
"""The number of expanded states at which the search for one solution gives up."""


class _Graph:
    """The states of a room as integers, and the steps between them.

    For a player at cell i, `forward[i]` has (move, neighbour, its box bit, the box bit beyond it or 0), and
    `backward[i]` has (neighbour, its box bit, box bit of i, the box bit on the other side of i or 0).
    """

    def __init__(self, room: Room) -> None:
        self.cells = sorted(room.floor)
        self.number = {cell: i for i, cell in enumerate(self.cells)}
        self.low = len(self.cells).bit_length()
        bit = {cell: 1 << self.low + i for i, cell in enumerate(self.cells)}
        self.bit = bit
        self.goal = sum(bit[target] for target in room.targets)
        ways = list(room.shifts.items())
        self.forward = [
            [(m, self.number[c + s], bit[c + s], bit.get(c + 2 * s, 0)) for m, s in ways if c + s in bit]
            for c in self.cells
        ]
        self.backward = [
            [(self.number[c - s], bit[c - s], bit[c], bit.get(c + s, 0)) for _, s in ways if c - s in bit]
            for c in self.cells
        ]

    def encode(self, state: State) -> int:
        """The integer of a state. Raises `KeyError` if the player or a box is not on the floor."""
        return sum(self.bit[box] for box in state.boxes) + self.number[state.player]

    def decode(self, code: int) -> State:
        player = code & (1 << self.low) - 1
        boxes = code >> self.low
        return State(self.cells[player], frozenset(cell for i, cell in enumerate(self.cells) if boxes >> i & 1))


class Distances(Mapping[State, int]):
    """The moves to the nearest solved state, by state. Dead ends are missing.

    `layers[d]` has the codes of the states that are d moves away, for `decode`. `complete` tells whether the search
    saw every state; otherwise a missing one may also be further away than the last layer.
    """

    def __init__(self, room: Room, max_states: int, max_distance: int | None) -> None:
        self._graph = graph = _Graph(room)
        # A player never stands on a box, so a solved state has the player off the targets.
        layer = [graph.goal + i for i, cell in enumerate(graph.cells) if cell not in room.targets]
        self._distance = dict.fromkeys(layer, 0)
        self.layers = [layer]
        while self.layers[-1] and len(self._distance) < max_states and len(self.layers) - 1 != max_distance:
            self.layers.append(self._before(self.layers[-1], len(self.layers)))
        self.complete = not self.layers[-1]

    def _before(self, layer: list[int], depth: int) -> list[int]:
        """The new states from which one move, a walk or a push, leads to a state of `layer`."""
        distance, backward, mask = self._distance, self._graph.backward, (1 << self._graph.low) - 1
        reached = []
        for code in layer:
            player = code & mask
            for came_from, its_bit, here, ahead in backward[player]:
                if code & its_bit:
                    continue
                before = code - player + came_from
                if before not in distance:
                    distance[before] = depth
                    reached.append(before)
                if code & ahead:
                    before += here - ahead
                    if before not in distance:
                        distance[before] = depth
                        reached.append(before)
        return reached

    @property
    def goal(self) -> int:
        """The box bits of the targets. `code & goal` is 0 if no box is on a target."""
        return self._graph.goal

    def decode(self, code: int) -> State:
        return self._graph.decode(code)

    def __getitem__(self, state: State) -> int:
        return self._distance[self._graph.encode(state)]

    def __iter__(self) -> Iterator[State]:
        return map(self._graph.decode, self._distance)

    def __len__(self) -> int:
        return len(self._distance)


def distances(room: Room, max_states: int = MAX_STATES, max_distance: int | None = None) -> Distances:
    """The moves to the nearest solved state, for every solvable state.

    The search is breadth-first and backwards from the solved states. In a large room it stops after the layer that
    reaches `max_states`, and with `max_distance` after that layer. Otherwise a missing state is a dead end.
    """
    return Distances(room, max_states, max_distance)


def best_moves(room: Room, state: State, distance: Mapping[State, int]) -> tuple[str, ...]:
    """The moves that bring a solution one step nearer, in the order of `MOVES`. None at a dead end."""
    current = distance.get(state)
    if not current:
        return ()
    return tuple(move for move in MOVES if distance.get(room.move(state, move), current) == current - 1)


def solve(room: Room, state: State | None = None, max_expanded: int = MAX_EXPANDED) -> tuple[str, ...] | None:
    """The moves of a shortest solution from `state` (default: the room's start). It is exact for any size.

    None at a dead end, from which the room cannot be solved.

    A* search. Its lower bound is the sum over boxes of the pushes to the nearest target, each box alone in the room. A
    box that cannot reach a target makes a dead end. Raises `ValueError` if `max_expanded` states are not enough.
    """
    graph = _Graph(room)
    pushes = _pushes(room, graph)
    # The bound's term of every floor cell, by its bit. None: a box at this cell can never reach a target.
    bound = {graph.bit[cell]: pushes.get(cell) for cell in graph.cells}
    start = graph.encode(state or room.start)
    first = [bound[graph.bit[box]] for box in (state or room.start).boxes]
    if None in first:
        return None
    queue = [(sum(n for n in first if n is not None), 0, start)]
    came: dict[int, tuple[int, str]] = {}
    depth = {start: 0}
    mask, expanded = (1 << graph.low) - 1, 0
    while queue:
        estimate, minus_steps, code = heappop(queue)
        steps = -minus_steps
        if steps > depth[code]:
            continue  # a shorter path to this state was found meanwhile
        player = code & mask
        if code - player == graph.goal:
            return _path(came, start, code)
        expanded += 1
        if expanded > max_expanded:
            raise ValueError(
                f"solve: {max_expanded} states are too few for this {room.height}x{room.width} room; raise max_expanded"
            )
        for move, there, box, beyond in graph.forward[player]:
            after, rest = code - player + there, estimate - steps
            if code & box:
                gained = bound[beyond] if beyond and not code & beyond else None
                if gained is None:
                    continue
                after += beyond - box
                rest += gained - (bound[box] or 0)
            if steps + 1 < depth.get(after, steps + 2):
                depth[after] = steps + 1
                came[after] = (code, move)
                heappush(queue, (steps + 1 + rest, -steps - 1, after))
    return None


def _pushes(room: Room, graph: _Graph) -> dict[int, int]:
    """The pushes from each cell to the nearest target for a box alone in the room. Cells without a path are missing."""
    pushes = dict.fromkeys(sorted(room.targets), 0)
    queue = list(pushes)
    for cell in queue:  # the list grows during the loop: breadth-first search
        for shift in room.shifts.values():
            before = cell - shift
            if before not in pushes and before in graph.bit and before - shift in graph.bit:
                pushes[before] = pushes[cell] + 1
                queue.append(before)
    return pushes


def _path(came: dict[int, tuple[int, str]], start: int, code: int) -> tuple[str, ...]:
    moves = []
    while code != start:
        code, move = came[code]
        moves.append(move)
    return tuple(reversed(moves))


class Starts:
    """The starts of a layout with no box on a target, at most `longest` moves from a solution, by that distance.

    `of_length` holds them as codes of the search, and `searched` counts the states that the search saw.
    """

    def __init__(self, layout: Room, longest: int) -> None:
        self._layout = layout
        self._distances = distances(layout, MAX_LAYOUT_STATES, longest)
        self.searched = len(self._distances)
        self.of_length: dict[int, list[int]] = {}
        for length, layer in enumerate(self._distances.layers):
            starts = [code for code in layer if not code & self._distances.goal]
            if starts:
                self.of_length[length] = starts

    def draw(self, rng: np.random.Generator, length: int) -> Room:
        """A room of that length. All starts of that length are equally likely."""
        codes = self.of_length[length]
        return replace(self._layout, start=self._distances.decode(codes[rng.integers(len(codes))]))
