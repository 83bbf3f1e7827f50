"""The engine against the reference, and the promises that hold for every run of it."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from hypothesis import assume, event, given, settings
from hypothesis import strategies as st

from graphrt import RunEvent, RunResult
from tests.properties.building import build
from tests.properties.comparing import at_once, brings_the_same, promised, seen, settled
from tests.properties.description import Graph, Outcome, StepKey, plain
from tests.properties.driver import Session, continue_from, drive
from tests.properties.graphs import VALUE, Flavour, graphs
from tests.properties.reference import Interpreter, interpret

ANY = Flavour()
CALM = Flavour(races=False, failures=False, wrong=False)
FAILING = Flavour(races=False)
RACING = Flavour(failures=False, wrong=False)
FLAVOURS = st.sampled_from((CALM, FAILING, RACING, ANY))
SEEDS = st.integers(0, 2**16)

Pick = Callable[[Sequence[Any]], Any]


def chooser(seed: int) -> Pick:
    """Pick at random, the same for the same seed."""
    chance = random.Random(seed)  # noqa: S311 - reproducible choices, not secrets
    return lambda options: options[chance.randrange(len(options))]


@settings(max_examples=300)
@given(FLAVOURS.flatmap(graphs), SEEDS)
def test_core_and_reference_agree_at_every_completion(graph: Graph, seed: int) -> None:
    """Both are told the same order of completions, and have the same steps running all the way."""
    pick, judge, session = chooser(seed), Interpreter(graph, VALUE), Session(build(graph).compile(), VALUE)
    ran: set[StepKey] = set()
    while judge.status == "running":
        assume(not at_once(judge))
        assert not session.over
        assert session.running() == judge.running()
        assert all(brings_the_same(judge, key, session.given(key)) for key in judge.running())
        ran.update(judge.running())
        key = pick(judge.running())
        judge.finish(key)
        session.finish(key)
    event(judge.status)
    assert session.over
    assume(not at_once(judge))
    wanted = seen(judge.outcome())
    assert settled(session.outcome(), ran, wanted.broken) == settled(wanted, ran, wanted.broken)


@settings(max_examples=60)
@given(st.sampled_from((CALM, FAILING)).flatmap(graphs), SEEDS, SEEDS)
def test_result_does_not_depend_on_the_order_of_completions(graph: Graph, one: int, other: int) -> None:
    """E7."""
    assume(not interpret(graph, VALUE, chooser(one)).doubts)
    compiled = build(graph).compile()
    first, second = (drive(compiled, VALUE, chooser(seed)) for seed in (one, other))
    assert promised(first) == promised(second)


def check_events(events: Sequence[RunEvent], outcome: Outcome) -> None:
    """See that the events of a whole run are complete and in order."""
    assert [one.sequence for one in events] == list(range(1, len(events) + 1))
    assert events[0].type == "run.started"
    endings = {"succeeded": "run.completed", "failed": "run.failed", "stopped": "run.stopped"}
    assert events[-1].type == endings[outcome.status]
    assert sum(one.type.startswith("run.") for one in events) == 2
    check_steps(events, outcome)
    check_rounds(events)


def check_steps(events: Sequence[RunEvent], outcome: Outcome) -> None:
    """See that every step that started has one ending, and every other step one ending at most."""
    started: Counter[Any] = Counter()
    ended: Counter[Any] = Counter()
    for one in events:
        if one.step is None or not one.type.startswith("step."):
            continue
        ref = (one.step.node, one.step.scope, one.step.round)
        if one.type == "step.started":
            started[ref] += 1
        else:
            ended[ref] += 1
    assert not started - ended
    assert sum(started.values()) == len(outcome.started)
    assert sum(ended.values()) == len(outcome.steps)


def check_rounds(events: Sequence[RunEvent]) -> None:
    """See that rounds are paired, the start first, and that no round starts before the one before it."""
    open_: Counter[tuple[str, str, int]] = Counter()
    begun: Counter[tuple[str, str, int]] = Counter()
    for one in events:
        if not one.type.startswith("round."):
            continue
        scope, cycle, number = one.data["scope"], one.data["cycle"], one.data["round"]
        place = (scope, cycle, number)
        open_[place] += 1 if one.type == "round.started" else -1
        assert open_[place] >= 0
        if one.type == "round.started":
            begun[place] += 1
            assert number == 1 or begun[scope, cycle, number] <= begun[scope, cycle, number - 1]
    assert not any(open_.values())


@settings(max_examples=80)
@given(FLAVOURS.flatmap(graphs), SEEDS)
def test_events_of_a_run_are_numbered_paired_and_ended(graph: Graph, seed: int) -> None:
    events: list[RunEvent] = []
    outcome = drive(build(graph).compile(), VALUE, chooser(seed), events)
    check_events(events, outcome)


@settings(max_examples=50)
@given(FLAVOURS.flatmap(graphs), SEEDS)
def test_illegal_moves_are_refused_and_change_nothing(graph: Graph, seed: int) -> None:
    pick, session = chooser(seed), Session(build(graph).compile(), VALUE)
    while not session.over:
        session.illegal(pick)
        session.finish(pick(session.running()))
    session.illegal(pick)


@settings(max_examples=40)
@given(FLAVOURS.flatmap(graphs), st.integers(0, 200))
def test_run_cut_at_any_event_goes_on_to_the_same_end(graph: Graph, cut: int) -> None:
    """The order of completions is the same before and after the cut, so any graph ends the same."""
    compiled = build(graph).compile()
    events: list[RunEvent] = []
    whole = drive(compiled, VALUE, lambda running: running[0], events)
    stored, more = events[: cut % len(events) + 1], list[RunEvent]()
    again = continue_from(compiled, stored, lambda running: running[0], more)
    ran = {key for key, end in whole.steps.items() if end.state in ("succeeded", "failed")}
    assert {key: again.steps.get(key) for key in ran} == {key: whole.steps[key] for key in ran}
    assert replace(again, steps={}) == replace(whole, steps={})
    ends = [one.step.key for one in (*stored, *more) if one.step and one.type in ("step.completed", "step.failed")]
    assert len(ends) == len(set(ends))
    assert [one.sequence for one in (*stored, *more)] == list(range(1, len(stored) + len(more) + 1))


@settings(max_examples=30)
@given(st.sampled_from((CALM, FAILING)).flatmap(graphs), SEEDS, st.integers(1, 30))
def test_step_limit_is_exact(graph: Graph, seed: int, limit: int) -> None:
    """E20."""
    whole = interpret(graph, VALUE, chooser(seed))
    assume(whole.status == "succeeded")
    assume(all(end.state != "cancelled" for end in whole.steps.values()))
    compiled = build(replace(graph, max_steps=limit)).compile()
    outcome = drive(compiled, VALUE, chooser(seed))
    if len(whole.started) <= limit:
        assert promised(outcome) == promised(seen(whole))
    else:
        assert (outcome.status, len(outcome.started)) == ("stopped", limit)


@settings(max_examples=40)
@given(FLAVOURS.flatmap(graphs), SEEDS)
def test_no_activation_of_a_cycle_exceeds_its_rounds(graph: Graph, seed: int) -> None:
    """E20."""
    outcome = drive(build(graph).compile(), VALUE, chooser(seed))
    most = max((number for number in outcome.rounds.values()), default=1)
    deepest = max([graph.max_rounds, *(inner.max_rounds for inner in all_graphs(graph))])
    assert most <= deepest
    if outcome.status == "stopped":
        assert graph.max_rounds in {n for (scope, _, _), n in outcome.rounds.items() if not scope}


def all_graphs(graph: Graph) -> list[Graph]:
    """Every graph inside *graph*."""
    return [one for node in graph.nodes if node.graph for one in (node.graph, *all_graphs(node.graph))]


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@settings(max_examples=60)
@given(graph=st.sampled_from((CALM, FAILING)).flatmap(graphs), seed=SEEDS)
def test_run_on_an_event_loop_agrees_with_the_reference(backend: str, graph: Graph, seed: int) -> None:
    """Coroutine functions that wait at random, functions in threads, and iterators."""
    judge = interpret(graph, VALUE, chooser(seed))
    assume(not judge.doubts)
    chance = random.Random(seed)  # noqa: S311 - reproducible choices, not secrets
    styles = {name: chance.choice(("async", "async", "iterator", "sync")) for name in all_names(graph)}

    async def pause() -> None:
        for _ in range(chance.randrange(4)):
            await anyio.lowlevel.checkpoint()

    events: list[RunEvent] = []

    async def run() -> RunResult:
        workflow = build(graph, pause, styles.__getitem__)
        return await workflow.run(VALUE, check=False, on_event=events.append)

    check_result(anyio.run(run, backend=backend), seen(judge))
    assert [one.sequence for one in events] == list(range(1, len(events) + 1))


def all_names(graph: Graph) -> list[str]:
    """Names of the nodes of *graph* and of those inside it."""
    return [node.name for one in (graph, *all_graphs(graph)) for node in one.nodes]


def check_result(result: RunResult, wanted: Outcome) -> None:
    """See that a result has all that the order of completions cannot change."""
    if wanted.status != "succeeded":
        assert result.status in ("failed", "stopped")
        assert result.error is not None
        return
    assert result.status == "succeeded"
    assert plain(result.output) == plain(wanted.output)
    assert {name: plain(value) for name, value in result.outputs.items()} == wanted.outputs
    assert (result.state.model_dump() if result.state is not None else None) == wanted.state
    mine = Counter((one.node, one.round) for one in result.steps if not one.scope and one.started is not None)
    assert mine == Counter((key[1], key[2][-1] if key[2] else 1) for key in wanted.started if not key[0])
