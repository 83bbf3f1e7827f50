"""Plans whose steps depend on others by name: what can run at once does, and each turn knows what came before."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from graphrt.agent.plan import FailurePolicy, Plan, Step
from graphrt.errors import OtherAgentError
from graphrt.hooks import HookContext, HookEvent
from graphrt.messages import Message
from graphrt.nodes.plan import compile_plan
from graphrt.testing.time import SkippingLoop
from tests.engine.helpers import FAKE_TIME
from tests.plans.helpers import FakeSession, fails_on, plan_of, states, told
from tests.plans.test_states import dependencies

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module", params=FAKE_TIME)
def anyio_backend(request: pytest.FixtureRequest) -> Any:
    return request.param


async def test_independent_steps_run_at_once() -> None:
    session = FakeSession(seconds=10)
    plan = plan_of("a", "b", "c", "d", _2=[0, 1], _3=[2])
    began = anyio.current_time()
    await compile_plan(plan, session).run()
    assert states(plan) == ["completed"] * 4
    assert [(turn.text, round(turn.began - began)) for turn in session.turns] == [
        ("a", 0),
        ("b", 0),
        ("c", 10),
        ("d", 20),
    ]


async def test_each_turn_knows_the_turns_of_those_before_it_and_the_session_gets_all() -> None:
    session = FakeSession(seconds=1)
    session.messages = [Message.user("hi"), Message.assistant("hello")]
    session.turn_index = 1
    plan = plan_of("a", "b", "c", "d", _2=[1], _3=[0, 2])
    await compile_plan(plan, session).run()
    knew = {turn.text: turn.history for turn in session.turns}
    assert knew == {
        "a": ["hi", "hello"],
        "b": ["hi", "hello"],
        "c": ["hi", "hello", "b", "did b"],
        "d": ["hi", "hello", "a", "did a", "b", "did b", "c", "did c"],
    }
    assert [each.content for each in session.messages] == [
        *("hi", "hello", "a", "did a", "b", "did b", "c", "did c", "d", "did d")
    ]
    assert {turn.text: turn.turn_index for turn in session.turns} == {"a": 1, "b": 2, "c": 3, "d": 4}
    assert session.turn_index == 5
    assert session.absorbed == [4]


async def test_chain_needs_no_branches() -> None:
    session = FakeSession(seconds=1)
    plan = plan_of("a", "b", "c", _1=[0], _2=[1, 0])
    await compile_plan(plan, session).run()
    assert states(plan) == ["completed"] * 3
    assert session.absorbed == []
    assert [turn.turn_index for turn in session.turns] == [0, 1, 2]


async def test_failure_lets_turns_at_work_end_and_stops_the_rest() -> None:
    session = FakeSession(answer=fails_on("a"), seconds={"a": 1, "b": 2}.__getitem__)
    plan = plan_of("a", "b", "c", "d", _2=[1], _3=[0])
    await compile_plan(plan, session).run()
    assert states(plan) == ["failed", "completed", "skipped", "skipped"]
    assert [step.status.reason for step in plan.steps[2:]] == [
        "step 0 has failed",
        "it depends on step 0, which has failed",
    ]
    assert [each.content for each in session.messages] == ["b", "did b"]
    assert session.absorbed == [1]


async def test_policy_may_let_everything_run_that_can() -> None:
    session = FakeSession(answer=fails_on("a"), seconds=1)
    plan = plan_of("a", "b", "c", "d", _2=[1], _3=[0])
    await compile_plan(plan, session, failure_policy=FailurePolicy.CONTINUE).run()
    assert states(plan) == ["failed", "completed", "completed", "skipped"]
    assert session.absorbed == [2]


async def test_finished_turns_are_kept_when_the_plan_is_cancelled() -> None:
    session = FakeSession(seconds=10)
    plan = plan_of("a", "b", "c", "d", _2=[0], _3=[2])
    with anyio.move_on_after(15) as scope:
        await compile_plan(plan, session).run()
    assert scope.cancelled_caught
    assert states(plan) == ["completed", "completed", "failed", "pending"]
    assert [each.content for each in session.messages] == ["a", "did a", "b", "did b"]
    assert session.turn_index == 2
    assert session.absorbed == [2]


async def test_critical_hook_cancels_the_other_turns() -> None:
    def broken(context: HookContext) -> None:
        if context.plan_step_index == 1:
            raise ValueError("broken hook")

    session = FakeSession(seconds=10)
    session.bundle.hook_executor.register(HookEvent.ON_PLAN_STEP_COMPLETE, broken, critical=True)
    plan = plan_of("a", "b", "c", _2=[0, 1])
    with pytest.raises(ValueError, match="broken hook"):
        await compile_plan(plan, session).run()
    assert states(plan) == ["failed", "failed", "pending"]
    assert isinstance(plan.steps[1].status.error, OtherAgentError)
    assert session.absorbed == []


async def test_plan_goes_on_where_it_was_left() -> None:
    session = FakeSession(seconds=10)
    plan = plan_of("a", "b", "c", _2=[0, 1])
    plan.steps[0].start()
    plan.steps[0].complete(await session.submit_turn("a"))
    await compile_plan(plan, session).run()
    assert states(plan) == ["completed"] * 3
    assert session.texts == ["a", "b", "c"]
    assert session.turns[1].history == ["a", "did a"]
    assert session.turns[2].history == ["a", "did a", "b", "did b"]
    assert [turn.turn_index for turn in session.turns] == [0, 1, 2]


async def test_plans_in_branches_may_be_carried_out_at_once() -> None:
    session = FakeSession(seconds=1)
    plans = [Plan("g", [Step(0, f"{n}a"), Step(1, f"{n}b"), Step(2, f"{n}c", depends_on=[0, 1])]) for n in range(2)]
    async with anyio.create_task_group() as tasks:
        for plan in plans:
            tasks.start_soon(compile_plan(plan, session).run)
    assert [states(plan) for plan in plans] == [["completed"] * 3] * 2
    assert session.turn_index == 6
    assert len(session.messages) == 12


async def test_steps_that_all_say_that_they_need_none_run_at_once() -> None:
    session = FakeSession(seconds=1)
    began = anyio.current_time()
    await compile_plan(plan_of("a", "b", "c", _0=[], _1=[], _2=[]), session).run()
    assert anyio.current_time() - began == pytest.approx(1)
    assert [turn.history for turn in session.turns] == [[], [], []]
    assert session.texts == ["a", "b", "c"]


@pytest.mark.parametrize("said", [{}, {"_0": []}, {"_0": [], "_2": []}], ids=str)
async def test_steps_follow_one_another_where_one_does_not_say_what_it_needs(said: dict[str, list[int]]) -> None:
    session = FakeSession(seconds=1)
    began = anyio.current_time()
    await compile_plan(plan_of("a", "b", "c", **said), session).run()
    assert anyio.current_time() - began == pytest.approx(3)
    assert session.turns[2].history == ["a", "did a", "b", "did b"]


# ---------------------------------------------------------------- any plan


def _longest(sources: list[list[int]], index: int) -> int:
    """Steps on the longest way to a step, itself included."""
    return 1 + max((_longest(sources, each) for each in sources[index]), default=0)


async def _carry_out(sources: list[list[int]], failing: set[int], policy: FailurePolicy) -> None:
    steps = [Step(i, str(i), depends_on=each) for i, each in enumerate(sources)]
    plan = Plan("g", steps)
    session = FakeSession(answer=fails_on(*map(str, failing)), seconds=1)
    found = told(session)
    began = anyio.current_time()
    await compile_plan(plan, session, failure_policy=policy).run()
    assert plan.finished
    turns = {int(turn.text): turn for turn in session.turns}
    assert len(turns) == len(session.turns), "a step had two turns"
    for index, turn in turns.items():
        assert steps[index].status.state == ("failed" if index in failing else "completed")
        for source in sources[index]:
            assert steps[source].status.state == "completed"
            assert turns[source].ended <= turn.began
    for index, step in enumerate(steps):
        assert (step.status.state == "skipped") == (index not in turns)
        heard = [context.data["status"] for context in found if context.plan_step_index == index]
        assert heard == ["running", step.status.state]
    if not failing:
        assert [step.status.state for step in steps] == ["completed"] * len(steps)
        needed = max(_longest(sources, i) for i in range(len(steps)))
        assert anyio.current_time() - began == pytest.approx(needed)
    done = sum(step.status.state == "completed" for step in steps)
    assert session.turn_index == done
    assert len(session.messages) == 2 * done


@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow])
@given(dependencies(), st.data(), st.sampled_from(FailurePolicy))
def test_each_step_has_one_turn_after_those_it_depends_on(
    sources: list[list[int]], data: st.DataObject, policy: FailurePolicy
) -> None:
    """Each step is carried out once, dependencies come before dependents, and no step waits without need."""
    failing = data.draw(st.sets(st.integers(0, len(sources) - 1), max_size=2))
    anyio.run(_carry_out, sources, failing, policy, backend_options={"loop_factory": SkippingLoop})
