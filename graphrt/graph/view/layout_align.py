"""How far to the right each item stands.

Rows are first swept towards each other; items that must be aligned, or nearly are, become units; the units
take the places where edges are shortest; then what has several best places takes the middle one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from graphrt.graph.view.layout_grid import Grid, Role
from graphrt.graph.view.layout_simplex import Bar, shorten
from graphrt.graph.view.layout_sweep import swept

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from graphrt.graph.view.layout_place import Room

_ROUNDS: Final = 6
_ROUNDS_OF_LARGE: Final = 4
_FANS: Final = 40
_FAR: Final = 1e9
_ALIGNED: Final = 100.0
_ALIGNED_OF_LARGE: Final = 40.0
"""How far apart two items may be after the sweeps that are aligned where nothing forces them, in pixels."""

_LARGE: Final = 3000
_POINTS: Final = 1600
"""Points of the problem of shortest edges up to which it is solved."""

_PIVOTS: Final = 250
_WEIGHT: Final = (8, 2, 1)
"""What a pixel of an edge's part costs, by how many of its ends are nodes."""


@dataclass(frozen=True, slots=True)
class Pull:
    """An item that wants to stand as far left or right as it can: the side of a group, or a lane."""

    item: int
    rightwards: bool


@dataclass(frozen=True, slots=True)
class Fan:
    """A node that wants to stand in the middle of its equal branches, the next items of which are *items*."""

    node: int
    items: tuple[int, ...]
    below: bool
    """Whether the branches part below the node, and do not meet above it."""


def coordinates(
    grid: Grid,
    room: Room,
    *,
    rigid: Mapping[int, int],
    chosen: Mapping[int, int],
    pulls: Iterable[Pull],
    fans: Iterable[Fan],
) -> list[float]:
    """Return the line of each item in pixels, the left edge of the leftmost being 0.

    *rigid* tells which items are aligned in any case, *chosen* which are if that costs little: each maps an
    item to the one below it.
    """
    x = swept(grid, room.distance, rigid)
    limit = _ALIGNED if len(x) <= _LARGE else _ALIGNED_OF_LARGE
    near = {above: below for above, below in chosen.items() if above in rigid or abs(x[above] - x[below]) <= limit}
    units = _Units(grid, room, near)
    units.gather(x)
    units.shorten(x)
    sides = {units.root[pull.item]: pull.rightwards for pull in pulls}
    centred = sorted(fans, key=lambda fan: (grid.row[fan.node], fan.below))
    for fan in centred[:_FANS]:
        units.centre(x, fan, sides)
    units.settle(x, sides, centred)
    x = [x[unit] for unit in units.root]
    start = min((value - left for value, left in zip(x, grid.left, strict=True)), default=0.0)
    return [value - start for value in x]


