"""Where each parameter of a node gets its value: six rules, decided when the graph is compiled."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Any

from graphrt.errors import GraphError
from graphrt.graph.compiled import EdgeKind
from graphrt.graph.signature import MISSING
from graphrt.graph.values import copy_value

if TYPE_CHECKING:
    from collections.abc import Sequence

    from graphrt.graph.compiled import CompiledEdge, CompiledNode
    from graphrt.graph.core.records import Step
    from graphrt.graph.core.run import RunCore
    from graphrt.graph.signature import Param

_MAP = EdgeKind.MAP


class How(IntEnum):
    """The rule that fills a parameter."""

    CONTEXT = 0
    STATE = 1
    EDGES = 2
    INPUT = 3
    UPSTREAM = 4
    DEFAULT = 5


class Bind:
    """One parameter and its rule."""

    __slots__ = ("edges", "how", "name", "only", "param", "part", "place", "source")

    def __init__(self, param: Param, how: How) -> None:
        self.param = param
        self.name = param.name
        self.how = how
        self.edges: tuple[CompiledEdge, ...] = ()
        """Edges of which at most one delivers."""
        self.only: CompiledEdge | None = None
        self.part: str | None = None
        """Which part of the run's input; None for all of it."""
        self.source: CompiledNode | None = None
        self.place = -1


class Binder:
    """Gives a step its arguments."""

    __slots__ = ("binds", "by_place", "needs_context", "node", "single")

    def __init__(self, node: CompiledNode, binds: Sequence[Bind]) -> None:
        self.node = node
        self.binds = tuple(binds)
        self.needs_context = any(b.how is How.CONTEXT for b in binds)
        self.single = _is_single(node, self.binds)
        """Takes one value, from whichever of its edges brings it."""
        self.by_place = _by_place(node, self.binds)
        """For a node whose parameters are its edges, one each: the place of each parameter's edge among them."""

    def inputs(self, core: RunCore, step: Step, ctx: Any) -> dict[str, Any]:
        """Give the step's inputs by parameter name, in the order of the parameters.

        Raises:
            GraphError: Two edges deliver for one parameter, or none does.
        """
        if self.single and len(step.arrivals) == 1:
            return {self.binds[0].name: deliver(core, step, *step.arrivals[0])}
        return {bind.name: self._value(core, step, bind, ctx) for bind in self.binds}

    def values(self, core: RunCore, step: Step, ctx: Any) -> list[Any]:
        """Give the step's inputs in the order of the parameters; raises as `inputs`."""
        places = self.by_place
        arrivals = step.arrivals
        if places is not None and len(arrivals) == len(places):
            return [deliver(core, step, *arrivals[place]) for place in places]
        return [self._value(core, step, bind, ctx) for bind in self.binds]

    def _value(self, core: RunCore, step: Step, bind: Bind, ctx: Any) -> Any:
        how = bind.how
        if how is How.EDGES:
            return self._from_edges(core, step, bind)
        if how is How.CONTEXT:
            return ctx
        if how is How.INPUT:
            return _input_part(core, step, bind)
        if how is How.UPSTREAM:
            source = step.carried[bind.place]
            return core.copy(source.value, source)
        if how is How.STATE:
            return core.read_state(step)
        return bind.param.default

    def _from_edges(self, core: RunCore, step: Step, bind: Bind) -> Any:
        arrivals = step.arrivals
        found = None
        for arrival in arrivals:
            if arrival[0] in bind.edges:
                if found is not None:
                    raise GraphError(
                        f"parameter {bind.name!r} of node {self.node.name!r} gets two values at once: "
                        f"from edge {found[0]} and from edge {arrival[0]}",
                        hint="make their conditions exclude each other, or name a parameter for each edge with into=",
                    )
                found = arrival
        if found is None:
            activation = step.frame.activation
            if activation is not None and self.node.header_of is activation.cycle:
                found = next((a for a in activation.kept if a[0] in bind.edges), None)
        if found is None:
            return self._missing(bind)
        edge, source, value = found
        return deliver(core, step, edge, source, value)

    def _missing(self, bind: Bind) -> Any:
        if bind.param.default is not MISSING:
            return bind.param.default
        if bind.param.optional:
            return None
        edges = ", ".join(str(e) for e in bind.edges)
        raise GraphError(
            f"no edge has brought a value for parameter {bind.name!r} of node {self.node.name!r}: {edges}",
            hint="give it a default, or a type that allows None",
        )


def _is_single(node: CompiledNode, binds: Sequence[Bind]) -> bool:
    if len(binds) != 1 or binds[0].how is not How.EDGES or node.back_in:
        return False
    return len(binds[0].edges) == len(node.forward_in)


def _by_place(node: CompiledNode, binds: Sequence[Bind]) -> tuple[int, ...] | None:
    if node.back_in or len(node.forward_in) != len(binds):
        return None
    edges = {e: i for i, e in enumerate(node.forward_in)}
    places = [edges.pop(b.edges[0], -1) for b in binds if len(b.edges) == 1]
    return None if edges else tuple(places)


def deliver(core: RunCore, step: Step, edge: CompiledEdge, source: Step, value: Any) -> Any:
    """Give what an edge brings, as a copy of its own when the value has more readers (E22)."""
    if not core.copies:
        return value
    if source.shared or step.node.copies_inputs:
        return copy_value(value, where=source.node.name, warned=core.warned)
    if edge.kind is _MAP and not (edge.map and edge.map.lazy):
        return copy_value(value, where=source.node.name, warned=None)
    return value


def _input_part(core: RunCore, step: Step, bind: Bind) -> Any:
    value = step.frame.scope.graph.input
    if bind.part is not None:
        value = value[bind.part] if isinstance(value, dict) else getattr(value, bind.part)
    return copy_value(value, where="START", warned=core.warned) if core.copies else value
