"""`graphrt worker`."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any, Final

import anyio

from graphrt.cli import FAILED, SUCCEEDED, UsageError
from graphrt.cli.ledger import ledger_place, opened_ledger, shown_place
from graphrt.cli.printing import clean, print_json, print_line
from graphrt.cli.signals import watch_signals
from graphrt.cli.target import load_graph
from graphrt.graph.durable.worker import Worker

if TYPE_CHECKING:
    import argparse
    import signal

    from graphrt.graph.durable.worker import WorkReport

_SAID: Final = {"claimed": "claimed", "handed_back": "back in the queue", "lost": "lost"}


def worker(options: argparse.Namespace) -> int:
    """Work on queued runs until a signal comes, or with `--once` until nothing is left; being stopped is a success.

    Raises:
        GraphrtError: A workflow is not there, or the ledger cannot be used.
    """
    graphs = [load_graph(target) for target in options.targets]
    place = ledger_place(options)
    voice = _Voice(as_json=options.json)

    async def main() -> None:
        async with opened_ledger(place, create=True) as store:
            voice.pool = pool = Worker(
                graphs,
                store,
                concurrency=options.concurrency,
                lease_seconds=options.lease,
                grace_seconds=options.grace,
                on_report=voice.report,
            )
            voice.started(pool, shown_place(place))
            await _until_stopped(pool, voice, once=options.once)

    try:
        anyio.run(main, backend=options.backend)
    except ModuleNotFoundError as error:
        if error.name != options.backend:
            raise
        raise UsageError(f"{options.backend} is not installed", hint=f"pip install {options.backend}") from error
    return FAILED if voice.unheard else SUCCEEDED


async def _until_stopped(pool: Worker, voice: _Voice, *, once: bool) -> None:
    """Work; the first signal stops the worker, the second one stops it at once, a third one is Python's own again."""
    failure: Exception | None = None
    stopping = False

    def on_signal(number: signal.Signals) -> bool:
        nonlocal stopping
        pool.stop(now=stopping)
        voice.stopping(number, now=stopping)
        stopping, again = True, not stopping
        return again

    async with anyio.create_task_group() as tasks:
        await tasks.start(watch_signals, on_signal)
        try:
            await pool.run(once=once)
        except Exception as error:  # noqa: BLE001 - raised below, outside the group that would wrap it
            failure = error
        tasks.cancel_scope.cancel()
    if failure is not None:
        raise failure


class _Voice:
    """Says what the worker does; when whoever listened has gone, the worker is stopped."""

    def __init__(self, *, as_json: bool) -> None:
        self.pool: Worker | None = None
        self.unheard = False
        self._as_json = as_json

    def started(self, pool: Worker, place: str) -> None:
        graphs = {graph.name: graph.fingerprint for graph in pool.graphs.values()}
        self._say(
            f"worker {pool.worker_id}: {', '.join(graphs)}; {pool.concurrency} at once; ledger {place}",
            what="started",
            worker=pool.worker_id,
            graphs=graphs,
            concurrency=pool.concurrency,
            ledger=place,
        )

    def stopping(self, number: signal.Signals, *, now: bool) -> None:
        line = "stopping now" if now else "stopping: runs go back to the queue when the steps at work have ended"
        self._say(line, what="stopping", signal=number.name, now=now)

    def report(self, report: WorkReport) -> None:
        said = _SAID.get(report.what) or (report.status.value if report.status is not None else report.what)
        again = f" (attempt {report.attempt})" if report.what == "claimed" and report.attempt > 1 else ""
        reason = f": {clean(report.reason)}" if report.reason else ""
        self._say(
            f"{clean(report.run_id)} {clean(report.graph or '')} {said}{again}{reason}",
            what=report.what,
            run_id=report.run_id,
            graph=report.graph,
            attempt=report.attempt,
            status=report.status,
            reason=report.reason,
        )

    def _say(self, line: str, **about: Any) -> None:
        try:
            if self._as_json:
                print_json(about, lines=True)
            else:
                print_line(line)
        except BrokenPipeError:
            # What is still buffered must not raise again at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            self.unheard = True
            if self.pool is not None:
                self.pool.stop()
