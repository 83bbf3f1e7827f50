"""A plan is checked before anything of it runs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphrt.demo.plan import Plan, PlanError, PlanStep, check_plan
from graphrt.errors import GraphError


def plan(**needs: str) -> Plan:
    """Make a plan of steps by id, each with the ids it needs, separated by spaces."""
    return Plan(
        steps=[PlanStep(id=id, question=f"what is {id}?", depends_on=each.split()) for id, each in needs.items()]
    )


def test_plan_that_can_be_run_is_given_back() -> None:
    given = plan(a="", b="a", c="a b")
    assert check_plan(given) is given


def test_steps_are_ready_once_what_they_need_is_done() -> None:
    given = plan(d="b c", a="", b="a", c="a", e="")
    assert [step.id for step in given.ready(set())] == ["a", "e"]
    assert [step.id for step in given.ready({"a", "e"})] == ["b", "c"]
    assert [step.id for step in given.ready({"a", "b", "c", "e"})] == ["d"]
    assert given.ready({"a", "b", "c", "d", "e"}) == []


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        (Plan(steps=[]), "it has no steps"),
        (plan(a="", b="", c=""), "it has 3 steps, and 2 are allowed"),
        (plan(a="x y"), "step 'a' depends on 'x', 'y', and no step has that id"),
        (plan(a="a"), "the steps 'a' wait for each other in a circle"),
        (plan(a="b", b="a"), "the steps 'a', 'b' wait for each other in a circle"),
        (
            Plan(steps=[PlanStep(id="a", question="q"), PlanStep(id="a", question="r")]),
            "2 steps have the id 'a'",
        ),
        (
            Plan(steps=[PlanStep(id="a", question="Q "), PlanStep(id="b", question="q")]),
            "asked more than once",
        ),
        (Plan(steps=[PlanStep(id="a", question=" ")]), "step 'a' asks nothing"),
        (Plan(steps=[PlanStep(id=" ", question="q")]), "a step has no id"),
    ],
)
def test_plan_that_cannot_be_run_is_refused(given: Plan, problem: str) -> None:
    with pytest.raises(PlanError) as caught:
        check_plan(given, most=2)
    assert problem in str(caught.value)
    assert isinstance(caught.value, GraphError)


def test_all_that_is_wrong_is_named_at_once() -> None:
    with pytest.raises(PlanError) as caught:
        check_plan(plan(a="x", b="y", c=""), most=2)
    assert len(caught.value.problems) == 3


STEPS = st.lists(
    st.builds(
        PlanStep,
        id=st.sampled_from("abcde"),
        question=st.sampled_from(["why?", "how?", "who?", "when?", ""]),
        depends_on=st.lists(st.sampled_from("abcdex"), max_size=3),
    ),
    max_size=6,
)


@given(STEPS)
def test_checked_plan_can_be_worked_through_and_every_step_after_what_it_needs(steps: list[PlanStep]) -> None:
    given_plan = Plan(steps=steps)
    try:
        check_plan(given_plan)
    except PlanError:
        return
    done: list[str] = []
    while ready := given_plan.ready(done):
        assert all(set(step.depends_on) <= set(done) for step in ready)
        done += [step.id for step in ready]
    assert sorted(done) == sorted(step.id for step in steps)


def test_plan_of_too_many_steps_is_told_how_many_are_allowed() -> None:
    steps = [PlanStep(id=f"s{at}", question=f"What is {at}?") for at in range(1, 4)]
    for most, said in ((1, "it has 3 steps, and 1 is allowed"), (2, "it has 3 steps, and 2 are allowed")):
        with pytest.raises(PlanError) as caught:
            check_plan(Plan(steps=steps), most=most)
        assert caught.value.problems == (said,)
