"""Layered layout of a merged graph: anchors in columns by their distance from the start.

Geometry in SVG user units, y downwards. This module does not know what the nodes represent.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

GAP = 84.0
"""The least gap between two columns: space for crossing curves and short labels."""
LETTER = 6.2
"""The mean width of a character of a label."""
HEADROOM = 15.0
"""Space above a node, for its value."""
LOOPROOM = 27.0
"""Space below a node with self loops."""
MARGIN = 12.0
BOUNDARY_WIDTH = 64.0
"""The least width of a boundary node; its left side is aligned with an anchor's."""
Point = tuple[float, float]
Columns = list[list[int]]


@dataclass(frozen=True, slots=True)
class Link:
    """From node `source` to node `target`; the nodes are anchors 0 to n - 1, then n and n + 1, the
    success and the failure boundary. `label` only determines the space that it takes."""

    source: int
    target: int
    label: str


@dataclass(frozen=True, slots=True)
class Route:
    """How a link is drawn: its curve, its arrow head, and where its label is centred."""

    path: str
    head: str
    label: Point


@dataclass(frozen=True, slots=True)
class Layout:
    """`at` is the centre of each node, the boundaries last; `routes` follow the links given."""

    width: float
    height: float
    at: tuple[Point, ...]
    routes: tuple[Route, ...]


def lay_out(anchors: int, links: Sequence[Link], width: float, height: float) -> Layout:
    """Place `anchors` nodes of `width` x `height` and the two boundaries, and route `links`.

    Node 0 is the start and reaches all others. Edges to success run in a lane above all columns, edges to failure
    below, so that no long edge crosses a node.
    """
    depth = _depths(anchors, links)
    near = _neighbours(depth, links)
    columns = _order(depth, near)
    looped = {link.source for link in links if link.source == link.target}
    ys = _heights(columns, near, height, looped)
    gap = _gap(anchors, links)
    pitch = width + gap
    lanes = [sum(1 for link in links if link.target == anchors + i) for i in (0, 1)]
    top, bottom = min(ys), max(ys)
    # A lane leaves space for the values above and the loops below the outermost nodes.
    success_y = top - height / 2 - HEADROOM - MARGIN - _lane_width(lanes[0]) / 2 - 8
    failure_y = bottom + height / 2 + LOOPROOM + MARGIN + _lane_width(lanes[1]) / 2 + 4
    end = (max(depth) + 1) * pitch
    at = [(depth[node] * pitch, ys[node]) for node in range(anchors)] + [(end, success_y), (end, failure_y)]
    high = (success_y if lanes[0] else top - 2 * HEADROOM) - height / 2 - MARGIN
    low = (failure_y if lanes[1] else bottom + LOOPROOM) + height / 2 + MARGIN
    start_row = sum(_loop_width(link.label) for link in links if link.source == link.target == 0)
    left = MARGIN + max(width, start_row) / 2
    moved = [(x + left, y - high) for x, y in at]
    return Layout(
        left + end - width / 2 + max(width, BOUNDARY_WIDTH) + MARGIN,
        low - high,
        tuple(moved),
        _routes(links, moved, depth, (width, height, gap)),
    )


def _gap(anchors: int, links: Sequence[Link]) -> float:
    """The gap between two columns, wide enough for a label; those of arrows back are at other heights."""
    between = (len(link.label) for link in links if link.source != link.target < anchors)
    return max(GAP, 1.4 * LETTER * max(between, default=0) + 30)


# ---- columns ---------------------------------------------------------------------------------


def _depths(anchors: int, links: Sequence[Link]) -> list[int]:
    """Breadth-first distance of every anchor from anchor 0."""
    after: list[list[int]] = [[] for _ in range(anchors)]
    for link in links:
        if link.target < anchors:
            after[link.source].append(link.target)
    depth, queue = {0: 0}, [0]
    for node in queue:
        for target in after[node]:
            if target not in depth:
                depth[target] = depth[node] + 1
                queue.append(target)
    return [depth[node] for node in range(anchors)]


def _neighbours(depth: Sequence[int], links: Sequence[Link]) -> list[list[int]]:
    """For every anchor, the anchors of the neighbouring columns that it is linked with, in either direction."""
    near: list[set[int]] = [set() for _ in depth]
    for link in links:
        if link.target < len(depth) and abs(depth[link.source] - depth[link.target]) == 1:
            near[link.source].add(link.target)
            near[link.target].add(link.source)
    return [sorted(nodes) for nodes in near]


