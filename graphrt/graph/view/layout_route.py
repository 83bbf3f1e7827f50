"""The lines of edges, once everything else has its place."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Sequence

Point: TypeAlias = tuple[float, float]
Direction: TypeAlias = Literal["up", "down", "left", "right"]
Zone: TypeAlias = tuple[Literal["gap", "below", "above"], int]
"""Where level runs lie: in the gap below a row, or just below or above the row itself."""

HEAD: Final = 7.0
"""How long the head of an arrow is, in pixels; a line ends where its head begins."""

_CORNER: Final = 9.0


@dataclass(frozen=True, slots=True)
class Line:
    """The line of an edge, as the data of an SVG path, from its tail to the point of its head."""

    data: str
    tail: Point
    tail_direction: Direction
    head: Point
    head_direction: Direction


def number(value: float) -> str:
    """Write a length with at most one decimal."""
    text = f"{value:.1f}".removesuffix(".0")
    return "0" if text == "-0" else text


def bent(corners: Sequence[Point], start: Direction, end: Direction) -> Line:
    """Draw an edge through *corners*, rounded, to the point of its head."""
    points = list(corners)
    point = points[-1]
    back = {"down": (0, -HEAD), "up": (0, HEAD), "left": (HEAD, 0), "right": (-HEAD, 0)}[end]
    points[-1] = (point[0] + back[0], point[1] + back[1])
    parts = [f"M{number(points[0][0])} {number(points[0][1])}"]
    for before, corner, after in zip(points, points[1:], points[2:], strict=False):
        radius = min(_CORNER, _distance(before, corner) / 2, _distance(corner, after) / 2)
        first, second = _towards(corner, before, radius), _towards(corner, after, radius)
        parts.append(f"L{_pair(first)}Q{_pair(corner)} {_pair(second)}")
    parts.append(f"L{_pair(points[-1])}")
    return Line("".join(parts), points[0], start, point, end)


def loop(right: float, middle: float, reach: float, half: float) -> Line:
    """Draw an edge at the right side of a node, *reach* pixels out, *half* above and below its middle."""
    out = number(right + reach * 4 / 3)
    data = (
        f"M{number(right)} {number(middle - half)}C{out} {number(middle - half - reach / 3)} "
        f"{out} {number(middle + half + reach / 3)} {number(right + HEAD)} {number(middle + half)}"
    )
    return Line(data, (right, middle - half), "right", (right, middle + half), "left")


def _distance(one: Point, other: Point) -> float:
    return math.hypot(one[0] - other[0], one[1] - other[1])


def _towards(start: Point, end: Point, length: float) -> Point:
    whole = _distance(start, end) or 1.0
    return (
        start[0] + (end[0] - start[0]) * length / whole,
        start[1] + (end[1] - start[1]) * length / whole,
    )


def _pair(point: Point) -> str:
    return f"{number(point[0])} {number(point[1])}"
