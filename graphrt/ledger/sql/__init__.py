"""The ledger in SQL databases; the only part of graphrt that knows SQLAlchemy, Alembic and psycopg."""

from __future__ import annotations

from typing import TYPE_CHECKING

__all__ = ["PostgresRunLedgerStore", "SqlRunLedgerStore", "SqliteRunLedgerStore"]

if TYPE_CHECKING:
    from graphrt.ledger.sql.store import PostgresRunLedgerStore, SqliteRunLedgerStore, SqlRunLedgerStore

if not TYPE_CHECKING:
    from graphrt._lazy import lazy_names

    __getattr__, __dir__ = lazy_names(__name__, {"graphrt.ledger.sql.store": __all__})
