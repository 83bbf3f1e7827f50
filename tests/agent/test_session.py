"""Turns of a session, one after another."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Iterator
from dataclasses import asdict
from datetime import timedelta
from typing import Any

import anyio
import pytest

from graphrt import ConfigError, HookEvent, HookExecutor, LimitExceededError, LlmError
from graphrt.agent import Agent, AgentSession, Session, SimpleAgent
from graphrt.config import CompactConfig, RetryConfig
from graphrt.errors import (
    AgentError,
    AgentLlmError,
    AgentMemoryError,
    HookBlockedError,
    LlmErrorKind,
    MemoryStoreError,
    OtherAgentError,
)
from graphrt.graph import TerminationKind
from graphrt.hooks import HookContext, HookResult
from graphrt.llm import ProviderExecutor, RetryingExecutor, ScriptedProvider
from graphrt.memory import InMemoryStore
from graphrt.messages import LLMResponse, Message, Role, TokenUsage
from graphrt.plugins import HookBridgePlugin
from graphrt.testing.time import FakeClock
from graphrt.tools import PermissionChecker, PermissionDecision, ToolContext, ToolRegistry
from tests.agent.helpers import Heard, add, asks, block, bundle_of, call, is_paired, offered, session_of, texts
from tests.engine.helpers import FAKE_TIME, yield_often

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module", params=FAKE_TIME)
def anyio_backend(request: pytest.FixtureRequest) -> Any:
    """Run every async test on both event loops, in fake time."""
    return request.param


# --- what a turn does --------------------------------------------------------------------------------------


async def test_hooks_on_turns_see_the_turns_before() -> None:
    """AC-A07."""
    hooks = HookExecutor()
    heard = Heard(hooks, [HookEvent.ON_TURN_START, HookEvent.ON_TURN_END])
    session, _ = session_of(["one", "two"], hooks=hooks)
    for text in ("a", "b"):
        await session.submit_turn(text)
    assert [(ctx.event.value, ctx.turn_index) for ctx in heard] == [
        ("on_turn_start", 0),
        ("on_turn_end", 0),
        ("on_turn_start", 1),
        ("on_turn_end", 1),
    ]
    assert session.turn_index == 2


async def test_the_parts_of_a_turn_come_in_order() -> None:
    hooks = HookExecutor()
    heard = Heard(hooks)
    seen: list[Any] = []
    session, _ = session_of([asks(call("1", a=1, b=2), usage=TokenUsage(1, 1)), "three"], add, hooks=hooks)

    def look(ctx: HookContext) -> None:
        seen.append((session.turn_index, session.cost_so_far.calls, texts(session.messages)[-1]))

    hooks.register(HookEvent.ON_TURN_END, look)
    response = await session.submit_turn("add")
    assert heard.events() == [
        "on_turn_start",
        "pre_request",
        "post_request",
        "pre_request",
        "post_request",
        "on_turn_end",
    ]
    assert seen == [(0, 2, "assistant: three")]
    start, end = heard[0], heard[-1]
    assert start.data == {"user_input": "add"}
    assert end.data == {"user_input": "add", "response": response}
    assert {ctx.session_id for ctx in heard} == {"s-1"}
    assert {ctx.turn_index for ctx in heard} == {0}
    assert len({ctx.run_id for ctx in heard}) == 1
    assert (response.content, response.rounds, [each.id for each in response.tool_calls]) == ("three", 2, ["1"])
    assert response.termination.kind is TerminationKind.NATURAL_END


async def test_history_goes_on_and_the_prompt_is_not_kept() -> None:
    session, provider = session_of(["one", "two"], agent=SimpleAgent("helper", "be brief"))
    await session.submit_turn("a")
    await session.submit_turn("b")
    assert texts(provider.calls[1].messages) == ["system: be brief", "user: a", "assistant: one", "user: b"]
    assert texts(session.messages) == ["user: a", "assistant: one", "user: b", "assistant: two"]


async def test_without_a_prompt_no_system_message_is_sent() -> None:
    session, provider = session_of(["one"], agent=SimpleAgent("helper"), system_prompt="of the config")
    await session.submit_turn("a")
    assert texts(provider.calls[0].messages) == ["user: a"]


async def test_usage_of_every_reply_is_added_up() -> None:
    """AC-A13."""
    replies = [asks(call("1", a=1, b=2), usage=TokenUsage(10, 5)), LLMResponse("3", usage=TokenUsage(7, 3)), "no usage"]
    session, _ = session_of(replies, add)
    await session.submit_turn("add")
    total = session.cost_so_far.total
    assert (total.input_tokens, total.output_tokens, session.cost_so_far.calls) == (17, 8, 2)
    await session.submit_turn("more")
    assert (session.cost_so_far.total, session.cost_so_far.calls) == (total, 3)


async def test_one_agent_serves_many_sessions() -> None:
    provider = ScriptedProvider(["one", "two"])
    agent, bundle = SimpleAgent("helper"), bundle_of(provider)
    sessions = [AgentSession(id, agent, bundle) for id in ("a", "b")]
    for session in sessions:
        await session.submit_turn("hi")
    assert [texts(each.messages) for each in sessions] == [
        ["user: hi", "assistant: one"],
        ["user: hi", "assistant: two"],
    ]
    assert [each.turn_index for each in sessions] == [1, 1]


async def test_dangling_calls_are_cleaned_before_a_new_prompt() -> None:
    session, provider = session_of(["fine"])
    session.messages.extend([Message.user("a"), Message.assistant("wait", [call("1")])])
    await session.submit_turn("b")
    assert texts(provider.calls[0].messages) == ["user: a", "assistant: wait", "user: b"]
    assert is_paired(provider.calls[0].messages)
    assert texts(session.messages) == ["user: a", "assistant: wait", "user: b", "assistant: fine"]


async def test_a_reply_that_says_nothing_is_not_kept() -> None:
    session, _ = session_of(["", "two"])
    assert (await session.submit_turn("a")).content == ""
    assert texts(session.messages) == ["user: a"]
    assert session.turn_index == 1


async def test_retries_are_told_to_hooks() -> None:
    hooks = HookExecutor()
    heard = Heard(hooks, [HookEvent.ON_RETRY])
    provider = ScriptedProvider([LlmError("busy", LlmErrorKind.OVERLOADED), "fine"])
    executor = RetryingExecutor(ProviderExecutor(provider), RetryConfig(max_retries=1))
    session = AgentSession("s", SimpleAgent("a"), bundle_of(executor, hooks=hooks))
    assert (await session.submit_turn("hi")).content == "fine"
    assert [ctx.data["attempt"] for ctx in heard] == [1]


async def test_plugins_keep_state_from_turn_to_turn_in_the_session() -> None:
    session, _ = session_of(["one"])
    session.session.state["of.some.plugin"] = 3
    await session.submit_turn("a")
    assert session.session.state == {"of.some.plugin": 3}


# --- agents that take turns --------------------------------------------------------------------------------


async def test_a_new_agent_goes_on_with_the_history() -> None:
    """AC-A11."""
    session, provider = session_of(["one", "two"], agent=SimpleAgent("first", "be first"))
    await session.submit_turn("a")
    session.agent = SimpleAgent("second", "be second")
    await session.submit_turn("b")
    assert texts(provider.calls[1].messages) == ["system: be second", "user: a", "assistant: one", "user: b"]


async def test_a_new_agent_is_told_what_the_session_remembers() -> None:
    session, provider = session_of(["one", "two", "three"], agent=SimpleAgent("first", "be first"))
    await session.session_memory.set("db", "PostgreSQL")
    await session.submit_turn("a")
    session.agent = SimpleAgent("second", "be second")
    await session.session_memory.set("region", "eu")
    await session.submit_turn("b")
    await session.session_memory.set("late", "news")
    await session.submit_turn("c")
    prompts = [asked.messages[0].content for asked in provider.calls]
    snapshot = "<session-context>\ndb: PostgreSQL\nregion: eu\n</session-context>"
    assert prompts == ["be first", f"be second\n\n{snapshot}", f"be second\n\n{snapshot}"]


async def test_the_snapshot_is_all_the_prompt_of_an_agent_without_one() -> None:
    session, provider = session_of(["one"])
    await session.session_memory.set("db", "PostgreSQL")
    session.agent = SimpleAgent("second")
    await session.submit_turn("a")
    assert provider.calls[0].messages[0] == Message.system("<session-context>\ndb: PostgreSQL\n</session-context>")


async def test_a_new_context_starts_without_history() -> None:
    session, provider = session_of(["one", "two"])
    await session.session_memory.set("db", "PostgreSQL")
    await session.submit_turn("a")
    before = session.messages
    session.open_context(SimpleAgent("second", "be second"))
    assert session.messages == []
    await session.submit_turn("b")
    asked = provider.calls[1].messages
    assert [each.role for each in asked] == [Role.SYSTEM, Role.USER]
    assert "db: PostgreSQL" in asked[0].content
    assert texts(before) == ["user: a", "assistant: one"]
    assert session.turn_index == 2


async def test_a_change_of_agents_during_a_turn_is_for_the_next_one() -> None:
    hooks = HookExecutor()
    session, provider = session_of(["one", "two"], agent=SimpleAgent("first", "be first"), hooks=hooks)

    def change(ctx: HookContext) -> None:
        if ctx.turn_index == 0:
            session.open_context(SimpleAgent("second", "be second"))

    hooks.register(HookEvent.ON_TURN_START, change)
    await session.submit_turn("a")
    assert session.messages == []
    await session.submit_turn("b")
    assert [texts(asked.messages) for asked in provider.calls] == [
        ["system: be first", "user: a"],
        ["system: be second", "user: b"],
    ]


@pytest.mark.parametrize("agent", [None, "helper", SimpleAgent])
def test_an_agent_is_an_agent(agent: Any) -> None:
    session, _ = session_of([])
    with pytest.raises(ConfigError, match="agent of a session"):
        session.agent = agent
    with pytest.raises(ConfigError, match="agent of a session"):
        AgentSession("s", agent, session.bundle)
    assert session.agent.name == "helper"


async def test_a_prompt_that_is_a_method_is_said_to_be_none() -> None:
    class Odd(Agent):
        @property
        def name(self) -> str:
            return "odd"

        def system_prompt(self) -> str:  # type: ignore[override]  # the mistake in question
            return "be odd"

    session = AgentSession("s", Odd(), bundle_of(ScriptedProvider()))
    with pytest.raises(ConfigError, match="system prompt of agent 'odd'"):
        await session.submit_turn("hi")


async def test_memory_of_sessions_is_shared_on_one_back_end_only() -> None:
    """AC-A33."""
    alone = bundle_of(ScriptedProvider())
    one, other = (AgentSession("s", SimpleAgent("a"), alone) for _ in range(2))
    await one.session_memory.set("k", "v")
    assert await other.session_memory.get("k") is None
    shared = bundle_of(ScriptedProvider(), session_memory_backend=InMemoryStore())
    one, other = (AgentSession("s", SimpleAgent("a"), shared) for _ in range(2))
    third = AgentSession("t", SimpleAgent("a"), shared)
    await one.session_memory.set("k", "v")
    assert await other.session_memory.get("k") == "v"
    assert await third.session_memory.get("k") is None


async def test_tools_for_the_memory_are_offered_when_asked_for() -> None:
    note = asks(call("1", "session_memory_set", key="db", value="PostgreSQL"))
    session, provider = session_of([note, "noted"], add, options={"memory_tools": True})
    await session.submit_turn("remember")
    assert await session.session_memory.get("db") == "PostgreSQL"
    names = offered(provider.calls[0])
    assert names[0] == "add"
    assert {"session_memory_set", "session_memory_get", "session_memory_remove", "session_memory_list"} < set(names)
    assert session.bundle.tool_registry.ids() == ["add"]


# --- limits ------------------------------------------------------------------------------------------------


async def test_the_limit_on_turns_comes_before_all_else() -> None:
    """AC-A15."""
    hooks = HookExecutor()
    session, provider = session_of(["one"], hooks=hooks, max_turns=1)
    await session.submit_turn("a")
    heard = Heard(hooks)
    with pytest.raises(LimitExceededError) as caught:
        await session.submit_turn("b")
    assert caught.value.limit == "max_turns"
    assert heard == []
    assert len(provider.calls) == 1
    assert texts(session.messages) == ["user: a", "assistant: one"]


async def test_failed_turns_do_not_count_as_turns() -> None:
    session, _ = session_of([LlmError("no", LlmErrorKind.UNAUTHORIZED), "one"], max_turns=1)
    with pytest.raises(AgentLlmError):
        await session.submit_turn("a")
    assert (await session.submit_turn("b")).content == "one"


async def test_a_session_that_lay_idle_too_long_is_over() -> None:
    clock, hooks = FakeClock(), HookExecutor()
    session, provider = session_of(
        ["one", "two"], hooks=hooks, session_ttl=timedelta(seconds=60), options={"clock": clock}
    )
    clock.advance(60)
    await session.submit_turn("a")
    clock.advance(60)
    await session.submit_turn("b")
    clock.advance(60.5)
    heard = Heard(hooks)
    with pytest.raises(LimitExceededError) as caught:
        await session.submit_turn("c")
    assert caught.value.limit == "session_ttl"
    assert (heard, len(provider.calls)) == ([], 2)


async def test_the_limit_on_rounds_fails_a_turn_whose_tools_all_ran() -> None:
    calls: list[int] = []

    async def count(n: int) -> int:
        """Count."""
        calls.append(n)
        return n

    script = [asks(call(str(n), "count", n=n)) for n in range(3)]
    session, provider = session_of(script, count, max_rounds=2)
    with pytest.raises(LimitExceededError) as caught:
        await session.submit_turn("a")
    assert caught.value.limit == "max_rounds"
    assert (len(provider.calls), calls, session.messages, session.turn_index) == (2, [0, 1], [], 0)


async def test_an_answer_at_the_limit_is_an_answer() -> None:
    script = [asks(call("1", a=1, b=2)), "so far so good"]
    session, provider = session_of(script, add, max_rounds=2, on_limit="answer")
    response = await session.submit_turn("a")
    assert (response.content, response.termination.code) == ("so far so good", "max_rounds")
    assert not provider.calls[1].tools


async def test_a_turn_that_takes_too_long_is_cancelled_and_awaited() -> None:
    ended: list[str] = []

    async def slow(messages: Any, tools: Any, kwargs: Any) -> str:
        try:
            await anyio.sleep(100)
        finally:
            ended.append("cleaned up")
        return "late"

    session, _ = session_of([slow, "next"], timeout_seconds=5)
    started = anyio.current_time()
    with pytest.raises(LimitExceededError) as caught:
        await session.submit_turn("a")
    assert caught.value.limit == "timeout"
    assert isinstance(caught.value.cause, TimeoutError)
    assert anyio.current_time() - started == pytest.approx(5, abs=0.1)
    assert (ended, session.messages) == (["cleaned up"], [])
    assert (await session.submit_turn("b")).content == "next"


@pytest.mark.parametrize("event", [HookEvent.ON_TURN_START, HookEvent.PRE_REQUEST, HookEvent.ON_TURN_END])
async def test_hooks_that_never_end_are_out_of_time_as_well(event: HookEvent) -> None:
    hooks = HookExecutor()
    waits = [True, False]

    async def hang(ctx: HookContext) -> None:
        if waits.pop(0):
            await anyio.sleep_forever()

    hooks.register(event, hang)
    session, _ = session_of(["one", "one"], hooks=hooks, timeout_seconds=5)
    with pytest.raises(LimitExceededError, match="within 5 s"):
        await session.submit_turn("a")
    assert session.messages == []
    assert (await session.submit_turn("b")).content == "one"


async def test_the_providers_own_timeout_is_no_limit_of_the_turn() -> None:
    session, _ = session_of([TimeoutError("socket")])
    with pytest.raises(AgentLlmError) as caught:
        await session.submit_turn("a")
    assert isinstance(caught.value.cause, LlmError)
    assert caught.value.is_recoverable()


# --- failures ----------------------------------------------------------------------------------------------


async def test_a_blocked_request_is_not_sent() -> None:
    """AC-A29."""
    hooks = HookExecutor()
    hooks.register(HookEvent.PRE_REQUEST, block)
    session, provider = session_of(["never"], hooks=hooks)
    with pytest.raises(HookBlockedError, match="no") as caught:
        await session.submit_turn("a")
    assert caught.value.reason == "no"
    assert (provider.calls, session.messages) == ([], [])


async def test_a_blocked_turn_does_not_begin() -> None:
    hooks = HookExecutor()
    hooks.register(HookEvent.ON_TURN_START, block)
    session, provider = session_of(["never"], hooks=hooks)
    with pytest.raises(HookBlockedError):
        await session.submit_turn("a")
    assert (provider.calls, session.turn_index) == ([], 0)


def _failures() -> Iterator[Any]:
    auth = LlmError("no key", LlmErrorKind.UNAUTHORIZED)
    yield pytest.param([auth], {}, None, AgentLlmError, id="llm")
    yield pytest.param([ValueError("odd")], {}, None, OtherAgentError, id="other")
    yield pytest.param([asks(call("1", a=1, b=1))], {"max_rounds": 1}, None, LimitExceededError, id="limit")
    yield pytest.param([asks(call("1", a=1, b=1)), auth], {}, None, AgentLlmError, id="second round")
    yield pytest.param([], {}, HookEvent.ON_TURN_START, HookBlockedError, id="blocked turn")
    yield pytest.param([], {}, HookEvent.PRE_REQUEST, HookBlockedError, id="blocked request")


@pytest.mark.parametrize(("script", "config", "blocks", "expected"), list(_failures()))
async def test_a_failed_turn_leaves_the_session_as_it_was(
    script: list[Any], config: dict[str, Any], blocks: HookEvent | None, expected: type[AgentError]
) -> None:
    """D-32."""
    hooks = HookExecutor()
    session, _ = session_of(["one", *script], add, hooks=hooks, **config)
    await session.submit_turn("a")
    before, kept = session.messages, copy.deepcopy(session.messages)
    if blocks is not None:
        hooks.register(blocks, block)
    heard = Heard(hooks)
    with pytest.raises(expected) as caught:
        await session.submit_turn("b")
    assert session.messages is before
    assert (session.messages, session.turn_index) == (kept, 1)
    (told,) = heard.of(HookEvent.ON_ERROR)
    assert told.data["error"] is caught.value
    assert (told.turn_index, told.session_id, told.data["user_input"]) == (1, "s-1", "b")
    assert heard.of(HookEvent.ON_TURN_END) == []


async def test_what_a_failed_turn_used_is_counted() -> None:
    script = [asks(call("1", a=1, b=1), usage=TokenUsage(4, 2)), LlmError("no", LlmErrorKind.UNAUTHORIZED)]
    session, _ = session_of(script, add)
    with pytest.raises(AgentLlmError):
        await session.submit_turn("a")
    assert (session.cost_so_far.total.input_tokens, session.cost_so_far.calls) == (4, 1)


async def test_what_a_summary_used_is_counted() -> None:
    compact = CompactConfig(threshold_tokens=20, keep_recent=1, min_savings_ratio=0.0)
    replies = [LLMResponse("of ants", usage=TokenUsage(9, 3)), LLMResponse("go on", usage=TokenUsage(2, 1))]
    session, _ = session_of(replies, compact_config=compact)
    session.messages.extend([Message.user("ants " * 40), Message.assistant("ants! " * 40)])
    response = await session.submit_turn("and?")
    assert response.usage is not None
    assert (response.usage.input_tokens, session.cost_so_far.total.input_tokens) == (11, 11)
    assert session.cost_so_far.calls == 2


async def test_what_hooks_did_to_the_history_of_a_failed_turn_is_undone() -> None:
    hooks = HookExecutor()
    session, provider = session_of(["one", ValueError("odd")], hooks=hooks)
    hooks.register(HookEvent.ON_TURN_START, lambda ctx: session.messages.append(Message.user("by the way")))
    await session.submit_turn("a")
    assert texts(provider.calls[0].messages) == ["user: by the way", "user: a"]
    with pytest.raises(OtherAgentError):
        await session.submit_turn("b")
    assert texts(session.messages) == ["user: by the way", "user: a", "assistant: one"]


async def test_errors_are_wrapped_once_and_keep_their_cause() -> None:
    inner = LlmError("busy", LlmErrorKind.OVERLOADED)
    session, _ = session_of([inner])
    with pytest.raises(AgentLlmError) as caught:
        await session.submit_turn("a")
    assert caught.value.cause is inner
    assert caught.value.is_recoverable()


async def test_a_store_that_fails_is_an_error_of_memory() -> None:
    class Broken(InMemoryStore):
        async def search(self, namespace: str, query: str = "", limit: int | None = None) -> list[tuple[str, str]]:
            raise MemoryStoreError("gone")

    bundle = bundle_of(ScriptedProvider(["one"]), session_memory_backend=Broken())
    session = AgentSession("s", SimpleAgent("a"), bundle)
    session.agent = SimpleAgent("b")
    with pytest.raises(AgentMemoryError):
        await session.submit_turn("a")


async def test_a_hooks_mistake_is_its_own_unless_it_is_critical() -> None:
    hooks = HookExecutor()

    def fail(ctx: HookContext) -> None:
        raise RuntimeError("oops")

    hooks.register(HookEvent.ON_TURN_END, fail)
    session, _ = session_of(["one", "two"], hooks=hooks)
    await session.submit_turn("a")
    hooks.register(HookEvent.ON_TURN_END, fail, critical=True)
    with pytest.raises(OtherAgentError, match="oops"):
        await session.submit_turn("b")
    assert (texts(session.messages), session.turn_index) == (["user: a", "assistant: one"], 1)


async def test_hooks_on_errors_do_not_hide_the_error() -> None:
    hooks = HookExecutor()

    def fail(ctx: HookContext) -> None:
        raise RuntimeError("oops")

    hooks.register(HookEvent.ON_ERROR, fail, critical=True)
    session, _ = session_of([LlmError("no", LlmErrorKind.UNAUTHORIZED)], hooks=hooks)
    with pytest.raises(AgentLlmError, match="no") as caught:
        await session.submit_turn("a")
    assert any("oops" in note for note in caught.value.__notes__)


async def test_a_block_where_nothing_can_be_blocked_is_passed_over() -> None:
    hooks = HookExecutor()
    hooks.register(HookEvent.ON_TURN_END, block)
    session, _ = session_of(["one"], hooks=hooks)
    assert (await session.submit_turn("a")).content == "one"


async def test_a_cancelled_turn_leaves_the_session_as_it_was_and_tells_nobody() -> None:
    hooks = HookExecutor()
    entered = anyio.Event()

    async def hang(messages: Any, tools: Any, kwargs: Any) -> str:
        entered.set()
        await anyio.sleep_forever()
        return ""

    session, _ = session_of(["one", hang, "two"], hooks=hooks)
    await session.submit_turn("a")
    heard = Heard(hooks, [HookEvent.ON_ERROR, HookEvent.ON_TURN_END])
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(session.submit_turn, "b")
        await entered.wait()
        tasks.cancel_scope.cancel()
    assert (texts(session.messages), session.turn_index, heard) == (["user: a", "assistant: one"], 1, [])
    assert (await session.submit_turn("c")).content == "two"


@pytest.mark.parametrize("text", [None, 3, ["hi"], Message.user("hi")])
async def test_only_texts_are_submitted(text: Any) -> None:
    session, _ = session_of([])
    with pytest.raises(ConfigError, match="no text"):
        await session.submit_turn(text)
    with pytest.raises(ConfigError, match="no text"):
        session.stream_turn(text)


async def test_a_refused_call_is_told_to_the_model_and_the_turn_goes_on() -> None:
    """AC-W33."""

    class Never(PermissionChecker):
        async def check(self, tool_id: str, arguments: Any, ctx: ToolContext[Any]) -> PermissionDecision:
            return PermissionDecision.deny("not on Sundays")

    async def delete(path: str) -> str:
        """Delete a file."""
        raise AssertionError("it is not permitted")

    tools = ToolRegistry(permission_checker=Never())
    tools.register(delete)
    session, provider = session_of([asks(call("1", "delete", path="/")), "I may not"])
    bundle = session.bundle
    session = AgentSession("s", SimpleAgent("a"), type(bundle)(bundle.provider, tools, bundle.hook_executor))
    assert (await session.submit_turn("delete")).content == "I may not"
    assert "not on Sundays" in provider.calls[1].messages[-1].content


# --- turns at once -----------------------------------------------------------------------------------------


async def test_turns_at_once_run_one_after_another_in_the_order_of_their_calls() -> None:
    inside: list[int] = []
    most: list[int] = []

    async def answer(messages: Any, tools: Any, kwargs: Any) -> str:
        inside.append(1)
        most.append(len(inside))
        await yield_often(20)
        inside.pop()
        return f"to {messages[-1].content}"

    session, _ = session_of([answer] * 5)
    async with anyio.create_task_group() as tasks:
        for n in range(5):
            tasks.start_soon(session.submit_turn, str(n))
            await yield_often(2)
    expected = [line for n in range(5) for line in (f"user: {n}", f"assistant: to {n}")]
    assert texts(session.messages) == expected
    assert (max(most), session.turn_index) == (1, 5)


async def test_a_failed_turn_lets_the_next_one_in() -> None:
    outcomes: list[str] = []

    async def submit(text: str) -> None:
        try:
            outcomes.append((await session.submit_turn(text)).content)
        except AgentError as error:
            outcomes.append(type(error).__name__)

    session, _ = session_of([ValueError("odd"), "two"])
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(submit, "a")
        await yield_often(1)
        tasks.start_soon(submit, "b")
    assert outcomes == ["OtherAgentError", "two"]
    assert texts(session.messages) == ["user: b", "assistant: two"]


async def test_limits_are_looked_at_when_a_turn_begins() -> None:
    limits: list[str] = []

    async def submit(text: str) -> None:
        try:
            await session.submit_turn(text)
        except LimitExceededError as error:
            limits.append(error.limit)

    session, provider = session_of(["one"], max_turns=1)
    async with anyio.create_task_group() as tasks:
        for n in range(3):
            tasks.start_soon(submit, str(n))
    assert (limits, len(provider.calls), session.turn_index) == (["max_turns"] * 2, 1, 1)


@pytest.mark.parametrize("event", [HookEvent.ON_TURN_START, HookEvent.PRE_REQUEST, HookEvent.ON_TURN_END])
async def test_a_turn_inside_a_turn_of_the_same_session_is_refused(event: HookEvent) -> None:
    hooks = HookExecutor()
    other, _ = session_of(["other"])
    said: list[Any] = []

    async def submit(ctx: HookContext) -> None:
        said.append((await other.submit_turn("in between")).content)
        with pytest.raises(OtherAgentError, match="from inside a turn of it") as caught:
            await session.submit_turn("in between")
        said.append(caught.value.hint is not None)

    hooks.register(event, submit, critical=True)
    session, _ = session_of(["one"], hooks=hooks)
    with anyio.fail_after(5):
        assert (await session.submit_turn("a")).content == "one"
    assert said == ["other", True]


async def test_a_tool_that_submits_a_turn_of_its_own_session_gets_an_error() -> None:
    async def again(text: str) -> str:
        """Ask once more."""
        return (await session.submit_turn(text)).content

    session, _ = session_of([asks(call("1", "again", text="x")), "done"], again)
    with anyio.fail_after(5):
        await session.submit_turn("a")
    assert "from inside a turn of it" in texts(session.messages)[2]


# --- branches ----------------------------------------------------------------------------------------------


async def test_branches_run_beside_the_session_and_it_takes_up_their_turns() -> None:
    hooks = HookExecutor()
    session, provider = session_of(["one", "left", "right", "last"], hooks=hooks)
    await session.submit_turn("a")
    heard = Heard(hooks, [HookEvent.ON_TURN_START])
    history = list(session.messages)
    branches = [session.branch(offset, history) for offset in range(2)]
    for branch, text in zip(branches, "xy", strict=True):
        await branch.submit_turn(text)
    assert [ctx.turn_index for ctx in heard] == [1, 2]
    assert session.messages == history
    assert session.cost_so_far.calls == 3
    session.absorb([branch.messages[len(history) :] for branch in branches], 2)
    assert texts(session.messages)[2:] == ["user: x", "assistant: left", "user: y", "assistant: right"]
    assert session.turn_index == 3
    await session.submit_turn("z")
    assert len(provider.calls[3].messages) == 7


async def test_a_branch_keeps_what_it_was_given_as_it_is() -> None:
    session, provider = session_of(["one"])
    history = [Message.user("a"), Message.assistant("", [call("1")])]
    branch = session.branch(0, history)
    await branch.submit_turn("b")
    assert texts(branch.messages[len(history) :]) == ["user: b", "assistant: one"]
    assert is_paired(provider.calls[0].messages)


async def test_what_branches_bring_waits_for_the_turn_that_is_going_on() -> None:
    hooks = HookExecutor()
    session, _ = session_of(["one"], hooks=hooks)
    brought = [[Message.user("x"), Message.assistant("left")]]
    hooks.register(HookEvent.PRE_REQUEST, lambda ctx: session.absorb(brought, 1))
    await session.submit_turn("a")
    assert texts(session.messages) == ["user: a", "assistant: one", "user: x", "assistant: left"]
    assert session.turn_index == 2


# --- plain data --------------------------------------------------------------------------------------------


async def test_a_session_is_plain_data_and_can_be_gone_on_with() -> None:
    first, _ = session_of(["one"])
    await first.submit_turn("a")
    stored: Session = pickle.loads(pickle.dumps(first.session))  # noqa: S301 - its own bytes
    assert stored == first.session == copy.deepcopy(first.session)
    provider = ScriptedProvider(["two"])
    session = AgentSession("s-1", SimpleAgent("a"), bundle_of(provider), session=stored)
    await session.submit_turn("b")
    assert texts(provider.calls[0].messages) == ["user: a", "assistant: one", "user: b"]
    assert (session.turn_index, first.turn_index) == (2, 1)


def test_a_session_can_be_taken_apart() -> None:
    session = Session("s", [Message.user("a")], {"k": 1}, 3)
    assert asdict(session) == {"id": "s", "messages": [Message.user("a")], "state": {"k": 1}, "turn_index": 3}


@pytest.mark.parametrize(("id", "messages"), [("", []), (None, []), ("s", None), ("s", (Message.user("a"),))])
def test_what_makes_no_session_is_refused(id: Any, messages: Any) -> None:
    with pytest.raises(ConfigError):
        Session(id, messages)


def test_a_session_does_not_know_of_the_memory_of_conversations() -> None:
    import graphrt.agent.session as module

    assert not any("ConversationMemory" in name for name in vars(module))


async def test_a_bridge_in_every_world_calls_the_same_hooks() -> None:
    session, _ = session_of(["one"])
    world = session.bundle.to_registry_set(session.agent)
    (bridge,) = [world.plugins.get(id) for id in world.plugins.ids()]
    assert isinstance(bridge, HookBridgePlugin)
    assert bridge.hooks is session.bundle.hook_executor
    assert HookResult.ok().blocked is False
