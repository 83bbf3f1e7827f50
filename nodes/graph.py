"""A graph as a node of another."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from graphrt.errors import GraphError
from graphrt.graph.graph import CompiledGraph
from graphrt.graph.protocols import NodeKind
from graphrt.graph.reading import graph_signature
from graphrt.graph.workflow import Workflow

if TYPE_CHECKING:
    from collections.abc import Mapping

    from graphrt.graph.scheduler.context import RunContext
    from graphrt.graph.signature import NodeSignature


class GraphNode:
    """A workflow, or a compiled graph, as a node under a name of its own.

    One graph may so be several nodes of another. It takes what the graph declares as input, and gives its
    output; it runs inside the run around it, and shares deps, budget, deadline and events with it.
    """

    kind = NodeKind.GRAPH

    def __init__(self, name: str, graph: Workflow | CompiledGraph) -> None:
        """Take the graph; a workflow is compiled when the graph around it is.

        Raises:
            GraphError: It is neither.
        """
        if not isinstance(graph, (Workflow, CompiledGraph)):
            raise GraphError(
                f"node {name!r} is to hold a graph, and was given a {type(graph).__name__}",
                hint="give a Workflow or what its compile() gives",
            )
        self._name = name
        self._graph = graph

    @property
    def name(self) -> str:
        """Name of the node."""
        return self._name

    @property
    def workflow(self) -> Workflow | None:
        """The workflow that it holds, which may still change; None for a compiled graph."""
        return self._graph if isinstance(self._graph, Workflow) else None

    @property
    def signature(self) -> NodeSignature:
        """Takes the graph's input, and gives its output."""
        graph = self._graph
        return graph_signature(graph._decl if isinstance(graph, Workflow) else graph.program.decl)

    def compiled_graph(self) -> CompiledGraph:
        """Give the compiled graph to the one around it."""
        return self._graph.compiled_graph()

    async def run(self, inputs: Mapping[str, Any], ctx: RunContext[Any]) -> Any:
        """Run the graph by itself, with the deps and the budget of *ctx*, and give its output.

        In a graph the engine does not call this: it opens the graph inside the run.

        Raises:
            Exception: Whatever ended the graph.
        """
        graph = self.compiled_graph()
        given = dict(inputs) if graph.program.input_names else next(iter(inputs.values()), None)
        return (await graph.run(given, deps=ctx.deps, budget=ctx.budget)).output
