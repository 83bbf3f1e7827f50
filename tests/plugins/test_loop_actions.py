from __future__ import annotations

from typing import Any

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphrt.errors import StateError
from graphrt.llm.executor import InferenceRequest
from graphrt.messages import Message, Role, ToolCall
from graphrt.plugins import LoopActionHandlersPlugin, Phase, PhaseRuntime, StateCommand
from tests.plugins.runs import FakeRun, Made, request_of, runtime_of

pytestmark = pytest.mark.anyio

ADD = "loop.add_context_message"
OVERRIDE = "loop.set_inference_override"
EXCLUDE = "loop.exclude_tool"
ONLY = "loop.include_only_tools"
TOOLS = ("a", "b", "c", "d")


async def prepare_twice(
    actions: list[tuple[str, Any]], request: InferenceRequest, *, phase: Phase = Phase.BEFORE_INFERENCE
) -> tuple[InferenceRequest, InferenceRequest, PhaseRuntime]:
    """Prepare a request in a round in which *actions* are scheduled, and again in the next."""

    def ask(ctx: Any) -> StateCommand | None:
        command = StateCommand()
        for key, payload in actions if ctx.round == 1 else ():
            command.schedule(key, payload)
        return command

    plugin = Made("asks", lambda registrar: registrar.phase_hook(phase, ask))
    runtime = runtime_of(plugin, LoopActionHandlersPlugin())
    async with runtime.opened(FakeRun()):
        first = await runtime.prepare(request, round=1)
        return first, await runtime.prepare(request, round=2), runtime


async def test_context_messages_join_the_system_prefix_or_the_end_for_one_inference() -> None:
    """X-07"""
    request = request_of("one", "two")
    added = [Message.user("three"), Message.system("now"), Message.assistant("four"), Message.system("here")]
    first, second, _ = await prepare_twice([(ADD, each) for each in added], request)
    assert [each.content for each in first.messages] == ["be brief", "now", "here", "one", "two", "three", "four"]
    assert second is request


async def test_context_message_for_the_system_comes_first_where_there_is_no_system_prompt() -> None:
    request = InferenceRequest("m", [Message.user("hi")])
    first, _, _ = await prepare_twice([(ADD, Message.system("now"))], request)
    assert [each.role for each in first.messages] == [Role.SYSTEM, Role.USER]


OVERRIDES = st.lists(
    st.dictionaries(st.sampled_from(["model", "temperature", "seed"]), st.text(max_size=3), max_size=3), max_size=4
)


@given(OVERRIDES)
@settings(max_examples=40)
def test_last_writer_of_each_field_counts(overrides: list[dict[str, str]]) -> None:
    """X-07"""
    request = request_of(temperature=0.5, max_tokens=7)
    first, second, _ = anyio.run(prepare_twice, [(OVERRIDE, each) for each in overrides], request)
    merged = {key: value for each in overrides for key, value in each.items()}
    assert first.model == merged.pop("model", "m")
    assert first.params == {"temperature": 0.5, "max_tokens": 7, **merged}
    assert second == request_of(temperature=0.5, max_tokens=7)


async def test_override_may_hold_parameters_under_params() -> None:
    first, _, _ = await prepare_twice([(OVERRIDE, {"params": {"seed": 1}, "top_p": 0.5})], request_of())
    assert first.params == {"seed": 1, "top_p": 0.5}


IDS = st.sampled_from([*TOOLS, "unknown"])
TOOL_ACTIONS = st.lists(
    st.tuples(st.just(EXCLUDE), IDS) | st.tuples(st.just(ONLY), st.lists(IDS, max_size=3)), max_size=5
)


@given(TOOL_ACTIONS)
@settings(max_examples=60)
def test_tools_on_some_list_are_offered_without_those_excluded(actions: list[tuple[str, Any]]) -> None:
    """X-07: exclusions add up, lists are joined, and exclusions count after them."""
    first, second, _ = anyio.run(prepare_twice, actions, request_of(tools=TOOLS))
    excluded = {payload for key, payload in actions if key == EXCLUDE}
    lists = [payload for key, payload in actions if key == ONLY]
    listed = {each for payload in lists for each in payload} if lists else set(TOOLS)
    assert [each.name for each in first.tools] == [each for each in TOOLS if each in listed - excluded]
    assert [each.name for each in second.tools] == list(TOOLS)


async def test_tool_that_was_excluded_is_not_offered_until_the_next_round() -> None:
    def ask(ctx: Any) -> StateCommand | None:
        return StateCommand().schedule(EXCLUDE, "a") if ctx.round == 1 else None

    runtime = runtime_of(
        LoopActionHandlersPlugin(), Made("asks", lambda registrar: registrar.phase_hook(Phase.STEP_START, ask))
    )
    async with runtime.opened(FakeRun()):
        for number, offered in ((1, False), (2, True)):
            await runtime.prepare(request_of(tools=TOOLS), round=number)
            assert runtime.offers("a") is offered


