"""Which spans a run has, and what lies under what (C-10)."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from opentelemetry.trace import SpanKind

from graphrt import END, START, CompiledGraph, RunContext, Workflow
from graphrt.graph import NodeKind
from graphrt.graph.signature import NodeSignature, Param
from graphrt.telemetry import CONVENTION_VERSION
from tests.engine.helpers import yield_often
from tests.telemetry.collecting import Collected, Doing, attributes, went_well

pytestmark = pytest.mark.anyio


async def same(x: Any) -> Any:
    await yield_often(2)
    return x


async def run(graph: Workflow | CompiledGraph, value: Any = 1, **options: Any) -> Collected:
    collected = Collected()
    await graph.run(value, telemetry=collected.telemetry, **options)
    collected.check_whole()
    return collected


def line(name: str, *nodes: str) -> Workflow:
    workflow = of_nodes(Workflow(name), *nodes)
    workflow.chain(START, *nodes, END)
    return workflow


def of_nodes(workflow: Workflow, *names: str) -> Workflow:
    for name in names:
        workflow.add_node(name, same)
    return workflow


async def test_run_is_a_span_with_one_span_for_each_step_under_it() -> None:
    graph = line("line", "a", "b")
    collected = await run(graph, run_id="r-1")
    assert collected.paths() == [
        "invoke_workflow line",
        "invoke_workflow line > node a",
        "invoke_workflow line > node b",
    ]
    root = collected.one("invoke_workflow line")
    assert attributes(root) == {
        "graphrt.kind": "run",
        "graphrt.run.id": "r-1",
        "graphrt.run.status": "succeeded",
        "gen_ai.operation.name": "invoke_workflow",
        "gen_ai.agent.name": "line",
    }
    step = collected.one("node a")
    assert attributes(step) == {
        "graphrt.kind": "node",
        "graphrt.node.id": "a",
        "graphrt.scope": "",
        "graphrt.round": 1,
    }
    assert step.kind is SpanKind.INTERNAL
    assert all(went_well(span) for span in collected.spans)


async def test_convention_version_is_recorded_on_the_instrumentation_scope() -> None:
    collected = await run(line("one", "a"))
    for span in collected.spans:
        assert span.instrumentation_scope is not None
        assert span.instrumentation_scope.name == "graphrt"
        assert dict(span.instrumentation_scope.attributes or {}) == {"graphrt.gen_ai.conventions": CONVENTION_VERSION}


async def test_callers_span_is_the_parent_of_the_run() -> None:
    graph = line("line", "a")
    collected = Collected()
    tracer = collected.provider.get_tracer("caller")
    with tracer.start_as_current_span("request"):
        await graph.run(1, telemetry=collected.telemetry)
        async with graph.stream(1, telemetry=collected.telemetry) as stream:
            await stream.wait()
        graph.run_sync(1, telemetry=collected.telemetry)
    collected.check_whole()
    assert collected.children(collected.one("request")) == ["invoke_workflow line"] * 3


async def test_parallel_branches_lie_side_by_side() -> None:
    fork = of_nodes(Workflow("fork"), "a", "left", "right")

    @fork.node
    async def join(left: int, right: int) -> int:
        return left + right

    fork.chain(START, "a", "left", join, END)
    fork.chain("a", "right", join)
    collected = await run(fork)
    names = ["node a", "node left", "node right", "node join"]
    assert sorted(collected.children(collected.one("invoke_workflow fork"))) == sorted(names)


async def test_round_holds_the_steps_of_one_pass_around_a_cycle() -> None:
    loop = of_nodes(Workflow("loop"), "before", "after")

    @loop.node
    async def draft(x: int) -> int:
        return x + 1

    @loop.node
    async def review(x: int) -> int:
        return x

    loop.chain(START, "before", draft, review)
    loop.edge(review, draft, when=lambda x: x < 3)
    loop.edge(review, "after", when=lambda x: x >= 3)
    loop.chain("after", END)
    collected = await run(loop, 0)
    root = collected.one("invoke_workflow loop")
    assert collected.children(root) == ["node before", *["round draft"] * 3, "node after"]
    rounds = collected.named("round draft")
    for number, span in enumerate(rounds, 1):
        assert collected.children(span) == ["node draft", "node review"]
        assert attributes(span) == {
            "graphrt.kind": "round",
            "graphrt.node.id": "draft",
            "graphrt.scope": "",
            "graphrt.round": number,
        }
    assert [attributes(span)["graphrt.round"] for span in collected.named("node review")] == [1, 2, 3]


async def test_rounds_of_an_inner_cycle_lie_in_those_of_the_outer_one() -> None:
    nested = Workflow("nested")
    count = {"inner": 0, "outer": 0}

    @nested.node
    async def outer(x: int) -> int:
        count["outer"] += 1
        return x

    @nested.node
    async def inner(x: int) -> int:
        count["inner"] += 1
        return count["inner"]

    nested.chain(START, outer, inner)
    nested.edge(inner, inner, when=lambda n: n % 2 == 1)
    nested.edge(inner, outer, when=lambda n: n == 2)
    nested.edge(inner, END, when=lambda n: n == 4)
    collected = await run(nested)
    outer_rounds = collected.named("round outer")
    assert len(outer_rounds) == 2
    for span in outer_rounds:
        assert collected.children(span) == ["node outer", "round inner", "round inner"]
    assert [attributes(span)["graphrt.round"] for span in collected.named("round inner")] == [1, 2, 1, 2]


async def test_cycle_that_is_skipped_has_no_round_and_a_skipped_step_no_span() -> None:
    skipping = of_nodes(Workflow("skipping"), "a", "head", "tail", "other")
    skipping.chain(START, "a")
    skipping.edge("a", "head", when=lambda x: x > 1)
    skipping.edge("a", "other", when=lambda x: x <= 1)
    skipping.chain("head", "tail")
    skipping.edge("tail", "head", when=lambda x: x > 2)
    skipping.edge("tail", END, when=lambda x: x <= 2)
    skipping.chain("other", END)
    collected = await run(skipping)
    assert collected.children(collected.one("invoke_workflow skipping")) == ["node a", "node other"]


async def test_items_of_a_map_lie_where_the_map_lies_and_name_their_scopes() -> None:
    fan = Workflow("fan")

    @fan.node
    async def split(n: int) -> list[int]:
        return list(range(n))

    @fan.node
    async def work(i: int) -> int:
        await yield_often(3 - i)
        return i

    @fan.node
    async def polish(i: int) -> int:
        return i

    @fan.node
    async def total(polished: list[int]) -> int:
        return sum(polished)

    fan.chain(START, split)
    fan.map(split, work)
    fan.chain(work, polish)
    fan.gather(polish, total, into="polished")
    fan.chain(total, END)
    collected = await run(fan, 3)
    root = collected.one("invoke_workflow fan")
    wanted = ["node split", *["node work", "node polish"] * 3, "node total"]
    assert sorted(collected.children(root)) == sorted(wanted)
    scopes = {attributes(span)["graphrt.scope"] for span in collected.named("node polish")}
    assert scopes == {"split[0]", "split[1]", "split[2]"}


async def test_map_in_a_cycle_lies_in_its_round() -> None:
    loop = Workflow("loop")

    @loop.node
    async def split(n: int) -> list[int]:
        return list(range(n))

    @loop.node
    async def work(i: int) -> int:
        return i

    @loop.node
    async def total(worked: list[int]) -> int:
        return len(worked) + 1

    loop.chain(START, split)
    loop.map(split, work)
    loop.gather(work, total, into="worked")
    loop.edge(total, split, when=lambda n: n < 4)
    loop.edge(total, END, when=lambda n: n >= 4)
    collected = await run(loop, 2)
    first, second = collected.named("round split")
    assert collected.children(first) == ["node split", "node work", "node work", "node total"]
    assert collected.children(second) == ["node split", *["node work"] * 3, "node total"]


async def test_steps_of_a_graph_lie_under_the_step_that_holds_it() -> None:
    inner = line("inner", "x", "y")
    outer = of_nodes(Workflow("outer"), "a")
    outer.add(inner, name="sub")
    outer.chain(START, "a", "sub", END)
    collected = await run(outer)
    assert collected.paths() == [
        "invoke_workflow outer",
        "invoke_workflow outer > node a",
        "invoke_workflow outer > node sub",
        "invoke_workflow outer > node sub > node x",
        "invoke_workflow outer > node sub > node y",
    ]
    assert attributes(collected.one("node x"))["graphrt.scope"] == "sub"


async def test_graph_in_a_map_in_a_cycle_of_a_graph_has_its_whole_path() -> None:
    leaf = line("leaf", "x")
    middle = Workflow("middle")

    @middle.node
    async def split(n: int) -> list[int]:
        return [n]

    @middle.node
    async def check(xs: list[int]) -> int:
        return xs[0]

    middle.add(leaf, name="leaf")
    middle.chain(START, split)
    middle.map(split, "leaf")
    middle.gather("leaf", check, into="xs")
    middle.edge(check, split, when=lambda n: n < 0)
    middle.edge(check, END, when=lambda n: n >= 0)
    outer = Workflow("outer")
    outer.add(middle, name="middle")
    outer.chain(START, "middle", END)
    collected = await run(outer)
    path = "invoke_workflow outer > node middle > round split > node leaf > node x"
    assert collected.path(collected.one("node x")) == path
    assert attributes(collected.one("node x"))["graphrt.scope"] == "middle/split#1[0]/leaf"


async def test_step_is_named_by_what_its_node_is() -> None:
    async def pass_on(given: Any, ctx: RunContext[Any]) -> Any:
        return given

    kinds = Workflow("kinds")
    for kind in ("inference", "tool", "plan_step", "router", "fallback"):
        kinds.add(Doing(f"my_{kind}", NodeKind(kind), pass_on))
    kinds.chain(START, *(f"my_{kind}" for kind in ("inference", "tool", "plan_step", "router", "fallback")), END)
    collected = await run(kinds)
    root = collected.one("invoke_workflow kinds")
    assert collected.children(root) == [
        "chat",
        "execute_tool my_tool",
        "plan_step my_plan_step",
        "node my_router",
        "chat",
    ]
    found = {attributes(span)["graphrt.node.id"]: span for span in collected.spans if span is not root}
    assert {name: attributes(span)["graphrt.kind"] for name, span in found.items()} == {
        "my_inference": "inference",
        "my_tool": "tool",
        "my_plan_step": "plan_step",
        "my_router": "node",
        "my_fallback": "inference",
    }
    assert attributes(found["my_inference"])["gen_ai.operation.name"] == "chat"
    assert attributes(found["my_tool"])["gen_ai.operation.name"] == "execute_tool"
    assert attributes(found["my_tool"])["gen_ai.tool.name"] == "my_tool"
    assert {name for name, span in found.items() if span.kind is SpanKind.CLIENT} == {
        "my_inference",
        "my_fallback",
    }


async def test_step_of_an_agent_is_an_invocation_of_it() -> None:
    inner = line("inner", "x").compile()

    class Agent:
        name = "researcher"
        kind = NodeKind.AGENT
        signature = NodeSignature((Param("given"),), Any)

        def compiled_graph(self) -> CompiledGraph:
            return inner

    outer = Workflow("outer")
    outer.add(Agent())
    outer.chain(START, "researcher", END)
    collected = await run(outer)
    span = collected.one("invoke_agent researcher")
    assert attributes(span) == {
        "graphrt.kind": "node",
        "graphrt.node.id": "researcher",
        "graphrt.scope": "",
        "graphrt.round": 1,
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": "researcher",
    }
    assert collected.children(span) == ["node x"]


async def test_run_within_a_node_lies_under_its_step() -> None:
    inner = line("inner", "x").compile()
    outer = Workflow("outer")
    collected = Collected()

    @outer.node
    async def calls(x: int) -> int:
        return (await inner.run(x, telemetry=collected.telemetry)).output  # type: ignore[no-any-return]  # an int

    outer.chain(START, calls, END)
    await outer.run(1, telemetry=collected.telemetry)
    collected.check_whole()
    path = "invoke_workflow outer > node calls > invoke_workflow inner > node x"
    assert collected.path(collected.one("node x")) == path


async def test_many_runs_at_once_have_a_tree_each() -> None:
    graph = line("line", "a", "b").compile()
    collected = Collected()

    async def one(number: int) -> None:
        await graph.run(number, run_id=f"r-{number}", telemetry=collected.telemetry)

    async with anyio.create_task_group() as tasks:
        for number in range(20):
            tasks.start_soon(one, number)
    roots = collected.named("invoke_workflow line")
    assert len({span.context.trace_id for span in roots if span.context is not None}) == 20
    for root in roots:
        assert collected.children(root) == ["node a", "node b"]
