"""Running a graph in this process, with a ledger: Ctrl-C cancels the run, and a question leaves it waiting."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import anyio

from graphrt.cli.asking import TerminalAsker
from graphrt.cli.driving import Driven
from graphrt.cli.ledger import opened_ledger
from graphrt.cli.signals import watch_signals
from graphrt.errors import RunControlError
from graphrt.graph.durable.queued import TARGET, known_run
from graphrt.graph.durable.runs import create, stored_input
from graphrt.ledger.records import RunChange

if TYPE_CHECKING:
    import signal
    from collections.abc import Awaitable, Callable

    from graphrt.graph import CompiledGraph, RunResult
    from graphrt.ledger.store import RunLedgerStore


def new_run_id() -> str:
    """Make an id for a run."""
    return f"run-{os.urandom(8).hex()}"


def asker() -> TerminalAsker | None:
    """Give who answers questions: the person at the terminal; without one the run is left waiting."""
    return TerminalAsker() if sys.stdin is not None and sys.stdin.isatty() else None


async def run_stored(graph: CompiledGraph, value: Any, place: str, run_id: str, target: str, **options: Any) -> Driven:
    """Run *graph* and store that; a run of this id that is stored already is not run again.

    Raises:
        RunControlError: The ledger refuses, or a run of this id has another input.
        GraphChangedError: A run of this id is one of another graph.
    """
    async with opened_ledger(place, create=True) as store:
        _, created = await create(graph, value, store, run_id)
        if created:
            with suppress(RunControlError):  # claimed meanwhile: it will be found by --graph
                await store.change_run(run_id, RunChange(metadata={TARGET: target}), now=datetime.now(UTC))

        async def run() -> RunResult:
            return await graph.run(value, run_id=run_id, ledger=store, check=False, on_ask=asker(), **options)

        return await _interruptible(run, graph, store, run_id)


async def resume_stored(graph: CompiledGraph, store: RunLedgerStore, run_id: str, **options: Any) -> Driven:
    """Go on with a stored run, here."""

    async def go_on() -> RunResult:
        return await graph.resume(run_id, ledger=store, check=False, on_ask=asker(), **options)

    return await _interruptible(go_on, graph, store, run_id)


async def _interruptible(
    call: Callable[[], Awaitable[RunResult]], graph: CompiledGraph, store: RunLedgerStore, run_id: str
) -> Driven:
    """Wait for the run; the first Ctrl-C cancels it, and what is stored of it then is its result."""
    caught: signal.Signals | None = None
    result: RunResult | None = None
    failure: Exception | None = None
    scope = anyio.CancelScope()

    def on_signal(number: signal.Signals) -> bool:
        nonlocal caught
        caught = number
        scope.cancel()
        return False

    async with anyio.create_task_group() as tasks:
        await tasks.start(watch_signals, on_signal)
        with scope:
            try:
                result = await call()
            except Exception as error:  # noqa: BLE001 - raised below, outside the group that would wrap it
                failure = error
        tasks.cancel_scope.cancel()
    if failure is not None:
        raise failure
    if result is None:
        stored = await known_run(store, run_id)
        if not stored.is_terminal:
            raise KeyboardInterrupt  # somebody else was at work on it, and still is
        result = await graph.run(stored_input(graph, stored), run_id=run_id, ledger=store, check=False)
    return Driven(result, caught)
