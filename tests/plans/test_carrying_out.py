"""Plans whose steps follow one another: turns, hooks, failures, cancellations."""

from __future__ import annotations

import logging
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from graphrt import RunEvent
from graphrt.agent.parser import JsonPlanParser
from graphrt.agent.plan import FailurePolicy, Plan, Step, StepState
from graphrt.agent.task import SessionTaskAgent
from graphrt.errors import AgentError, ConfigError, OtherAgentError, RunCancelledError
from graphrt.hooks import HookContext, HookEvent
from graphrt.messages import Message
from graphrt.nodes.plan import compile_plan
from tests.plans.helpers import FakeSession, fails_on, moves, plan_of, states, told
from tests.telemetry.collecting import Collected

pytestmark = pytest.mark.anyio


def agent(session: FakeSession, **options: Any) -> SessionTaskAgent:
    return SessionTaskAgent(session, JsonPlanParser(), **options)  # type: ignore[arg-type]  # a session's stand-in


async def test_each_step_is_one_turn_in_order() -> None:
    """A-067."""
    session = FakeSession()
    plan = plan_of("a", "b", "c")
    assert await agent(session).execute_plan(plan) is plan
    assert states(plan) == ["completed"] * 3
    assert [step.status.response.content for step in plan.steps if step.status.response] == ["did a", "did b", "did c"]
    assert [(turn.text, turn.turn_index, len(turn.history)) for turn in session.turns] == [
        ("a", 0, 0),
        ("b", 1, 2),
        ("c", 2, 4),
    ]
    assert session.absorbed == []


async def test_failed_step_stops_the_plan_and_keeps_its_error() -> None:
    """AC-A23."""
    session = FakeSession(answer=fails_on("b"))
    plan = await agent(session).execute_plan(plan_of("a", "b", "c"))
    assert states(plan) == ["completed", "failed", "skipped"]
    error = plan.steps[1].status.error
    assert isinstance(error, AgentError)
    assert isinstance(error.cause, ValueError)
    assert plan.steps[2].status.reason == "step 1 has failed"
    assert session.texts == ["a", "b"]


async def test_policy_may_let_later_steps_go_on() -> None:
    """D-14."""
    session = FakeSession(answer=fails_on("a"))
    plan = await agent(session, failure_policy=FailurePolicy.CONTINUE).execute_plan(plan_of("a", "b", "c"))
    assert states(plan) == ["failed", "completed", "completed"]
    assert session.texts == ["a", "b", "c"]


async def test_policy_may_be_given_as_text_and_must_be_known() -> None:
    assert agent(FakeSession(), failure_policy="continue").failure_policy is FailurePolicy.CONTINUE
    with pytest.raises(ConfigError, match="failure_policy is 'retry'"):
        agent(FakeSession(), failure_policy="retry")
    with pytest.raises(ConfigError, match="failure_policy is 'retry'"):
        compile_plan(plan_of("a"), FakeSession(), failure_policy="retry")  # type: ignore[arg-type]  # as said


@pytest.mark.parametrize("policy", FailurePolicy)
async def test_step_that_depends_on_one_that_failed_or_was_skipped_is_skipped(policy: FailurePolicy) -> None:
    session = FakeSession(answer=fails_on("a"))
    plan = plan_of("a", "b", "c", _1=[0], _2=[1])
    await agent(session, failure_policy=policy).execute_plan(plan)
    assert states(plan) == ["failed", "skipped", "skipped"]
    assert [step.status.reason for step in plan.steps[1:]] == [
        "it depends on step 0, which has failed",
        "it depends on step 1, which was skipped",
    ]


async def test_caller_may_skip_steps() -> None:
    """D-14."""
    asked: list[tuple[int, str]] = []

    def not_b(step: Step) -> bool:
        asked.append((step.index, step.status.state.value))
        return step.description == "b"

    async def later(step: Step) -> bool:
        await anyio.lowlevel.checkpoint()
        return not_b(step)

    for skip_if in (not_b, later):
        session = FakeSession()
        plan = await agent(session, skip_if=skip_if).execute_plan(plan_of("a", "b", "c"))
        assert states(plan) == ["completed", "skipped", "completed"]
        assert session.texts == ["a", "c"]
    assert asked == [(0, "running"), (1, "running"), (2, "running")] * 2


async def test_question_that_fails_makes_its_step_fail() -> None:
    session = FakeSession()
    plan = await agent(session, skip_if=lambda step: 1 / 0).execute_plan(plan_of("a", "b"))
    assert states(plan) == ["failed", "skipped"]
    assert session.turns == []


