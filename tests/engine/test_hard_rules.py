"""The rules where they are easily broken: names in keys, owners of values, ends before the beginning."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from graphrt import END, START, GraphError, RetryPolicy, RunContext, RunEvent, Workflow
from graphrt.nodes import Ask

pytestmark = pytest.mark.anyio


def one(fn: Any, **options: Any) -> Workflow:
    """Make a workflow of one function."""
    workflow = Workflow("one")
    workflow.add_node("n", fn, **options)
    workflow.chain(START, "n", END)
    return workflow


async def test_names_cannot_be_mistaken_for_scopes_rounds_or_items() -> None:
    """E19: no two steps have one key, whatever their nodes are called."""
    keys: list[str] = []

    async def note(x: Any, ctx: RunContext[None]) -> int:
        keys.append(ctx.idempotency_key)
        return 1

    async def two(x: Any) -> list[int]:
        return [1, 2]

    inner = Workflow("g")
    inner.add_node("x", note)
    inner.chain(START, "x", END)
    outer = Workflow("w")
    outer.add(inner, name="g")
    outer.add_node("s", two)
    outer.add_node("b", note)
    outer.add_node("done", note)
    for name in ("g/x", "s[0]/b", "s>b", "loop#1", "g%2Fx"):
        outer.add_node(name, note)
        outer.chain(START, name, END)
    outer.add_node("loop", note)
    outer.chain(START, "loop", END)
    outer.chain(START, "g", END)
    outer.chain(START, "s")
    outer.map("s", "b")
    outer.gather("b", "done")
    outer.chain("done", END)
    await outer.run(0)
    assert len(keys) == len(set(keys)) == 10


async def test_two_questions_whose_names_look_alike_are_both_asked() -> None:
    inner = Workflow("g")
    inner.add(Ask("x", question="inner?"))
    inner.chain(START, "x", END)
    outer = Workflow("w")
    outer.add(inner, name="g")
    outer.add(Ask("g/x", question="outer?"))
    outer.chain(START, "g", END)
    outer.chain(START, "g/x", END)

    async def answer(question: Any) -> str:
        return f"to {question.question}"

    with anyio.fail_after(10):
        result = await outer.run(0, on_ask=answer)
    assert result.outputs == {"g": "to inner?", "g/x": "to outer?"}


async def test_interrupt_in_a_condition_ends_the_run_and_leaves_it_bare() -> None:
    """E14."""

    def interrupted(value: int) -> bool:
        raise KeyboardInterrupt

    async def same(x: int) -> int:
        return x

    workflow = Workflow("w")
    workflow.add_node("n", same)
    workflow.chain(START, "n")
    workflow.edge("n", END, when=interrupted)
    events: list[RunEvent] = []
    with pytest.raises(KeyboardInterrupt):
        await workflow.run(1, on_event=events.append)
    assert [e.type for e in events][-2:] == ["step.cancelled", "run.cancelled"]


async def test_caller_may_change_its_list_while_the_run_reads_it() -> None:
    """E9, E22: items are stored before their scopes open, and the caller's input is the caller's own."""
    items: list[list[int]] = [[1], [2], [3]]

    async def body(item: list[int]) -> list[int]:
        items.clear()
        return item

    async def all_of(xs: list[list[int]]) -> list[list[int]]:
        return xs

    workflow = Workflow("w")
    workflow.node(body)
    workflow.node(all_of)
    workflow.map(START, body, max_concurrency=1)
    workflow.gather(body, all_of)
    workflow.chain(all_of, END)
    assert (await workflow.run(items)).output == [[1], [2], [3]]


async def test_input_changed_during_the_run_is_not_seen_by_later_nodes() -> None:
    given = {"words": ["a"]}

    async def first(data: dict[str, list[str]]) -> int:
        given["words"].append("late")
        return 1

    async def second(x: int, data: dict[str, list[str]]) -> list[str]:
        return data["words"]

    workflow = Workflow("w")
    workflow.node(first)
    workflow.node(second)
    workflow.chain(START, first, second, END)
    assert (await workflow.run(given)).output == ["a"]


async def test_reader_of_events_and_nodes_cannot_change_each_others_values() -> None:
    seen: list[RunEvent] = []

    def read(event: RunEvent) -> None:
        seen.append(event)
        if event.type == "step.completed":
            event.data["output"].append("reader")

    async def first(x: int) -> list[str]:
        return ["first"]

    async def second(xs: list[str]) -> list[str]:
        xs.append("second")
        return xs

    workflow = Workflow("w")
    workflow.node(first)
    workflow.node(second)
    workflow.chain(START, first, second, END)
    assert (await workflow.run(1, on_event=read)).output == ["first", "second"]
    assert next(e.data["output"] for e in seen if e.type == "step.completed") == ["first", "reader"]


@pytest.mark.parametrize("mode", ["now", "after_step"])
async def test_run_cancelled_before_its_first_step_has_begun_and_ended(mode: Any) -> None:
    """`run.started` is first, the ending is last."""
    events: list[RunEvent] = []
    called: list[int] = []

    async def node(x: int) -> None:
        called.append(x)

    async with one(node).stream(1, check=False, on_event=events.append) as run:
        answer = await run.cancel(mode)
    assert answer.outcome == "cancelled"
    assert (events[0].type, events[-1].type) == ("run.started", "run.cancelled")
    assert not called


async def test_run_whose_deadline_has_passed_starts_no_step() -> None:
    """E15."""
    called: list[int] = []

    async def node(x: int) -> None:
        called.append(x)

    result = await one(node).run(1, deadline_at=datetime.now(UTC) - timedelta(hours=1), check=False)
    assert (result.status, called) == ("timed_out", [])


@pytest.mark.parametrize("timeout", [math.inf, 1e12])
async def test_limit_beyond_all_dates_is_no_deadline(timeout: float) -> None:
    async def node(x: int, ctx: RunContext[None]) -> bool:
        return ctx.deadline is None

    assert (await one(node).run(1, timeout=timeout)).output is True


async def test_early_answer_that_does_not_fit_leaves_the_question_open() -> None:
    workflow = Workflow("w")
    workflow.add(Ask("q", question="how many?", answer=int))
    workflow.chain(START, "q", END)
    with anyio.fail_after(10):
        async with workflow.stream(0) as run:
            await run.answer("q", "many")
            while not run.questions:
                await anyio.lowlevel.checkpoint()
            await run.answer("q", 3)
            assert (await run.wait()).output == 3


def iterated(source: Any, **options: Any) -> Workflow:
    """Map the items of *source* to themselves, changed."""
    workflow = Workflow("w")

    async def body(item: Any) -> Any:
        if isinstance(item, list):
            item.append("body")
        return item

    async def all_of(xs: list[Any]) -> list[Any]:
        return xs

    workflow.add_node("source", source, **options)
    workflow.node(body)
    workflow.node(all_of)
    workflow.chain(START, "source")
    workflow.map("source", body)
    workflow.gather(body, all_of)
    workflow.chain(all_of, END)
    return workflow


async def test_items_of_an_iterator_are_each_their_own() -> None:
    """E22."""

    async def source(n: int) -> AsyncIterator[list[Any]]:
        buffer: list[Any] = []
        for i in range(n):
            buffer.append(i)
            yield buffer

    assert (await iterated(source).run(3)).output == [[0, "body"], [0, 1, "body"], [0, 1, 2, "body"]]


async def test_retried_iterator_is_compared_with_what_it_yielded_not_with_what_became_of_it() -> None:
    """E10a."""
    calls: list[int] = []

    async def source(n: int) -> AsyncIterator[Any]:
        calls.append(n)
        yield [1]
        yield math.nan
        await anyio.lowlevel.checkpoint()
        if len(calls) == 1:
            raise ValueError("again")

    result = await iterated(source, retry=RetryPolicy(wait_initial=0)).run(1)
    assert result.output[0] == [1, "body"]
    assert len(calls) == 2


async def test_fallback_of_an_iterator_is_refused() -> None:
    async def source(n: int) -> AsyncIterator[int]:
        yield n

    with pytest.raises(GraphError, match="'source' yields its items one by one and has fallback="):
        iterated(source, fallback=([1],)).compile()


async def test_run_that_ends_short_of_the_end_says_what_failed_on_the_way() -> None:
    """E8: nothing is lost, a failure that was passed over neither."""

    async def broken(x: int) -> int:
        return 1 // 0

    result = await one(broken, on_error="skip").run(1, check=False)
    assert isinstance(result.error, GraphError)
    assert "steps that failed and were passed over: 'n' (ZeroDivisionError)" in str(result.error)
    assert isinstance(result.error.__cause__, ZeroDivisionError)
    assert "ZeroDivisionError" in [type(f.error).__name__ for f in result.failures]


async def test_stream_read_before_it_is_entered_says_how() -> None:
    async def same(x: int) -> int:
        return x

    stream = one(same).stream(1)
    with pytest.raises(GraphError, match="the run has not started"):
        async for _ in stream:
            pass
    with pytest.raises(GraphError, match="the run has not started"):
        _ = stream.result
