"""Running a graph from a terminal: its events one by one, and Ctrl-C as a cancellation."""

from __future__ import annotations

import signal
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import anyio

if TYPE_CHECKING:
    from collections.abc import Callable

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
        """0 for a success, 1 for a failure; for an interruption what shells expect, 128 and the signal."""
        if self.signal is not None and self.result.status != "succeeded":
            return 128 + self.signal
        return 0 if self.result.status == "succeeded" else 1


async def drive(graph: CompiledGraph, value: Any, *, on_event: Callable[[RunEvent], None], **options: Any) -> Driven:
    """Run *graph* and give each event to *on_event*; the first Ctrl-C cancels the run and waits for it.

    A second Ctrl-C is Python's own again. The options are those of ``CompiledGraph.stream``. A failed run is
    not raised: it is in the result.
    """
    caught: list[signal.Signals] = []
    problem: Exception | None = None
    async with graph.stream(value, check=False, **options) as run:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_cancel_on_signal, run, caught)
            try:
                async for event in run:
                    on_event(event)
            except Exception as error:  # noqa: BLE001  # raised below: a task group would wrap it
                problem = error
            tasks.cancel_scope.cancel()
        if problem is not None:
            raise problem
    return Driven(run.result, caught[0] if caught else None)


async def _cancel_on_signal(run: RunStream, caught: list[signal.Signals]) -> None:
    # Only the main thread may catch signals, and not every event loop can: then Ctrl-C is an exception.
    with suppress(NotImplementedError, RuntimeError, ValueError):
        with anyio.open_signal_receiver(*_SIGNALS) as signals:
            async for number in signals:
                caught.append(number)
                break
        if caught:
            await run.cancel("now")
