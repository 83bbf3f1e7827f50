"""What only a server can do to a ledger: lose connections, tell other workers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import anyio
import psycopg
import pytest

from graphrt.errors import RunControlError
from graphrt.ledger.records import RunChange, RunFilter
from graphrt.ledger.sql import PostgresRunLedgerStore
from graphrt.ledger.sql.backend import Tx
from graphrt.ledger.status import AgentRunStatus
from tests.ledger.conformance import refused, sequences
from tests.ledger.stores import T0, at, events, new_run, queued

pytestmark = [pytest.mark.anyio, pytest.mark.postgres]


class Dropping:
    """Ends the server's side of a connection before one of its statements, or while it is being answered."""

    def __init__(self, dsn: str, number: int, *, after: bool = False) -> None:
        self.number = number
        self.after = after
        self.seen = 0
        self._admin = psycopg.connect(dsn, autocommit=True)

    def close(self) -> None:
        self._admin.close()

    def wrap(self, store: PostgresRunLedgerStore, monkeypatch: pytest.MonkeyPatch) -> None:
        connect = store._backend.connect

        def dropping() -> Tx:
            tx = connect()
            tx.cursor = _Cursor(tx.cursor, self)
            return tx

        monkeypatch.setattr(store._backend, "connect", dropping)

    def count(self) -> bool:
        self.seen += 1
        return self.seen == self.number

    def kill(self, cursor: Any) -> None:
        pid = cursor.connection.info.backend_pid
        self._admin.execute("SELECT pg_terminate_backend(%s, 5000)", (pid,))


class _Cursor:
    """A cursor of the driver's, in whose way somebody gets."""

    def __init__(self, cursor: Any, dropping: Dropping) -> None:
        self._cursor = cursor
        self._dropping = dropping

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cursor, name)

    def execute(self, statement: str, values: Sequence[Any] = ()) -> Any:
        return self._pass(self._cursor.execute, statement, values)

    def executemany(self, statement: str, rows: Sequence[Any]) -> Any:
        return self._pass(self._cursor.executemany, statement, rows)

    def _pass(self, do: Callable[..., Any], *arguments: Any) -> Any:
        if not self._dropping.count():
            return do(*arguments)
        if self._dropping.after:
            do(*arguments)
            self._dropping.kill(self._cursor)
            raise psycopg.OperationalError("the answer was lost")
        self._dropping.kill(self._cursor)
        return do(*arguments)


async def killed_at_each_statement(
    dsn: str, do: Callable[[PostgresRunLedgerStore, str], Any], monkeypatch: pytest.MonkeyPatch, *, after: bool
) -> int:
    """Do something with the connection lost at its first statement, then at its second, and so on; count them."""
    number = 0
    async with PostgresRunLedgerStore(dsn) as store:
        await store.list_runs(RunFilter())
        while True:
            number += 1
            dropping = Dropping(dsn, number, after=after)
            with monkeypatch.context() as patch:
                dropping.wrap(store, patch)
                store._writer._drop()  # the next call makes a connection that is in danger
                await do(store, f"{after}-{number}")
            dropping.close()
            if dropping.seen < number:
                return number - 1


@pytest.mark.parametrize("after", [False, True], ids=["before", "answer lost"])
async def test_recovery_strands_no_run_whenever_the_connection_is_lost(
    postgres_empty: str, monkeypatch: pytest.MonkeyPatch, after: bool
) -> None:
    """B-083."""

    other = PostgresRunLedgerStore(postgres_empty)

    async def recover(store: PostgresRunLedgerStore, name: str) -> None:
        for number in range(2):
            await other.create_run(queued(f"{name}-{number}"))
            assert await other.claim_run("w", 10, now=T0, run_id=f"{name}-{number}") is not None
        changed = await store.expire_claims(now=at(10))
        assert sorted(run.run_id for run in changed) == [f"{name}-0", f"{name}-1"]
        taken = [await store.claim_run("v", 10, now=at(11)) for _ in range(3)]
        assert [claim and (claim.run.run_id, claim.attempt) for claim in taken] == [
            (f"{name}-0", 2),
            (f"{name}-1", 2),
            None,
        ]
        for claim in taken[:2]:
            assert claim is not None
            end = RunChange(status=AgentRunStatus.COMPLETED)
            await store.change_run(claim.run.run_id, end, now=at(12), token=claim.token)

    async with other:
        assert await killed_at_each_statement(postgres_empty, recover, monkeypatch, after=after) > 15


