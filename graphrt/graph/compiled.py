"""The compiled form of a graph: indexed, immutable parts that the core walks without looking anything up by name.

A *region* is what one scope runs: the graph itself, or the body of one map. Inside a region, nodes sit in nested
*cycles*; a node's `depth` is the number of cycles around it. An edge lives where both its ends do: its `depth` is the
number of cycles that hold both.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from graphrt.graph.binding import Binder
    from graphrt.graph.declared import BranchDecl, Edge, GraphDecl, ItemPolicy, NodeDecl
    from graphrt.graph.protocols import NodeKind
    from graphrt.graph.statemodel import StateSpec


DESCRIBED = 2000
"""Lines of a graph's description that are kept with a run, to say what has changed."""

_MEANT = frozenset("%/#[]>")
"""Characters that have a meaning in keys and paths."""


def quote(name: str) -> str:
    """Write a node's name so that no other name, round or item can be mistaken for it in keys and paths."""
    if _MEANT.isdisjoint(name):
        return name
    return "".join(f"%{ord(c):02X}" if c in _MEANT else c for c in name)


class EdgeKind(IntEnum):
    """How an edge carries its value."""

    PLAIN = 0
    """From a node that succeeded to a node of the same region, or to END."""
    ERROR = 1
    """From a node that failed, with its exception."""
    MAP = 2
    """Into the body of a map, one scope an item."""
    MEMBER = 3
    """Out of a map's body, one entry of a gather."""
    GATHER = 4
    """From a map's source to where its items are gathered: the map and its body count as this one edge."""


class CompiledEdge:
    """One edge with all that settling it needs."""

    __slots__ = (
        "back",
        "carry",
        "cond",
        "decl",
        "depth",
        "dst",
        "gather",
        "index",
        "kind",
        "map",
        "members",
        "name",
        "simple",
        "src",
    )

    def __init__(self, index: int, decl: Edge, kind: EdgeKind, src: CompiledNode, dst: CompiledNode) -> None:
        self.index = index
        self.decl = decl
        self.kind = kind
        self.src = src
        self.dst = dst
        self.depth = 0
        self.back = False
        self.cond = decl.conditional
        self.simple = False
        """Neither enters nor leaves a cycle, and is no back edge."""
        self.map: CompiledMap | None = None
        self.gather: CompiledEdge | None = None
        """For a member: the gather edge it belongs to."""
        self.members: tuple[CompiledEdge, ...] = ()
        self.carry: tuple[int, ...] = ()
        """Where each value that the destination carries comes from: -1 the source itself, else a place in its own."""
        self.name = decl.into or src.name
        """What a parameter is called that takes this edge's value."""

    def __repr__(self) -> str:
        return f"{self.src.name} -> {self.dst.name}"


class CompiledNode:
    """One node with its place in the region and what the scheduler needs to run it."""

    __slots__ = (
        "back_in",
        "binder",
        "branches",
        "cancel_sets",
        "carry",
        "conditional",
        "copies_inputs",
        "cycles",
        "decl",
        "depth",
        "errors",
        "feeds_copies",
        "forward_in",
        "graph",
        "header_of",
        "index",
        "kind",
        "lazy",
        "name",
        "need",
        "next",
        "out",
        "quorum",
        "quoted",
        "read_by_name",
        "region",
        "run",
        "side",
        "slot",
    )

    def __init__(self, index: int, name: str, kind: NodeKind, decl: NodeDecl | None) -> None:
        self.index = index
        self.name = name
        self.quoted = quote(name)
        """Its name in keys and paths, where some characters mean something."""
        self.kind = kind
        self.decl = decl
        self.region: Region = None  # type: ignore[assignment]  # set when its region is known, before anyone reads it
        self.cycles: tuple[CompiledCycle, ...] = ()
        self.depth = 0
        self.slot = 0
        self.header_of: CompiledCycle | None = None
        self.side = bool(decl and decl.side)
        self.quorum = 0
        """0: waits for all edges; n: runs on the n-th taken one."""
        self.cancel_sets: tuple[frozenset[CompiledNode | CompiledMap], ...] = ()
        """For `cancel_rest`: what is useless once it has run, by how many of its cycles hold that too."""
        self.forward_in: tuple[CompiledEdge, ...] = ()
        self.back_in: tuple[CompiledEdge, ...] = ()
        self.out: tuple[CompiledEdge, ...] = ()
        """Normal, map and member edges, in declaration order."""
        self.errors: tuple[CompiledEdge, ...] = ()
        self.branches: tuple[BranchDecl, ...] = ()
        self.lazy = False
        """Whether it yields the items of a map one by one."""
        self.conditional = False
        """Whether its end needs more than taking every edge."""
        self.next: CompiledEdge | None = None
        """The one simple edge out of it into a node with one edge, when that is all there is."""
        self.need: tuple[int, ...] = (0,)
        """need[m]: how many forward edges count when all rounds deeper than m are first rounds."""
        self.carry: tuple[CompiledNode, ...] = ()
        """Nodes upstream whose steps this node's steps keep at hand, for reading by name."""
        self.read_by_name = False
        self.feeds_copies = False
        """One of its edges leads to a node that copies its inputs."""
        self.copies_inputs = False
        """Its inputs are read more than once: by several attempts, or by the rounds of a header."""
        self.binder: Binder = None  # type: ignore[assignment]  # set by the binding pass, before anyone reads it
        self.graph: Program | None = None
        self.run: Any = None
        """What the scheduler prepared for it at compile time."""

    def __repr__(self) -> str:
        return self.name