async def test_plan_that_is_finished_is_not_carried_out_again() -> None:
    """A-069."""
    collected = Collected()
    session = FakeSession(answer=fails_on("b"), telemetry=collected.telemetry)
    found = told(session)
    plan = await agent(session).execute_plan(plan_of("a", "b", "c"))
    before = [step.status for step in plan.steps]
    session.turns.clear()
    found.clear()
    collected.clear()
    assert await agent(session).execute_plan(plan) is plan
    assert collected.spans == []
    assert (await compile_plan(plan, session).run()).output is plan
    assert [step.status for step in plan.steps] == before
    assert session.turns == []
    assert found == []


async def test_steps_that_have_ended_are_left_as_they_are() -> None:
    """A-069."""
    session = FakeSession()
    plan = plan_of("a", "b", "c")
    plan.steps[0].start()
    plan.steps[0].skip("done by hand")
    found = told(session)
    await agent(session).execute_plan(plan)
    assert states(plan) == ["skipped", "completed", "completed"]
    assert plan.steps[0].status.reason == "done by hand"
    assert moves(found) == [(1, "running"), (1, "completed"), (2, "running"), (2, "completed")]


async def test_plan_is_carried_out_once_at_a_time() -> None:
    session = FakeSession(seconds=0.01)
    plan = plan_of("a", "b")
    refused: list[AgentError] = []

    async def again() -> None:
        while plan.steps[0].status.state is not StepState.RUNNING:
            await anyio.lowlevel.checkpoint()
        with pytest.raises(ConfigError, match="'p' is being carried out already: step 0 is running") as raised:
            await agent(session).execute_plan(plan)
        refused.append(raised.value)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(agent(session).execute_plan, plan)
        tasks.start_soon(again)
    assert len(refused) == 1
    assert states(plan) == ["completed", "completed"]
    assert session.texts == ["a", "b"]


async def test_what_is_no_plan_is_refused() -> None:
    with pytest.raises(ConfigError, match="which is no Plan"):
        await agent(FakeSession()).execute_plan(["a"])  # type: ignore[arg-type]  # as said


async def test_plan_without_steps_has_nothing_to_do() -> None:
    session = FakeSession()
    plan = Plan("nothing", [])
    assert await agent(session).execute_plan(plan) is plan
    assert (await compile_plan(plan, session).run()).output is plan
    assert session.turns == []


# ---------------------------------------------------------------- hooks


async def test_hooks_are_told_of_each_start_and_each_end() -> None:
    """A-064, D-13."""
    session = FakeSession(answer=fails_on("b"))
    found = told(session)
    plan = await agent(session).execute_plan(plan_of("a", "b", "c"))
    assert moves(found) == [
        (0, "running"),
        (0, "completed"),
        (1, "running"),
        (1, "failed"),
        (2, "running"),
        (2, "skipped"),
    ]
    assert {context.session_id for context in found} == {"s-1"}
    assert len({context.run_id for context in found}) == 1
    assert {context.turn_index for context in found} == {None}
    assert [dict(context.data) for context in found][1::2] == [
        {"status": "completed", "response": plan.steps[0].status.response},
        {"status": "failed", "error": plan.steps[1].status.error},
        {"status": "skipped", "reason": "step 1 has failed"},
    ]


async def test_hook_that_fails_is_passed_over(caplog: pytest.LogCaptureFixture) -> None:
    def broken(context: HookContext) -> None:
        raise ValueError("broken hook")

    session = FakeSession()
    session.bundle.hook_executor.register(HookEvent.ON_PLAN_STEP_COMPLETE, broken)
    with caplog.at_level(logging.CRITICAL):
        plan = await agent(session).execute_plan(plan_of("a"))
    assert states(plan) == ["completed"]


@pytest.mark.parametrize(
    ("status", "expected", "turns"),
    [("running", ["failed", "pending"], []), ("completed", ["completed", "pending"], ["a"])],
)
async def test_critical_hook_ends_the_plan(status: str, expected: list[str], turns: list[str]) -> None:
    def broken(context: HookContext) -> None:
        if context.data["status"] == status:
            raise ValueError("broken hook")

    session = FakeSession()
    found = told(session)
    session.bundle.hook_executor.register(HookEvent.ON_PLAN_STEP_COMPLETE, broken, critical=True)
    plan = plan_of("a", "b")
    with pytest.raises(OtherAgentError, match="broken hook"):
        await agent(session).execute_plan(plan)
    assert states(plan) == expected
    assert session.texts == turns
    assert moves(found) == [(0, "running"), (0, expected[0])]


# ---------------------------------------------------------------- cancellation


