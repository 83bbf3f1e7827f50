"""What the engine's parts look like from here: tracing lies below the engine, and imports nothing of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence


class NodeView(Protocol):
    """A node of a graph."""

    name: str
    kind: str


class StepView(Protocol):
    """One activation of a node; its identity is what spans are kept by."""

    node: NodeView
    frame: FrameView
    round: int
    state: str
    value: Any
    error: BaseException | None
    arrivals: Sequence[tuple[Any, Any, Any]]
    """What edges brought: the edge, which has a `name`, its source, and the value."""
    key: str


class FrameView(Protocol):
    """One round of a cycle; a scope is a frame as well, and has no cycle."""

    scope: ScopeView
    cycle: CycleView | None
    parent: FrameView | None
    round: tuple[int, ...]


class CycleView(Protocol):
    """The cycle that a round is one of."""

    header: NodeView


class ScopeView(FrameView, Protocol):
    """The root of a run, an item of a map, or one activation of a node that holds a graph."""

    path: str
    holder: StepView | None
    map_run: MapView | None
    dead: bool
    cause: str
    """Why it is dead: failed, cancelled, timed_out or stopped."""
    error: BaseException | None
    span: Any
    """Kept for tracing alone."""


class MapView(Protocol):
    """The map that an item belongs to."""

    frame: FrameView


class ProgramView(Protocol):
    """A compiled graph."""

    name: str


class OutcomeView(Protocol):
    """How a run ended."""

    status: Any
    error: BaseException | None
    output: Any
