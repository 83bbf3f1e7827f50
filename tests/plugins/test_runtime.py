from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, ClassVar

import anyio
import pytest

from graphrt.errors import ConfigError, LlmError, StateError
from graphrt.llm.executor import InferenceRequest
from graphrt.messages import LLMResponse, Message, ToolCall
from graphrt.plugins import MergeStrategy, Phase, PhaseContext, PluginRegistrar, StateCommand, StateKey
from graphrt.plugins import runtime as module
from graphrt.tools.base import ToolResult
from tests.plugins.runs import FakeRun, Made, pause, request_of, runtime_of

pytestmark = pytest.mark.anyio

LOG = StateKey("log", list, MergeStrategy.COMMUTATIVE)
CALL = ToolCall("c1", "look")


def noting(id: str, notes: list[str], **failing: BaseException) -> Made:
    """Make a plugin that notes its activation, `RUN_START`, `RUN_END` and deactivation, and fails at some of them."""

    def note(what: str) -> Callable[..., None]:
        def call(*told: Any) -> None:
            notes.append(f"{what} {id}")
            if what in failing:
                raise failing[what]

        return call

    def register(registrar: PluginRegistrar) -> None:
        registrar.phase_hook(Phase.RUN_START, note("start"))
        registrar.phase_hook(Phase.RUN_END, note("end"))

    return Made(id, register, activate=note("on"), deactivate=note("off"))


# --- life


async def test_plugins_are_activated_in_order_and_deactivated_in_reverse() -> None:
    """W-038"""
    notes: list[str] = []
    runtime = runtime_of(noting("a", notes), noting("b", notes))
    async with runtime.opened(FakeRun()) as entered:
        assert entered is runtime
        assert notes == ["on a", "on b", "start a", "start b"]
        notes.clear()
    assert notes == ["end a", "end b", "off b", "off a"]


@pytest.mark.parametrize("error", [None, LlmError("down")], ids=["success", "provider error"])
async def test_each_ending_of_a_run_deactivates_once(error: Exception | None) -> None:
    """AC-W21"""
    notes: list[str] = []
    raised: list[Exception] = []
    try:
        async with runtime_of(noting("a", notes)).opened(FakeRun()):
            if error is not None:
                raise error
    except LlmError as caught:
        raised.append(caught)
    assert notes == ["on a", "start a", "end a", "off a"]
    assert raised == ([] if error is None else [error])


async def test_entering_that_fails_half_way_deactivates_what_was_activated() -> None:
    notes: list[str] = []
    plugins = [noting("a", notes), noting("b", notes, on=ValueError("no licence")), noting("c", notes)]
    with pytest.raises(ValueError, match="no licence"):
        async with runtime_of(*plugins).opened(FakeRun()):
            raise AssertionError("it was not entered")
    assert notes == ["on a", "on b", "off a"]


async def test_run_start_that_fails_deactivates_all_and_runs_no_run_end() -> None:
    notes: list[str] = []
    plugins = [noting("a", notes, start=ValueError("not today")), noting("b", notes)]
    with pytest.raises(ValueError, match="not today"):
        async with runtime_of(*plugins).opened(FakeRun()):
            raise AssertionError("it was not entered")
    assert notes == ["on a", "on b", "start a", "off b", "off a"]


async def test_plugin_whose_first_command_is_refused_is_deactivated() -> None:
    notes: list[str] = []

    def activate(spec: Any, cmd: StateCommand) -> None:
        cmd.update("nothing", 1)

    plugin = Made("a", activate=activate, deactivate=lambda cmd: notes.append("off"))
    with pytest.raises(StateError, match="plugin 'a' writes state key 'nothing'"):
        async with runtime_of(plugin).opened(FakeRun()):
            raise AssertionError("it was not entered")
    assert notes == ["off"]


