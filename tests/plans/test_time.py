"""What may take how long in a plan, and which turns count."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphrt.agent.parser import JsonPlanParser
from graphrt.agent.plan import FailurePolicy, Plan, Step, StepStatus
from graphrt.agent.task import SessionTaskAgent
from graphrt.config import AgentConfig
from graphrt.errors import LimitExceededError
from graphrt.hooks import HookContext, HookEvent
from graphrt.nodes.plan import compile_plan
from graphrt.testing.time import SkippingLoop
from tests.engine.helpers import FAKE_TIME
from tests.plans.helpers import FakeSession, fails_on, moves, plan_of, states, told
from tests.plans.test_states import dependencies

pytestmark = pytest.mark.anyio

AGES = 1000.0
"""Seconds that nobody is to wait for."""


@pytest.fixture(scope="module", params=FAKE_TIME)
def anyio_backend(request: pytest.FixtureRequest) -> Any:
    """Run every async test on both event loops, in fake time."""
    return request.param


def agent(session: FakeSession, **options: Any) -> SessionTaskAgent:
    return SessionTaskAgent(session, JsonPlanParser(), **options)  # type: ignore[arg-type]  # a session's stand-in


async def hang(*given: Any) -> None:
    await anyio.sleep(AGES)


@pytest.mark.parametrize("critical", [False, True])
async def test_hooks_that_hang_are_given_up_and_the_plan_goes_on(
    critical: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """A-064."""
    session = FakeSession(config=AgentConfig(timeout_seconds=5))
    found = told(session)
    session.bundle.hook_executor.register(HookEvent.ON_PLAN_STEP_COMPLETE, hang, critical=critical)
    began = anyio.current_time()
    plan = await agent(session).execute_plan(plan_of("a", "b"))
    assert states(plan) == ["completed"] * 2
    assert moves(found) == [(0, "running"), (0, "completed"), (1, "running"), (1, "completed")]
    assert anyio.current_time() - began == pytest.approx(20, abs=0.5)
    assert caplog.text.count("took longer than 5 s") == 4


async def test_a_step_of_which_nobody_says_whether_to_skip_it_fails() -> None:
    session = FakeSession(config=AgentConfig(timeout_seconds=5))

    async def skip_if(step: Step) -> bool:
        if step.index == 0:
            await anyio.sleep(AGES)
        await anyio.sleep(4)
        return False

    began = anyio.current_time()
    plan = await agent(session, skip_if=skip_if, failure_policy="continue").execute_plan(plan_of("a", "b"))
    assert states(plan) == ["failed", "completed"]
    error = plan.steps[0].status.error
    assert isinstance(error, LimitExceededError)
    assert (error.limit, session.texts) == ("timeout", ["b"])
    assert anyio.current_time() - began == pytest.approx(9, abs=0.5)


async def test_a_session_without_a_config_sets_no_limit() -> None:
    session = FakeSession()
    object.__delattr__(session.bundle, "config")

    async def slowly(context: HookContext) -> None:
        await anyio.sleep(80_000)

    session.bundle.hook_executor.register(HookEvent.ON_PLAN_STEP_COMPLETE, slowly)
    plan = plan_of("a")
    await compile_plan(plan, session).run()
    assert states(plan) == ["completed"]


# --- which turns count -------------------------------------------------------------------------------------


def first_one(text: str) -> float:
    """Let the turn "a" end before those beside it."""
    return 1 if text == "a" else 2


async def test_steps_that_had_no_turn_do_not_count() -> None:
    """A-060."""
    session = FakeSession(answer=fails_on("a"), seconds=first_one)
    plan = plan_of("a", "b", "c", "d", "e", _2=[1], _3=[0], _4=[2])
    await compile_plan(plan, session, failure_policy=FailurePolicy.CONTINUE).run()
    assert states(plan) == ["failed", "completed", "completed", "skipped", "completed"]
    assert {turn.text: turn.turn_index for turn in session.turns} == {"a": 0, "b": 1, "c": 1, "e": 2}
    assert session.turn_index == 3


class Limited(FakeSession):
    """A session that takes only so many turns."""

    limit = 2

    async def submit_turn(self, text: str) -> Any:
        if self.turn_index >= self.limit:
            raise LimitExceededError("no more turns", limit="max_turns")
        return await super().submit_turn(text)

    def branch(self, index_offset: int, history: Any) -> Limited:
        other = Limited(answer=self.answer, seconds=self.seconds)
        other.limit, other.turns = self.limit, self.turns
        other.turn_index, other.messages = self.turn_index + index_offset, list(history)
        return other


def limits(statuses: list[StepStatus]) -> list[str | None]:
    return [getattr(status.error, "limit", None) for status in statuses]


@pytest.mark.parametrize("depends_on", [{}, {"_2": [1]}], ids=["one by one", "side by side"])
async def test_a_turn_that_failed_leaves_its_place_to_another(depends_on: dict[str, list[int]]) -> None:
    """A-073."""
    session = Limited(answer=fails_on("a"), seconds=first_one)
    plan = plan_of("a", "b", "c", "d", **depends_on, **({"_3": [2]} if depends_on else {}))
    await compile_plan(plan, session, failure_policy=FailurePolicy.CONTINUE).run()
    assert states(plan) == ["failed", "completed", "completed", "failed"]
    assert limits([step.status for step in plan.steps]) == [None, None, None, "max_turns"]
    assert session.turn_index == 2


async def _carry_out(sources: list[list[int]], failing: set[int], limit: int) -> None:
    steps = [Step(i, str(i), depends_on=each) for i, each in enumerate(sources)]
    session = Limited(answer=fails_on(*map(str, failing)), seconds=1)
    session.limit = limit
    plan = Plan("g", steps)
    await compile_plan(plan, session, failure_policy=FailurePolicy.CONTINUE).run()
    done = sum(step.status.state == "completed" for step in steps)
    assert session.turn_index == done <= limit
    refused = [step for step in steps if limits([step.status]) == ["max_turns"]]
    for turn in session.turns:
        before = sum(each.began < turn.began and each.text not in map(str, failing) for each in session.turns)
        assert before <= turn.turn_index < limit
    if len(session.turns) < limit:
        assert refused == []


@settings(max_examples=40)
@given(dependencies(), st.data(), st.integers(0, 4))
def test_a_limit_on_turns_holds_for_turns_side_by_side(
    sources: list[list[int]], data: st.DataObject, limit: int
) -> None:
    """A-073: no more turns than allowed, and none is refused before as many have been at work."""
    failing = data.draw(st.sets(st.integers(0, len(sources) - 1), max_size=2))
    anyio.run(_carry_out, sources, failing, limit, backend_options={"loop_factory": SkippingLoop})
