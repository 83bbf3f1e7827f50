"""From a goal to a plan that has been carried out."""

from __future__ import annotations

import logging
from typing import Any

import anyio
import pytest

from graphrt.agent.parser import JsonPlanParser
from graphrt.agent.plan import Plan, Step
from graphrt.agent.task import DEFAULT_PLANNING_PROMPT, SessionTaskAgent, TaskAgent
from graphrt.config import AgentConfig
from graphrt.errors import (
    AgentLlmError,
    ConfigError,
    HookBlockedError,
    LimitExceededError,
    LlmError,
    LlmErrorKind,
    PlanParseError,
)
from graphrt.hooks import HookContext, HookEvent, HookResult
from graphrt.messages import LLMResponse, TokenUsage
from tests.plans.helpers import FakeSession, fails_on, states

pytestmark = pytest.mark.anyio

TWO_STEPS = LLMResponse('{"steps":[{"description":"build"},{"description":"ship"}]}', usage=TokenUsage(10, 5))


def agent(session: FakeSession, parser: Any = None, **options: Any) -> SessionTaskAgent:
    given: Any = session
    return SessionTaskAgent(given, parser or JsonPlanParser(), **options)


async def test_goal_becomes_a_plan_that_is_carried_out() -> None:
    """AC-A27."""
    session = FakeSession(TWO_STEPS)
    plan = await agent(session).run("ship it")
    assert plan.goal == "ship it"
    assert states(plan) == ["completed", "completed"]
    assert session.texts == ["build", "ship"]


@pytest.mark.parametrize("parser", [None, "json", JsonPlanParser])
def test_task_agent_needs_a_parser(parser: Any) -> None:
    """AC-A27."""
    session: Any = FakeSession()
    with pytest.raises(ConfigError, match="which parses no plans"):
        SessionTaskAgent(session, parser)
    with pytest.raises(TypeError, match="plan_parser"):
        SessionTaskAgent(session)  # type: ignore[call-arg]  # as said


def test_task_agent_has_both_entrances() -> None:
    """A-068."""
    with pytest.raises(TypeError, match=r"execute_plan.*run"):
        TaskAgent()  # type: ignore[abstract]  # as said
    assert isinstance(agent(FakeSession()), TaskAgent)


async def test_run_carries_its_plan_out_as_any_other() -> None:
    """A-068."""
    seen: list[Plan] = []

    class Watching(SessionTaskAgent):
        async def execute_plan(self, plan: Plan) -> Plan:
            seen.append(plan)
            return await super().execute_plan(plan)

    session: Any = FakeSession(TWO_STEPS)
    plan = await Watching(session, JsonPlanParser()).run("g")
    assert seen == [plan]


async def test_planner_is_asked_once_and_it_is_no_turn() -> None:
    session = FakeSession(TWO_STEPS, config=AgentConfig(temperature=0.2, max_tokens=50))
    await agent(session).run("ship it")
    (call,) = session.bundle.provider.calls
    assert [(each.role, each.content) for each in call.messages] == [
        ("system", f"{DEFAULT_PLANNING_PROMPT}\n\n{JsonPlanParser.instructions}"),
        ("user", "ship it"),
    ]
    assert not call.tools
    assert call.kwargs["temperature"] == 0.2
    assert call.kwargs["max_tokens"] == 50
    assert session.cost_so_far.calls == 1
    assert session.cost_so_far.total == TokenUsage(10, 5)
    assert [turn.turn_index for turn in session.turns] == [0, 1]
    assert [each.content for each in session.messages] == ["build", "did build", "ship", "did ship"]


async def test_prompt_and_parser_are_the_applications() -> None:
    class Lines:
        async def parse(self, raw: str, goal: str) -> Plan:
            return Plan(goal, [Step(i, line) for i, line in enumerate(raw.splitlines())])

    session = FakeSession(LLMResponse("one\ntwo"))
    plan = await agent(session, Lines(), planning_prompt="One step a line.").run("count")
    assert [step.description for step in plan.steps] == ["one", "two"]
    assert session.bundle.provider.calls[0].messages[0].content == "One step a line."


