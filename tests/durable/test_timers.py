"""Waiting for a time in stored runs: over restarts, by workers, and runs that are not to begin before a time."""

from __future__ import annotations

import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphrt import END, START, Ask, CompiledGraph, Workflow
from graphrt.errors import ConfigError, RunControlError
from graphrt.graph import RunStatus
from graphrt.graph.durable.queued import enqueue
from graphrt.graph.durable.work import Ledger
from graphrt.graph.durable.worker import Worker
from graphrt.ledger import AgentRun, AgentRunStatus, InMemoryRunLedgerStore, RunLedgerStore, SqliteRunLedgerStore
from graphrt.nodes import Wait
from graphrt.testing import fake_time
from tests.durable.helpers import Calls, Cut, check_numbers, ended_keys, free, key_of, store_of, stored_events

pytestmark = pytest.mark.anyio

PROGRAM = Path(__file__).parent / "programs" / "waits.py"
ROOT = Path(__file__).parents[2]
GUARD = 30.0


@pytest.fixture(params=["memory", "sqlite"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    async with store_of(request.param, tmp_path) as made:
        yield made


def waiting(calls: Calls, seconds: float) -> CompiledGraph:
    """Make a graph of two nodes with a wait between them."""
    flow = Workflow("waiting", input=int, output=int)

    @flow.node
    async def before(number: int) -> int:
        calls("before")
        return number + 1

    @flow.node
    async def after(number: int) -> int:
        calls("after")
        return number + 1

    flow.add(Wait("rest", seconds=seconds, type=int))
    flow.chain(START, before, "rest", after, END)
    return flow.compile()


async def row(store: RunLedgerStore, run_id: str = "r") -> AgentRun:
    stored = await store.get_run(run_id)
    assert stored is not None
    return stored


async def until_of(store: RunLedgerStore, run_id: str = "r") -> datetime:
    """Give the time that is stored with the waiting, which must be there once."""
    (event,) = [e for e in await stored_events(store, run_id) if "until" in e.data and e.type == "step.waiting"]
    return datetime.fromisoformat(event.data["until"])


async def went_on_at(store: RunLedgerStore, run_id: str = "r") -> datetime:
    """Give the time at which the wait ended, which it must have once."""
    (event,) = [e for e in await stored_events(store, run_id) if e.type == "step.completed" and key_of(e) == "rest"]
    return event.created_at


# --- in one process, and over restarts


async def test_time_that_is_near_is_waited_for_in_the_process(store: RunLedgerStore) -> None:
    result = await waiting(Calls(), 0.2).run(1, ledger=store, run_id="r")
    assert (result.status, result.output, result.wake_at) == ("succeeded", 3, None)
    assert await went_on_at(store) >= await until_of(store)
    assert (await row(store)).wake_at is None


async def test_time_that_is_far_leaves_the_run_waiting_with_the_time_in_its_row(store: RunLedgerStore) -> None:
    calls = Calls()
    graph = waiting(calls, 3600)
    result = await graph.run(1, ledger=store, run_id="r")
    stored = await row(store)
    assert (result.status, result.questions, stored.status) == (RunStatus.WAITING, [], AgentRunStatus.WAITING)
    assert stored.wake_at == result.wake_at == await until_of(store)
    assert stored.claimed_by is None
    assert stored.wake_at is not None
    assert timedelta(0) < stored.wake_at - datetime.now(UTC) <= timedelta(hours=1)
    again = await graph.run(1, ledger=store, run_id="r")
    assert (again.status, again.wake_at) == (RunStatus.WAITING, stored.wake_at)
    assert calls.taken() == ["before"]


async def test_run_taken_up_again_waits_until_the_same_time(store: RunLedgerStore) -> None:
    calls = Calls()
    graph = waiting(calls, 0.6)
    first = await graph.run(1, ledger=Ledger(store, stay_seconds=0), run_id="r")
    assert first.status is RunStatus.WAITING
    await anyio.sleep(0.3)
    result = await graph.resume("r", ledger=store)
    until, on = await until_of(store), await went_on_at(store)
    assert result.output == 3
    assert until <= on < until + timedelta(seconds=0.3)  # and not 0.6 s after it was taken up
    assert calls.taken() == ["before", "after"]
    check_numbers(await stored_events(store, "r"))


async def test_time_that_has_passed_meanwhile_has_come(store: RunLedgerStore) -> None:
    calls = Calls()
    graph = waiting(calls, 0.1)
    await graph.run(1, ledger=Ledger(store, stay_seconds=0), run_id="r")
    await anyio.sleep(0.15)
    result = await graph.resume("r", ledger=Ledger(store, stay_seconds=0))
    assert (result.status, result.output) == ("succeeded", 3)
    assert calls.taken() == ["before", "after"]


async def test_run_resumed_before_its_time_waits_again(store: RunLedgerStore) -> None:
    graph = waiting(Calls(), 3600)
    first = await graph.run(1, ledger=store, run_id="r")
    second = await graph.resume("r", ledger=store)
    assert (second.status, second.wake_at) == (RunStatus.WAITING, first.wake_at)
    assert (await row(store)).wake_at == first.wake_at


async def test_fork_waits_until_the_same_time(store: RunLedgerStore) -> None:
    graph = waiting(Calls(), 0.3)
    await graph.run(1, ledger=Ledger(store, stay_seconds=0), run_id="r")
    events = await stored_events(store, "r")
    await graph.fork("r", next(e.sequence for e in events if e.type == "step.waiting"), ledger=store, new_id="fork")
    assert (await graph.resume("fork", ledger=store)).output == 3
    assert await went_on_at(store, "fork") >= await until_of(store, "fork") == await until_of(store)


@pytest.mark.parametrize("durability", ["sync", "async"])
@pytest.mark.parametrize("cut", range(9))
async def test_wherever_it_is_cut_the_wait_ends_at_its_time_and_what_follows_runs_once(
    store: RunLedgerStore, cut: int, durability: Any
) -> None:
    graph = waiting(Calls(), 0.15)
    before = datetime.now(UTC)
    with pytest.raises(RunControlError, match="the process has died"):
        await graph.run(1, ledger=Cut(store, cut).as_store(), run_id="r", durability=durability)
    await free(store, "r")
    resumed = datetime.now(UTC)
    result = await graph.resume("r", ledger=store, durability=durability)
    events = await stored_events(store, "r")
    until = await until_of(store)
    known = any(e.type == "step.waiting" and e.created_at < resumed for e in events)
    assert result.output == 3
    assert (before if known else resumed) + timedelta(seconds=0.15) <= until + timedelta(milliseconds=1)
    assert until <= await went_on_at(store)
    assert set(ended_keys(events).values()) == {1}
    check_numbers(events)


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@settings(max_examples=25)
@given(
    st.lists(st.lists(st.integers(0, 8), min_size=1, max_size=3), min_size=1, max_size=4),
    st.lists(st.integers(0, 20), max_size=3),
    st.sampled_from(("sync", "async", "exit")),
)
def test_waits_side_by_side_that_are_cut_anywhere_end_once_each_with_the_time_they_began_with(
    backend: str, branches: list[list[int]], cuts: list[int], durability: Any
) -> None:
    """In time that jumps, and a ledger in memory, which needs no thread."""
    flow = Workflow("branches", input=int, output=int)

    @flow.node
    async def meet(*, b0: int = 0, b1: int = 0, b2: int = 0, b3: int = 0) -> int:
        return b0 + b1 + b2 + b3

    for number, branch in enumerate(branches):
        names = [flow.add(Wait(f"w{number}-{place}", seconds=each, type=int)) for place, each in enumerate(branch)]
        flow.chain(START, *names)
        flow.edge(names[-1], meet, into=f"b{number}")
    flow.edge(meet, END)
    graph = flow.compile()

    async def main() -> None:
        store = InMemoryRunLedgerStore()
        told: dict[str, str] = {}
        output = None
        for number, cut in enumerate([*cuts, 10**9]):
            ledger = Ledger(Cut(store, cut).as_store(), durability, stay_seconds=float("inf"))
            try:
                if number == 0:
                    output = (await graph.run(1, ledger=ledger, run_id="r")).output
                else:
                    output = (await graph.resume("r", ledger=ledger)).output
                break
            except RunControlError:  # the process has died
                await free(store, "r")
            told |= {key_of(e): e.data["until"] for e in await stored_events(store, "r") if e.type == "step.waiting"}
        events = await stored_events(store, "r")
        untils = [(key_of(e), e.data["until"]) for e in events if e.type == "step.waiting"]
        assert output == len(branches)
        assert len(untils) == sum(map(len, branches)) == len(dict(untils))
        assert told.items() <= dict(untils).items()
        assert set(ended_keys(events).values()) == {1}
        check_numbers(events)

    name, options = fake_time(backend)
    anyio.run(main, backend=name, backend_options=options)


# --- with questions, and with others


async def test_question_and_far_time_leave_the_run_and_the_answer_does_not_end_the_wait(store: RunLedgerStore) -> None:
    flow = Workflow("both", output=str)
    flow.add(Ask("ask", question="Go?", answer=str))
    flow.add(Wait("rest", seconds=3600))

    @flow.node
    async def meet(ask: str, rest: Any) -> str:
        return ask

    flow.chain(START, "ask", meet, END)
    flow.chain(START, "rest", meet)
    graph = flow.compile()
    first = await graph.run(1, ledger=store, run_id="r")
    assert ([q.node for q in first.questions], first.wake_at) == (["ask"], await until_of(store))
    second = await graph.resume("r", ledger=store, answers="yes")
    assert (second.status, second.questions, second.wake_at) == (RunStatus.WAITING, [], first.wake_at)
    with pytest.raises(RunControlError):
        await graph.run(2, ledger=store, run_id="r")


async def test_run_whose_questions_are_answered_here_is_left_when_only_a_far_time_remains(
    store: RunLedgerStore,
) -> None:
    flow = Workflow("then", output=str)
    flow.add(Ask("ask", question="Go?", answer=str))
    flow.add(Wait("rest", seconds=3600, type=str))
    flow.chain(START, "ask", "rest", END)

    async def reply(question: Any) -> str:
        await anyio.sleep(0.05)
        return "yes"

    with anyio.fail_after(GUARD):
        result = await flow.compile().run(1, ledger=store, run_id="r", on_ask=reply)
    assert (result.status, (await row(store)).wake_at) == (RunStatus.WAITING, result.wake_at)


@pytest.mark.parametrize("last", [Ask("last", question="?"), Wait("last", seconds=3600)])
async def test_run_is_left_when_the_last_step_to_wait_is_not_the_first_workers(
    store: RunLedgerStore, last: Any
) -> None:
    flow = Workflow("late", input=int)

    @flow.node
    async def quick(number: int) -> int:
        await anyio.sleep(0.02)
        return number

    @flow.node
    async def slow(number: int) -> int:
        await anyio.sleep(0.1)
        return number

    flow.add(last)

    async def meet(quick: int, last: Any) -> int:
        return quick

    flow.node(meet)
    flow.chain(START, quick, meet, END)
    flow.chain(START, slow, "last", meet)
    with anyio.fail_after(GUARD):
        result = await flow.compile().run(1, ledger=store)
    assert result.status is RunStatus.WAITING


async def test_steps_cancelled_while_they_wait_leave_no_time_behind(store: RunLedgerStore) -> None:
    graph = waiting(Calls(), 3)
    async with graph.stream(1, ledger=store, run_id="r", check=False) as run:
        await anyio.sleep(0.1)
        assert (await run.cancel()).outcome == "cancelled"
    stored = await row(store)
    assert (stored.status, stored.wake_at) == (AgentRunStatus.CANCELLED, None)


async def test_stay_of_a_ledger_is_a_number_of_seconds(store: RunLedgerStore) -> None:
    for odd in (-1, float("nan")):
        with pytest.raises(ConfigError, match="stay_seconds"):
            Ledger(store, stay_seconds=odd)


# --- workers


async def ended(store: RunLedgerStore, run_id: str = "r") -> None:
    with anyio.fail_after(GUARD):
        while not (await row(store, run_id)).is_terminal:  # noqa: ASYNC110 - the ledger tells nobody
            await anyio.sleep(0.02)


async def test_worker_goes_on_with_a_run_when_its_time_has_come(store: RunLedgerStore) -> None:
    calls = Calls()
    graph = waiting(calls, 0.4)
    await graph.run(1, ledger=Ledger(store, stay_seconds=0), run_id="r")
    worker = Worker([graph], store, poll_seconds=0.05)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(worker.run)
        await anyio.sleep(0.1)
        assert ((await row(store)).status, (await row(store)).attempt) == (AgentRunStatus.WAITING, 1)
        await ended(store)
        worker.stop()
    assert (await row(store)).status is AgentRunStatus.COMPLETED
    assert await went_on_at(store) >= await until_of(store)
    assert calls.taken() == ["before", "after"]


async def test_worker_leaves_a_run_that_waits_for_long(store: RunLedgerStore) -> None:
    graph = waiting(Calls(), 3600)
    await enqueue(graph, 1, store, "r")
    with anyio.fail_after(GUARD):
        await Worker([graph], store).run(once=True)
    stored = await row(store)
    assert (stored.status, stored.wake_at) == (AgentRunStatus.WAITING, await until_of(store))


async def test_queued_run_is_not_begun_before_its_time(store: RunLedgerStore) -> None:
    calls = Calls()
    graph = waiting(calls, 0)
    begin = datetime.now(UTC) + timedelta(seconds=0.4)
    await enqueue(graph, 1, store, "r", not_before=begin)
    await Worker([graph], store).run(once=True)
    assert ((await row(store)).status, (await row(store)).wake_at) == (AgentRunStatus.QUEUED, begin)
    assert calls.taken() == []
    result = await graph.run(1, ledger=store, run_id="r")  # waits for the run, and begins it when nobody else does
    assert result.output == 3
    started = (await row(store)).started_at
    assert started is not None
    assert started >= begin


# --- a process that is killed


@pytest.mark.parametrize("down", [0.0, 1.5], ids=["before its time", "after its time"])
async def test_wait_goes_on_when_the_process_was_killed(tmp_path: Path, down: float) -> None:
    place, log = tmp_path / "runs.db", tmp_path / "log"
    command = [sys.executable, str(PROGRAM), str(place), str(log), "2"]
    first = subprocess.Popen([*command, "run"], cwd=ROOT, env={"PYTHONPATH": str(ROOT)})  # noqa: ASYNC220 - returns
    async with SqliteRunLedgerStore(place) as store:
        try:
            with anyio.fail_after(GUARD):
                while not any(e.type == "step.waiting" for e in await _events_if_any(store)):  # noqa: ASYNC110 - as above
                    await anyio.sleep(0.02)
        finally:
            first.kill()
            first.wait()
        until = await until_of(store)
        left = (until - datetime.now(UTC)).total_seconds()
        await anyio.sleep(max(0.0, left + down) if down else 0)
        second = subprocess.run(  # noqa: ASYNC221 - nothing else is to be done meanwhile
            [*command, "resume"], cwd=ROOT, env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False
        )
        assert (second.returncode, second.stdout) == (0, "3\n"), second.stderr
        names = [line.split()[0] for line in log.read_text().splitlines()]
        assert names == ["before", "after"]
        assert float(log.read_text().split()[-1]) >= until.timestamp()
        assert await until_of(store) == until
        if not down:
            assert time.time() - until.timestamp() < 2  # not two seconds from the second start on


async def _events_if_any(store: RunLedgerStore) -> list[Any]:
    return [] if await store.get_run("r") is None else await stored_events(store, "r")
