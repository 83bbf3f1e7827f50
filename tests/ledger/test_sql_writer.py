"""The thread that writes: groups, order, places, cancellation, ends."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Callable
from pathlib import Path

import anyio
import anyio.abc
import anyio.lowlevel
import anyio.to_thread
import pytest

from graphrt.errors import RunControlError
from graphrt.ledger.sql import SqliteRunLedgerStore
from graphrt.ledger.sql.backend import Tx
from tests.ledger.conformance import refused, sequences
from tests.ledger.stores import T0, events, new_run

pytestmark = pytest.mark.anyio


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.db"


def writers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("graphrt-ledger")]


class Held:
    """Keeps the writing thread busy until it is let go."""

    def __init__(self, store: SqliteRunLedgerStore) -> None:
        self._store = store
        self._began, self._go = threading.Event(), threading.Event()

    def _hold(self, tx: Tx) -> None:
        self._began.set()
        assert self._go.wait(10)

    async def hold(self, tasks: anyio.abc.TaskGroup) -> None:
        tasks.start_soon(self._store._writer.call, "", self._hold)
        while not self._began.is_set():  # noqa: ASYNC110  # it is a thread that says so
            await anyio.sleep(0.001)

    def let_go(self) -> None:
        self._go.set()


async def settled(times: int = 20) -> None:
    for _ in range(times):
        await anyio.lowlevel.checkpoint()


def counted(store: SqliteRunLedgerStore, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Count the transactions of a store."""
    commits: list[int] = []
    commit: Callable[[Tx], None] = store._backend.commit

    def count(tx: Tx) -> None:
        commits.append(1)
        commit(tx)

    monkeypatch.setattr(store._backend, "commit", count)
    return commits


async def test_what_waits_is_stored_in_one_transaction_in_its_order(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with SqliteRunLedgerStore(path) as store:
        await store.create_run(new_run("run"))
        commits = counted(store, monkeypatch)
        held, numbers = Held(store), []

        async def append(place: int) -> None:
            [one] = await store.append_events("run", events(None, place=place), now=T0)
            numbers.append((one.event.sequence, place))

        async with anyio.create_task_group() as tasks:
            await held.hold(tasks)
            for place in range(1, 51):
                tasks.start_soon(append, place)
                await settled(3)
            tasks.start_soon(_refused, store)
            await settled()
            held.let_go()
        assert len(commits) == 2
        assert sorted(numbers) == [(place, place) for place in range(1, 51)]


async def _refused(store: SqliteRunLedgerStore) -> None:
    with refused("not_found"):
        await store.append_events("nowhere", events(1), now=T0)


async def test_a_fault_of_one_call_spoils_no_other(path: Path) -> None:
    def faulty(tx: Tx) -> None:
        tx.run("UPDATE ledger_run SET priority = 99")
        raise ZeroDivisionError

    async with SqliteRunLedgerStore(path) as store:
        await store.create_run(new_run("run"))
        held = Held(store)

        async def fail() -> None:
            with pytest.raises(ZeroDivisionError):
                await store._writer.call("", faulty)

        async with anyio.create_task_group() as tasks:
            await held.hold(tasks)
            tasks.start_soon(_append, store, 1)
            await settled()
            tasks.start_soon(fail)
            await settled()
            tasks.start_soon(_append, store, 2)
            await settled()
            held.let_go()
        assert await sequences(store, "run") == [1, 2]
        run = await store.get_run("run")
        assert run is not None
        assert run.priority == 0


async def _append(store: SqliteRunLedgerStore, number: int) -> None:
    await store.append_events("run", events(number), now=T0)


async def test_callers_wait_for_a_place_in_their_order(path: Path) -> None:
    async with SqliteRunLedgerStore(path, queue_places=2) as store:
        await store.create_run(new_run("run"))
        held = Held(store)
        async with anyio.create_task_group() as tasks:
            await held.hold(tasks)
            scopes = []
            for number in range(1, 9):
                scope = anyio.CancelScope()
                scopes.append(scope)
                tasks.start_soon(_within, scope, store, number)
                await settled()
            assert len(store._writer._waiting) == 6
            scopes[4].cancel()  # has no place yet: it is not stored
            await settled()
            assert len(store._writer._waiting) == 5
            held.let_go()
        assert await sequences(store, "run") == [1, 2, 3, 4, 6, 7, 8]
        assert store._writer._free == 2


async def _within(scope: anyio.CancelScope, store: SqliteRunLedgerStore, number: int) -> None:
    with scope:
        await _append(store, number)


async def test_a_caller_that_is_cancelled_leaves_at_once_and_its_append_is_whole(path: Path) -> None:
    async with SqliteRunLedgerStore(path) as store:
        await store.create_run(new_run("run"))
        held = Held(store)
        async with anyio.create_task_group() as tasks:
            await held.hold(tasks)
            with anyio.move_on_after(0.01):
                await store.append_events("run", events(1, 2, 3), now=T0)
            held.let_go()
        await store.append_events("run", events(None), now=T0)
        assert await sequences(store, "run") == [1, 2, 3, 4]


async def test_closing_stores_what_was_accepted_and_ends_the_thread(path: Path) -> None:
    store = SqliteRunLedgerStore(path)
    await store.create_run(new_run("run"))
    [thread] = writers()
    assert thread.daemon
    held = Held(store)
    async with anyio.create_task_group() as tasks:
        await held.hold(tasks)
        tasks.start_soon(_append, store, 1)
        await settled()
        tasks.start_soon(store.aclose)
        await settled()
        with pytest.raises(RunControlError, match="closed"):
            await _append(store, 2)
        held.let_go()
    assert not writers()
    async with SqliteRunLedgerStore(path) as again:
        assert await sequences(again, "run") == [1]


async def test_a_store_that_is_forgotten_ends_its_thread(path: Path) -> None:
    store = SqliteRunLedgerStore(path)
    await store.create_run(new_run("run"))
    [thread] = writers()
    del store
    gc.collect()
    thread.join(10)
    assert not thread.is_alive()


async def test_one_store_serves_several_event_loops_at_once(path: Path) -> None:
    store = SqliteRunLedgerStore(path)

    async def fill(run_id: str) -> None:
        await store.create_run(new_run(run_id))
        for number in range(1, 31):
            await store.append_events(run_id, events(number), now=T0)
            assert (await store.page_events(run_id, limit=1)).items

    def run(name: str, backend: str) -> None:
        anyio.run(fill, name, backend=backend)

    threads = [threading.Thread(target=run, args=(f"{n}", ["asyncio", "trio"][n % 2])) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        await anyio.to_thread.run_sync(thread.join)
    assert [await sequences(store, str(n)) for n in range(4)] == [list(range(1, 31))] * 4
    await store.aclose()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
async def test_a_store_of_the_parent_is_none_of_the_childs(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with SqliteRunLedgerStore(path) as store:
        await store.create_run(new_run("run"))
        with monkeypatch.context() as patch:
            patch.setattr(os, "getpid", lambda: -1)  # as the child sees it
            with refused("runtime_error", "forked"):
                await store.get_run("run")
            await store.aclose()
