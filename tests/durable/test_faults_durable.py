"""Faults that engines of this kind have had with stored runs, each as a test."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from graphrt import END, START, RunContext, Workflow
from graphrt.graph import RunStatus
from graphrt.graph.durable.work import STATUSES
from graphrt.ledger import InMemoryRunLedgerStore, RunLedgerStore
from tests.durable.helpers import Calls, check_numbers, store_of, stored_events

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["memory", "sqlite"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    async with store_of(request.param, tmp_path) as made:
        yield made


async def test_cancel_around_the_end_agrees_with_the_ledger(store: RunLedgerStore) -> None:
    """B-043."""
    short = Workflow("short", input=int, output=int)

    @short.node
    async def one(x: int) -> int:
        for _ in range(x):
            await anyio.lowlevel.checkpoint()
        return x

    short.chain(START, one, END)
    graph = short.compile()
    outcomes: set[str] = set()
    for number in range(40):
        async with graph.stream(number % 7, ledger=store, run_id=f"r{number}", check=False) as run:
            for _ in range(number % 20):
                await anyio.lowlevel.checkpoint()
            answer = await run.cancel()
        stored = await store.get_run(f"r{number}")
        assert stored is not None
        assert stored.status == STATUSES[answer.status]
        assert (answer.outcome == "cancelled") == (stored.status == "cancelled")
        last = (await stored_events(store, f"r{number}"))[-1]
        assert last.type == ("run.cancelled" if answer.outcome == "cancelled" else "run.completed")
        outcomes.add(answer.outcome)
    assert "cancelled" in outcomes


async def test_random_draws_before_a_resume_change_no_key(store: RunLedgerStore) -> None:
    """B-077: keys follow from where a step stands in the graph."""
    keys: list[str] = []
    fails = True
    draws = Workflow("draws", input=int, output=int)

    @draws.node
    async def one(x: int, ctx: RunContext[Any]) -> int:
        random.random()  # noqa: S311 - a draw
        keys.append(ctx.idempotency_key)
        if fails:
            raise ValueError
        return x

    draws.chain(START, one, END)
    await draws.run(1, ledger=store, run_id="r", check=False)
    fails = False
    random.random()  # noqa: S311 - a draw
    await draws.resume("r", ledger=store)
    assert keys == ["r:one", "r:one"]


async def test_tool_results_that_were_stored_are_not_asked_for_again(store: RunLedgerStore) -> None:
    """B-073: three calls of a turn, of which the last has failed."""
    calls = Calls()
    turn = Workflow("turn", input=list[str])

    @turn.node
    async def ask(names: list[str]) -> list[str]:
        return names

    @turn.node
    async def tool(name: str) -> str:
        calls(name)
        return name.upper()

    @turn.node
    async def answer(results: list[str]) -> str:
        return " ".join(results)

    turn.chain(START, ask)
    turn.map(ask, tool, max_concurrency=1)
    turn.gather(tool, answer)
    turn.edge(answer, END)
    calls.fails = {"c"}
    await turn.run(["a", "b", "c"], ledger=store, run_id="r", check=False)
    calls.fails = set()
    calls.taken()
    assert (await turn.resume("r", ledger=store)).output == "A B C"
    assert calls.taken() == ["c"]


async def test_caller_that_is_cancelled_leaves_a_whole_run_that_can_go_on(store: RunLedgerStore) -> None:
    """Whenever it happens: nothing is stored twice, nothing is lost, and the run is not left claimed."""
    calls = Calls()
    long = Workflow("long", input=int, output=int)

    def node(name: str) -> Any:
        async def add(x: int) -> int:
            calls(name)
            await anyio.sleep(0.01)
            return x + 1

        return add

    names = [f"n{number}" for number in range(5)]
    for name in names:
        long.add_node(name, node(name))
    long.chain(START, *names, END)
    graph = long.compile()
    for number, durability in enumerate(("sync", "async", "exit") * 5):
        run_id = f"r{number}"
        with anyio.move_on_after(0.005 * number):
            await graph.run(1, ledger=store, run_id=run_id, durability=durability)  # type: ignore[arg-type]
        stored = await store.get_run(run_id)
        if stored is None:
            continue
        assert stored.claimed_by is None
        if stored.status == "completed":
            continue
        ended = {e.data["step"]["node"] for e in await stored_events(store, run_id) if e.type == "step.completed"}
        calls.taken()
        assert (await graph.resume(run_id, ledger=store)).output == 6
        assert calls.taken() == [name for name in names if name not in ended]
        check_numbers(await stored_events(store, run_id))


async def test_usage_of_all_stretches_is_summed(store: RunLedgerStore) -> None:
    from graphrt.messages import TokenUsage

    fails = True
    counted = Workflow("counted", input=int, output=int)

    @counted.node
    async def one(x: int, ctx: RunContext[Any]) -> int:
        ctx.record_usage(TokenUsage(input_tokens=3, output_tokens=1))
        return x

    @counted.node
    async def two(x: int, ctx: RunContext[Any]) -> int:
        ctx.record_usage(TokenUsage(input_tokens=10, output_tokens=2))
        if fails:
            raise ValueError
        return x

    counted.chain(START, one, two, END)
    await counted.run(1, ledger=store, run_id="r", check=False)
    fails = False
    result = await counted.resume("r", ledger=store)
    assert (result.usage.input_tokens, result.usage.output_tokens) == (23, 5)
    stored = await store.get_run("r")
    assert stored is not None
    assert stored.usage == result.usage


async def test_many_stored_runs_of_one_graph_at_once_do_not_mix(store: RunLedgerStore) -> None:
    """B-006, with a ledger."""
    add = Workflow("add", input=int, output=int)

    @add.node
    async def one(x: int) -> int:
        await anyio.sleep(0.001)
        return x + 1

    add.chain(START, one, END)
    graph = add.compile()
    outputs: dict[int, int] = {}

    async def run(number: int) -> None:
        outputs[number] = (await graph.run(number, ledger=store, run_id=f"r{number}")).output

    async with anyio.create_task_group() as tasks:
        for number in range(50):
            tasks.start_soon(run, number)
    assert outputs == {number: number + 1 for number in range(50)}
    for number in range(50):
        check_numbers(await stored_events(store, f"r{number}"))


async def test_long_run_is_restored_in_time_that_grows_with_it() -> None:
    """Ten thousand steps: what is read is read once."""
    import time

    loop = Workflow("loop", input=int, output=int, max_rounds=10_001)
    most = 10_000
    fails = True

    @loop.node
    async def add(x: int) -> int:
        if fails and x == most - 1:
            raise ValueError
        return x + 1

    loop.edge(START, add)
    loop.edge(add, add, when=lambda x: x < most)
    loop.edge(add, END, when=lambda x: x >= most)
    store = InMemoryRunLedgerStore()
    result = await loop.run(0, ledger=store, run_id="r", check=False)
    assert result.status is RunStatus.FAILED
    fails = False
    began = time.process_time()
    assert (await loop.resume("r", ledger=store)).output == most
    assert time.process_time() - began < 20
