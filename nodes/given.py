"""What nodes are given as a value, or as a function that makes it of the node's inputs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from graphrt.errors import GraphError
from graphrt.graph.signature import read_signature

if TYPE_CHECKING:
    from collections.abc import Callable

    from graphrt.graph.signature import Param


def is_function(given: Any) -> bool:
    """Say whether a value is to be made by calling what was given."""
    return callable(given) and not isinstance(given, type)


def parameters_of(fn: Callable[..., Any], *, name: str, what: str) -> tuple[Param, ...]:
    """Give the parameters of a function that makes *what* of the inputs of node *name*: they are the node's.

    Raises:
        GraphError: It is async, yields, or takes the run's context.
    """
    signature = read_signature(fn, name=name)
    if not signature.is_sync:
        raise GraphError(
            f"the {what} of {name!r} is made by a function that is async or yields",
            hint=f"let a node before it do the work, and the {what} take its value",
        )
    contexts = [param.name for param in signature.params if param.is_context]
    if contexts:
        raise GraphError(
            f"the {what} of {name!r} takes the run's context, as {contexts[0]!r}",
            hint=f"a {what} is made of values alone: let a node before it read the context",
        )
    return signature.params
