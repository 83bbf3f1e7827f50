"""`Worker`: claims queued runs whose graph it has, and works on several of them at once."""

from __future__ import annotations

import logging
import os
import socket
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, Literal

import anyio

from graphrt.errors import ConfigError, GraphrtError, RunControlError
from graphrt.graph.durable.handing import QueuedStretch
from graphrt.graph.durable.past import Past
from graphrt.graph.durable.runs import stored_input
from graphrt.graph.durable.stored import effective, load_events
from graphrt.graph.durable.work import STATUSES, Ledger, is_free, worker_name
from graphrt.ledger.leases import LEASE_SECONDS
from graphrt.ledger.queue import POLL_SECONDS, ExecutionQueue
from graphrt.ledger.records import RunChange, RunFilter
from graphrt.ledger.runtimes import RuntimeRegistry
from graphrt.ledger.status import AgentRunStatus

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from anyio.abc import TaskGroup

    from graphrt.graph.durable.recorder import Durability
    from graphrt.graph.graph import CompiledGraph
    from graphrt.ledger.records import Claim
    from graphrt.ledger.store import RunLedgerStore
    from graphrt.telemetry import Telemetry

log = logging.getLogger("graphrt.worker")

GRACE_SECONDS: Final = 10.0
"""How long steps at work may go on when the worker is stopped."""
_RENEWALS: Final = 3
"""Renewals within the length of a lease."""

_S = AgentRunStatus


@dataclass(frozen=True, slots=True)
class WorkReport:
    """What a worker has done about one run."""

    run_id: str
    graph: str | None
    """The graph's name; None when the worker does not have it."""
    what: Literal["claimed", "ended", "handed_back", "lost"]
    """Taken up; ended or left waiting; given back to the queue; lost to another worker, or to a ledger out of reach."""
    attempt: int
    status: AgentRunStatus | None = None
    """How the run stands, once it has ended or waits."""
    reason: str | None = None


