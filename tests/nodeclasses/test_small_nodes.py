from __future__ import annotations

import contextvars
from collections.abc import AsyncIterator
from typing import Any

import pytest

from graphrt import END, START, GraphError, GraphTypeError, RunContext, Workflow
from graphrt.graph import NodeKind
from graphrt.nodes import FunctionNode, GraphNode, JoinNode, RouterNode
from tests.nodeclasses.helpers import alone

pytestmark = pytest.mark.anyio


async def double(n: int) -> int:
    return 2 * n


# --- FunctionNode


async def test_function_is_a_node_under_another_name() -> None:
    node = FunctionNode("twice", double)
    result = await alone(node).run(4)

    assert result.output == 8
    assert result.node_states.keys() == {"twice"}
    assert await node(4) == 8


async def test_synchronous_function_runs_in_a_thread_with_its_context() -> None:
    name = contextvars.ContextVar("name", default="none")
    name.set("caller")

    def read(n: int, ctx: RunContext[Any]) -> str:
        return f"{name.get()} {n} {ctx.step.node}"

    assert (await alone(FunctionNode("read", read)).run(1)).output == "caller 1 read"


async def test_generator_is_the_source_of_a_map() -> None:
    async def count(n: int) -> AsyncIterator[int]:
        for i in range(n):
            yield i

    workflow = Workflow("w", input=int)
    workflow.add(FunctionNode("count", count))
    workflow.add(FunctionNode("double", double))
    workflow.chain(START, "count")
    workflow.map("count", "double")
    workflow.gather("double", END)

    assert (await workflow.run(3)).output == [0, 2, 4]


async def test_function_node_runs_by_hand() -> None:
    def plain(n: int, ctx: RunContext[Any] | None = None) -> int:
        return n + 1

    async def items() -> AsyncIterator[int]:
        yield 1

    ctx: Any = None
    assert await FunctionNode("a", double).run({"n": 2}, ctx) == 4
    assert await FunctionNode("b", plain).run({"n": 2}, ctx) == 3
    with pytest.raises(GraphError, match="yields items"):
        await FunctionNode("c", items).run({}, ctx)


# --- RouterNode


async def test_router_sends_the_value_itself_to_one_of_several() -> None:
    async def bug(text: str) -> str:
        return f"fix {text}"

    async def other(text: str) -> str:
        return f"answer {text}"

    router = RouterNode("triage", key=lambda text: text.split(":")[0])
    workflow = Workflow("w", input=str)
    workflow.add(router)
    workflow.node(bug)
    workflow.node(other)
    workflow.chain(START, router)
    workflow.branch(router, {"bug": bug}, key=router.key, default=other)
    workflow.edge(bug, END)
    workflow.edge(other, END)

    assert (await workflow.run("bug: it hangs")).output == "fix bug: it hangs"
    assert (await workflow.run("how?")).output == "answer how?"
    assert workflow.compile().nx.nodes["triage"]["kind"] == NodeKind.ROUTER


async def test_routers_declared_type_is_checked() -> None:
    workflow = Workflow("w", input=str)
    workflow.add(RouterNode("triage", type=int))
    workflow.chain(START, "triage", END)

    with pytest.raises(GraphTypeError):
        workflow.compile()


# --- JoinNode


def forked(node: JoinNode) -> Workflow:
    async def left(n: int) -> int:
        return n + 1

    async def right(n: int) -> None:
        return None

    workflow = Workflow("w", input=int)
    workflow.node(left)
    workflow.node(right)
    workflow.add(node)
    workflow.edge(START, left)
    workflow.edge(START, right, when=lambda n: n > 0)
    workflow.edge(left, node)
    workflow.edge(right, node)
    workflow.edge(node, END)
    return workflow


async def test_join_gives_what_came_and_leaves_out_what_was_skipped() -> None:
    """AC-C05: a None that came is not the same as nothing."""
    workflow = forked(JoinNode("both", "right", "left"))

    both = (await workflow.run(1)).output
    one = (await workflow.run(0)).output

    assert list(both.items()) == [("right", None), ("left", 2)]
    assert one == {"left": 1}


async def test_join_combines_what_came() -> None:
    workflow = forked(JoinNode("both", "left", "right", combine=len, type=int))

    assert (await workflow.run(1)).output == 2


def test_join_names_each_source_once() -> None:
    with pytest.raises(GraphError, match="'a', 'a'"):
        JoinNode("both", "a", "a")
    with pytest.raises(GraphError, match="waits for nothing"):
        JoinNode("both")


# --- GraphNode


def inner() -> Workflow:
    workflow = Workflow("inner", input=int, output=int)
    workflow.node(double)
    workflow.chain(START, double, END)
    return workflow


async def test_one_graph_is_several_nodes() -> None:
    workflow = Workflow("outer", input=int, output=int)
    held = inner()
    workflow.add(GraphNode("first", held))
    workflow.add(GraphNode("second", held.compile()))
    workflow.chain(START, "first", "second", END)

    result = await workflow.run(1)

    assert result.output == 4
    assert [(step.node, step.scope) for step in result.steps if step.node == "double"] == [
        ("double", "first"),
        ("double", "second"),
    ]


async def test_graph_node_takes_inputs_by_name() -> None:
    async def area(width: int, height: int) -> int:
        return width * height

    held = Workflow("area", input={"width": int, "height": int}, output=int)
    held.node(area)
    held.chain(START, area, END)
    workflow = Workflow("outer", input={"width": int, "height": int})
    workflow.add(GraphNode("held", held))
    workflow.chain(START, "held", END)

    assert (await workflow.run({"width": 2, "height": 3})).output == 6


async def test_graph_node_runs_by_hand() -> None:
    class Context:
        deps = None
        budget = None

    ctx: Any = Context()
    assert await GraphNode("held", inner()).run({"input": 3}, ctx) == 6


def test_graph_node_holds_a_graph() -> None:
    thing: Any = double
    with pytest.raises(GraphError, match="given a function"):
        GraphNode("held", thing)
