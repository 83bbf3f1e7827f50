"""Spans of turns: one for each, with its hooks and its run inside."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import anyio
import pytest

from graphrt import HookEvent, HookExecutor, LlmError
from graphrt.agent import AgentRuntime, AgentSession, Session, SimpleAgent
from graphrt.errors import AgentLlmError, LimitExceededError, LlmErrorKind
from graphrt.hooks import HookContext
from graphrt.llm import ScriptedProvider
from graphrt.messages import LLMResponse, TokenUsage
from tests.agent.helpers import add, asks, bundle_of, call, session_of
from tests.telemetry.collecting import Collected, attributes, exceptions, status

pytestmark = pytest.mark.anyio


def kinds(collected: Collected) -> dict[str, int]:
    found: dict[str, int] = {}
    for span in collected.spans:
        kind = str(attributes(span)["graphrt.kind"])
        found[kind] = found.get(kind, 0) + 1
    return found


def trace_ids(collected: Collected) -> set[int]:
    return {span.context.trace_id for span in collected.spans if span.context is not None}


def counted(hooks: HookExecutor, events: Iterable[HookEvent]) -> list[HookContext]:
    calls: list[HookContext] = []
    for event in events:
        hooks.register(event, calls.append, name="counted")
    return calls


async def test_a_turn_is_one_span_with_everything_inside() -> None:
    """AC-C11."""
    collected, hooks = Collected(), HookExecutor()
    calls = counted(hooks, [HookEvent.ON_TURN_START, HookEvent.PRE_REQUEST])
    session, _ = session_of(
        [asks(call("1", a=1, b=2)), "three"], add, hooks=hooks, options={"telemetry": collected.telemetry}
    )
    await session.submit_turn("add")
    collected.check_whole()
    found = kinds(collected)
    assert (found["turn"], found["run"], found["round"], found["inference"], found["tool"]) == (1, 1, 2, 2, 1)
    assert found["hook"] == len(calls) == 3
    assert len(trace_ids(collected)) == 1
    (turn,) = collected.of_kind("turn")
    (run,) = collected.of_kind("run")
    assert collected.parent(run) is turn
    assert turn.name == "invoke_agent helper"
    assert {attributes(each)["graphrt.hook.event"] for each in collected.of_kind("hook")} == {
        "on_turn_start",
        "pre_request",
    }


async def test_the_span_of_a_turn_says_whose_it_is_and_what_it_used() -> None:
    collected = Collected()
    replies = [LLMResponse("one", usage=TokenUsage(5, 2)), "two"]
    session, _ = session_of(replies, options={"telemetry": collected.telemetry})
    await session.submit_turn("secret")
    await session.submit_turn("b")
    first, second = (attributes(each) for each in collected.of_kind("turn"))
    assert first["graphrt.session.id"] == "s-1"
    assert (first["graphrt.turn.index"], second["graphrt.turn.index"]) == (0, 1)
    assert (first["gen_ai.usage.input_tokens"], first["gen_ai.usage.output_tokens"]) == (5, 2)
    assert "gen_ai.usage.input_tokens" not in second
    assert "secret" not in str(first)


async def test_what_was_said_is_recorded_when_asked_for() -> None:
    collected = Collected(capture_content=True)
    session, _ = session_of(["hello"], options={"telemetry": collected.telemetry})
    await session.submit_turn("secret")
    (turn,) = collected.of_kind("turn")
    assert {"secret", "hello"} <= set(map(str, attributes(turn).values()))


async def test_the_span_of_a_failed_turn_says_so() -> None:
    collected, hooks = Collected(), HookExecutor()
    calls = counted(hooks, [HookEvent.ON_ERROR])
    provider = ScriptedProvider([LlmError("no key", LlmErrorKind.UNAUTHORIZED)])
    session = AgentSession("s", SimpleAgent("a"), bundle_of(provider, hooks=hooks), telemetry=collected.telemetry)
    with pytest.raises(AgentLlmError):
        await session.submit_turn("hi")
    collected.check_whole()
    (turn,) = collected.of_kind("turn")
    assert status(turn)[0] == "ERROR"
    assert "no key" in str(status(turn))
    assert attributes(turn)["error.type"] == "graphrt.errors.AgentLlmError"
    assert len(exceptions(turn)) == 1
    (hook,) = collected.of_kind("hook")
    assert collected.parent(hook) is turn
    assert len(calls) == 1


async def test_a_turn_that_is_not_admitted_has_no_span() -> None:
    collected = Collected()
    session, _ = session_of([], max_turns=0, options={"telemetry": collected.telemetry})
    with pytest.raises(LimitExceededError):
        await session.submit_turn("hi")
    assert collected.spans == []


async def test_a_hook_that_fails_marks_its_own_span_only() -> None:
    collected, hooks = Collected(), HookExecutor()

    def fail(ctx: Any) -> None:
        raise RuntimeError("oops")

    hooks.register(HookEvent.ON_TURN_END, fail, name="failing")
    session, _ = session_of(["one"], hooks=hooks, options={"telemetry": collected.telemetry})
    await session.submit_turn("a")
    assert status(collected.one("hook failing"))[0] == "ERROR"
    assert status(collected.one("invoke_agent helper"))[0] != "ERROR"


async def test_runtimes_export_to_their_own_provider_only() -> None:
    mine, others = Collected(), Collected()
    for collected in (mine, others):
        runtime = AgentRuntime.from_provider(ScriptedProvider(["one"]), tracer_provider=collected.provider)
        await runtime.process("hi", Session("s"))
    assert kinds(mine) == kinds(others)
    assert kinds(mine)["turn"] == 1
    assert not trace_ids(mine) & trace_ids(others)


async def test_a_runtime_takes_a_telemetry_as_well() -> None:
    collected = Collected(capture_content=True)
    runtime = AgentRuntime.from_provider(ScriptedProvider(["hello"]), tracer_provider=collected.telemetry)
    await runtime.process("secret", Session("s"))
    (turn,) = collected.of_kind("turn")
    assert "secret" in map(str, attributes(turn).values())


async def test_without_a_tracer_provider_a_turn_works() -> None:
    """AC-C17."""
    session, _ = session_of(["one"])
    assert (await session.submit_turn("a")).content == "one"


async def test_the_spans_of_a_watched_turn_hang_together() -> None:
    collected = Collected()
    session, _ = session_of(["one"], options={"telemetry": collected.telemetry})
    with collected.telemetry.plan("outer"):
        async with session.stream_turn("a") as turn:
            assert [event async for event in turn]
    collected.check_whole()
    (span,) = collected.of_kind("turn")
    parent = collected.parent(span)
    assert parent is not None
    assert parent.name == "plan outer"


@pytest.mark.parametrize("way", ["break", "return", "raise", "cancel"])
async def test_a_stream_that_is_left_early_leaves_whole_spans(way: str, caplog: pytest.LogCaptureFixture) -> None:
    """B-039, B-105."""
    collected = Collected()
    session, _ = session_of([asks(call("1", "slow")), "never"], slow, options={"telemetry": collected.telemetry})

    async def read() -> None:
        async with session.stream_turn("a") as turn:
            async for event in turn:
                if event.type != "tool.call.started":
                    continue
                if way == "raise":
                    raise KeyError(way)
                if way == "return":
                    return
                if way == "cancel":
                    scope.cancel()
                    await anyio.sleep_forever()
                break

    with collected.telemetry.plan("outer"), anyio.CancelScope() as scope, suppress(KeyError):
        await read()
    collected.check_whole()
    assert len(trace_ids(collected)) == 1
    (turn_span,) = collected.of_kind("turn")
    assert status(turn_span) == ("ERROR", "cancelled")
    assert (session.messages, caplog.records) == ([], [])


async def slow() -> str:
    """Take for ever."""
    await anyio.sleep_forever()
    return ""
