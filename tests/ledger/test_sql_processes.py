"""One database, several processes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import anyio
import pytest

from graphrt.ledger.records import RunFilter
from graphrt.ledger.sql import SqlRunLedgerStore
from tests.ledger import sql_worker
from tests.ledger.conformance import sequences
from tests.ledger.stores import KINDS, queued

ROOT = Path(__file__).parents[2]
KEPT = KINDS[1:]


@pytest.fixture(params=KEPT)
def where(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A database that is not there yet."""
    return str(tmp_path / "ledger.db") if request.param == "sqlite" else request.getfixturevalue("postgres_dsn")


def in_two_processes(what: str, where: str) -> list[str]:
    """Do something in two processes at once; give what they print."""
    command = [sys.executable, "-W", "error", "-m", "tests.ledger.sql_worker", what, where]
    started = [
        subprocess.Popen([*command, name], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT)
        for name in ("a", "b")
    ]
    answers = [process.communicate(timeout=120) for process in started]
    assert [process.returncode for process in started] == [0, 0], [error[-2000:] for _, error in answers]
    return [printed for printed, _ in answers]


def test_many_writers_lose_nothing_and_never_find_the_database_locked(where: str) -> None:
    """B-075: 2 processes x 8 threads, each with a connection of its own, open a new database and write."""
    in_two_processes("write", where)

    async def check() -> None:
        async with sql_worker.opened(where) as store:
            runs = (await store.list_runs(RunFilter(), limit=100)).items
            assert len(runs) == 2 * sql_worker.THREADS
            for run in runs:
                assert await sequences(store, run.run_id) == list(range(1, sql_worker.WRITES + 1))

    anyio.run(check)


def test_each_run_is_claimed_once_by_many_tasks_of_two_processes(where: str) -> None:
    names = [f"r{number}" for number in range(100)]

    async def fill() -> None:
        async with sql_worker.opened(where) as store:
            for name in names:
                await store.create_run(queued(name))

    anyio.run(fill)
    first, second = (json.loads(printed) for printed in in_two_processes("claim", where))
    assert sorted(first + second) == sorted(names)


def test_one_of_two_processes_creates_the_run(where: str) -> None:
    """B-081."""
    assert sum(json.loads(printed) for printed in in_two_processes("create", where)) == 1


def test_what_was_answered_is_there_after_a_process_that_never_closed(where: str) -> None:
    in_two_processes("leave", where)

    async def check(store: SqlRunLedgerStore) -> None:
        async with store:
            for name in ("a", "b"):
                assert await sequences(store, name) == [1, 2, 3, 4, 5, 6][: len(await sequences(store, name))]
                assert len(await sequences(store, name)) >= 5

    anyio.run(check, sql_worker.opened(where))
