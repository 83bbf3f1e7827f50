"""The rows of a picture and what stands in them: nodes, and the places where edges and labels pass."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

Path: TypeAlias = tuple[int, ...]
"""The groups around something, by number, outermost first."""


class Role(IntEnum):
    """What an item of a row is."""

    NODE = 0
    BEND = 1
    LABEL = 2
    LANE = 3
    WALL = 4


@dataclass(slots=True)
class Grid:
    """Items in rows. An item is a number; a node's item has the number of the node.

    ``left`` and ``right`` say how far an item reaches from its own line, in pixels. ``up`` and ``down`` are
    its neighbours in the rows next to it, in the order of declaration.
    """

    rows: list[list[int]]
    role: list[Role] = field(default_factory=list)
    row: list[int] = field(default_factory=list)
    left: list[float] = field(default_factory=list)
    right: list[float] = field(default_factory=list)
    path: list[Path] = field(default_factory=list)
    up: list[list[int]] = field(default_factory=list)
    down: list[list[int]] = field(default_factory=list)

    def add(self, role: Role, row: int, path: Path, left: float = 0, right: float = 0) -> int:
        """Make an item; the caller puts it into its row."""
        self.role.append(role)
        self.row.append(row)
        self.left.append(left)
        self.right.append(right)
        self.path.append(path)
        self.up.append([])
        self.down.append([])
        return len(self.role) - 1

    def append(self, role: Role, row: int, path: Path, left: float = 0, right: float = 0) -> int:
        """Make an item at the right end of its row."""
        item = self.add(role, row, path, left, right)
        self.rows[row].append(item)
        return item

    def link(self, above: int, below: int) -> None:
        """Make two items of neighbouring rows neighbours."""
        self.down[above].append(below)
        self.up[below].append(above)

    def positions(self) -> list[int]:
        """Return the place of each item in its row, counted from 0."""
        place = [0] * len(self.role)
        for row in self.rows:
            for index, item in enumerate(row):
                place[item] = index
        return place


def common(one: Path, other: Path) -> Path:
    """Return the groups around both."""
    length = 0
    for left, right in zip(one, other, strict=False):
        if left != right:
            break
        length += 1
    return one[:length]


def extents(grid: Grid, groups: int, items: Iterable[int]) -> list[tuple[int, int]]:
    """Return the first and last row of each group, as *items* stand in them."""
    first = [len(grid.rows)] * groups
    last = [-1] * groups
    for item in items:
        row = grid.row[item]
        for group in grid.path[item]:
            first[group] = min(first[group], row)
            last[group] = max(last[group], row)
    return list(zip(first, last, strict=True))


def fill(grid: Grid, spans: Sequence[tuple[int, int]], paths: Sequence[Path]) -> None:
    """Give each group an item in every row it spans, so that it has a place there.

    *spans* and *paths* tell of each group its rows and the groups from the outermost down to itself.
    """
    standing: dict[tuple[int, int], int] = {}
    for row in grid.rows:
        for item in row:
            for group in grid.path[item]:
                standing.setdefault((group, grid.row[item]), item)
    for group in sorted(range(len(spans)), key=lambda group: -len(paths[group])):
        first, last = spans[group]
        for number in range(first + 1, last):
            if (group, number) not in standing:
                item = grid.append(Role.BEND, number, paths[group])
                for around in paths[group]:
                    standing.setdefault((around, number), item)
                grid.link(standing[group, number - 1], item)
