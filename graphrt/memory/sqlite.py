"""A memory store in a file, which outlives the process and may be shared by several."""

from __future__ import annotations

import json
import os
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar, TypeVarTuple

import anyio
from anyio.lowlevel import RunVar

from graphrt.errors import GraphrtError, MemoryStoreError
from graphrt.memory.values import check_limit, check_name, json_value, matching
from graphrt.threads import run_in_thread

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Iterator
    from types import TracebackType

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

APPLICATION_ID: Final = 0x67726D31
"""Marks the file as a memory store of graphrt, in the header that SQLite has for it."""
VERSION: Final = 1
"""Version of the tables, in ``PRAGMA user_version``."""
BUSY_SECONDS: Final = 10.0
"""Seconds to wait for another process or thread that writes to the file."""
_BUSY_PAUSE: Final = 0.01

_TABLES: Final = (
    (
        "CREATE TABLE memory (position INTEGER PRIMARY KEY, namespace TEXT NOT NULL, key TEXT NOT NULL,"
        " value TEXT NOT NULL, UNIQUE (namespace, key))"
    ),
    "CREATE INDEX memory_order ON memory (namespace, position)",
    f"PRAGMA application_id = {APPLICATION_ID}",
    f"PRAGMA user_version = {VERSION}",
)
_SAVE: Final = (
    "INSERT INTO memory (namespace, key, value) VALUES (?, ?, ?)"
    " ON CONFLICT (namespace, key) DO UPDATE SET value = excluded.value"
)


