"""One stretch of work on a stored run: its claim is kept, its events are stored, and its end with the last of them."""

from __future__ import annotations

import os
import secrets
import socket
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import anyio

from graphrt.errors import ConfigError, RunCancelledError, RunControlError
from graphrt.graph.durable.past import Past
from graphrt.graph.durable.recorder import Recorder
from graphrt.graph.scheduler.result import annotate
from graphrt.graph.scheduler.timers import STAY_SECONDS
from graphrt.graph.states import RunStatus
from graphrt.ledger.leases import LEASE_SECONDS, RELEASE_SECONDS, RENEW_SECONDS, WATCH_SECONDS, check_times
from graphrt.ledger.records import RunChange
from graphrt.ledger.status import AgentRunStatus

if TYPE_CHECKING:
    from collections.abc import Mapping

    from graphrt.graph.durable.recorder import Durability
    from graphrt.graph.graph import CompiledGraph
    from graphrt.graph.scheduler.run import GraphScheduler
    from graphrt.ledger.records import AgentRun, Claim
    from graphrt.ledger.store import RunLedgerStore

_S = AgentRunStatus
STATUSES: Final[Mapping[RunStatus, AgentRunStatus]] = {
    RunStatus.SUCCEEDED: _S.COMPLETED,
    RunStatus.STOPPED: _S.COMPLETED,
    RunStatus.TIMED_OUT: _S.TIMEOUT,
    RunStatus.CANCELLED: _S.CANCELLED,
    RunStatus.FAILED: _S.FAILED,
    RunStatus.WAITING: _S.WAITING,
}
"""How the statuses of a run are called in the ledger."""


@dataclass(frozen=True)
class Ledger:
    """Where and how a run is stored. What takes a store for `ledger=` takes this as well."""

    store: RunLedgerStore
    durability: Durability = "async"
    lease_seconds: float = LEASE_SECONDS
    """How long a claim lasts that is not renewed: after that another process may take the run over."""
    renew_seconds: float = RENEW_SECONDS
    """Time from one renewal to the next."""
    stay_seconds: float = STAY_SECONDS
    """When all that is left of a run waits for a time, the call ends unless that is so near."""
    row: Mapping[str, Any] = field(default_factory=dict)
    """Fields of `AgentRun` that the row of a new run gets besides; `metadata` is added to what is there."""

    def __post_init__(self) -> None:
        """Refuse what is no ledger, and times with which a claim cannot be kept.

        Raises:
            ConfigError: An argument is not of the kind it has to be.
        """
        if not callable(getattr(self.store, "append_events", None)):
            raise ConfigError(
                f"ledger is {self.store!r}, which is no ledger",
                hint="give a store, such as SqliteRunLedgerStore('runs.db'), or a Ledger",
            )
        if self.durability not in ("sync", "async", "exit"):
            raise ConfigError(f"durability is {self.durability!r}", hint="give 'sync', 'async' or 'exit'")
        check_times(self.lease_seconds, self.renew_seconds)
        if not self.stay_seconds >= 0:
            raise ConfigError(f"stay_seconds is {self.stay_seconds!r}", hint="give seconds, 0 or more")

    @classmethod
    def of(cls, given: RunLedgerStore | Ledger, durability: Durability) -> Ledger:
        """Give the ledger that a call was given as a store or as a ledger, with the call's own durability.

        `"async"`, which is what a call has when nothing is said, leaves that of a ledger as it is.
        """
        if not isinstance(given, cls):
            return cls(given, durability)  # type: ignore[arg-type]  # a store, as the annotation says
        return given if durability == "async" else replace(given, durability=durability)


# --- claims


def worker_name() -> str:
    """Name this process, and one caller in it, for claims: `host:pid:random`."""
    return f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"


def is_free(stored: AgentRun) -> bool:
    """Say whether nobody holds a run: its lease has ended, or its holder was a process of this machine that is no more.

    A holder of another machine, or one that this process may not see, is taken to be alive.
    """
    if stored.claimed_by is None or stored.lease_until is None:
        return True
    return stored.lease_until <= datetime.now(UTC) or _is_gone(stored.claimed_by)