async def test_cancelled_while_entering_deactivates_what_was_activated() -> None:
    notes: list[str] = []

    async def wait(spec: Any, cmd: StateCommand) -> None:
        notes.append("waiting")
        await anyio.sleep_forever()

    async def off(cmd: StateCommand) -> None:
        await pause(2)
        notes.append("off a")

    async def enter() -> None:
        async with runtime_of(Made("a", deactivate=off), Made("b", activate=wait)).opened(FakeRun()):
            raise AssertionError("it was not entered")

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(enter)
        while not notes:
            await pause(1)
        tasks.cancel_scope.cancel()
    assert notes == ["waiting", "off a"]


async def test_cancelled_run_is_cleaned_up_all_the_same() -> None:
    notes: list[str] = []

    async def last(ctx: PhaseContext) -> None:
        await pause(2)
        notes.append("end")

    async def off(cmd: StateCommand) -> None:
        await pause(2)
        notes.append("off")

    plugin = Made("a", lambda registrar: registrar.phase_hook(Phase.RUN_END, last), deactivate=off)
    with anyio.CancelScope() as scope:
        async with runtime_of(plugin).opened(FakeRun()):
            scope.cancel()
            await anyio.sleep_forever()
    assert notes == ["end", "off"]


async def test_errors_on_the_way_out_are_logged_and_hide_nothing(caplog: pytest.LogCaptureFixture) -> None:
    notes: list[str] = []
    plugins = [noting("a", notes, off=ValueError("stuck")), noting("b", notes, off=OSError(), end=KeyError("k"))]
    with pytest.raises(LlmError, match="down"):
        async with runtime_of(*plugins).opened(FakeRun()):
            raise LlmError("down")
    assert notes[-3:] == ["end b", "off b", "off a"]
    assert [record.levelno for record in caplog.records] == [logging.ERROR] * 3
    assert "plugin 'a' failed at the end of a run" in caplog.text


async def test_plugin_that_does_not_end_is_cut_off(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "CLOSE_SECONDS", 0.01)
    notes: list[str] = []

    async def hang(cmd: StateCommand) -> None:
        await anyio.sleep_forever()

    with anyio.fail_after(5):
        async with runtime_of(noting("a", notes), Made("b", deactivate=hang)).opened(FakeRun()):
            pass
    assert notes[-1] == "off a"
    assert "plugin 'b' did not end within 0.01 s" in caplog.text


async def test_run_end_is_run_once() -> None:
    notes: list[str] = []
    runtime = runtime_of(noting("a", notes))
    async with runtime.opened(FakeRun()):
        await runtime.finish()
        await runtime.finish()
    assert notes.count("end a") == 1


async def test_error_at_run_end_ends_the_run_when_it_is_asked_for_within_it() -> None:
    notes: list[str] = []
    runtime = runtime_of(noting("a", notes, end=ValueError("late")))
    with pytest.raises(ValueError, match="late"):
        async with runtime.opened(FakeRun()):
            await runtime.finish()
    assert notes == ["on a", "start a", "end a", "off a"]


async def test_one_runtime_serves_one_run() -> None:
    runtime = runtime_of()
    with pytest.raises(StateError, match="before the run has begun"):
        await runtime.end_round()
    async with runtime.opened(FakeRun()):
        pass
    with pytest.raises(StateError, match="activated again"):
        async with runtime.opened(FakeRun()):
            raise AssertionError("it was not entered")


# --- state


async def test_activation_may_write_schedule_and_emit() -> None:
    notes: list[Any] = []

    def register(registrar: PluginRegistrar) -> None:
        registrar.state_key(LOG)
        registrar.effect("tell", lambda ctx, payload: notes.append((payload, ctx.phase.value, ctx.state["log"])))
        registrar.scheduled_action("act", Phase.RUN_START, lambda ctx, payload: StateCommand().update(LOG, [payload]))

    def activate(spec: Any, cmd: StateCommand) -> None:
        cmd.update(LOG, [spec]).emit("tell", "on").schedule("act", "acted")

    def deactivate(cmd: StateCommand) -> None:
        cmd.update(LOG, ["off"]).emit("tell", "off")

    runtime = runtime_of(Made("a", register, activate=activate, deactivate=deactivate), spec="the spec")
    async with runtime.opened(FakeRun()):
        assert runtime.state["log"] == ["the spec", "acted"]
    assert runtime.state["log"] == ["the spec", "acted", "off"]
    assert notes == [("on", "run_start", ["the spec"]), ("off", "run_end", ["the spec", "acted", "off"])]


