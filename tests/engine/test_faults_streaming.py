"""Faults of kind 6, and of watching a run: the stream always ends, is read once, and holds back a fast run (E17)."""

from __future__ import annotations

import gc
import logging
import weakref
from collections.abc import AsyncIterator
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from graphrt import END, START, GraphError, GraphTypeError, RunContext, RunEvent, Workflow
from graphrt.graph import Question, RunStatus
from graphrt.graph.scheduler.stream import BUFFER
from graphrt.testing import assert_no_orphans
from tests.engine.helpers import FAKE_TIME, GUARD, Asking, check_whole, line, types, watch, yield_often

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module", params=FAKE_TIME)
def anyio_backend(request: pytest.FixtureRequest) -> Any:
    """Run on both event loops, in fake time."""
    return request.param


async def fails(x: Any) -> int:
    raise ValueError("no")


async def quick(x: Any) -> str:
    return "quick"


async def endless(x: Any) -> str:
    await anyio.sleep_forever()
    return "never"


def counting(rounds: int) -> Workflow:
    """A graph whose cycle goes round so often."""

    async def step(n: int) -> int:
        return n + 1

    workflow = Workflow("counting", max_rounds=rounds)
    workflow.add(step)
    workflow.edge(START, step)
    workflow.edge(step, step, when=lambda n: n < rounds)
    workflow.edge(step, END, when=lambda n: n >= rounds)
    return workflow


# --- B-054: iteration ends ---------------------------------------------------------------------------------


@pytest.mark.parametrize("position", [0, 1, 2])
async def test_iteration_ends_when_a_step_raises_and_the_result_raises_it(position: int) -> None:
    """B-054."""
    functions: list[Any] = [quick, quick, quick]
    workflow = Workflow("g")
    names = [f"n{i}" for i in range(3)]
    for i, name in enumerate(names):
        workflow.add(fails if i == position else functions[i], name=name)
    workflow.chain(START, *names, END)
    with anyio.fail_after(GUARD):
        async with workflow.stream() as run:
            seen = [event async for event in run]
            with pytest.raises(ValueError, match="no"):
                _ = run.result
    assert seen[-1].type == "run.failed"
    assert isinstance(seen[-1].data["error"], ValueError)
    check_whole(seen)


@pytest.mark.parametrize(
    ("kind", "last"),
    [
        ("condition", "run.failed"),
        ("type", "run.failed"),
        ("no end", "run.failed"),
        ("limit", "run.stopped"),
        ("timeout", "run.timed_out"),
        ("cancel", "run.cancelled"),
        ("fine", "run.completed"),
    ],
)
async def test_iteration_ends_however_the_run_does(kind: str, last: str) -> None:
    """B-054, E17."""

    async def wrong(x: Any) -> int:
        return "text"  # type: ignore[return-value]  # what is caught

    workflow = Workflow("g", max_steps=1 if kind == "limit" else None, timeout=5 if kind == "timeout" else None)
    workflow.add({"type": wrong, "timeout": endless, "cancel": endless}.get(kind, quick), name="a")
    workflow.add(quick, name="b")
    workflow.edge(START, "a")
    if kind == "no end":
        workflow.edge("a", "b", when=lambda x: False)
    elif kind == "condition":
        workflow.edge("a", "b", when=lambda x: 1 / 0 > 1)
    else:
        workflow.edge("a", "b")
    workflow.edge("b", END)
    seen: list[RunEvent] = []
    with anyio.fail_after(60):
        async with workflow.stream(check=False) as run:
            async for event in run:
                seen.append(event)
                if kind == "cancel" and event.type == "step.started":
                    await run.cancel()
    check_whole(seen)
    assert seen[-1].type == last
    assert run.result.status.value in last.replace("completed", "succeeded")


async def test_step_that_raises_base_exception_ends_the_iteration_too() -> None:
    seen: list[RunEvent] = []

    async def interrupted(x: Any) -> int:
        raise KeyboardInterrupt

    with anyio.fail_after(GUARD), pytest.raises(KeyboardInterrupt):
        await watch(line(interrupted).stream(), seen)
    assert seen[-1].type == "run.cancelled"


