"""The store in a file: what outlives a process, what is shared, and what is refused."""

from __future__ import annotations

import contextlib
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest

from graphrt.errors import GraphrtError, MemoryStoreError
from graphrt.memory import SqliteMemoryStore
from graphrt.memory.sqlite import _TABLES, APPLICATION_ID, VERSION

pytestmark = pytest.mark.anyio

ROOT = Path(__file__).parents[2]

WRITER = """
import sys, anyio
from graphrt.memory import SqliteMemoryStore

async def main(path, name, count):
    store = SqliteMemoryStore(path)
    for number in range(count):
        await store.save("n", f"{name}-{number}", {"number": number})
    await store.save("n", "last", name)
    if name != "careless":
        await store.close()

anyio.run(main, sys.argv[1], sys.argv[2], int(sys.argv[3]))
"""

FORKING = """
import os, sys, anyio
from graphrt.errors import MemoryStoreError
from graphrt.memory import SqliteMemoryStore

store = SqliteMemoryStore(sys.argv[1])

async def child():
    try:
        await store.load("n", "k")
    except MemoryStoreError as error:
        await store.close()
        print(error)

async def parent():
    print(await store.load("n", "k"))

anyio.run(store.save, "n", "k", "kept")
if os.fork() == 0:
    anyio.run(child)
    sys.stdout.flush()
    os._exit(0)
os.wait()
anyio.run(parent)
"""


def start(path: Path, name: str, count: int) -> subprocess.Popen[str]:
    arguments = [sys.executable, "-c", WRITER, str(path), name, str(count)]
    return subprocess.Popen(arguments, cwd=ROOT, stderr=subprocess.PIPE, text=True)


def finish(process: subprocess.Popen[str]) -> None:
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors


@pytest.mark.parametrize("name", ["careful", "careless"])
async def test_what_another_process_wrote_is_read_here(tmp_path: Path, name: str) -> None:
    """A-051: a back end that several processes share; a process that did not close it has lost nothing."""
    path = tmp_path / "memory.db"
    finish(start(path, name, 2))

    async with SqliteMemoryStore(path) as store:
        found = await store.search("n")
    assert found == [(f"{name}-0", {"number": 0}), (f"{name}-1", {"number": 1}), ("last", name)]


async def test_processes_that_make_and_write_one_file_at_once_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    names = ["a", "b", "c"]
    processes = [start(path, name, 40) for name in names]
    async with SqliteMemoryStore(path) as store:
        for number in range(40):
            await store.save("n", f"here-{number}", {"number": number})
        for process in processes:
            await anyio.to_thread.run_sync(finish, process)

        found = dict(await store.search("n"))
    assert found.pop("last") in names
    assert found == {f"{name}-{n}": {"number": n} for name in [*names, "here"] for n in range(40)}


async def test_file_that_another_process_makes_meanwhile_is_no_foreign_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "memory.db"
    connect = sqlite3.connect
    tried: list[str] = []

    def make_tables(statement: str) -> None:
        if statement == "PRAGMA user_version" and not tried:
            tried.append(statement)
            other = connect(path, timeout=0)
            with contextlib.suppress(sqlite3.OperationalError):  # locked: then it comes too late
                other.executescript(f"BEGIN; {'; '.join(_TABLES)}; COMMIT")
            other.close()

    def connect_and_listen(*args: Any, **options: Any) -> sqlite3.Connection:
        connection: sqlite3.Connection = connect(*args, **options)
        connection.set_trace_callback(make_tables)
        return connection

    monkeypatch.setattr("sqlite3.connect", connect_and_listen)
    async with SqliteMemoryStore(path) as store:
        await store.save("n", "k", 1)
        assert await store.load("n", "k") == 1
    assert tried


async def test_two_stores_of_one_file_see_each_others_entries(tmp_path: Path) -> None:
    async with SqliteMemoryStore(tmp_path / "m.db") as one, SqliteMemoryStore(tmp_path / "m.db") as other:
        await one.save("n", "k", 1)
        assert await other.load("n", "k") == 1
        await other.delete("n", "k")
        assert await one.load("n", "k") is None


def test_forked_child_is_told_to_open_its_own(tmp_path: Path) -> None:
    arguments = [sys.executable, "-W", "ignore", "-c", FORKING, str(tmp_path / "memory.db")]
    done = subprocess.run(arguments, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)

    assert done.returncode == 0, done.stderr
    told, *_, kept = done.stdout.splitlines()
    assert "was opened before this process was forked" in told
    assert kept == "kept"


