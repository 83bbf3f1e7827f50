"""Spans of turns, plans and hooks, which code around runs opens."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from typing import Any

import anyio
import pytest
from opentelemetry import trace

from graphrt import END, START, HookEvent, HookExecutor, RunCancelledError, Workflow
from graphrt.hooks import HookContext, HookResult
from graphrt.telemetry import Telemetry
from graphrt.telemetry import conventions as names
from tests.engine.helpers import yield_often
from tests.telemetry.collecting import Collected, attributes, exceptions, logged, status, went_well

pytestmark = pytest.mark.anyio


def flow() -> Workflow:
    workflow = Workflow("flow")

    @workflow.node
    async def one(x: int) -> int:
        await yield_often(1)
        return x

    workflow.chain(START, one, END)
    return workflow


async def test_turn_holds_its_hooks_and_its_run() -> None:
    collected = Collected()
    telemetry = collected.telemetry
    hooks = HookExecutor(span=telemetry.hook)

    async def slow(context: HookContext) -> None:
        await yield_often(1)

    hooks.register(HookEvent.ON_TURN_START, slow, name="first")
    hooks.register(HookEvent.ON_TURN_START, lambda context: None, name="second")
    with telemetry.turn("helper", session_id="s-1", turn_index=3, agent_id="a-1", user_input="hi") as turn:
        context = HookContext(HookEvent.ON_TURN_START, session_id="s-1", run_id="r-1", turn_index=3)
        await hooks.execute(HookEvent.ON_TURN_START, context)
        await flow().run(1, telemetry=telemetry)
        turn.set(names.OUTPUT_TOKENS, 21)
        turn.set(names.INPUT_TOKENS, None)
        turn.set(names.OUTPUT, "what was answered")
    collected.check_whole()
    span = collected.one("invoke_agent helper")
    assert collected.children(span) == ["hook first", "hook second", "invoke_workflow flow"]
    assert attributes(span) == {
        "graphrt.kind": "turn",
        "graphrt.session.id": "s-1",
        "graphrt.agent.id": "a-1",
        "graphrt.turn.index": 3,
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": "helper",
        "gen_ai.conversation.id": "s-1",
        "gen_ai.usage.output_tokens": 21,
    }
    assert attributes(collected.one("hook first")) == {
        "graphrt.kind": "hook",
        "graphrt.hook.event": "on_turn_start",
        "graphrt.session.id": "s-1",
        "graphrt.run.id": "r-1",
        "graphrt.turn.index": 3,
    }
    assert not trace.get_current_span().get_span_context().is_valid


async def test_content_of_a_turn_is_recorded_when_it_is_wanted() -> None:
    collected = Collected(capture_content=True)
    with collected.telemetry.turn("helper", user_input="hi") as turn:
        turn.set(names.OUTPUT, "hello")
    span = attributes(collected.one("invoke_agent helper"))
    assert (span["graphrt.input"], span["graphrt.output"]) == ("hi", "hello")


async def test_every_call_of_a_hook_is_a_span_that_says_how_it_ended() -> None:
    collected = Collected()
    hooks = HookExecutor(span=collected.telemetry.hook)

    def fails(context: HookContext) -> None:
        raise ValueError("broken hook")

    def blocks(context: HookContext) -> HookResult:
        return HookResult.block("not today")

    hooks.register(HookEvent.PRE_REQUEST, fails, name="fails")
    hooks.register(HookEvent.PRE_REQUEST, blocks, name="blocks")
    hooks.register(HookEvent.ON_ERROR, fails, name="critical", critical=True)
    logging.getLogger("graphrt.hooks").disabled = True
    try:
        result = await hooks.execute(HookEvent.PRE_REQUEST, HookContext(HookEvent.PRE_REQUEST))
    finally:
        logging.getLogger("graphrt.hooks").disabled = False
    assert result.blocked
    with pytest.raises(ValueError, match="broken hook"):
        await hooks.execute(HookEvent.ON_ERROR, HookContext(HookEvent.ON_ERROR))
    for name in ("hook fails", "hook critical"):
        assert status(collected.one(name)) == ("ERROR", "broken hook")
        assert exceptions(collected.one(name)) == ["broken hook"]
    assert went_well(collected.one("hook blocks"))


async def test_hook_without_a_context_names_its_event_and_plugin() -> None:
    collected = Collected()
    with collected.telemetry.hook("compact", event="before_inference", plugin_id="compaction"):
        pass
    assert attributes(collected.one("hook compact")) == {
        "graphrt.kind": "hook",
        "graphrt.hook.event": "before_inference",
        "graphrt.plugin.id": "compaction",
    }


async def test_plan_holds_its_steps_and_says_which_failed() -> None:
    collected = Collected()
    telemetry = collected.telemetry
    with telemetry.plan("report", plan_id="p-1", goal="a report"):
        with telemetry.plan_step("gather", index=0) as step, telemetry.turn("helper"):
            step.set(names.PLAN_STEP_STATE, "completed")
        with telemetry.plan_step("write", index=1) as step:
            step.set(names.PLAN_STEP_STATE, "failed")
            step.failed(ValueError("no words"))
    collected.check_whole()
    plan = collected.one("plan report")
    assert attributes(plan) == {"graphrt.kind": "plan", "graphrt.plan.id": "p-1"}
    assert collected.children(plan) == ["plan_step gather", "plan_step write"]
    assert attributes(collected.one("plan_step write")) == {
        "graphrt.kind": "plan_step",
        "graphrt.plan.step.index": 1,
        "graphrt.plan.step.state": "failed",
        "error.type": "ValueError",
    }
    assert collected.children(collected.one("plan_step gather")) == ["invoke_agent helper"]


async def test_span_says_what_left_its_block() -> None:
    collected = Collected()
    turn = collected.telemetry.turn
    with pytest.raises(ValueError, match="no"), turn("failed"):
        raise ValueError("no")
    with pytest.raises(RunCancelledError), turn("stopped"):
        raise RunCancelledError("stopped by a person")
    with anyio.move_on_after(0), turn("cancelled"):
        await anyio.sleep_forever()
    assert status(collected.one("invoke_agent failed")) == ("ERROR", "no")
    assert exceptions(collected.one("invoke_agent failed")) == ["no"]
    for name in ("invoke_agent stopped", "invoke_agent cancelled"):
        assert status(collected.one(name)) == ("ERROR", "cancelled")
        assert exceptions(collected.one(name)) == []


async def test_span_over_a_yield_may_be_left_from_anywhere() -> None:
    """B-105."""
    collected = Collected()

    async def turn() -> AsyncIterator[int]:
        with collected.telemetry.turn("helper"):
            for number in range(10):
                yield number

    reading = turn()

    async def begins() -> None:
        await anext(reading)

    async def ends() -> None:
        close: Any = reading
        await close.aclose()

    with logged() as texts:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(begins)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ends)
    assert texts == []
    assert len(collected.named("invoke_agent helper")) == 1
    assert not trace.get_current_span().get_span_context().is_valid


async def test_nothing_is_opened_without_a_provider() -> None:
    telemetry = Telemetry()
    with telemetry.turn("helper", session_id="s-1") as turn:
        turn.set(names.OUTPUT_TOKENS, 1)
        with telemetry.hook("hook", HookContext(HookEvent.ON_TURN_START)) as failed:
            failed(ValueError("passed over"))
        assert not trace.get_current_span().get_span_context().is_valid