# --- the result of a stream --------------------------------------------------------------------------------


async def test_block_raises_the_error_that_nobody_has_read() -> None:
    with pytest.raises(ValueError, match="no"):
        await watch(line(fails).stream(), [])


async def test_block_raises_nothing_once_the_error_was_read() -> None:
    async with line(fails).stream() as run:
        async for _ in run:
            pass
        with pytest.raises(ValueError, match="no"):
            await run.wait()
    assert_no_orphans()


async def test_error_of_the_block_comes_before_the_runs() -> None:
    async def use() -> None:
        async with line(fails).stream() as run:
            async for _ in run:
                pass
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        await use()


async def test_unchecked_stream_raises_nothing() -> None:
    async with line(fails).stream(check=False) as run:
        async for _ in run:
            pass
    assert run.result.status == "failed"
    assert isinstance(run.result.error, ValueError)


async def test_result_before_the_end_is_refused() -> None:
    async with line(endless).stream() as run:
        with pytest.raises(GraphError, match="the run has not ended"):
            _ = run.result


async def test_result_is_there_after_the_last_event() -> None:
    async with line(quick).stream() as run:
        seen = [event async for event in run]
        assert run.result.output == "quick"
    assert seen[-1].type == "run.completed"


async def test_result_is_the_same_object_data_wherever_it_is_read() -> None:
    async with line(quick).stream() as run:
        first = await run.wait()
        assert run.result.run_id == first.run_id == run.run_id
    assert run.result.output == first.output


async def test_wait_gives_the_result_without_reading() -> None:
    async with counting(1000).stream(0) as run:
        assert (await run.wait()).output == 1000


async def test_block_that_does_nothing_still_ends_the_run() -> None:
    """Leaving the block early cancels the run and waits for it."""
    async with line(endless).stream(check=False) as run:
        pass
    assert run.result.status is RunStatus.CANCELLED


async def test_stream_outside_its_block_is_refused() -> None:
    run = line(quick).stream()
    with pytest.raises(GraphError, match="the run has not started"):
        await run.wait()


async def test_stream_is_entered_once() -> None:
    run = line(quick).stream()
    async with run:
        await run.wait()
    with pytest.raises(GraphError, match="entered before"):
        async with run:
            pass


# --- leaving early -----------------------------------------------------------------------------------------


def leaving(cleaned: list[str]) -> Workflow:
    """A graph with a step that works on until it is cancelled, and notes that."""

    async def works(x: Any) -> int:
        try:
            await anyio.sleep_forever()
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.sleep(1)
            cleaned.append("works")
        return 1

    async def source(x: Any) -> AsyncIterator[int]:
        try:
            while True:
                yield 1
                await anyio.sleep(1)
        finally:
            cleaned.append("source")

    async def body(item: int) -> int:
        return item

    workflow = Workflow("g")
    workflow.add(works)
    workflow.add(source)
    workflow.add(body)
    workflow.chain(START, works, END)
    workflow.edge(START, source)
    workflow.map(source, body)
    workflow.gather(body, END)
    return workflow


async def read_three(run: Any) -> None:
    """Read a few events and leave by a return."""
    count = 0
    async for _ in run:
        count += 1
        if count == 3:
            return


@pytest.mark.parametrize("way", ["break", "return", "raise", "cancel", "nothing"])
async def test_reader_may_leave_early_and_nothing_leaks(way: str, caplog: pytest.LogCaptureFixture) -> None:
    """B-105's rule without spans: nothing is logged, everything has ended when the block is left."""
    cleaned: list[str] = []
    outcome: list[str] = []
    with caplog.at_level(logging.WARNING), anyio.fail_after(60):
        try:
            with anyio.move_on_after(3 if way == "cancel" else 50) as scope:
                async with leaving(cleaned).stream(check=False) as run:
                    if way == "return":
                        await read_three(run)
                    elif way != "nothing":
                        count = 0
                        async for _ in run:
                            count += 1
                            if count == 3 and way == "break":
                                break
                            if count == 3 and way == "raise":
                                raise KeyError("mine")
            outcome.append("cancelled" if scope.cancelled_caught else "left")
        except KeyError:
            outcome.append("raised")
    assert outcome == [{"cancel": "cancelled", "raise": "raised"}.get(way, "left")]
    assert sorted(cleaned) == ([] if way == "nothing" else ["source", "works"])
    assert_no_orphans()
    assert caplog.records == []


