"""A worker waits for work, and a ledger that is away for a while does not stop it."""

from __future__ import annotations

from datetime import timedelta

import anyio
import pytest

from graphrt.errors import RunControlError
from graphrt.ledger.memory import InMemoryRunLedgerStore
from graphrt.ledger.queue import ExecutionQueue
from graphrt.ledger.records import Claim, RunChange, RunFilter, RunPage
from graphrt.ledger.status import AgentRunStatus
from tests.engine.helpers import FAKE_TIME
from tests.ledger.queueing import LoopClock, ShakyStore, queued
from tests.ledger.stores import new_run

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module", params=FAKE_TIME)
def anyio_backend(request: pytest.FixtureRequest) -> object:
    return request.param


@pytest.fixture
async def clock() -> LoopClock:
    return LoopClock()


@pytest.fixture
async def store() -> ShakyStore:
    return ShakyStore()


@pytest.fixture
async def queue(store: ShakyStore, clock: LoopClock) -> ExecutionQueue:
    return ExecutionQueue(store, clock=clock)


async def test_a_worker_that_waits_gets_a_run_as_soon_as_it_is_queued(
    store: ShakyStore, clock: LoopClock, queue: ExecutionQueue
) -> None:
    await store.create_run(new_run("a"))
    got: list[tuple[float, Claim]] = []

    async def work() -> None:
        claim = await queue.claim_next("w", poll_seconds=60)
        got.append((clock.monotonic(), claim))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(work)
        await anyio.sleep(70)
        await queue.enqueue("a")
    assert [(at, claim.run.run_id) for at, claim in got] == [(70, "a")]


async def test_a_worker_that_waits_takes_over_from_one_that_died(
    store: ShakyStore, clock: LoopClock, queue: ExecutionQueue
) -> None:
    await queued(store, "a")
    assert await queue.claim_run("w", 15) is not None
    claim = await queue.claim_next("v", 15, poll_seconds=1)
    assert (claim.attempt, claim.run.claimed_by) == (2, "v")
    assert clock.monotonic() == pytest.approx(15, abs=1)


async def test_a_worker_outlives_a_ledger_that_is_away(
    store: ShakyStore, clock: LoopClock, queue: ExecutionQueue, caplog: pytest.LogCaptureFixture
) -> None:
    """B-083."""
    await queued(store, "a")
    await queue.claim_run("w", 15)
    got: list[Claim] = []

    async def work() -> None:
        got.append(await queue.claim_next("v", 15))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(work)
        await anyio.sleep(10)
        store.down = True
        await anyio.sleep(30)
        assert got == []
        store.down = False
    assert [claim.run.run_id for claim in got] == ["a"]
    assert "cannot claim, and tries again" in caplog.text


async def test_what_is_no_passing_trouble_ends_the_wait(store: ShakyStore, queue: ExecutionQueue) -> None:
    await store.aclose()
    with pytest.raises(RunControlError, match="closed"):
        await queue.claim_next("w")


@pytest.mark.parametrize("status", [AgentRunStatus.COMPLETED, AgentRunStatus.WAITING])
async def test_a_run_that_went_on_meanwhile_is_not_said_to_wait_for_its_graph(
    clock: LoopClock, status: AgentRunStatus
) -> None:
    class Racing(InMemoryRunLedgerStore):
        async def list_runs(self, filters: RunFilter, *, cursor: str | None = None, limit: int = 50) -> RunPage:
            page = await super().list_runs(filters, cursor=cursor, limit=limit)
            claim = await self.claim_run("v", 15, now=clock.now())
            assert claim is not None
            for change in (RunChange(status=AgentRunStatus.RUNNING), RunChange(status=status)):
                await self.change_run("a", change, now=clock.now(), token=claim.token)
            return page

    store = Racing()
    await queued(store, "a", graph_fingerprint="f1")
    assert await ExecutionQueue(store, clock=clock).claim_run("w", fingerprints=()) is None
    run = await store.get_run("a")
    assert run is not None
    assert (run.status, run.status_reason) == (status, None)


async def test_a_worker_that_waits_ends_a_run_that_waits_at_its_deadline(
    store: ShakyStore, clock: LoopClock, queue: ExecutionQueue
) -> None:
    deadline = clock.now() + timedelta(seconds=30)
    await store.create_run(new_run("a", now=clock.now(), status=AgentRunStatus.WAITING, deadline_at=deadline))
    with anyio.move_on_after(40):
        await queue.claim_next("w", poll_seconds=1)
    run = await store.get_run("a")
    assert run is not None
    assert run.status is AgentRunStatus.TIMEOUT
    assert run.finished_at is not None
    assert run.finished_at - deadline <= timedelta(seconds=2)
