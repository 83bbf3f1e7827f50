"""What a picture shows: plain data, without any knowledge of how a graph is built or run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

NODE_KINDS: Final = (
    "start",
    "end",
    "function",
    "agent",
    "inference",
    "tool",
    "fallback",
    "router",
    "join",
    "ask",
    "timer",
    "graph",
    "plan_step",
)
"""Kinds of node that have a shape of their own; any other is drawn as ``function``."""

FOLDED: Final = "folded"
"""Kind of the box that stands for a whole group in a large drawing."""

NODE_STATES: Final = (
    "pending",
    "running",
    "waiting",
    "succeeded",
    "failed",
    "skipped",
    "cancelled",
    "timed_out",
)
"""States that have a colour and a mark; any other is drawn as no state."""

EDGE_KINDS: Final = ("normal", "conditional", "error", "map", "gather", "back")
"""Kinds of edge that have a line of their own; any other is drawn as ``normal``."""

GROUP_KINDS: Final = ("map", "graph", "cycle")
"""Kinds of group that have a frame of their own; any other is drawn as ``graph``."""


@dataclass(frozen=True, slots=True)
class DrawnNode:
    """One node of a picture."""

    id: str
    """Unique among the nodes; the first of two with one id is drawn."""
    label: str = ""
    """What is written in the shape; the id if empty."""
    kind: str = "function"
    group: str | None = None
    """The id of the innermost group around the node."""
    state: str | None = None
    note: str | None = None
    """A short second line, such as ``3 attempts, 1.2 s``."""
    title: str | None = None
    """A longer text, shown where a pointer rests on the node."""


@dataclass(frozen=True, slots=True)
class DrawnEdge:
    """One edge of a picture. It is left out when one of its ends is not drawn."""

    src: str
    dst: str
    label: str | None = None
    kind: str = "normal"
    taken: bool | None = None
    """Whether the run went this way; None when nothing is known."""


@dataclass(frozen=True, slots=True)
class DrawnGroup:
    """A frame around nodes and other groups. One without nodes is left out."""

    id: str
    label: str = ""
    kind: str = "graph"
    parent: str | None = None


@dataclass(frozen=True, slots=True)
class Drawing:
    """A graph as it is to be drawn, with the states of one run or without."""

    name: str = ""
    nodes: tuple[DrawnNode, ...] = ()
    edges: tuple[DrawnEdge, ...] = ()
    groups: tuple[DrawnGroup, ...] = ()
    status: str | None = None
    """How the run stands, in one word."""
