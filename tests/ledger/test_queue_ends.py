"""Runs that wait, and that nobody resumes: their deadline ends them, and the request to cancel."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from graphrt.ledger import ExecutionQueue, RunControl, RunLedgerStore
from graphrt.ledger.records import AgentRun, RunChange
from graphrt.ledger.status import AgentRunStatus
from graphrt.testing import FakeClock
from tests.ledger.queueing import queued
from tests.ledger.stores import new_run

pytestmark = pytest.mark.anyio

S = AgentRunStatus
MINUTE = timedelta(minutes=1)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
async def queue(store: RunLedgerStore, clock: FakeClock) -> ExecutionQueue:
    return ExecutionQueue(store, clock=clock)


async def read(store: RunLedgerStore, run_id: str = "a") -> AgentRun:
    run = await store.get_run(run_id)
    assert run is not None
    return run


async def left_waiting(
    store: RunLedgerStore, clock: FakeClock, wake_at: datetime | None = None, **fields: Any
) -> AgentRun:
    """Let a worker begin a run, and leave it waiting."""
    await queued(store, "a", clock.now(), **fields)
    claim = await store.claim_run("w", 15, now=clock.now(), run_id="a")
    assert claim is not None
    await store.change_run("a", RunChange(status=S.RUNNING), now=clock.now(), token=claim.token)
    change = RunChange(status=S.WAITING, wake_at=wake_at)
    return await store.change_run("a", change, now=clock.now(), token=claim.token)


async def test_run_that_waits_for_a_person_ends_at_its_deadline(
    store: RunLedgerStore, queue: ExecutionQueue, clock: FakeClock
) -> None:
    """E15, L-035."""
    run = await left_waiting(store, clock, deadline_at=clock.now() + MINUTE)
    assert run.wake_at == run.deadline_at
    clock.advance(59)
    assert await queue.wake_due() == []
    clock.advance(1)
    (ended,) = await queue.wake_due()
    assert ended == await read(store)
    assert (ended.status, ended.status_reason) == (S.TIMEOUT, "its deadline passed while it waited")
    assert (ended.finished_at, ended.wake_at) == (clock.now(), None)
    assert await queue.wake_due() == []


@pytest.mark.parametrize("reason", [None, "not needed"])
async def test_run_that_waits_is_ended_by_the_request_to_cancel(
    store: RunLedgerStore, queue: ExecutionQueue, clock: FakeClock, reason: str | None
) -> None:
    """L-055; D-22: the request itself is but an intent."""
    await left_waiting(store, clock, clock.now() + 60 * MINUTE)
    asked = await RunControl(store, clock=clock).cancel_run("a", reason)
    assert (asked.status, asked.cancel_requested_at) == (S.WAITING, clock.now())
    clock.advance(1)
    assert await queue.claim_run("w") is None
    run = await read(store)
    assert (run.status, run.status_reason) == (S.CANCELLED, reason or "cancelled while it waited")
    assert run.finished_at == clock.now()


async def test_run_whose_cancel_was_requested_before_it_waits_ends_too(
    store: RunLedgerStore, queue: ExecutionQueue, clock: FakeClock
) -> None:
    await queued(store, "a", clock.now())
    claim = await store.claim_run("w", 15, now=clock.now(), run_id="a")
    assert claim is not None
    await store.change_run("a", RunChange(status=S.RUNNING), now=clock.now(), token=claim.token)
    await store.change_run("a", RunChange(cancel_requested_at=clock.now()), now=clock.now())
    await store.change_run("a", RunChange(status=S.WAITING), now=clock.now(), token=claim.token)
    assert [run.status for run in await queue.wake_due()] == [S.CANCELLED]


async def test_run_written_down_as_waiting_has_its_deadline(
    store: RunLedgerStore, queue: ExecutionQueue, clock: FakeClock
) -> None:
    await store.create_run(new_run("a", now=clock.now(), status=S.WAITING, deadline_at=clock.now() + MINUTE))
    clock.advance(60)
    assert [run.status for run in await queue.wake_due()] == [S.TIMEOUT]


async def test_the_nearer_of_time_and_deadline_counts(
    store: RunLedgerStore, queue: ExecutionQueue, clock: FakeClock
) -> None:
    await left_waiting(store, clock, clock.now() + MINUTE, deadline_at=clock.now() + 2 * MINUTE)
    clock.advance(60)
    assert [run.status for run in await queue.wake_due()] == [S.QUEUED]
    clock.advance(60)
    assert await queue.claim_run("w") is None
    assert (await read(store)).status is S.TIMEOUT


async def test_run_that_is_being_resumed_is_left_alone_until_its_claim_ends(
    store: RunLedgerStore, queue: ExecutionQueue, clock: FakeClock
) -> None:
    await left_waiting(store, clock, deadline_at=clock.now() + MINUTE)
    assert await store.claim_run("other", 90, now=clock.now(), run_id="a") is not None
    await store.change_run("a", RunChange(cancel_requested_at=clock.now()), now=clock.now())
    clock.advance(60)
    assert await queue.wake_due() == []
    clock.advance(60)
    await queue.recover_expired()
    assert [run.status for run in await queue.wake_due()] == [S.CANCELLED]


@pytest.mark.parametrize("late", [True, False])
async def test_reopened_run_loses_the_deadline_that_ended_it_and_no_other(
    store: RunLedgerStore, queue: ExecutionQueue, clock: FakeClock, late: bool
) -> None:
    deadline = clock.now() + MINUTE
    await left_waiting(store, clock, deadline_at=deadline)
    if late:
        clock.advance(60)
    await store.change_run("a", RunChange(status=S.TIMEOUT), now=clock.now())
    assert (await read(store)).deadline_at == deadline
    await queue.enqueue("a", resume=True)
    assert (await read(store)).deadline_at == (None if late else deadline)
    assert await queue.claim_run("w") is not None
