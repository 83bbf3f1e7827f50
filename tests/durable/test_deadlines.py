"""A stored run's deadline holds for whoever takes it up, and ends it when nobody does."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from graphrt import END, START, Ask, RunContext, Workflow
from graphrt.errors import RunControlError
from graphrt.graph import RunStatus
from graphrt.graph.durable.worker import Worker
from graphrt.ledger import AgentRunStatus, InMemoryRunLedgerStore, RunControl, RunLedgerStore
from graphrt.ledger.rows import micros
from tests.durable.helpers import Calls, Cut, free, store_of

pytestmark = pytest.mark.anyio

HOUR = timedelta(hours=1)


@pytest.fixture(params=["memory", "sqlite"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    async with store_of(request.param, tmp_path) as made:
        yield made


@pytest.fixture
def pass_deadlines(store: RunLedgerStore, tmp_path: Path) -> Callable[[], None]:
    """Let all deadlines have passed, as if time had gone by."""

    def shift() -> None:
        past = micros(datetime.now(UTC)) - 1
        if isinstance(store, InMemoryRunLedgerStore):
            for kept in store._runs.values():
                kept.row["wake_at"] = None if kept.row["wake_at"] is None else past
                kept.row["deadline_at"] = past
            return
        with closing(sqlite3.connect(tmp_path / "ledger.db")) as database, database:
            database.execute("UPDATE ledger_run SET deadline_at = ?", (past,))
            database.execute("UPDATE ledger_run SET wake_at = ? WHERE wake_at IS NOT NULL", (past,))

    return shift


def in_an_hour() -> datetime:
    return datetime.now(UTC) + HOUR


def asking(calls: Calls, seen: list[datetime | None]) -> Workflow:
    """Make a graph that asks, and then notes the deadline it works under."""
    flow = Workflow("asking", input=int, output=int)
    flow.add(Ask("q", question=lambda x: x, answer=int))

    @flow.node
    async def after(x: int, ctx: RunContext[None]) -> int:
        calls("after")
        seen.append(ctx.deadline)
        return x

    flow.chain(START, "q", after, END)
    return flow


async def status_of(store: RunLedgerStore, run_id: str = "r") -> AgentRunStatus:
    stored = await store.get_run(run_id)
    assert stored is not None
    return stored.status


async def test_resumed_run_works_under_the_deadline_it_was_started_with(store: RunLedgerStore) -> None:
    """E15, L-014."""
    seen: list[datetime | None] = []
    flow, deadline = asking(Calls(), seen), in_an_hour()
    await flow.run(1, ledger=store, run_id="r", deadline_at=deadline)
    assert (await flow.resume("r", ledger=store, answers={"q": 1})).status is RunStatus.SUCCEEDED
    assert seen == [deadline]


async def test_run_that_waits_is_out_of_time_when_it_is_resumed_too_late_and_then_gets_past_its_deadline(
    store: RunLedgerStore, pass_deadlines: Callable[[], None]
) -> None:
    calls, seen = Calls(), list[datetime | None]()
    flow = asking(calls, seen)
    await flow.run(1, ledger=store, run_id="r", deadline_at=in_an_hour())
    pass_deadlines()
    late = await flow.resume("r", ledger=store, answers={"q": 1}, check=False)
    assert (late.status, await status_of(store), calls.made) == (RunStatus.TIMED_OUT, AgentRunStatus.TIMEOUT, [])
    again = await flow.resume("r", ledger=store, answers={"q": 7})
    assert (again.status, again.output, seen) == (RunStatus.SUCCEEDED, 7, [None])


async def test_answer_that_would_end_the_run_comes_too_late_after_the_deadline(
    store: RunLedgerStore, pass_deadlines: Callable[[], None]
) -> None:
    flow = Workflow("asks", input=int, output=int)
    flow.add(Ask("q", question=lambda x: x, answer=int))
    flow.chain(START, "q", END)
    await flow.run(1, ledger=store, run_id="r", deadline_at=in_an_hour())
    pass_deadlines()
    result = await flow.resume("r", ledger=store, answers={"q": 1}, check=False)
    assert (result.status, await status_of(store)) == (RunStatus.TIMED_OUT, AgentRunStatus.TIMEOUT)
    assert (await flow.resume("r", ledger=store)).output == 1  # the answer was kept all the same


@pytest.mark.parametrize("own", [None, 2 * HOUR, HOUR / 2], ids=["none", "later", "nearer"])
async def test_run_of_a_process_that_died_has_the_nearer_of_its_deadline_and_the_callers(
    store: RunLedgerStore, own: timedelta | None
) -> None:
    seen: list[datetime | None] = []
    flow, deadline = Workflow("chain", input=int, output=int), in_an_hour()

    @flow.node
    async def look(x: int, ctx: RunContext[None]) -> int:
        seen.append(ctx.deadline)
        return x

    flow.chain(START, look, END)
    with pytest.raises(RunControlError):
        await flow.run(1, ledger=Cut(store, 0).as_store(), run_id="r", deadline_at=deadline)
    await free(store, "r")
    seen.clear()
    mine = None if own is None else deadline - HOUR + own
    await flow.run(1, ledger=store, run_id="r", deadline_at=mine)
    assert seen == [deadline if mine is None else min(deadline, mine)]


async def test_run_of_a_process_that_died_is_out_of_time_after_its_deadline(
    store: RunLedgerStore, pass_deadlines: Callable[[], None]
) -> None:
    calls = Calls()
    flow = Workflow("chain", input=int, output=int)

    @flow.node
    async def work(x: int) -> int:
        calls("work")
        return x

    flow.chain(START, work, END)
    with pytest.raises(RunControlError):
        await flow.run(1, ledger=Cut(store, 0).as_store(), run_id="r", deadline_at=in_an_hour())
    await free(store, "r")
    pass_deadlines()
    calls.taken()
    result = await flow.run(1, ledger=store, run_id="r", check=False)
    assert (result.status, await status_of(store), calls.made) == (RunStatus.TIMED_OUT, AgentRunStatus.TIMEOUT, [])


async def test_worker_ends_runs_that_wait_past_their_deadline_or_are_to_be_cancelled(
    store: RunLedgerStore, pass_deadlines: Callable[[], None]
) -> None:
    """L-035, L-055."""
    seen: list[datetime | None] = []
    flow = asking(Calls(), seen)
    await flow.run(1, ledger=store, run_id="late", deadline_at=in_an_hour())
    await flow.run(1, ledger=store, run_id="cancelled", deadline_at=in_an_hour())
    worker = Worker([flow.compile()], store)
    await worker.run(once=True)
    assert await status_of(store, "late") is AgentRunStatus.WAITING
    await RunControl(store).cancel_run("cancelled")
    assert await status_of(store, "cancelled") is AgentRunStatus.WAITING
    await Worker([flow.compile()], store).run(once=True)
    assert await status_of(store, "cancelled") is AgentRunStatus.CANCELLED
    pass_deadlines()
    await Worker([flow.compile()], store).run(once=True)
    assert await status_of(store, "late") is AgentRunStatus.TIMEOUT
    read = await flow.run(1, ledger=store, run_id="late", check=False)
    assert read.status is RunStatus.TIMED_OUT
    assert (await flow.resume("late", ledger=store, answers={"q": 3})).output == 3
