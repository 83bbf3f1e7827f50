"""From a description to a `graphrt.Workflow`, through the public API alone."""

from __future__ import annotations

import operator
from collections.abc import Awaitable, Callable, Mapping
from functools import cache
from typing import Annotated, Any

from pydantic import BaseModel, create_model

from graphrt import END, START, Reduce, RunContext, Update, Workflow
from tests.properties.description import (
    INPUT,
    Branch,
    Edge,
    Gather,
    Graph,
    Link,
    Map,
    Node,
    State,
    Work,
)
from tests.properties.structure import Layout, lay_out

Pause = Callable[[], Awaitable[None]]
Style = Callable[[str], str]
"""How the function of a node is written: ``async``, ``sync``, or ``iterator`` where it makes a list for a map alone."""


def plain_style(name: str) -> str:
    """Write every function as a coroutine function."""
    return "async"


@cache
def model_of(state: State) -> type[BaseModel]:
    """Give the state model; equal descriptions share one class."""
    fields: dict[str, Any] = {}
    for one in state.fields:
        kind: Any = list[int] if one.kind == "join" else int
        fields[one.name] = (
            kind if one.kind == "last" else Annotated[kind, Reduce(operator.add)],
            one.default,
        )
    return create_model(state.name, **fields)


def build(graph: Graph, pause: Pause | None = None, style: Style = plain_style) -> Workflow:
    """Build *graph*; every async node function awaits *pause* first, and *style* says which are written how."""
    state = model_of(graph.state) if graph.state is not None else None
    workflow = Workflow(graph.name, state=state, max_rounds=graph.max_rounds, max_steps=graph.max_steps)
    layout = lay_out(graph)
    for node in graph.nodes:
        options: dict[str, Any] = {
            "on_error": node.on_error,
            "join": node.join,
            "cancel_rest": node.cancel_rest,
            "side": node.side,
        }
        if node.graph is not None:
            workflow.add(build(node.graph, pause, style), name=node.name, **options)
        else:
            workflow.add_node(node.name, function_of(node, layout, pause, style(node.name)), **options)
    for link in graph.links:
        _connect(workflow, link)
    return workflow


async def nothing_much() -> list[int]:
    """Stand for any node where only the shape of a graph counts."""
    return []


def build_shape(graph: Graph) -> Workflow:
    """Build the nodes and edges of *graph*, which may be one that does not compile, without its functions."""
    workflow = Workflow(graph.name)
    for node in graph.nodes:
        workflow.add_node(node.name, nothing_much, join=node.join, cancel_rest=node.cancel_rest, side=node.side)
    for link in graph.links:
        _connect(workflow, link)
    return workflow


def _connect(workflow: Workflow, link: Link) -> None:
    ends = {"START": START, "END": END}
    src = ends.get(link.src, link.src)
    if isinstance(link, Branch):
        cases = {key: ends.get(dst, dst) for key, dst in link.cases}
        default = ends.get(link.default, link.default) if link.default is not None else None
        workflow.branch(src, cases, key=link.key, default=default)
        return
    assert isinstance(link, Edge | Map | Gather)
    dst = ends.get(link.dst, link.dst)
    if isinstance(link, Map):
        policy, least = link.on_error, link.min_success
        workflow.map(src, dst, when=link.when, into=link.into, on_error=policy, min_success=least)
    elif isinstance(link, Gather):
        workflow.gather(src, dst, into=link.into)
    else:
        errors = link.errors or False
        workflow.edge(src, dst, when=link.when, on_error=errors, into=link.into)


def parameters(node: Node, layout: Layout) -> list[str]:
    """Names of the values that a node's function takes: one for each source or `into`, and the input."""
    region = layout.regions[layout.home[node.name]]
    names = dict.fromkeys(arc.name for arc in region.arcs if arc.dst == node.name)
    deaf = isinstance(node.work, Work) and node.work.deaf
    return [name for name in names if not (deaf and name == INPUT)]


def may_iterate(node: Node, layout: Layout) -> bool:
    """Whether a node may yield its list item by item: its one reader is a map without a condition."""
    leaving = [link for link in layout.links if link.src == node.name]
    makes_list = isinstance(node.work, Work) and node.work.makes == "list" and not node.work.writes
    return makes_list and len(leaving) == 1 and isinstance(leaving[0], Map) and leaving[0].when is None


def function_of(node: Node, layout: Layout, pause: Pause | None, how: str = "async") -> Callable[..., Any]:
    """Write the function of a node: keyword parameters named after its sources, None where nothing came."""
    names = parameters(node, layout)
    work, state = node.work, layout.graph.state
    reads = state is not None and isinstance(work, Work) and work.reads

    def call(inputs: Mapping[str, Any], seen: BaseModel | None) -> Any:
        given = {name: value for name, value in inputs.items() if value is not None}
        made = work(node.name, given, seen.model_dump() if seen is not None else None)
        return Update(made.value, **made.writes) if made.writes else made.value

    async def wait() -> None:
        if pause is not None:
            await pause()

    takes = ["ctx", *(["state"] if reads else []), *(f"{name}=None" for name in names)]
    gives = ", ".join(f"{name!r}: {name}" for name in names)
    value = f"call({{{gives}}}, {'state' if reads else 'None'})"
    head, body = "async def", f"await wait()\n    return {value}"
    if how == "sync":
        head, body = "def", f"return {value}"
    elif how == "iterator" and may_iterate(node, layout):
        body = f"for item in {value}:\n        await wait()\n        yield item"
    scope: dict[str, Any] = {"call": call, "wait": wait}
    source = f"{head} {node.name}({', '.join(takes)}):\n    {body}"
    exec(source, scope)  # noqa: S102 - a function has the parameters its node has edges
    made: Callable[..., Any] = scope[node.name]
    made.__annotations__ = {"ctx": RunContext}
    if reads and state is not None:
        made.__annotations__["state"] = model_of(state)
    if node.silent:
        made.__annotations__["return"] = None
    return made


__all__ = ["build", "build_shape", "function_of", "model_of", "parameters"]
