"""A run is continued by the core from its stored events alone (E25): nothing that has ended runs again."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphrt import END, START, CompiledGraph, RunEvent, Workflow
from graphrt.errors import GraphChangedError
from graphrt.graph.core.replay import restore
from tests.properties.building import build
from tests.properties.description import Graph
from tests.properties.driver import drive, resume
from tests.properties.graphs import VALUE, Flavour, graphs

CALM = Flavour(races=False, failures=False, wrong=False)
FAILING = Flavour(races=False)
RACING = Flavour()


@settings(max_examples=40)
@given(st.sampled_from((CALM, FAILING, RACING)).flatmap(graphs), st.integers(0, 200))
def test_stored_events_are_enough_to_stand_where_the_run_was_left(graph: Graph, cut: int) -> None:
    """Before anything goes on, the core has made the same events again, and holds the same steps."""
    compiled = build(graph).compile()
    events: list[RunEvent] = []
    drive(compiled, VALUE, lambda running: running[0], events)
    stored = events[: cut % len(events) + 1]
    made: list[RunEvent] = []
    core = restore(compiled.program, "run", stored, sink=made.append)
    wanted = [(e.sequence, e.type, e.step) for e in events[len(stored) :]]
    assert [(e.sequence, e.type, e.step) for e in made] == wanted[: len(made)]
    assert core.sequence == len(stored) + len(made)


@settings(max_examples=40)
@given(graphs(CALM), st.integers(0, 200))
def test_restored_run_ends_the_same_and_runs_no_ended_step_again(graph: Graph, cut: int) -> None:
    compiled = build(graph).compile()
    events: list[RunEvent] = []
    whole = drive(compiled, VALUE, lambda running: running[0], events)
    stored = events[: cut % len(events) + 1]
    session = resume(compiled, stored)
    while not session.over:
        session.finish(session.running()[-1])
    again = session.outcome()
    if whole.status != "succeeded":  # which failure comes first depends on the order (E7)
        assert again.status != "succeeded"
        return
    assert (again.status, again.output, again.outputs, again.state) == (
        whole.status,
        whole.output,
        whole.outputs,
        whole.state,
    )
    ended = {e.step.key for e in stored if e.step is not None and e.type == "step.completed"}
    assert not [e for e in session.events if e.type == "step.started" and e.step and e.step.key in ended]
    numbers = [e.sequence for e in (*stored, *session.events)]
    assert numbers == list(range(1, len(numbers) + 1))


@settings(max_examples=25)
@given(graphs(CALM), st.integers(0, 200), st.integers(0, 200))
def test_run_may_be_left_and_taken_up_twice(graph: Graph, first: int, second: int) -> None:
    compiled = build(graph).compile()
    events: list[RunEvent] = []
    whole = drive(compiled, VALUE, lambda running: running[0], events)
    stored = events[: first % len(events) + 1]
    session = resume(compiled, stored)
    while not session.over:
        session.finish(session.running()[0])
    all_events = [*stored, *session.events]
    stored = all_events[: second % len(all_events) + 1]
    session = resume(compiled, stored)
    while not session.over:
        session.finish(session.running()[0])
    assert (session.outcome().status == "succeeded") == (whole.status == "succeeded")
    assert whole.status != "succeeded" or session.outcome().output == whole.output
    ends = Counter(e.step.key for e in (*stored, *session.events) if e.step and e.type == "step.completed")
    assert not [key for key, times in ends.items() if times > 1]


def two_steps(second: str) -> CompiledGraph:
    """A chain of two nodes, the second called *second*."""
    workflow = Workflow("two")

    async def step(x: int) -> int:
        return x + 1

    workflow.add_node("first", step)
    workflow.add_node(second, step)
    workflow.chain(START, "first", second, END)
    return workflow.compile()


def test_graph_that_does_something_else_is_refused_with_the_difference() -> None:
    events: list[RunEvent] = []
    drive(two_steps("second"), 1, lambda running: running[0], events)
    with pytest.raises(GraphChangedError, match=r"event 5 is 'step.completed' of step 'second'") as caught:
        restore(two_steps("other").program, "run", [e for e in events if e.sequence != 4])
    assert caught.value.hint


def test_step_that_was_at_work_starts_again_as_its_first_attempt() -> None:
    compiled = two_steps("second")
    events: list[RunEvent] = []
    drive(compiled, 1, lambda running: running[0], events)
    stored = [e for e in events if e.sequence <= 4]
    assert stored[-1].type == "step.started"
    session = resume(compiled, stored)
    assert [e.type for e in session.events] == ["run.resumed", "step.started"]
    assert session.running() == [((), "second", ())]
    session.finish(session.running()[0])
    assert session.outcome().output == 3
