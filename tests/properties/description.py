"""Plain descriptions of workflows: what the reference interprets and the builder builds.

Everything a node computes is a pure function of what it receives, so one description means one result
wherever the order of completions does not matter. A value is a number, ``hops * 1000 + rest``: *hops* grows
along every edge, so that a loop can end by it, and *rest* is a checksum of all that was received, so that one
wrong input shows in the output. Errors are seen by their presence alone: which of two failures comes first is
not promised.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

START = "START"
END = "END"
INPUT = "value"
"""Name under which a node reads what enters its graph."""
SCALE = 1000

Status: TypeAlias = Literal["succeeded", "failed", "stopped", "cancelled", "timed_out", "waiting"]
ScopePart: TypeAlias = tuple[Any, ...]
ScopeKey: TypeAlias = tuple[ScopePart, ...]
"""Path from the root: ``("item", map source, map target, rounds, index)`` or ``("graph", node, rounds)``."""
StepKey: TypeAlias = tuple[ScopeKey, str, tuple[int, ...]]
"""One activation: scope, node, and one counter for each cycle around the node inside its scope."""


class Boom(Exception):  # noqa: N818 - a short word for what many examples raise
    """A node's own failure."""


class Bang(Boom):
    """A narrower failure, for typed error edges."""


class Crash(Exception):  # noqa: N818 - a short word for what many examples raise
    """A failure that no edge for `Boom` catches."""


@dataclass(frozen=True)
class Failed:
    """What a collected failure looks like in a gathered list."""


def hops(value: object) -> int:
    """Length of the longest way that led to *value*."""
    if isinstance(value, int):
        return value // SCALE
    if isinstance(value, list | tuple):
        return max((hops(one) for one in value), default=0)
    return 0


def plain(value: object) -> object:
    """Reduce *value* to what may be compared: errors lose their content, lists become tuples."""
    if isinstance(value, list | tuple):
        return tuple(plain(one) for one in value)
    if isinstance(value, BaseException):
        return "error"
    if isinstance(value, Failed) or type(value).__name__ == "Failure":
        return "failure"
    return value


def rest(value: object) -> int:
    """Checksum of *value*, under `SCALE`."""
    if isinstance(value, int):
        return value % SCALE
    return zlib.crc32(repr(plain(value)).encode()) % SCALE


@dataclass(frozen=True)
class Under:
    """Holds while a value has travelled fewer than *limit* hops."""

    limit: int

    def __call__(self, value: object) -> bool:
        return hops(value) < self.limit


@dataclass(frozen=True)
class Mod:
    """Holds for one value in *by*."""

    by: int
    equals: int = 0

    def __call__(self, value: object) -> bool:
        return rest(value) % self.by == self.equals


@dataclass(frozen=True)
class Not:
    """Holds where *other* does not."""

    other: Under | Mod

    def __call__(self, value: object) -> bool:
        return not self.other(value)


@dataclass
class Among:
    """Holds for values of this length and checksum; the set is filled once, when the workflow is drawn."""

    values: set[tuple[int, int]] = field(default_factory=set)

    def __call__(self, value: object) -> bool:
        return (hops(value), rest(value)) in self.values


@dataclass(frozen=True)
class Raising:
    """A condition with a mistake in it: raises where *where* holds, is false elsewhere."""

    where: Under | Mod

    def __call__(self, value: object) -> bool:
        if self.where(value):
            raise Crash("condition")
        return False


@dataclass(frozen=True)
class Always:
    """A constant condition."""

    answer: bool

    def __call__(self, value: object) -> bool:
        return self.answer


Predicate: TypeAlias = Callable[[Any], bool]
"""A condition on an edge; an error edge's is called with the exception."""


@dataclass(frozen=True)
class Key:
    """A branch key: one of *by* numbers."""

    by: int

    def __call__(self, value: object) -> int:
        return rest(value) % self.by


@dataclass(frozen=True)
class Field:
    """A field of the shared state; ``add`` and ``join`` have a reducer, ``last`` has none."""

    name: str
    kind: Literal["add", "join", "last"]

    @property
    def default(self) -> Any:
        """Value before any write."""
        return [] if self.kind == "join" else 0

    def fold(self, before: Any, written: Any) -> Any:
        """Value after one more write."""
        return written if self.kind == "last" else before + written


@dataclass(frozen=True)
class State:
    """A state model. Equal descriptions become one and the same class."""

    name: str
    fields: tuple[Field, ...]