async def test_cancelled_step_has_failed_and_the_others_wait() -> None:
    session = FakeSession(answer="did {}".format, seconds=60)
    found = told(session)
    at_last: list[str] = []

    async def slow(context: HookContext) -> None:
        await anyio.lowlevel.checkpoint()
        at_last.append(context.data["status"])

    session.bundle.hook_executor.register(HookEvent.ON_PLAN_STEP_COMPLETE, slow)
    plan = plan_of("a", "b")
    with anyio.CancelScope() as scope:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(agent(session).execute_plan, plan)
            while not session.turns:
                await anyio.lowlevel.checkpoint()
            scope.cancel()
    assert scope.cancelled_caught
    assert states(plan) == ["failed", "pending"]
    error = plan.steps[0].status.error
    assert error is not None
    assert isinstance(error.cause, RunCancelledError)
    assert not error.is_recoverable()
    assert moves(found) == [(0, "running"), (0, "failed")]
    assert at_last == ["running", "failed"]
    assert session.messages == []


async def test_hook_that_hangs_does_not_keep_a_cancelled_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("graphrt.nodes.plan._LAST_WORD", 0.01)

    async def hang(context: HookContext) -> None:
        if context.data["status"] == "failed":
            await anyio.sleep_forever()

    session = FakeSession(seconds=60)
    session.bundle.hook_executor.register(HookEvent.ON_PLAN_STEP_COMPLETE, hang)
    plan = plan_of("a")
    with anyio.move_on_after(0.02) as scope:
        await agent(session).execute_plan(plan)
    assert scope.cancelled_caught
    assert states(plan) == ["failed"]


async def test_run_that_is_out_of_time_leaves_no_step_running() -> None:
    session = FakeSession(seconds=60)
    plan = plan_of("a", "b")
    with pytest.raises(TimeoutError):
        await compile_plan(plan, session).run(timeout=0.02)
    assert states(plan) == ["failed", "pending"]


async def test_interrupt_passes_and_leaves_no_step_running() -> None:
    def interrupt(text: str) -> str:
        raise KeyboardInterrupt

    session = FakeSession(answer=interrupt)
    plan = plan_of("a", "b")
    with pytest.raises(KeyboardInterrupt):
        await agent(session).execute_plan(plan)
    assert states(plan) == ["failed", "pending"]


# ---------------------------------------------------------------- the graph


async def test_graph_of_a_plan_has_its_steps_one_after_another() -> None:
    graph = compile_plan(plan_of("gather all there is to know of whales", "b", "c"), FakeSession())
    assert graph.name == "p"
    assert list(graph.nx.edges()) == [
        ("START", "plan_start"),
        ("plan_start", "step:0"),
        ("step:0", "step:1"),
        ("step:1", "step:2"),
        ("step:2", "plan_end"),
        ("plan_end", "END"),
    ]
    assert {graph.nx.nodes[f"step:{i}"]["kind"] for i in range(3)} == {"plan_step"}
    assert graph.nx.nodes["step:0"]["label"] == "step:0 gather all there is to know of whales"
    assert "step:1" in graph.to_mermaid()


async def test_edges_follow_what_steps_depend_on() -> None:
    plan = plan_of("a", "b", "c", "d", _2=[0, 1], _3=[1])
    edges = set(compile_plan(plan, FakeSession()).nx.edges())
    assert edges == {
        ("START", "plan_start"),
        ("plan_start", "step:0"),
        ("plan_start", "step:1"),
        ("step:0", "step:2"),
        ("step:1", "step:2"),
        ("step:1", "step:3"),
        ("step:2", "plan_end"),
        ("step:3", "plan_end"),
        ("plan_end", "END"),
    }


async def test_run_of_the_graph_gives_the_plan_and_the_states() -> None:
    session = FakeSession(answer=fails_on("b"))
    plan = plan_of("a", "b", "c")
    events: list[RunEvent] = []
    result = await compile_plan(plan, session).run(on_event=events.append)
    assert result.output is plan
    given = {event.step.node: event.data["output"] for event in events if event.type == "step.completed" and event.step}
    assert given == {
        "plan_start": None,
        "step:0": "completed",
        "step:1": "failed",
        "step:2": "skipped",
        "plan_end": plan,
    }


async def test_steps_are_checked_again_when_the_plan_is_compiled() -> None:
    plan = plan_of("a", "b")
    plan.steps.append(Step(7, "c"))
    with pytest.raises(ConfigError, match="place 2 of plan 'p' has index 7"):
        compile_plan(plan, FakeSession())


async def test_hooks_may_be_others_than_the_sessions() -> None:
    session, other = FakeSession(), FakeSession()
    found, others = told(session), told(other)
    await compile_plan(plan_of("a"), session, hooks=other.bundle.hook_executor).run()
    assert found == []
    assert moves(others) == [(0, "running"), (0, "completed")]


async def test_turns_of_a_plan_are_part_of_the_conversation() -> None:
    session = FakeSession()
    session.messages = [Message.user("hi"), Message.assistant("hello")]
    session.turn_index = 1
    await agent(session).execute_plan(plan_of("a", "b"))
    assert [each.content for each in session.messages] == ["hi", "hello", "a", "did a", "b", "did b"]
    assert session.turn_index == 3
