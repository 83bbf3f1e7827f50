"""Errors that refuse notes, waits for slots that no clock counts, rates kept by real starts, slots of fallbacks."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import anyio
import pytest

from graphrt import END, START, GraphTypeError, RateLimit, RunContext, RunEvent, Workflow
from graphrt.graph.scheduler.limits import RateGate, Turn
from tests.engine.helpers import GUARD, Gate, line, watch

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> Any:
    """Run on both event loops, in real time."""
    return request.param


@dataclass(frozen=True)
class Frozen(Exception):  # noqa: N818 - a short name
    """An exception that lets nothing be set on it."""

    code: int


async def numbers(x: Any) -> list[int]:
    return [1, 2, 3]


# --- errors that refuse notes ------------------------------------------------------------------------------


async def test_error_that_takes_no_note_leaves_as_it_is() -> None:
    async def bad(x: Any) -> int:
        raise Frozen(7)

    with pytest.raises(Frozen) as caught:
        await line(bad).run()
    assert caught.value.code == 7


async def test_further_failures_beside_an_error_that_takes_no_note() -> None:
    async def slow(x: Any) -> int:
        try:
            await anyio.sleep(GUARD)
        finally:
            raise ValueError("as well")

    async def bad(x: Any) -> int:
        await anyio.sleep(0.01)
        raise Frozen(7)

    workflow = Workflow("g")
    for node in (slow, bad):
        workflow.chain(START, workflow.add(node), END)
    with pytest.raises(Frozen):
        await workflow.run()


async def test_error_of_an_item_that_takes_no_note() -> None:
    async def bad(x: int) -> int:
        raise Frozen(x)

    workflow = Workflow("g")
    workflow.chain(START, workflow.add(numbers))
    workflow.map("numbers", workflow.add(bad), on_error="skip", min_success=1)
    workflow.gather("bad", END)
    with pytest.raises(Frozen) as caught:
        await workflow.run()
    assert caught.value.code == 1


async def test_error_of_a_condition_that_takes_no_context() -> None:
    async def bad(x: Any) -> int:
        raise ValueError("first")

    async def handle(error: Any) -> int:
        return 1

    def when(error: BaseException) -> bool:
        raise Frozen(7)

    workflow = Workflow("g")
    workflow.chain(START, workflow.add(bad), END)
    workflow.edge("bad", workflow.add(handle), on_error=ValueError, when=when)
    workflow.edge("handle", END)
    with pytest.raises(Frozen) as caught:
        await workflow.run()
    assert isinstance(caught.value.__context__, ValueError)


async def test_text_that_is_none_is_refused_at_once() -> None:
    refused: list[BaseException] = []

    async def node(x: Any, ctx: RunContext[Any]) -> int:
        try:
            ctx.send_text(5)  # type: ignore[arg-type]
        except GraphTypeError as error:
            refused.append(error)
        ctx.send_text("five")
        return 1

    events: list[RunEvent] = []
    run = line(node).stream()
    await watch(run, events)
    assert len(refused) == 1
    assert "int" in str(refused[0])
    assert [e.data["text"] for e in events if e.type == "message.delta"] == ["five"]


# --- waiting for a thread --------------------------------------------------------------------------------------------


async def test_wait_for_a_thread_counts_in_no_step_timeout_of_a_graph() -> None:
    def blocks(x: Any) -> int:
        time.sleep(1.0)
        return 1

    workflow = Workflow("w")
    for i in range(70):
        workflow.chain(START, workflow.add(line(blocks), name=f"n{i}", step_timeout=1.8), END)
    assert len((await workflow.run()).outputs) == 70


# --- rates -------------------------------------------------------------------------------------------------


async def test_rate_is_kept_where_the_loop_was_blocked() -> None:
    starts: list[float] = []

    async def body(item: int) -> int:
        starts.append(time.monotonic())
        return item

    async def blocker(x: Any) -> int:
        await anyio.sleep(0.25)
        time.sleep(0.22)  # noqa: ASYNC251 - the loop is to be blocked
        return 1

    workflow = Workflow("g")
    workflow.chain(START, workflow.add(numbers))
    workflow.map("numbers", workflow.add(body, rate_limit=RateLimit(1, 0.3)))
    workflow.gather("body", END)
    workflow.chain(START, workflow.add(blocker), END)
    await workflow.run()
    assert len(starts) == 3
    assert all(b - a >= 0.29 for a, b in pairwise(starts))


class Hand:
    """A clock that is set by hand."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_late_call_moves_those_behind_it() -> None:
    clock = Hand()
    gate = RateGate(RateLimit(1, 10), clock=clock)
    first, second = Turn(), Turn()
    assert [gate.reserve(), gate.reserve(first), gate.reserve(second)] == [0, 10, 20]
    clock.now = 17
    assert gate.reserve(first) == 0
    clock.now = 20
    assert gate.reserve(second) == 7
    clock.now = 27
    assert gate.reserve(second) == 0
    assert gate.reserve() == 10