async def test_failed_step_of_a_run_is_no_error() -> None:
    """D-14."""
    session = FakeSession(TWO_STEPS, answer=fails_on("build"))
    assert states(await agent(session).run("g")) == ["failed", "skipped"]


async def test_planner_that_cannot_be_asked_is_an_error() -> None:
    down = LlmError("down", LlmErrorKind.UNAUTHORIZED)
    session = FakeSession(down)
    found: list[HookContext] = []
    session.bundle.hook_executor.register(HookEvent.ON_ERROR, found.append)
    with pytest.raises(AgentLlmError) as raised:
        await agent(session).run("g")
    assert raised.value.cause is down
    assert [context.data["error"] for context in found] == [raised.value]
    assert session.turns == []


async def test_critical_hook_does_not_hide_why_there_is_no_plan() -> None:
    def broken(context: HookContext) -> None:
        raise ValueError("broken hook")

    session = FakeSession(LlmError("down"))
    session.bundle.hook_executor.register(HookEvent.ON_ERROR, broken, critical=True)
    logging.getLogger("graphrt.agent.turn").disabled = True
    try:
        with pytest.raises(AgentLlmError, match="down"):
            await agent(session).run("g")
    finally:
        logging.getLogger("graphrt.agent.turn").disabled = False


@pytest.mark.parametrize("parser", [JsonPlanParser, None])
async def test_answer_that_is_no_plan_is_an_error(parser: type[JsonPlanParser] | None) -> None:
    class Broken:
        async def parse(self, raw: str, goal: str) -> Plan:
            raise KeyError(raw)

    session = FakeSession(LLMResponse("first this, then that", usage=TokenUsage(3, 4)))
    with pytest.raises(PlanParseError):
        await agent(session, parser() if parser else Broken()).run("g")
    assert session.turns == []
    assert session.cost_so_far.total == TokenUsage(3, 4)


async def test_parser_that_gives_no_plan_is_an_error() -> None:
    class Empty:
        async def parse(self, raw: str, goal: str) -> Any:
            return [raw]

    with pytest.raises(ConfigError, match="gave a list"):
        await agent(FakeSession(TWO_STEPS), Empty()).run("g")


async def test_planner_has_as_long_as_a_turn() -> None:
    async def slow(*_: Any) -> LLMResponse:
        await anyio.sleep_forever()
        raise AssertionError

    session = FakeSession(slow, config=AgentConfig(timeout_seconds=0.02))  # type: ignore[arg-type]  # called when asked
    with pytest.raises(LimitExceededError) as raised:
        await agent(session).run("g")
    assert raised.value.limit == "timeout"


async def test_hooks_stand_around_the_planners_request() -> None:
    session = FakeSession(TWO_STEPS)
    found: list[HookContext] = []
    for event in (HookEvent.PRE_REQUEST, HookEvent.POST_REQUEST):
        session.bundle.hook_executor.register(event, found.append)
    await agent(session).run("g")
    assert [context.event for context in found] == [HookEvent.PRE_REQUEST, HookEvent.POST_REQUEST]
    assert {context.session_id for context in found} == {"s-1"}
    assert found[0].data["messages"][-1].content == "g"
    assert dict(found[1].data) == {**found[0].data, "response": TWO_STEPS}


async def test_hook_may_refuse_the_planners_request() -> None:
    session = FakeSession(TWO_STEPS)
    session.bundle.hook_executor.register(HookEvent.PRE_REQUEST, lambda context: HookResult.block("not today"))
    with pytest.raises(HookBlockedError, match="not today"):
        await agent(session).run("g")
    assert session.bundle.provider.calls == []


async def test_parameters_of_the_planner_are_sent_with_its_request_alone() -> None:
    session = FakeSession(TWO_STEPS)
    await agent(session, planning_params={"seed": 7, "temperature": 0.0}).run("g")
    sent = session.bundle.provider.calls[0].kwargs
    assert (sent["seed"], sent["temperature"]) == (7, 0.0)
