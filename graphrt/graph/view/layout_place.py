"""What must be kept in a row: the walls of groups, the distances, and which neighbours are aligned."""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from graphrt.graph.view.layout_grid import Grid, Role

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

_GAPS: Final = {
    (Role.NODE, Role.NODE): 28.0,
    (Role.NODE, Role.BEND): 18.0,
    (Role.NODE, Role.LABEL): 16.0,
    (Role.NODE, Role.LANE): 24.0,
    (Role.NODE, Role.WALL): 16.0,
    (Role.BEND, Role.BEND): 16.0,
    (Role.BEND, Role.LABEL): 12.0,
    (Role.BEND, Role.LANE): 18.0,
    (Role.BEND, Role.WALL): 14.0,
    (Role.LABEL, Role.LABEL): 10.0,
    (Role.LABEL, Role.LANE): 14.0,
    (Role.LABEL, Role.WALL): 12.0,
    (Role.LANE, Role.LANE): 14.0,
    (Role.LANE, Role.WALL): 14.0,
    (Role.WALL, Role.WALL): 18.0,
}


@dataclass(slots=True)
class Walls:
    """The left and right side of one group, as items from its first row to its last."""

    left: list[int] = field(default_factory=list)
    right: list[int] = field(default_factory=list)


def insert_walls(grid: Grid, spans: Sequence[tuple[int, int]], paths: Sequence[tuple[int, ...]]) -> list[Walls]:
    """Put an item on either side of each group into every row that it spans."""
    walls = [Walls() for _ in spans]
    for group in sorted(range(len(spans)), key=lambda group: -len(paths[group])):
        outside = paths[group][:-1]
        for number in range(spans[group][0], spans[group][1] + 1):
            row = grid.rows[number]
            places = [index for index, item in enumerate(row) if group in grid.path[item]]
            right = grid.add(Role.WALL, number, outside)
            left = grid.add(Role.WALL, number, outside)
            row.insert(places[-1] + 1, right)
            row.insert(places[0], left)
            walls[group].left.append(left)
            walls[group].right.append(right)
    return walls


@dataclass(slots=True)
class Room:
    """How far the line of one item must stand right of that of another, in whole pixels."""

    distance: dict[tuple[int, int], float] = field(default_factory=dict)


def room(grid: Grid, walls: Sequence[Walls], widths: Sequence[float]) -> Room:
    """Return the distances that the rows of *grid* ask for, and the least *widths* of groups."""
    found = Room()
    for row in grid.rows:
        for left, right in pairwise(row):
            first, second = sorted((grid.role[left], grid.role[right]))
            found.distance[left, right] = float(math.ceil(grid.right[left] + _GAPS[first, second] + grid.left[right]))
    for wall, width in zip(walls, widths, strict=True):
        pair = wall.left[0], wall.right[0]
        found.distance[pair] = max(found.distance.get(pair, 0.0), float(math.ceil(width)))
    return found


def straight(grid: Grid, chains: Iterable[Iterable[int]]) -> dict[int, int]:
    """Choose which neighbours are aligned in any case: a map from an item to the one below it.

    *chains* are runs of items from the top down, the most important first. A pair is chosen when neither of
    its items is taken on that side and it crosses no chosen pair.
    """
    place = grid.positions()
    chosen: dict[int, int] = {}
    taken: set[int] = set()
    pairs: list[list[tuple[int, int]]] = [[] for _ in grid.rows]
    for above, below in _pairs(grid, chains):
        here = pairs[grid.row[above]]
        pair = place[above], place[below]
        if above not in chosen and below not in taken and not crosses(here, pair):
            insort(here, pair)
            chosen[above] = below
            taken.add(below)
    return chosen


def _pairs(grid: Grid, chains: Iterable[Iterable[int]]) -> Iterator[tuple[int, int]]:
    for chain in chains:
        yield from pairwise(chain)
    for above, others in enumerate(grid.down):
        if len(others) == 1 and len(grid.up[others[0]]) == 1:
            yield above, others[0]


def crosses(pairs: Sequence[tuple[int, int]], pair: tuple[int, int]) -> bool:
    """Tell whether *pair*, places in neighbouring rows, crosses one of the sorted *pairs*."""
    index = bisect_left(pairs, pair)
    return (index > 0 and pairs[index - 1][1] > pair[1]) or (index < len(pairs) and pairs[index][1] < pair[1])
