"""What test processes do with a ledger; run as `python -m tests.ledger.sql_worker <what> <where> <name>`."""

from __future__ import annotations

import json
import sys
import threading

import anyio

from graphrt.ledger.sql import PostgresRunLedgerStore, SqliteRunLedgerStore, SqlRunLedgerStore
from tests.ledger.stores import T0, events, new_run, queued

THREADS = 8
WRITES = 100
TASKS = 25


def opened(where: str) -> SqlRunLedgerStore:
    return PostgresRunLedgerStore(where) if where.startswith("postgresql:") else SqliteRunLedgerStore(where)


def write(where: str, name: str) -> None:
    """Append from threads, each with a store and an event loop of its own."""
    failures: list[BaseException] = []

    async def fill(number: int) -> None:
        async with opened(where) as store:
            run_id = f"{name}-{number}"
            await store.create_run(new_run(run_id))
            for sequence in range(1, WRITES + 1):
                await store.append_events(run_id, events(sequence), now=T0)

    def run(number: int) -> None:
        try:
            anyio.run(fill, number)
        except BaseException as error:  # noqa: BLE001  # raised below
            failures.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


async def claim(where: str, name: str) -> None:
    """Claim in many tasks at once until nothing is left; print what was claimed."""
    taken: list[str] = []
    async with opened(where) as store:

        async def work(number: int) -> None:
            while (claim := await store.claim_run(f"{name}-{number}", 60, now=T0)) is not None:
                taken.append(claim.run.run_id)

        async with anyio.create_task_group() as tasks:
            for number in range(TASKS):
                tasks.start_soon(work, number)
    sys.stdout.write(json.dumps(taken))


async def create(where: str, name: str) -> None:
    """Create one run in many tasks at once; print how often it was new."""
    made: list[bool] = []
    async with opened(where) as store:

        async def one(number: int) -> None:
            made.append((await store.create_run(queued("the-one", agent_id=f"{name}-{number}")))[1])

        async with anyio.create_task_group() as tasks:
            for number in range(TASKS):
                tasks.start_soon(one, number)
    sys.stdout.write(json.dumps(sum(made)))


async def leave(where: str, name: str) -> None:
    """Append, and end without closing; what was answered is said."""
    store = opened(where)
    await store.create_run(new_run(name))
    for sequence in range(1, 6):
        await store.append_events(name, events(sequence), now=T0)
    with anyio.move_on_after(0):  # nobody waits for these
        await store.append_events(name, events(6), now=T0)
    await anyio.lowlevel.checkpoint()
    sys.stdout.write("5")


if __name__ == "__main__":
    what, place, who = sys.argv[1:]
    if what == "write":
        write(place, who)
    else:
        anyio.run({"claim": claim, "create": create, "leave": leave}[what], place, who)
