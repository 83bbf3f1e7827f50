"""The ledger's file: what is refused, and what trouble leaves behind."""

from __future__ import annotations

import sqlite3
import threading
from pathlib import Path
from typing import Any

import anyio
import pytest
import sqlalchemy as sa

from graphrt.errors import RunControlError
from graphrt.ledger.records import RunChange
from graphrt.ledger.sql import SqliteRunLedgerStore
from graphrt.ledger.sql.sqlite import APPLICATION_ID
from graphrt.ledger.status import AgentRunStatus
from tests.ledger.conformance import refused, sequences
from tests.ledger.stores import T0, events, new_run

pytestmark = pytest.mark.anyio


async def error_of(store: SqliteRunLedgerStore) -> RunControlError:
    async with store:
        with pytest.raises(RunControlError) as caught:
            await store.create_run(new_run("run"))
        with pytest.raises(RunControlError):
            await store.get_run("run")
    assert caught.value.code == "runtime_error"
    assert caught.value.hint
    return caught.value


async def filled(path: Path) -> None:
    async with SqliteRunLedgerStore(path) as store:
        await store.create_run(new_run("run"))
        await store.append_events("run", events(*[None] * 100, text="x" * 100), now=T0)


async def test_the_folder_is_made_and_the_file_survives_the_store(tmp_path: Path) -> None:
    path = tmp_path / "some" / "folder" / "ledger.db"
    await filled(path)
    async with SqliteRunLedgerStore(path, synchronous="FULL") as store:
        assert await sequences(store, "run") == list(range(1, 101))
    assert [file.name for file in path.parent.iterdir()] == ["ledger.db"]
    with sqlite3.connect(path) as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert connection.execute("PRAGMA application_id").fetchone() == (APPLICATION_ID,)
    connection.close()


@pytest.mark.parametrize("path", ["", ":memory:", "a\0b"])
def test_a_path_that_names_no_file_is_refused(path: str) -> None:
    with refused("invalid_argument", "names no file"):
        SqliteRunLedgerStore(path)
    with refused("invalid_argument", "neither"):
        SqliteRunLedgerStore("x", synchronous="OFF")  # type: ignore[arg-type]  # that is the fault


async def test_a_folder_is_no_ledger(tmp_path: Path) -> None:
    error = await error_of(SqliteRunLedgerStore(tmp_path))
    assert "it is a folder" in error.message
    (tmp_path / "file").write_text("")
    error = await error_of(SqliteRunLedgerStore(tmp_path / "file" / "ledger.db"))
    assert "cannot make its folder" in error.message


async def test_the_file_of_another_program_is_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE mine (x)")
    connection.close()
    before = path.read_bytes()
    error = await error_of(SqliteRunLedgerStore(path))
    assert "another program" in error.message
    assert not error.retryable
    assert path.read_bytes() == before


async def test_newer_tables_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    await filled(path)
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("UPDATE ledger_version SET version_num = '9999'")
    error = await error_of(SqliteRunLedgerStore(path))
    assert "of revision '9999'" in error.message
    connection.execute("DELETE FROM ledger_version")
    connection.close()
    error = await error_of(SqliteRunLedgerStore(path))
    assert "no revision" in error.message


async def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    await filled(path)
    whole = path.read_bytes()
    path.write_bytes(b"no database at all, but longer than a header of one" * 100)
    error = await error_of(SqliteRunLedgerStore(path))
    assert not error.retryable
    assert "damaged" in str(error.hint)
    path.write_bytes(whole[: len(whole) // 2])
    error = await error_of(SqliteRunLedgerStore(path))
    assert "damaged" in str(error.hint)
    path.write_bytes(whole)
    async with SqliteRunLedgerStore(path) as store:
        assert len(await sequences(store, "run")) == 100


def with_pragma(store: SqliteRunLedgerStore, pragma: str) -> SqliteRunLedgerStore:
    """Have every connection of a store begin with a setting."""

    def connected(connection: Any, _: object) -> None:
        connection.execute(pragma)

    sa.event.listen(store._backend.engine, "connect", connected)
    return store


async def test_a_file_that_may_not_be_written_is_said_so(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    await filled(path)
    async with with_pragma(SqliteRunLedgerStore(path), "PRAGMA query_only = 1") as store:
        with refused("runtime_error", "readonly"):
            await store.append_events("run", events(None), now=T0)
        assert len(await sequences(store, "run")) == 100


async def test_a_full_disk_stores_nothing_by_halves(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    await filled(path)
    pages = path.stat().st_size // 4096 + 20
    async with with_pragma(SqliteRunLedgerStore(path), f"PRAGMA max_page_count = {pages}") as store:
        stored = 100
        failed: list[RunControlError] = []
        while not failed:
            change = RunChange(status=AgentRunStatus.RUNNING, priority=stored)
            try:
                await store.append_events("run", events(*[None] * 20, text="y" * 500), now=T0, change=change)
            except RunControlError as full:
                failed.append(full)
            else:
                stored += 20
        [error] = failed
        assert (error.code, error.retryable, isinstance(error.__cause__, sqlite3.Error)) == (
            "runtime_error",
            True,
            True,
        )
        assert "make room" in str(error.hint)
        assert await sequences(store, "run") == list(range(1, stored + 1))
        run = await store.get_run("run")
        assert run is not None
        assert run.priority == (stored - 20 if stored > 100 else 0)
        # one that is small still fits, though its neighbour in the group does not
        answers: list[str] = []

        async def append(size: int) -> None:
            try:
                await store.append_events("run", events(None, text="z" * size), now=T0)
            except RunControlError:
                answers.append("full")
            else:
                answers.append("stored")

        async with anyio.create_task_group() as tasks:
            for size in (1, 100_000, 2):
                tasks.start_soon(append, size)
        assert sorted(answers) == ["full", "stored", "stored"]
        assert len(await sequences(store, "run")) == stored + 2


async def test_a_writer_that_does_not_let_go_is_borne_for_a_while(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    await filled(path)
    other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    try:
        other.execute("BEGIN IMMEDIATE")
        impatient = with_pragma(SqliteRunLedgerStore(path, patience_seconds=0.05), "PRAGMA busy_timeout = 10")
        async with impatient as store:
            with pytest.raises(RunControlError, match="locked") as caught:
                await store.append_events("run", events(None), now=T0)
            assert caught.value.retryable
            assert len(await sequences(store, "run")) == 100  # readers do not mind
        async with with_pragma(SqliteRunLedgerStore(path), "PRAGMA busy_timeout = 10") as store:
            timer = threading.Timer(0.2, other.execute, ["COMMIT"])
            timer.start()
            await store.append_events("run", events(None), now=T0)
            timer.join()
            assert len(await sequences(store, "run")) == 101
    finally:
        other.close()
