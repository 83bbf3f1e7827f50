"""A first guess of where items stand: each row as near to its neighbour rows as its own distances allow."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Final

from graphrt.graph.view.layout_grid import Grid, Role

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_ROUNDS: Final = 6
_BOTH_SIDES: Final = 2
"""Rounds at the end in which an item looks at the rows above and below at once."""

_LINE_WEIGHT: Final = 4
_LOOSE: Final = 0.05


def swept(grid: Grid, distance: Mapping[tuple[int, int], float], upright: Mapping[int, int]) -> list[float]:
    """Return a line for each item.

    *distance* tells how far apart two neighbours in a row must be; *upright* joins the items of walls and
    lanes, which are nobody's neighbours otherwise.
    """
    up, down = [list(items) for items in grid.up], [list(items) for items in grid.down]
    for above, below in upright.items():
        down[above].append(below)
        up[below].append(above)
    offsets = [_offsets(row, distance) for row in grid.rows]
    x = [0.0] * len(grid.role)
    for row, offset in zip(grid.rows, offsets, strict=True):
        for item, place in zip(row, offset, strict=True):
            x[item] = place - offset[-1] / 2
    weight = [1 if role is Role.NODE else _LINE_WEIGHT for role in grid.role]
    last = len(grid.rows) - 1
    for number in range(_ROUNDS):
        both = number >= _ROUNDS - _BOTH_SIDES
        for rows, towards, other in ((range(1, last + 1), up, down), (range(last - 1, -1, -1), down, up)):
            for level in rows:
                near = [towards[item] + other[item] if both else towards[item] for item in grid.rows[level]]
                _place(grid.rows[level], offsets[level], near, weight, x)
    return x


def _offsets(row: Sequence[int], distance: Mapping[tuple[int, int], float]) -> list[float]:
    offsets = [0.0] if row else []
    for left, right in pairwise(row):
        offsets.append(offsets[-1] + distance[left, right])
    return offsets


def _place(
    row: Sequence[int],
    offsets: Sequence[float],
    near: Sequence[Sequence[int]],
    weight: Sequence[int],
    x: list[float],
) -> None:
    """Put the items of a row as near as they can be to the mean of what is *near* them, in least squares.

    Without its offset, an item must not be left of the one before: items that would be are put together at
    their mean, as in a monotone regression.
    """
    runs: list[tuple[float, float, int]] = []
    for item, offset, others in zip(row, offsets, near, strict=True):
        heavy, moment = _LOOSE, _LOOSE * (x[item] - offset)
        if others:
            heavy = float(weight[item] * sum(weight[other] for other in others))
            moment = weight[item] * sum(weight[other] * (x[other] - offset) for other in others)
        count = 1
        while runs and runs[-1][1] * heavy >= moment * runs[-1][0]:
            before = runs.pop()
            heavy, moment, count = heavy + before[0], moment + before[1], count + before[2]
        runs.append((heavy, moment, count))
    place = 0
    for heavy, moment, count in runs:
        for index in range(place, place + count):
            x[row[index]] = moment / heavy + offsets[index]
        place += count