async def test_second_reader_is_refused() -> None:
    async with line(quick).stream() as run:
        async for _ in run:
            with pytest.raises(GraphError, match="have a reader already"):
                async for _ in run:
                    pass
        with pytest.raises(GraphError, match="have a reader already"):
            async for _ in run:
                pass


async def test_reading_after_the_end_ends_at_once() -> None:
    async with line(quick).stream() as run:
        await run.wait()
        seen = [event async for event in run]
    check_whole(seen)


async def test_anext_after_the_end_stops_every_time() -> None:
    async with line(quick).stream() as run:
        _ = [event async for event in run]
        for _ in range(3):
            with pytest.raises(StopAsyncIteration):
                await anext(run)


# --- back-pressure -----------------------------------------------------------------------------------------


async def test_slow_reader_slows_the_run() -> None:
    """The buffer is bounded: the run is never more than that ahead."""
    steps: list[int] = []

    async def step(n: int) -> int:
        steps.append(n)
        return n + 1

    rounds = 2 * BUFFER
    workflow = Workflow("counting", max_rounds=rounds)
    workflow.add(step)
    workflow.edge(START, step)
    workflow.edge(step, step, when=lambda n: n < rounds)
    workflow.edge(step, END, when=lambda n: n >= rounds)
    read = 0
    most = 0
    async with workflow.stream(0) as run:
        async for _ in run:
            read += 1
            if read % 100 == 0:
                await anyio.sleep(1)
                most = max(most, len(steps) * 4 - read)
    assert len(steps) == rounds
    assert most <= BUFFER + 300
    assert run.dropped == 0


async def test_reader_that_stops_for_good_stops_the_run_not_the_block() -> None:
    """A reader that is slow for ever holds the run, until it leaves the block."""
    steps: list[int] = []

    async def step(n: int) -> int:
        steps.append(n)
        return n + 1

    workflow = Workflow("counting", max_rounds=100_000)
    workflow.add(step)
    workflow.edge(START, step)
    workflow.edge(step, step, when=lambda n: True)
    workflow.edge(step, END, when=lambda n: False)
    with anyio.fail_after(60):
        async with workflow.stream(0, check=False) as run:
            async for _ in run:
                await anyio.sleep(20)
                break
    assert len(steps) < BUFFER
    assert run.result.status == "cancelled"


async def test_stream_that_is_never_read_does_not_slow_the_run_and_stays_bounded() -> None:
    rounds = 3 * BUFFER
    async with counting(rounds).stream(0) as run:
        assert (await run.wait()).output == rounds
        left = [event async for event in run]
    assert len(left) <= BUFFER
    assert run.dropped == left[-1].sequence - len(left)
    assert left[-1].type == "run.completed"


async def test_numbers_of_events_have_no_gaps_for_a_reader() -> None:
    async with counting(BUFFER).stream(0) as run:
        seen = []
        async for event in run:
            seen.append(event)
            await anyio.lowlevel.checkpoint()
    check_whole(seen)


async def test_cancel_wakes_a_run_that_a_slow_reader_holds() -> None:
    with anyio.fail_after(60):
        async with counting(100_000).stream(0, check=False) as run:
            async for _ in run:
                await anyio.sleep(1)
                assert (await run.cancel()).outcome == "cancelled"
                break
    assert run.result.status == "cancelled"


async def test_deadline_ends_a_run_that_a_slow_reader_holds() -> None:
    """E17: no ending is kept back by a reader."""
    with anyio.fail_after(60):
        async with counting(100_000).stream(0, timeout=5, check=False) as run:
            async for _ in run:
                await anyio.sleep(10)
                break
            await run.wait()
    assert run.result.status in ("timed_out", "cancelled")


# --- text and events ---------------------------------------------------------------------------------------


