"""Running a graph from a terminal: its events one by one, and Ctrl-C as a cancellation."""

from __future__ import annotations

import signal
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import anyio

from graphrt.cli import FAILED, SUCCEEDED, WAITING, one_line

if TYPE_CHECKING:
    from collections.abc import Callable

    from anyio.abc import TaskStatus

    from graphrt.graph import CompiledGraph, RunEvent, RunResult
    from graphrt.graph.scheduler.stream import RunStream

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


@dataclass(frozen=True, slots=True)
class Driven:
    """How a run from the terminal ended."""

    result: RunResult
    signal: signal.Signals | None
    """What interrupted it."""

    @property
    def exit_code(self) -> int:
        """0 for a success, 1 for a failure, 3 while it waits; for an interruption 128 and the signal, as shells do."""
        if self.result.status == "succeeded":
            return SUCCEEDED
        if self.result.status == "waiting":
            return WAITING
        return FAILED if self.signal is None else 128 + self.signal


def how_it_ended(result: RunResult) -> str:
    """Say in one line how a run ended that has not succeeded, and why."""
    status = str(result.status).replace("_", " ")
    error = result.error
    if error is None:
        return f"the run {status}: no reason given"
    if result.status == "timed_out" and isinstance(error, TimeoutError) and str(error):
        reason = " ".join(str(error).split())  # the status says already what kind of error it is
    else:
        reason = one_line(error)
    return f"the run {status}: {reason}"


async def drive(graph: CompiledGraph, value: Any, *, on_event: Callable[[RunEvent], None], **options: Any) -> Driven:
    """Run *graph* and give each event to *on_event*; the first Ctrl-C cancels the run and waits for it.

    A second Ctrl-C is Python's own again. The options are those of ``CompiledGraph.stream``. A failed run is
    not raised: it is in the result.
    """
    stream = graph.stream(value, check=False, **options)
    watch = _Watch()
    try:
        async with anyio.create_task_group() as tasks:
            await tasks.start(watch.signals)
            async with stream as run:
                watch.running = run
                tasks.start_soon(watch.cancel_when_caught)
                async for event in run:
                    on_event(event)
            tasks.cancel_scope.cancel()
    except BaseExceptionGroup as group:  # the one error of the block above, which the task group has wrapped
        raise group.exceptions[0] from None
    return Driven(stream.result, watch.caught)


class _Watch:
    """Waits for a signal, and cancels the run when it comes."""

    def __init__(self) -> None:
        self.caught: signal.Signals | None = None
        self.running: RunStream | None = None
        self._arrived = anyio.Event()

    async def signals(self, *, task_status: TaskStatus[None]) -> None:
        # Only the main thread may catch signals, and not every event loop can: then Ctrl-C is an exception.
        started = False
        with suppress(NotImplementedError, RuntimeError, ValueError):
            with anyio.open_signal_receiver(*_SIGNALS) as received:
                task_status.started()
                started = True
                async for number in received:
                    self.caught = number
                    break
            self._arrived.set()
        if not started:
            task_status.started()

    async def cancel_when_caught(self) -> None:
        await self._arrived.wait()
        if self.running is not None:
            await self.running.cancel("now")
