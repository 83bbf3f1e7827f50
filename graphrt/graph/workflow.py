"""`Workflow`: how a person writes a graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import pairwise
from types import MethodType
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

from graphrt.errors import ConfigError, GraphError
from graphrt.graph.checks import unknown_node
from graphrt.graph.compile import compile_graph
from graphrt.graph.declared import BranchDecl, Edge, GraphDecl, ItemPolicy, NodeDecl, NodePolicy
from graphrt.graph.graph import CompiledGraph
from graphrt.graph.protocols import START, Terminal
from graphrt.graph.reading import NODE_OPTIONS, error_classes, own_name, read_target, show

if TYPE_CHECKING:
    from graphrt.graph.scheduler.limits import AsyncLimit, Limiter
    from graphrt.graph.scheduler.result import RunResult
    from graphrt.graph.scheduler.stream import RunStream
    from graphrt.ledger.store import RunLedgerStore
    from graphrt.policies import RateLimit, RetryPolicy

Fn = TypeVar("Fn", bound=Callable[..., Any])
Ref = Any
"""A node where an edge is declared: its name, its function or object, `START` or `END`."""


class Workflow:
    """A graph under construction: nodes and edges in the order in which they are declared.

    Everything is checked when it is compiled, which `run`, `stream` and `run_sync` do once and keep.
    """

    def __init__(
        self,
        name: str,
        *,
        input: Any = Any,
        output: Any = Any,
        state: type | None = None,
        deps: Any = None,
        max_rounds: int = 25,
        max_steps: int | None = None,
        timeout: float | None = None,
        max_concurrency: int | None = None,
        copy_values: bool = True,
    ) -> None:
        """Begin a workflow.

        Args:
            name: What it is called in spans, pictures and messages.
            input: The declared type of the run's input, or `{"name": type}` for several inputs by name.
            output: The declared type of its output.
            state: A pydantic model with defaults: state that nodes share (E23).
            deps: The declared type of `ctx.deps`, for readers.
            max_rounds: Rounds that every activation of every cycle may have.
            max_steps: Steps that a run may start in all; None for no limit.
            timeout: Seconds of work that a run may take.
            max_concurrency: Functions of one run that may be at work at once.
            copy_values: Give each reader of a mutable value a copy of its own (E22).
        """
        if not isinstance(name, str) or not name:
            raise ConfigError(f"workflow is named {name!r}", hint="give it a name, such as Workflow('report')")
        self.name = name
        self.deps = deps
        self._decl = GraphDecl(
            name,
            input=input,
            output=output,
            state=state,
            max_rounds=max_rounds,
            max_steps=max_steps,
            timeout=timeout,
            max_concurrency=max_concurrency,
            copy_values=copy_values,
        )
        self._names: dict[int | tuple[int, int], str | None] = {}
        self._held: list[Any] = []
        self._changes = 0
        self._compiled: tuple[tuple[int, ...], CompiledGraph] | None = None

    def __repr__(self) -> str:
        return f"Workflow({self.name!r}, {len(self._decl.nodes)} nodes)"

    # ------------------------------------------------------------ nodes

    @overload
    def node(self, fn: Fn, /) -> Fn: ...
    @overload
    def node(
        self,
        fn: None = None,
        /,
        *,
        name: str | None = None,
        retry: RetryPolicy | None = None,
        timeout: float | None = None,
        step_timeout: float | None = None,
        fallback: Any = None,
        on_error: NodePolicy = "fail",
        join: Literal["all", "any"] | int = "all",
        cancel_rest: bool = False,
        side: bool = False,
        max_concurrency: int | Limiter | AsyncLimit | None = None,
        rate_limit: RateLimit | None = None,
        version: str | None = None,
    ) -> Callable[[Fn], Fn]: ...
    def node(self, fn: Fn | None = None, /, *, name: str | None = None, **options: Any) -> Any:
        """Make a function a node: `@workflow.node`, or `@workflow.node(retry=..., timeout=30)`.

        The function stays an ordinary function. Its parameters say what it reads, its return annotation what it gives.

        Args:
            fn: The function, async or not; one that is not runs in a thread. A generator is the source of a map.
            name: The node's name; the function's own when None.
            retry: When a failed attempt is made again.
            timeout: Seconds for one attempt.
            step_timeout: Seconds for all attempts and the pauses between them.
            fallback: A function, a constant, or a list of them, tried in order when the attempts are used up.
            on_error: `"fail"` fails the scope, `"skip"` skips the node's edges.
            join: `"all"`, `"any"` or a number: how many of its edges it waits for.
            cancel_rest: When an any-join has run, cancel what could only have led to it.
            side: The node's value goes nowhere, and it needs no edge out.
            max_concurrency: How many of its steps are at work at once, in all runs of the graph; or a shared `Limiter`.
            rate_limit: How often it may be called.
            version: Raise it when the function changes in a way that its signature does not show (E26).

        Raises:
            GraphError: The name is taken, or the function's parameters cannot be read.
        """

        def declare(target: Fn) -> Fn:
            self._declare(name or own_name(target), target, depth=3, **options)
            return target

        if fn is None:
            return declare
        self._declare(name or own_name(fn), fn, depth=2, **options)
        return fn

    def add(self, thing: Any, *, name: str | None = None, **options: Any) -> str:
        """Add a node object, another workflow or graph, or a function; give the node's name.

        The options are those of `node`.

        Raises:
            GraphError: The name is taken, or *thing* is nothing that can be a node.
        """
        return self._declare(name or own_name(thing), thing, depth=2, **options)

    def add_node(self, id: str, node_or_fn: Any, **options: Any) -> str:
        """Add a node under the name *id*; the plain spelling of `node` and `add`."""
        return self._declare(id, node_or_fn, depth=2, **options)

    def _declare(self, name: str, target: Any, *, depth: int, fallback: Any = None, **options: Any) -> str:
        if not isinstance(name, str) or not name:
            raise GraphError(f"node is named {name!r}", hint="give name=, a text that is not empty")
        if name in self._decl.nodes:
            raise GraphError(
                f"node {name!r} is already in graph {self.name!r}",
                hint="give one of the two another name, with name=",
            )
        unknown = set(options) - NODE_OPTIONS
        if unknown:
            raise TypeError(
                f"node {name!r} has no option {', '.join(sorted(unknown))}; "
                f"it may have {', '.join(sorted({*NODE_OPTIONS, 'fallback', 'name'} - {'label'}))}"
            )
        kind, signature = read_target(name, target, depth + 1)
        fallbacks = () if fallback is None else tuple(fallback) if isinstance(fallback, (list, tuple)) else (fallback,)
        self._decl.nodes[name] = NodeDecl(name, target, signature, kind, fallback=fallbacks, **options)
        for known_as in {id(target), _identity(target)}:
            self._names[known_as] = None if known_as in self._names else name
        held = getattr(target, "workflow", target)
        if isinstance(held, Workflow):
            self._held.append(held)
        self._changes += 1
        return name

    # ------------------------------------------------------------ edges

    def edge(
        self,
        src: Ref,
        dst: Ref,
        *,
        when: Callable[[Any], Any] | None = None,
        on_error: bool | type[BaseException] | tuple[type[BaseException], ...] = False,
        into: str | None = None,
        label: str | None = None,
    ) -> None:
        """Let the value of *src* travel to *dst* when *src* has finished.

        Args:
            src: Where from.
            dst: Where to; an edge back closes a cycle.
            when: Called with the value (for an `on_error` edge with the exception); a pure function.
            on_error: Take the edge when *src* fails, with the exception: any, of a class, or of several.
            into: The parameter of *dst* that takes the value; the name of *src* when None.
            label: What pictures and messages call the condition.

        Raises:
            GraphError: An end is not in the graph.
        """
        errors = error_classes(on_error)
        self._edge(Edge(self._ref(src, dst), self._ref(dst, src), when=when, errors=errors, into=into, label=label))

    def add_edge(
        self,
        src: Ref,
        dst: Ref,
        *,
        when: Callable[[Any], Any] | None = None,
        on_error: bool | type[BaseException] | tuple[type[BaseException], ...] = False,
        into: str | None = None,
        label: str | None = None,
    ) -> None:
        """Add an edge; the plain spelling of `edge`. Ends that are named by text may be added later."""
        errors = error_classes(on_error)
        self._edge(Edge(self._late(src), self._late(dst), when=when, errors=errors, into=into, label=label))

    def set_entry(self, id: str) -> None:
        """Let the run's input go to the node *id*: an edge from `START`."""
        self.add_edge(START, id)

    def chain(self, *nodes: Ref) -> None:
        """Add an edge from each of *nodes* to the next."""
        if not nodes[1:]:
            raise GraphError("a chain joins at least two nodes", hint="chain(START, first, ..., END)")
        for src, dst in pairwise(nodes):
            self.edge(src, dst)

    def branch(
        self,
        src: Ref,
        cases: Mapping[Any, Ref],
        *,
        key: Callable[[Any], Any] | None = None,
        default: Ref = None,
    ) -> None:
        """Go from *src* to exactly one of several nodes.

        Args:
            src: The node whose value decides.
            cases: Which node for which key.
            key: Gives the key for a value; the value itself when None.
            default: The node for a key that is not among the cases; without one such a key is a failure of *src*.
        """
        if not isinstance(cases, Mapping):
            raise GraphError(f"branch of {show(src)} is given {cases!r}, which is no mapping", hint="give {key: node}")
        if not cases and default is None:
            raise GraphError(f"branch of {show(src)} has no cases", hint="give {key: node}, default= or both")
        branch = BranchDecl(key, default is not None)
        for case, dst in cases.items():
            self._edge(Edge(self._ref(src, dst), self._ref(dst, src), branch=branch, case=case, label=str(case)))
        if default is not None:
            self._edge(
                Edge(self._ref(src, default), self._ref(default, src), branch=branch, is_default=True, label="default")
            )

    def map(
        self,
        src: Ref,
        dst: Ref,
        *,
        when: Callable[[Any], Any] | None = None,
        into: str | None = None,
        on_error: ItemPolicy = "fail",
        min_success: int | None = None,
        max_concurrency: int = 100,
    ) -> None:
        """Run *dst*, and what follows it up to a `gather`, once for each item of the value of *src*.

        Args:
            src: The node that gives a list, or yields items one by one.
            dst: The first node of the body.
            when: Called with the value of *src*; False leaves the map out, gathers included.
            into: The parameter of *dst* that takes the item.
            on_error: What a failed item does: `"fail"` fails the scope around, `"skip"` leaves the item out,
                `"collect"` puts a `Failure` in its place.
            min_success: How many items have to deliver a value.
            max_concurrency: Functions of this map that are at work at once.
        """
        self._edge(
            Edge(
                self._ref(src, dst),
                self._ref(dst, src),
                "map",
                when=when,
                into=into,
                on_error=on_error,
                min_success=min_success,
                max_concurrency=max_concurrency,
            )
        )

    def gather(self, src: Ref, dst: Ref, *, into: str | None = None) -> None:
        """Give *dst* the list of what *src* made of each item, in the order of the items."""
        self._edge(Edge(self._ref(src, dst), self._ref(dst, src), "gather", into=into))

    def _edge(self, edge: Edge) -> None:
        self._decl.edges.append(edge)
        self._changes += 1

    def _late(self, ref: Ref) -> str | Terminal:
        return ref if isinstance(ref, str) else self._ref(ref, ref)

    def _ref(self, ref: Ref, other: Ref) -> str | Terminal:
        if isinstance(ref, Terminal):
            return ref
        if isinstance(ref, str):
            if ref not in self._decl.nodes:
                raise unknown_node(ref, f"{ref!r} (with {show(other)})", self._decl.nodes)
            return ref
        known_as = id(ref) if id(ref) in self._names else _identity(ref)
        if known_as not in self._names:
            raise unknown_node(show(ref), f"of {show(ref)} and {show(other)}", self._decl.nodes)
        name = self._names[known_as]
        if name is None:
            raise GraphError(
                f"{show(ref)} is in graph {self.name!r} more than once",
                hint="name the node by its text, as in edge('first', 'second')",
            )
        return name

    # ------------------------------------------------------------ compiling and running

    def compile(self, *, durable: bool = False) -> CompiledGraph:
        """Check the graph and give its immutable form; the same one until the workflow changes.

        With *durable* it is checked too that what the nodes declare can be stored and loaded again; a run with a
        ledger checks that before its first node starts.

        Raises:
            GraphError: The graph breaks a rule; the message names the nodes and says what to do.
            GraphTypeError: Declared types do not fit along an edge, or values of one could not be loaded again.
        """
        stamp = self._stamp()
        if self._compiled is None or self._compiled[0] != stamp:
            self._compiled = (stamp, CompiledGraph(compile_graph(self._snapshot())))
        if durable:
            self._compiled[1].event_codec().check()
        return self._compiled[1]

    async def resume(self, run_id: str, *, ledger: RunLedgerStore, **options: Any) -> RunResult:
        """Compile once, and take a stored run up again; see `CompiledGraph.resume`."""
        return await self.compile().resume(run_id, ledger=ledger, **options)

    async def fork(self, run_id: str, at: int, *, ledger: RunLedgerStore, new_id: str | None = None) -> str:
        """Compile once, and fork a stored run; see `CompiledGraph.fork`."""
        return await self.compile().fork(run_id, at, ledger=ledger, new_id=new_id)

    def declared(self) -> GraphDecl:
        """Give what has been declared so far."""
        return self._decl

    def compiled_graph(self) -> CompiledGraph:
        """Give the compiled graph: a workflow can be a node of another."""
        return self.compile()

    def _stamp(self, around: tuple[Workflow, ...] = ()) -> tuple[int, ...]:
        if not self._held:
            return (self._changes,)
        if self in around:
            raise GraphError(
                f"workflow {self.name!r} contains itself",
                hint="use a cycle: an edge back to the first node",
            )
        inside = (*around, self)
        return (self._changes, *(n for held in self._held for n in held._stamp(inside)))

    def _snapshot(self) -> GraphDecl:
        decl = self._decl
        return GraphDecl(
            decl.name,
            dict(decl.nodes),
            list(decl.edges),
            decl.input,
            decl.output,
            decl.state,
            decl.max_rounds,
            decl.max_steps,
            decl.timeout,
            decl.max_concurrency,
            decl.copy_values,
        )

    async def run(self, input: Any = None, **options: Any) -> RunResult:
        """Compile once, and run; see `CompiledGraph.run` for the arguments and what is raised."""
        return await self.compile().run(input, **options)

    def stream(self, input: Any = None, **options: Any) -> RunStream:
        """Compile once, and run while the events are read; see `CompiledGraph.stream`."""
        return self.compile().stream(input, **options)

    def run_sync(self, input: Any = None, **options: Any) -> RunResult:
        """Compile once, and run from code that is not async; see `CompiledGraph.run_sync`."""
        return self.compile().run_sync(input, **options)

    # ------------------------------------------------------------ looking

    @property
    def nx(self) -> Any:
        """A networkx copy of the compiled graph."""
        return self.compile().nx

    def to_svg(self, run: RunResult | None = None) -> str:
        """Draw the graph as SVG, with a run's states if given."""
        return self.compile().to_svg(run)

    def to_mermaid(self) -> str:
        """Draw the graph as a Mermaid flowchart."""
        return self.compile().to_mermaid()

    def to_dot(self) -> str:
        """Draw the graph in Graphviz's language."""
        return self.compile().to_dot()

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        try:
            graph = self.compile()
        except GraphError as error:
            return {"text/plain": f"{self!r}\n{error}"}
        return graph._repr_mimebundle_(include, exclude)


def _identity(target: Any) -> int | tuple[int, int]:
    """Tell a node's target from others; a bound method is another object each time it is looked up."""
    return (id(target.__self__), id(target.__func__)) if isinstance(target, MethodType) else id(target)
