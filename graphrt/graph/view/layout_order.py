"""The order of the items in each row: few crossings, and every group in one piece."""

from __future__ import annotations

from bisect import bisect_right, insort
from itertools import pairwise
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from graphrt.graph.view.layout_grid import Grid

Rows: TypeAlias = list[list[int]]

_SMALL: Final = 600
"""Items up to which the slower improvements are tried."""

_SWEEPS: Final = 16
_SWEPT_ITEMS: Final = 40_000
"""Items to be put in order by all sweeps of one large grid, about."""

_TIE: Final = 1e-7
_PATIENCE: Final = 6
"""Sweeps without improvement after which ordering ends."""


def order(grid: Grid, groups: int) -> None:
    """Put the items of each row of *grid* in order.

    Groups are numbered from 0 to *groups*. Two of them with the same parent stand in the same order in every
    row that they share.
    """
    starts = [_walk(grid, backwards=False)]
    if len(grid.role) <= _SMALL:
        starts += [_walk(grid, backwards=True), [list(row) for row in grid.rows]]
    best: tuple[int, Rows] | None = None
    for start in starts:
        found = _swept(grid, start, groups)
        if best is None or found[0] < best[0]:
            best = found
        if not best[0]:
            break
    if best is not None:
        grid.rows[:] = best[1]


def crossings(grid: Grid, rows: Rows) -> int:
    """Count the crossings between neighbouring rows."""
    return sum(_between(grid, above, below) for above, below in pairwise(rows))


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
    """Order each row as its items are met on a walk from the top, with branches as declared or against."""
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


def _swept(grid: Grid, rows: Rows, groups: int) -> tuple[int, Rows]:
    """Sweep to and fro, in turn with means and medians, and return the best order met and its crossings."""
    rank = _group_order(grid, rows, groups)
    rows = [_arranged(grid, row, {}, rank) for row in rows]
    best = crossings(grid, rows), [list(row) for row in rows]
    idle = 0
    for sweep in range(max(4, min(_SWEEPS, _SWEPT_ITEMS // max(len(grid.role), 1)))):
        if idle >= _PATIENCE or not best[0]:
            break
        rank = _group_order(grid, rows, groups)
        turn = sweep // 2
        _sweep(grid, rows, rank, down=sweep % 2 == 0, middle=_median if turn % 2 else _average, flip=turn % 4 > 1)
        if len(grid.role) <= _SMALL:
            _swap_neighbours(grid, rows, flip=turn % 4 > 1)
        count = crossings(grid, rows)
        idle += 1
        if count < best[0]:
            best = count, [list(row) for row in rows]
            idle = 0
    return best


def _sweep(
    grid: Grid,
    rows: Rows,
    rank: Sequence[float],
    *,
    down: bool,
    middle: Callable[[list[int]], float],
    flip: bool,
) -> None:
    """Order each row by its items' middles in the row before; *flip* turns those with the same middle."""
    numbers = range(len(rows)) if down else range(len(rows) - 1, -1, -1)
    towards = grid.up if down else grid.down
    tie = -_TIE if flip else _TIE
    place: dict[int, int] = {}
    for number in numbers:
        values = {
            item: middle([place[other] for other in towards[item]]) + index * tie
            for index, item in enumerate(rows[number])
            if towards[item] and place
        }
        rows[number] = _arranged(grid, rows[number], values, rank)
        place = {item: index for index, item in enumerate(rows[number])}


def _average(places: list[int]) -> float:
    return sum(places) / len(places)


def _median(places: list[int]) -> float:
    """Return the median; of an even number, a point between the middle two, nearer to the denser side."""
    places.sort()
    half = len(places) // 2
    if len(places) % 2:
        return places[half]
    left, right = places[half - 1] - places[0], places[-1] - places[half]
    if left + right == 0:
        return (places[half - 1] + places[half]) / 2
    return (places[half - 1] * right + places[half] * left) / (left + right)


def _group_order(grid: Grid, rows: Rows, groups: int) -> list[float]:
    """Return where each group belongs from left to right, by its items and their neighbours outside."""
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


def _arranged(grid: Grid, row: list[int], values: dict[int, float], rank: Sequence[float], depth: int = 0) -> list[int]:
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


def _swap_neighbours(grid: Grid, rows: Rows, *, flip: bool) -> None:
    """Swap items of one group that stand side by side, as long as that takes crossings away.

    With *flip*, those that may as well be swapped are, once.
    """
    place = {item: index for row in rows for index, item in enumerate(row)}
    least = 0 if flip else 1
    better = True
    while better:
        better = False
        for row in rows:
            for index in range(len(row) - 1):
                left, right = row[index], row[index + 1]
                if grid.path[left] != grid.path[right]:
                    continue
                gain = _gain(grid, place, left, right)
                if gain >= least:
                    row[index], row[index + 1] = right, left
                    place[left], place[right] = index + 1, index
                    better = better or gain > 0
        better = better or least == 0
        least = 1


def _gain(grid: Grid, place: dict[int, int], left: int, right: int) -> int:
    """Count the crossings that a swap of two items takes away, less those that it makes."""
    gain = 0
    for towards in (grid.up, grid.down):
        for one in towards[left]:
            for other in towards[right]:
                gain += (place[one] > place[other]) - (place[one] < place[other])
    return gain
