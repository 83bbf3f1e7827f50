"""Faults of kinds 10 and 11 as far as the engine has a part in them: context, broken text, order of results."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Iterator
from contextvars import ContextVar
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from graphrt import END, START, RetryPolicy, RunContext, RunEvent, Workflow
from tests.engine.helpers import GUARD, check_whole, line, until, watch, yield_often

pytestmark = pytest.mark.anyio

BROKEN = "half of a pair \ud83d, a NUL \x00, an escape \x1b[31m"
"""Text that some encoder or terminal has trouble with."""
WHO: ContextVar[str] = ContextVar("WHO", default="nobody")


def mapped(source: Any, body: Any) -> Workflow:
    """Map *body* over *source*."""
    workflow = Workflow("g")
    workflow.add(source)
    workflow.add(body)
    workflow.edge(START, source)
    workflow.map(source, body)
    workflow.gather(body, END)
    return workflow


# --- B-119: broken text ------------------------------------------------------------------------------------


async def test_broken_text_travels_and_is_shown() -> None:
    """B-119: through input, value, condition, event, streamed text, error, note, result and picture."""

    async def echo(text: str, ctx: RunContext[Any]) -> str:
        ctx.send_text(text)
        ctx.emit("custom.text", {"text": text})
        return text

    async def fails(text: str) -> str:
        raise ValueError(text)

    async def handler(error: ValueError) -> str:
        return str(error)

    workflow = Workflow(f"broken {BROKEN}", input=str, output=str)
    workflow.add(echo, name=f"echo {BROKEN}")
    workflow.add(fails)
    workflow.add(handler)
    workflow.edge(START, f"echo {BROKEN}")
    workflow.branch(f"echo {BROKEN}", {BROKEN: fails}, default=END)
    workflow.edge(fails, END)
    workflow.edge(fails, handler, on_error=True, label=BROKEN)
    workflow.edge(handler, END)
    seen: list[RunEvent] = []
    run = workflow.stream(BROKEN, run_id=f"r {BROKEN}")
    await watch(run, seen)
    assert run.result.output == BROKEN
    check_whole(seen)
    graph = workflow.compile()
    for picture in (graph.to_svg(), graph.to_svg(run.result), graph.to_mermaid(), graph.to_dot(), graph.fingerprint):
        picture.encode()


async def test_broken_text_of_an_unhandled_error_is_in_its_notes() -> None:
    async def fails(text: str) -> str:
        raise ValueError(text)

    workflow = Workflow("g")
    workflow.add(fails, name=BROKEN)
    workflow.chain(START, BROKEN, END)
    result = await workflow.run("x", check=False)
    assert result.termination.detail is not None
    assert repr(BROKEN)[1:-1] in result.error.__notes__[0]  # type: ignore[union-attr]  # it has failed


# --- B-120: order of results -------------------------------------------------------------------------------


async def test_results_of_parallel_calls_come_in_the_order_of_the_calls() -> None:
    """B-120: the last to be called ends first; events may come as they finish."""
    turns = [anyio.Event() for _ in range(9)]

    async def calls(x: Any) -> list[int]:
        return list(range(8))

    async def call(number: int) -> int:
        if number < 7:
            await turns[number + 1].wait()
        turns[number].set()
        return number

    events: list[RunEvent] = []
    with anyio.fail_after(GUARD):
        result = await mapped(calls, call).run(on_event=events.append)
    assert result.output == list(range(8))
    ended = [e.data["output"] for e in events if e.type == "step.completed" and e.step and e.step.node == "call"]
    assert ended == list(reversed(range(8)))


@pytest.mark.parametrize("attempts", [1, 3])
async def test_order_of_results_is_kept_whatever_is_retried(attempts: int) -> None:
    failed: set[int] = set()

    async def calls(x: Any) -> AsyncIterator[int]:
        for i in range(20):
            await anyio.lowlevel.checkpoint()
            yield i

    async def call(number: int) -> int:
        if number % 3 == 0 and number not in failed and attempts > 1:
            failed.add(number)
            raise ValueError
        await yield_often(number % 5)
        return number

    workflow = Workflow("g")
    workflow.add(calls)
    workflow.add(call, retry=RetryPolicy(attempts=attempts, wait_initial=0))
    workflow.edge(START, calls)
    workflow.map(calls, call, max_concurrency=4)
    workflow.gather(call, END)
    assert (await workflow.run()).output == list(range(20))


async def test_outputs_are_in_the_order_of_the_edges() -> None:
    """E7."""
    first = anyio.Event()

    async def slow(x: Any) -> str:
        await first.wait()
        return "slow"

    async def quick(x: Any) -> str:
        first.set()
        return "quick"

    workflow = Workflow("g")
    for fn in (slow, quick):
        workflow.add(fn)
        workflow.chain(START, fn, END)
    with anyio.fail_after(GUARD):
        result = await workflow.run()
    assert list(result.outputs) == ["slow", "quick"]
    assert result.output == "slow"


# --- B-109: context of every kind of node ------------------------------------------------------------------


async def test_every_kind_of_node_sees_the_callers_context_and_leaves_nothing_in_it() -> None:
    """B-109."""
    seen: list[tuple[str, str]] = []

    def look(name: str) -> None:
        seen.append((name, WHO.get()))
        WHO.set(name)

    async def source(x: Any) -> AsyncIterator[int]:
        look("source")
        yield 1

    def threaded_source(x: int) -> Iterator[int]:
        look("threaded source")
        yield x

    def threaded(x: int) -> int:
        look("threaded")
        return x

    async def flaky(x: int, ctx: RunContext[Any]) -> int:
        look(f"attempt {ctx.step.attempt}")
        raise ValueError

    async def spare(error: Exception) -> int:
        look("fallback")
        return 1

    def threaded_spare(error: Exception) -> int:
        look("threaded fallback")
        raise error

    async def last(parts: Any) -> str:
        look("last")
        return WHO.get()

    workflow = Workflow("g")
    workflow.add(source)
    workflow.add(threaded_source)
    workflow.add(threaded)
    workflow.add(flaky, retry=RetryPolicy(attempts=2, wait_initial=0), fallback=[threaded_spare, spare])
    workflow.add(line(threaded), name="inner")
    workflow.add(last)
    workflow.edge(START, source)
    workflow.map(source, threaded_source)
    workflow.map(threaded_source, threaded)
    workflow.chain(threaded, flaky, "inner")
    workflow.add(_same, name="row")
    workflow.gather("inner", "row")
    workflow.gather("row", last)
    workflow.edge(last, END)
    WHO.set("caller")
    assert (await workflow.run()).output == "last"
    assert WHO.get() == "caller"
    assert {who for _, who in seen} == {"caller"}
    assert len(seen) == 9


async def _same(parts: list[int]) -> list[int]:
    return parts


async def test_context_of_the_caller_is_taken_when_the_run_starts() -> None:
    async def node(x: Any) -> str:
        return WHO.get()

    graph = line(node).compile()
    WHO.set("first")
    assert (await graph.run()).output == "first"
    WHO.set("second")
    async with graph.stream() as run:
        WHO.set("third")
        result = await run.wait()
    assert result.output in ("second", "third")
    outputs: list[str] = []
    thread = threading.Thread(target=lambda: outputs.append(graph.run_sync().output))
    thread.start()
    with anyio.fail_after(GUARD):
        await until(lambda: not thread.is_alive())
    assert outputs == ["nobody"]
