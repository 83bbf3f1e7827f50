"""Reading what a person hands to a `Workflow`: names, functions, node objects, conditions."""

from __future__ import annotations

import sys
from types import FunctionType
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from graphrt.errors import GraphError
from graphrt.graph.declared import GraphDecl, name_of
from graphrt.graph.protocols import HoldsGraph, Node, NodeKind, Terminal
from graphrt.graph.signature import MISSING, NodeSignature, Param, read_signature

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import FrameType


@runtime_checkable
class Graphlike(Protocol):
    """A workflow or its compiled graph, used as a node."""

    def declared(self) -> GraphDecl:
        """Give what was declared."""
        ...

    def compiled_graph(self) -> Any:
        """Give the compiled graph."""
        ...


NODE_OPTIONS = frozenset(
    {
        "retry",
        "timeout",
        "step_timeout",
        "on_error",
        "join",
        "cancel_rest",
        "side",
        "max_concurrency",
        "rate_limit",
        "version",
        "label",
    }
)


def own_name(target: Any) -> str:
    """Give the name a function or object brings.

    Raises:
        GraphError: It has none, such as a lambda.
    """
    name = getattr(target, "__name__", None) or getattr(target, "name", None)
    if name is None and hasattr(target, "func"):  # functools.partial
        name = getattr(target.func, "__name__", None)
    if not isinstance(name, str) or name == "<lambda>":
        raise GraphError(f"node {target!r} has no name of its own", hint="give name=")
    return name


def show(ref: Any) -> str:
    """Write a node reference as messages show it."""
    if isinstance(ref, (str, Terminal)):
        return repr(name_of(ref)) if isinstance(ref, str) else name_of(ref)
    name = getattr(ref, "__name__", None) or getattr(ref, "name", None)
    return name if isinstance(name, str) else repr(ref)


def error_classes(on_error: Any) -> tuple[type[BaseException], ...] | None:
    """Read `on_error=` of an edge; None for a normal edge.

    Raises:
        GraphError: It names no exceptions that can be handled.
    """
    if on_error is False:
        return None
    if on_error is True:
        return (Exception,)
    classes = on_error if isinstance(on_error, tuple) else (on_error,)
    for cls in classes:
        if not (isinstance(cls, type) and issubclass(cls, Exception)):
            raise GraphError(
                f"on_error is {on_error!r}, which is no class of exceptions that can be handled",
                hint="give True, an Exception class, or a tuple of them; a cancellation is never handled",
            )
    return classes


def read_target(name: str, target: Any, depth: int) -> tuple[NodeKind, NodeSignature]:
    """Read what a node takes and gives; *depth* frames up stands the call that declares it.

    Raises:
        GraphError: It is nothing that can be a node, or its parameters cannot be read.
    """
    if isinstance(target, FunctionType):
        return NodeKind.FUNCTION, read_signature(target, name=name, localns=_names_in_sight(target, depth))
    if isinstance(target, Graphlike):
        return NodeKind.GRAPH, graph_signature(target.declared())
    if isinstance(target, (Node, HoldsGraph)):
        return NodeKind(getattr(target, "kind", NodeKind.GRAPH)), target.signature  # type: ignore[union-attr]  # a node's own
    if callable(target):
        return NodeKind.FUNCTION, read_signature(target, name=name, localns=None)
    raise GraphError(
        f"node {name!r} is a {type(target).__name__}, which is neither a function nor a node",
        hint="give a function, a workflow, or an object with name, kind, signature and run(inputs, ctx)",
    )


def _names_in_sight(fn: FunctionType, depth: int) -> Mapping[str, Any] | None:
    """Give the names of the functions around *fn* that are still at work, where its annotations are text."""
    if "<locals>" not in fn.__qualname__ or not any(isinstance(a, str) for a in fn.__annotations__.values()):
        return None
    names: dict[str, Any] = {}
    frame: FrameType | None = sys._getframe(depth)
    own = fn.__code__
    while frame is not None:
        code = frame.f_code
        if code.co_filename == own.co_filename and own.co_qualname.startswith(f"{code.co_qualname}.<locals>."):
            names = {**frame.f_locals, **names}
        frame = frame.f_back
    return names


def graph_signature(decl: GraphDecl) -> NodeSignature:
    """Say what a graph takes and gives when it is a node."""
    if isinstance(decl.input, dict):
        params = tuple(Param(name, tp) for name, tp in decl.input.items())
    else:
        params = (Param("input", MISSING if decl.input is Any else decl.input, MISSING),)
    return NodeSignature(params=params, returns=MISSING if decl.output is Any else decl.output, flavor="async")
