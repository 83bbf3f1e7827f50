"""The ledger in an SQLite file, which several processes may write."""

from __future__ import annotations

import contextlib
import sqlite3
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import sqlalchemy as sa

from graphrt.errors import RunControlError
from graphrt.ledger.sql.backend import Backend, Trouble, Tx, original
from graphrt.ledger.sql.migrate import revision, upgrade
from graphrt.ledger.sql.tables import HEAD

if TYPE_CHECKING:
    import os

Synchronous: TypeAlias = Literal["NORMAL", "FULL"]

APPLICATION_ID: Final = 0x67726C31
"""Marks the file as a ledger of graphrt, in the header that SQLite has for it."""
BUSY_MILLISECONDS: Final = 5_000
"""How long SQLite itself waits for another writer, before the writing thread asks again."""
OPENING_SECONDS: Final = 30.0
"""Seconds to wait for other processes that open the file."""
_PAUSE: Final = 0.005
_RETRYABLE: Final = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR})
_HINTS: Final = {
    sqlite3.SQLITE_BUSY: "another process holds the file for long; try again",
    sqlite3.SQLITE_LOCKED: "another process holds the file for long; try again",
    sqlite3.SQLITE_FULL: "make room on the disk; nothing of this call was stored",
    sqlite3.SQLITE_IOERR: "look at the disk; nothing of this call was stored",
    sqlite3.SQLITE_READONLY: "allow writing to the file and its folder",
    sqlite3.SQLITE_CANTOPEN: "name a file, in a folder that allows writing",
    sqlite3.SQLITE_CORRUPT: "the file is damaged; bring back a copy, or name another",
    sqlite3.SQLITE_NOTADB: "the file is damaged, or no SQLite file; bring back a copy, or name another",
}


class SqliteBackend(Backend):
    """A file in WAL mode: readers and one writer side by side, in as many processes as like."""

    order_matters = False

    def __init__(self, path: str | os.PathLike[str], synchronous: Synchronous) -> None:
        """Take the path of the file; it and its folder are made at the first use.

        Raises:
            RunControlError: `invalid_argument`: no path, or an unknown setting.
        """
        text = str(path)
        if text in {"", ":memory:"} or "\0" in text:
            raise RunControlError(
                "invalid_argument", f"{text!r} names no file", hint="use InMemoryRunLedgerStore to keep nothing on disk"
            )
        if synchronous not in {"NORMAL", "FULL"}:
            raise RunControlError("invalid_argument", f"synchronous={synchronous!r} is neither 'NORMAL' nor 'FULL'")
        self.path = Path(text)
        engine = sa.create_engine(
            sa.URL.create("sqlite", database=text), isolation_level="AUTOCOMMIT", pool_size=5, max_overflow=10
        )

        def connected(connection: sqlite3.Connection, _: object) -> None:
            connection.execute(f"PRAGMA busy_timeout = {BUSY_MILLISECONDS}")
            connection.execute(f"PRAGMA synchronous = {synchronous}")

        sa.event.listen(engine, "connect", connected)
        super().__init__(engine, f"ledger {text!r}")

    def connect(self) -> Tx:
        """Take a connection of the pool."""
        if self.path.is_dir():
            raise RunControlError("runtime_error", f"{self.name}: it is a folder", hint="name a file")
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RunControlError(
                "runtime_error", f"{self.name}: cannot make its folder: {error}", hint="name another file"
            ) from error
        return super().connect()

    def prepare(self, tx: Tx) -> None:
        """Make or upgrade the tables, unless the file is up to date."""
        if self._checked(tx) == HEAD:
            return
        self._patiently(tx, "PRAGMA journal_mode = WAL")  # SQLite does not wait by itself when several want this
        self.begin(tx)
        try:
            if self._checked(tx) != HEAD:  # another process may have been faster
                upgrade(tx.connection)
                tx.run(f"PRAGMA application_id = {APPLICATION_ID}")
            self.commit(tx)
        except BaseException:
            with contextlib.suppress(sqlite3.Error):
                self.rollback(tx)
            raise

    def _checked(self, tx: Tx) -> str | None:
        """Give the revision of the tables, None for an empty file; in one look at the file. Writes nothing."""
        whole = not tx.connection.connection.dbapi_connection.in_transaction  # type: ignore[union-attr]
        if whole:
            tx.cursor.execute("BEGIN")
        try:
            [application] = tx.one("PRAGMA application_id")
            [version] = tx.one("PRAGMA user_version")
            [tables] = tx.one("SELECT count(*) FROM sqlite_master")
            if application == APPLICATION_ID:
                return revision(tx, self.name)
        finally:
            if whole:
                tx.cursor.execute("ROLLBACK")
        if application or version or tables:
            raise RunControlError(
                "runtime_error",
                f"{self.name}: it is the SQLite file of another program, and was left as it is",
                hint="name another file",
            )
        return None

    def begin(self, tx: Tx) -> None:
        """Begin a transaction that writes; readers that turn into writers are what locks a file up."""
        tx.cursor.execute("BEGIN IMMEDIATE")

    def commit(self, tx: Tx) -> None:
        """End it."""
        tx.cursor.execute("COMMIT")

    def rollback(self, tx: Tx) -> None:
        """Undo it, unless SQLite has, as it does after some errors."""
        if tx.connection.connection.dbapi_connection.in_transaction:  # type: ignore[union-attr]
            tx.cursor.execute("ROLLBACK")

    def was_stored(self, tx: Tx, mark: str) -> bool:
        """Give False: a commit to a file is never in doubt, so a mark was never stored."""
        return False

    def lock(self, tx: Tx, name: str) -> None:
        """Do nothing: there is one writer at a time."""

    def judge(self, error: BaseException) -> Trouble | None:
        """Say what an error means."""
        cause = original(error)
        if not isinstance(cause, (sqlite3.Error, sa.exc.SQLAlchemyError, OSError)):
            return None
        return Trouble.BUSY if _code(cause) in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED} else Trouble.OTHER

    def explain(self, error: BaseException) -> tuple[bool, str | None]:
        """Say whether trying again may help, and what else would."""
        code = _code(error)
        if code == 0 and isinstance(error, sqlite3.DatabaseError) and not isinstance(error, sqlite3.OperationalError):
            code = sqlite3.SQLITE_CORRUPT
        return code in _RETRYABLE, _HINTS.get(code)

    def _patiently(self, tx: Tx, statement: str) -> None:
        end = time.monotonic() + OPENING_SECONDS
        while True:
            try:
                tx.all(statement)
            except sqlite3.OperationalError as error:
                if self.judge(error) is not Trouble.BUSY or time.monotonic() > end:
                    raise
                time.sleep(_PAUSE)
            else:
                return


def _code(error: BaseException) -> int:
    number: Any = getattr(error, "sqlite_errorcode", 0)
    return int(number) & 0xFF
