"""Shared limits on every kind of store, and from several event loops at once."""

from __future__ import annotations

import threading

import anyio
import pytest

from graphrt.ledger.limits import SharedLimit
from graphrt.ledger.memory import InMemoryRunLedgerStore
from graphrt.ledger.store import RunLedgerStore
from graphrt.testing import FakeClock


@pytest.mark.anyio
async def test_a_slot_is_taken_kept_and_given_back(store: RunLedgerStore) -> None:
    """B-085."""
    clock = FakeClock()
    one, other = (SharedLimit(store, "model", 1, clock=clock, poll_seconds=0.01) for _ in range(2))
    async with one.held("w"):
        with anyio.move_on_after(0.1) as waiting:
            await other.acquire()
        assert waiting.cancelled_caught
    await other.acquire()
    with anyio.move_on_after(0.1) as waiting:
        await one.acquire()
    assert waiting.cancelled_caught
    clock.advance(15)
    await one.acquire()


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_one_limit_serves_several_event_loops(backend: str) -> None:
    limit = SharedLimit(InMemoryRunLedgerStore(), "model", 2, poll_seconds=0.01)
    lock = threading.Lock()
    inside, most, done = 0, 0, 0

    async def work() -> None:
        nonlocal inside, most, done
        async with limit.held():
            with lock:
                inside += 1
                most = max(most, inside)
            await anyio.sleep(0.005)
            with lock:
                inside -= 1
                done += 1

    async def play() -> None:
        async with anyio.create_task_group() as tasks:
            for _ in range(10):
                tasks.start_soon(work)

    threads = [threading.Thread(target=lambda: anyio.run(play, backend=backend)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert (done, inside) == (30, 0)
    assert most <= 2
