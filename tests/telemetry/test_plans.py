"""Spans of plans: the run of a plan is the plan, and each step holds its turn."""

from __future__ import annotations

from typing import Any

import pytest

from graphrt import END, START, RunContext, Workflow
from graphrt.agent.parser import JsonPlanParser
from graphrt.agent.task import SessionTaskAgent
from graphrt.errors import AgentError
from graphrt.nodes.plan import compile_plan
from graphrt.telemetry import conventions as names
from tests.plans.helpers import FakeSession, fails_on, plan_of, told
from tests.plans.test_task import TWO_STEPS
from tests.telemetry.collecting import Collected, attributes, exceptions, status, went_well

pytestmark = pytest.mark.anyio


async def test_plan_is_one_span_with_a_child_for_each_step_that_holds_its_turn() -> None:
    """AC-C15."""
    collected = Collected()
    session = FakeSession(answer=fails_on("b"), telemetry=collected.telemetry)
    plan = plan_of("a", "b")
    result = await compile_plan(plan, session).run(telemetry=collected.telemetry)
    collected.check_whole()
    (span,) = collected.of_kind("plan")
    assert span.name == "plan p"
    assert span.parent is None
    assert attributes(span) == {
        "graphrt.kind": "plan",
        "graphrt.plan.id": "p",
        "graphrt.run.id": result.run_id,
        "graphrt.run.status": "succeeded",
        "graphrt.session.id": "s-1",
        "gen_ai.conversation.id": "s-1",
    }
    assert collected.of_kind("run") == []
    steps = [collected.one("plan_step step:0"), collected.one("plan_step step:1")]
    assert collected.of_kind("plan_step") == steps
    for index, step in enumerate(steps):
        assert collected.parent(step) is span
        assert attributes(step)["graphrt.plan.step.index"] == index
        assert attributes(step)["graphrt.node.id"] == f"step:{index}"
        assert collected.children(step) == ["invoke_agent helper"]
    assert [attributes(step)["graphrt.plan.step.state"] for step in steps] == ["completed", "failed"]
    assert went_well(steps[0])
    assert status(steps[1]) == ("ERROR", "ValueError: cannot b")
    assert attributes(steps[1])["error.type"] == "graphrt.errors.OtherAgentError"
    assert exceptions(steps[1]) == ["ValueError: cannot b"]


async def test_skipped_step_is_a_span_without_a_turn() -> None:
    collected = Collected()
    session = FakeSession(answer=fails_on("a"), telemetry=collected.telemetry)
    await compile_plan(plan_of("a", "b"), session).run(telemetry=collected.telemetry)
    skipped = collected.one("plan_step step:1")
    assert attributes(skipped)["graphrt.plan.step.state"] == "skipped"
    assert collected.children(skipped) == []
    assert went_well(skipped)


async def test_hooks_of_a_step_are_spans_under_it() -> None:
    collected = Collected()
    session = FakeSession(telemetry=collected.telemetry)
    told(session)
    await compile_plan(plan_of("a"), session).run(telemetry=collected.telemetry)
    assert collected.children(collected.one("plan_step step:0")) == ["hook watch", "invoke_agent helper", "hook watch"]
    assert {attributes(span)["graphrt.plan.step.index"] for span in collected.of_kind("hook")} == {0}


async def test_parallel_steps_hold_their_own_turns() -> None:
    collected = Collected()
    session = FakeSession(seconds=0.001, telemetry=collected.telemetry)
    await compile_plan(plan_of("a", "b", "c", _2=[0, 1]), session).run(telemetry=collected.telemetry)
    collected.check_whole()
    for index in range(3):
        step = collected.one(f"plan_step step:{index}")
        assert collected.parent(step) is collected.one("plan p")
        assert collected.children(step) == ["invoke_agent helper"]


async def test_goal_is_content() -> None:
    collected = Collected(capture_content=True)
    await compile_plan(plan_of("a"), FakeSession()).run(telemetry=collected.telemetry)
    found = attributes(collected.one("plan p"))
    assert found["graphrt.plan.goal"] == "a goal"
    assert "graphrt.input" not in found
    assert '"did a"' in found["graphrt.output"]


async def test_plan_in_another_graph_is_a_node_of_it() -> None:
    collected = Collected()
    session = FakeSession(telemetry=collected.telemetry)
    outer = Workflow("outer")
    outer.add(compile_plan(plan_of("a"), session), name="inner")
    outer.chain(START, "inner", END)
    await outer.run(telemetry=collected.telemetry)
    assert collected.of_kind("plan") == []
    path = "invoke_workflow outer > node inner > plan_step step:0 > invoke_agent helper"
    assert collected.path(collected.one("invoke_agent helper")) == path


async def test_planning_is_a_run_of_its_own() -> None:
    collected = Collected()
    session: Any = FakeSession(TWO_STEPS, telemetry=collected.telemetry)
    with collected.telemetry.turn("around"):
        plan = await SessionTaskAgent(session, JsonPlanParser()).run("ship it")
    around = collected.one("invoke_agent around")
    assert collected.children(around) == ["invoke_workflow planning", f"plan {plan.id}"]
    assert [span.name.partition(" ")[0] for span in collected.of_kind("inference")] == ["chat"]


async def test_error_that_a_step_names_is_recorded() -> None:
    async def keep(ctx: RunContext[Any]) -> str:
        ctx.annotate(names.ERROR_TYPE, AgentError("kept"))
        return "went on"

    flow = Workflow("flow")
    flow.add(keep)
    flow.chain(START, keep, END)
    collected = Collected()
    assert (await flow.run(telemetry=collected.telemetry)).output == "went on"
    span = collected.one("node keep")
    assert status(span) == ("ERROR", "kept")
    assert exceptions(span) == ["kept"]
    assert attributes(span)["error.type"] == "graphrt.errors.AgentError"
