"""What the engine's parts look like from here: tracing lies below the engine, and imports nothing of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


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


class RunSpan(NamedTuple):
    """What the span of a graph's run is, where it is more than a run: in a declaration's `run_span`."""

    name: str
    attributes: Mapping[str, Any]
    """The kind, and what else is known before the run begins; content takes the place of the run's input."""


class ProgramView(Protocol):
    """A compiled graph."""

    name: str
    decl: Any
    """What was declared; it may have a `run_span`."""


class OutcomeView(Protocol):
    """How a run ended."""

    status: Any
    error: BaseException | None
    output: Any
