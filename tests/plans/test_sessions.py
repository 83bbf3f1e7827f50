"""Plans in a real session: the same rules, with an agent that asks a scripted model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from graphrt.agent import AgentBuilder, AgentSession, JsonPlanParser, Plan, SessionTaskAgent, SimpleAgent, Step
from graphrt.config import AgentConfig
from graphrt.errors import AgentLlmError, LlmError, LlmErrorKind
from graphrt.hooks import HookContext, HookEvent, HookExecutor
from graphrt.llm import ScriptedProvider
from graphrt.messages import LLMResponse, Message, TokenUsage, ToolCall
from graphrt.nodes.plan import compile_plan
from graphrt.telemetry import Telemetry
from graphrt.tools import ToolRegistry
from tests.plans.helpers import moves, plan_of, states
from tests.telemetry.collecting import Collected, attributes, status

pytestmark = pytest.mark.anyio


def answering(answers: Mapping[str, LLMResponse | Exception]) -> ScriptedProvider:
    """Answer by what the last message says, whatever the order in which it is asked."""

    def answer(messages: list[Message], *_: Any) -> LLMResponse | Exception:
        said = messages[-1].content
        return answers.get(said, LLMResponse(f"did {said}"))

    return ScriptedProvider([answer] * 9)


def session_of(
    provider: ScriptedProvider, *, telemetry: Telemetry | None = None, config: AgentConfig | None = None
) -> AgentSession:
    bundle = (
        AgentBuilder()
        .provider(provider)
        .tool_registry(ToolRegistry())
        .hook_executor(HookExecutor())
        .config(config or AgentConfig())
        .build()
    )
    return AgentSession("s-1", SimpleAgent("helper", "Be brief."), bundle, telemetry=telemetry)


def watched(session: AgentSession, *events: HookEvent) -> list[HookContext]:
    found: list[HookContext] = []
    for event in events:
        session.bundle.hook_executor.register(event, found.append, name="watch")
    return found


DOWN = LlmError("down", LlmErrorKind.UNAUTHORIZED)


async def test_goal_becomes_a_plan_that_is_carried_out() -> None:
    """AC-A27."""
    reply = '{"steps":[{"description":"build"},{"description":"ship"}]}'
    provider = ScriptedProvider(
        [LLMResponse(reply, usage=TokenUsage(10, 1)), LLMResponse("built", usage=TokenUsage(1, 1)), LLMResponse("out")]
    )
    session = session_of(provider)
    plan = await SessionTaskAgent(session, JsonPlanParser()).run("ship it")
    assert plan.goal == "ship it"
    assert states(plan) == ["completed", "completed"]
    assert [step.status.response.content for step in plan.steps if step.status.response] == ["built", "out"]
    assert session.turn_index == 2
    assert [each.content for each in session.messages] == ["build", "built", "ship", "out"]
    assert session.cost_so_far.calls == 3
    assert session.cost_so_far.total.input_tokens == 11
    assert [call.messages[0].content for call in provider.calls[1:]] == ["Be brief.", "Be brief."]


async def test_failed_step_stops_the_plan_and_keeps_its_error() -> None:
    """AC-A23, A-065."""
    provider = answering({"b": DOWN})
    session = session_of(provider)
    found = watched(session, HookEvent.ON_PLAN_STEP_COMPLETE)
    plan = await SessionTaskAgent(session, JsonPlanParser()).execute_plan(plan_of("a", "b", "c"))
    assert states(plan) == ["completed", "failed", "skipped"]
    assert isinstance(plan.steps[1].status.error, AgentLlmError)
    assert plan.steps[1].status.error.cause is DOWN
    assert [call.messages[-1].content for call in provider.calls] == ["a", "b"]
    assert session.turn_index == 1
    assert moves(found)[1::2] == [(0, "completed"), (1, "failed"), (2, "skipped")]


async def test_spans_of_a_plan_hold_those_of_its_turns() -> None:
    """AC-C15."""
    collected = Collected()
    session = session_of(answering({"b": DOWN}), telemetry=collected.telemetry)
    await SessionTaskAgent(session, JsonPlanParser()).execute_plan(plan_of("a", "b"))
    collected.check_whole()
    plan = collected.one("plan p")
    assert collected.children(plan) == ["node plan_start", "plan_step step:0", "plan_step step:1", "node plan_end"]
    steps = collected.of_kind("plan_step")
    assert [attributes(step)["graphrt.plan.step.index"] for step in steps] == [0, 1]
    assert [attributes(step)["graphrt.plan.step.state"] for step in steps] == ["completed", "failed"]
    assert [status(step)[0] for step in steps] == ["UNSET", "ERROR"]
    for step in steps:
        assert collected.children(step) == ["invoke_agent helper"]
    assert len(collected.of_kind("turn")) == 2


async def test_parallel_steps_are_turns_of_one_session() -> None:
    provider = answering({"c": LLMResponse("", [ToolCall("1", "none", {})]), "d": DOWN})
    session = session_of(provider, telemetry=Collected().telemetry)
    session.messages.extend([Message.user("hi"), Message.assistant("hello")])
    session.session.turn_index = 1
    found = watched(session, HookEvent.ON_TURN_END)
    plan = plan_of("a", "b", "c", "d", _2=[0, 1], _3=[1])
    await compile_plan(plan, session, failure_policy="continue").run()  # type: ignore[arg-type]  # as text
    assert states(plan) == ["completed", "completed", "completed", "failed"]
    assert session.turn_index == 4
    assert [(each.role.value, each.content) for each in session.messages[:7]] == [
        ("user", "hi"),
        ("assistant", "hello"),
        ("user", "a"),
        ("assistant", "did a"),
        ("user", "b"),
        ("assistant", "did b"),
        ("user", "c"),
    ]
    assert [each.role.value for each in session.messages[7:]] == ["assistant", "tool", "assistant"]
    assert sorted(context.turn_index or 0 for context in found) == [1, 2, 3]
    asked = {call.messages[-1].content: [each.content for each in call.messages] for call in provider.calls}
    assert asked["a"] == ["Be brief.", "hi", "hello", "a"]
    assert asked["c"] == ["Be brief.", "hi", "hello", "a", "did a", "b", "did b", "c"]
    assert session.cost_so_far.calls == 4
    answer = await session.submit_turn("e")
    assert answer.content == "did e"
    assert session.turn_index == 5


async def test_turns_beyond_the_limit_of_a_session_fail() -> None:
    session = session_of(answering({}), config=AgentConfig(max_turns=2))
    plan = Plan("g", [Step(0, "a"), Step(1, "b"), Step(2, "c", depends_on=[0, 1])])
    await compile_plan(plan, session).run()
    assert states(plan) == ["completed", "completed", "failed"]
    assert session.turn_index == 2