def test_turn_given_back_goes_to_somebody_else() -> None:
    clock = Hand()
    gate = RateGate(RateLimit(1, 10), clock=clock)
    first, second = Turn(), Turn()
    gate.reserve()
    assert [gate.reserve(first), gate.reserve(second)] == [10, 20]
    gate.give_back(first)
    assert [gate.reserve(first), gate.reserve()] == [10, 30]
    gate.give_back(second)
    assert gate.reserve(second) == 20
    gate.give_back(second)
    gate.give_back(second)


async def test_cancelled_wait_for_a_rate_takes_no_turn() -> None:
    async def body(x: Any) -> float:
        return time.monotonic()

    graph = Workflow("g")
    graph.chain(START, graph.add(body, rate_limit=RateLimit(1, 0.4)), END)
    compiled = graph.compile()
    begun = (await compiled.run()).output
    for _ in range(5):
        with anyio.move_on_after(0.02):
            await compiled.run()
    assert (await compiled.run()).output - begun < 0.7


# --- fallbacks ---------------------------------------------------------------------------------------------


async def bad(x: Any) -> int:
    raise ValueError("no")


async def test_fallback_left_behind_is_reported() -> None:
    release = threading.Event()

    def spare(x: Any) -> int:
        release.wait(GUARD)
        return 1

    workflow = Workflow("g")
    workflow.chain(START, workflow.add(bad, fallback=spare), END)
    events: list[RunEvent] = []
    run = workflow.stream(timeout=0.1)
    try:
        await watch(run, events)
    except TimeoutError:
        pass
    finally:
        release.set()
    assert [e.type for e in events].count("thread.abandoned") == 1


@pytest.mark.parametrize(("of_map", "of_run", "most"), [(5, None, 5), (100, None, 64), (100, 3, 3)])
async def test_fallback_takes_the_slots_of_its_step(of_map: int, of_run: int | None, most: int) -> None:
    lock = threading.Lock()
    inside = [0, 0]

    def spare(x: int) -> int:
        with lock:
            inside[0] += 1
            inside[1] = max(inside)
        time.sleep(0.01)
        with lock:
            inside[0] -= 1
        return -x

    async def source(x: Any) -> list[int]:
        return list(range(100))

    workflow = Workflow("g", max_concurrency=of_run)
    workflow.chain(START, workflow.add(source))
    workflow.map("source", workflow.add(bad, fallback=spare), max_concurrency=of_map)
    workflow.gather("bad", END)
    assert (await workflow.run()).output == [-i for i in range(100)]
    assert inside[1] <= most


async def test_async_fallback_takes_the_slots_of_its_step() -> None:
    gate = Gate()

    async def spare(x: int) -> int:
        async with gate:
            await anyio.sleep(0.001)
        return -x

    workflow = Workflow("g")
    workflow.chain(START, workflow.add(numbers))
    workflow.map("numbers", workflow.add(bad, fallback=spare), max_concurrency=1)
    workflow.gather("bad", END)
    assert (await workflow.run()).output == [-1, -2, -3]
    assert gate.most == 1


async def test_failure_within_step_timeout_takes_the_fallback() -> None:
    workflow = Workflow("g")
    workflow.chain(START, workflow.add(bad, fallback=5, step_timeout=5), END)
    assert (await workflow.run()).output == 5