class CompiledCycle:
    """A strongly connected part of a region."""

    __slots__ = (
        "exits",
        "header",
        "inner",
        "level",
        "nodes",
        "orphans",
        "parent",
        "width",
        "zero",
    )

    def __init__(self, header: CompiledNode, level: int, parent: CompiledCycle | None) -> None:
        self.header = header
        self.level = level
        """1 for a cycle that lies in no other."""
        self.parent = parent
        self.nodes: tuple[CompiledNode, ...] = ()
        """Nodes whose innermost cycle this is, side nodes included, by slot."""
        self.inner: tuple[CompiledCycle, ...] = ()
        self.exits: tuple[CompiledEdge, ...] = ()
        """Edges for which this is the outermost cycle they leave."""
        self.zero: tuple[tuple[int, ...], ...] = ()
        """zero[m]: edges to wait for, by slot, in a frame whose rounds deeper than m are first rounds."""
        self.orphans: tuple[tuple[CompiledNode, ...], ...] = ()
        """orphans[m]: headers of the cycles right inside that no edge reaches then."""
        self.width = 0
        """Nodes and inner cycles that one round has to see finished."""

    def __repr__(self) -> str:
        return f"cycle of {self.header.name}"


class CompiledMap:
    """One map: its edge, its body and its gathers."""

    __slots__ = ("body", "decl", "edge", "gathers", "index", "lazy", "max_concurrency", "min_success", "policy", "tag")

    def __init__(self, index: int, edge: CompiledEdge, decl: Edge) -> None:
        self.index = index
        self.edge = edge
        self.decl = decl
        self.policy: ItemPolicy = decl.on_error
        self.min_success = decl.min_success
        self.max_concurrency = decl.max_concurrency
        self.body: Region = None  # type: ignore[assignment]  # set when the body is known, before anyone reads it
        self.gathers: tuple[CompiledEdge, ...] = ()
        self.tag = edge.src.quoted
        """How the scopes of its items are called: the source, and the body's first node where a source has two maps."""
        self.lazy = False
        """Whether the source yields its items one by one."""


class Region:
    """What one scope runs: the graph itself, or the body of one map."""

    __slots__ = ("cycles", "map", "nodes", "parent", "width", "zero")

    def __init__(self, parent: Region | None, of_map: CompiledMap | None) -> None:
        self.parent = parent
        self.map = of_map
        self.nodes: tuple[CompiledNode, ...] = ()
        """Nodes outside cycles, side nodes included, by slot."""
        self.cycles: tuple[CompiledCycle, ...] = ()
        self.zero: tuple[int, ...] = ()
        self.width = 0


class Program:
    """A whole compiled graph."""

    __slots__ = (
        "_description",
        "_fingerprint",
        "_packed",
        "by_name",
        "check_input",
        "check_output",
        "decl",
        "edges",
        "end",
        "input_names",
        "maps",
        "max_rounds",
        "max_steps",
        "name",
        "nodes",
        "reads_input",
        "region",
        "start",
        "state",
    )

    def __init__(self, decl: GraphDecl, start: CompiledNode, end: CompiledNode) -> None:
        self.decl = decl
        self.name = decl.name
        self.start = start
        self.end = end
        self.nodes: tuple[CompiledNode, ...] = ()
        self.by_name: dict[str, CompiledNode] = {}
        self.edges: tuple[CompiledEdge, ...] = ()
        self.maps: tuple[CompiledMap, ...] = ()
        self.region = Region(None, None)
        self.max_rounds = decl.max_rounds
        self.max_steps = decl.max_steps
        self.state: StateSpec | None = None
        self.reads_input = False
        """Whether a node reads the input, or a part of it, besides the one that START's edge leads to."""
        self.input_names: tuple[str, ...] = ()
        """Names of the parts of a declared `input={name: type}`."""
        self.check_input: Callable[[object], bool] | None = None
        self.check_output: Callable[[object], bool] | None = None
        self._fingerprint: str | None = None
        self._description: tuple[str, ...] | None = None
        self._packed: str | None = None

    @property
    def fingerprint(self) -> str:
        """A hash of structure, node names, declared types and versions; worked out when it is first asked for."""
        if self._fingerprint is None:
            from graphrt.graph.fingerprint import fingerprint_of

            self._fingerprint = fingerprint_of(self)
        return self._fingerprint

    @property
    def description(self) -> tuple[str, ...]:
        """What the fingerprint is made of, one line a part."""
        if self._description is None:
            from graphrt.graph.fingerprint import describe

            self._description = tuple(describe(self))
        return self._description

    @property
    def packed_description(self) -> str:
        """The same in a short text, to be kept with each stored run."""
        if self._packed is None:
            from graphrt.graph.fingerprint import pack

            self._packed = pack(self.description[:DESCRIBED])
        return self._packed

    def walk(self, visit: Callable[[Program], None]) -> None:
        """Call *visit* for this graph and every graph held by its nodes, outermost first."""
        visit(self)
        for node in self.nodes:
            if node.graph is not None:
                node.graph.walk(visit)
