"""What it costs to store a run: CPU and bytes a step, and claims a second. `python benchmarks/durable.py [DSN]`.

Each figure is the least of several runs of a chain, minus the same chain without a ledger, in one process; with a
DSN of PostgreSQL that server is measured too.
"""

from __future__ import annotations

import math
import operator
import random
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import anyio
from pydantic import BaseModel

from graphrt import END, START, Reduce, Update, Workflow
from graphrt.ledger import (
    AgentRun,
    AuthorizationSnapshot,
    ExecutionQueue,
    InMemoryRunLedgerStore,
    PostgresRunLedgerStore,
    SqliteRunLedgerStore,
)

STEPS = 200
REPEATS = 15
CLAIMS = 300


def chain() -> Any:
    """Make a chain of steps that only add."""
    workflow = Workflow("chain", input=int, output=int)

    def adding(name: str) -> None:
        async def add(x: int) -> int:
            return x + 1

        workflow.add_node(name, add)

    names = [f"n{number}" for number in range(STEPS)]
    for name in names:
        adding(name)
    workflow.chain(START, *names, END)
    return workflow.compile()


async def cpu(graph: Any, **options: Any) -> float:
    """Give the least CPU seconds of a run."""
    spent = []
    for _ in range(REPEATS):
        before = time.process_time()
        result = await graph.run(0, **options)
        spent.append(time.process_time() - before)
        assert result.output == STEPS
    return min(spent)


def size_of(folder: Path) -> int:
    """Give the bytes of the database in *folder*."""
    return sum(path.stat().st_size for path in folder.iterdir())


async def steps(name: str, store: Any, graph: Any, bare: float) -> None:
    """Print what a stored step costs."""
    await graph.run(0, ledger=store)
    for durability in ("async", "sync", "exit"):
        more = await cpu(graph, ledger=store, durability=durability) - bare
        print(f"{name:<10} {durability:<6} {more / STEPS * 1e3:8.3f} ms of CPU a step")


async def claims(name: str, store: Any) -> None:
    """Print how many runs a second one worker can claim and give back as completed."""
    queue = ExecutionQueue(store)
    now = datetime.now(UTC)
    for number in range(CLAIMS):
        run_id = f"{name}-claim-{number}"
        snapshot = AuthorizationSnapshot(runner_id="bench")
        await store.create_run(
            AgentRun(run_id=run_id, runner_id="bench", authorization=snapshot, created_at=now, updated_at=now)
        )
        await queue.enqueue(run_id)
    began, took = time.perf_counter(), 0
    while (claim := await queue.claim_run("worker", 15)) is not None:
        await queue.release(claim.run.run_id, claim.token, failed=None)
        took += 1
        if took == CLAIMS:
            break
    print(f"{name:<10} {took / (time.perf_counter() - began):8.0f} claims a second, given back each")


class Growing(BaseModel):
    """State to which every round adds a message."""

    messages: Annotated[list[str], Reduce(operator.add)] = []


def talk(rounds: int) -> Any:
    """Make a loop that adds 500 characters in each of its rounds."""
    workflow = Workflow("talk", input=int, output=int, state=Growing, max_rounds=rounds + 1)

    @workflow.node
    async def say(n: int) -> Update[int]:
        chars = random.Random(n).choices("0123456789abcdef", k=494)
        return Update(n + 1, messages=[f"{n:06d}{''.join(chars)}"])

    workflow.chain(START, say)
    workflow.edge(say, say, when=lambda n: n < rounds)
    workflow.edge(say, END, when=lambda n: n >= rounds)
    return workflow.compile()


async def growth(folder: Path) -> None:
    """Print the exponent with which what is stored grows with the rounds of a growing conversation."""
    sizes = {}
    for rounds in (500, 1000):
        inside = folder / str(rounds)
        async with SqliteRunLedgerStore(inside / "runs.db") as store:
            result = await talk(rounds).run(0, ledger=store)
            assert len(result.state.messages) == rounds
        sizes[rounds] = size_of(inside)
    exponent = math.log2(sizes[1000] / sizes[500])
    print(f"{'sqlite':<10} {exponent:8.2f} exponent of stored bytes, 500 to 1000 rounds of 500 characters")


async def main(dsn: str | None) -> None:
    """Measure every store."""
    graph = chain()
    bare = await cpu(graph)
    print(f"{'none':<10} {'':<6} {bare / STEPS * 1e3:8.4f} ms of CPU a step")
    async with InMemoryRunLedgerStore() as store:
        await steps("memory", store, graph, bare)
        await claims("memory", store)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        async with SqliteRunLedgerStore(folder / "runs.db") as sqlite:
            await steps("sqlite", sqlite, graph, bare)
        runs = 3 * REPEATS + 1
        print(f"{'sqlite':<10} {size_of(folder) / runs / STEPS:8.0f} bytes on disk a step")
        async with SqliteRunLedgerStore(folder / "queue.db") as sqlite:
            await claims("sqlite", sqlite)
        await growth(folder)
    if dsn is not None:
        async with PostgresRunLedgerStore(dsn) as postgres:
            await steps("postgres", postgres, graph, bare)
            await claims("postgres", postgres)


if __name__ == "__main__":
    anyio.run(main, sys.argv[1] if len(sys.argv) > 1 else None)