async def test_file_is_written_ahead_and_marked(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    async with SqliteMemoryStore(path) as store:
        await store.save("n", "k", "text")

    with sqlite3.connect(path) as raw:
        assert raw.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert raw.execute("PRAGMA application_id").fetchone() == (APPLICATION_ID,)
        assert raw.execute("PRAGMA user_version").fetchone() == (VERSION,)
        assert raw.execute("SELECT namespace, key, value FROM memory").fetchall() == [("n", "k", '"text"')]
    raw.close()


async def test_file_is_made_at_the_first_use(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    store = SqliteMemoryStore(path)
    assert not path.exists()

    assert await store.load("n", "k") is None
    assert path.exists()
    await store.close()


# --- files that are refused


def content(path: Path) -> bytes | None:
    return path.read_bytes() if path.is_file() else None


async def refusal(path: Path) -> MemoryStoreError:
    before = content(path)
    store = SqliteMemoryStore(path)
    with pytest.raises(MemoryStoreError) as caught:
        await store.save("n", "k", 1)
    await store.close()
    assert content(path) == before, "a refused file is left as it was"
    assert repr(str(path)) in caught.value.message
    return caught.value


async def test_file_of_another_program_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    with sqlite3.connect(path) as raw:
        raw.execute("CREATE TABLE memory (x)")
    raw.close()

    error = await refusal(path)
    assert "is the SQLite file of another program" in error.message
    assert error.is_recoverable()


async def test_file_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    async with SqliteMemoryStore(path) as store:
        await store.save("n", "k", 1)
    with sqlite3.connect(path) as raw:
        raw.execute(f"PRAGMA user_version = {VERSION + 1}")
    raw.close()

    error = await refusal(path)
    assert f"is of version {VERSION + 1}, and this graphrt knows up to {VERSION}" in error.message


async def test_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("these are notes, and no database\n" * 200)

    error = await refusal(path)
    assert "file is not a database" in error.message
    assert error.hint == "the file is damaged or no SQLite file; name another, or bring back a copy"
    assert isinstance(error.__cause__, sqlite3.DatabaseError)


async def test_damaged_file_is_an_error_that_names_it(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    async with SqliteMemoryStore(path) as store:
        for number in range(200):
            await store.save("n", f"k{number}", "x" * 200)
    before = content(path) or b""
    path.write_bytes(before[:4096] + b"\xff" * (len(before) - 4096))

    async with SqliteMemoryStore(path) as store:
        with pytest.raises(MemoryStoreError, match=r"cannot search 'n' in memory store '.*memory.db'") as caught:
            await store.search("n")
    assert isinstance(caught.value.__cause__, sqlite3.DatabaseError)


async def test_folder_that_does_not_exist_is_named_with_the_way_out(tmp_path: Path) -> None:
    error = await refusal(tmp_path / "none" / "memory.db")

    assert "unable to open database file" in error.message
    assert error.hint == "the folder has to exist, and to allow writing"


@pytest.mark.parametrize("path", ["", ":memory:"])
def test_path_that_sqlite_takes_for_no_file_is_refused(path: str) -> None:
    with pytest.raises(MemoryStoreError, match="names no file") as caught:
        SqliteMemoryStore(path)
    assert caught.value.hint == "use InMemoryStore to keep nothing on disk"


async def test_entry_that_is_no_json_is_named(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    async with SqliteMemoryStore(path) as store:
        await store.save("n", "good", 1)
        with sqlite3.connect(path) as raw:
            raw.execute("INSERT INTO memory (namespace, key, value) VALUES ('n', 'bad', '{oops')")
        raw.close()

        with pytest.raises(MemoryStoreError, match="what is stored for 'bad' is no JSON"):
            await store.load("n", "bad")
        with pytest.raises(MemoryStoreError, match="what is stored for 'bad' is no JSON"):
            await store.search("n")
        assert await store.search("n", limit=1) == [("good", 1)]
        await store.delete("n", "bad")
        assert await store.search("n") == [("good", 1)]


# --- closing, waiting


async def test_closed_store_says_so(tmp_path: Path) -> None:
    store = SqliteMemoryStore(tmp_path / "memory.db")
    await store.save("n", "k", 1)
    await store.close()
    await store.close()

    calls: list[tuple[str, tuple[Any, ...]]] = [
        ("save", ("n", "k", 1)),
        ("load", ("n", "k")),
        ("search", ("n",)),
        ("delete", ("n", "k")),
        ("clear", ("n",)),
        ("__aenter__", ()),
    ]
    for name, arguments in calls:
        with pytest.raises(MemoryStoreError, match=r"memory store '.*memory.db' is closed"):
            await getattr(store, name)(*arguments)


def names_in(folder: Path) -> list[str]:
    return sorted(each.name for each in folder.iterdir())


async def test_store_is_closed_also_when_its_block_is_cancelled(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    with anyio.CancelScope() as scope:
        async with SqliteMemoryStore(path) as store:
            await store.save("n", "k", 1)
            scope.cancel()
            await anyio.sleep_forever()

    assert names_in(tmp_path) == ["memory.db"], "the last one to close tidies up"


async def test_task_that_waits_for_another_writer_can_be_cancelled(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    async with SqliteMemoryStore(path) as store:
        await store.save("n", "before", 1)
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with anyio.fail_after(5), anyio.move_on_after(0.05) as scope:
            await store.save("n", "cut off", 2)
        assert scope.cancelled_caught
        other.execute("ROLLBACK")
        other.close()

        await store.save("n", "after", 3)
        assert await store.load("n", "after") == 3


async def test_thread_that_is_not_to_be_had_is_an_error_of_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(*args: Any) -> None:
        raise GraphrtError("64 abandoned threads are still busy", hint="wait")

    store = SqliteMemoryStore(tmp_path / "memory.db")
    with monkeypatch.context() as patch:
        patch.setattr("graphrt.memory.sqlite.run_in_thread", refuse)
        with pytest.raises(MemoryStoreError, match=r"cannot load 'k' in '.*memory.db': 64 abandoned") as caught:
            await store.load("n", "k")
    assert caught.value.hint == "wait"
    await store.close()


async def test_file_that_another_writer_holds_too_long_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("graphrt.memory.sqlite.BUSY_SECONDS", 0.02)
    path = tmp_path / "memory.db"
    async with SqliteMemoryStore(path) as store:
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(MemoryStoreError, match=r"cannot save 'k' in memory store .*: database is locked") as caught:
            await store.save("n", "k", 1)
        other.close()

        assert caught.value.hint == "another process holds the file for long; try again"
        await store.save("n", "k", 2)
        assert await store.load("n", "k") == 2