async def test_session_carries_kept_keys_from_turn_to_turn() -> None:
    def register(registrar: PluginRegistrar) -> None:
        registrar.state_key(StateKey("turns", 0, keep=True))
        registrar.state_key(StateKey("scratch", 0))
        registrar.phase_hook(
            Phase.RUN_START,
            lambda ctx: StateCommand().update("turns", ctx.state["turns"] + 1).update("scratch", 1),
        )

    kept: dict[str, Any] = {"of another agent": [1], "runtime.failed_actions": ["old"]}
    for _ in range(3):
        runtime = runtime_of(Made("a", register), state=kept)
        assert runtime.kept_state() == kept
        async with runtime.opened(FakeRun()):
            assert runtime.state["runtime.failed_actions"] == []
        kept = runtime.kept_state()
    assert kept == {"turns": 3, "of another agent": [1]}


async def test_two_runs_of_one_environment_have_their_own_state() -> None:
    def register(registrar: PluginRegistrar) -> None:
        registrar.state_key(LOG)
        registrar.phase_hook(Phase.STEP_END, lambda ctx: StateCommand().update(LOG, ["x"]))

    plugin = Made("a", register)
    one, other = runtime_of(plugin), runtime_of(plugin)
    async with one.opened(FakeRun()), other.opened(FakeRun()):
        await one.end_round()
        assert (one.state["log"], other.state["log"]) == (["x"], [])


# --- what hooks are told


async def test_hooks_are_told_what_belongs_to_their_phase() -> None:
    told: dict[Phase, PhaseContext] = {}

    def note(ctx: PhaseContext) -> None:
        told[ctx.phase] = ctx

    def register(registrar: PluginRegistrar) -> None:
        for phase in Phase:
            registrar.phase_hook(phase, note)

    run = FakeRun()
    response = LLMResponse("", [CALL])
    runtime = runtime_of(Made("a", register), agent_id="boss", session_id="s", turn_index=2)
    async with runtime.opened(run):
        request = request_of("hi")
        await runtime.prepare(request, round=1)
        await runtime.answered(response)
        await runtime.gate(CALL)
        await runtime.before_tool(CALL)
        await runtime.after_tool(CALL, ToolResult.success("sky"))
        await runtime.end_round()
    assert list(told) == list(Phase)
    assert {(ctx.run_id, ctx.agent_id, ctx.session_id, ctx.turn_index) for ctx in told.values()} == {
        ("run-1", "boss", "s", 2)
    }
    assert {ctx.run for ctx in told.values()} == {run}
    assert [ctx.round for ctx in told.values()] == [None, *[1] * 8]
    asked, answered = list(request.messages), [*request.messages, response.to_message()]
    assert [list(ctx.messages) for ctx in told.values()] == [[], asked, asked, *[answered] * 6]
    assert [ctx.response for ctx in told.values()] == [None] * 3 + [response] * 6
    assert [ctx.tool_call for ctx in told.values()] == [None] * 4 + [CALL] * 3 + [None] * 2
    after = told[Phase.AFTER_TOOL_EXECUTE].tool_result
    assert after is not None
    assert after.data == "sky"


