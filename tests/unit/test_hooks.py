from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC
from typing import Any

import anyio
import pytest

from graphrt.clock import Clock, SystemClock
from graphrt.errors import HookBlockedError
from graphrt.hooks import HookContext, HookEvent, HookExecutor, HookResult

BLOCKABLE = {HookEvent.ON_TURN_START, HookEvent.PRE_REQUEST}


def test_seven_events_exist_and_the_old_four_keep_their_values() -> None:
    assert [event.value for event in HookEvent] == [
        "pre_request",
        "post_request",
        "on_retry",
        "on_error",
        "on_turn_start",
        "on_turn_end",
        "on_plan_step_complete",
    ]


def test_context_of_an_old_event_needs_the_event_only() -> None:
    ctx = HookContext(HookEvent.PRE_REQUEST)
    assert (ctx.session_id, ctx.run_id, ctx.turn_index, ctx.plan_step_index) == (None, None, None, None)
    assert ctx.data == {}


@pytest.mark.anyio
async def test_hooks_run_one_after_another_in_order_of_registration() -> None:
    notes: list[str] = []
    hooks = HookExecutor()

    async def slow(ctx: HookContext) -> None:
        await anyio.lowlevel.checkpoint()
        notes.append(f"slow {ctx.event}")

    hooks.register(HookEvent.ON_TURN_END, slow)
    hooks.register(HookEvent.ON_TURN_END, lambda ctx: notes.append(f"quick {ctx.event}"), name="quick")
    hooks.register(HookEvent.ON_ERROR, lambda ctx: notes.append("other"))
    result = await hooks.execute(HookEvent.ON_TURN_END, HookContext(HookEvent.ON_TURN_END))
    assert notes == ["slow on_turn_end", "quick on_turn_end"]
    assert result == HookResult.ok()
    assert hooks.names(HookEvent.ON_TURN_END)[1] == "quick"


@pytest.mark.anyio
@pytest.mark.parametrize("event", HookEvent)
async def test_only_two_events_can_be_blocked(event: HookEvent, caplog: pytest.LogCaptureFixture) -> None:
    called: list[str] = []
    hooks = HookExecutor()
    hooks.register(event, lambda ctx: HookResult.block("no"), name="guard")
    hooks.register(event, lambda ctx: called.append("after"))
    result = await hooks.execute(event, HookContext(event))
    assert result.blocked is (event in BLOCKABLE)
    assert called == ([] if result.blocked else ["after"])
    assert ("tried to block" in caplog.text) is not result.blocked


@pytest.mark.anyio
async def test_block_names_hook_and_reason() -> None:
    hooks = HookExecutor()
    hooks.register(HookEvent.PRE_REQUEST, lambda ctx: HookResult.block("no"), name="guard")
    result = await hooks.execute(HookEvent.PRE_REQUEST, HookContext(HookEvent.PRE_REQUEST))
    with pytest.raises(HookBlockedError, match="'guard' on pre_request: no") as caught:
        result.raise_if_blocked(HookEvent.PRE_REQUEST)
    assert caught.value.reason == "no"
    HookResult.ok().raise_if_blocked(HookEvent.PRE_REQUEST)


@pytest.mark.anyio
async def test_hook_may_block_by_raising() -> None:
    error = HookBlockedError("no", cause=ValueError("odd"))

    async def guard(ctx: HookContext) -> None:
        raise error

    hooks = HookExecutor()
    hooks.register(HookEvent.ON_TURN_START, guard, critical=True)
    result = await hooks.execute(HookEvent.ON_TURN_START, HookContext(HookEvent.ON_TURN_START))
    assert (result.blocked, result.reason, result.cause) == (True, "no", error)


@pytest.mark.anyio
async def test_failing_hook_is_logged_and_passed_over(caplog: pytest.LogCaptureFixture) -> None:
    called: list[str] = []

    def broken(ctx: HookContext) -> None:
        raise ValueError("odd")

    hooks = HookExecutor()
    hooks.register(HookEvent.PRE_REQUEST, broken, name="broken")
    hooks.register(HookEvent.PRE_REQUEST, lambda ctx: called.append("after"))
    with caplog.at_level(logging.ERROR, "graphrt.hooks"):
        result = await hooks.execute(HookEvent.PRE_REQUEST, HookContext(HookEvent.PRE_REQUEST))
    assert not result.blocked
    assert called == ["after"]
    assert "'broken' failed on pre_request" in caplog.text
    assert "odd" in caplog.text


@pytest.mark.anyio
async def test_critical_hook_that_fails_ends_the_event() -> None:
    called: list[str] = []

    def broken(ctx: HookContext) -> None:
        raise ValueError("odd")

    hooks = HookExecutor()
    hooks.register(HookEvent.PRE_REQUEST, broken, critical=True)
    hooks.register(HookEvent.PRE_REQUEST, lambda ctx: called.append("after"))
    with pytest.raises(ValueError, match="odd"):
        await hooks.execute(HookEvent.PRE_REQUEST, HookContext(HookEvent.PRE_REQUEST))
    assert called == []


@pytest.mark.anyio
async def test_cancellation_goes_through_a_hook() -> None:
    async def hang(ctx: HookContext) -> None:
        scope.cancel()
        await anyio.sleep_forever()

    hooks = HookExecutor()
    hooks.register(HookEvent.PRE_REQUEST, hang)
    with anyio.CancelScope() as scope:
        await hooks.execute(HookEvent.PRE_REQUEST, HookContext(HookEvent.PRE_REQUEST))
    assert scope.cancelled_caught


@pytest.mark.anyio
async def test_hook_added_by_a_hook_takes_part_from_the_next_event_on() -> None:
    calls: list[str] = []
    hooks = HookExecutor()

    def first(ctx: HookContext) -> None:
        calls.append("first")
        hooks.register(HookEvent.ON_ERROR, lambda ctx: calls.append("late"))

    hooks.register(HookEvent.ON_ERROR, first)
    await hooks.execute(HookEvent.ON_ERROR, HookContext(HookEvent.ON_ERROR))
    assert calls == ["first"]
    await hooks.execute(HookEvent.ON_ERROR, HookContext(HookEvent.ON_ERROR))
    assert calls == ["first", "first", "late"]


@pytest.mark.anyio
@pytest.mark.parametrize("given_at", ["construction", "call"])
async def test_every_call_of_a_hook_has_its_span(given_at: str) -> None:
    spans: list[str] = []

    @contextmanager
    def span(name: str, ctx: HookContext) -> Iterator[Callable[[BaseException], object]]:
        spans.append(f"open {name}")
        yield lambda error: spans.append(f"failed {error}")
        spans.append(f"close {name}")

    def broken(ctx: HookContext) -> None:
        raise ValueError("odd")

    hooks = HookExecutor(span=span if given_at == "construction" else None)
    hooks.register(HookEvent.ON_ERROR, lambda ctx: None, name="a")
    hooks.register(HookEvent.ON_ERROR, broken, name="b")
    ctx = HookContext(HookEvent.ON_ERROR)
    await hooks.execute(HookEvent.ON_ERROR, ctx, span=span if given_at == "call" else None)
    assert spans == ["open a", "close a", "open b", "failed odd", "close b"]


@pytest.mark.parametrize(("event", "hook"), [("no_such", print), (HookEvent.ON_ERROR, "hook")])
def test_registration_that_makes_no_sense_is_refused(event: Any, hook: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        HookExecutor().register(event, hook)


def test_system_clock_tells_aware_time_in_utc() -> None:
    clock: Clock = SystemClock()
    assert clock.now().tzinfo is UTC
    assert clock.monotonic() <= clock.monotonic()
