"""Taking a stored run up again: what has ended does not run again, what has failed does (E25)."""

from __future__ import annotations

import operator
from pathlib import Path
from typing import Annotated, Any

import anyio
import pytest
from pydantic import BaseModel

from graphrt import END, START, Reduce, RetryPolicy, RunContext, Update, Workflow
from graphrt.errors import GraphError, RunControlError
from graphrt.graph import Failure, NodeState
from graphrt.ledger import InMemoryRunLedgerStore, RunLedgerStore
from tests.durable.helpers import Calls, Cut, chain, check_numbers, ended_keys, free, store_of, stored_events

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["memory", "sqlite"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    async with store_of(request.param, tmp_path) as made:
        yield made


@pytest.fixture
def calls() -> Calls:
    return Calls()


async def check_whole(store: RunLedgerStore, run_id: str = "r") -> None:
    events = await stored_events(store, run_id)
    check_numbers(events)
    assert not [key for key, times in ended_keys(events).items() if times > 1]


async def cut_off(graph: Any, value: Any, store: RunLedgerStore, after: str) -> None:
    """Run until the end of a step is stored, and no further: as if the process had died then."""
    probe = InMemoryRunLedgerStore()
    await graph.run(value, ledger=probe, run_id="r", check=False)
    events = await stored_events(probe, "r")
    at = next(e.sequence for e in events if e.type == "step.completed" and _key(e) == after)
    with pytest.raises(RunControlError, match="has died"):
        await graph.run(value, ledger=Cut(store, at).as_store(), run_id="r", durability="sync")
    await free(store, "r")


def _key(event: Any) -> str:
    ref = event.data["step"]
    return str(ref.get("key", ref["node"]))


# --- after a failure, and after a death --------------------------------------------------------------------


async def test_resume_runs_the_failed_node_and_those_after_it(store: RunLedgerStore, calls: Calls) -> None:
    """B-061: node 3 of 5 raises; 3, 4 and 5 run."""
    calls.fails = {"n3"}
    graph = chain(calls).compile()
    with pytest.raises(ValueError, match="n3 fails"):
        await graph.run(1, ledger=store, run_id="r")
    assert calls.taken() == ["n1", "n2", "n3"]
    with pytest.raises(ValueError, match="n3 fails"):
        await graph.resume("r", ledger=store)
    assert calls.taken() == ["n3"]
    calls.fails = set()
    result = await graph.resume("r", ledger=store)
    assert (result.output, calls.taken()) == (6, ["n3", "n4", "n5"])
    assert [s.state for s in result.steps] == [NodeState.SUCCEEDED] * 5
    await check_whole(store)
    with pytest.raises(RunControlError, match="completed"):
        await graph.resume("r", ledger=store)


async def test_resume_after_a_death_runs_what_had_not_ended(store: RunLedgerStore, calls: Calls) -> None:
    """B-058: three nodes, stopped after the second; only the third runs."""
    graph = chain(calls, 3).compile()
    await cut_off(graph, 1, store, "n2")
    calls.taken()
    assert (await graph.resume("r", ledger=store)).output == 4
    assert calls.taken() == ["n3"]
    await check_whole(store)


async def test_run_of_a_dead_process_is_taken_over_by_who_asks_for_it(store: RunLedgerStore, calls: Calls) -> None:
    graph = chain(calls, 3).compile()
    await cut_off(graph, 1, store, "n2")
    calls.taken()
    assert (await graph.run(1, ledger=store, run_id="r")).output == 4
    assert calls.taken() == ["n3"]


async def test_unknown_run_cannot_be_resumed(store: RunLedgerStore, calls: Calls) -> None:
    with pytest.raises(RunControlError) as caught:
        await chain(calls).resume("r", ledger=store)
    assert caught.value.code == "not_found"


async def test_of_two_who_resume_a_run_one_goes_on_and_the_other_is_told(store: RunLedgerStore, calls: Calls) -> None:
    calls.fails = {"n1"}
    graph = chain(calls).compile()
    await graph.run(1, ledger=store, run_id="r", check=False)
    calls.fails = set()
    calls.taken()
    answers: list[Any] = []

    async def resume() -> None:
        try:
            answers.append((await graph.resume("r", ledger=store)).output)
        except RunControlError as error:
            answers.append(error.code)

    async with anyio.create_task_group() as tasks:
        for _ in range(5):
            tasks.start_soon(resume)
    assert sorted(map(str, answers)) == ["6", "conflict", "conflict", "conflict", "conflict"]
    assert calls.taken() == ["n1", "n2", "n3", "n4", "n5"]


async def test_resume_of_a_failed_sub_graph_runs_what_failed_in_it_though_it_took_time_to_end(
    store: RunLedgerStore, calls: Calls
) -> None:
    """What ended beside it meanwhile does not run again either."""
    inner = Workflow("inner", input=int, output=int)

    @inner.node
    async def bad(x: int) -> int:
        await anyio.sleep(0.02)
        calls("bad")
        return x

    @inner.node
    async def slow(x: int) -> int:
        calls("slow")
        try:
            await anyio.sleep(0.1)
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.sleep(0.1)
        return x

    @inner.node
    async def both(bad: int, slow: int) -> int:
        return bad + slow

    inner.edge(START, bad)
    inner.edge(START, slow)
    inner.edge(bad, both)
    inner.edge(slow, both)
    inner.edge(both, END)
    outer = Workflow("outer", input=int, output=int)
    outer.add(inner, name="held")

    def beside(name: str, seconds: float) -> Any:
        async def node(x: int) -> int:
            await anyio.sleep(seconds)
            calls(name)
            return x

        return node

    for name, seconds in (("one", 0.0), ("two", 0.05), ("three", 0.01)):
        outer.add_node(name, beside(name, seconds))

    @outer.node
    async def end(held: int, three: int) -> int:
        return held + three

    outer.chain(START, "one", "two", "three", end, END)
    outer.edge(START, "held")
    outer.edge("held", end)
    calls.fails = {"bad"}
    graph = outer.compile()
    with pytest.raises(ValueError, match="bad fails"):
        await graph.run(1, ledger=store, run_id="r")
    assert sorted(calls.taken()) == ["bad", "one", "slow", "three", "two"]
    calls.fails = set()
    assert (await graph.resume("r", ledger=store)).output == 3
    assert sorted(calls.taken()) == ["bad", "slow"]
    check_numbers(await stored_events(store, "r"))
    assert (await graph.run(1, ledger=store, run_id="r")).output == 3


async def test_own_error_of_the_graph_comes_again_and_runs_nothing_that_has_ended(
    store: RunLedgerStore, calls: Calls
) -> None:
    nowhere = Workflow("nowhere", input=int, output=int)

    @nowhere.node
    async def one(x: int) -> int:
        calls("one")
        return x

    @nowhere.node
    async def two(x: int) -> int:
        calls("two")
        return x

    nowhere.chain(START, one, two)
    nowhere.edge(two, END, when=lambda x: x > 5)
    graph = nowhere.compile()
    with pytest.raises(GraphError):
        await graph.run(1, ledger=store, run_id="r")
    calls.taken()
    for _ in range(2):
        with pytest.raises(GraphError):
            await graph.resume("r", ledger=store)
    assert calls.taken() == []
    check_numbers(await stored_events(store, "r"))


async def test_run_that_failed_as_it_began_fails_alike_when_it_is_resumed(store: RunLedgerStore, calls: Calls) -> None:
    none = Workflow("none", input=int)

    @none.node
    async def one(x: int) -> int:
        calls("one")
        return x

    none.edge(START, one, when=lambda x: x > 5)
    none.edge(one, END)
    graph = none.compile()
    errors = []
    for number in range(3):
        with pytest.raises(GraphError, match="without reaching END") as caught:
            await (graph.resume("r", ledger=store) if number else graph.run(1, ledger=store, run_id="r"))
        errors.append(str(caught.value))
    assert len(set(errors)) == 1
    assert calls.taken() == []
    await check_whole(store)


# --- loops, maps, iterators --------------------------------------------------------------------------------


async def test_loop_goes_on_in_its_round(store: RunLedgerStore, calls: Calls) -> None:
    loop = Workflow("loop", input=int, output=int)

    @loop.node
    async def draft(x: int, ctx: RunContext[Any]) -> int:
        calls(f"draft{ctx.step.round}")
        return x + 1

    @loop.node
    async def review(x: int, ctx: RunContext[Any]) -> int:
        calls(f"review{ctx.step.round}")
        return x

    loop.chain(START, draft, review)
    loop.edge(review, draft, when=lambda x: x < 4)
    loop.edge(review, END, when=lambda x: x >= 4)
    calls.fails = {"review3"}
    graph = loop.compile()
    with pytest.raises(ValueError, match="review3"):
        await graph.run(0, ledger=store, run_id="r")
    calls.fails = set()
    calls.taken()
    result = await graph.resume("r", ledger=store)
    assert (result.output, result.rounds) == (4, 4)
    assert calls.taken() == ["review3", "draft4", "review4"]
    await check_whole(store)


def mapped(calls: Calls, **options: Any) -> Workflow:
    workflow = Workflow("mapped", input=int)

    @workflow.node
    async def items(x: int) -> list[int]:
        calls("items")
        return list(range(x))

    @workflow.node
    async def one(i: int) -> int:
        await anyio.sleep(0.001 * i)
        calls(f"one{i}")
        return i

    @workflow.node
    async def two(i: int) -> int:
        calls(f"two{i}")
        return i * 10

    @workflow.node
    async def end(xs: list[Any]) -> Any:
        calls("end")
        return [x if isinstance(x, int) else type(x.error).__name__ for x in xs]

    workflow.chain(START, items)
    workflow.map(items, one, **options)
    workflow.chain(one, two)
    workflow.gather(two, end)
    workflow.edge(end, END)
    return workflow


async def test_items_that_have_ended_do_not_run_again(store: RunLedgerStore, calls: Calls) -> None:
    calls.fails = {"two3"}
    graph = mapped(calls).compile()
    with pytest.raises(ValueError, match="two3"):
        await graph.run(5, ledger=store, run_id="r")
    before = set(calls.taken())
    calls.fails = set()
    assert (await graph.resume("r", ledger=store)).output == [0, 10, 20, 30, 40]
    again = set(calls.taken())
    assert again & before <= {"two3", "one4"}  # item 4 may have been at work
    assert "two3" in again
    await check_whole(store)


@pytest.mark.parametrize("policy", ["skip", "collect"])
async def test_items_whose_failure_was_handled_stay_failed(store: RunLedgerStore, calls: Calls, policy: str) -> None:
    calls.fails = {"one1", "end"}
    graph = mapped(calls, on_error=policy).compile()
    with pytest.raises(ValueError, match="end fails"):
        await graph.run(3, ledger=store, run_id="r")
    calls.fails = set()
    calls.taken()
    result = await graph.resume("r", ledger=store)
    assert result.output == ([0, 20] if policy == "skip" else [0, "ValueError", 20])
    assert calls.taken() == ["end"]


async def test_failure_that_was_collected_is_the_same_after_a_resume(store: RunLedgerStore, calls: Calls) -> None:
    kept: list[Failure] = []
    collect = Workflow("collect", input=int)

    @collect.node
    async def items(x: int) -> list[int]:
        return list(range(x))

    @collect.node
    async def one(i: int) -> int:
        if i == 1:
            raise LookupError("gone", i)
        return i

    @collect.node
    async def end(xs: list[Any]) -> int:
        kept.append(xs[1])
        calls("end")
        return len(xs)

    collect.chain(START, items)
    collect.map(items, one, on_error="collect")
    collect.gather(one, end)
    collect.edge(end, END)
    calls.fails = {"end"}
    await collect.run(3, ledger=store, run_id="r", check=False)
    calls.fails = set()
    await collect.resume("r", ledger=store)
    first, second = kept
    assert (type(second.error), second.error.args) == (LookupError, ("gone", 1))
    assert (first.node, first.scope, first.round, first.index) == (
        second.node,
        second.scope,
        second.round,
        second.index,
    )


async def test_iterator_goes_on_after_its_stored_items(store: RunLedgerStore, calls: Calls) -> None:
    lazy = Workflow("lazy", input=int)

    @lazy.node
    async def items(x: int):  # type: ignore[no-untyped-def]  # an async generator
        for i in range(x):
            calls(f"yield{i}")
            yield i
            await anyio.sleep(0.005)

    @lazy.node
    async def body(i: int) -> int:
        calls(f"body{i}")
        return i

    @lazy.node
    async def total(xs: list[int]) -> int:
        return sum(xs)

    lazy.chain(START, items)
    lazy.map(items, body)
    lazy.gather(body, total)
    lazy.edge(total, END)
    calls.fails = {"yield3"}
    graph = lazy.compile()
    with pytest.raises(ValueError, match="yield3"):
        await graph.run(5, ledger=store, run_id="r")
    assert [c for c in calls.taken() if c.startswith("body")] == ["body0", "body1", "body2"]
    calls.fails = set()
    assert (await graph.resume("r", ledger=store)).output == 10
    assert [c for c in calls.taken() if c.startswith("body")] == ["body3", "body4"]
    await check_whole(store)


async def test_second_activation_in_a_loop_runs_and_the_first_is_found(store: RunLedgerStore, calls: Calls) -> None:
    """B-072: ids of a map in a loop differ from round to round, and are found again."""
    loop = Workflow("loop", input=int, output=int)

    @loop.node
    async def items(x: int, ctx: RunContext[Any]) -> list[int]:
        return [x, x]

    @loop.node
    async def part(i: int, ctx: RunContext[Any]) -> int:
        calls(ctx.idempotency_key)
        return i

    @loop.node
    async def total(xs: list[int], ctx: RunContext[Any]) -> int:
        calls(f"total{ctx.step.round}")
        return sum(xs)

    loop.chain(START, items)
    loop.map(items, part)
    loop.gather(part, total)
    loop.edge(total, items, when=lambda x: x < 8)
    loop.edge(total, END, when=lambda x: x >= 8)
    calls.fails = {"total2"}
    graph = loop.compile()
    await graph.run(1, ledger=store, run_id="r", check=False)
    first = [c for c in calls.taken() if c.startswith("r:")]
    calls.fails = set()
    assert (await graph.resume("r", ledger=store)).output == 8
    second = [c for c in calls.taken() if c.startswith("r:")]
    assert len({*first, *second}) == len(first) + len(second) == 6


async def test_join_gets_one_value_from_each_after_a_resume(store: RunLedgerStore, calls: Calls) -> None:
    """B-060: a join that had one of its two values when the run failed."""
    join = Workflow("join", input=int)

    @join.node
    async def left(x: int) -> str:
        calls("left")
        return "left"

    @join.node
    async def right(x: int) -> str:
        await anyio.sleep(0.01)
        calls("right")
        return "right"

    @join.node
    async def both(left: str, right: str) -> list[str]:
        calls("both")
        return [left, right]

    for node in (left, right):
        join.edge(START, node)
        join.edge(node, both)
    join.edge(both, END)
    calls.fails = {"right"}
    await join.run(1, ledger=store, run_id="r", check=False)
    calls.fails = set()
    calls.taken()
    assert (await join.resume("r", ledger=store)).output == ["left", "right"]
    assert calls.taken() == ["right", "both"]


@pytest.mark.parametrize("cancel_rest", [True, False])
async def test_join_that_has_fired_is_not_fired_again(store: RunLedgerStore, calls: Calls, cancel_rest: bool) -> None:
    race = Workflow("race", input=int)

    def runner(name: str, seconds: float) -> Any:
        async def node(x: int) -> str:
            await anyio.sleep(seconds)
            calls(name)
            return name

        return node

    for name, seconds in (("slow", 0.05), ("quick", 0.0)):
        race.add_node(name, runner(name, seconds))
        race.edge(START, name)

    @race.node(join="any", cancel_rest=cancel_rest)
    async def winner(x: str) -> str:
        calls(f"winner {x}")
        return x

    @race.node
    async def end(x: str) -> str:
        calls("end")
        return x

    @race.node(side=True)
    async def side(x: str) -> None:
        calls("side")

    race.edge("slow", winner)
    race.edge("quick", winner)
    race.chain(winner, end, END)
    race.edge(winner, side)
    calls.fails = {"end"}
    await race.run(1, ledger=store, run_id="r", check=False)
    calls.fails = set()
    calls.taken()
    assert (await race.resume("r", ledger=store)).output == "quick"
    again = calls.taken()
    assert "winner quick" not in again
    assert "winner slow" not in again
    assert "end" in again
    await check_whole(store)


# --- failures that are handled, retries --------------------------------------------------------------------


async def test_error_edge_that_was_taken_brings_the_same_error(store: RunLedgerStore, calls: Calls) -> None:
    class OwnError(Exception):
        pass

    handled = Workflow("handled", input=int, output=str)

    @handled.node
    async def fetch(x: int) -> str:
        calls("fetch")
        raise OwnError("no", 3)

    @handled.node
    async def sorry(error: Exception) -> str:
        calls("sorry")
        return f"{type(error).__name__}{error.args}"

    handled.chain(START, fetch)
    handled.edge(fetch, END)
    handled.edge(fetch, sorry, on_error=OwnError)
    handled.edge(sorry, END)
    calls.fails = {"sorry"}
    await handled.run(1, ledger=store, run_id="r", check=False)
    calls.fails = set()
    calls.taken()
    assert (await handled.resume("r", ledger=store)).output == "OwnError('no', 3)"
    assert calls.taken() == ["sorry"]


async def test_attempts_count_from_one_after_a_resume_with_the_same_key(store: RunLedgerStore) -> None:
    """B-077 and E19: keys follow from where a step stands."""
    seen: list[tuple[int, str]] = []
    broken = True
    flaky = Workflow("flaky", input=int, output=int)

    @flaky.node(retry=RetryPolicy(attempts=3, wait_initial=0.001))
    async def node(x: int, ctx: RunContext[Any]) -> int:
        seen.append((ctx.step.attempt, ctx.idempotency_key))
        if broken or ctx.step.attempt < 3:
            raise ValueError
        return x

    flaky.chain(START, node, END)
    await flaky.run(1, ledger=store, run_id="r", check=False)
    broken = False
    result = await flaky.resume("r", ledger=store)
    assert result.output == 1
    assert [attempt for attempt, _ in seen] == [1, 2, 3, 1, 2, 3]
    assert len({key for _, key in seen}) == 1
    assert result.steps[0].attempts == 3


# --- state, sub-graphs -------------------------------------------------------------------------------------


class Notes(BaseModel):
    lines: Annotated[list[str], Reduce(operator.add)] = []
    last: int = 0


async def test_state_is_the_same_after_a_resume(store: RunLedgerStore, calls: Calls) -> None:
    def make() -> Workflow:
        inner = Workflow("inner", input=int, output=int, state=Notes)

        @inner.node
        async def deep(x: int, notes: Notes) -> Update[int]:
            return Update(x, lines=[f"deep {len(notes.lines)}"], last=x)

        inner.chain(START, deep, END)
        outer = Workflow("outer", input=int, output=int, state=Notes)

        @outer.node
        async def first(x: int) -> Update[int]:
            return Update(x, lines=["first"], last=1)

        @outer.node
        async def left(x: int) -> Update[int]:
            return Update(x, lines=["left"])

        @outer.node
        async def end(held: int, left: int, notes: Notes) -> Update[int]:
            calls(f"end {notes.lines} {notes.last}")
            return Update(held, lines=["end"], last=2)

        outer.add(inner, name="held")
        outer.chain(START, first, "held", end, END)
        outer.edge(first, left)
        outer.edge(left, end)
        return outer

    whole = await make().run(5)
    (text,) = calls.taken()
    calls.fails = {text}
    with pytest.raises(ValueError, match="end"):
        await make().run(5, ledger=store, run_id="r")
    calls.fails = set()
    calls.taken()
    result = await make().resume("r", ledger=store)
    assert calls.taken() == [text]
    assert result.state == whole.state


# --- cancelled, out of time --------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["now", "after_step", "after_round"])
async def test_cancelled_run_can_be_resumed(store: RunLedgerStore, calls: Calls, mode: Any) -> None:
    """B-042: what was let end is stored, and does not run again."""
    loop = Workflow("loop", input=int, output=int)
    reached = anyio.Event()

    @loop.node
    async def one(x: int, ctx: RunContext[Any]) -> int:
        calls(f"one{ctx.step.round}")
        if ctx.step.round == 2:
            reached.set()
            await anyio.sleep(0.05)
        return x

    @loop.node
    async def two(x: int, ctx: RunContext[Any]) -> int:
        calls(f"two{ctx.step.round}")
        return x + 1

    loop.chain(START, one, two)
    loop.edge(two, one, when=lambda x: x < 3)
    loop.edge(two, END, when=lambda x: x >= 3)
    graph = loop.compile()
    async with graph.stream(0, ledger=store, run_id="r", check=False) as run:
        await reached.wait()
        answer = await run.cancel(mode)
        assert answer.outcome == "cancelled"
    done = {"now": ["one1", "two1", "one2"], "after_step": ["one1", "two1", "one2"]}
    assert calls.taken() == done.get(mode, ["one1", "two1", "one2", "two2"])
    stored = await store.get_run("r")
    assert stored is not None
    assert stored.status == "cancelled"
    result = await graph.resume("r", ledger=store)
    assert result.output == 3
    left = {"now": ["one2", "two2", "one3", "two3"], "after_step": ["two2", "one3", "two3"]}
    assert calls.taken() == left.get(mode, ["one3", "two3"])
    await check_whole(store)
    assert (await graph.run(0, ledger=store, run_id="r")).output == 3


async def test_run_out_of_time_can_be_resumed(store: RunLedgerStore, calls: Calls) -> None:
    slow = Workflow("slow", input=int, output=int)

    @slow.node
    async def one(x: int) -> int:
        calls("one")
        return x

    @slow.node
    async def two(x: int) -> int:
        calls("two")
        await anyio.sleep(seconds)
        return x

    slow.chain(START, one, two, END)
    seconds = 10.0
    with pytest.raises(TimeoutError):
        await slow.run(1, ledger=store, run_id="r", timeout=0.1)
    stored = await store.get_run("r")
    assert stored is not None
    assert stored.status == "timeout"
    seconds = 0.0
    calls.taken()
    assert (await slow.resume("r", ledger=store)).output == 1
    assert calls.taken() == ["two"]


# --- forks -------------------------------------------------------------------------------------------------


async def test_fork_goes_on_from_its_event_and_leaves_the_run_as_it_is(store: RunLedgerStore, calls: Calls) -> None:
    calls.fails = {"n3"}
    graph = chain(calls).compile()
    await graph.run(1, ledger=store, run_id="r", check=False)
    calls.fails = set()
    await graph.resume("r", ledger=store)
    calls.taken()
    events = await stored_events(store, "r")
    before = [(e.sequence, e.type, e.data) for e in events]
    for event in events:
        fork = await graph.fork("r", event.sequence, ledger=store)
        result = await graph.resume(fork, ledger=store, check=False)
        assert result.status == "succeeded", event
        assert result.output == 6
        check_numbers(await stored_events(store, fork))
    assert [(e.sequence, e.type, e.data) for e in await stored_events(store, "r")] == before
    with pytest.raises(RunControlError, match="no event 99"):
        await graph.fork("r", 99, ledger=store)
    with pytest.raises(RunControlError, match="exists"):
        await graph.fork("r", 1, ledger=store, new_id="r")
