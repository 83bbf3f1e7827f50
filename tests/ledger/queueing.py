"""What the tests of the queue, of leases, limits and runtimes share."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import anyio

from graphrt.clock import Clock
from graphrt.errors import RunControlError
from graphrt.ledger.memory import InMemoryRunLedgerStore
from graphrt.ledger.records import AgentRun, Claim
from graphrt.ledger.status import AgentRunStatus
from graphrt.ledger.store import RunLedgerStore
from graphrt.testing import fake_time
from tests.ledger.stores import new_run

START = datetime(2030, 1, 1, tzinfo=UTC)


class LoopClock:
    """A clock that goes as the event loop's time does, also where that is made to jump."""

    def __init__(self) -> None:
        self._began = anyio.current_time()

    def now(self) -> datetime:
        return START + timedelta(seconds=self.monotonic())

    def monotonic(self) -> float:
        return anyio.current_time() - self._began


async def queued(store: RunLedgerStore, run_id: str, now: datetime = START, **fields: Any) -> AgentRun:
    run, created = await store.create_run(new_run(run_id, now=now, status=AgentRunStatus.QUEUED, **fields))
    assert created
    return run


async def status_of(store: RunLedgerStore, run_id: str) -> AgentRunStatus:
    run = await store.get_run(run_id)
    assert run is not None
    return run.status


async def claimed(store: RunLedgerStore, clock: Clock, run_id: str = "a", seconds: float = 15.0) -> Claim:
    """Put a run into the ledger, and have worker "w" begin it."""
    await queued(store, run_id, clock.now())
    claim = await store.claim_run("w", seconds, now=clock.now(), run_id=run_id)
    assert claim is not None
    return claim


def run_in_fake_time(backend: str, fn: Callable[[], Awaitable[None]]) -> None:
    name, options = fake_time(backend)
    anyio.run(fn, backend=name, backend_options=options)


class ShakyStore(InMemoryRunLedgerStore):
    """Cannot be reached while `down` is set, and counts what it is asked."""

    def __init__(self) -> None:
        super().__init__()
        self.down = False
        self.hangs = False
        self.renewals = 0
        self.asked = 0

    async def _begin(self) -> None:
        self.asked += 1
        if self.hangs:
            await anyio.sleep_forever()
        await super()._begin()
        if self.down:
            raise RunControlError("runtime_error", "no connection", retryable=True)

    async def renew_claim(self, run_id: str, token: str, lease_seconds: float, *, now: datetime) -> bool:
        self.renewals += 1
        return await super().renew_claim(run_id, token, lease_seconds, now=now)
