"""Where edges meet the outlines of their nodes."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar

from graphrt.graph.view.layout_grid import Role
from graphrt.graph.view.sizes import port_reach

if TYPE_CHECKING:
    from collections.abc import Sequence

    from graphrt.graph.view.layout_lane import Lane
    from graphrt.graph.view.layout_plan import Plan

_Value = TypeVar("_Value")
EndKey: TypeAlias = tuple[int, bool]
"""An edge, and whether its upper end is meant."""

_GAP: Final = 14.0
_SIDE_GAP: Final = 9.0
_NEAR: Final = 1.0
_SNAP: Final = 30.0
"""How far from the middle of a node an edge may meet it so as to stay straight, in pixels."""

_LEAST_GAP: Final = 9.0
CLEAR: Final = 14.0
"""What an edge needs beyond the side of a rhombus to leave it there, in pixels."""


@dataclass(slots=True)
class Ports:
    """Where each edge meets its nodes, in pixels from their middle."""

    leaving: dict[int, float] = field(default_factory=dict)
    """Along the lower outline, of the edges that leave there."""
    entering: dict[int, float] = field(default_factory=dict)
    """Along the upper outline."""
    sideways: dict[int, bool] = field(default_factory=dict)
    """Of edges that go down but leave a rhombus at a side: whether at the left."""
    beside: dict[EndKey, float] = field(default_factory=dict)
    """Of the ends of lanes that meet a side: how far below its middle."""


@dataclass(frozen=True, slots=True)
class _End:
    edge: int
    towards: float
    """The line on which the edge goes on, in pixels from the node's own."""
    fixed: bool
    """Whether that line cannot move: the node may be met there."""


def ports(made: Plan, x: Sequence[float], kinds: Sequence[str]) -> Ports:
    """Choose where every edge meets its nodes."""
    found = Ports()
    _lane_sides(made, found)
    leaders = {tuple(made.chains[edge][:2]): edge for edge in reversed(made.chains)}
    bottoms: dict[int, list[_End]] = defaultdict(list)
    for edge, chain in made.chains.items():
        if chain[1] not in made.shared or leaders[chain[0], chain[1]] == edge:
            fixed = made.grid.role[chain[1]] is not Role.NODE
            bottoms[chain[0]].append(_End(edge, x[chain[1]] - x[chain[0]], fixed))
    for lane in made.lanes:
        if (lane.edge, False) not in found.beside:
            bottoms[lane.src].append(_End(lane.edge, x[lane.items[0]] - x[lane.src], fixed=False))
    for node, ends in bottoms.items():
        kept = _leave_sideways(made, x, found, node, ends) if kinds[node] == "router" else ends
        found.leaving.update(_spread(kept, port_reach(kinds[node], made.sizes[node])))
    for edge, chain in made.chains.items():
        if chain[1] in made.shared:
            _copy(found.leaving, leaders[chain[0], chain[1]], edge)
            _copy(found.sideways, leaders[chain[0], chain[1]], edge)
    _enter(made, x, found, kinds)
    return found


def _enter(made: Plan, x: Sequence[float], found: Ports, kinds: Sequence[str]) -> None:
    leaders = {tuple(made.chains[edge][-2:]): edge for edge in reversed(made.chains)}
    tops: dict[int, list[_End]] = defaultdict(list)
    for edge, chain in made.chains.items():
        inner = chain[1:-1]
        if not inner or inner[-1] not in made.shared or leaders[inner[-1], chain[-1]] == edge:
            line = x[inner[-1]] if inner else x[chain[0]] + found.leaving.get(edge, 0.0)
            fixed = bool(inner) or edge not in found.sideways
            tops[chain[-1]].append(_End(edge, line - x[chain[-1]], fixed))
    for lane in made.lanes:
        if (lane.edge, True) not in found.beside:
            tops[lane.dst].append(_End(lane.edge, x[lane.items[0]] - x[lane.dst], fixed=False))
    for node, ends in tops.items():
        found.entering.update(_spread(ends, port_reach(kinds[node], made.sizes[node])))
    for edge, chain in made.chains.items():
        if chain[-2] in made.shared:
            _copy(found.entering, leaders[chain[-2], chain[-1]], edge)


def _copy(values: dict[int, _Value], leader: int, edge: int) -> None:
    if leader in values:
        values[edge] = values[leader]