class SqliteMemoryStore:
    """A ``MemoryStore`` in one SQLite file; several processes, threads and event loops may use it at once.

    The file is opened, and made if it is not there, at the first use. Close the store, or use it as an async
    context manager. What ``save`` has returned from is seen by every reader and survives the process; a loss
    of power may take the last entries, and leaves the file whole.

    The work is done in threads. A task that is cancelled leaves at once, and what it was about to write may
    still be written.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Take the file's path; its folder has to exist.

        Raises:
            MemoryStoreError: The path is empty or ``":memory:"``, which SQLite takes for no file.
        """
        self._path = os.fspath(path)
        if self._path in {"", ":memory:"}:
            raise MemoryStoreError(f"{self._path!r} names no file", hint="use InMemoryStore to keep nothing on disk")
        self._connection: sqlite3.Connection | None = None
        self._opened_by: int | None = None
        self._closed = False
        self._lock = threading.Lock()  # one thread at a time uses the connection
        self._turn: RunVar[anyio.Lock] = RunVar("turn")  # one task of a loop at a time needs a thread

    async def save(self, namespace: str, key: str, value: Any) -> None:
        """Store *value*; the key keeps its place if it is there already, and else comes last.

        Raises:
            MemoryStoreError: JSON cannot hold the value, namespace or key cannot be stored, the file cannot
                be used, or the store is closed.
        """
        _check(namespace, key)
        text = json.dumps(json_value(value, key), ensure_ascii=False)
        await self._call(f"save {key!r}", self._execute, _SAVE, (namespace, key, text))

    async def load(self, namespace: str, key: str) -> Any:
        """Give the value, or None if there is no such key.

        Raises:
            MemoryStoreError: The file cannot be used, what it holds is no JSON, or the store is closed.
        """
        _check(namespace, key)
        return await self._call(f"load {key!r}", self._load, namespace, key)

    async def search(self, namespace: str, query: str = "", limit: int | None = None) -> list[tuple[str, Any]]:
        """Give the first *limit* entries with *query* in key or value, in the order of their first saving.

        Reads the namespace up to the last entry that it gives.

        Raises:
            MemoryStoreError: The limit is below 0, the file cannot be used, what it holds is no JSON, or the
                store is closed.
        """
        check_name("namespace", namespace)
        check_limit(limit)
        return await self._call(f"search {namespace!r}", self._search, namespace, query, limit)

    async def delete(self, namespace: str, key: str) -> None:
        """Forget a key; harmless if it is not there.

        Raises:
            MemoryStoreError: The file cannot be used, or the store is closed.
        """
        _check(namespace, key)
        statement = "DELETE FROM memory WHERE namespace = ? AND key = ?"
        await self._call(f"delete {key!r}", self._execute, statement, (namespace, key))

    async def clear(self, namespace: str) -> None:
        """Forget every key of *namespace*.

        Raises:
            MemoryStoreError: The file cannot be used, or the store is closed.
        """
        check_name("namespace", namespace)
        await self._call(f"clear {namespace!r}", self._execute, "DELETE FROM memory WHERE namespace = ?", (namespace,))

    async def close(self) -> None:
        """Close the file, once what is being done is done; harmless the second time.

        Raises:
            GraphrtError: No thread is to be had, see ``run_in_thread``; the file is left open.
        """
        self._closed = True
        if self._opened_by not in {None, os.getpid()}:
            return  # a process that was forked must not touch its parent's connection
        with anyio.CancelScope(shield=True):
            await run_in_thread(self._close)

    async def __aenter__(self) -> Self:
        """Open the file.

        Raises:
            MemoryStoreError: It is no memory store, or cannot be used.
        """
        await self._call("open", self._nothing)
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close the file."""
        await self.close()

    async def _call(self, what: str, fn: Callable[[sqlite3.Connection, *Ts], T], *args: *Ts) -> T:
        """Call *fn* with the connection, in a thread; *what* is for the message of an error."""
        self._refuse_if_unusable()
        turn = self._turn.get(None)
        if turn is None:
            turn = anyio.Lock()
            self._turn.set(turn)
        async with turn:
            try:
                return await run_in_thread(self._in_thread, what, fn, *args)
            except MemoryStoreError:
                raise
            except GraphrtError as error:  # no thread is to be had
                raise MemoryStoreError(f"cannot {what} in {self._path!r}: {error.message}", hint=error.hint) from error

    def _refuse_if_unusable(self) -> None:
        if self._closed:
            raise MemoryStoreError(f"memory store {self._path!r} is closed", hint="make a new SqliteMemoryStore")
        if self._opened_by not in {None, os.getpid()}:
            raise MemoryStoreError(
                f"memory store {self._path!r} was opened before this process was forked",
                hint="make a SqliteMemoryStore in the child",
            )

    def _in_thread(self, what: str, fn: Callable[[sqlite3.Connection, *Ts], T], *args: *Ts) -> T:
        with self._lock:
            self._refuse_if_unusable()
            with _said(f"cannot {what} in memory store {self._path!r}"):
                if self._connection is None:
                    self._connection = _open(self._path)
                    self._opened_by = os.getpid()
                return fn(self._connection, *args)

    def _close(self) -> None:
        with self._lock:
            connection, self._connection = self._connection, None
            if connection is not None:
                connection.close()

    # --- what is done with the connection, in a thread

    @staticmethod
    def _nothing(connection: sqlite3.Connection) -> None:
        """Do nothing: opening is all that is wanted."""

    @staticmethod
    def _execute(connection: sqlite3.Connection, statement: str, values: tuple[str, ...]) -> None:
        connection.execute(statement, values)

    @staticmethod
    def _load(connection: sqlite3.Connection, namespace: str, key: str) -> Any:
        statement = "SELECT value FROM memory WHERE namespace = ? AND key = ?"
        row = connection.execute(statement, (namespace, key)).fetchone()
        return None if row is None else _read(key, row[0])

    @staticmethod
    def _search(connection: sqlite3.Connection, namespace: str, query: str, limit: int | None) -> list[tuple[str, Any]]:
        rows = connection.execute("SELECT key, value FROM memory WHERE namespace = ? ORDER BY position", (namespace,))
        try:
            return matching(((key, _read(key, text)) for key, text in rows), query, limit)
        finally:
            rows.close()  # a reader that stops half-way would hold back the clearing of the log


def _check(namespace: str, key: str) -> None:
    check_name("namespace", namespace)
    check_name("key", key)


def _read(key: str, text: Any) -> Any:
    try:
        return json.loads(text)
    except (TypeError, ValueError, RecursionError) as error:
        raise MemoryStoreError(f"what is stored for {key!r} is no JSON", hint="save it again, or delete it") from error


@contextmanager
def _said(what: str) -> Iterator[None]:
    """Raise what SQLite and the system say as MemoryStoreError."""
    import sqlite3

    try:
        yield
    except (sqlite3.Error, OSError) as error:
        raise MemoryStoreError(f"{what}: {error}", hint=_hint(error)) from error


def _hint(error: Exception) -> str | None:
    import sqlite3

    name = getattr(error, "sqlite_errorname", None) or ""
    if name.startswith("SQLITE_CANTOPEN"):
        return "the folder has to exist, and to allow writing"
    if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        return "another process holds the file for long; try again"
    if name.startswith(("SQLITE_NOTADB", "SQLITE_CORRUPT")) or isinstance(error, sqlite3.InternalError):
        return "the file is damaged or no SQLite file; name another, or bring back a copy"
    return None


def _open(path: str) -> sqlite3.Connection:
    """Open the file and check that it is a memory store; make it one if it is empty."""
    import sqlite3

    # Threads take turns with the connection, and each statement is a transaction of its own.
    connection = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
    try:
        with _transaction(connection, "DEFERRED"):
            ready = _is_store(connection, path)
        if not ready:
            _use_log(connection)
            _make_tables(connection, path)
        connection.execute("PRAGMA synchronous = NORMAL")
    except BaseException:
        connection.close()
        raise
    return connection


def _is_store(connection: sqlite3.Connection, path: str) -> bool:
    """Say whether the file is a memory store; False if it is empty. Writes nothing.

    Call it in a transaction: another process may make the tables between two of its questions.

    Raises:
        MemoryStoreError: It is something else, or of a newer version.
    """
    [application] = connection.execute("PRAGMA application_id").fetchone()
    [version] = connection.execute("PRAGMA user_version").fetchone()
    [tables] = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if application == APPLICATION_ID and version > VERSION:
        raise MemoryStoreError(
            f"memory store {path!r} is of version {version}, and this graphrt knows up to {VERSION}",
            hint="use the graphrt that wrote it, or a newer one",
        )
    if application != APPLICATION_ID and (application or version or tables):
        raise MemoryStoreError(
            f"{path!r} is the SQLite file of another program; it was left as it is", hint="name another file"
        )
    return bool(application)


def _use_log(connection: sqlite3.Connection) -> None:
    """Let readers and a writer work side by side (WAL), from here on whoever opens the file.

    SQLite does not wait by itself when several processes want this at once.
    """
    import sqlite3

    end = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > end:
                raise
            time.sleep(_BUSY_PAUSE)
        else:
            return


def _make_tables(connection: sqlite3.Connection, path: str) -> None:
    """Make the tables, unless another process was faster."""
    with _transaction(connection, "IMMEDIATE"):
        if not _is_store(connection, path):
            for statement in _TABLES:
                connection.execute(statement)


@contextmanager
def _transaction(connection: sqlite3.Connection, kind: str) -> Iterator[None]:
    """Do all of the block, or nothing of it, with what others write left out."""
    connection.execute(f"BEGIN {kind}")
    try:
        yield
    except BaseException:
        if connection.in_transaction:  # SQLite itself rolls back after some errors
            connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")