class _Units:
    """Runs of aligned items, each named by its first; what they are joined to, and how far apart they are."""

    def __init__(self, grid: Grid, room: Room, aligned: Mapping[int, int]) -> None:
        count = len(grid.role)
        self.row = grid.row
        self.root = list(range(count))
        for row in grid.rows:
            for item in row:
                if item in aligned:
                    self.root[aligned[item]] = self.root[item]
        self.apart: dict[tuple[int, int], float] = {}
        for (left, right), distance in room.distance.items():
            key = self.root[left], self.root[right]
            self.apart[key] = max(self.apart.get(key, 0.0), distance)
        self.after: list[list[tuple[int, float]]] = [[] for _ in range(count)]
        self.before: list[list[tuple[int, float]]] = [[] for _ in range(count)]
        for (unit, other), distance in self.apart.items():
            self.after[unit].append((other, distance))
            self.before[other].append((unit, distance))
        self.above: list[list[int]] = [[] for _ in range(count)]
        self.below: list[list[int]] = [[] for _ in range(count)]
        self.edges: dict[tuple[int, int], int] = {}
        for item, unit in enumerate(self.root):
            for other in grid.down[item]:
                if self.root[other] != unit:
                    self._connect(unit, self.root[other], _weight(grid, item, other))
        self.order = self._sorted()

    def _connect(self, upper: int, lower: int, weight: int) -> None:
        self.below[upper].append(lower)
        self.above[lower].append(upper)
        key = min(upper, lower), max(upper, lower)
        self.edges[key] = self.edges.get(key, 0) + weight

    def _sorted(self) -> list[int]:
        """Return the units from left to right."""
        missing = [len(before) for before in self.before]
        order = [unit for unit, root in enumerate(self.root) if root == unit and not missing[unit]]
        for unit in order:
            for other, _ in self.after[unit]:
                missing[other] -= 1
                if not missing[other]:
                    order.append(other)  # the loop goes on to what it adds
        return order

    def gather(self, x: list[float]) -> None:
        """Put each unit at the mean of its items, in whole pixels, and units as far apart as they must be."""
        total, count = [0.0] * len(x), [0] * len(x)
        for item, unit in enumerate(self.root):
            total[unit] += x[item]
            count[unit] += 1
        low = [float(round(value / max(number, 1))) for value, number in zip(total, count, strict=True)]
        high = low[:]
        for unit in self.order:
            low[unit] = max(low[unit], self.lowest(unit, low))
        for unit in reversed(self.order):
            high[unit] = min(high[unit], self.highest(unit, high))
        for unit in self.order:  # both keep all distances, so does what lies between, rounded one way
            x[unit] = float((low[unit] + high[unit]) // 2)

    def shorten(self, x: list[float]) -> None:
        """Move the units to where their edges are shortest in all, or nearly, when there are very many."""
        if len(self.order) + len(self.edges) > _POINTS:
            for turn in range(_ROUNDS_OF_LARGE):
                for unit in self.order if turn % 2 else reversed(self.order):
                    near = _middle([x[other] for other in self.above[unit] + self.below[unit] or [unit]])
                    x[unit] = min(max(near, self.lowest(unit, x)), self.highest(unit, x))
            return
        number = {unit: place for place, unit in enumerate(self.order)}
        points = [x[unit] for unit in self.order]
        bars = [Bar(number[left], number[right], distance, 0) for (left, right), distance in self.apart.items()]
        for (one, other), weight in self.edges.items():
            end = len(points)
            points.append(min(x[one], x[other]))
            bars += [Bar(end, number[one], 0.0, weight), Bar(end, number[other], 0.0, weight)]
        shorten(points, bars, _PIVOTS)
        for unit, place in number.items():
            x[unit] = points[place]

    def centre(self, x: list[float], fan: Fan, sides: Mapping[int, bool]) -> None:
        """Shift all below a fan sideways to bring its node to its middle, unless something is in the way."""
        first = self.row[fan.node] + fan.below
        middle = _middle([x[self.root[item]] for item in fan.items])
        shift = x[self.root[fan.node]] - middle if fan.below else middle - x[self.root[fan.node]]
        if not shift:
            return
        before = x[:]
        for unit in self.order:
            if self.row[unit] >= first and unit not in sides:
                x[unit] += shift
        for _ in range(_ROUNDS):
            for unit in self.order:
                if unit in sides:
                    self._pull(x, unit, rightwards=sides[unit])
        if any(x[right] - x[left] < distance for (left, right), distance in self.apart.items()):
            x[:] = before

    def settle(self, x: list[float], sides: Mapping[int, bool], fans: Sequence[Fan]) -> None:
        """Move walls and lanes to what they enclose, and what has several best places to the middle one."""
        branches: dict[int, list[int]] = {}
        for fan in fans:
            branches.setdefault(self.root[fan.node], [self.root[item] for item in fan.items])
        for turn in range(_ROUNDS):
            for unit in self.order if turn % 2 else reversed(self.order):
                if unit in sides:
                    self._pull(x, unit, rightwards=sides[unit])
                elif unit in branches:
                    self._move(x, unit, _middle([x[other] for other in branches[unit]]))
                elif not (self.above[unit] and self.below[unit]):
                    near = self.above[unit] or self.below[unit] or [unit]
                    self._move(x, unit, _middle([x[other] for other in near]))

    def _pull(self, x: list[float], unit: int, *, rightwards: bool) -> None:
        """Move a wall or lane to what it encloses."""
        edge = self.highest(unit, x) if rightwards else self.lowest(unit, x)
        if abs(edge) < _FAR:
            self._move(x, unit, edge)

    def _move(self, x: list[float], unit: int, wanted: float) -> None:
        """Move a unit to where it is wanted, as far as there is room."""
        low, high = self.lowest(unit, x), self.highest(unit, x)
        x[unit] = min(max(wanted, low), max(high, low))

    def highest(self, unit: int, x: Sequence[float]) -> float:
        """Return how far to the right a unit can move."""
        return min((x[other] - distance for other, distance in self.after[unit]), default=_FAR)

    def lowest(self, unit: int, x: Sequence[float]) -> float:
        """Return how far to the left a unit can move."""
        return max((x[other] + distance for other, distance in self.before[unit]), default=-_FAR)


def _weight(grid: Grid, item: int, other: int) -> int:
    return _WEIGHT[(grid.role[item] is Role.NODE) + (grid.role[other] is Role.NODE)]


def _middle(values: list[float]) -> float:
    values.sort()
    return float((values[(len(values) - 1) // 2] + values[len(values) // 2]) // 2)
