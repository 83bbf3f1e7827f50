"""Traces of runs that stop half way, wait, or go on from their events: driven through the core alone."""

from __future__ import annotations

from contextvars import copy_context
from typing import Any

from graphrt import END, START, CompiledGraph, RunEvent, Workflow
from graphrt.graph import RunStatus
from graphrt.graph.core.finishing import Outcome
from graphrt.graph.core.replay import requeue, restore
from graphrt.graph.core.run import RunCore
from graphrt.telemetry import RunObserver, observer_for
from tests.engine.helpers import Asking
from tests.telemetry.collecting import Collected, attributes, status, went_well


async def same(x: Any) -> Any:
    return x


def looping() -> CompiledGraph:
    """A cycle whose first node holds a graph of two nodes."""
    inner = Workflow("inner")
    inner.add_node("a", same)
    inner.add_node("b", same)
    inner.chain(START, "a", "b", END)
    loop = Workflow("loop")
    loop.add(inner, name="sub")
    loop.add_node("check", same)
    loop.chain(START, "sub", "check")
    loop.edge("check", "sub", when=lambda x: x < 0)
    loop.edge("check", END, when=lambda x: x >= 0)
    return loop.compile()


def observed(collected: Collected, graph: CompiledGraph) -> RunObserver:
    observer = observer_for(collected.telemetry, graph.program, "r-1")
    assert observer is not None
    observer.run_started(1, copy_context())
    return observer


def go_on(core: RunCore) -> None:
    """Carry out every step that is ready, and those that become so."""
    while core.ready:
        step = core.ready.popleft()
        if not core.step_started(step, 0.0):
            continue
        if step.node.graph is not None:
            core.enter_graph(step, 0.0)
        else:
            core.step_finished(step, 1, 0.0)


def test_run_that_is_left_half_way_ends_every_span() -> None:
    collected, graph = Collected(), looping()
    observer = observed(collected, graph)
    core = RunCore(graph.program, "r-1", observer=observer)
    core.start(1, 0.0)
    holder = core.ready.popleft()
    core.step_started(holder, 0.0)
    core.enter_graph(holder, 0.0)
    core.step_started(core.ready.popleft(), 0.0)
    observer.run_ended(None)
    collected.check_whole()
    path = "invoke_workflow loop > round sub > node sub > node a"
    assert collected.path(collected.one("node a")) == path
    for name in ("node a", "node sub", "invoke_workflow loop"):
        assert status(collected.one(name)) == ("ERROR", "cancelled")


def test_run_that_is_left_waiting_ends_its_spans_well() -> None:
    asking = Workflow("asking")
    asking.add(Asking("approve"))
    asking.chain(START, "approve", END)
    collected, graph = Collected(), asking.compile()
    observer = observed(collected, graph)
    core = RunCore(graph.program, "r-1", observer=observer)
    core.start("draft", 0.0)
    step = core.ready.popleft()
    core.step_started(step, 0.0)
    core.step_waiting(step, "good?", 0.0)
    observer.run_ended(Outcome(RunStatus.WAITING, None, None))
    collected.check_whole()
    assert all(went_well(span) for span in collected.spans)
    assert attributes(collected.one("invoke_workflow asking"))["graphrt.run.status"] == "waiting"


def test_run_that_goes_on_from_its_events_has_spans_of_what_it_still_does() -> None:
    graph = looping()
    events: list[RunEvent] = []
    left = RunCore(graph.program, "r-1", sink=events.append)
    left.start(1, 0.0)
    holder = left.ready.popleft()
    left.step_started(holder, 0.0)
    left.enter_graph(holder, 0.0)
    first = left.ready.popleft()
    left.step_started(first, 0.0)
    left.step_finished(first, 1, 0.0)
    collected = Collected()
    observer = observed(collected, graph)
    core = restore(graph.program, "r-1", events, observer=observer)
    requeue(core, 0.0)
    go_on(core)
    assert core.outcome is not None
    observer.run_ended(core.outcome)
    collected.check_whole()
    assert collected.paths() == [
        "invoke_workflow loop",
        "invoke_workflow loop > round sub",
        "invoke_workflow loop > round sub > node check",
        "invoke_workflow loop > round sub > node sub",
        "invoke_workflow loop > round sub > node sub > node b",
    ]
    assert all(went_well(span) for span in collected.spans)
