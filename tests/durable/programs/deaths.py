"""Runs whose processes die, are stopped, or get into each other's way; prints what became of them as JSON.

One process loads everything and forks the others, so that a death costs no start of Python.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel

from graphrt import END, START, RunContext, Workflow
from graphrt.errors import RunControlError
from graphrt.graph.durable.work import Ledger
from graphrt.ledger import SqliteRunLedgerStore
from graphrt.nodes import Ask

FOLDER = Path(sys.argv[2])
BACKEND = sys.argv[3]
ANSWERS = {"ask#1": "more", "ask#2": "end"}


def note(name: str, text: str) -> None:
    """Add a line to a file, in one write."""
    with (FOLDER / name).open("a") as file:
        file.write(f"{text}\n")


def noted(name: str) -> list[str]:
    """Read the lines of a file."""
    path = FOLDER / name
    return path.read_text().splitlines() if path.exists() else []


def graph(run_id: str) -> Workflow:
    """Make a loop that holds a map, a lazy map, a graph and a question; every call is noted."""
    inner = Workflow("inner", input=int, output=int)

    @inner.node
    async def deep(x: int, ctx: RunContext[Any]) -> int:
        note(run_id, ctx.idempotency_key)
        return x * 2

    inner.chain(START, deep, END)
    workflow = Workflow("deaths", input=int, output=int)

    @workflow.node
    async def plan(x: Any, ctx: RunContext[Any]) -> list[int]:
        note(run_id, ctx.idempotency_key)
        return list(range(ctx.step.round + 1))

    @workflow.node
    async def item(i: int, ctx: RunContext[Any]) -> int:
        await anyio.sleep(0.002 * i)
        note(run_id, ctx.idempotency_key)
        return i + 1

    workflow.add(inner, name="held")

    @workflow.node
    async def total(xs: list[int], ctx: RunContext[Any]) -> int:
        note(run_id, ctx.idempotency_key)
        return sum(xs)

    workflow.add(Ask("ask", question=lambda total: f"{total}?", answer=str))

    @workflow.node
    async def lazy(answer: str, total: int):  # type: ignore[no-untyped-def]  # an async generator
        for i in range(total):
            yield i
            await anyio.lowlevel.checkpoint()

    @workflow.node
    async def last(i: int, ctx: RunContext[Any]) -> int:
        note(run_id, ctx.idempotency_key)
        return i

    @workflow.node
    async def end(xs: list[int]) -> int:
        return sum(xs)

    workflow.chain(START, plan)
    workflow.map(plan, item)
    workflow.chain(item, "held")
    workflow.gather("held", total)
    workflow.chain(total, "ask")
    workflow.edge("ask", plan, when=lambda answer: answer == "more")
    workflow.edge("ask", lazy, when=lambda answer: answer == "end")
    workflow.map(lazy, last)
    workflow.gather(last, end)
    workflow.edge(end, END)
    return workflow


def child(work: Callable[[], Any]) -> int:
    """Do some work in a process of its own; give its number."""
    pid = os.fork()
    if pid:
        return pid
    try:
        work()
    except BaseException as error:  # noqa: BLE001 - the end of the process
        note("errors", f"{type(error).__name__}: {error}")
        os._exit(1)
    os._exit(0)


def wait(pid: int) -> int:
    """Wait for the end of a process; give what it left with, below 0 for a signal."""
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


async def go(run_id: str, durability: Any, dies_at: int | None) -> None:
    """Run, or go on with a run, until it has ended or this process dies at an event."""

    def on_event(event: Any) -> None:
        if event.sequence == dies_at and event.type != "message.delta":
            os.kill(os.getpid(), signal.SIGKILL)

    compiled = graph(run_id).compile()
    async with SqliteRunLedgerStore(FOLDER / "ledger.db") as store:
        options: Any = {"ledger": store, "durability": durability, "on_event": on_event}
        if await store.get_run(run_id) is None:
            result = await compiled.run(1, run_id=run_id, **options)
        else:
            result = await compiled.resume(run_id, **options)
        while result.status == "waiting":
            answers = {question.id: ANSWERS[question.id] for question in result.questions}
            result = await compiled.resume(run_id, answers=answers, **options)
        note("results", f"{run_id} {result.output}")


async def look(run_id: str) -> tuple[list[int], list[str], str]:
    """Give the numbers of a run's events, the steps that have ended, and its status."""
    async with SqliteRunLedgerStore(FOLDER / "ledger.db") as store:
        page = await store.page_events(run_id, limit=1000)
        stored = await store.get_run(run_id)
        assert stored is not None
        ended = [e.data["step"].get("key", e.data["step"]["node"]) for e in page.items if e.type == "step.completed"]
        return [e.sequence for e in page.items], ended, stored.status


def apart(fn: Callable[..., Any], *args: Any) -> Any:
    """Call an async function in a process of its own, so that this one has no threads when it forks."""
    read, write = os.pipe()

    def work() -> None:
        with os.fdopen(write, "w") as file:
            file.write(json.dumps(anyio.run(fn, *args, backend=BACKEND)))

    pid = child(work)
    os.close(write)
    with os.fdopen(read) as file:
        text = file.read()
    assert wait(pid) == 0, noted("errors")
    return json.loads(text)


