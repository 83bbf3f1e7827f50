"""One turn at a time, first come, first served."""

from __future__ import annotations

import contextvars
import threading
from contextlib import suppress
from typing import Any

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphrt.agent.turn_queue import TurnQueue
from graphrt.errors import OtherAgentError
from tests.engine.helpers import GUARD, until, yield_often

pytestmark = pytest.mark.anyio

MOVES = st.lists(st.tuples(st.integers(0, 4), st.sampled_from(["end", "fail", "cancel"])), min_size=1, max_size=6)
"""For each turn: how often it yields, and how it ends."""


async def play(moves: list[tuple[int, str]]) -> None:
    """Submit turns in order; each is alone, in its order, whatever becomes of the others."""
    queue = TurnQueue("s")
    entered: list[int] = []
    inside: list[int] = []
    scopes = [anyio.CancelScope() for _ in moves]

    async def turn(n: int, yields: int, end: str) -> None:
        with scopes[n], suppress(ValueError):
            async with queue.turn():
                assert inside == []
                inside.append(n)
                entered.append(n)
                try:
                    await yield_often(yields)
                    if end == "fail":
                        raise ValueError(n)
                finally:
                    inside.remove(n)

    async with anyio.create_task_group() as tasks:
        for n, (yields, end) in enumerate(moves):
            tasks.start_soon(turn, n, yields, end)
            await yield_often(2)
            if end == "cancel":
                scopes[n].cancel()
    assert entered == sorted(entered)
    never = {n for n, (_, end) in enumerate(moves) if end == "cancel"}
    assert set(range(len(moves))) - set(entered) <= never
    assert not queue.busy


@settings(max_examples=40)
@given(MOVES)
@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_turns_run_alone_and_in_order_whatever_becomes_of_them(backend: str, moves: Any) -> None:
    anyio.run(play, moves, backend=backend)


async def test_a_turn_that_waits_can_be_cancelled() -> None:
    queue, release, scope = TurnQueue("s"), anyio.Event(), anyio.CancelScope()

    async def hold() -> None:
        async with queue.turn():
            await release.wait()

    async def wait() -> None:
        with scope:
            async with queue.turn():
                raise AssertionError("it was cancelled")

    with anyio.fail_after(GUARD):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(hold)
            await yield_often()
            tasks.start_soon(wait)
            await yield_often()
            scope.cancel()
            await yield_often()
            release.set()
        async with queue.turn():
            assert queue.busy


async def test_what_is_done_between_turns_comes_before_the_next_one() -> None:
    queue, release, done = TurnQueue("s"), anyio.Event(), []
    queue.between_turns(lambda: done.append("now"))

    async def first() -> None:
        async with queue.turn():
            await release.wait()
            queue.between_turns(lambda: done.append("between"))
            done.append("first")

    async def second() -> None:
        async with queue.turn():
            done.append("second")

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(first)
        await yield_often()
        tasks.start_soon(second)
        await yield_often()
        release.set()
    assert done == ["now", "first", "between", "second"]


async def test_a_turn_inside_a_turn_is_refused_also_through_a_turn_of_another_queue() -> None:
    queue, other = TurnQueue("s"), TurnQueue("t")
    async with queue.turn(), other.turn():
        with pytest.raises(OtherAgentError, match="'s'"):
            async with queue.turn():
                raise AssertionError("it would wait for itself")


async def test_a_task_that_a_turn_has_started_may_submit_one_when_the_turn_is_over() -> None:
    queue, over, done = TurnQueue("s"), anyio.Event(), []

    async def later() -> None:
        await over.wait()
        async with queue.turn():
            done.append("later")

    async with anyio.create_task_group() as tasks:
        async with queue.turn():
            tasks.start_soon(later)
        over.set()
    assert done == ["later"]


@pytest.mark.parametrize(
    "backends", [("asyncio", "asyncio"), ("asyncio", "trio"), ("trio", "asyncio"), ("trio", "trio")]
)
def test_turns_from_several_event_loops_wait_for_one_another(backends: tuple[str, str]) -> None:
    queue, order = TurnQueue("s"), []
    holds, waits = threading.Event(), threading.Event()

    async def first() -> None:
        async with queue.turn():
            holds.set()
            await until(waits.is_set)
            await until(lambda: queue._waiting)
            order.append("first")

    async def second() -> None:
        waits.set()
        async with queue.turn():
            order.append("second")

    one = threading.Thread(target=anyio.run, args=(first,), kwargs={"backend": backends[0]})
    one.start()
    assert holds.wait(GUARD)
    other = threading.Thread(target=anyio.run, args=(second,), kwargs={"backend": backends[1]})
    other.start()
    for thread in (one, other):
        thread.join(GUARD)
        assert not thread.is_alive()
    assert order == ["first", "second"]


def test_a_turn_whose_event_loop_is_gone_holds_up_nobody() -> None:
    queue = TurnQueue("s")

    async def leave_one_waiting() -> None:
        with anyio.move_on_after(0.01):
            async with queue.turn():
                raise AssertionError("it cannot get in")

    async def hold() -> None:
        async with queue.turn():
            thread = threading.Thread(target=anyio.run, args=(leave_one_waiting,))
            thread.start()
            await until(lambda: not thread.is_alive())
            thread.join()
        with anyio.fail_after(GUARD):
            async with queue.turn():
                assert queue.busy

    anyio.run(hold)


async def test_a_task_with_a_context_of_its_own_waits_for_the_turn_that_started_it() -> None:
    """X-39."""
    queue, order = TurnQueue("s"), []

    async def follow_up() -> None:
        async with queue.turn():
            order.append("follow-up")

    with anyio.fail_after(GUARD):
        async with anyio.create_task_group() as tasks, queue.turn():
            contextvars.Context().run(tasks.start_soon, follow_up)
            await yield_often()
            order.append("first")
    assert order == ["first", "follow-up"]
