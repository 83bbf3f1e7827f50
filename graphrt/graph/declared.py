"""What a person declared, before it is checked: plain records in declaration order."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from graphrt.graph.protocols import END, START, NodeKind

if TYPE_CHECKING:
    from collections.abc import Callable

    from graphrt.graph.protocols import Terminal
    from graphrt.graph.signature import NodeSignature
    from graphrt.policies import RateLimit, RetryPolicy

NodePolicy = Literal["fail", "skip"]
ItemPolicy = Literal["fail", "skip", "collect"]
EdgeKind = Literal["edge", "map", "gather"]


@dataclass(slots=True)
class NodeDecl:
    """One declared node. `target` is a function, a `Node`, or something that holds a graph."""

    name: str
    target: Any
    signature: NodeSignature
    kind: NodeKind = NodeKind.FUNCTION
    retry: RetryPolicy | None = None
    timeout: float | None = None
    step_timeout: float | None = None
    fallback: tuple[Any, ...] = ()
    on_error: NodePolicy = "fail"
    join: Literal["all", "any"] | int = "all"
    cancel_rest: bool = False
    side: bool = False
    max_concurrency: Any = None
    rate_limit: RateLimit | None = None
    version: str | None = None
    label: str | None = None


@dataclass(slots=True, eq=False)
class BranchDecl:
    """Keyed edges of one source: exactly one of them is taken."""

    key: Callable[[Any], Any] | None
    has_default: bool


@dataclass(slots=True)
class Edge:
    """One declared edge. `src` and `dst` are node names, `START` or `END`."""

    src: str | Terminal
    dst: str | Terminal
    kind: EdgeKind = "edge"
    when: Callable[[Any], Any] | None = None
    errors: tuple[type[BaseException], ...] | None = None
    """Exception classes that take an `on_error` edge; None for a normal edge."""
    into: str | None = None
    label: str | None = None
    branch: BranchDecl | None = None
    case: Any = None
    is_default: bool = False
    on_error: ItemPolicy = "fail"
    min_success: int | None = None
    max_concurrency: int = 100

    @property
    def conditional(self) -> bool:
        """Whether a finished source may leave this edge untaken."""
        return self.when is not None or self.branch is not None or self.errors is not None

    def __str__(self) -> str:
        return f"{name_of(self.src)} -> {name_of(self.dst)}"


def name_of(end: str | Terminal) -> str:
    """Give the name of an edge's end as messages show it."""
    return end if isinstance(end, str) else end.name


@dataclass(slots=True)
class GraphDecl:
    """A whole declared graph, as `Workflow` hands it to the compiler."""

    name: str
    nodes: dict[str, NodeDecl] = field(default_factory=dict)
    edges: list[Edge] = field(default_factory=list)
    input: Any = Any
    output: Any = Any
    state: type | None = None
    max_rounds: int = 25
    max_steps: int | None = None
    timeout: float | None = None
    max_concurrency: int | None = None
    copy_values: bool = True


__all__ = [
    "END",
    "START",
    "BranchDecl",
    "Edge",
    "EdgeKind",
    "GraphDecl",
    "ItemPolicy",
    "NodeDecl",
    "NodePolicy",
    "name_of",
]