async def claim_run(ledger: RunLedgerStore | Ledger, stored: AgentRun) -> Claim | None:
    """Claim a run that is free; None when it is not, or somebody else was faster."""
    if not is_free(stored):
        return None
    ledger = Ledger.of(ledger, "async")
    store, run_id = ledger.store, stored.run_id
    with anyio.CancelScope(shield=True):  # a claim that nobody gets to know of would keep others out for a while
        if stored.claimed_by is not None and _is_gone(stored.claimed_by):
            await store.break_claim(run_id, stored.claimed_by, now=datetime.now(UTC))
        claim = await store.claim_run(worker_name(), ledger.lease_seconds, now=datetime.now(UTC), run_id=run_id)
    return claim  # noqa: RET504 - for a type checker the scope may swallow what is raised in it


def _is_gone(worker: str) -> bool:
    host, _, pid = worker.rpartition(":")[0].rpartition(":")
    if host != socket.gethostname() or not pid.isdecimal():
        return False
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):
        return False
    return False


async def give_back(store: RunLedgerStore, claim: Claim, change: RunChange | None = None) -> None:
    """Give a claim back without having worked on the run: it is as it was, or as *change* says."""
    run_id, now = claim.run.run_id, datetime.now(UTC)
    try:
        with anyio.fail_after(RELEASE_SECONDS, shield=True):
            if change is None:
                await store.release_claim(run_id, claim.token, now=now)
            else:
                await store.change_run(run_id, replace(change, release=True), now=now, token=claim.token)
    except (RunControlError, TimeoutError):  # it ends with its lease; what brought us here says more
        import logging

        logging.getLogger("graphrt.run").warning("the claim on run %r was not given back, and ends soon", run_id)


# --- working