async def test_sides_of_a_round_are_run_once_in_it() -> None:
    notes: list[str] = []

    def register(registrar: PluginRegistrar) -> None:
        for phase in (Phase.STEP_START, Phase.BEFORE_INFERENCE, Phase.STEP_END):
            registrar.phase_hook(phase, lambda ctx: notes.append(f"{ctx.phase.value} {ctx.round}"))

    runtime = runtime_of(Made("a", register))
    async with runtime.opened(FakeRun()):
        for number in (1, 2):
            for _ in range(3):
                await runtime.prepare(request_of(), round=number)
            await runtime.end_round()
            await runtime.end_round()
    assert notes == [
        f"{phase} {number}" for number in (1, 2) for phase in ("step_start", "before_inference", "step_end")
    ]


async def test_retry_after_a_hook_failed_does_not_start_the_round_again() -> None:
    notes: list[str] = []

    def fail_once(ctx: PhaseContext) -> None:
        notes.append("before")
        if notes.count("before") == 1:
            raise LlmError("try again")

    def register(registrar: PluginRegistrar) -> None:
        registrar.phase_hook(Phase.STEP_START, lambda ctx: notes.append("start"))
        registrar.phase_hook(Phase.BEFORE_INFERENCE, fail_once)

    runtime = runtime_of(Made("a", register))
    async with runtime.opened(FakeRun()):
        with pytest.raises(LlmError):
            await runtime.prepare(request_of(), round=1)
        await runtime.prepare(request_of(), round=1)
    assert notes == ["start", "before", "before"]


async def test_hook_cannot_edit_the_request() -> None:
    def edit(ctx: PhaseContext) -> None:
        assert ctx.request is not None
        ctx.request.params["temperature"] = 2
        assert isinstance(ctx.request.messages, tuple)

    runtime = runtime_of(Made("a", lambda registrar: registrar.phase_hook(Phase.BEFORE_INFERENCE, edit)))
    async with runtime.opened(FakeRun()):
        prepared = await runtime.prepare(request_of(temperature=0), round=1)
    assert prepared == request_of(temperature=0)


# --- transforms


def appending(text: str) -> Callable[[PluginRegistrar], object]:
    """Give a registration that appends to the system message, and spoils the lists it is given."""

    async def transform(request: InferenceRequest) -> InferenceRequest:
        await pause(1)
        messages = request.messages
        assert isinstance(messages, list)
        messages[0] = Message.system(messages[0].content + text)
        request.params["seen"] = [*request.params.get("seen", []), text]
        return request

    return lambda registrar: registrar.request_transform(transform)


async def test_each_transform_sees_what_the_one_before_gave_and_the_conversation_keeps_none_of_it() -> None:
    """AC-W19"""
    runtime = runtime_of(Made("a", appending("A")), Made("b", appending("B")))
    request = request_of("hi")
    async with runtime.opened(FakeRun()):
        prepared = await runtime.prepare(request, round=1)
    assert [each.content for each in prepared.messages] == ["be briefAB", "hi"]
    assert prepared.params == {"seen": ["A", "B"]}
    assert request == request_of("hi")


async def test_retry_and_fallback_get_the_same_request_with_their_own_model() -> None:
    calls: list[str | None] = []

    def transform(request: InferenceRequest) -> InferenceRequest:
        calls.append(request.model)
        return request.replace(params={"n": len(calls)})

    runtime = runtime_of(Made("a", lambda registrar: registrar.request_transform(transform)))
    async with runtime.opened(FakeRun()):
        first = await runtime.prepare(request_of(model="m"), round=1)
        first.params["max_tokens"] = 3  # what a budget does to the request that it sends
        retry = await runtime.prepare(request_of(model="m"), round=1)
        fallback = await runtime.prepare(request_of(model="other"), round=1)
        later = await runtime.prepare(request_of(model="m"), round=2)
    assert (retry.model, retry.params) == ("m", {"n": 1})
    assert (fallback.model, fallback.params) == ("other", {"n": 1})
    assert later.params == {"n": 2}
    assert calls == ["m", "m"]