def deaths() -> list[str]:
    """Let a process die at every event of a run, and the next one a few events later; say what is wrong."""
    problems: list[str] = []
    start, step = (1, 4) if BACKEND == "asyncio" else (3, 4)
    for number in range(start, 75, step):
        run_id = f"r{number}"
        durability = ("sync", "async")[number // 4 % 2]
        died = 0
        for dies_at in (number, number + 7, None):
            before = set(apart(look, run_id)[1]) if died else set()
            called = len(noted(run_id))
            code = wait(child(lambda: anyio.run(go, run_id, durability, dies_at, backend=BACKEND)))  # noqa: B023
            again = {line.partition(":")[2] for line in noted(run_id)[called:]} & before
            if again:
                problems.append(f"{run_id}: called again though their end was stored: {sorted(again)}")
            if code == 0:
                break
            if code != -signal.SIGKILL:
                problems.append(f"{run_id}: ended with {code}: {noted('errors')[-1:]}")
                break
            died += 1
        if not died and number < 60:
            problems.append(f"{run_id}: nobody died")
        numbers, ended, status = apart(look, run_id)
        if numbers != list(range(1, len(numbers) + 1)):
            problems.append(f"{run_id}: numbers {numbers}")
        if len(ended) != len(set(ended)):
            problems.append(f"{run_id}: ended twice: {sorted(ended)}")
        if status != "completed" or noted("results")[-1:] != [f"{run_id} 66"]:
            problems.append(f"{run_id}: {status}, {noted('results')[-1:]}")
    return problems


def slow(run_id: str, seconds: float) -> Workflow:
    """Make a chain of ten nodes that take their time."""
    workflow = Workflow("slow", input=int, output=int)

    def node(name: str) -> Any:
        async def add(x: int) -> int:
            note(run_id, f"{name} {os.getpid()}")
            await anyio.sleep(seconds)
            return x + 1

        return add

    names = [f"n{number}" for number in range(10)]
    for name in names:
        workflow.add_node(name, node(name))
    workflow.chain(START, *names, END)
    return workflow


async def start_many(run_id: str) -> None:
    """Ask for one run twenty-five times at once."""
    compiled = slow(run_id, 0.02).compile()

    async def one(store: SqliteRunLedgerStore) -> None:
        note("answers", str((await compiled.run(1, ledger=store, run_id=run_id)).output))

    async with SqliteRunLedgerStore(FOLDER / "ledger.db") as store, anyio.create_task_group() as tasks:
        for _ in range(25):
            tasks.start_soon(one, store)


def starts() -> Any:
    """B-081: fifty starts with one id, in two processes."""
    pids = [child(lambda: anyio.run(start_many, "s", backend=BACKEND)) for _ in range(2)]
    codes = [wait(pid) for pid in pids]
    return {"codes": codes, "answers": noted("answers"), "calls": [line.split()[0] for line in noted("s")]}


async def resume(run_id: str, lease: float = 15.0) -> None:
    """Resume the slow run, and note what came of it."""
    compiled = slow(run_id, 0.05).compile()
    async with SqliteRunLedgerStore(FOLDER / "ledger.db") as store:
        ledger = Ledger(store, "sync", lease_seconds=lease, renew_seconds=lease / 3)
        try:
            if await store.get_run(run_id) is None:
                result = await compiled.run(1, run_id=run_id, ledger=ledger)
            else:
                result = await compiled.resume(run_id, ledger=ledger)
        except RunControlError as error:
            note("answers", error.code)
        else:
            note("answers", str(result.output))


def race() -> Any:
    """Let two processes resume one run whose process has died."""
    pid = child(lambda: anyio.run(resume, "d", backend=BACKEND))
    until(lambda: len(noted("d")) >= 4)
    os.kill(pid, signal.SIGKILL)
    wait(pid)
    pids = [child(lambda: anyio.run(resume, "d", backend=BACKEND)) for _ in range(2)]
    return {"codes": [wait(pid) for pid in pids], "answers": sorted(noted("answers")), "calls": noted("d")}


def stale() -> Any:
    """Stop a process until its lease has ended and another has ended the run; then let it wake."""
    pid = child(lambda: anyio.run(resume, "z", 0.6, backend=BACKEND))
    until(lambda: len(noted("z")) >= 4)
    os.kill(pid, signal.SIGSTOP)
    time.sleep(0.8)
    code = wait(child(lambda: anyio.run(resume, "z", 0.6, backend=BACKEND)))
    before = apart(look, "z")
    os.kill(pid, signal.SIGCONT)
    codes = [code, wait(pid)]
    return {"codes": codes, "answers": noted("answers"), "same": before == apart(look, "z"), "status": before[2]}


def until(condition: Callable[[], bool]) -> None:
    """Wait for what another process does."""
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end, noted("errors")
        time.sleep(0.005)


def load() -> None:
    """Load in this process what all others need."""
    importlib.import_module(f"anyio._backends._{BACKEND}")
    graph("").compile().event_codec().check()
    for name in ("store", "sqlite", "operations", "reading", "writer"):
        importlib.import_module(f"graphrt.ledger.sql.{name}")
    importlib.import_module("graphrt.graph.durable.runs")


if __name__ == "__main__":
    load()
    what = {"deaths": deaths, "starts": starts, "race": race, "stale": stale}[sys.argv[1]]
    sys.stdout.write(json.dumps(what()))
