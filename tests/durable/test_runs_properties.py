"""Random graphs, run for real with a ledger, stopped at a random event and taken up again (E7, E25)."""

from __future__ import annotations

from collections import Counter
from typing import Any

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphrt import CompiledGraph, RunResult
from graphrt.errors import RunControlError
from graphrt.graph.durable.stored import effective
from graphrt.ledger import InMemoryRunLedgerStore
from tests.durable.helpers import Cut, check_numbers, ended_keys, free, key_of, stored_events
from tests.properties.building import build
from tests.properties.description import Graph
from tests.properties.graphs import VALUE, Flavour, graphs

CALM = Flavour(races=False, failures=False, wrong=False)
FAILING = Flavour(races=False)
RACING = Flavour()


@pytest.fixture(scope="module", params=["asyncio", "trio"])
def backend(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


class Count:
    """Lets every other task go on, and counts how often it was asked."""

    def __init__(self) -> None:
        self.calls = 0

    async def __call__(self) -> None:
        self.calls += 1
        await anyio.lowlevel.checkpoint()


async def with_cuts(
    compiled: CompiledGraph, cuts: list[int], durability: Any, count: Count
) -> tuple[RunResult, InMemoryRunLedgerStore]:
    """Run a graph in stretches, each of which may store so many events; the last may store all.

    In that one no function is called of a step whose end was stored.
    """
    store = InMemoryRunLedgerStore()
    for number, cut in enumerate([*cuts, 10**9]):
        before = await stored_events(store, "r") if number else []
        count.calls = 0
        behind = Cut(store, cut).as_store()
        try:
            if number % 2:
                result = await compiled.resume("r", ledger=behind, durability=durability, check=False)
            else:
                result = await compiled.run(VALUE, ledger=behind, run_id="r", durability=durability, check=False)
        except RunControlError as error:
            if "the process has died" not in str(error):
                raise
            await free(store, "r")
            check_numbers(await stored_events(store, "r"))
            continue
        ended, events = ended_keys(before), await stored_events(store, "r")
        fresh = [e for e in events[len(before) :] if e.type == "step.started" and key_of(e) not in ended]
        assert count.calls <= len(fresh)
        return result, store
    raise AssertionError("the last stretch was cut")


@settings(max_examples=40)
@given(
    st.sampled_from((CALM, FAILING, RACING)).flatmap(graphs),
    st.lists(st.integers(0, 40), max_size=3),
    st.sampled_from(("sync", "async", "exit")),
)
def test_run_that_was_cut_ends_as_the_undisturbed_one_and_runs_no_ended_step_again(
    backend: str, graph: Graph, cuts: list[int], durability: str
) -> None:
    count = Count()
    compiled = build(graph, count).compile()

    async def main() -> None:
        whole = await compiled.run(VALUE, check=False)
        result, store = await with_cuts(compiled, cuts, durability, count)
        events = await stored_events(store, "r")
        check_numbers(events)
        counted = {event.sequence for event in effective(events)}  # without what a resume went back behind
        ended = ended_keys([event for event in events if event.sequence in counted])
        assert not [key for key, times in ended.items() if times > 1]
        if not graph_has_races(graph):
            assert (whole.status == "succeeded") == (result.status == "succeeded")
            if whole.status == "succeeded":
                assert (result.output, result.outputs, result.state) == (whole.output, whole.outputs, whole.state)
        again = await compiled.run(VALUE, ledger=store, run_id="r", check=False)
        assert (again.status, again.output, again.outputs, again.state) == (
            result.status,
            result.output,
            result.outputs,
            result.state,
        )
        assert Counter(map(repr, again.node_states.items())) == Counter(map(repr, result.node_states.items()))

    anyio.run(main, backend=backend)


def graph_has_races(graph: Graph) -> bool:
    """Whether a result may depend on the order of completions (E7)."""
    return any(node.join != "all" or (node.graph is not None and graph_has_races(node.graph)) for node in graph.nodes)


@settings(max_examples=50)
@given(st.sampled_from((FAILING, RACING, Flavour(races=False, loops=False, wrong=False))).flatmap(graphs))
def test_run_that_failed_calls_only_what_had_not_ended_when_it_is_resumed(backend: str, graph: Graph) -> None:
    calls = 0

    async def count() -> None:
        nonlocal calls
        calls += 1
        for _ in range(calls % 3):
            await anyio.lowlevel.checkpoint()

    compiled = build(graph, count).compile()

    async def main() -> None:
        nonlocal calls
        store = InMemoryRunLedgerStore()
        first = await compiled.run(VALUE, ledger=store, run_id="r", check=False)
        if first.status != "failed":
            return
        before = await stored_events(store, "r")
        calls = 0
        second = await compiled.resume("r", ledger=store, check=False)
        events = await stored_events(store, "r")
        check_numbers(events)
        ended = ended_keys(before)
        started = [e for e in events[len(before) :] if e.type == "step.started" and key_of(e) not in ended]
        assert calls <= len(started)
        if not graph_has_races(graph):
            assert second.status in ("failed", "stopped")  # which comes first depends on the order

    anyio.run(main, backend=backend)
