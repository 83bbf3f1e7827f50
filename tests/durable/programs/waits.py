"""A run that waits for a time; its process is killed meanwhile. Arguments: ledger, log, seconds, run or resume."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import anyio

from graphrt import END, START, Workflow
from graphrt.ledger import SqliteRunLedgerStore
from graphrt.nodes import Wait

place, log, seconds, what = Path(sys.argv[1]), Path(sys.argv[2]), float(sys.argv[3]), sys.argv[4]
flow = Workflow("waits", input=int, output=int)


def note(name: str) -> None:
    with log.open("a") as file:
        file.write(f"{name} {time.time()}\n")


@flow.node
async def before(number: int) -> int:
    note("before")
    return number + 1


@flow.node
async def after(number: int) -> int:
    note("after")
    return number + 1


flow.add(Wait("rest", seconds=seconds))
flow.chain(START, before, "rest", after, END)


async def main() -> None:
    async with SqliteRunLedgerStore(place) as store:
        graph = flow.compile()
        if what == "run":
            result = await graph.run(1, ledger=store, run_id="r")
        else:
            result = await graph.resume("r", ledger=store)
        sys.stdout.write(f"{result.output}\n")


anyio.run(main)