async def test_other_question_in_the_same_round_goes_through_the_transforms_again() -> None:
    runtime = runtime_of(Made("a", appending("A")))
    async with runtime.opened(FakeRun()):
        await runtime.prepare(request_of("hi", tools=("t",)), round=1)
        prepared = await runtime.prepare(request_of("hi", "once more"), round=1)
    assert [each.content for each in prepared.messages] == ["be briefA", "hi", "once more"]
    assert prepared.tools == []


async def test_model_that_a_transform_chose_stays_on_a_retry() -> None:
    runtime = runtime_of(
        Made("a", lambda registrar: registrar.request_transform(lambda request: request.replace(model="chosen")))
    )
    async with runtime.opened(FakeRun()):
        models = [(await runtime.prepare(request_of(model=each), round=1)).model for each in ("m", "m", "other")]
    assert models == ["chosen", "chosen", "other"]


async def test_transform_may_take_the_context() -> None:
    seen: list[Any] = []

    def with_context(request: InferenceRequest, ctx: PhaseContext) -> InferenceRequest:
        seen.append((ctx.round, ctx.state["log"], ctx.request is request))
        return request

    def with_default(request: InferenceRequest, suffix: str = "!") -> InferenceRequest:
        seen.append(suffix)
        return request

    def register(registrar: PluginRegistrar) -> None:
        registrar.state_key(LOG)
        registrar.phase_hook(Phase.BEFORE_INFERENCE, lambda ctx: StateCommand().update(LOG, ["x"]))
        registrar.request_transform(with_context)
        registrar.request_transform(with_default)

    runtime = runtime_of(Made("a", register))
    async with runtime.opened(FakeRun()):
        await runtime.prepare(request_of(), round=7)
    assert seen == [(7, ["x"], True), "!"]


async def test_transform_that_gives_no_request_is_named() -> None:
    runtime = runtime_of(Made("a", lambda registrar: registrar.request_transform(lambda request: None)))
    async with runtime.opened(FakeRun()):
        with pytest.raises(ConfigError, match="of plugin 'a' gave NoneType"):
            await runtime.prepare(request_of(), round=1)


async def test_tools_that_a_transform_takes_away_are_not_offered() -> None:
    runtime = runtime_of(
        Made(
            "a", lambda registrar: registrar.request_transform(lambda request: request.replace(tools=request.tools[:1]))
        )
    )
    async with runtime.opened(FakeRun()):
        assert (runtime.offers("b"), runtime.offered) == (True, ())
        await runtime.prepare(request_of(tools=("a", "b")), round=1)
        assert (runtime.offers("a"), runtime.offers("b"), runtime.offered) == (True, False, ("a",))


# --- nothing to do


async def test_phases_without_plugins_cost_nothing() -> None:
    runtime = runtime_of(Made("a"))
    async with runtime.opened(FakeRun()):
        request = request_of(tools=("a",))
        assert await runtime.prepare(request, round=1) is request
        assert await runtime.prepare(request, round=1) is request
        assert await runtime.gate(CALL) is None
        assert runtime.offered == ("a",)
        assert not runtime.has_gates
        assert not runtime.needs_tool_phases
        assert not any(runtime.needs(phase) for phase in Phase)
        with anyio.CancelScope() as scope:
            scope.cancel()
            for call in (runtime.before_tool(CALL), runtime.answered(LLMResponse()), runtime.end_round()):
                await call  # reaches no point where it could be cancelled
        assert not scope.cancelled_caught


async def test_built_in_hooks_ignore_the_filter_and_make_no_spans() -> None:
    class BuiltIn(Made):
        always_active: ClassVar[bool] = True

    notes: list[str] = []
    run = FakeRun()
    plugin = BuiltIn("own", lambda registrar: registrar.phase_hook(Phase.STEP_END, lambda ctx: notes.append("called")))
    runtime = runtime_of(plugin, active={"another"})
    async with runtime.opened(run):
        await runtime.end_round()
    assert (notes, run.spans) == (["called"], [])
