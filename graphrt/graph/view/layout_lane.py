"""Lanes: where edges that go back run upwards, beside the nodes of their cycle."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Final, TypeAlias

from graphrt.graph.view.layout_grid import Grid, Path, Role, common

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_Unit: TypeAlias = tuple[str, int]

_MANY: Final = 60
"""Lanes up to which each finds the best place; more are put beside everything in their groups."""

_BLOCKED: Final = 3
"""How many crossings a node between an edge's end and its lane is worth."""


@dataclass(slots=True)
class Lane:
    """The way of one edge that goes back: an item in each row from its target down to its source."""

    edge: int
    src: int
    dst: int
    items: list[int] = field(default_factory=list)
    leftwards: bool = False
    """Whether the lane lies left of its cycle."""


def insert_lanes(grid: Grid, lanes: Iterable[Lane], chips: dict[int, tuple[int, float]]) -> None:
    """Put the items of *lanes* into the ordered rows of *grid*, short lanes nearer to their nodes.

    *chips* tells of a labelled edge the row of its label and its width. A lane never crosses another, nor a
    group that lies outside its cycle.
    """
    lane_of: dict[int, int] = {}
    ordered = sorted(lanes, key=lambda lane: (abs(grid.row[lane.src] - grid.row[lane.dst]), lane.edge))
    for lane in ordered:
        path = common(grid.path[lane.src], grid.path[lane.dst])
        if len(ordered) > _MANY:
            slots = {number: _end(grid, number, path) for number in _rows(grid, lane)}
        else:
            inside = _cycle(grid, lane.src, lane.dst)
            slots = _slots(grid, lane, inside, lane_of, leftwards=False)
            left = _slots(grid, lane, inside, lane_of, leftwards=True)
            lane.leftwards = _cost(grid, lane, left) < _cost(grid, lane, slots)
            slots = left if lane.leftwards else slots
        for number, slot in sorted(slots.items()):
            chip = chips.get(lane.edge)
            half = chip[1] / 2 if chip is not None and chip[0] == number else 0.0
            item = grid.add(Role.LANE, number, path, half, half)
            grid.rows[number].insert(slot, item)
            lane.items.append(item)
            lane_of[item] = lane.edge


def _end(grid: Grid, number: int, path: Path) -> int:
    """Return the place after the last item of a row that stands in the groups of *path*."""
    row = grid.rows[number]
    return next(index for index in range(len(row), 0, -1) if grid.path[row[index - 1]][: len(path)] == path)


def _rows(grid: Grid, lane: Lane) -> range:
    ends = grid.row[lane.src], grid.row[lane.dst]
    return range(min(ends), max(ends) + 1)


def _cycle(grid: Grid, src: int, dst: int) -> set[int]:
    """Return the items on the ways down from *dst* to *src*, both included."""
    return (_reached(dst, grid.down) & _reached(src, grid.up)) | {src, dst}


def _reached(start: int, towards: Sequence[Sequence[int]]) -> set[int]:
    seen = {start}
    stack = [start]
    while stack:
        for other in towards[stack.pop()]:
            if other not in seen:
                seen.add(other)
                stack.append(other)
    return seen


def _slots(grid: Grid, lane: Lane, inside: set[int], lane_of: dict[int, int], *, leftwards: bool) -> dict[int, int]:
    """Return the lane's place in each of its rows: beside the cycle, and on one side of everything tall."""
    path = common(grid.path[lane.src], grid.path[lane.dst])
    rows: dict[int, list[tuple[bool, _Unit]]] = {}
    for number in _rows(grid, lane):
        row = grid.rows[number][::-1] if leftwards else grid.rows[number]
        here = [item for item in row if grid.path[item][: len(path)] == path]
        rows[number] = [(item in inside, _unit(grid, item, len(path), lane_of)) for item in here]
    passed: set[_Unit] = set()
    slots: dict[int, int] = {}
    more = True
    while more:
        more = False
        for number, items in rows.items():
            beside = [index for index, (mark, unit) in enumerate(items) if mark or unit in passed]
            slots[number] = beside[-1] + 1 if beside else len(items)
            tall = {unit for _, unit in items[: slots[number]] if unit[0] != "item"}
            more = more or not tall <= passed
            passed |= tall
    return {number: _absolute(grid, number, path, slot, leftwards) for number, slot in slots.items()}


def _unit(grid: Grid, item: int, depth: int, lane_of: dict[int, int]) -> _Unit:
    """Name what stands at one *depth* of groups: an item, or a group or lane that stands in several rows."""
    path = grid.path[item]
    if len(path) > depth:
        return "group", path[depth]
    return ("lane", lane_of[item]) if item in lane_of else ("item", item)


def _absolute(grid: Grid, number: int, path: tuple[int, ...], slot: int, leftwards: bool) -> int:
    row = grid.rows[number]
    first = next((i for i, item in enumerate(row) if grid.path[item][: len(path)] == path), 0)
    count = sum(grid.path[item][: len(path)] == path for item in row)
    return first + (count - slot if leftwards else slot)


def _cost(grid: Grid, lane: Lane, slots: dict[int, int]) -> int:
    """Count what is between the ends of an edge and its lane, and the edges that cross the lane."""
    cost = 0
    for end in (lane.src, lane.dst):
        row, slot = grid.rows[grid.row[end]], slots[grid.row[end]]
        place = row.index(end)
        between = row[place + 1 : slot] if place < slot else row[slot:place]
        cost += sum(_BLOCKED if grid.role[item] is Role.NODE else 1 for item in between)
    for (number, slot), (_, next_slot) in pairwise(sorted(slots.items())):
        below = {item: index for index, item in enumerate(grid.rows[number + 1])}
        for index, item in enumerate(grid.rows[number]):
            left = index < slot
            cost += sum((below[other] < next_slot) != left for other in grid.down[item])
    return cost