@pytest.mark.parametrize("after", [False, True], ids=["before", "answer lost"])
async def test_an_append_is_stored_once_whenever_the_connection_is_lost(
    postgres_empty: str, monkeypatch: pytest.MonkeyPatch, after: bool
) -> None:
    async def append(store: PostgresRunLedgerStore, name: str) -> None:
        await store.create_run(new_run(name))
        await store.append_events(name, events(None, None), now=T0, change=RunChange(status=AgentRunStatus.RUNNING))
        await store.append_events(name, events(None), now=T0)
        assert await sequences(store, name) == [1, 2, 3]

    assert await killed_at_each_statement(postgres_empty, append, monkeypatch, after=after) > 10


async def test_readers_get_a_new_connection_when_theirs_is_lost(postgres_empty: str) -> None:
    async with PostgresRunLedgerStore(postgres_empty) as store:
        await store.create_run(new_run("run"))
        assert await store.get_run("run") is not None
        with psycopg.connect(postgres_empty, autocommit=True) as admin:
            admin.execute(
                "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
                " WHERE application_name = 'graphrt-ledger' AND pid <> pg_backend_pid()"
            )
        assert await store.get_run("run") is not None
        await store.append_events("run", events(None), now=T0)
        assert await sequences(store, "run") == [1]


async def test_workers_of_other_stores_are_told_of_work(postgres_empty: str) -> None:
    async with PostgresRunLedgerStore(postgres_empty) as worker, PostgresRunLedgerStore(postgres_empty) as host:
        got = anyio.Event()

        async def work() -> None:
            while await worker.claim_run("w", 10, now=T0) is None:
                await worker.wait_for_work(60)
            got.set()

        with anyio.fail_after(20):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(work)
                await anyio.sleep(0.2)
                await host.create_run(new_run("run"))
                await host.change_run("run", RunChange(status=AgentRunStatus.QUEUED), now=T0)
                await got.wait()


async def test_two_stores_never_give_out_a_slot_twice(postgres_empty: str) -> None:
    async with PostgresRunLedgerStore(postgres_empty) as one, PostgresRunLedgerStore(postgres_empty) as other:
        got: list[bool] = []

        async def take(store: PostgresRunLedgerStore, owner: str) -> None:
            got.append(await store.take_slot("gpu", 2, owner, 10, now=T0))

        async with anyio.create_task_group() as tasks:
            for number in range(10):
                tasks.start_soon(take, one, f"one-{number}")
                tasks.start_soon(take, other, f"other-{number}")
        assert sum(got) == 2


async def test_a_server_that_is_not_there_is_said_so_at_once() -> None:
    async with PostgresRunLedgerStore("postgresql://nobody:secret@127.0.0.1:1/nowhere") as store:
        with anyio.fail_after(20), pytest.raises(RunControlError) as caught:
            await store.create_run(new_run("run"))
    error = caught.value
    assert (error.code, error.retryable) == ("runtime_error", True)
    assert "secret" not in str(error)
    assert "server" in str(error.hint)
    with refused("invalid_argument", "connection string"):
        PostgresRunLedgerStore("what=is this")


async def test_newer_tables_are_refused(postgres_dsn: str) -> None:
    async with PostgresRunLedgerStore(postgres_dsn) as store:
        await store.create_run(new_run("run"))
    with psycopg.connect(postgres_dsn, autocommit=True) as admin:
        admin.execute("UPDATE ledger_version SET version_num = '9999'")
    async with PostgresRunLedgerStore(postgres_dsn) as store:
        with refused("runtime_error", "of revision '9999'"):
            await store.get_run("run")
