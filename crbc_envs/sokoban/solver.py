"""Exact search: how many moves each state is from a solution, which moves are best, and what a state is worth.

A state is one integer here: a bit for the floor cell of each box, then the number of the player's cell.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from heapq import heappop, heappush

from crbc_envs.sokoban.rules import MOVES, Room, State

MAX_STATES = 200_000
"""Where the backward search stops widening; a 6x6 room with three boxes has fewer than 8,000 states."""

MAX_EXPANDED = 2_000_000
"""Where the search for one solution gives up."""


class _Graph:
    """A room's states as integers, and the steps between them.

    `forth[i]` holds (move, neighbour, its box bit, the box bit beyond or 0) for a player at cell i,
    `back[i]` (neighbour, its box bit, box bit of i, the box bit on the other side of i or 0).
    """

    def __init__(self, room: Room) -> None:
        self.cells = sorted(room.floor)
        self.number = {cell: i for i, cell in enumerate(self.cells)}
        self.low = len(self.cells).bit_length()
        bit = {cell: 1 << self.low + i for i, cell in enumerate(self.cells)}
        self.bit = bit
        self.goal = sum(bit[target] for target in room.targets)
        ways = list(room.shifts.items())
        self.forth = [
            [(m, self.number[c + s], bit[c + s], bit.get(c + 2 * s, 0)) for m, s in ways if c + s in bit]
            for c in self.cells
        ]
        self.back = [
            [(self.number[c - s], bit[c - s], bit[c], bit.get(c + s, 0)) for _, s in ways if c - s in bit]
            for c in self.cells
        ]

    def encode(self, state: State) -> int:
        """Raises `KeyError` where the player or a box is on no floor."""
        return sum(self.bit[box] for box in state.boxes) + self.number[state.player]

    def decode(self, code: int) -> State:
        player = code & (1 << self.low) - 1
        boxes = code >> self.low
        return State(self.cells[player], frozenset(cell for i, cell in enumerate(self.cells) if boxes >> i & 1))


class Distances(Mapping[State, int]):
    """Moves to the nearest solved state, by state; dead ends are missing. `layers[d]` holds the codes of
    the states that are d moves away, for `decode`."""

    def __init__(self, room: Room, max_states: int) -> None:
        self._graph = graph = _Graph(room)
        # A player never stands on a box, so a solved state has the player off the targets.
        layer = [graph.goal + i for i, cell in enumerate(graph.cells) if cell not in room.targets]
        self._distance = dict.fromkeys(layer, 0)
        self.layers = [layer]
        while self.layers[-1] and len(self._distance) < max_states:
            self.layers.append(self._before(self.layers[-1], len(self.layers)))

    def _before(self, layer: list[int], depth: int) -> list[int]:
        """The states one move further than those of `layer`: a walk, and perhaps a push, leads from them to it."""
        distance, back, mask = self._distance, self._graph.back, (1 << self._graph.low) - 1
        reached = []
        for code in layer:
            player = code & mask
            for came_from, its_bit, here, ahead in back[player]:
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
        """The box bits of the targets: `code & goal` is 0 where no box is in place."""
        return self._graph.goal

    def decode(self, code: int) -> State:
        return self._graph.decode(code)

    def __getitem__(self, state: State) -> int:
        return self._distance[self._graph.encode(state)]

    def __iter__(self) -> Iterator[State]:
        return map(self._graph.decode, self._distance)

    def __len__(self) -> int:
        return len(self._distance)


def distances(room: Room, max_states: int = MAX_STATES) -> Distances:
    """Moves to the nearest solved state, for every state that can be solved (of a large room: the
    nearest `max_states` of them, whole layers at a time).

    Breadth first and backwards from the solved states. A state that is missing is a dead end.
    """
    return Distances(room, max_states)


def best_moves(room: Room, state: State, distance: Mapping[State, int]) -> tuple[str, ...]:
    """The moves that bring a solution one step nearer, in the order of `MOVES`; none at a dead end."""
    here = distance.get(state)
    if not here:
        return ()
    return tuple(move for move in MOVES if distance.get(room.move(state, move), here) == here - 1)


def optimal_value(length: int | None, beta: float = 0.98, horizon: int | None = None) -> float:
    """V* of a state `length` moves from a solution: the discounted success beta^length of a best policy.

    Success is worth beta when it is one move away, as in the closure's backups (eq. 7). 0 at a dead end (None) and
    where the `horizon` steps that are left do not suffice.
    """
    if length is None or (horizon is not None and length > horizon):
        return 0.0
    return float(beta**length)


@dataclass(frozen=True, slots=True)
class Solution:
    """A shortest solution: its `moves`, or None at a dead end, from which no moves solve the room."""

    moves: tuple[str, ...] | None

    @property
    def length(self) -> int | None:
        return None if self.moves is None else len(self.moves)

    @property
    def deadlock(self) -> bool:
        return self.moves is None

    def value(self, beta: float = 0.98, horizon: int | None = None) -> float:
        """V* of the state it begins at: `optimal_value` of its length."""
        return optimal_value(self.length, beta, horizon)


def solve(room: Room, state: State | None = None, max_expanded: int = MAX_EXPANDED) -> Solution:
    """A shortest solution in moves from `state`, the room's start by default. Exact, for any size.

    A* with the pushes that each box alone is from the nearest target as its bound; a box without any
    is stuck for good. Raises `ValueError` where `max_expanded` states do not settle it.
    """
    graph = _Graph(room)
    pushes = _pushes(room, graph)
    # Every floor cell's share of the bound, by its bit; None is a cell no box ever leaves for a target.
    bound = {graph.bit[cell]: pushes.get(cell) for cell in graph.cells}
    start = graph.encode(state or room.start)
    first = [bound[graph.bit[box]] for box in (state or room.start).boxes]
    if None in first:
        return Solution(None)
    queue = [(sum(n for n in first if n is not None), 0, start)]
    came: dict[int, tuple[int, str]] = {}
    depth = {start: 0}
    mask, expanded = (1 << graph.low) - 1, 0
    while queue:
        estimate, minus_steps, code = heappop(queue)
        steps = -minus_steps
        if steps > depth[code]:
            continue  # a shorter way here was found since
        player = code & mask
        if code - player == graph.goal:
            return Solution(_path(came, start, code))
        expanded += 1
        if expanded > max_expanded:
            raise ValueError(f"solve: {max_expanded} states did not settle this {room.height}x{room.width} room")
        for move, there, box, beyond in graph.forth[player]:
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
    return Solution(None)


def _pushes(room: Room, graph: _Graph) -> dict[int, int]:
    """Pushes from a cell to the nearest target for a box alone in the room; cells without a way are missing."""
    pushes = dict.fromkeys(sorted(room.targets), 0)
    queue = list(pushes)
    for cell in queue:  # grows while it is read: breadth first
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
