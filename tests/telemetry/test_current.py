"""The span that node code sees as the current one, in tasks, threads, iterators and attempts (B-107, B-109)."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Iterator
from contextvars import ContextVar
from typing import Any

import anyio
import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan

from graphrt import END, START, RetryPolicy, RunContext, Workflow
from graphrt.graph import NodeKind
from tests.engine.helpers import Asking, yield_often
from tests.telemetry.collecting import Collected, Doing, attributes, identity

pytestmark = pytest.mark.anyio

USER: ContextVar[str] = ContextVar("user", default="nobody")


def current() -> str:
    """Name of the current span."""
    span = trace.get_current_span()
    return span.name if isinstance(span, ReadableSpan) else "none"


def line(*nodes: Any, **options: Any) -> Workflow:
    workflow = Workflow("line")
    names = [workflow.add(node, **options) for node in nodes]
    workflow.chain(START, *names, END)
    return workflow


async def test_async_node_sees_its_step_before_and_after_it_waits() -> None:
    async def looks(x: int) -> list[str]:
        before = current()
        await yield_often(3)
        return [before, current()]

    collected = Collected()
    result = await line(looks).run(1, telemetry=collected.telemetry)
    assert result.output == ["node looks", "node looks"]


async def test_synchronous_node_sees_its_step_and_the_users_context_in_its_thread() -> None:
    """B-109: and what it changes there stays there."""
    threads: set[int] = set()

    def looks(x: int) -> tuple[str, str]:
        threads.add(threading.get_ident())
        seen = USER.get()
        USER.set("changed in the thread")
        return current(), seen

    async def after(seen: Any) -> Any:
        return *seen, current(), USER.get()

    USER.set("ann")
    collected = Collected()
    tracer = collected.provider.get_tracer("caller")
    with tracer.start_as_current_span("request"):
        result = await line(looks, after).run(1, telemetry=collected.telemetry)
        assert current() == "request"
    assert threads.isdisjoint({threading.get_ident()})
    assert result.output == ("node looks", "ann", "node after", "ann")
    assert USER.get() == "ann"


async def test_threads_of_parallel_nodes_see_their_own_steps() -> None:
    """B-109."""
    fan = Workflow("fan")
    together = threading.Barrier(4, timeout=10)

    @fan.node
    async def split(n: int) -> list[int]:
        return list(range(n))

    @fan.node
    def work(i: int) -> tuple[int, str, int]:
        together.wait()
        seen = USER.get()
        USER.set(f"item {i}")
        with provider.get_tracer("node").start_as_current_span(f"own {i}"):
            together.wait()
        span = trace.get_current_span().get_span_context()
        return i, seen, span.span_id

    @fan.node
    async def gather(found: list[Any]) -> list[Any]:
        return found

    fan.chain(START, split)
    fan.map(split, work)
    fan.gather(work, gather, into="found")
    fan.chain(gather, END)
    collected = Collected()
    provider = collected.provider
    USER.set("ann")
    result = await fan.run(4, telemetry=collected.telemetry)
    collected.check_whole()
    for index, seen, span_id in result.output:
        assert seen == "ann"
        (step,) = [span for span in collected.named("node work") if identity(span) == span_id]
        assert attributes(step)["graphrt.scope"] == f"split[{index}]"
        assert collected.children(step) == [f"own {index}"]
    assert USER.get() == "ann"


async def test_spans_of_node_code_lie_under_its_step() -> None:
    collected = Collected()
    tracer = collected.provider.get_tracer("node")

    async def works(x: int) -> int:
        with tracer.start_as_current_span("query"):
            await yield_often(2)

            async def below() -> None:
                with tracer.start_as_current_span("fetch"):
                    await yield_often(2)

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(below)
                tasks.start_soon(below)
        return x

    await line(works).run(1, telemetry=collected.telemetry)
    collected.check_whole()
    assert collected.children(collected.one("node works")) == ["query"]
    assert collected.children(collected.one("query")) == ["fetch", "fetch"]


async def test_iterators_see_the_step_of_their_node() -> None:
    async def pages(n: int) -> AsyncIterator[str]:
        for _ in range(n):
            yield current()
            await yield_often(1)

    def lines(n: int) -> Iterator[str]:
        for _ in range(n):
            yield current()

    for source in (pages, lines):
        fan = Workflow("fan")
        fan.node(source)

        @fan.node
        async def item(x: str) -> tuple[str, str]:
            return x, current()

        @fan.node
        async def gather(found: list[Any]) -> list[Any]:
            return found

        fan.chain(START, source)
        fan.map(source, item)
        fan.gather(item, gather, into="found")
        fan.chain(gather, END)
        collected = Collected()
        result = await fan.run(3, telemetry=collected.telemetry)
        collected.check_whole()
        assert result.output == [(f"node {source.__name__}", "node item")] * 3


async def test_further_attempt_sees_its_own_span_below_the_step() -> None:
    collected = Collected()
    tracer = collected.provider.get_tracer("node")
    tries: list[str] = []

    async def shaky(x: int) -> int:
        tries.append(current())
        with tracer.start_as_current_span(f"query {len(tries)}"):
            if len(tries) < 3:
                raise ConnectionError
        return x

    await line(shaky, retry=RetryPolicy(attempts=3, wait_initial=0)).run(1, telemetry=collected.telemetry)
    collected.check_whole()
    assert tries == ["node shaky", "attempt shaky", "attempt shaky"]
    first = collected.parent(collected.one("query 1"))
    assert first is not None
    assert first.name == "node shaky"
    numbers = [collected.parent(collected.one(f"query {n}")) for n in (2, 3)]
    assert [attributes(span)["graphrt.attempt"] for span in numbers if span is not None] == [2, 3]


async def test_fallbacks_and_answers_see_the_step_they_belong_to() -> None:
    async def broken(x: int) -> str:
        raise ValueError

    def sync_fallback(x: int) -> str:
        raise ValueError(current())

    async def fallback(x: int, error: Exception) -> str:
        return f"{error}, {current()}"

    collected = Collected()
    graph = line(broken, fallback=[sync_fallback, fallback])
    assert (await graph.run(1, telemetry=collected.telemetry)).output == "node broken, node broken"

    async def on_ask(question: Any) -> str:
        await yield_often(1)
        return current()

    asking = Workflow("asking")
    asking.add(Asking("approve"))
    asking.chain(START, "approve", END)
    result = await asking.run("draft", on_ask=on_ask, telemetry=collected.telemetry)
    assert result.output == "node approve"


async def test_step_never_sees_the_span_of_another() -> None:
    fork = Workflow("fork")
    seen: dict[str, set[str]] = {}

    def watcher(name: str) -> Any:
        async def watch(x: int) -> int:
            for _ in range(5):
                seen.setdefault(name, set()).add(current())
                await yield_often(1)
            return x

        return watch

    async def join(a: int, b: int, c: int) -> int:
        return a + b + c

    for name in "abc":
        fork.add_node(name, watcher(name))
        fork.chain(START, name)
    fork.node(join)
    for name in "abc":
        fork.chain(name, join)
    fork.chain(join, END)
    await fork.run(1, telemetry=Collected().telemetry)
    assert seen == {name: {f"node {name}"} for name in "abc"}


async def test_eight_parallel_tools_have_eight_spans_each_of_200_times() -> None:
    """B-107."""
    agent = Workflow("agent")

    async def call(given: int, ctx: RunContext[Any]) -> int:
        ctx.annotate("gen_ai.tool.call.id", f"call-{given}")
        await yield_often(given % 3)
        return given

    @agent.node
    async def calls(n: int) -> list[int]:
        return list(range(n))

    @agent.node
    async def results(called: list[int]) -> int:
        return len(called)

    agent.add(Doing("tool", NodeKind.TOOL, call))
    agent.chain(START, calls)
    agent.map(calls, "tool")
    agent.gather("tool", results, into="called")
    agent.chain(results, END)
    graph = agent.compile()
    collected = Collected()
    with collected.telemetry.turn("agent", session_id="s-1"):
        for _ in range(200):
            await graph.run(8, telemetry=collected.telemetry)
    collected.check_whole()
    runs = collected.of_kind("run")
    tools = collected.of_kind("tool")
    assert len(runs) == 200
    assert len(tools) == 1600
    by_run: dict[int, set[str]] = {}
    for tool in tools:
        assert tool.parent is not None
        by_run.setdefault(tool.parent.span_id, set()).add(str(attributes(tool)["gen_ai.tool.call.id"]))
    assert by_run == {identity(run): {f"call-{n}" for n in range(8)} for run in runs}
