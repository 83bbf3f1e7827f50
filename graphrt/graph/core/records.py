"""What a run consists of while it runs: steps, frames, scopes, activations of cycles, and open maps.

A *frame* is one round of one activation of a cycle; a *scope* is at the same time its own outermost frame. They hold
counters only: what has to arrive still, what has to end still. Nothing here decides anything.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

from graphrt.graph.protocols import StepRef
from graphrt.graph.states import NodeState

if TYPE_CHECKING:
    from collections.abc import Sequence

    from graphrt.graph.compiled import (
        CompiledCycle,
        CompiledEdge,
        CompiledMap,
        CompiledNode,
        Program,
        Region,
    )
    from graphrt.graph.state import History

PENDING = NodeState.PENDING

NO_COUNTS: Final = cast("list[int]", ())
_NO_STEPS: Final = cast("dict[Step, None]", MappingProxyType({}))
"""What all rounds and scopes that are over share, and none can change."""


class Step:
    """One activation of a node: (node, scope, round)."""

    __slots__ = (
        "arrivals",
        "attempt",
        "attempts",
        "cancelling",
        "carried",
        "child",
        "ended",
        "error",
        "frame",
        "history",
        "node",
        "note",
        "shared",
        "started",
        "state",
        "task",
        "value",
    )

    def __init__(self, node: CompiledNode, frame: Frame, arrivals: Sequence[Arrival]) -> None:
        self.node = node
        self.frame = frame
        self.arrivals = arrivals
        """What its edges brought, in declaration order; emptied when it has ended."""
        self.state = PENDING
        self.attempts = 0
        self.started: float | None = None
        self.ended: float | None = None
        self.value: Any = None
        self.error: BaseException | None = None
        self.shared = False
        """Its value has more than one reader, so each takes a copy."""
        self.history: History | None = None
        """Writes upstream of it; after it has ended, its own too."""
        self.carried: tuple[Step, ...] = ()
        self.child: Scope | None = None
        """The scope of the graph that the node holds, while it runs."""
        self.cancelling = False
        self.note: str | None = None
        """Why it was skipped, where the state alone does not say."""
        self.task: Any = None
        """What the scheduler needs to stop it; the core never looks at it."""
        self.attempt: Any = None
        """The attempt in progress, as the scheduler tells it from one left behind."""

    @property
    def round(self) -> int:
        """Round of the innermost cycle around it, 1 outside cycles."""
        return self.frame.round[-1] if self.frame.round else 1

    @property
    def ref(self) -> StepRef:
        """Its name in events."""
        return StepRef(self.node.name, self.frame.scope.path, self.round, self.attempts or 1, self.key)

    @property
    def key(self) -> str:
        """A readable name, different for every step of a run and the same after a resume."""
        frame = self.frame
        rounds = f"#{'.'.join(map(str, frame.round))}" if frame.round else ""
        path = frame.scope.path
        return f"{path}/{self.node.quoted}{rounds}" if path else f"{self.node.quoted}{rounds}"

    def __repr__(self) -> str:
        return f"step {self.key!r}"

    def __str__(self) -> str:
        return self.key


Arrival: TypeAlias = "tuple[CompiledEdge, Step, Any]"
"""A taken edge, the step it comes from, and the value it brings."""


class Frame:
    """One round of one activation of a cycle, or, as `Scope`, the part of a region outside cycles."""

    __slots__ = (
        "activation",
        "announced",
        "arrived",
        "back",
        "back_pending",
        "cycle",
        "exits",
        "fresh",
        "inner",
        "open",
        "parent",
        "pending",
        "round",
        "scope",
    )

    def __init__(
        self,
        scope: Scope | None,
        cycle: CompiledCycle | None,
        parent: Frame | None,
        activation: Activation | None,
        round_: tuple[int, ...],
        fresh: int,
        pending: list[int],
        width: int,
    ) -> None:
        self.scope: Scope = scope if scope is not None else self  # type: ignore[assignment]  # a scope is its own frame
        self.cycle = cycle
        self.parent = parent
        self.activation = activation
        self.round = round_
        self.fresh = fresh
        """All rounds deeper than this level are first rounds: which edges count depends on it."""
        self.pending = pending
        """Edges still to settle, by slot."""
        self.open = width
        """Nodes, inner activations and maps still to end."""
        self.arrived: dict[int, list[Arrival] | None] | None = None
        """What has arrived at nodes that wait for more, by slot; None once the node has fired."""
        self.inner: dict[CompiledCycle, Activation] | None = None
        self.exits: dict[CompiledEdge, tuple[int, ...]] | None = None
        """Edges out of inner cycles that were taken, with the round that took them."""
        self.back: list[Arrival] | None = None
        self.back_pending = 0
        self.announced = False


class Activation:
    """One activation of a cycle: its rounds count from 1."""

    __slots__ = ("cycle", "due", "first", "kept", "live", "parent", "rounds")

    def __init__(self, cycle: CompiledCycle, parent: Frame) -> None:
        self.cycle = cycle
        self.parent = parent
        self.rounds = 0
        self.live = 0
        """Rounds that are not complete."""
        self.first: Frame | None = None
        self.due: list[Arrival] | None = None
        """What the back edges have brought for a next round that has not started."""
        self.kept: Sequence[Arrival] = ()
        """What the header received in round 1, kept for later rounds."""


class Slots:
    """A number of slots, counted; who takes and gives them back is the scheduler's affair."""

    __slots__ = ("capacity", "queue", "used")

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.used = 0
        self.queue: Any = None


