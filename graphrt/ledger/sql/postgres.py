"""The ledger in a PostgreSQL database, for workers on several machines."""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading
import time
from typing import TYPE_CHECKING, Any, Final

import sqlalchemy as sa

from graphrt.errors import RunControlError
from graphrt.ledger.sql.backend import Backend, InDoubtError, Trouble, Tx, original
from graphrt.ledger.sql.migrate import revision, upgrade
from graphrt.ledger.sql.tables import HEAD

if TYPE_CHECKING:
    from graphrt.ledger.bell import WorkBell

CHANNEL: Final = "graphrt_ledger_queue"
"""Where workers are told that a run was put into the queue."""
_LOCK: Final = "graphrt_ledger_tables"
_PAUSE: Final = 0.05
_AGAIN: Final = frozenset({"40001", "40P01", "55P03"})  # serialization failure, deadlock, lock not available
_GONE: Final = frozenset({"57P01", "57P02", "57P03", "25P03"})  # shut down, crashed, starting, idle for too long


class PostgresBackend(Backend):
    """A database that several workers share; rows are locked, and tables never."""

    def __init__(self, dsn: str) -> None:
        """Take a connection string, as a URL or as `key=value` pairs.

        Raises:
            RunControlError: `invalid_argument`: it is none, or the package `psycopg` is missing.
        """
        try:
            import psycopg
            from psycopg.conninfo import conninfo_to_dict
        except ImportError as error:
            raise RunControlError(
                "invalid_argument", "PostgreSQL needs the package psycopg", hint="pip install 'graphrt[postgres]'"
            ) from error
        dsn = dsn.replace("postgresql+psycopg://", "postgresql://", 1)
        try:
            told = conninfo_to_dict(dsn)
        except psycopg.Error as error:
            raise RunControlError(
                "invalid_argument", "the connection string is none", hint="write postgresql://user@host/database"
            ) from error
        self._settings: dict[str, Any] = {"connect_timeout": 10, "application_name": "graphrt-ledger", **told}
        engine = sa.create_engine(
            "postgresql+psycopg://",
            creator=self.dial,
            isolation_level="AUTOCOMMIT",
            paramstyle="format",
            pool_pre_ping=True,
            pool_size=5,
            max_overflow=10,
        )
        where = "/".join(str(told[key]) for key in ("host", "dbname") if told.get(key))
        super().__init__(engine, f"ledger in PostgreSQL {where}".rstrip())  # without the password

    def dial(self) -> Any:
        """Make a connection of its own."""
        import psycopg

        return psycopg.connect(**self._settings, autocommit=True)

    def prepare(self, tx: Tx) -> None:
        """Make or upgrade the tables, unless they are up to date."""
        if self._found(tx) == HEAD:
            return
        self.begin(tx)
        try:
            self.lock(tx, _LOCK)
            if self._found(tx) != HEAD:  # another process may have been faster
                upgrade(tx.connection)
            tx.cursor.execute("COMMIT")
        except BaseException:
            with contextlib.suppress(Exception):
                self.rollback(tx)
            raise

    def _found(self, tx: Tx) -> str | None:
        [there] = tx.one("SELECT to_regclass('ledger_version') IS NOT NULL")
        return revision(tx, self.name) if there else None

    def begin(self, tx: Tx) -> None:
        """Begin a transaction that writes."""
        tx.cursor.execute("BEGIN")

    def commit(self, tx: Tx) -> None:
        """End it, tell the workers, and remember which one it was, for when its answer is lost."""
        if tx.queued:
            tx.cursor.execute("SELECT pg_notify(%s, '')", (CHANNEL,))
        [mark] = tx.one("SELECT pg_current_xact_id_if_assigned()::text")
        try:
            tx.cursor.execute("COMMIT")
        except BaseException as error:
            if mark is not None and self.judge(error) is Trouble.LOST:
                raise InDoubtError(mark) from error
            raise

    def was_stored(self, tx: Tx, mark: str) -> bool:
        """Whether a transaction that was in doubt was stored."""
        status = "in progress"
        for _ in range(200):
            [status] = tx.one("SELECT pg_xact_status(%s::xid8)", (mark,))
            if status != "in progress":
                break
            time.sleep(_PAUSE)  # its server process has not noticed yet that nobody listens
        if status in {"committed", "aborted"}:
            return bool(status == "committed")
        raise RunControlError(
            "runtime_error",
            f"{self.name}: the connection was lost while storing, and what became of it is not known",
            retryable=True,
            hint="do it again with the same sequences: what is stored is not stored twice",
        )

    def lock(self, tx: Tx, name: str) -> None:
        """Keep out every other transaction that locks *name*, until this one is over."""
        tx.all("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", (name,))

    def judge(self, error: BaseException) -> Trouble | None:
        """Say what an error means."""
        import psycopg

        cause = original(error)
        if not isinstance(cause, (psycopg.Error, sa.exc.SQLAlchemyError, OSError)):
            return None
        state = getattr(cause, "sqlstate", None)
        if state in _AGAIN:
            return Trouble.BUSY
        gone = state is None and isinstance(cause, (psycopg.OperationalError, psycopg.InterfaceError))
        if gone or state in _GONE or str(state).startswith("08"):
            return Trouble.LOST
        return Trouble.OTHER

    def explain(self, error: BaseException) -> tuple[bool, str | None]:
        """Say whether trying again may help, and what else would."""
        state = str(getattr(error, "sqlstate", None) or "")
        if self.judge(error) is Trouble.LOST:
            return True, "look whether the server runs, and whether it may be reached"
        if state.startswith("53"):
            return True, "the server is short of room, memory or connections"
        return self.judge(error) is Trouble.BUSY, None


class WorkListener:
    """A thread that rings the bell whenever a worker somewhere puts a run into the queue."""

    def __init__(self, backend: PostgresBackend, bell: WorkBell) -> None:
        self._backend = backend
        self._bell = bell
        self._closed = False
        self._ours, self._theirs = socket.socketpair()
        self._thread = threading.Thread(target=self._listen, name="graphrt-ledger-listen", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the thread, and wait for it."""
        self._closed = True
        with contextlib.suppress(OSError):
            self._ours.send(b".")
        self._thread.join(10)
        self._ours.close()
        self._theirs.close()

    def _listen(self) -> None:
        import psycopg

        while not self._closed:
            try:
                with self._backend.dial() as connection:
                    connection.execute(f"LISTEN {CHANNEL}")
                    self._bell.ring()  # what was told before is not told again
                    self._follow(connection)
            except (psycopg.Error, OSError):
                self._wait(1.0)  # the bell is a convenience: workers look for themselves as well

    def _follow(self, connection: Any) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(connection.fileno(), selectors.EVENT_READ)
            selector.register(self._theirs, selectors.EVENT_READ)
            while not self._closed:
                selector.select()
                for _ in connection.notifies(timeout=0):
                    self._bell.ring()

    def _wait(self, seconds: float) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self._theirs, selectors.EVENT_READ)
            selector.select(seconds)
