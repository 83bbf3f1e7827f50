from __future__ import annotations

from typing import Any

import pytest

from graphrt.errors import HookBlockedError
from graphrt.hooks import HookContext, HookEvent, HookExecutor, HookResult
from graphrt.messages import LLMResponse
from graphrt.plugins import HookBridgePlugin, Phase, PluginRegistrar
from tests.plugins.runs import FakeRun, Made, request_of, runtime_of

pytestmark = pytest.mark.anyio


def noting(notes: list[str]) -> Made:
    def register(registrar: PluginRegistrar) -> None:
        for phase in (Phase.STEP_START, Phase.BEFORE_INFERENCE, Phase.AFTER_INFERENCE):
            registrar.phase_hook(phase, lambda ctx: notes.append(ctx.phase.value))

    return Made("noting", register)


@pytest.mark.parametrize("bridge_first", [True, False])
async def test_hooks_of_the_application_come_before_those_of_plugins(bridge_first: bool) -> None:
    """D-06"""
    notes: list[str] = []
    hooks = HookExecutor()
    for event in (HookEvent.PRE_REQUEST, HookEvent.POST_REQUEST):
        hooks.register(event, lambda ctx: notes.append(ctx.event.value))
    plugins = [HookBridgePlugin(hooks), noting(notes)] if bridge_first else [noting(notes), HookBridgePlugin(hooks)]
    runtime = runtime_of(*plugins, active={"noting"})
    async with runtime.opened(FakeRun()):
        await runtime.prepare(request_of(), round=1)
        await runtime.prepare(request_of(), round=1)
        await runtime.answered(LLMResponse("hi"))
    assert notes == ["step_start", "pre_request", "before_inference", "post_request", "after_inference"]


async def test_hooks_are_told_of_the_request_and_the_reply() -> None:
    told: list[HookContext] = []
    hooks = HookExecutor()
    for event in (HookEvent.PRE_REQUEST, HookEvent.POST_REQUEST):
        hooks.register(event, told.append)
    response = LLMResponse("hi")
    runtime = runtime_of(HookBridgePlugin(hooks), session_id="s", turn_index=3)
    async with runtime.opened(FakeRun()):
        request = await runtime.prepare(request_of("hi", model="m"), round=1)
        await runtime.answered(response)
    assert [(ctx.session_id, ctx.run_id, ctx.turn_index) for ctx in told] == [("s", "run-1", 3)] * 2
    before, after = (dict(ctx.data) for ctx in told)
    assert before.keys() == {"request", "model", "messages"}
    assert (before["model"], before["messages"]) == ("m", list(request.messages))
    assert after.keys() == {"request", "model", "messages", "response"}
    assert after["response"] is response


async def test_block_on_a_request_ends_the_run_before_other_hooks() -> None:
    """AC-A29"""
    notes: list[str] = []
    hooks = HookExecutor()
    hooks.register(HookEvent.PRE_REQUEST, lambda ctx: HookResult.block("no"), name="guard")
    runtime = runtime_of(noting(notes), HookBridgePlugin(hooks))
    async with runtime.opened(FakeRun()):
        with pytest.raises(HookBlockedError, match="hook 'guard' on pre_request: no"):
            await runtime.prepare(request_of(), round=1)
    assert notes == ["step_start"]


async def test_block_after_the_request_is_ignored(caplog: pytest.LogCaptureFixture) -> None:
    """D-37"""
    hooks = HookExecutor()
    hooks.register(HookEvent.POST_REQUEST, lambda ctx: HookResult.block("too late"))
    runtime = runtime_of(HookBridgePlugin(hooks))
    async with runtime.opened(FakeRun()):
        await runtime.prepare(request_of(), round=1)
        await runtime.answered(LLMResponse("hi"))
    assert "tried to block post_request" in caplog.text


@pytest.mark.parametrize("traced", [True, False])
async def test_each_call_has_one_span_of_the_run_or_where_it_has_none_of_the_executor(traced: bool) -> None:
    run, own = FakeRun(), FakeRun()
    run.traced = traced

    def span(name: str, ctx: HookContext) -> Any:
        return own.hook_span(name, context=ctx)

    hooks = HookExecutor(span=span)
    hooks.register(HookEvent.PRE_REQUEST, lambda ctx: None, name="look")
    runtime = runtime_of(HookBridgePlugin(hooks))
    async with runtime.opened(run):
        await runtime.prepare(request_of(), round=1)
    spans = [("look", "pre_request", None)]
    assert (run.spans, own.spans) == ((spans, []) if traced else ([], spans))
