"""Synchronous node functions: threads, deadlines, and what an abandoned one may still do (E16)."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from graphrt import END, START, GraphError, GraphrtError, RetryPolicy, RunContext, RunEvent, Workflow
from graphrt.graph import NodeState
from graphrt.threads import MAX_ABANDONED, abandoned_count
from tests.engine.helpers import GUARD, check_whole, line, of_node, states, until

pytestmark = pytest.mark.anyio

SHORT = 0.03
"""Seconds of a time limit that a test lets pass for real: threads know no fake time."""


class Hanging:
    """A synchronous node function that hangs until it is let go."""

    def __init__(self) -> None:
        self.let_go = threading.Event()
        self.entered = threading.Event()
        self.left = threading.Event()
        self.then: Callable[[], object] = lambda: None
        self.came_of_it: object = None

    def __call__(self, x: Any = None) -> str:
        self.entered.set()
        self.let_go.wait(GUARD)
        try:
            self.came_of_it = self.then()
        except Exception as error:  # noqa: BLE001 - looked at by the test
            self.came_of_it = error
        self.left.set()
        return "late"


@pytest.fixture
def hanging() -> Iterator[Hanging]:
    """Let a hanging function go after the test, and wait until its thread is gone."""
    made = Hanging()
    yield made
    made.let_go.set()
    if made.entered.is_set():
        assert made.left.wait(GUARD)
    until = time.monotonic() + GUARD
    while abandoned_count() and time.monotonic() < until:
        time.sleep(0.001)
    assert abandoned_count() == 0


def one(fn: Callable[..., Any], **options: Any) -> Workflow:
    """Make a graph of one node with options."""
    workflow = Workflow("g")
    workflow.add(fn, name="node", **options)
    workflow.chain(START, "node", END)
    return workflow


# --- B-049: a deadline that does not wait for the thread ---------------------------------------------------


async def test_run_goes_on_at_the_deadline_of_a_sync_node(hanging: Hanging) -> None:
    """B-049."""
    events: list[RunEvent] = []
    with anyio.fail_after(GUARD):
        result = await one(hanging, timeout=SHORT).run(check=False, on_event=events.append)
    assert not hanging.left.is_set()
    assert type(result.error) is TimeoutError
    assert states(result) == {"node": NodeState.TIMED_OUT}
    assert of_node(events, "node") == ["step.started", "thread.abandoned", "step.timed_out"]
    check_whole(events)


async def test_late_result_changes_nothing(hanging: Hanging) -> None:
    """B-049."""
    with anyio.fail_after(GUARD):
        result = await one(hanging, timeout=SHORT, fallback="instead").run()
        hanging.let_go.set()
        await until(hanging.left.is_set)
        await anyio.sleep(0.01)
    assert result.output == "instead"
    assert [(s.state, s.value) for s in result.steps] == [("succeeded", "instead")]


async def test_late_thread_can_touch_nothing(hanging: Hanging) -> None:
    """E16: every method of the context refuses a step that has ended."""
    contexts: list[RunContext[Any]] = []
    events: list[RunEvent] = []

    def node(x: Any, ctx: RunContext[Any]) -> str:
        contexts.append(ctx)
        return hanging()

    with anyio.fail_after(GUARD):
        await one(node, timeout=SHORT).run(check=False, on_event=events.append)
    known = len(events)
    (ctx,) = contexts
    with pytest.raises(GraphError, match="comes after its end"):
        ctx.emit("custom.late", {})
    with pytest.raises(GraphError, match="comes after its end"):
        ctx.send_text("late")
    with pytest.raises(GraphError, match="comes after its end"):
        ctx.record_usage(None)
    assert ctx.cancel_requested is True
    assert len(events) == known


async def test_next_attempt_starts_although_the_last_thread_still_hangs(hanging: Hanging) -> None:
    calls: list[int] = []

    def node(x: Any) -> str:
        calls.append(1)
        return hanging() if len(calls) == 1 else "second"

    with anyio.fail_after(GUARD):
        result = await one(node, timeout=0.5, retry=RetryPolicy(wait_initial=0)).run()
    assert result.output == "second"
    assert calls == [1, 1]


async def test_context_of_an_abandoned_attempt_is_not_that_of_the_next(hanging: Hanging) -> None:
    """The step is alive again in its next attempt; the thread of the one before is not part of it."""
    contexts: list[RunContext[Any]] = []
    refused: list[object] = []
    events: list[RunEvent] = []

    def node(x: Any, ctx: RunContext[Any]) -> str:
        contexts.append(ctx)
        if len(contexts) == 1:
            return hanging()
        try:
            contexts[0].emit("custom.late", {})
        except GraphError as error:
            refused.append(error)
        return "second"

    with anyio.fail_after(GUARD):
        await one(node, timeout=0.5, retry=RetryPolicy(wait_initial=0)).run(on_event=events.append)
    assert len(refused) == 1
    assert "custom.late" not in [event.type for event in events]


async def test_cancelled_sync_node_is_abandoned_at_once(hanging: Hanging) -> None:
    events: list[RunEvent] = []
    with anyio.fail_after(GUARD):
        async with one(hanging).stream(check=False, on_event=events.append) as run:
            await until(hanging.entered.is_set)
            answer = await run.cancel()
    assert answer.outcome == "cancelled"
    assert not hanging.left.is_set()
    assert "thread.abandoned" in [event.type for event in events]


async def test_sync_node_is_abandoned_when_a_sibling_fails(hanging: Hanging) -> None:
    async def fails(x: Any) -> int:
        await until(hanging.entered.is_set)
        raise ValueError("no")

    workflow = one(hanging)
    workflow.add(fails)
    workflow.chain(START, fails, END)
    with anyio.fail_after(GUARD), pytest.raises(ValueError, match="no"):
        await workflow.run()
    assert not hanging.left.is_set()


async def test_run_past_its_deadline_abandons_its_threads(hanging: Hanging) -> None:
    with anyio.fail_after(GUARD), pytest.raises(TimeoutError):
        await one(hanging).run(timeout=SHORT)
    assert not hanging.left.is_set()


async def test_past_64_abandoned_threads_there_is_a_clear_error() -> None:
    let_go = threading.Event()

    async def source(x: Any) -> list[int]:
        return list(range(MAX_ABANDONED))

    def hangs(x: int) -> int:
        let_go.wait(GUARD)
        return x

    workflow = Workflow("g")
    workflow.add(source)
    workflow.add(hangs, timeout=0.2)
    workflow.edge(START, source)
    workflow.map(source, hangs, on_error="skip")
    workflow.gather(hangs, END)
    try:
        with anyio.fail_after(GUARD):
            assert (await workflow.run()).output == []
            assert abandoned_count() == MAX_ABANDONED
            with pytest.raises(GraphrtError, match=r"64 abandoned threads are still busy .64 in '.*hangs'"):
                await one(hangs).run()
    finally:
        let_go.set()
        with anyio.fail_after(GUARD):
            await until(lambda: not abandoned_count())
    assert (await one(lambda x: x + 1).run(1)).output == 2


# --- what a thread sees ------------------------------------------------------------------------------------

VARIABLE: ContextVar[str] = ContextVar("VARIABLE", default="unset")


async def test_context_variables_are_seen_in_every_thread_and_do_not_leak_back() -> None:
    """B-109."""
    seen: list[str] = []

    def body(item: int) -> int:
        seen.append(VARIABLE.get())
        VARIABLE.set(f"item {item}")
        return item

    async def source(x: Any) -> list[int]:
        return list(range(8))

    def after(parts: list[int]) -> str:
        return VARIABLE.get()

    VARIABLE.set("caller's")
    workflow = Workflow("g")
    for fn in (source, body, after):
        workflow.add(fn)
    workflow.edge(START, source)
    workflow.map(source, body)
    workflow.gather(body, after)
    workflow.edge(after, END)
    assert (await workflow.run()).output == "caller's"
    assert seen == ["caller's"] * 8
    assert VARIABLE.get() == "caller's"


async def test_sync_generator_keeps_its_context_between_items() -> None:
    def source(x: Any) -> Iterator[str]:
        yield VARIABLE.get()
        VARIABLE.set("mine")
        yield VARIABLE.get()

    async def body(item: str) -> str:
        return f"{item}/{VARIABLE.get()}"

    VARIABLE.set("caller's")
    workflow = Workflow("g")
    workflow.add(source)
    workflow.add(body)
    workflow.edge(START, source)
    workflow.map(source, body)
    workflow.gather(body, END)
    assert (await workflow.run()).output == ["caller's/caller's", "mine/caller's"]


async def test_sync_nodes_run_in_daemon_threads_of_graphrts_own() -> None:
    def node(x: Any) -> tuple[str, bool, bool]:
        thread = threading.current_thread()
        return (thread.name, thread.daemon, thread is threading.main_thread())

    name, daemon, main = (await line(node).run()).output
    assert name.startswith("graphrt-worker-")
    assert (daemon, main) == (True, False)


async def test_ten_sync_steps_run_at_the_same_time() -> None:
    """B-052: with a sync body it goes to threads by itself."""
    barrier = threading.Barrier(10)

    async def source(x: Any) -> list[int]:
        return list(range(10))

    def body(item: int) -> int:
        barrier.wait(GUARD)
        return item

    workflow = Workflow("g")
    workflow.add(source)
    workflow.add(body)
    workflow.edge(START, source)
    workflow.map(source, body, max_concurrency=10)
    workflow.gather(body, END)
    with anyio.fail_after(GUARD):
        assert (await workflow.run()).output == list(range(10))


async def test_sync_node_may_run_a_loop_of_its_own() -> None:
    async def work() -> str:
        await anyio.lowlevel.checkpoint()
        return "inner loop"

    def node(x: Any) -> str:
        return anyio.run(work)

    assert (await line(node).run()).output == "inner loop"


async def test_sync_function_that_returns_an_awaitable_is_awaited() -> None:
    async def work(x: int) -> int:
        return x + 1

    assert (await one(lambda x: work(x)).run(1)).output == 2  # noqa: PLW0108 - a sync function is what is tested


async def test_events_and_text_of_a_thread_come_in_order() -> None:
    def node(x: Any, ctx: RunContext[Any]) -> str:
        for i in range(3):
            ctx.emit("custom.tick", {"i": i})
            ctx.send_text(f"{i} ")
        return "done"

    events: list[RunEvent] = []
    await line(node).run(on_event=events.append)
    middle = [event for event in events if event.type in ("custom.tick", "message.delta")]
    assert [event.type for event in middle] == ["custom.tick", "message.delta"] * 3
    assert [event.data["text"] for event in middle if event.type == "message.delta"] == ["0 ", "1 ", "2 "]
    (ended,) = [event for event in events if event.type == "step.completed"]
    assert ended.data["text"] == "0 1 2 "
    check_whole(events)


async def test_cancel_requested_ends_a_long_loop_in_a_thread() -> None:
    entered, left = threading.Event(), threading.Event()

    def node(x: Any, ctx: RunContext[Any]) -> str:
        entered.set()
        while not ctx.cancel_requested:
            time.sleep(0.001)
        left.set()
        return "stopped"

    with anyio.fail_after(GUARD):
        async with line(node).stream(check=False) as run:
            await until(entered.is_set)
            await run.cancel()
        await until(left.is_set)
        await until(lambda: not abandoned_count())


async def test_threads_do_not_keep_the_results_of_a_run_alive() -> None:
    class Result:
        pass

    def node(x: Any) -> Result:
        return Result()

    await line(node).run()
    gc.collect()
    assert not [one for one in gc.get_objects() if type(one) is Result]


# --- sync generators ---------------------------------------------------------------------------------------


async def test_sync_generator_is_read_one_item_at_a_time_and_not_too_far_ahead() -> None:
    """E10a."""
    made: list[int] = []
    gate = anyio.Event()

    def source(x: Any) -> Iterator[int]:
        for i in range(20):
            made.append(i)
            yield i

    async def body(item: int) -> int:
        if item == 0:
            await anyio.sleep(0.02)
            assert len(made) <= 4
            gate.set()
        await gate.wait()
        return item

    workflow = Workflow("g")
    workflow.add(source)
    workflow.add(body)
    workflow.edge(START, source)
    workflow.map(source, body, max_concurrency=3)
    workflow.gather(body, END)
    with anyio.fail_after(GUARD):
        assert (await workflow.run()).output == list(range(20))


async def test_sync_generator_is_closed_when_the_run_is_cancelled() -> None:
    closed = threading.Event()

    def source(x: Any) -> Iterator[int]:
        try:
            yield from range(100)
        finally:
            closed.set()

    async def body(item: int) -> int:
        await anyio.sleep(GUARD)
        return item

    workflow = Workflow("g")
    workflow.add(source)
    workflow.add(body)
    workflow.edge(START, source)
    workflow.map(source, body, max_concurrency=2)
    workflow.gather(body, END)
    with anyio.move_on_after(SHORT):
        await workflow.run()
    assert closed.is_set()


async def test_sync_generator_that_hangs_is_left_at_the_deadline(hanging: Hanging) -> None:
    def source(x: Any) -> Iterator[int]:
        yield 1
        hanging()
        yield 2

    async def body(item: int) -> int:
        return item

    workflow = Workflow("g")
    workflow.add(source, timeout=0.3)
    workflow.add(body)
    workflow.edge(START, source)
    workflow.map(source, body)
    workflow.gather(body, END)
    with anyio.fail_after(GUARD):
        result = await workflow.run(check=False)
    assert result.node_states["source"] is NodeState.TIMED_OUT
    assert type(result.error) is TimeoutError