def _order(depth: Sequence[int], near: Sequence[Sequence[int]], sweeps: int = 12) -> Columns:
    """Barycentre sweeps in both directions; returns the order with the fewest crossings."""
    columns: Columns = [[] for _ in range(max(depth) + 1)]
    for node, d in enumerate(depth):
        columns[d].append(node)
    best, fewest = columns, _crossings(columns, near)
    for sweep in range(sweeps):
        columns = [list(column) for column in columns]
        inner = range(1, len(columns)) if sweep % 2 == 0 else range(len(columns) - 2, -1, -1)
        for c in inner:
            rank = {node: i for i, node in enumerate(columns[c - 1 if sweep % 2 == 0 else c + 1])}
            own = {node: i for i, node in enumerate(columns[c])}
            columns[c].sort(key=lambda node: _mean([rank[n] for n in near[node] if n in rank], own[node]))
        crossings = _crossings(columns, near)
        if crossings < fewest:
            best, fewest = columns, crossings
    return best


def _crossings(columns: Columns, near: Sequence[Sequence[int]]) -> int:
    count = 0
    for left, right in pairwise(columns):
        rank = {node: i for i, node in enumerate(right)}
        ends = [sorted(rank[n] for n in near[node] if n in rank) for node in left]
        seen: list[int] = []
        for end in (end for group in ends for end in group):
            count += len(seen) - bisect_right(seen, end)
            insort(seen, end)
    return count


# ---- heights ---------------------------------------------------------------------------------


def _heights(
    columns: Columns, near: Sequence[Sequence[int]], height: float, looped: set[int], sweeps: int = 24
) -> list[float]:
    """The y of every anchor: near the mean of its neighbours, in order, and without overlap."""
    below = {node: height + HEADROOM + MARGIN + LOOPROOM * (node in looped) for column in columns for node in column}
    gaps = [[below[node] for node in column[:-1]] for column in columns]
    y: dict[int, float] = {}
    for column, gap in zip(columns, gaps, strict=True):
        offsets = list(accumulate(gap, initial=0.0))
        y |= {node: offset - offsets[-1] / 2 for node, offset in zip(column, offsets, strict=True)}
    for sweep in range(sweeps):
        order = zip(columns, gaps, strict=True) if sweep % 2 else zip(columns[::-1], gaps[::-1], strict=True)
        for column, gap in order:
            ideal = [_mean([y[n] for n in near[node]], y[node]) for node in column]
            y |= dict(zip(column, _spread(ideal, gap), strict=True))
    return [y[node] for node in range(len(near))]


def _spread(ideal: Sequence[float], gaps: Sequence[float]) -> list[float]:
    """The positions nearest to `ideal` (least squares) that are in order and at least `gaps` apart: an isotonic
    regression by pooling adjacent violators."""
    offsets = list(accumulate(gaps, initial=0.0))
    blocks: list[tuple[float, int]] = []
    for want, offset in zip(ideal, offsets, strict=True):
        blocks.append((want - offset, 1))
        while len(blocks) > 1 and blocks[-2][0] > blocks[-1][0]:
            (a, n), (b, m) = blocks[-2:]
            blocks[-2:] = [((a * n + b * m) / (n + m), n + m)]
    levels = [level for level, size in blocks for _ in range(size)]
    return [level + offset for level, offset in zip(levels, offsets, strict=True)]


# ---- routes ----------------------------------------------------------------------------------


def _routes(
    links: Sequence[Link], at: Sequence[Point], depth: Sequence[int], sizes: tuple[float, float, float]
) -> tuple[Route, ...]:
    """`sizes` are the width and height of a node and the gap between columns."""
    width, height, gap = sizes
    anchors = len(depth)
    lane = _lanes(links, at, depth)
    ports = _ports(links, at, depth, height)
    loops = _loop_places(links, at)
    routes = []
    for i, link in enumerate(links):
        (sx, sy), (tx, ty) = at[link.source], at[link.target]
        if link.source == link.target:
            routes.append(_loop(loops[i], sx, sy + height / 2, width))
            continue
        out, into = _sides(link, depth)
        start = (sx + out * width / 2, sy + ports.get((i, "source"), 0.0))
        if link.target >= anchors:
            turn = (sx + width / 2 + gap, lane[i])
            routes.append(_curve(link, start, turn, (1, 1), gap, last=tx - width / 2))
        else:
            stop = (tx + into * width / 2, ty + ports[i, "target"])
            routes.append(_curve(link, start, stop, (out, -into), gap))
    return tuple(routes)


