"""Faults that others have had."""

from __future__ import annotations

from collections import deque
from typing import Any

import anyio
import pytest

from graphrt import AgentConfig, HookEvent, HookExecutor, LimitExceededError
from graphrt.agent import AgentCycle, AgentRuntime, Session, SimpleAgent
from graphrt.config import CompactConfig
from graphrt.errors import AgentError, AgentLlmError, HookBlockedError, LlmError, LlmErrorKind
from graphrt.hooks import HookContext, HookResult
from graphrt.llm import LlmCycle, ScriptedProvider
from graphrt.messages import Message, Role
from tests.agent.helpers import add, asks, bundle_of, call, is_paired, session_of, texts
from tests.engine.helpers import FAKE_TIME, yield_often

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module", params=FAKE_TIME)
def anyio_backend(request: pytest.FixtureRequest) -> Any:
    """Run every async test on both event loops, in fake time."""
    return request.param


async def hang(messages: Any, tools: Any, kwargs: Any) -> str:
    await anyio.sleep_forever()
    return ""


COMPACT = CompactConfig(threshold_tokens=20, keep_recent=1, min_savings_ratio=0.0)
LONG = [Message.user("ants " * 40), Message.assistant("ants! " * 40)]


async def test_a_turn_that_times_out_in_its_compaction_lets_the_next_one_in() -> None:
    """B-046."""
    outcomes: list[str] = []
    session, provider = session_of([hang, "they spoke of ants", "go on"], compact_config=COMPACT, timeout_seconds=10)
    session.messages.extend(LONG)

    async def submit(text: str) -> None:
        try:
            outcomes.append((await session.submit_turn(text)).content)
        except LimitExceededError as error:
            outcomes.append(error.limit)

    started = anyio.current_time()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(submit, "a")
        await yield_often(3)
        tasks.start_soon(submit, "b")
    assert outcomes == ["timeout", "go on"]
    assert anyio.current_time() - started == pytest.approx(10, abs=0.5)
    assert session.messages[:2] == LONG
    assert len(provider.calls) == 3


async def test_a_processed_turn_that_times_out_in_its_compaction_lets_the_next_one_in() -> None:
    """B-046."""
    provider = ScriptedProvider([hang, "they spoke of ants", "go on"])
    config = AgentConfig(compact_config=COMPACT, timeout_seconds=10, timeout_reply="too slow")
    runtime = AgentRuntime.from_provider(provider, config=config)
    session = Session("s", list(LONG))
    assert await runtime.process("a", session) == "too slow"
    assert await runtime.process("b", session) == "go on"


@pytest.mark.parametrize("event", [HookEvent.ON_TURN_START, HookEvent.PRE_REQUEST])
async def test_no_tool_runs_and_no_model_is_asked_while_a_slow_check_has_not_passed(event: HookEvent) -> None:
    """B-104."""
    ran: list[int] = []

    async def count(n: int) -> int:
        """Count."""
        ran.append(n)
        return n

    async def check(ctx: HookContext) -> HookResult:
        await anyio.sleep(0.2)
        return HookResult.block("not this")

    hooks = HookExecutor()
    hooks.register(event, check)
    session, provider = session_of([asks(call("1", "count", n=1))], count, hooks=hooks)
    with pytest.raises(HookBlockedError, match="not this"):
        await session.submit_turn("count")
    with pytest.raises(HookBlockedError, match="not this"):
        async with session.stream_turn("count") as turn:
            assert [event async for event in turn if event.type.startswith("tool")] == []
    assert (ran, provider.calls, session.messages) == ([], [], [])


async def test_a_check_in_a_later_round_undoes_the_whole_turn() -> None:
    hooks = HookExecutor()

    def check(ctx: HookContext) -> HookResult:
        late = any(each.role is Role.TOOL for each in ctx.data["messages"])
        return HookResult.block("enough") if late else HookResult.ok()

    hooks.register(HookEvent.PRE_REQUEST, check)
    session, provider = session_of([asks(call("1", a=1, b=2)), "never"], add, hooks=hooks)
    with pytest.raises(HookBlockedError):
        await session.submit_turn("add")
    assert (len(provider.calls), session.messages) == (1, [])
    assert session.cost_so_far.calls == 1


async def test_a_long_wait_in_the_queue_takes_no_time_of_the_turn() -> None:
    async def slowly(messages: Any, tools: Any, kwargs: Any) -> str:
        await anyio.sleep(4)
        return "done"

    session, _ = session_of([slowly] * 3, timeout_seconds=5)
    async with anyio.create_task_group() as tasks:
        for n in range(3):
            tasks.start_soon(session.submit_turn, str(n))
    assert session.turn_index == 3


async def test_a_turn_may_be_cancelled_at_any_moment() -> None:
    """B-037, B-039."""
    finished = cancelled = 0
    for moment in range(120):
        hooks = HookExecutor()
        for event in HookEvent:
            hooks.register(event, slowly)
        session, provider = session_of(["one", asks(call("1", a=1, b=2)), "two"], add, hooks=hooks)
        await session.submit_turn("a")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(session.submit_turn, "b")
            await yield_often(moment)
            tasks.cancel_scope.cancel()
        assert is_paired(session.messages)
        whole = session.turn_index == 2
        assert len(session.messages) == (6 if whole else 2)
        finished, cancelled = finished + whole, cancelled + (not whole)
        provider._script = deque(["three"])
        with anyio.fail_after(5):
            assert (await session.submit_turn("c")).content == "three"
    assert finished
    assert cancelled > 10


async def slowly(ctx: HookContext) -> None:
    await yield_often(1)


# --- a cycle without a session -----------------------------------------------------------------------------


async def test_a_cycle_is_one_turn_without_a_session() -> None:
    hooks = HookExecutor()
    told: list[HookEvent] = []
    for event in HookEvent:
        hooks.register(event, lambda ctx: told.append(ctx.event))
    provider = ScriptedProvider([asks(call("1", a=1, b=2)), "three"])
    cycle: LlmCycle = AgentCycle(SimpleAgent("a", "be brief"), bundle_of(provider, add, hooks=hooks))
    response = await cycle.submit_with_tools([Message.user("add")])
    assert (response.content, response.rounds) == ("three", 2)
    assert told == [HookEvent.PRE_REQUEST, HookEvent.POST_REQUEST] * 2
    assert texts(provider.calls[0].messages) == ["system: be brief", "user: add"]


@pytest.mark.parametrize(
    ("script", "config", "expected"),
    [
        ([LlmError("no", LlmErrorKind.UNAUTHORIZED)], {}, AgentLlmError),
        ([asks(call("1", a=1, b=2))], {"max_rounds": 1}, LimitExceededError),
        ([hang], {"timeout_seconds": 2}, LimitExceededError),
    ],
)
async def test_what_ends_a_cycle_is_raised(script: Any, config: Any, expected: type[AgentError]) -> None:
    cycle = AgentCycle(SimpleAgent("a"), bundle_of(ScriptedProvider(script), add, config=AgentConfig(**config)))
    with pytest.raises(expected):
        await cycle.submit_with_tools([Message.user("add")])
