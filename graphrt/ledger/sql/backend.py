"""What differs between databases, and a transaction in either."""

from __future__ import annotations

from abc import ABC, abstractmethod
from enum import Enum
from typing import TYPE_CHECKING, Any

from graphrt.errors import RunControlError
from graphrt.ledger.sql.statements import compiled, statements_for

if TYPE_CHECKING:
    from collections.abc import Sequence

    import sqlalchemy as sa


class Trouble(Enum):
    """What an error of a database means for whoever ran into it."""

    BUSY = "busy"
    """Others are at work: the same again may pass."""
    LOST = "lost"
    """The connection is gone, and the transaction with it."""
    OTHER = "other"


class Tx:
    """One connection, used from one thread at a time; the driver's own cursor, which costs least."""

    __slots__ = ("backend", "connection", "cursor", "queued", "sql")

    def __init__(self, backend: Backend, connection: sa.Connection) -> None:
        self.backend = backend
        self.connection = connection
        self.sql = backend.statements
        self.cursor: Any = connection.connection.cursor()
        self.queued = False
        """Whether this transaction puts a run into the queue."""

    def one(self, statement: str, values: Sequence[Any] = ()) -> Any:
        """Give the first row, or None."""
        self.cursor.execute(statement, values)
        return self.cursor.fetchone()

    def all(self, statement: str, values: Sequence[Any] = ()) -> list[Any]:
        """Give every row."""
        self.cursor.execute(statement, values)
        rows: list[Any] = self.cursor.fetchall()
        return rows

    def run(self, statement: str, values: Sequence[Any] = ()) -> int:
        """Change something; give the number of rows that were changed."""
        self.cursor.execute(statement, values)
        count: int = self.cursor.rowcount
        return count

    def many(self, statement: str, rows: Sequence[Sequence[Any]]) -> None:
        """Change something once for each of *rows*."""
        if len(rows) == 1:
            self.cursor.execute(statement, rows[0])
        elif rows:
            self.cursor.executemany(statement, rows)

    def built(self, statement: sa.Select[Any]) -> list[Any]:
        """Give every row of a statement that is built as it is needed."""
        return self.all(*compiled(self.backend.dialect, statement))

    def delete(self, statement: sa.Delete) -> int:
        """Delete by a statement that is built as it is needed; give the number of rows."""
        return self.run(*compiled(self.backend.dialect, statement))

    def lock(self, name: str) -> None:
        """Keep out every other transaction that locks *name*, until this one is over."""
        self.backend.lock(self, name)

    def drop(self) -> None:
        """Close the connection for good, whatever state it is in."""
        try:
            self.connection.invalidate()
        finally:
            self.connection.close()


class Backend(ABC):
    """One database: how it is opened, how transactions begin and end, what its errors mean."""

    name: str
    """What messages call it."""
    engine: sa.Engine
    order_matters: bool = True
    """Whether transactions of several writers wait for each other's rows, so that all should lock in one order."""

    def __init__(self, engine: sa.Engine, name: str) -> None:
        self.engine = engine
        self.dialect = engine.dialect
        self.name = name
        self.statements = statements_for(engine.dialect.name)

    def connect(self) -> Tx:
        """Take a connection of the pool."""
        return Tx(self, self.engine.connect())

    @abstractmethod
    def prepare(self, tx: Tx) -> None:
        """Make or upgrade the tables, and refuse what is no ledger; once for each store, and safe side by side.

        Raises:
            RunControlError: `runtime_error`: it is something else, or newer.
        """

    @abstractmethod
    def begin(self, tx: Tx) -> None:
        """Begin a transaction that writes."""

    @abstractmethod
    def commit(self, tx: Tx) -> None:
        """End it.

        Raises:
            InDoubtError: The connection is gone, and whether it was stored is not known.
        """

    def rollback(self, tx: Tx) -> None:
        """Undo it."""
        tx.cursor.execute("ROLLBACK")

    @abstractmethod
    def was_stored(self, tx: Tx, mark: str) -> bool:
        """Whether a transaction that was in doubt was stored; asked only after an `InDoubtError`."""

    @abstractmethod
    def lock(self, tx: Tx, name: str) -> None:
        """Keep out every other transaction that locks *name*, until this one is over."""

    @abstractmethod
    def judge(self, error: BaseException) -> Trouble | None:
        """Say what an error means; None when it is none of the database's."""

    @abstractmethod
    def explain(self, error: BaseException) -> tuple[bool, str | None]:
        """Say whether trying again may help, and what else would."""

    def error(self, error: BaseException) -> RunControlError:
        """Make the error that a caller gets."""
        cause = original(error)
        retryable, hint = self.explain(cause)
        text = str(cause).strip() or type(cause).__name__
        made = RunControlError("runtime_error", f"{self.name}: {text}", retryable=retryable, hint=hint)
        made.__cause__ = cause
        return made


class InDoubtError(Exception):
    """The connection was lost while a transaction was being stored."""

    def __init__(self, mark: str) -> None:
        super().__init__(f"transaction {mark} is in doubt")
        self.mark = mark


def original(error: BaseException) -> BaseException:
    """Give the driver's error behind one of SQLAlchemy's."""
    return getattr(error, "orig", None) or error