def _sides(link: Link, depth: Sequence[int]) -> tuple[int, int]:
    """Where a link leaves its source and enters its target: +1 is the right side, -1 the left."""
    if link.target >= len(depth) or depth[link.target] > depth[link.source]:
        return 1, -1
    return (1, 1) if depth[link.target] == depth[link.source] else (-1, 1)


def _ports(
    links: Sequence[Link], at: Sequence[Point], depth: Sequence[int], height: float
) -> dict[tuple[int, str], float]:
    """The offset of each link end from the middle of its side, sorted by the position of the other end."""
    ends: dict[tuple[int, int], list[tuple[float, int, str]]] = {}
    for i, link in enumerate(links):
        if link.source == link.target:
            continue
        out, into = _sides(link, depth)
        ends.setdefault((link.source, out), []).append((at[link.target][1], i, "source"))
        if link.target < len(depth):
            ends.setdefault((link.target, into), []).append((at[link.source][1], i, "target"))
    ports = {}
    for group in ends.values():
        step = min(13.0, (height - 6) / max(len(group) - 1, 1))
        for k, (_, i, end) in enumerate(sorted(group)):
            ports[i, end] = (k - (len(group) - 1) / 2) * step
    return ports


def _lane_width(count: int) -> float:
    return 4.0 * min(max(count - 1, 0), 9)


def _lanes(links: Sequence[Link], at: Sequence[Point], depth: Sequence[int]) -> dict[int, float]:
    """The y at which each link to a boundary runs: early ones outermost, so that none cross."""
    lane = {}
    for boundary, outward in ((len(depth), -1), (len(depth) + 1, 1)):
        inside = [i for i, link in enumerate(links) if link.target == boundary]
        inside.sort(key=lambda i: (-depth[links[i].source], outward * at[links[i].source][1]))
        step = _lane_width(len(inside)) / max(len(inside) - 1, 1)
        for k, i in enumerate(inside):
            lane[i] = at[boundary][1] + outward * (k - (len(inside) - 1) / 2) * step
    return lane


def _curve(link: Link, start: Point, end: Point, ways: tuple[int, int], gap: float, last: float | None = None) -> Route:
    """A cubic curve that leaves and arrives in the directions `ways` (+1 is right); `last` extends it along its lane to
    that x. Its label is near the source, where neighbouring curves are spread out."""
    out, into = ways
    (x0, y0), (x1, y1) = start, end
    tip = x1 if last is None else last
    foot = tip - 7 * into
    x1 = foot if last is None else min(x1, foot)
    c0, c1 = x0 + out * gap * 0.55, x1 - into * gap * 0.55
    path = f"M{x0:.1f} {y0:.1f}C{c0:.1f} {y0:.1f} {c1:.1f} {y1:.1f} {x1:.1f} {y1:.1f}H{foot:.1f}"
    head = f"M{tip:.1f} {y1:.1f}l{-8 * into} -4v8Z"
    beside = max(0.26 * gap, 11 + LETTER * len(link.label) / 2)
    t = min(beside / gap / 1.3, 0.45)  # the curve is that much faster at its start
    a, b, c, d = (1 - t) ** 3, 3 * t * (1 - t) ** 2, 3 * t * t * (1 - t), t**3
    return Route(path, head, (x0 + out * beside, (a + b) * y0 + (c + d) * y1))


def _loop_places(links: Sequence[Link], at: Sequence[Point]) -> dict[int, float]:
    """The x of every self loop: side by side under its node, each as wide as its label."""
    rows: dict[int, list[int]] = {}
    for i, link in enumerate(links):
        if link.source == link.target:
            rows.setdefault(link.source, []).append(i)
    places = {}
    for node, row in rows.items():
        widths = [_loop_width(links[i].label) for i in row]
        x = at[node][0] - sum(widths) / 2
        for i, width in zip(row, widths, strict=True):
            places[i] = x + width / 2
            x += width
    return places


def _loop_width(label: str) -> float:
    return max(16.0, LETTER * len(label) + 6)


def _loop(x: float, node_x: float, y: float, width: float) -> Route:
    foot = min(max(x, node_x - width / 2 + 4), node_x + width / 2 - 4)
    path = f"M{foot - 3.5:.1f} {y:.1f}C{x - 8:.1f} {y + 18:.1f} {x + 8:.1f} {y + 18:.1f} {foot + 3.5:.1f} {y + 4:.1f}"
    return Route(path, f"M{foot + 3:.1f} {y:.1f}l-2.5 6h5Z", (x, y + 20))


def _mean(values: Sequence[float], otherwise: float) -> float:
    return sum(values) / len(values) if values else otherwise
