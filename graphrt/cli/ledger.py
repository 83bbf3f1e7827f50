"""Opening the ledger that a command works on: a file, or a PostgreSQL database."""

from __future__ import annotations

import os
from contextlib import asynccontextmanager
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from graphrt.cli import UsageError
from graphrt.cli.runs_parser import LEDGER_VARIABLE

if TYPE_CHECKING:
    import argparse
    from collections.abc import AsyncIterator

    from graphrt.ledger.store import RunLedgerStore

DEFAULT_LEDGER: Final = str(Path(".graphrt", "runs.db"))
_POSTGRES: Final = frozenset({"postgresql", "postgres", "postgresql+psycopg"})


def given_place(options: argparse.Namespace) -> str | None:
    """Give where the ledger is as far as that was said, by `--ledger` or by the environment."""
    place: str | None = options.ledger or os.environ.get(LEDGER_VARIABLE)
    return place or None


def ledger_place(options: argparse.Namespace) -> str:
    """Give where the ledger is: what was said, or the default."""
    return given_place(options) or DEFAULT_LEDGER


def ledger_words(options: argparse.Namespace) -> str:
    """Give the words by which a further command finds the same ledger, with a space before them."""
    return f" --ledger {quote(shown_place(options.ledger))}" if options.ledger else ""


def shown_place(place: str) -> str:
    """Give the place as it may be printed: without a password."""
    parts = urlsplit(place) if "://" in place else None
    if parts is None or parts.password is None:
        return place
    host = parts.netloc.rpartition("@")[2]
    return parts._replace(netloc=f"{parts.username or ''}:***@{host}").geturl()


@asynccontextmanager
async def opened_ledger(place: str, *, create: bool) -> AsyncIterator[RunLedgerStore]:
    """Open the ledger, and close it afterwards; with *create* a file that is not there is made.

    Raises:
        UsageError: There is no such file, or no such kind of ledger.
        RunControlError: It cannot be opened.
    """
    async with _store_at(place, create=create) as store:
        yield store


def _store_at(place: str, *, create: bool) -> RunLedgerStore:
    scheme, separator, rest = place.partition("://")
    if separator and scheme in _POSTGRES:
        from graphrt.ledger import PostgresRunLedgerStore

        return PostgresRunLedgerStore(place.replace("postgres://", "postgresql://", 1))
    if separator and scheme != "sqlite":
        raise UsageError(
            f"there is no ledger of kind {scheme!r}", hint="give the path of a file, or postgresql://user@host/database"
        )
    path = Path(rest.removeprefix("/") if separator else place)
    if not create and not path.is_file():
        raise UsageError(f"there is no ledger {str(path)!r}", hint=f"name another with --ledger, or {LEDGER_VARIABLE}")
    from graphrt.ledger import SqliteRunLedgerStore

    return SqliteRunLedgerStore(path)
