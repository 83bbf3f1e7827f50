"""Steps and plans as values: states, their order, and what makes a plan."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphrt.agent.plan import NEXT, Plan, Step, StepState, StepStatus, transition
from graphrt.errors import AgentError, AgentLlmError, ConfigError, InvalidTransitionError, LlmError, OtherAgentError
from graphrt.messages import ChatResponse
from graphrt.nodes.plan_order import TERMINAL, order_of
from tests.plans.helpers import plan_of

STATUSES = [
    StepStatus.pending(),
    StepStatus.running(),
    StepStatus.completed(ChatResponse("done")),
    StepStatus.failed(OtherAgentError("no")),
    StepStatus.skipped("why not"),
]
MOVES: dict[str, Callable[[Step], None]] = {
    "start": lambda step: step.start(),
    "complete": lambda step: step.complete(ChatResponse("done")),
    "fail": lambda step: step.fail(ValueError("no")),
    "skip": lambda step: step.skip(),
}


@pytest.mark.parametrize("move", ["complete", "skip", "fail"])
def test_step_that_was_not_started_cannot_end(move: str) -> None:
    """AC-A21."""
    step = Step(0, "a")
    with pytest.raises(InvalidTransitionError, match="'step 0' is pending"):
        MOVES[move](step)
    assert step.status == StepStatus.pending()


def test_completed_step_cannot_fail() -> None:
    """AC-A21."""
    step = Step(3, "a")
    step.start()
    step.complete(ChatResponse("done"))
    with pytest.raises(InvalidTransitionError, match="'step 3' is completed, from where it cannot go to 'failed'"):
        step.fail(ValueError("no"))
    assert step.status == StepStatus.completed(ChatResponse("done"))


@given(st.lists(st.sampled_from(sorted(MOVES)), max_size=6))
def test_states_follow_one_another_in_one_direction(names: list[str]) -> None:
    """A-063: a final state stays, and a refused move changes nothing."""
    step = Step(0, "a")
    seen = [step.status]
    for name in names:
        before = step.status
        try:
            MOVES[name](step)
        except InvalidTransitionError:
            assert step.status is before
        else:
            seen.append(step.status)
    kinds = [status.state for status in seen]
    assert kinds[:2] == [StepState.PENDING, StepState.RUNNING][: len(kinds)]
    assert set(kinds[2:]) <= TERMINAL
    assert len(kinds) <= 3


@pytest.mark.parametrize("before", STATUSES, ids=lambda each: str(each.state))
@pytest.mark.parametrize("after", STATUSES, ids=lambda each: str(each.state))
def test_transition_does_what_its_table_says(before: StepStatus, after: StepStatus) -> None:
    if after.state in NEXT[before.state]:
        assert transition(before, after, step="step 0") is after
    else:
        with pytest.raises(InvalidTransitionError, match="'step 0' is"):
            transition(before, after, step="step 0")


def test_table_has_four_moves() -> None:
    """A-063."""
    moves = {(before, after) for before, others in NEXT.items() for after in others}
    assert set(NEXT) == set(StepState)
    assert moves == {
        (StepState.PENDING, StepState.RUNNING),
        (StepState.RUNNING, StepState.COMPLETED),
        (StepState.RUNNING, StepState.FAILED),
        (StepState.RUNNING, StepState.SKIPPED),
    }


def test_failed_step_holds_an_agent_error() -> None:
    """A-062."""
    step = Step(0, "a")
    step.start()
    inner = LlmError("down")
    step.fail(inner)
    assert isinstance(step.status.error, AgentLlmError)
    assert step.status.error.cause is inner


@given(
    st.sampled_from(StepState),
    st.none() | st.just(ChatResponse("done")),
    st.none() | st.just(OtherAgentError("no")),
    st.none() | st.just("why"),
)
def test_status_holds_what_its_state_brings_and_nothing_else(
    state: StepState, response: ChatResponse | None, error: AgentError | None, reason: str | None
) -> None:
    """A-062."""
    fits = (
        (response is not None) == (state is StepState.COMPLETED)
        and (error is not None) == (state is StepState.FAILED)
        and (reason is None or state is StepState.SKIPPED)
    )
    with contextlib.nullcontext() if fits else pytest.raises(ConfigError, match=f"status {state.value} does not"):
        StepStatus(state, response, error, reason)


# ---------------------------------------------------------------- plans


def test_each_plan_has_an_id_of_its_own() -> None:
    """A-061."""
    steps = [Step(0, "a")]
    assert Plan("g", steps).id != Plan("g", steps).id
    assert Plan("g", steps).steps == steps
    assert Plan("g", steps).steps is not steps


@pytest.mark.parametrize("indices", [[1], [0, 2], [1, 0], [0, 0], [True], [0.0]])
def test_steps_are_numbered_in_their_order(indices: list[Any]) -> None:
    with pytest.raises(ConfigError, match="has index"):
        Plan("g", [Step(index, "a") for index in indices])


@pytest.mark.parametrize("source", [2, -1, "0", True, 0.0])
def test_dependency_on_a_step_that_is_not_there_is_refused(source: Any) -> None:
    with pytest.raises(ConfigError, match=f"step 1 of plan 'p' depends on step {source!r}"):
        plan_of("a", "b", _1=[source])


@pytest.mark.parametrize(
    ("depends_on", "circle"),
    [
        ({"_1": [1]}, "1 -> 1"),
        ({"_0": [2], "_2": [0]}, "0 -> 2 -> 0"),
        ({"_0": [1], "_1": [2], "_2": [3], "_3": [1]}, "1 -> 2 -> 3 -> 1"),
    ],
)
def test_circle_is_refused_and_named(depends_on: dict[str, list[int]], circle: str) -> None:
    with pytest.raises(ConfigError, match=f"circle: {circle}\n"):
        plan_of("a", "b", "c", "d", **depends_on)


@st.composite
def dependencies(draw: st.DrawFn, *, most: int = 7) -> list[list[int]]:
    """Draw the dependencies of some steps, without circles, in any order of the indices."""
    count = draw(st.integers(1, most))
    order = draw(st.permutations(range(count)))
    found: list[list[int]] = [[] for _ in range(count)]
    for place, index in enumerate(order):
        found[index] = draw(st.lists(st.sampled_from(order[:place]), max_size=3)) if place else []
    return found


@given(dependencies())
def test_order_puts_dependencies_first_and_lower_indices_before_higher_ones(sources: list[list[int]]) -> None:
    order = order_of([Step(i, "", depends_on=each) for i, each in enumerate(sources)], plan="p")
    assert sorted(order.steps) == list(range(len(sources)))
    done: set[int] = set()
    for index in order.steps:
        free = [i for i, each in enumerate(sources) if i not in done and done.issuperset(each)]
        assert index == min(free)
        done.add(index)
    assert order.sequential == all(a in sources[b] for a, b in itertools.pairwise(order.steps))
    for index, before in enumerate(order.before):
        assert before == {*sources[index], *(far for near in sources[index] for far in order.before[near])}
    edges = order.edges([Step(i, "", depends_on=each) for i, each in enumerate(sources)])
    assert {target for _, target in edges} == {*range(len(sources)), None}
    assert {source for source, _ in edges} == {*range(len(sources)), None}


def test_finished_plan_is_one_whose_steps_have_all_ended() -> None:
    plan = plan_of("a", "b")
    for step in plan.steps:
        assert not plan.finished
        step.start()
        assert not plan.finished
        step.skip()
    assert plan.finished


def test_plan_shows_a_picture_with_the_states_of_its_steps() -> None:
    plan = plan_of("gather facts", "write")
    plan.steps[0].start()
    shown = plan._repr_mimebundle_()
    assert shown["text/html"].startswith("<img ")
    assert "a goal" in shown["text/plain"]
    assert "gather facts" in shown["text/plain"]
    assert "running" in shown["text/plain"]


def test_plan_that_cannot_be_drawn_is_shown_as_text() -> None:
    plan = plan_of("a")
    plan.steps.append(Step(7, "b"))
    assert plan._repr_mimebundle_() == {"text/plain": repr(plan)}
