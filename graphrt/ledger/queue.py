"""`ExecutionQueue`: which worker runs what, and what becomes of runs whose worker is gone.

The queue has no rows of its own: it is the runs that are `queued`, and every move is one transaction on the run's
own row. It knows neither events nor who asked; what decides on the order beyond priority and age lies outside.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

import anyio

from graphrt.clock import SystemClock
from graphrt.errors import ConfigError, RunControlError
from graphrt.ledger import rules
from graphrt.ledger.records import RunChange, RunFilter
from graphrt.ledger.status import REOPENED, AgentRunStatus

if TYPE_CHECKING:
    from collections.abc import Collection
    from datetime import datetime

    from graphrt.clock import Clock
    from graphrt.ledger.records import AgentRun, Claim
    from graphrt.ledger.store import RunLedgerStore

log = logging.getLogger("graphrt.queue")

LEASE_SECONDS: Final = 15.0
"""How long a claim lasts that is not renewed."""
POLL_SECONDS: Final = 1.0
"""How often a worker that finds nothing looks again; a store that knows of new work wakes it sooner."""

TIDY_SECONDS: Final = 1.0
"""How often a worker that is busy looks for runs whose worker is gone, or whose time has come."""

_S = AgentRunStatus
_WAITS_FOR_GRAPH: Final = "waits for a worker that has its graph"


class ExecutionQueue:
    """Hands queued runs to workers, each run to one at a time. Workers of many processes share it by its store.

    Args:
        store: The ledger.
        clock: Tells the time; all workers of a ledger must agree on it to within a fraction of a lease.
        max_attempts: After how many failed attempts a run fails for good; None for no end.
        dispatch_seconds: How long a worker may hold a run without beginning it; None for as long as its lease.
    """

    def __init__(
        self,
        store: RunLedgerStore,
        *,
        clock: Clock | None = None,
        max_attempts: int | None = 5,
        dispatch_seconds: float | None = 60.0,
    ) -> None:
        if max_attempts is not None and max_attempts < 1:
            raise ConfigError(f"max_attempts is {max_attempts!r}", hint="give a whole number of at least 1, or None")
        if dispatch_seconds is not None and not dispatch_seconds > 0:
            raise ConfigError(f"dispatch_seconds is {dispatch_seconds!r}", hint="give seconds above 0, or None")
        self._store = store
        self._clock: Clock = SystemClock() if clock is None else clock
        self._tidied: float | None = None
        self._max_attempts = max_attempts
        self._dispatch_seconds = dispatch_seconds
        self._noted: str | None = None
        """Where to go on telling runs that nobody has their graph."""

    async def enqueue(
        self, run_id: str, priority: int = 0, not_before: datetime | None = None, *, resume: bool = False
    ) -> AgentRun:
        """Put a run into the queue, or give one that is in it a new priority.

        Args:
            run_id: A run that nobody has begun, or that waits.
            priority: Higher is claimed sooner; of equals, the oldest run.
            not_before: The time, aware, before which nobody claims the run; None for at once, or, of a run that is in
                the queue, for the time that it has.
            resume: Whether a run that failed, was cancelled or was out of time may be opened again.

        Raises:
            RunControlError: `not_found`; `conflict`: a worker holds the run, or it is over.
        """
        expects = {_S.CREATED, _S.QUEUED, _S.WAITING} | (REOPENED.keys() if resume else set())
        change = RunChange(status=_S.QUEUED, priority=priority, wake_at=not_before, resume=resume, expects=expects)
        return await self._store.change_run(run_id, change, now=self._clock.now())

    async def claim_run(
        self, worker_id: str, lease_seconds: float = LEASE_SECONDS, *, fingerprints: Collection[str] | None = None
    ) -> Claim | None:
        """Claim the run of the highest priority, the oldest first; None when there is none for this worker.

        Runs whose worker is gone, or that waited for a time which has come, are put into the queue before, at most
        once a second and whenever there is nothing else. A run that was to be cancelled, or is out of time, ends here
        instead of being handed out; one that waits ends so as well.

        Args:
            worker_id: Who claims.
            lease_seconds: How long the claim lasts unless it is renewed.
            fingerprints: The graphs that the worker has. A run of another graph stays in the queue, and its
                `status_reason` says so. None when it can run everything.
        """
        tidy = self._tidied is None or self._clock.monotonic() - self._tidied >= TIDY_SECONDS
        if tidy:
            await self._tidy(worker_id, fingerprints)
        while True:
            now = self._clock.now()
            claim = await self._store.claim_run(worker_id, lease_seconds, now=now, fingerprints=fingerprints)
            if claim is None:
                if tidy:
                    return None
                await self._tidy(worker_id, fingerprints)
                tidy = True
                continue
            end = rules.end_of_unheld(claim.run, now)
            if end is None:
                return claim
            await self._end(claim, end)

    async def _tidy(self, worker_id: str, fingerprints: Collection[str] | None) -> None:
        self._tidied = self._clock.monotonic()
        await self.recover_expired()
        await self.wake_due()
        if fingerprints is not None:
            await self._note_unknown(worker_id, fingerprints)

    async def claim_next(
        self,
        worker_id: str,
        lease_seconds: float = LEASE_SECONDS,
        *,
        fingerprints: Collection[str] | None = None,
        poll_seconds: float = POLL_SECONDS,
    ) -> Claim:
        """Wait until there is a run for this worker, and claim it; see `claim_run`.

        A ledger that cannot be reached for a while is waited for, too; each failure is logged.
        """
        while True:
            try:
                claim = await self.claim_run(worker_id, lease_seconds, fingerprints=fingerprints)
                if claim is not None:
                    return claim
                await self._store.wait_for_work(poll_seconds)
            except RunControlError as error:
                if not error.retryable:
                    raise
                log.warning("worker %r cannot claim, and tries again: %s", worker_id, error)
                await anyio.sleep(poll_seconds)

    async def dispatch(self, run_id: str, token: str) -> AgentRun:
        """Note that the worker hands a claimed run to what runs it.

        Raises:
            RunControlError: `not_found`; `conflict`: the claim is not the caller's, or the run has begun.
        """
        return await self._held_change(run_id, token, RunChange(status=_S.DISPATCHING))

    async def begin(self, run_id: str, token: str) -> AgentRun:
        """Note that a claimed run is at work.

        Raises:
            RunControlError: `not_found`; `conflict`: the claim is not the caller's, or the run is over.
        """
        return await self._held_change(run_id, token, RunChange(status=_S.RUNNING))

    async def renew(self, run_id: str, token: str, lease_seconds: float = LEASE_SECONDS) -> bool:
        """Prolong a claim; False when it is not the caller's any more: then nothing changes."""
        return await self._store.renew_claim(run_id, token, lease_seconds, now=self._clock.now())

    async def release(self, run_id: str, token: str, *, failed: str | None = None) -> bool:
        """Give a run back to the queue; False when it is not the caller's any more: then nothing changes.

        Args:
            run_id: The run.
            token: Proof of the claim.
            failed: Why the attempt failed. It is kept with the run, and counts towards `max_attempts`; without it
                the run is handed back as if nobody had claimed it, as when a worker is stopped.
        """
        now = self._clock.now()
        if failed is None:
            return await self._store.release_claim(run_id, token, now=now, status=_S.QUEUED)
        run = await self._store.get_run(run_id)
        if run is None or run.lease_until is None or run.lease_until <= now:
            return False
        change = rules.after_failure(run, failed, now, self._max_attempts)
        try:
            await self._held_change(run_id, token, change)
        except RunControlError as error:
            if error.code in ("conflict", "not_found"):
                return False
            raise
        return True

    async def recover_expired(self) -> list[AgentRun]:
        """Put back the runs whose worker is gone, or has not begun in time; give those that this call has changed.

        A run that has used up its attempts fails instead, and `status_reason` says why. Any number of workers may
        call it at once: each run is changed by one of them.
        """
        changed = await self._store.expire_claims(
            now=self._clock.now(), max_attempts=self._max_attempts, dispatch_seconds=self._dispatch_seconds
        )
        for run in changed:
            log.warning("run %r lost its worker, and is %s", run.run_id, run.status.value)
        return changed

    async def wake_due(self) -> list[AgentRun]:
        """Put the runs into the queue that wait for a time which has come; give those that this call has changed.

        A run that waits and nobody holds ends instead when its cancel was requested, or its deadline has passed.
        """
        return await self._store.wake_due(now=self._clock.now())

    async def wait_for_work(self, seconds: float) -> None:
        """Wait until a run may have become claimable, at most so long."""
        await self._store.wait_for_work(seconds)

    async def _held_change(self, run_id: str, token: str, change: RunChange) -> AgentRun:
        return await self._store.change_run(run_id, change, now=self._clock.now(), token=token)

    async def _end(self, claim: Claim, change: RunChange) -> None:
        try:
            await self._held_change(claim.run.run_id, claim.token, change)
        except RunControlError as error:
            if error.code not in ("conflict", "not_found"):
                raise
            log.warning("run %r was taken away before it was ended: %s", claim.run.run_id, error)

    async def _note_unknown(self, worker_id: str, fingerprints: Collection[str]) -> None:
        """Say of queued runs that this worker lacks their graph: a page of them each time, so that it costs little."""
        page = await self._store.list_runs(RunFilter(status=_S.QUEUED), cursor=self._noted, limit=100)
        self._noted = page.next_cursor
        for run in page.items:
            graph = run.graph_fingerprint
            told = run.status_reason is not None and run.status_reason.startswith(_WAITS_FOR_GRAPH)
            if graph is None or graph in fingerprints or told:
                continue
            reason = f"{_WAITS_FOR_GRAPH} {graph}; {worker_id!r} has not"
            change = RunChange(status_reason=reason, expects={_S.QUEUED})
            try:
                await self._store.change_run(run.run_id, change, now=self._clock.now())
            except RunControlError as error:
                if error.code not in ("conflict", "not_found"):  # claimed or ended meanwhile
                    raise