@dataclass(frozen=True)
class Made:
    """What a node function returns: its value, and what it writes."""

    value: Any
    writes: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Work:
    """What a node does with what it receives."""

    makes: Literal["number", "list", "nothing"] = "number"
    length: int = 0
    """Items of the list; below zero, a number of items that depends on the input, up to that many."""
    fails: Predicate | None = None
    error: type[Exception] = Boom
    writes: tuple[Field, ...] = ()
    reads: bool = False
    deaf: bool = False
    """Does not look at the run's input: which rounds of a loop see it depends on how a node is written."""

    def __call__(self, name: str, inputs: Mapping[str, Any], state: Mapping[str, Any] | None) -> Made:
        """Compute the value; an input that is None counts as not delivered."""
        inputs = {key: value for key, value in inputs.items() if not (self.deaf and key == INPUT)}
        given = tuple(sorted((key, plain(value)) for key, value in inputs.items() if value is not None))
        seen = tuple(sorted((key, plain(value)) for key, value in state.items())) if self.reads and state else ()
        depth = 1 + max((hops(value) for value in inputs.values()), default=0)
        number = depth * SCALE + zlib.crc32(repr((name, given, seen)).encode()) % SCALE
        if self.fails is not None and self.fails(number):
            raise self.error(name)
        writes = {one.name: [number % SCALE] if one.kind == "join" else number % SCALE for one in self.writes}
        return Made(self._shape(number), writes)

    def _shape(self, number: int) -> Any:
        if self.makes == "nothing":
            return None
        if self.makes == "number":
            return number
        length = self.length if self.length >= 0 else number % (1 - self.length)
        base, low = number - number % SCALE, number % SCALE
        return [base + (low * 7 + index * 13) % SCALE for index in range(length)]


Function: TypeAlias = Callable[[str, Mapping[str, Any], Mapping[str, Any] | None], Made]
"""What a node does: from its name, its inputs and the state it sees."""


@dataclass(frozen=True)
class Node:
    """A node: a function, or a graph when *graph* is given."""

    name: str
    work: Function = Work()
    join: Literal["all", "any"] | int = "all"
    cancel_rest: bool = False
    on_error: Literal["fail", "skip"] = "fail"
    side: bool = False
    graph: Graph | None = None

    @property
    def silent(self) -> bool:
        """Whether its function is declared ``-> None``."""
        return isinstance(self.work, Work) and self.graph is None and self.work.makes == "nothing"


@dataclass(frozen=True)
class Link:
    """Anything that leads from one node to others."""

    src: str


@dataclass(frozen=True)
class Edge(Link):
    """A plain edge; with *errors*, an error edge for those types."""

    dst: str
    when: Predicate | None = None
    errors: tuple[type[Exception], ...] = ()
    into: str | None = None
    case: tuple[int, int | None] | None = None
    """Set on the edges a branch is made of: its position, and the key (None: the default)."""


@dataclass(frozen=True)
class Branch(Link):
    """Exactly one of several edges, by key."""

    key: Key
    cases: tuple[tuple[int, str], ...]
    default: str | None = None


@dataclass(frozen=True)
class Map(Link):
    """One scope for each item of the source's list."""

    dst: str
    when: Predicate | None = None
    into: str | None = None
    on_error: Literal["fail", "skip", "collect"] = "fail"
    min_success: int | None = None


@dataclass(frozen=True)
class Gather(Link):
    """The end of a map."""

    dst: str
    into: str | None = None


@dataclass(frozen=True)
class Graph:
    """A workflow, in declaration order."""

    name: str
    nodes: tuple[Node, ...]
    links: tuple[Link, ...]
    state: State | None = None
    max_rounds: int = 25
    max_steps: int | None = None

    def node(self, name: str) -> Node:
        """The node called *name*."""
        return next(node for node in self.nodes if node.name == name)


def flatten(links: Sequence[Link]) -> list[Edge | Map | Gather]:
    """Write every branch as the edges it stands for, in declaration order."""
    flat: list[Edge | Map | Gather] = []
    for position, link in enumerate(links):
        if not isinstance(link, Branch):
            assert isinstance(link, Edge | Map | Gather)
            flat.append(link)
            continue
        flat.extend(Edge(link.src, dst, case=(position, key)) for key, dst in link.cases)
        if link.default is not None:
            flat.append(Edge(link.src, link.default, case=(position, None)))
    return flat


def find_branch(graph: Graph, position: int) -> Branch:
    """The branch at *position* among the links of *graph*."""
    branch = graph.links[position]
    assert isinstance(branch, Branch)
    return branch


@dataclass(frozen=True)
class StepEnd:
    """How one step ended: ``never`` stands for skipped and for cancelled before its start alike."""

    state: Literal["succeeded", "failed", "cancelled", "never"]
    value: Any = None


@dataclass(frozen=True)
class Outcome:
    """Everything about a run that can be compared."""

    status: Status
    output: Any = None
    outputs: Mapping[str, Any] = field(default_factory=dict)
    state: Mapping[str, Any] | None = None
    error: str | None = None
    """Name of the error's class."""
    steps: Mapping[StepKey, StepEnd] = field(default_factory=dict)
    rounds: Mapping[tuple[ScopeKey, str, tuple[int, ...]], int] = field(default_factory=dict)
    """Rounds of each activation of a cycle: scope, header, rounds around it."""
    broken: frozenset[ScopeKey] = frozenset()
    """Scopes in which something was cut short; the reference alone fills this in."""
    doubts: frozenset[str] = frozenset()
    """Where the rules leave more than one answer; the reference alone fills this in."""

    @property
    def started(self) -> frozenset[StepKey]:
        """Steps whose function was called."""
        return frozenset(key for key, end in self.steps.items() if end.state != "never")