async def test_retry_in_the_same_round_gets_what_the_actions_wanted() -> None:
    def ask(ctx: Any) -> StateCommand:
        return StateCommand().schedule(OVERRIDE, {"model": "chosen"}).schedule(ADD, Message.user("note"))

    runtime = runtime_of(
        Made("asks", lambda registrar: registrar.phase_hook(Phase.BEFORE_INFERENCE, ask)), LoopActionHandlersPlugin()
    )
    async with runtime.opened(FakeRun()):
        first = await runtime.prepare(request_of(model="m"), round=1)
        fallback = await runtime.prepare(request_of(model="other"), round=1)
    assert first == fallback
    assert first is not fallback
    assert (first.model, first.messages[-1].content) == ("chosen", "note")


async def test_action_scheduled_in_one_round_holds_for_the_next_inference() -> None:
    def ask(ctx: Any) -> StateCommand | None:
        return StateCommand().schedule(ADD, Message.user("later"))

    runtime = runtime_of(
        Made("asks", lambda registrar: registrar.phase_hook(Phase.STEP_END, ask)), LoopActionHandlersPlugin()
    )
    async with runtime.opened(FakeRun()):
        first = await runtime.prepare(request_of(), round=1)
        await runtime.end_round()
        second = await runtime.prepare(request_of(), round=2)
    assert [each.content for each in first.messages] == ["be brief", "hello"]
    assert [each.content for each in second.messages] == ["be brief", "hello", "later"]


@pytest.mark.parametrize(
    ("key", "payload"),
    [
        (ADD, "just text"),
        (ADD, None),
        (ADD, Message.tool("c", "answer")),
        (ADD, Message.assistant("", [ToolCall("c", "a")])),
        (OVERRIDE, "gpt"),
        (OVERRIDE, {"model": 3}),
        (OVERRIDE, {3: "x"}),
        (OVERRIDE, {"params": 3}),
        (OVERRIDE, {"messages": []}),
        (OVERRIDE, {"tools": []}),
        (EXCLUDE, ["a"]),
        (EXCLUDE, None),
        (ONLY, "a"),
        (ONLY, [1]),
    ],
    ids=repr,
)
@pytest.mark.parametrize("phase", [Phase.STEP_START, Phase.BEFORE_INFERENCE])
async def test_wrong_payload_makes_the_hook_fail_that_scheduled_it(phase: Phase, key: str, payload: Any) -> None:
    asks = [(ADD, Message.user("good")), (key, payload)]

    def ask(ctx: Any) -> StateCommand:
        command = StateCommand()
        for each in asks:
            command.schedule(*each)
        return command

    plugin = Made("asks", lambda registrar: registrar.phase_hook(phase, ask))
    runtime = runtime_of(plugin, LoopActionHandlersPlugin())
    async with runtime.opened(FakeRun()):
        with pytest.raises(
            StateError, match=f"hook '.*ask' of plugin 'asks' schedules what does not fit.*{key}"
        ) as got:
            await runtime.prepare(request_of(tools=TOOLS), round=1)
        asks.clear()
        assert got.value.hint
        assert await runtime.prepare(request_of(tools=TOOLS), round=1) == request_of(tools=TOOLS)
        assert runtime.state["runtime.failed_actions"] == []


async def test_action_that_schedules_a_wrong_payload_is_a_failed_action() -> None:
    """X-06"""

    def register(registrar: Any) -> None:
        registrar.scheduled_action("act", Phase.STEP_START, lambda ctx, payload: StateCommand().schedule(ADD, payload))
        registrar.phase_hook(Phase.STEP_START, lambda ctx: StateCommand().schedule("act", "just text"))

    runtime = runtime_of(Made("asks", register), LoopActionHandlersPlugin())
    async with runtime.opened(FakeRun()):
        await runtime.prepare(request_of(), round=1)
        (failed,) = runtime.state["runtime.failed_actions"]
    assert failed["key"] == "act"
    assert "Message.system(" in failed["error"]


async def test_plugin_may_check_the_payloads_of_its_own_actions() -> None:
    def even(payload: int) -> None:
        if payload % 2:
            raise ValueError("an odd number")

    def register(registrar: Any) -> None:
        registrar.scheduled_action("act", Phase.STEP_START, lambda ctx, payload: None, check=even)
        registrar.phase_hook(Phase.STEP_START, lambda ctx: StateCommand().schedule("act", 2 + (ctx.round == 2)))

    runtime = runtime_of(Made("asks", register))
    async with runtime.opened(FakeRun()):
        await runtime.prepare(request_of(), round=1)
        with pytest.raises(StateError, match="does not fit: an odd number") as raised:
            await runtime.prepare(request_of(), round=2)
    assert isinstance(raised.value.__cause__, ValueError)