async def test_text_is_streamed_with_an_index_and_stored_with_the_step() -> None:
    async def speaks(x: Any, ctx: RunContext[Any]) -> str:
        for word in ("one ", "two"):
            ctx.send_text(word)
            await anyio.lowlevel.checkpoint()
        return "spoken"

    seen: list[RunEvent] = []
    await watch(line(speaks).stream(), seen)
    deltas = [event for event in seen if event.type == "message.delta"]
    assert [(e.data["text"], e.data["index"], e.sequence) for e in deltas] == [("one ", 0, 2), ("two", 1, 2)]
    (ended,) = [event for event in seen if event.type == "step.completed"]
    assert ended.data["text"] == "one two"
    check_whole(seen)


@pytest.mark.parametrize("kind", ["fail", "cancel", "timeout"])
async def test_text_of_a_step_that_does_not_succeed_is_kept_as_partial(kind: str) -> None:
    async def speaks(x: Any, ctx: RunContext[Any]) -> str:
        ctx.send_text("half")
        if kind == "fail":
            raise ValueError("no")
        await anyio.sleep(100)
        return ""

    seen: list[RunEvent] = []
    workflow = Workflow("g")
    workflow.add(speaks, timeout=5 if kind == "timeout" else None)
    workflow.chain(START, speaks, END)
    async with workflow.stream(check=False) as run:
        async for event in run:
            seen.append(event)
            if kind == "cancel" and event.type == "message.delta":
                await run.cancel()
    kinds = {"fail": "step.failed", "cancel": "step.cancelled", "timeout": "step.timed_out"}
    (ended,) = [event for event in seen if event.type == kinds[kind]]
    assert ended.data["partial"] == "half"


async def test_custom_events_are_numbered_with_the_rest() -> None:
    async def node(x: Any, ctx: RunContext[Any]) -> str:
        ctx.emit("custom.progress", {"done": 1})
        return "x"

    seen: list[RunEvent] = []
    await line(node).run(on_event=seen.append)
    assert types(seen) == ["run.started", "step.started", "custom.progress", "step.completed", "run.completed"]
    assert seen[2].data == {"done": 1}
    check_whole(seen)


@pytest.mark.parametrize("kind", ["run.completed", "step.started", "progress", ""])
async def test_engines_own_events_are_not_a_nodes_to_emit(kind: str) -> None:
    async def node(x: Any, ctx: RunContext[Any]) -> str:
        with pytest.raises(GraphError, match="not a node's to emit"):
            ctx.emit(kind)
        return "x"

    await line(node).run()


async def test_events_of_every_kind_of_step_tell_its_place() -> None:
    async def source(x: Any) -> list[int]:
        return [1, 2]

    async def body(item: int) -> int:
        return item

    inner = Workflow("inner")
    inner.add(source)
    inner.add(body)
    inner.edge(START, source)
    inner.map(source, body)
    inner.gather(body, END)
    outer = line(inner)
    seen: list[RunEvent] = []
    await outer.run(on_event=seen.append)
    started = [(e.step.scope, e.step.node) for e in seen if e.type == "step.started" and e.step is not None]
    assert started == [
        ("", "inner"),
        ("inner", "source"),
        ("inner/source[0]", "body"),
        ("inner/source[1]", "body"),
    ]


async def test_mistake_of_an_event_callback_does_not_break_the_run(caplog: pytest.LogCaptureFixture) -> None:
    """A reader's mistake is the reader's: the run and its stream go on."""

    def broken(event: RunEvent) -> None:
        raise RuntimeError("callback")

    with caplog.at_level(logging.CRITICAL):
        result = await line(quick).run(on_event=broken)
        async with line(quick).stream(on_event=broken) as run:
            seen = [event async for event in run]
    assert result.output == "quick"
    check_whole(seen)


async def test_stream_that_was_left_keeps_nothing_alive() -> None:
    class Payload:
        pass

    refs: list[weakref.ref[Any]] = []

    async def node(x: Any) -> Any:
        made = Payload()
        refs.append(weakref.ref(made))
        return made

    async with line(node, node_two).stream() as run:
        await run.wait()
    del run
    gc.collect()
    assert [ref() for ref in refs] == [None]


