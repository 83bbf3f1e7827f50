"""Streams that are left early have whole traces, and nothing is logged about them (B-105)."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

import anyio
import pytest

from graphrt import END, START, CompiledGraph, Workflow
from tests.engine.helpers import yield_often
from tests.telemetry.collecting import Collected, logged, status

pytestmark = pytest.mark.anyio


def looping() -> CompiledGraph:
    """A graph that would go round for ever: a map over an async iterator and a synchronous node in a cycle."""
    loop = Workflow("loop", max_rounds=1_000_000)

    @loop.node
    async def pages(n: int) -> AsyncIterator[int]:
        for page in range(4):
            await yield_often(1)
            yield page

    @loop.node
    async def work(page: int) -> int:
        await yield_often(page)
        return page

    @loop.node
    def total(worked: list[int]) -> int:
        return len(worked)

    loop.chain(START, pages)
    loop.map(pages, work)
    loop.gather(work, total, into="worked")
    loop.edge(total, pages, when=lambda n: n > 0)
    loop.edge(total, END, when=lambda n: n <= 0)
    return loop.compile()


async def leave_by_break(graph: CompiledGraph, **options: Any) -> None:
    async with graph.stream(1, **options) as run:
        async for event in run:
            if event.type == "step.completed":
                break


async def leave_by_return(graph: CompiledGraph, **options: Any) -> None:
    async with graph.stream(1, **options) as run:
        async for event in run:
            if event.type == "round.completed":
                return


async def leave_by_raise(graph: CompiledGraph, **options: Any) -> None:
    async with graph.stream(1, **options) as run:
        async for event in run:
            if event.type == "map.item":
                raise LookupError


async def leave_by_cancellation(graph: CompiledGraph, **options: Any) -> None:
    with anyio.CancelScope() as scope:
        async with graph.stream(1, **options) as run:
            async for event in run:
                if event.sequence > 10:
                    scope.cancel()


async def leave_an_outer_generator(graph: CompiledGraph, **options: Any) -> None:
    async def texts() -> AsyncGenerator[str, None]:
        async with graph.stream(1, **options) as run:
            async for event in run:
                yield event.type

    reading = texts()
    async for text in reading:
        if text == "step.completed":
            break
    await reading.aclose()


@pytest.mark.parametrize(
    "leave",
    [leave_by_break, leave_by_return, leave_by_raise, leave_by_cancellation, leave_an_outer_generator],
    ids=lambda leave: leave.__name__,
)
async def test_stream_left_early_ends_every_span_and_logs_nothing(leave: Any) -> None:
    collected = Collected()
    with logged() as texts:
        try:
            await leave(looping(), telemetry=collected.telemetry)
        except LookupError:
            assert leave is leave_by_raise
    assert texts == []
    collected.check_whole()
    assert len(collected.of_kind("run")) == 1
    assert status(collected.one("invoke_workflow loop")) == ("ERROR", "cancelled")


async def test_stream_read_to_its_end_has_the_trace_of_a_run() -> None:
    line = Workflow("line")

    @line.node
    async def a(x: int) -> int:
        return x

    line.chain(START, a, END)
    collected = Collected()
    async with line.stream(1, telemetry=collected.telemetry) as run:
        events = [event.type async for event in run]
        assert run.result.output == 1
    collected.check_whole()
    assert events[-1] == "run.completed"
    assert collected.paths() == ["invoke_workflow line", "invoke_workflow line > node a"]
