"""`AgentRuntime.process`: what a user writes, and what is replied."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

import anyio
import pytest
from pydantic import ValidationError

from graphrt import AgentConfig, ConfigError, HookEvent, HookExecutor, LlmError
from graphrt.agent import AgentRuntime, GatewayMessage, Session, SystemPromptBuilder
from graphrt.config import CompactConfig
from graphrt.errors import AgentError, AgentLlmError, HookBlockedError, LlmErrorKind, OtherAgentError
from graphrt.graph import TerminationKind
from graphrt.llm import OpenAIProvider, ScriptedProvider
from graphrt.messages import LLMResponse, Message, Role
from graphrt.registry import AgentSpec, MapAgentSpecRegistry
from tests.agent.helpers import Heard, add, asks, block, call, is_paired, registry, texts
from tests.engine.helpers import FAKE_TIME, yield_often

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module", params=FAKE_TIME)
def anyio_backend(request: pytest.FixtureRequest) -> Any:
    """Run every async test on both event loops, in fake time."""
    return request.param


def runtime_of(
    script: list[Any], *tools: Any, hooks: HookExecutor | None = None, **config: Any
) -> tuple[AgentRuntime, ScriptedProvider]:
    provider = ScriptedProvider(script)
    runtime = AgentRuntime.from_provider(provider, config=AgentConfig(**config), tools=tools, hook_executor=hooks)
    return runtime, provider


# --- what is replied ---------------------------------------------------------------------------------------


def test_the_config_has_its_defaults_and_bounds() -> None:
    """AC-M01."""
    config = AgentConfig()
    assert (config.model, config.temperature, config.max_tokens) == ("gpt-4o-mini", 0.7, None)
    assert (config.max_iterations, config.timeout_seconds) == (10, 300)
    assert config.system_prompt
    for wrong in ({"temperature": 2.5}, {"max_iterations": 0}, {"timeout_seconds": 0}):
        with pytest.raises(ValidationError):
            AgentConfig(**wrong)


async def test_a_tool_that_fails_is_told_to_the_model() -> None:
    """AC-M03."""

    async def save(text: str) -> str:
        """Save a text."""
        raise ValueError("disk full")

    runtime, provider = runtime_of([asks(call("1", "save", text="x")), "I could not save it"], save)
    assert await runtime.process("save", Session("s")) == "I could not save it"
    assert "disk full" in provider.calls[1].messages[-1].content


async def test_the_session_has_the_whole_conversation() -> None:
    runtime, provider = runtime_of([asks(call("1", a=1, b=2), call("2", a=3, b=4)), "3 and 7", "bye"], add)
    messages: list[Message] = []
    session = Session("s", messages)
    assert await runtime.process("add", session) == "3 and 7"
    assert session.messages is messages
    assert texts(messages) == ["user: add", "assistant: ", "tool: 3", "tool: 7", "assistant: 3 and 7"]
    assert [each.tool_call_id for each in messages if each.role is Role.TOOL] == ["1", "2"]
    await runtime.process("thanks", session)
    assert texts(provider.calls[2].messages)[1:] == [*texts(messages)[:5], "user: thanks"]
    assert provider.calls[2].messages[0] == Message.system(AgentConfig().system_prompt)  # type: ignore[arg-type]  # a text
    assert session.turn_index == 2


async def test_request_parameters_hold_for_one_call() -> None:
    """AC-M07."""
    runtime, provider = runtime_of(["one", "two", "three", "four"], max_tokens=50)
    session = Session("s")
    await runtime.process("a", session, temperature=0.0)
    await runtime.process("b", session)
    await runtime.process("c", session, model="other", seed=7, max_tokens=9)
    await runtime.process("d", session, temperature=None)
    asked = [each.kwargs for each in provider.calls]
    assert [each.get("temperature") for each in asked] == [0.0, 0.7, 0.7, None]
    assert [each["model"] for each in asked] == ["gpt-4o-mini", "gpt-4o-mini", "other", "gpt-4o-mini"]
    assert [each["max_tokens"] for each in asked] == [50, 50, 9, 50]
    assert asked[2]["seed"] == 7
    assert runtime.config.temperature == 0.7


async def test_a_message_of_a_gateway_stands_for_its_text() -> None:
    runtime, provider = runtime_of(["hello"])
    assert await runtime.process(GatewayMessage("cli", "ann", "s", "hi"), Session("s")) == "hello"
    assert provider.calls[0].messages[-1] == Message.user("hi")


@pytest.mark.parametrize(("text", "session"), [(3, Session("s")), (None, Session("s")), ("hi", "s"), ("hi", None)])
async def test_what_is_no_input_or_session_is_refused(text: Any, session: Any) -> None:
    runtime, _ = runtime_of([])
    with pytest.raises(ConfigError):
        await runtime.process(text, session)


async def test_hooks_on_turns_are_called_around_it() -> None:
    hooks = HookExecutor()
    heard = Heard(hooks)
    runtime, _ = runtime_of(["one", "two"], hooks=hooks)
    session = Session("s")
    for text in "ab":
        await runtime.process(text, session)
    assert heard.events() == ["on_turn_start", "pre_request", "post_request", "on_turn_end"] * 2
    assert [ctx.turn_index for ctx in heard] == [0] * 4 + [1] * 4
    assert {ctx.session_id for ctx in heard} == {"s"}
    assert [ctx.data["response"].content for ctx in heard.of(HookEvent.ON_TURN_END)] == ["one", "two"]


async def test_turns_of_one_session_wait_for_one_another_and_those_of_others_do_not() -> None:
    inside: list[str] = []
    together: list[set[str]] = []

    async def answer(messages: list[Message], tools: Any, kwargs: Any) -> str:
        who = messages[-1].content
        inside.append(who)
        await anyio.sleep(1)
        together.append(set(inside))
        inside.remove(who)
        return "ok"

    runtime, _ = runtime_of([answer] * 4)
    sessions = [Session("x"), Session("y")]
    async with anyio.create_task_group() as tasks:
        for n in "12":
            for session in sessions:
                tasks.start_soon(runtime.process, f"{session.id}{n}", session)
            await yield_often(3)
    assert all(len({who[0] for who in each}) == len(each) for each in together)
    assert max(len(each) for each in together) == 2
    assert texts(sessions[0].messages) == ["user: x1", "assistant: ok", "user: x2", "assistant: ok"]


# --- prompts -----------------------------------------------------------------------------------------------


class Counting:
    def __init__(self, *, waits: bool = False) -> None:
        self.calls: list[tuple[AgentConfig, Any]] = []
        self.waits = waits

    def build(self, config: AgentConfig, session: Any) -> str | Awaitable[str]:
        self.calls.append((config, session))
        text = f"prompt {len(self.calls)}"
        return self._later(text) if self.waits else text

    async def _later(self, text: str) -> str:
        await yield_often(1)
        return text


@pytest.mark.parametrize("waits", [False, True])
@pytest.mark.parametrize("in_config", [False, True])
async def test_a_prompt_is_made_once_a_turn(waits: bool, in_config: bool) -> None:
    """AC-M13."""
    builder = Counting(waits=waits)
    assert isinstance(builder, SystemPromptBuilder)
    provider = ScriptedProvider([asks(call("1", a=1, b=2)), "three", "bye"])
    if in_config:
        runtime = AgentRuntime.from_provider(provider, config=AgentConfig(system_prompt=builder), tools=[add])
    else:
        runtime = AgentRuntime.from_provider(provider, tools=[add], system_prompt_builder=builder)
    session = Session("s")
    await runtime.process("add", session)
    assert [asked.messages[0] for asked in provider.calls] == [Message.system("prompt 1")] * 2
    assert builder.calls == [(runtime.config, session)]
    await runtime.process("more", session)
    assert provider.calls[2].messages[0] == Message.system("prompt 2")
    assert Message.system("prompt 1") not in session.messages


async def test_a_prompt_that_cannot_be_made_fails_the_turn() -> None:
    class Broken:
        def build(self, config: AgentConfig, session: Any) -> str:
            raise RuntimeError("no template")

    class Odd:
        def build(self, config: AgentConfig, session: Any) -> Any:
            return None

    for builder, expected in ((Broken(), OtherAgentError), (Odd(), ConfigError)):
        runtime = AgentRuntime.from_provider(ScriptedProvider(), system_prompt_builder=builder)
        session = Session("s")
        with pytest.raises(expected):
            await runtime.process("hi", session)
        assert session.messages == []


async def test_a_suffix_of_the_prompt_is_sent() -> None:
    config = AgentConfig(system_prompt="be good").with_system_prompt_suffix("You know ants.")
    provider = ScriptedProvider(["ok"])
    await AgentRuntime.from_provider(provider, config=config).process("hi", Session("s"))
    assert provider.calls[0].messages[0] == Message.system("be good\n\nYou know ants.")


# --- limits become text ------------------------------------------------------------------------------------


async def test_the_limit_on_rounds_is_answered_with_a_text() -> None:
    """AC-M05."""
    script = [asks(call(str(n), a=n, b=n)) for n in range(3)]
    runtime, provider = runtime_of(script, add, max_iterations=2, limit_reply="enough")
    session = Session("s")
    assert await runtime.process("add", session) == "enough"
    assert len(provider.calls) == 2
    assert texts(session.messages) == [
        "user: add",
        "assistant: ",
        "tool: 0",
        "assistant: ",
        "tool: 2",
        "assistant: enough",
    ]
    assert is_paired(session.messages)


async def test_the_notice_names_the_limit_unless_told_otherwise() -> None:
    runtime, _ = runtime_of([asks(call("1", a=1, b=2))], add, max_rounds=1)
    assert "max_rounds" in await runtime.process("add", Session("s"))


async def test_a_time_out_is_answered_with_a_text() -> None:
    left: list[str] = []

    async def hang(messages: Any, tools: Any, kwargs: Any) -> str:
        try:
            await anyio.sleep_forever()
        finally:
            left.append("left")
        return ""

    script = ["one", asks(call("1", a=1, b=2)), hang, "two"]
    runtime, provider = runtime_of(script, add, timeout_seconds=5, timeout_reply="too slow")
    session = Session("s")
    await runtime.process("a", session)
    assert await runtime.process("b", session) == "too slow"
    assert left == ["left"]
    assert texts(session.messages) == ["user: a", "assistant: one", "user: b", "assistant: too slow"]
    assert await runtime.process("c", session) == "two"
    assert len(provider.calls[-1].messages) == 6


async def test_a_limited_turn_is_a_turn_for_hooks() -> None:
    hooks = HookExecutor()
    heard = Heard(hooks, [HookEvent.ON_TURN_END, HookEvent.ON_ERROR])
    runtime, _ = runtime_of([asks(call("1", a=1, b=2))], add, hooks=hooks, max_rounds=1, limit_reply="enough")
    session = Session("s")
    await runtime.process("add", session)
    (told,) = heard
    assert (told.event, told.data["response"].content) == (HookEvent.ON_TURN_END, "enough")
    termination = told.data["response"].termination
    assert (termination.kind, termination.code) == (TerminationKind.STOPPED, "max_rounds")
    assert session.turn_index == 1


async def test_the_limit_on_turns_is_answered_with_a_text_and_changes_nothing() -> None:
    hooks = HookExecutor()
    runtime, provider = runtime_of(["one"], hooks=hooks, max_turns=1)
    session = Session("s")
    await runtime.process("a", session)
    heard = Heard(hooks)
    assert "max_turns" in await runtime.process("b", session)
    assert (heard, len(provider.calls), len(session.messages)) == ([], 1, 2)


async def test_hooks_that_hang_are_a_time_out_too() -> None:
    hooks = HookExecutor()

    async def hang(ctx: Any) -> None:
        await anyio.sleep_forever()

    hooks.register(HookEvent.ON_TURN_START, hang)
    runtime, _ = runtime_of([], hooks=hooks, timeout_seconds=3, timeout_reply="too slow")
    session = Session("s")
    assert await runtime.process("a", session) == "too slow"
    assert texts(session.messages) == ["user: a", "assistant: too slow"]


# --- all else is raised ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("script", "blocks", "expected"),
    [
        ([LlmError("no", LlmErrorKind.UNAUTHORIZED)], False, AgentLlmError),
        ([TimeoutError("socket")], False, AgentLlmError),
        ([ValueError("odd")], False, OtherAgentError),
        ([], True, HookBlockedError),
    ],
)
async def test_other_failures_are_raised_and_leave_the_session_as_it_was(
    script: list[Any], blocks: bool, expected: type[AgentError]
) -> None:
    hooks = HookExecutor()
    runtime, _ = runtime_of(["one", *script], hooks=hooks)
    session = Session("s")
    await runtime.process("a", session)
    if blocks:
        hooks.register(HookEvent.PRE_REQUEST, block)
    heard = Heard(hooks, [HookEvent.ON_ERROR, HookEvent.ON_TURN_END])
    with pytest.raises(expected):
        await runtime.process("b", session)
    assert heard.events() == ["on_error"]
    assert (texts(session.messages), session.turn_index) == (["user: a", "assistant: one"], 1)


async def test_an_agent_that_is_not_there_is_an_error_of_an_agent() -> None:
    runtime, _ = runtime_of([])
    with pytest.raises(AgentError, match="'nobody' is not registered"):
        await runtime.process("a", Session("s"), agent_id="nobody")


async def test_without_a_default_agent_one_has_to_be_named() -> None:
    from dataclasses import replace

    base, _ = runtime_of(["one"])
    specs = [AgentSpec("a", system_prompt="be a"), AgentSpec("b", system_prompt="be b")]
    provider = ScriptedProvider(["one", "two"])
    world = AgentRuntime.from_provider(provider).registries
    several = AgentRuntime(replace(world, agents=MapAgentSpecRegistry(specs)))
    with pytest.raises(ConfigError, match="2 agents"):
        await several.process("hi", Session("s"))
    await several.process("hi", Session("s"), agent_id="b")
    single = AgentRuntime(replace(world, agents=MapAgentSpecRegistry(specs[:1])))
    await single.process("hi", Session("s"))
    assert [asked.messages[0].content for asked in provider.calls] == ["be b", "be a"]
    assert base.registries.agents.ids() == ["default"]


# --- making one --------------------------------------------------------------------------------------------


def test_a_ledger_is_one() -> None:
    with pytest.raises(ConfigError, match="ledger"):
        AgentRuntime.from_provider(ScriptedProvider(), ledger=object())  # type: ignore[arg-type]  # wrong on purpose


@pytest.mark.parametrize("tools", [add, "add", 3, [add, add]])
def test_tools_are_a_sequence_of_different_tools(tools: Any) -> None:
    with pytest.raises(ConfigError):
        AgentRuntime.from_provider(ScriptedProvider(), tools=tools)


@pytest.mark.parametrize("provider", [None, "gpt", ScriptedProvider])
def test_a_provider_is_one(provider: Any) -> None:
    with pytest.raises(ConfigError):
        AgentRuntime.from_provider(provider)


def test_a_runtime_is_shown_by_its_agents() -> None:
    runtime = AgentRuntime.from_provider(OpenAIProvider("qwen", api_key="k"), tools=registry(add))
    model = runtime.registries.models.get("default")
    assert repr(runtime) == "AgentRuntime(default)"
    assert model is not None
    assert model.name == "qwen"


async def test_compaction_comes_with_the_config() -> None:
    config = AgentConfig(compact_config=CompactConfig(threshold_tokens=20, keep_recent=1, min_savings_ratio=0.0))
    provider = ScriptedProvider([LLMResponse("they spoke of ants"), "go on"])
    runtime = AgentRuntime.from_provider(provider, config=config)
    history = [Message.user("ants " * 40), Message.assistant("ants! " * 40)]
    session = Session("s", list(history))
    assert await runtime.process("and?", session) == "go on"
    assert "they spoke of ants" in " ".join(texts(provider.calls[1].messages))
    assert "ants ants ants" not in " ".join(texts(provider.calls[1].messages))
    assert session.messages[:2] == history
