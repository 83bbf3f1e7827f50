"""Fixtures for all tests of the ledger."""

from tests.ledger.stores import (
    opening,
    postgres_dsn,
    postgres_empty,
    postgres_server,
    postgres_shared,
    sqlite_empty,
    store,
)

__all__ = [
    "opening",
    "postgres_dsn",
    "postgres_empty",
    "postgres_server",
    "postgres_shared",
    "sqlite_empty",
    "store",
]