class Stretch:
    """What one process does of a run, from its claim until the run ends or waits."""

    def __init__(
        self, graph: CompiledGraph, ledger: Ledger, claim: Claim, options: Mapping[str, Any], past: Past | None = None
    ) -> None:
        """Take the claimed run, and what is stored of it: None for one that has not begun.

        The deadline in its row holds for whoever works on it; one of the caller's own counts where it is nearer.
        """
        self.claim = claim
        self.ledger = ledger
        self.store = ledger.store
        self._until = claim.lease_until
        self._ending = False
        self._keeping = anyio.CancelScope(shield=True)
        run_id = claim.run.run_id
        self.recorder = Recorder(self.store, run_id, graph.event_codec(), ledger.durability, token=claim.token)
        ends = [each for each in (options.get("deadline_at"), claim.run.deadline_at) if each is not None]
        self.scheduler: GraphScheduler = graph.make_scheduler(
            run_id=run_id,
            durable=self.recorder,
            core=None if past is None else past.core,
            stay_seconds=ledger.stay_seconds,
            **{**options, "deadline_at": min(ends, default=None)},
        )
        self.recorder.on_error = self.scheduler.cancel
        self.scheduler.add_usage(claim.run.usage)
        if claim.run.cancel_requested_at is not None:
            self.scheduler.cancel(RunCancelledError(reason=claim.run.cancel_reason))
        if past is None:
            return
        if past.over:  # its end was not stored, or the run was not marked as ended
            for event, step in past.made:
                self.recorder.record(event, step)
            return
        past.core.held = past.made
        self.scheduler.resumed = {} if past.after is None else {"after": past.after}
        self.scheduler.ended = past.ended
        self.scheduler.answers = dict(past.answers)

    async def work(self, value: Any = None) -> None:
        """Run to the end, keeping the claim and storing events meanwhile; the end is stored with the last of them.

        Raises:
            RunControlError: The claim was lost, or the ledger could not be reached for too long.
            BaseException: What the scheduler leaves with: a cancellation, or an interrupt.
        """
        failure: BaseException | None = None
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._renew)
            tasks.start_soon(self._store)
            try:
                await self.recorder.begin()
                await self.scheduler.run(value)
            except anyio.get_cancelled_exc_class():
                raise
            except BaseException as error:  # noqa: BLE001 - raised below, outside the group that would wrap it
                failure = error
            finally:
                try:
                    with anyio.CancelScope(shield=True):
                        await self._store_end()
                finally:
                    self._keeping.cancel()
                    tasks.cancel_scope.cancel()
        if failure is not None:
            raise failure
        if self.recorder.error is not None:
            raise self.recorder.error

    # ------------------------------------------------------------ beside the work

    async def _renew(self) -> None:
        """Renew the claim, and see what is asked of the run; without a claim nothing more is stored or done."""
        pause = min(WATCH_SECONDS, self.ledger.renew_seconds)
        renew_at = anyio.current_time() + self.ledger.renew_seconds
        cancelled = False
        with self._keeping:  # shielded: also while what was cancelled cleans up
            while True:
                await anyio.sleep(pause)
                try:
                    with anyio.fail_after(max(pause, self._seconds_left())):
                        if anyio.current_time() >= renew_at:
                            if not await self._prolong():
                                return self._claim_lost(None)
                            renew_at = anyio.current_time() + self.ledger.renew_seconds
                        stored = await self.store.get_run(self.claim.run.run_id)
                except Exception as error:  # noqa: BLE001 - whatever a store raises
                    if not isinstance(error, TimeoutError) and not getattr(error, "retryable", False):
                        return self.recorder.give_up(error)
                    if self._seconds_left() <= 0:
                        return self._claim_lost(error)
                    continue
                if stored is None or (stored.claimed_by, stored.attempt) != self._holder():
                    return self._claim_lost(None)
                if stored.cancel_requested_at is not None and not cancelled:
                    cancelled = True
                    self.scheduler.cancel(RunCancelledError(reason=stored.cancel_reason))

    async def _prolong(self) -> bool:
        now = datetime.now(UTC)
        seconds = self.ledger.lease_seconds
        if not await self.store.renew_claim(self.claim.run.run_id, self.claim.token, seconds, now=now):
            return False
        self._until = now + timedelta(seconds=seconds)
        return True

    def _seconds_left(self) -> float:
        return (self._until - datetime.now(UTC)).total_seconds()

    def _holder(self) -> tuple[str | None, int]:
        return self.claim.run.claimed_by, self.claim.attempt

    def _claim_lost(self, cause: Exception | None) -> None:
        if self._ending:
            return
        error = RunControlError(
            "conflict",
            f"the claim on run {self.claim.run.run_id!r} is lost: its lease has ended, and somebody else may hold it",
            hint="wait for the run with run(run_id=...), or resume it when nobody works on it",
        )
        error.__cause__ = cause
        self.recorder.give_up(error)

    async def _store(self) -> None:
        while True:
            await self.recorder.store_group()

    async def _store_end(self) -> None:
        outcome = self.scheduler.core.outcome
        try:
            if outcome is not None:
                annotate(self.scheduler)
                await self._end(outcome.status, outcome.error)
        finally:
            self._ending = True
            if outcome is None or self.recorder.error is not None:
                await give_back(self.store, self.claim)

    async def _end(self, ended: RunStatus, error: BaseException | None) -> None:
        reason = None
        if ended is RunStatus.STOPPED:
            reason = f"stopped:{getattr(error, 'limit', 'limit')}"
        elif error is not None:
            reason = f"{type(error).__name__}: {error}"
        self._ending = True
        wake_at = min(self.scheduler.core.timers.values(), default=None) if ended is RunStatus.WAITING else None
        usage = self.scheduler.usage
        await self.recorder.end(
            RunChange(status=STATUSES[ended], status_reason=reason, usage=usage, release=True, wake_at=wake_at)
        )


__all__ = [
    "LEASE_SECONDS",
    "RENEW_SECONDS",
    "STATUSES",
    "Ledger",
    "Past",
    "Stretch",
    "claim_run",
    "give_back",
    "is_free",
    "worker_name",
]
