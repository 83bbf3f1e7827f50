"""Small nodes for any workflow: a function under a name, a place to branch, a place to meet."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from graphrt.errors import GraphError
from graphrt.graph.protocols import NodeKind
from graphrt.graph.signature import MISSING, NodeSignature, Param, read_signature
from graphrt.threads import run_in_thread

if TYPE_CHECKING:
    from graphrt.graph.scheduler.context import RunContext

Key: TypeAlias = Callable[[Any], Any]


class FunctionNode:
    """A function as a node under a name of its own; calling the object calls the function.

    What `Workflow.node` and `Workflow.add` make of a function themselves, as an object that can be made in one
    place and added in another. Its parameters and its return annotation are the node's, and it may be of any
    kind that a node may be: async or not, or a generator as the source of a map.
    """

    kind = NodeKind.FUNCTION

    def __init__(self, name: str, fn: Callable[..., Any]) -> None:
        """Take the function.

        Raises:
            GraphError: Its parameters cannot be read.
        """
        self._name = name
        self.fn = fn
        self.signature: Final = read_signature(fn, name=name)

    @property
    def name(self) -> str:
        """Name of the node."""
        return self._name

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function."""
        return self.fn(*args, **kwargs)

    async def run(self, inputs: Mapping[str, Any], ctx: RunContext[Any]) -> Any:
        """Call the function with *inputs* by name, in a thread if it is synchronous.

        In a graph the engine calls the function itself, and reads a generator item by item.

        Raises:
            GraphError: The function is a generator, which has no one value.
        """
        signature = self.signature
        if signature.is_gen or signature.is_async_gen:
            raise GraphError(
                f"node {self._name!r} yields items, and has no value by itself",
                hint="make it the source of a map in a workflow",
            )
        contexts = {param.name: ctx for param in signature.params if param.is_context}
        arguments = {**inputs, **contexts}
        if signature.is_async:
            return await self.fn(**arguments)
        value = await run_in_thread(lambda: self.fn(**arguments))
        return await value if inspect.isawaitable(value) else value


class RouterNode:
    """Give a value on as it is: the place from which a branch goes.

    `graph.branch(router, {"bug": debug, "question": answer}, key=router.key)` sends the value to one of several
    nodes, each of which takes the value itself, not the key. Give it `join="any"`, or edges that exclude each
    other, to gather several ways before one decision.
    """

    kind = NodeKind.ROUTER

    def __init__(self, name: str, *, key: Key | None = None, type: Any = MISSING) -> None:
        """Take the function that gives the key for a value.

        Args:
            name: Name of the node.
            key: A pure function of the value; the value itself when None.
            type: The declared type of the value.
        """
        self._name = name
        self._key = key
        self._type = type

    @property
    def name(self) -> str:
        """Name of the node."""
        return self._name

    @property
    def signature(self) -> NodeSignature:
        """Takes `value`, and gives it."""
        return NodeSignature((Param("value", self._type),), self._type)

    def key(self, value: Any) -> Any:
        """Give the key by which the branch goes."""
        return value if self._key is None else self._key(value)

    async def run(self, inputs: Mapping[str, Any], ctx: RunContext[Any]) -> Any:
        """Give the value on."""
        return inputs["value"]


class _Absent:
    def __repr__(self) -> str:
        return "<nothing came>"

    def __copy__(self) -> _Absent:
        return self

    def __deepcopy__(self, memo: object) -> _Absent:
        return self


_ABSENT: Final = _Absent()


class JoinNode:
    """Wait for several edges, and give what they bring together: a dict by source, in the order given here.

    A source whose edge was skipped is left out, so that the node also joins branches of which some were not
    chosen. It is added with `join="any"` or a number to wait for fewer.
    """

    kind = NodeKind.JOIN

    def __init__(
        self,
        name: str,
        *sources: str,
        combine: Callable[[dict[str, Any]], Any] | None = None,
        type: Any = MISSING,
    ) -> None:
        """Take the names of the edges: those of their sources, or what `into=` calls them.

        Args:
            name: Name of the node.
            sources: At least one name.
            combine: Makes the node's value of the dict; a pure and quick function.
            type: The declared type of what *combine* gives.

        Raises:
            GraphError: There is no source, or one is named twice.
        """
        if not sources or len(set(sources)) < len(sources):
            raise GraphError(
                f"join {name!r} waits for {', '.join(map(repr, sources)) or 'nothing'}",
                hint="name each node that leads to it once: JoinNode('both', 'left', 'right')",
            )
        self._name = name
        self._sources = sources
        self._combine = combine
        self._type = dict if combine is None and type is MISSING else type

    @property
    def name(self) -> str:
        """Name of the node."""
        return self._name

    @property
    def signature(self) -> NodeSignature:
        """Takes a value from each source, and gives a dict, or what *combine* makes of it."""
        return NodeSignature(tuple(Param(each, default=_ABSENT) for each in self._sources), self._type)

    async def run(self, inputs: Mapping[str, Any], ctx: RunContext[Any]) -> Any:
        """Put together what has come."""
        values = {each: inputs[each] for each in self._sources if inputs[each] is not _ABSENT}
        return values if self._combine is None else self._combine(values)
