"""The shapes of nodes, the small pictures before their names, the marks of states, and the ends of edges.

==========  ==============================================================
kind        shape
==========  ==============================================================
start       filled capsule
end         capsule with a double outline
function    box with round corners
agent       hexagon
inference   capsule
tool        parallelogram
fallback    trapezoid, wide below
router      rhombus
join        trapezoid, wide above
ask         speech bubble
timer       box with round corners, and a clock
graph       box with a bar at either side
plan_step   box with square corners
folded      pile of boxes: a whole group of a large drawing
==========  ==============================================================

An edge that depends on a condition begins with a small rhombus, unless its node is one; an error's is dashed;
a map's is thick and ends in two heads; a gather's is thick.
"""

from __future__ import annotations

from typing import Final

from graphrt.graph.view.drawing import FOLDED
from graphrt.graph.view.layout import Box
from graphrt.graph.view.layout_route import HEAD, Direction, Line, Point, number
from graphrt.graph.view.sizes import PILE, SLANT

ICONS: Final = {
    "agent": "M4 6.5h8a1.5 1.5 0 0 1 1.5 1.5v4a1.5 1.5 0 0 1-1.5 1.5H4"
    "A1.5 1.5 0 0 1 2.5 12V8A1.5 1.5 0 0 1 4 6.5Z"
    "M8 6.5V3.6M8 2.4v.2M5.8 9.4v.8M10.2 9.4v.8",
    "inference": "M8 1.5C8.7 5.6 10.4 7.3 14.5 8C10.4 8.7 8.7 10.4 8 14.5"
    "C7.3 10.4 5.6 8.7 1.5 8C5.6 7.3 7.3 5.6 8 1.5Z",
    "tool": "M10.2 5.8 12.6 3.4A3.7 3.7 0 0 0 7.4 7.6L2.6 12.4A.7.7 0 0 0 2.6 13.4"
    "A.7.7 0 0 0 3.6 13.4L8.4 8.6A3.7 3.7 0 0 0 12.6 3.4",
    "fallback": "M3 5.5h6.6a3.6 3.6 0 0 1 0 7.2H6M6 2.5 3 5.5l3 3",
    "ask": "M8 2.2a2.9 2.9 0 1 1 0 5.8a2.9 2.9 0 1 1 0-5.8ZM2.6 14c.6-2.8 2.7-4.2 5.4-4.2s4.8 1.4 5.4 4.2",
    "timer": "M8 1.8a6.2 6.2 0 1 1 0 12.4a6.2 6.2 0 1 1 0-12.4ZM8 4.6V8l2.6 1.9",
    "graph": "M6 2h4v3.4H6ZM1.8 10.6h4V14h-4ZM10.2 10.6h4V14h-4ZM8 5.4V8M3.8 10.6V8h8.4v2.6",
    "plan_step": "M2 4.4 3.3 5.7 5.6 3.2M8.4 4.5h5.8M2 11.2l1.3 1.3 2.3-2.5M8.4 11.4h5.8",
    FOLDED: "M8 2.2 14 5.2 8 8.2 2 5.2ZM2 8.2l6 3 6-3M2 11.2l6 3 6-3",
}
"""Pictures on a grid of 16 by 16, drawn as lines."""

MARKS: Final = {
    "pending": "M-3.4 0h0M0 0h0M3.4 0h0",
    "running": "M-1.6-3 3 0-1.6 3Z",
    "waiting": "M-1.9-2.9V2.9M1.9-2.9V2.9",
    "succeeded": "M-3.4.3-1 2.7 3.5-2.5",
    "failed": "M-2.7-2.7 2.7 2.7M2.7-2.7-2.7 2.7",
    "skipped": "M-3-2.6-.4 0-3 2.6M.9-2.6 3.5 0 .9 2.6",
    "cancelled": "M-2.6 2.6 2.6-2.6",
    "timed_out": "M0-3.6V.3L2.6 1.9",
}
"""Marks of states around the middle of their badge: a state can be told without its colour."""

_TURN: Final = {"down": 0, "left": 90, "up": 180, "right": 270}
_ROUND: Final = 8.0


