"""Workers of several processes share one ledger: no run twice, and what a killed one held comes back."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from collections import Counter
from pathlib import Path
from typing import Any

import anyio
import pytest

from graphrt.ledger.limits import SharedLimit
from graphrt.ledger.queue import ExecutionQueue
from graphrt.ledger.sql import SqliteRunLedgerStore
from tests.ledger.queueing import queued
from tests.ledger.stores import new_run

PRELUDE = """
import json, sys
import anyio
from graphrt.errors import RunControlError
from graphrt.ledger.limits import SharedLimit
from graphrt.ledger.queue import ExecutionQueue
from graphrt.ledger.records import RunChange
from graphrt.ledger.sql import SqliteRunLedgerStore
from graphrt.ledger.status import AgentRunStatus
from graphrt.clock import SystemClock

path, name = sys.argv[1:]
"""
DRAIN = """
async def main():
    done = []
    async with SqliteRunLedgerStore(path) as store:
        queue = ExecutionQueue(store)
        while (claim := await queue.claim_run(name)) is not None:
            run_id, token = claim.run.run_id, claim.token
            await queue.begin(run_id, token)
            change = RunChange(status=AgentRunStatus.COMPLETED)
            await store.change_run(run_id, change, now=SystemClock().now(), token=token)
            done.append(run_id)
    print(json.dumps(done))

anyio.run(main)
"""
START_ONE = """
async def start(store, number, got):
    queue = ExecutionQueue(store)
    try:
        await queue.enqueue("a")
    except RunControlError as error:
        assert error.code == "conflict", error
    claim = await queue.claim_run(f"{name}-{number}")
    if claim is not None:
        got.append(claim.run.run_id)

async def main():
    got = []
    async with SqliteRunLedgerStore(path) as store, anyio.create_task_group() as tasks:
        for number in range(25):
            tasks.start_soon(start, store, number, got)
    print(json.dumps(got))

anyio.run(main)
"""
HOLD_FOR_EVER = """
async def main():
    async with SqliteRunLedgerStore(path) as store:
        claim = await ExecutionQueue(store).claim_run(name, 1.0)
        limit = SharedLimit(store, "model", 1, lease_seconds=1.0, renew_seconds=0.3)
        async with limit.held(name):
            print(json.dumps(claim.run.run_id), flush=True)
            await anyio.sleep_forever()

anyio.run(main)
"""


def start(code: str, path: Path, name: str) -> subprocess.Popen[str]:
    args = [sys.executable, "-c", textwrap.dedent(PRELUDE + code), str(path), name]
    return subprocess.Popen(args, stdout=subprocess.PIPE, text=True)


def answers(processes: list[subprocess.Popen[str]]) -> list[Any]:
    texts = [process.communicate(timeout=60)[0] for process in processes]
    assert [process.returncode for process in processes] == [0] * len(processes)
    return [json.loads(text) for text in texts]


@pytest.mark.anyio
async def test_workers_of_several_processes_never_take_a_run_twice(tmp_path: Path) -> None:
    """L-055."""
    path = tmp_path / "ledger.db"
    async with SqliteRunLedgerStore(path) as store:
        for number in range(60):
            await queued(store, f"run-{number}")
    processes = [start(DRAIN, path, f"w{number}") for number in range(3)]
    done = await anyio.to_thread.run_sync(answers, processes)
    assert Counter(run_id for one in done for run_id in one) == Counter(f"run-{number}" for number in range(60))


@pytest.mark.anyio
async def test_fifty_starts_of_one_run_in_two_processes_are_one_execution(tmp_path: Path) -> None:
    """B-081."""
    path = tmp_path / "ledger.db"
    async with SqliteRunLedgerStore(path) as store:
        await store.create_run(new_run("a"))
    got = await anyio.to_thread.run_sync(answers, [start(START_ONE, path, name) for name in ("w", "v")])
    assert sorted(got) == [[], ["a"]]


@pytest.mark.anyio
async def test_what_a_killed_worker_held_is_free_after_its_lease(tmp_path: Path) -> None:
    """B-085, X-29."""
    path = tmp_path / "ledger.db"
    async with SqliteRunLedgerStore(path) as store:
        await queued(store, "a")
        worker = start(HOLD_FOR_EVER, path, "w")
        assert worker.stdout is not None
        try:
            assert await anyio.to_thread.run_sync(worker.stdout.readline) == '"a"\n'
        finally:
            worker.kill()
            worker.wait()
            worker.stdout.close()
        with anyio.fail_after(20):
            claim = await ExecutionQueue(store).claim_next("v", poll_seconds=0.05)
            await SharedLimit(store, "model", 1, poll_seconds=0.05).acquire()
    assert (claim.run.run_id, claim.attempt, claim.run.claimed_by) == ("a", 2, "v")