class Scope(Frame):
    """The root of a run, one item of a map, or one activation of a node that holds a graph."""

    __slots__ = (
        "_path",
        "cause",
        "counters",
        "culprit",
        "dead",
        "ends",
        "entries",
        "error",
        "graph",
        "holder",
        "index",
        "input",
        "limits",
        "live",
        "map_run",
        "maps",
        "over",
        "program",
        "rounds",
        "span",
        "untaken",
    )

    def __init__(self, region: Region, program: Program, holder: Step | None) -> None:
        super().__init__(None, None, None, None, (), 0, list(region.zero), region.width)
        self.program = program
        self._path: str | None = None
        self.holder = holder
        """The step whose node holds this graph, or the source of this map; None for the root."""
        self.map_run: MapRun | None = None
        self.index = -1
        self.input: Any = None
        """What the graph was given; set on the scopes of graphs."""
        self.graph: Scope = self
        """The scope of the graph it belongs to: itself, unless it is an item."""
        self.live: dict[Step, None] = {}
        """Steps that have not ended, ready ones included, in the order they became ready."""
        self.maps: dict[MapRun, None] | None = None
        self.over = False
        self.untaken: dict[CompiledEdge, None] | None = None
        """Edges whose condition was false, for the message of a run that does not reach END."""
        self.dead = False
        """Has failed or is being cancelled: nothing new starts in it."""
        self.cause = ""
        self.error: BaseException | None = None
        self.culprit: Step | None = None
        self.ends: list[Arrival] | None = None
        """What edges into END brought."""
        self.entries: dict[CompiledEdge, Arrival] | None = None
        """What an item gives to each gather."""
        self.rounds: list[Frame] | None = None
        """Announced rounds that are not complete."""
        self.limits: tuple[Slots, ...] = ()
        """Slots that a function needs to run here: of the run and of the maps around."""
        self.counters: tuple[StepLimit, ...] = ()
        self.span: Any = None

    def close(self) -> None:
        """Note that all has ended well, and let go of what only work needs: its steps keep a scope for its name."""
        self.over = True
        self.live = _NO_STEPS
        self.pending = NO_COUNTS
        self.arrived = self.inner = self.exits = self.entries = self.ends = None

    @property
    def path(self) -> str:
        """Readable and different for every scope of a run: `outline[3]/section`; empty for the root."""
        if self._path is None:
            holder = self.holder
            if holder is None:
                self._path = ""
            else:
                frame = holder.frame
                rounds = f"#{'.'.join(map(str, frame.round))}" if frame.round else ""
                own = holder.node.quoted if self.map_run is None else self.map_run.map.tag
                item = "" if self.map_run is None else f"[{self.index}]"
                around = frame.scope.path
                self._path = f"{around}/{own}{rounds}{item}" if around else f"{own}{rounds}{item}"
        return self._path


class StepLimit:
    """`max_steps` of one activation of a graph."""

    __slots__ = ("limit", "scope", "started")

    def __init__(self, scope: Scope, limit: int) -> None:
        self.scope = scope
        self.limit = limit
        self.started = 0


class MapRun:
    """One taken map edge: its items, and what they gave."""

    __slots__ = (
        "aborted",
        "children",
        "closed",
        "failed",
        "frame",
        "given",
        "items",
        "limit",
        "limits",
        "map",
        "opened",
        "results",
        "source",
        "total",
    )

    def __init__(self, map_: CompiledMap, source: Step, items: Sequence[Any] | None) -> None:
        self.map = map_
        self.source = source
        self.frame = source.frame
        self.items = items
        """The items of a list source; for an iterator, what it has yielded so far when that must be remembered."""
        self.total: int | None = None if items is None else len(items)
        self.opened = 0
        self.children: dict[int, Scope] = {}
        """Scopes of items that have not settled."""
        self.results: list[dict[int, Arrival | Any]] = [{} for _ in map_.gathers]
        """For each gather, what each item gave."""
        self.failed: dict[int, BaseException] | None = None
        self.given = 0
        """Items that delivered a value."""
        self.limit = Slots(map_.max_concurrency)
        self.limits = (*self.frame.scope.limits, self.limit)
        """Slots that a function needs to run in an item."""
        self.closed = False
        self.aborted = False


class Gathered(Step):
    """The step that a gather's list comes from, in the place of the map's source."""

    __slots__ = ("histories", "source")

    def __init__(self, source: Step, histories: Sequence[History | None]) -> None:
        super().__init__(source.node, source.frame, ())
        self.source = source
        self.carried = source.carried
        self.histories = histories
        """What the source and the delivered items have written, merged where the list is read."""
