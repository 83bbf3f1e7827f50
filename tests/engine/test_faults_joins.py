"""Faults of kind 2: fan-out, joins, routing. What is chosen runs once, what is not is skipped, nobody waits for it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from graphrt import END, START, GraphError, InvalidTransitionError, RunResult, Workflow
from graphrt.graph import NodeState
from graphrt.graph.core.run import RunCore
from tests.engine.helpers import FAKE_TIME, GUARD, Gate, check_whole, ran, states, yield_often

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module", params=FAKE_TIME)
def anyio_backend(request: pytest.FixtureRequest) -> Any:
    """Run on both event loops, in fake time."""
    return request.param


def passing(name: str) -> Callable[..., Any]:
    """Make a node function that takes what comes and gives its own name."""

    async def node(value: Any = None) -> str:
        await anyio.lowlevel.checkpoint()
        return name

    return node


def graph(*edges: tuple[Any, Any], **joins: Any) -> Workflow:
    """Make a workflow of passing nodes from its edges; names of START and END stand for these."""
    workflow = Workflow("g")
    ends = {"START": START, "END": END}
    for name in dict.fromkeys(end for edge in edges for end in edge if end not in ends):
        workflow.add_node(name, collecting(name, [src for src, dst in edges if dst == name]), **joins.get(name, {}))
    for src, dst in edges:
        workflow.edge(ends.get(src, src), ends.get(dst, dst))
    return workflow


def collecting(name: str, sources: list[str]) -> Callable[..., Any]:
    """Make a node function that takes every source by name, and gives its name with what came."""
    scope: dict[str, Any] = {"lowlevel": anyio.lowlevel}
    sources = [source for source in sources if source != "START"]
    takes = ", ".join(f"{source}=None" for source in sources) or "x=None"
    came = ", ".join(f"{source!r}: {source}" for source in sources)
    source = f"async def {name}({takes}):\n    await lowlevel.checkpoint()\n    came = {{{came}}}\n"
    source += f"    return {name!r} + ''.join(sorted('<' + k for k, v in came.items() if v is not None))"
    exec(source, scope)  # noqa: S102 - a function has the parameters its node has edges
    made: Callable[..., Any] = scope[name]
    return made


def times(result: RunResult) -> Counter[str]:
    """How often each node ran."""
    return Counter(ran(result))


# --- B-009: a join fires once ------------------------------------------------------------------------------


@pytest.mark.parametrize("items", [[1, 2, 3], [1], []])
async def test_join_after_a_map_below_a_fork_runs_once_with_all(items: list[int]) -> None:
    """B-009."""
    calls: list[list[int]] = []

    async def start(x: Any) -> Any:
        return x

    async def other(x: Any) -> int:
        return 7

    async def source(x: Any) -> list[int]:
        return items

    async def body(item: int) -> int:
        await yield_often(item)
        return item * 10

    async def join(parts: list[int]) -> list[int]:
        calls.append(parts)
        return parts

    async def last(join: list[int], other: int) -> Any:
        return (join, other)

    workflow = Workflow("g")
    for fn in (start, other, source, body, join, last):
        workflow.add(fn)
    workflow.chain(START, start, other, last)
    workflow.edge(start, source)
    workflow.map(source, body)
    workflow.gather(body, join)
    workflow.chain(join, last, END)
    expected = [item * 10 for item in items]
    assert (await workflow.run()).output == (expected, 7)
    assert calls == [expected]


async def test_gather_of_nested_maps_gives_nested_lists_whatever_is_empty() -> None:
    async def rows(x: Any) -> list[int]:
        return [0, 2, 1, 0]

    async def cells(n: int) -> list[int]:
        return list(range(n))

    async def cell(n: int) -> int:
        return n + 1

    async def row(cells: list[int]) -> list[int]:
        return cells

    workflow = Workflow("g")
    for fn in (rows, cells, cell, row):
        workflow.add(fn)
    workflow.edge(START, rows)
    workflow.map(rows, cells)
    workflow.map(cells, cell)
    workflow.gather(cell, row)
    workflow.gather(row, END)
    assert (await workflow.run()).output == [[], [1, 2], [1], []]


async def test_map_not_taken_skips_its_gather() -> None:
    """E10: `[]` for a map that was taken, nothing for one that was not."""

    async def source(x: Any) -> list[int]:
        return []

    async def body(item: int) -> int:
        return item

    async def last(parts: list[int] | None, source: list[int]) -> Any:
        return parts

    workflow = Workflow("g")
    for fn in (source, body, last):
        workflow.add(fn)
    workflow.edge(START, source)
    workflow.map(source, body, when=bool)
    workflow.gather(body, last, into="parts")
    workflow.edge(source, last)
    workflow.edge(last, END)
    result = await workflow.run()
    assert result.output is None
    assert "body" not in ran(result)


# --- B-011: a join with a parent that was not chosen -------------------------------------------------------


@pytest.mark.parametrize("choice", ["a", "b"])
async def test_join_of_two_parents_runs_when_one_was_not_chosen(choice: str) -> None:
    """B-011."""
    workflow = Workflow("g")
    for name in "abcd":
        workflow.add(passing(name), name=name)
    workflow.branch(START, {"a": "a", "b": "b"})
    workflow.edge("a", "c")
    workflow.edge("b", "c")
    workflow.chain("c", "d", END)
    result = await workflow.run(choice)
    assert ran(result) == [choice, "c", "d"]
    assert result.output == "d"
    other = "ab".replace(choice, "")
    assert states(result) == {choice: "succeeded", other: "skipped", "c": "succeeded", "d": "succeeded"}


async def test_when_no_parent_is_chosen_the_end_is_loud() -> None:
    """B-011, E8: names what did not run, and the conditions that were false."""
    workflow = Workflow("g")
    for name in "abc":
        workflow.add(passing(name), name=name)
    for name in "ab":
        workflow.edge(START, name, when=lambda x: False, label=f"wants {name}")
        workflow.edge(name, "c")
    workflow.edge("c", END)
    with pytest.raises(GraphError, match="graph 'g' ended without reaching END") as caught:
        await workflow.run()
    assert "nodes that did not run: a, b, c" in str(caught.value)
    assert "START -> a (wants a), START -> b (wants b)" in str(caught.value)


# --- AC-C05, AC-C09: skipped and succeeded -----------------------------------------------------------------


async def test_join_runs_once_with_the_branch_that_was_taken() -> None:
    """AC-C05."""
    calls: list[Any] = []

    async def join(value: Any) -> Any:
        calls.append(value)
        return value

    workflow = Workflow("g")
    for name in ("entry", "a", "b"):
        workflow.add(passing(name), name=name)
    workflow.add(join)
    workflow.edge(START, "entry")
    workflow.edge("entry", "a", when=lambda value: True)
    workflow.edge("entry", "b", when=lambda value: False)
    workflow.edge("a", join)
    workflow.edge("b", join)
    workflow.edge(join, END)
    result = await workflow.run()
    assert calls == ["a"]
    assert states(result)["b"] is NodeState.SKIPPED
    assert [s.state for s in result.steps if s.node == "b"] == ["skipped"]


async def test_executed_nodes_have_succeeded_and_untaken_ones_are_skipped() -> None:
    """AC-C09."""
    workflow = Workflow("g")
    for name in ("a", "b", "c"):
        workflow.add(passing(name), name=name)
    workflow.edge(START, "a")
    workflow.branch("a", {"a": "b", "z": "c"})
    workflow.edge("b", END)
    workflow.edge("c", END)
    result = await workflow.run()
    assert states(result) == {"a": "succeeded", "b": "succeeded", "c": "skipped"}


async def test_finished_step_is_not_forced_back_to_running() -> None:
    """AC-C09."""
    workflow = Workflow("g")
    workflow.add(passing("a"), name="a")
    workflow.chain(START, "a", END)
    core = RunCore(workflow.compile().program)
    core.start(None, 0.0)
    step = core.ready.popleft()
    core.step_started(step, 0.0)
    core.step_finished(step, 1, 0.0)
    before = (step.state, step.value, list(core.steps))
    with pytest.raises(InvalidTransitionError, match=r"'a' .*succeeded.*running"):
        core.step_started(step, 0.0)
    assert (step.state, step.value, list(core.steps)) == before


# --- B-013: branches of unequal length ---------------------------------------------------------------------


async def test_node_behind_unequal_branches_runs_once() -> None:
    """B-013."""
    workflow = graph(("START", "a"), ("a", "b"), ("b", "d"), ("a", "c"), ("c", "c2"), ("c2", "d"), ("d", "END"))
    result = await workflow.run()
    assert times(result) == Counter("abcd") + Counter(["c2"])
    assert result.output == "d<b<c2"


async def test_node_with_a_direct_and_a_long_way_runs_once() -> None:
    workflow = graph(
        ("START", "a"), ("a", "e"), ("a", "b"), ("b", "c"), ("c", "d"), ("d", "e"), ("b", "e"), ("e", "END")
    )
    result = await workflow.run()
    assert times(result)["e"] == 1
    assert result.output == "e<a<b<d"


async def test_ladder_of_diamonds_runs_each_node_once() -> None:
    edges: list[tuple[str, str]] = [("START", "n0")]
    for i in range(30):
        edges += [(f"n{i}", f"l{i}"), (f"n{i}", f"r{i}"), (f"l{i}", f"n{i + 1}"), (f"r{i}", f"n{i + 1}")]
        edges += [(f"l{i}", f"r{i}")]
    workflow = graph(*edges, ("n30", "END"))
    result = await workflow.run()
    assert set(times(result).values()) == {1}
    assert len(times(result)) == 91


async def test_unequal_branches_in_a_cycle_run_once_a_round() -> None:
    seen: list[tuple[Any, Any]] = []

    async def start(n: int) -> int:
        return n + 1

    async def short(n: int) -> int:
        return n

    async def long1(n: int) -> int:
        await yield_often()
        return n

    async def long2(n: int) -> int:
        return n * 10

    async def join(short: int, long2: int) -> int:
        seen.append((short, long2))
        return short

    workflow = Workflow("g")
    for fn in (start, short, long1, long2, join):
        workflow.add(fn)
    workflow.chain(START, start, short, join)
    workflow.chain(start, long1, long2, join)
    workflow.edge(join, start, when=lambda n: n < 3)
    workflow.edge(join, END, when=lambda n: n >= 3)
    await workflow.run(0)
    assert seen == [(1, 10), (2, 20), (3, 30)]


# --- B-015: nobody waits for an unrelated branch -----------------------------------------------------------


async def test_quick_branch_goes_on_while_a_slow_one_works() -> None:
    """B-015."""
    started: dict[str, float] = {}
    begun = anyio.current_time()

    def node(name: str, seconds: float) -> Callable[..., Any]:
        async def work(x: Any) -> None:
            started[name] = anyio.current_time() - begun
            await anyio.sleep(seconds)

        return work

    workflow = Workflow("g")
    for name, seconds in (("a", 0.0), ("b", 1.0), ("c", 5.0), ("d", 0.0)):
        workflow.add(node(name, seconds), name=name)
    workflow.chain(START, "a", "b", "d", END)
    workflow.chain("a", "c", END)
    await workflow.run()
    assert started["d"] == pytest.approx(1.0)
    assert anyio.current_time() - begun == pytest.approx(5.0)


async def test_quick_item_of_a_map_goes_on_while_a_slow_one_works() -> None:
    ends: dict[int, float] = {}
    begun = anyio.current_time()

    async def source(x: Any) -> list[int]:
        return [5, 1, 3]

    async def first(n: int) -> int:
        await anyio.sleep(n)
        return n

    async def second(n: int) -> int:
        ends[n] = anyio.current_time() - begun
        return n

    workflow = Workflow("g")
    for fn in (source, first, second):
        workflow.add(fn)
    workflow.edge(START, source)
    workflow.map(source, first)
    workflow.edge(first, second)
    workflow.gather(second, END)
    assert (await workflow.run()).output == [5, 1, 3]
    assert ends == pytest.approx({1: 1.0, 3: 3.0, 5: 5.0})


async def test_skipped_branch_lets_the_join_go_at_once() -> None:
    begun = anyio.current_time()
    joined: list[float] = []

    async def slow(x: Any) -> int:
        await anyio.sleep(9)
        return 1

    async def join(quick: Any = None, after: Any = None) -> None:
        joined.append(anyio.current_time() - begun)

    workflow = Workflow("g")
    for fn in (slow, join):
        workflow.add(fn)
    for name in ("quick", "never", "after"):
        workflow.add(passing(name), name=name)
    workflow.chain(START, slow, END)
    workflow.chain(START, "quick", join, END)
    workflow.edge("quick", "never", when=lambda x: False)
    workflow.chain("never", "after", join)
    await workflow.run()
    assert joined == pytest.approx([0.0])


# --- B-016: several routers --------------------------------------------------------------------------------


async def test_three_routers_of_one_step_each_route() -> None:
    """B-016."""
    workflow = Workflow("g")
    workflow.add(passing("step"), name="step")
    workflow.edge(START, "step")
    for i in range(3):
        for name in (f"router{i}", f"yes{i}", f"no{i}", f"deeper{i}", f"far{i}", f"near{i}"):
            workflow.add(passing(name), name=name)
        workflow.edge("step", f"router{i}")
        workflow.branch(f"router{i}", {f"router{i}": f"yes{i}", "other": f"no{i}"})
        workflow.edge(f"yes{i}", f"deeper{i}")
        workflow.branch(f"deeper{i}", {"near": f"near{i}"}, key=lambda label: label[:4], default=f"far{i}")
        for name in (f"no{i}", f"far{i}", f"near{i}"):
            workflow.edge(name, END)
    result = await workflow.run()
    assert set(result.outputs) == {"far0", "far1", "far2"}
    assert times(result) == Counter(
        ["step", *(f"{name}{i}" for name in ("router", "yes", "deeper", "far") for i in range(3))]
    )


async def test_several_branches_of_one_node_are_decided_apart() -> None:
    workflow = Workflow("g")
    workflow.add(passing("ab"), name="source")
    for name in ("a1", "a2", "b1", "b2"):
        workflow.add(passing(name), name=name)
        workflow.edge(name, END)
    workflow.edge(START, "source")
    workflow.branch("source", {"a": "a1", "x": "a2"}, key=lambda text: text[0])
    workflow.branch("source", {"x": "b1", "b": "b2"}, key=lambda text: text[1])
    assert list((await workflow.run()).outputs) == ["a1", "b2"]


async def test_branch_may_lead_to_end_and_back() -> None:
    async def step(n: int) -> int:
        return n - 1

    workflow = Workflow("g")
    workflow.add(step)
    workflow.edge(START, step)
    workflow.branch(step, {True: END, False: step}, key=lambda n: n == 0)
    assert (await workflow.run(5)).output == 0


# --- B-019: a join that is not on the way ------------------------------------------------------------------


async def test_run_ends_when_the_branch_with_the_join_was_not_taken() -> None:
    """B-019."""
    workflow = Workflow("g")
    for name in ("classify", "one", "two", "extra"):
        workflow.add(passing(name), name=name)
    workflow.add(collecting("join", ["two", "extra"]))
    workflow.edge(START, "classify")
    workflow.branch("classify", {"classify": "one", "other": "two"})
    workflow.edge("one", END)
    workflow.edge("two", "join")
    workflow.edge("two", "extra")
    workflow.edge("extra", "join")
    workflow.edge("join", END)
    with anyio.fail_after(GUARD):
        result = await workflow.run()
    assert result.output == "one"
    assert {name for name, state in states(result).items() if state == "skipped"} == {"two", "extra", "join"}


async def test_skipped_cycle_is_skipped_as_a_whole() -> None:
    workflow = Workflow("g")
    for name in ("entry", "out", "head", "tail", "after"):
        workflow.add(passing(name), name=name)
    workflow.edge(START, "entry")
    workflow.branch("entry", {"entry": "out"}, default="head")
    workflow.chain("head", "tail", "head")
    workflow.edge("tail", "after", when=bool)
    workflow.edge("after", END)
    workflow.edge("out", END)
    with anyio.fail_after(GUARD):
        result = await workflow.run()
    assert result.output == "out"
    assert ran(result) == ["entry", "out"]
    assert result.node_states["after"] is NodeState.SKIPPED


def contains(part: str, text: str) -> bool:
    return part in text


async def test_quorum_that_cannot_be_met_is_skipped_and_says_how_many_came() -> None:
    """E3."""
    workflow = Workflow("g")
    for name in ("a", "b", "c"):
        workflow.add(passing(name), name=name)
        workflow.edge(START, name, when=partial(contains, name))
        workflow.edge(name, END)
    workflow.add(collecting("join", ["a", "b", "c"]), join=3)
    for name in ("a", "b", "c"):
        workflow.edge(name, "join")
    workflow.edge("join", END)
    result = await workflow.run("ab")
    (skipped,) = [s for s in result.steps if s.node == "join"]
    assert (skipped.state, skipped.reason) == ("skipped", "2 of 3")
    assert list(result.outputs) == ["a", "b"]


# --- B-022: limits of concurrency --------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [1, 2, 4, None])
@pytest.mark.parametrize("where", ["run", "workflow", "map", "node"])
async def test_six_items_all_run_under_every_limit(limit: int | None, where: str) -> None:
    """B-022."""
    gate = Gate()

    async def source(x: Any) -> list[int]:
        return list(range(6))

    async def body(item: int) -> int:
        async with gate:
            await anyio.sleep(1)
        return item

    workflow = Workflow("g", max_concurrency=limit if where == "workflow" else None)
    workflow.add(source)
    workflow.add(body, max_concurrency=limit if where == "node" else None)
    workflow.edge(START, source)
    workflow.map(source, body, max_concurrency=limit if limit and where == "map" else 100)
    workflow.gather(body, END)
    with anyio.fail_after(GUARD):
        result = await workflow.run(max_concurrency=limit if where == "run" else None)
    assert result.output == list(range(6))
    assert gate.calls == 6
    assert gate.most == (limit or 6)


async def test_limit_of_one_lets_nested_maps_graphs_and_retries_through() -> None:
    gate = Gate()

    async def leaf(n: int) -> int:
        async with gate:
            await yield_often(2)
        return n

    async def spread(n: int) -> list[int]:
        async with gate:
            return [n, n]

    async def total(parts: list[int]) -> int:
        return sum(parts)

    inner = Workflow("inner")
    for fn in (spread, leaf, total):
        inner.add(fn)
    inner.edge(START, spread)
    inner.map(spread, leaf, max_concurrency=1)
    inner.gather(leaf, total)
    inner.edge(total, END)
    outer = Workflow("outer")
    outer.add(spread)
    outer.add(inner)
    outer.edge(START, spread)
    outer.map(spread, inner, max_concurrency=1)
    outer.gather(inner, END)
    with anyio.fail_after(GUARD):
        result = await outer.run(3, max_concurrency=1)
    assert result.output == [6, 6]
    assert gate.most == 1


async def test_events_of_a_graph_with_everything_are_whole() -> None:
    events: list[Any] = []
    workflow = graph(("START", "a"), ("a", "b"), ("b", "d"), ("a", "c"), ("c", "d"), ("d", "END"), d={"join": "any"})
    await workflow.run(on_event=events.append)
    check_whole(events)