async def node_two(x: Any) -> str:
    return "x"


# --- a person ----------------------------------------------------------------------------------------------


def approving(**options: Any) -> Workflow:
    """A graph that asks once, and once more when it is answered `no`."""
    workflow = Workflow("g")
    workflow.add(quick, name="draft")
    workflow.add(Asking("ask"), **options)
    workflow.add(_echo, name="after")
    workflow.chain(START, "draft", "ask")
    workflow.edge("ask", "ask", when=lambda answer: answer == "no")
    workflow.edge("ask", "after", when=lambda answer: answer != "no")
    workflow.edge("after", END)
    return workflow


async def _echo(answer: str) -> str:
    return f"answered {answer}"


async def test_question_is_answered_in_the_stream() -> None:
    questions: list[Question] = []
    async with approving().stream() as run:
        async for event in run:
            if event.type == "step.waiting":
                questions += run.questions
                await run.answer(run.questions[0].id, "no" if len(questions) == 1 else "yes")
    assert run.result.output == "answered yes"
    assert len({q.id for q in questions}) == 2
    assert run.result.questions == []


async def test_answer_that_does_not_fit_leaves_the_question_open() -> None:
    async with approving().stream() as run:
        async for event in run:
            if event.type == "step.waiting":
                (question,) = run.questions
                with pytest.raises(GraphTypeError, match="'ask' takes str"):
                    await run.answer(question.id, 5)
                assert run.questions == [question]
                await run.answer(question.id, "yes")
    assert run.result.output == "answered yes"


async def test_answer_that_comes_before_its_question_is_kept() -> None:
    """The core keeps what comes early."""
    async with approving().stream() as run:
        await run.answer("ask#1", "yes")
        assert (await run.wait()).output == "answered yes"


async def test_second_answer_to_one_question_is_ignored() -> None:
    async with approving().stream() as run:
        async for event in run:
            if event.type == "step.waiting":
                (question,) = run.questions
                await run.answer(question.id, "yes")
                await run.answer(question.id, "no")
    assert run.result.output == "answered yes"


async def test_run_without_anybody_to_ask_is_refused_at_the_start() -> None:
    with pytest.raises(GraphError, match="node 'ask' of graph 'g' asks a person, and nobody can answer"):
        await approving().run()


async def test_on_ask_answers() -> None:
    asked: list[Any] = []

    async def answer(question: Question) -> str:
        asked.append(question.question)
        await anyio.sleep(5)
        return "yes"

    assert (await approving().run(on_ask=answer)).output == "answered yes"
    assert asked == ["is 'quick' good?"]


@pytest.mark.parametrize("kind", ["raises", "wrong"])
async def test_mistake_of_on_ask_is_the_asking_steps_failure(kind: str) -> None:
    async def answer(question: Question) -> Any:
        if kind == "raises":
            raise LookupError("nobody there")
        return 5

    expected: type[Exception] = LookupError if kind == "raises" else GraphTypeError
    with anyio.fail_after(GUARD):
        result = await approving().run(on_ask=answer, check=False)
    assert type(result.error) is expected
    assert result.node_states["ask"] == "failed"


async def test_cancel_while_a_person_is_asked_closes_the_question() -> None:
    async with approving().stream(check=False) as run:
        async for event in run:
            if event.type == "step.waiting":
                assert (await run.cancel()).outcome == "cancelled"
    assert run.questions == []
    assert run.result.node_states["ask"] == "cancelled"


async def test_parallel_questions_are_answered_apart_in_any_order() -> None:
    workflow = Workflow("g")
    for name in ("a", "b", "c"):
        workflow.add(Asking(name))
        workflow.chain(START, name, END)
    async with workflow.stream("draft") as run:
        await yield_often(20)
        ids = [question.id for question in run.questions]
        assert ids == ["a", "b", "c"]
        for one in reversed(ids):
            await run.answer(one, f"for {one}")
            await yield_often()
        result = await run.wait()
    assert result.outputs == {"a": "for a", "b": "for b", "c": "for c"}