def outline(kind: str, box: Box) -> str:
    """Return the SVG elements of a node's shape."""
    special = {"end": _doubled, "graph": _barred, "ask": _bubble, FOLDED: _piled}.get(kind)
    if special is not None:
        return special(box)
    if kind in {"start", "inference"}:
        return _rectangle(box, box.height / 2)
    corners = _corners(kind, box)
    if corners:
        return _path("M" + "L".join(f"{number(x)} {number(y)}" for x, y in corners) + "Z")
    return _rectangle(box, 1.5 if kind == "plan_step" else _ROUND)


def badge_at(kind: str, box: Box) -> Point:
    """Return where a node's badge has its middle: on the outline, at the upper right."""
    if kind == "router":
        return box.right - box.width / 4 + 3, box.top + box.height / 4 - 4
    if kind in {"start", "end", "inference"}:
        return box.right - box.height / 4, box.top + box.height / 12
    if kind in {"agent", "fallback"}:
        return box.right - SLANT, box.top + 1
    return box.right - 4, box.top + 2


def _corners(kind: str, box: Box) -> list[Point]:
    left, top, right, bottom = box.left, box.top, box.right, box.bottom
    middle, centre = (top + bottom) / 2, (left + right) / 2
    lean = SLANT
    return {
        "router": [(centre, top), (right, middle), (centre, bottom), (left, middle)],
        "agent": [
            *((left + lean, top), (right - lean, top), (right, middle)),
            *((right - lean, bottom), (left + lean, bottom), (left, middle)),
        ],
        "tool": [(left + lean, top), (right, top), (right - lean, bottom), (left, bottom)],
        "fallback": [(left + lean, top), (right - lean, top), (right, bottom), (left, bottom)],
        "join": [(left, top), (right, top), (right - lean, bottom), (left + lean, bottom)],
    }.get(kind, [])


def _doubled(box: Box) -> str:
    inner = Box(box.left + 3, box.top + 3, box.width - 6, box.height - 6)
    return _rectangle(box, box.height / 2) + _rectangle(inner, inner.height / 2)


def _barred(box: Box) -> str:
    bars = (f"M{number(x)} {number(box.top)}V{number(box.bottom)}" for x in (box.left + 6, box.right - 6))
    return _rectangle(box, 3) + _path("".join(bars))


def _piled(box: Box) -> str:
    pile = (Box(box.left + shift, box.top + shift, box.width, box.height) for shift in (PILE, PILE / 2, 0))
    return "".join(_rectangle(one, 4) for one in pile)


def _bubble(box: Box) -> str:
    """Return a round box with a tail at its lower left."""
    left, top, right, bottom = (number(value) for value in (box.left, box.top, box.right, box.bottom))
    first, last = number(box.left + _ROUND), number(box.right - _ROUND)
    upper, lower = number(box.top + _ROUND), number(box.bottom - _ROUND)
    arc = f"A{number(_ROUND)} {number(_ROUND)} 0 0 1"
    return _path(
        f"M{first} {top}H{last}{arc} {right} {upper}V{lower}{arc} {last} {bottom}H{number(box.left + 22)}"
        f"L{number(box.left + 11)} {number(box.bottom + 8)}L{number(box.left + 12)} {bottom}H{first}"
        f"{arc} {left} {lower}V{upper}{arc} {first} {top}Z"
    )


def _rectangle(box: Box, radius: float) -> str:
    return (
        f'<rect class="shape" x="{number(box.left)}" y="{number(box.top)}" width="{number(box.width)}" '
        f'height="{number(box.height)}" rx="{number(radius)}"/>'
    )


def _path(data: str) -> str:
    return f'<path class="shape" d="{data}"/>'


def head(line: Line, *, double: bool = False) -> str:
    """Return the head of an edge, or two of them one behind the other."""
    data = f"M0 0L-4-{number(HEAD + 1)}H4Z"
    if double:
        data += f"M0-{number(HEAD)}L-4-{number(2 * HEAD + 1)}H4Z"
    return f'<path class="head" d="{data}" transform="{_there(line.head, line.head_direction)}"/>'


def tail(line: Line) -> str:
    """Return the small rhombus with which an edge begins that depends on a condition."""
    place = _there(line.tail, line.tail_direction)
    return f'<path class="tail" d="M0 0L-3.5 5 0 10 3.5 5Z" transform="{place}"/>'


def _there(point: Point, direction: Direction) -> str:
    turn = _TURN[direction]
    return f"translate({number(point[0])} {number(point[1])})" + (f"rotate({turn})" if turn else "")
