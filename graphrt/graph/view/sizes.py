"""How large a node is drawn, and where its outline runs: what the layout must know of the shapes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from graphrt.graph.view.drawing import FOLDED, DrawnNode
from graphrt.graph.view.words import clip, width

LABEL_SIZE: Final = 13.0
NOTE_SIZE: Final = 11.0
CHIP_SIZE: Final = 11.0
TITLE_SIZE: Final = 11.0
"""Font sizes in pixels: of a node's name, its note, an edge's label and a group's name."""

ICON: Final = 15.0
ICON_GAP: Final = 6.0
SLANT: Final = 10.0
"""How far the slanted sides of a shape lean, in pixels."""

PILE: Final = 6.0
"""How far the boxes behind that of a folded group reach out, in pixels."""

CHIP_HEIGHT: Final = 18.0
_CHIP_PADDING: Final = 6.0
_CHIP_LIMIT: Final = 150.0
_LABEL_LIMIT: Final = 210.0
_HEIGHT: Final = 38.0
_CAP_HEIGHT: Final = 30.0
_NOTE_HEIGHT: Final = 15.0
_LEAST: Final = 64.0
_LEAST_ROUTER: Final = 92.0
_PORT_MARGIN: Final = 10.0
_SLANT_MARGIN: Final = 12.0
_EDGE_ROOM: Final = 14.0
_EDGE_LIMIT: Final = 240.0

ICONS: Final = frozenset({"agent", "inference", "tool", "fallback", "ask", "timer", "graph", "plan_step", FOLDED})
"""Kinds that have a small picture before their name."""

_PADDING: Final = {
    "start": 16.0,
    "end": 18.0,
    "agent": 20.0,
    "inference": 18.0,
    "tool": 20.0,
    "fallback": 21.0,
    "join": 22.0,
    "graph": 19.0,
}
_SLANTED: Final = frozenset({"tool", "fallback", "join"})


@dataclass(frozen=True, slots=True)
class NodeSize:
    """The box around a node's shape, in pixels, and the texts as they fit into it."""

    width: float
    height: float
    label: str
    note: str


def node_size(node: DrawnNode, edges: int = 0) -> NodeSize:
    """Measure *node*: its name and note, cut to fit, and the shape around them.

    *edges* tells how many edges meet it at most on one side: a node of many is wider.
    """
    label = clip(node.label, LABEL_SIZE, _LABEL_LIMIT)
    note = clip(node.note or "", NOTE_SIZE, _LABEL_LIMIT)
    text = width(label, LABEL_SIZE) + (ICON + ICON_GAP if node.kind in ICONS else 0)
    text = max(text, width(note, NOTE_SIZE))
    if node.kind == "router":  # text of w by h fits into a rhombus of W by H when w/W + h/H is at most 1
        high = 76.0 if note else 56.0
        lines = 26.0 if note else 13.0
        return NodeSize(_even(max(text / (1 - lines / high) + 10, _LEAST_ROUTER)), high, label, note)
    high = (_CAP_HEIGHT if node.kind in {"start", "end"} else _HEIGHT) + (_NOTE_HEIGHT if note else 0)
    least = max(_LEAST, min(_EDGE_ROOM * edges, _EDGE_LIMIT))
    return NodeSize(_even(max(text + 2 * _PADDING.get(node.kind, 14.0), least)), high, label, note)


def chip_text(label: str) -> str:
    """Cut the label of an edge to what fits into its chip."""
    return clip(label, CHIP_SIZE, _CHIP_LIMIT)


def chip_width(text: str) -> float:
    """Return the width of the chip around an edge's label, in pixels."""
    return _even(width(text, CHIP_SIZE) + 2 * _CHIP_PADDING)


def port_reach(kind: str, size: NodeSize) -> float:
    """Return how far from the middle, to either side, an edge may meet the top or bottom of a shape."""
    if kind == "router":
        return size.width / 8
    if kind in {"start", "end", "inference"}:
        return max(size.width / 2 - size.height / 2, 0)
    return max(size.width / 2 - (_SLANT_MARGIN if kind in _SLANTED or kind == "agent" else _PORT_MARGIN), 0)


def rise(kind: str, size: NodeSize, offset: float) -> float:
    """Return how far the top and bottom of a shape lie inside its box, *offset* pixels from its middle."""
    return abs(offset) / (size.width / 2) * size.height / 2 if kind == "router" else 0


def inset(kind: str, size: NodeSize, offset: float) -> float:
    """Return how far the sides of a shape lie inside its box, *offset* pixels above or below its middle."""
    half = size.height / 2
    share = min(abs(offset) / half, 1)
    if kind == "router":
        return share * size.width / 2
    if kind == "agent":
        return share * SLANT
    if kind in _SLANTED:
        return SLANT / 2
    if kind in {"start", "end", "inference"}:
        return half - math.sqrt(half * half - (share * half) ** 2)
    return 0


def _even(value: float) -> float:
    """Round up to an even number, so that the middle lies on a whole pixel."""
    return math.ceil(value / 2) * 2
