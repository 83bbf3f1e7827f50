"""What holds for the trace of every run: random workflows with cycles, maps, graphs, races and failures."""

from __future__ import annotations

from collections import Counter
from functools import partial

import anyio
from hypothesis import given, settings

from graphrt import RunEvent, RunResult
from tests.engine.helpers import yield_often
from tests.properties.building import build
from tests.properties.description import Graph
from tests.properties.graphs import VALUE, Flavour, graphs
from tests.telemetry.collecting import Collected, attributes, logged, status, went_well

STATUS = {
    "failed": "ERROR",
    "timed_out": "ERROR",
    "cancelled": "ERROR",
    "succeeded": "UNSET",
}


@settings(max_examples=60)
@given(graphs(Flavour()))
def test_trace_of_any_run_is_a_whole_tree_of_what_was_done(graph: Graph) -> None:
    collected = Collected(capture_content=True)
    events: list[RunEvent] = []
    compiled = build(graph, partial(yield_often, 1)).compile()
    call = partial(compiled.run, VALUE, check=False, telemetry=collected.telemetry, on_event=events.append)
    with logged() as texts:
        result = anyio.run(call)
    assert texts == []
    collected.check_whole()
    check_steps(collected, result)
    check_rounds(collected, events)
    check_places(collected)
    assert went_well(collected.spans[-1]) == (result.status == "succeeded")


def check_steps(collected: Collected, result: RunResult) -> None:
    """See that every step that has started has one span, which says how it ended, and no other has one."""
    steps = Counter(
        (one.node, one.scope, one.round, STATUS[one.state]) for one in result.steps if one.started is not None
    )
    spans = Counter(
        (
            str(attributes(one)["graphrt.node.id"]),
            str(attributes(one)["graphrt.scope"]),
            int(attributes(one)["graphrt.round"]),
            status(one)[0],
        )
        for one in collected.of_kind("node")
    )
    assert spans == steps


def check_rounds(collected: Collected, events: list[RunEvent]) -> None:
    """See that every round that was announced has one span."""
    started = Counter(
        (one.data["cycle"], one.data["scope"], one.data["round"]) for one in events if one.type == "round.started"
    )
    found = (attributes(one) for one in collected.of_kind("round"))
    assert started == Counter((a["graphrt.node.id"], a["graphrt.scope"], a["graphrt.round"]) for a in found)


def check_places(collected: Collected) -> None:
    """See that a step lies in the run, a round, or a node that holds a graph, of its own scope or around it."""
    for span in collected.spans:
        parent = collected.parent(span)
        if parent is None:
            assert attributes(span)["graphrt.kind"] == "run"
            continue
        own, around = attributes(span), attributes(parent)
        assert around["graphrt.kind"] in {"run", "round", "node"}
        if around["graphrt.kind"] == "node":
            place = "/".join(filter(None, [around["graphrt.scope"], around["graphrt.node.id"]]))
            assert own["graphrt.scope"].startswith(place)
        elif around["graphrt.kind"] == "round":
            assert own["graphrt.scope"].startswith(around["graphrt.scope"])
            if own["graphrt.kind"] == "node" and own["graphrt.scope"] == around["graphrt.scope"]:
                assert own["graphrt.round"] == around["graphrt.round"]