class Worker:
    """Works on the queued runs of one ledger, as one of any number of workers in any number of processes.

    A run whose worker dies is taken over by another when its lease has ended; steps that had not ended start again.
    """

    def __init__(
        self,
        graphs: Iterable[CompiledGraph],
        store: RunLedgerStore,
        *,
        concurrency: int = 4,
        lease_seconds: float = LEASE_SECONDS,
        grace_seconds: float = GRACE_SECONDS,
        poll_seconds: float = POLL_SECONDS,
        deps: Any = None,
        telemetry: Telemetry | None = None,
        durability: Durability = "async",
        max_attempts: int | None = 5,
        on_report: Callable[[WorkReport], object] | None = None,
    ) -> None:
        """Take what the worker can run, and from where.

        Args:
            graphs: Runs of these are claimed, told by their fingerprints.
            store: The ledger.
            concurrency: Runs at work at once, at most.
            lease_seconds: How long a run stays with a worker that is not heard of any more.
            grace_seconds: How long steps at work may go on when the worker is stopped.
            poll_seconds: How often to look for work where nobody tells of it.
            deps: What nodes find as `ctx.deps`.
            telemetry: Where spans go.
            durability: As for `CompiledGraph.run`.
            max_attempts: Failures of its workers after which a run fails for good; None for no end.
            on_report: Told what happens, on the event loop; must not block.

        Raises:
            ConfigError: There is no graph, or a number is out of range.
            GraphTypeError: Values of a graph could not be stored.
        """
        self.graphs = {graph.fingerprint: graph for graph in graphs}
        if not self.graphs:
            raise ConfigError("a worker without a graph can run nothing", hint="give it at least one graph")
        if not isinstance(concurrency, int) or concurrency < 1:
            raise ConfigError(f"concurrency is {concurrency!r}", hint="give a whole number of at least 1")
        for name, seconds in {"lease_seconds": lease_seconds, "poll_seconds": poll_seconds}.items():
            if not 0 < seconds < float("inf"):
                raise ConfigError(f"{name} is {seconds!r}", hint="give seconds above 0")
        for graph in self.graphs.values():
            graph.event_codec().check()
        self.store = store
        self.worker_id = worker_name()
        self.concurrency = concurrency
        self._lease_seconds = lease_seconds
        self._grace_seconds = grace_seconds
        self._poll_seconds = poll_seconds
        self._options: dict[str, Any] = {"deps": deps, "telemetry": telemetry}
        self._ledger = Ledger(store, durability, lease_seconds, lease_seconds / _RENEWALS)
        self._queue = ExecutionQueue(store, max_attempts=max_attempts)
        self._max_attempts = max_attempts
        self._on_report = on_report
        self._stopping = False
        self._busy = 0
        self._stretches: dict[str, QueuedStretch] = {}
        self._changed = anyio.Event()
        self._looking: anyio.CancelScope | None = None
        self._tasks: TaskGroup | None = None

    # ------------------------------------------------------------ life

    async def run(self, *, once: bool = False) -> None:
        """Work until `stop` is called; with *once* until there is nothing to claim and nothing at work any more.

        A cancellation hands every run back at once. The worker is registered as a runtime meanwhile. One that was
        stopped does not begin anew: make another.

        Raises:
            RunControlError: The ledger refuses; one that cannot be reached is waited for.
        """
        names = {graph.name: graph.fingerprint for graph in self.graphs.values()}
        capabilities = {"kind": "graph_worker", "graphs": names, "concurrency": self.concurrency}
        about = {"host": socket.gethostname(), "pid": os.getpid()}
        failure: Exception | None = None
        async with RuntimeRegistry(self.store).attending(self.worker_id, capabilities, metadata=about):
            async with anyio.create_task_group() as self._tasks:
                self._tasks.start_soon(self._hand_back_when_cancelled)
                try:
                    await self._free_what_the_dead_hold()
                    await self._claim_until_stopped(once=once)
                except Exception as error:  # noqa: BLE001 - raised below, outside the group that would wrap it
                    failure = error
                    self.stop()
                while self._busy:
                    await self._change()
                self._tasks.cancel_scope.cancel()
            self._tasks = None
        if failure is not None:
            raise failure

    def stop(self, *, now: bool = False) -> None:
        """Claim nothing more. Runs at work start no further step, and go back to the queue when their steps have ended.

        Steps that are at work after the grace, or at once with *now*, are cancelled; they start again elsewhere.
        """
        first, self._stopping = not self._stopping, True
        if self._looking is not None:
            self._looking.cancel()
        self._tell()
        for stretch in list(self._stretches.values()):
            if now:
                stretch.leave()
            elif first and self._tasks is not None:
                self._tasks.start_soon(stretch.hand_back, self._grace_seconds)

    async def _hand_back_when_cancelled(self) -> None:
        try:
            await anyio.sleep_forever()
        finally:
            self.stop(now=True)

    # ------------------------------------------------------------ claiming

    async def _claim_until_stopped(self, *, once: bool) -> None:
        assert self._tasks is not None
        while not self._stopping:
            if self._busy >= self.concurrency:
                await self._change()
                continue
            claim = await self._claim()
            if claim is not None:
                await self._start(claim, self._tasks)
            elif self._stopping or (once and not self._busy):
                return
            elif once:
                await self._change()
            else:
                await self._look_again()

    async def _free_what_the_dead_hold(self) -> None:
        """End the leases of processes of this machine that are no more: a worker started anew goes on at once."""
        filters, cursor = RunFilter(status=(_S.CLAIMED, _S.DISPATCHING, _S.RUNNING)), None
        try:
            while True:
                page = await self.store.list_runs(filters, cursor=cursor, limit=100)
                now = datetime.now(UTC)
                for run in page.items:
                    if run.claimed_by and run.lease_until is not None and run.lease_until > now and is_free(run):
                        await self.store.break_claim(run.run_id, run.claimed_by, now=now)
                if not page.has_more:
                    return
                cursor = page.next_cursor
        except RunControlError as error:
            if not error.retryable:
                raise
            log.warning("worker %r cannot look for claims of the dead: %s", self.worker_id, error)

    async def _claim(self) -> Claim | None:
        """Claim a run if there is one; a ledger that cannot be reached is waited for."""
        while not self._stopping:
            try:
                # A claim that was made and not received would lie until its lease ends.
                with anyio.CancelScope(shield=True):
                    return await self._queue.claim_run(self.worker_id, self._lease_seconds, fingerprints=self.graphs)
            except RunControlError as error:
                if not error.retryable:
                    raise
                log.warning("worker %r cannot claim, and tries again: %s", self.worker_id, error)
            await self._rest()
        return None

    async def _rest(self) -> None:
        """Wait a while, or until the worker is to stop."""
        with anyio.CancelScope() as self._looking:
            await anyio.sleep(self._poll_seconds)

    async def _look_again(self) -> None:
        """Wait until there may be work, or the worker is to stop."""
        try:
            with anyio.CancelScope() as self._looking:
                await self.store.wait_for_work(self._poll_seconds)
        except RunControlError as error:
            if not error.retryable:
                raise
            await self._rest()

    async def _start(self, claim: Claim, tasks: TaskGroup) -> None:
        graph = self.graphs.get(claim.run.graph_fingerprint or "")
        if graph is None:  # a run of something else than a graph
            log.warning("run %r is no run of a graph, and is left in the queue", claim.run.run_id)
            await self._queue.release(claim.run.run_id, claim.token)
            await self._rest()
            return
        self._busy += 1
        tasks.start_soon(self._work_shielded, graph, claim)

    # ------------------------------------------------------------ working

    async def _work_shielded(self, graph: CompiledGraph, claim: Claim) -> None:
        """Work on a run. What cancels the worker does not cancel the run: it is handed back."""
        report: WorkReport | None = None
        try:
            with anyio.CancelScope(shield=True):
                self._report(self._about(graph, claim, "claimed"))
                report = await self._work(graph, claim)
        finally:
            self._busy -= 1
            self._stretches.pop(claim.run.run_id, None)
            if report is not None:
                self._report(report)
            self._tell()

    async def _work(self, graph: CompiledGraph, claim: Claim) -> WorkReport:
        run_id = claim.run.run_id
        try:
            stretch = await self._begin(graph, claim)
            value = None if stretch.scheduler.restored else stored_input(graph, claim.run)
        except GraphrtError as error:
            return await self._cannot_begin(graph, claim, error)
        self._stretches[run_id] = stretch
        if self._stopping:
            await self._queue.release(run_id, claim.token)
            return self._about(graph, claim, "handed_back")
        try:
            await stretch.work(value)
        except Exception as error:
            known = isinstance(error, RunControlError)
            log.warning("run %r is left: %s", run_id, error, exc_info=None if known else error)
            with suppress(RunControlError):
                await self._queue.release(run_id, claim.token, failed=f"{type(error).__name__}: {error}")
            return self._about(graph, claim, "lost", reason=str(error))
        outcome = stretch.scheduler.core.outcome
        if stretch.handed_back or outcome is None:
            with suppress(RunControlError):  # what could not be stored ends with its lease
                await self._queue.release(run_id, claim.token)
            return self._about(graph, claim, "handed_back")
        reason = None if outcome.error is None else f"{type(outcome.error).__name__}: {outcome.error}"
        return self._about(graph, claim, "ended", STATUSES[outcome.status], reason)

    async def _begin(self, graph: CompiledGraph, claim: Claim) -> QueuedStretch:
        """Make ready to go on where the run's stored events end, or before the failure of one that is tried again."""
        run_id = claim.run.run_id
        events = await load_events(self.store, run_id)
        highest = events[-1].sequence if events else 0
        past = Past(graph, run_id, effective(events), limits=graph.run_limits(None), highest=highest)
        options = {**self._options, "deadline_at": claim.run.deadline_at}
        return QueuedStretch(graph, self._ledger, claim, options, past if past.begun else None)

    async def _cannot_begin(self, graph: CompiledGraph, claim: Claim, error: GraphrtError) -> WorkReport:
        """Let a run fail that this graph cannot go on with; one whose events cannot be read now is tried again."""
        run_id, reason = claim.run.run_id, f"{type(error).__name__}: {error}"
        try:
            if isinstance(error, RunControlError) and error.retryable:
                await self._queue.release(run_id, claim.token, failed=reason)
                return self._about(graph, claim, "handed_back", reason=reason)
            change = RunChange(status=_S.FAILED, status_reason=reason)
            await self.store.change_run(run_id, change, now=datetime.now(UTC), token=claim.token)
        except RunControlError as refused:
            return self._about(graph, claim, "lost", reason=str(refused))
        return self._about(graph, claim, "ended", _S.FAILED, reason)

    # ------------------------------------------------------------ telling

    def _about(
        self,
        graph: CompiledGraph,
        claim: Claim,
        what: Literal["claimed", "ended", "handed_back", "lost"],
        status: AgentRunStatus | None = None,
        reason: str | None = None,
    ) -> WorkReport:
        return WorkReport(claim.run.run_id, graph.name, what, claim.attempt, status, reason)

    def _report(self, report: WorkReport) -> None:
        if self._on_report is None:
            return
        try:
            self._on_report(report)
        except Exception:  # a listener's mistake is its own: the work goes on
            log.exception("a report of run %r could not be given", report.run_id)

    def _tell(self) -> None:
        self._changed.set()

    async def _change(self) -> None:
        """Wait until a run has ended, or the worker is to stop."""
        self._changed = anyio.Event()
        await self._changed.wait()


__all__ = ["GRACE_SECONDS", "WorkReport", "Worker"]
