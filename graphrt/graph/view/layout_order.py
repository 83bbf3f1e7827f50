"""The order of the items in each row: few crossings, and every group in one piece."""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Sequence
from typing import Final, TypeAlias

from graphrt.graph.view.layout_grid import Grid

Rows: TypeAlias = list[list[int]]

_SMALL: Final = 600
"""Items up to which the slower improvements are tried."""

_SWEEPS: Final = 12
_SWEEPS_OF_LARGE: Final = 4
_PATIENCE: Final = 4
"""Sweeps without improvement after which ordering ends."""


def order(grid: Grid, groups: int) -> None:
    """Put the items of each row of *grid* in order.

    Groups are numbered from 0 to *groups*. Two of them with the same parent stand in the same order in every row that
    they share.
    """
    small = len(grid.role) <= _SMALL
    best: tuple[int, Rows] | None = None
    for backwards in (False, True) if small else (False,):
        found = _swept(grid, _walk(grid, backwards), groups, _SWEEPS if small else _SWEEPS_OF_LARGE)
        if best is None or found[0] < best[0]:
            best = found
    if best is not None:
        grid.rows[:] = best[1]


def crossings(grid: Grid, rows: Rows) -> int:
    """Count the crossings between neighbouring rows."""
    return sum(_between(grid, above, below) for above, below in zip(rows, rows[1:], strict=False))


def _between(grid: Grid, above: list[int], below: list[int]) -> int:
    place = {item: index for index, item in enumerate(below)}
    seen: list[int] = []
    count = 0
    for item in above:
        ends = sorted(place[other] for other in grid.down[item])
        for end in ends:
            count += len(seen) - bisect_right(seen, end)
        for end in ends:
            insort(seen, end)
    return count


def _walk(grid: Grid, backwards: bool) -> Rows:
    """Order each row as its items are met on a walk from the top, branches in the order of declaration or against."""
    turn = 1 if backwards else -1
    rows: Rows = [[] for _ in grid.rows]
    met = [False] * len(grid.role)
    for row in grid.rows:
        stack = [item for item in row[::turn] if not grid.up[item]]
        while stack:
            item = stack.pop()
            if not met[item]:
                met[item] = True
                rows[grid.row[item]].append(item)
                stack.extend(grid.down[item][::turn])
    return rows


def _swept(grid: Grid, rows: Rows, groups: int, sweeps: int) -> tuple[int, Rows]:
    rank = _group_order(grid, rows, groups)
    rows = [_arranged(grid, row, {}, rank) for row in rows]
    best = crossings(grid, rows), [list(row) for row in rows]
    idle = 0
    for sweep in range(sweeps):
        rank = _group_order(grid, rows, groups)
        _sweep(grid, rows, rank, down=sweep % 2 == 0)
        if len(grid.role) <= _SMALL:
            _swap_neighbours(grid, rows)
        count = crossings(grid, rows)
        idle += 1
        if count < best[0]:
            best = count, [list(row) for row in rows]
            idle = 0
        if idle >= _PATIENCE or not best[0]:
            break
    return best


def _sweep(grid: Grid, rows: Rows, rank: Sequence[float], *, down: bool) -> None:
    """Order each row by the middles of its neighbours in the row before."""
    numbers = range(len(rows)) if down else range(len(rows) - 1, -1, -1)
    towards = grid.up if down else grid.down
    place: dict[int, int] = {}
    for number in numbers:
        values = {
            item: sum(place[other] for other in towards[item]) / len(towards[item])
            for item in rows[number]
            if towards[item] and place
        }
        rows[number] = _arranged(grid, rows[number], values, rank)
        place = {item: index for index, item in enumerate(rows[number])}


def _group_order(grid: Grid, rows: Rows, groups: int) -> list[float]:
    """Return where each group belongs from left to right, by its items and what they are joined to outside it."""
    total = [0.0] * groups
    weight = [0] * groups
    if not groups:
        return total
    share = {item: (index + 0.5) / len(row) for row in rows for index, item in enumerate(row)}
    for item, path in enumerate(grid.path):
        for group in path:
            outside = [other for other in (*grid.up[item], *grid.down[item]) if group not in grid.path[other]]
            for other in (item, *outside, *outside):
                total[group] += share[other]
                weight[group] += 1
    return [value / max(count, 1) for value, count in zip(total, weight, strict=True)]


def _arranged(
    grid: Grid, row: list[int], values: dict[int, float], rank: Sequence[float], depth: int = 0
) -> list[int]:
    """Sort the items of a row by their *values*; one without a value keeps its place.

    The items of a group stay together, at the mean of their values, and groups stand as *rank* says.
    """
    units: dict[tuple[bool, int], list[int]] = {}
    for item in row:
        path = grid.path[item]
        units.setdefault((True, path[depth]) if len(path) > depth else (False, item), []).append(item)
    keys = list(units)
    known = {key: _mean(units[key], values) for key in keys}
    moving = iter(sorted((key for key in keys if known[key] is not None), key=lambda key: known[key] or 0.0))
    keys = [next(moving) if known[key] is not None else key for key in keys]
    groups = iter(sorted((group for is_group, group in keys if is_group), key=lambda group: (rank[group], group)))
    keys = [(True, next(groups)) if key[0] else key for key in keys]
    arranged: list[int] = []
    for key in keys:
        arranged += _arranged(grid, units[key], values, rank, depth + 1) if key[0] else units[key]
    return arranged


def _mean(items: list[int], values: dict[int, float]) -> float | None:
    found = [values[item] for item in items if item in values]
    return sum(found) / len(found) if found else None


def _swap_neighbours(grid: Grid, rows: Rows) -> None:
    """Swap items of one group that stand side by side, as long as that takes crossings away."""
    place = {item: index for row in rows for index, item in enumerate(row)}
    better = True
    while better:
        better = False
        for row in rows:
            for index in range(len(row) - 1):
                left, right = row[index], row[index + 1]
                if grid.path[left] == grid.path[right] and _gain(grid, place, left, right) > 0:
                    row[index], row[index + 1] = right, left
                    place[left], place[right] = index + 1, index
                    better = True


def _gain(grid: Grid, place: dict[int, int], left: int, right: int) -> int:
    """Count the crossings that a swap of two items takes away, less those that it makes."""
    gain = 0
    for towards in (grid.up, grid.down):
        for one in towards[left]:
            for other in towards[right]:
                gain += (place[one] > place[other]) - (place[one] < place[other])
    return gain