def _spread(ends: Sequence[_End], reach: float) -> dict[int, float]:
    """Return for each edge how far from the middle it meets the node, at most *reach* pixels.

    Edges stand in the order in which they go on. Those that can go straight do; without any such, they stand
    evenly around the middle.
    """
    ordered = sorted(ends, key=lambda end: (end.towards, end.edge))
    limit = min(reach, _SNAP)
    straight = [
        place
        for place, end in enumerate(ordered)
        if abs(end.towards) < _NEAR or (end.fixed and abs(end.towards) <= limit)
    ]
    lines = [ordered[place].towards for place in straight]
    if not straight or any(right - left < _LEAST_GAP for left, right in pairwise(lines)):
        middle = sum(straight) / len(straight) if straight else (len(ordered) - 1) / 2
        return _evenly(ordered, middle, reach)
    first, last = straight[0], straight[-1]
    left = min(_GAP, (reach + lines[0]) / first) if first else _GAP
    right = min(_GAP, (reach - lines[-1]) / (len(ordered) - 1 - last)) if last < len(ordered) - 1 else _GAP
    if min(left, right) < _LEAST_GAP:
        return _evenly(ordered, (len(ordered) - 1) / 2, reach)
    found: dict[int, float] = {}
    for place, end in enumerate(ordered):
        if place < first:
            found[end.edge] = lines[0] - (first - place) * left
        elif place > last:
            found[end.edge] = lines[-1] + (place - last) * right
        else:
            found[end.edge] = end.towards
    return found


def _evenly(ordered: Sequence[_End], middle: float, reach: float) -> dict[int, float]:
    furthest = max(middle, len(ordered) - 1 - middle)
    gap = min(_GAP, reach / furthest) if furthest else 0.0
    return {end.edge: (place - middle) * gap for place, end in enumerate(ordered)}


def _leave_sideways(made: Plan, x: Sequence[float], found: Ports, node: int, ends: list[_End]) -> list[_End]:
    """Let the outermost edges that go down from a rhombus leave at its sides, and return the rest."""
    kept = sorted(ends, key=lambda end: (end.towards, end.edge))
    if len(kept) == 1:
        return kept
    for left in (True, False):
        outer = kept[0 if left else -1] if kept else None
        if outer is not None and _side_is_open(made, x, found, node, outer, left=left):
            found.sideways[outer.edge] = left
            kept.remove(outer)
    return kept


def _side_is_open(made: Plan, x: Sequence[float], found: Ports, node: int, end: _End, *, left: bool) -> bool:
    """Tell whether an edge can run level from the side of a node to its next line."""
    away = -end.towards if left else end.towards
    if end.edge not in made.chains or away < made.sizes[node].width / 2 + CLEAR:
        return False
    if (node in made.loops and not left) or any(_meets_side(made, found, lane, node, left) for lane in made.lanes):
        return False
    low, high = sorted((x[node], x[node] + end.towards))
    grid = made.grid
    row = grid.rows[grid.row[node]]
    return not any(
        item != node
        and (grid.left[item] or grid.right[item])
        and x[item] + grid.right[item] > low - CLEAR
        and x[item] - grid.left[item] < high + CLEAR
        for item in row
    )


def _meets_side(made: Plan, found: Ports, lane: Lane, node: int, left: bool) -> bool:
    ends = ((lane.src, False), (lane.dst, True))
    return lane.leftwards == left and any(end == node and (lane.edge, upper) in found.beside for end, upper in ends)


def _lane_sides(made: Plan, found: Ports) -> None:
    """Let lanes meet the sides of their nodes where nothing is between, in an order without crossings."""
    sides: dict[tuple[int, bool], list[tuple[tuple[bool, int, int], EndKey]]] = defaultdict(list)
    for lane in made.lanes:
        length = len(lane.items)
        for node, upper in ((lane.src, False), (lane.dst, True)):
            if _free(made, lane, node):
                rank = (upper, -length if upper else length, lane.edge)
                sides[node, lane.leftwards].append((rank, (lane.edge, upper)))
    for (node, _), keys in sides.items():
        middle = (len(keys) - 1) / 2
        gap = min(_SIDE_GAP, (made.sizes[node].height / 2 - _SIDE_GAP) / middle) if middle else 0.0
        for place, (_, key) in enumerate(sorted(keys)):
            found.beside[key] = (place - middle) * gap


def _free(made: Plan, lane: Lane, node: int) -> bool:
    """Tell whether nothing but lines stands between a node and the lane in its row."""
    if len(lane.items) == 1 or (node in made.loops and not lane.leftwards):
        return False
    grid = made.grid
    number = grid.row[node]
    row = grid.rows[number]
    item = next(item for item in lane.items if grid.row[item] == number)
    first, last = sorted((row.index(node), row.index(item)))
    return not any(grid.left[other] or grid.right[other] for other in row[first + 1 : last])
