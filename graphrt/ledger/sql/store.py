"""A ledger in an SQL database: one thread writes, readers have connections of their own."""

from __future__ import annotations

import time
import weakref
from typing import TYPE_CHECKING, Final, TypeVar, TypeVarTuple

import anyio
import anyio.lowlevel
from anyio.lowlevel import RunVar

from graphrt.errors import GraphrtError, RunControlError
from graphrt.ledger import leavings, paging, rows, rules
from graphrt.ledger.bell import WorkBell
from graphrt.ledger.sql import operations, reading
from graphrt.ledger.sql.backend import Trouble
from graphrt.ledger.sql.postgres import PostgresBackend, WorkListener
from graphrt.ledger.sql.sqlite import SqliteBackend
from graphrt.ledger.sql.writer import Writer
from graphrt.ledger.store import RunLedgerStore
from graphrt.threads import run_in_thread

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Collection, Mapping, Sequence
    from datetime import datetime

    from graphrt.ledger.records import (
        AgentRun,
        Appended,
        Artifact,
        Claim,
        NewEvent,
        RunChange,
        RunEventPage,
        RunFilter,
        RunPage,
        RuntimeRecord,
        StateEntry,
        TranscriptEntry,
    )
    from graphrt.ledger.sql.backend import Backend, Tx
    from graphrt.ledger.sql.sqlite import Synchronous
    from graphrt.ledger.status import AgentRunStatus

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

READERS: Final = 4
"""Reads that one event loop has under way at once."""
QUEUE_PLACES: Final = 1024
"""Calls that may wait to be stored; more wait for a place first."""
PATIENCE_SECONDS: Final = 30.0
"""Seconds for which a lost connection, or another writer, is borne before a caller is told."""
_PRUNED_AT_ONCE: Final = 200
_READ_AGAIN: Final = 3


class SqlRunLedgerStore(RunLedgerStore):
    """Keeps runs and their events in a database; several processes, threads and event loops may use it at once.

    The database is opened, and its tables are made or upgraded, at the first use. What a call has returned from is
    seen by every reader. Close the store, or use it as an async context manager: closing stores first what was
    accepted. A task that is cancelled leaves at once, and what it was about to write may still be written, as a whole.
    """

    def __init__(
        self, backend: Backend, *, queue_places: int = QUEUE_PLACES, patience_seconds: float = PATIENCE_SECONDS
    ) -> None:
        """Take the database; see `SqliteRunLedgerStore` and `PostgresRunLedgerStore`, which make one."""
        self._backend = backend
        self._bell = WorkBell()
        self._writer = Writer(backend, self._bell, places=queue_places, patience=patience_seconds)
        self._limit: RunVar[anyio.CapacityLimiter] = RunVar("limit")
        self._listener: WorkListener | None = None
        weakref.finalize(self, self._writer.end).atexit = False

    async def _write(self, key: str, fn: Callable[[Tx, *Ts], T], *args: *Ts) -> T:
        return await self._writer.call(key, fn, *args)

    async def _read(self, fn: Callable[[Tx, *Ts], T], *args: *Ts) -> T:
        """Call *fn* with a connection that only reads, in a thread."""
        self._writer.check_usable()
        if not self._writer.prepared:
            await self._writer.call("", operations.nothing)
        limit = self._limit.get(None)
        if limit is None:
            limit = anyio.CapacityLimiter(READERS)
            self._limit.set(limit)
        async with limit:
            try:
                return await run_in_thread(self._in_thread, fn, *args)
            except RunControlError:
                raise
            except GraphrtError as error:  # no thread is to be had
                raise RunControlError(
                    "runtime_error", f"{self._backend.name}: {error.message}", retryable=True, hint=error.hint
                ) from error

    def _in_thread(self, fn: Callable[[Tx, *Ts], T], *args: *Ts) -> T:
        attempt = 0
        while True:
            attempt += 1
            tx: Tx | None = None
            try:
                tx = self._backend.connect()
                return fn(tx, *args)
            except RunControlError:
                raise
            except Exception as error:
                trouble = self._backend.judge(error)
                if trouble is None:
                    raise
                if tx is not None:
                    tx.drop()
                    tx = None
                if trouble is Trouble.OTHER or attempt == _READ_AGAIN:
                    raise self._backend.error(error) from error
                time.sleep(0.1 * attempt)
            finally:
                if tx is not None:
                    tx.connection.close()

    # ------------------------------------------------------------ runs

    async def create_run(self, run: AgentRun) -> tuple[AgentRun, bool]:
        """Store a run; give the stored one, and whether it is new: a run of the same id is left as it is."""
        row = rows.run_row(rules.new_run(run))
        return await self._write(run.run_id, operations.create_run, row)

    async def get_run(self, run_id: str) -> AgentRun | None:
        """Look a run up."""
        rows.check_text("run_id", run_id)
        return await self._read(reading.get_run, run_id)

    async def list_runs(self, filters: RunFilter, *, cursor: str | None = None, limit: int = 50) -> RunPage:
        """List runs, the newest first; see `RunLedgerStore`."""
        below = None if cursor is None else paging.read_cursor("runs", cursor)
        return await self._read(reading.list_runs, filters, below, paging.clamped(limit, paging.RUNS_LIMIT))

    async def change_run(self, run_id: str, change: RunChange, *, now: datetime, token: str | None = None) -> AgentRun:
        """Change a run; see `RunLedgerStore`."""
        return await self._write(run_id, operations.change_run, run_id, now, token, change)

    async def prune_runs(self, older_than: datetime, status: Collection[AgentRunStatus] | None = None) -> int:
        """Remove runs that finished before *older_than*, with all that belongs to them; give their number.

        A few at a time, so that others may write in between: one that is cancelled has removed some.
        """
        before, wanted, total = rows.micros(older_than), rules.prunable(status), 0
        while True:
            count = await self._write("", operations.prune_runs, before, wanted, _PRUNED_AT_ONCE)
            total += count
            if count < _PRUNED_AT_ONCE:
                return total

    # ------------------------------------------------------------ events

    async def append_events(
        self,
        run_id: str,
        events: Sequence[NewEvent],
        *,
        now: datetime,
        token: str | None = None,
        change: RunChange | None = None,
        audit: bool = False,
    ) -> list[Appended]:
        """Append events, and change the run with them, in one transaction; see `RunLedgerStore`."""
        stamp = rows.micros(now)
        given = [rows.event_row(event, stamp) for event in events]
        decision = await self._write(run_id, operations.append, run_id, given, now, token, change, audit)
        return rules.answers(run_id, events, decision.placed, now)

    async def page_events(self, run_id: str, *, cursor: str | None = None, limit: int = 100) -> RunEventPage:
        """Read events, ascending; see `RunLedgerStore`."""
        after = 0 if cursor is None else paging.read_cursor("events", cursor)
        return await self._read(reading.page_events, run_id, after, paging.clamped(limit, paging.EVENTS_LIMIT))

    # ------------------------------------------------------------ claims

    async def claim_run(
        self,
        worker_id: str,
        lease_seconds: float,
        *,
        now: datetime,
        run_id: str | None = None,
        fingerprints: Collection[str] | None = None,
    ) -> Claim | None:
        """Claim a run; see `RunLedgerStore`."""
        rows.check_text("worker", worker_id)
        lease, rung = rules.check_lease(lease_seconds), self._bell.rung
        claim = await self._write(run_id or "", operations.claim_run, worker_id, lease, now, run_id, fingerprints)
        if claim is None and run_id is None:
            self._bell.looked(rung)
        return claim

    async def renew_claim(self, run_id: str, token: str, lease_seconds: float, *, now: datetime) -> bool:
        """Prolong a lease; False when it is not the caller's any more, whatever the run has become."""
        until = rows.micros(now + rules.check_lease(lease_seconds))
        return await self._write(run_id, operations.renew_claim, run_id, token, until, rows.micros(now))

    async def release_claim(
        self, run_id: str, token: str, *, now: datetime, status: AgentRunStatus | None = None
    ) -> bool:
        """Give a claim back, and move the run to *status*; see `RunLedgerStore`."""
        return await self._write(run_id, operations.release_claim, run_id, token, now, status)

    async def break_claim(self, run_id: str, worker_id: str, *, now: datetime) -> bool:
        """End the lease of a worker that is known to be no more; False when it does not hold the run any more."""
        return await self._write(run_id, operations.break_claim, run_id, worker_id, rows.micros(now))

    async def expire_claims(
        self, *, now: datetime, max_attempts: int | None = None, dispatch_seconds: float | None = None
    ) -> list[AgentRun]:
        """Put runs back into the queue whose worker is gone; see `RunLedgerStore`."""
        return await self._write("", operations.expire_claims, now, max_attempts, dispatch_seconds)

    async def wake_due(self, *, now: datetime) -> list[AgentRun]:
        """Put runs into the queue that wait for a time which has come; give them."""
        return await self._write("", operations.wake_due, now)

    # ------------------------------------------------------------ what runs leave

    async def put_artifact(self, artifact: Artifact, content: bytes) -> Artifact:
        """Store content; the same id again is the same artifact."""
        row = leavings.artifact_row(artifact)
        run_id, stored = await self._write(
            artifact.run_id, operations.put_artifact, artifact.run_id, row, bytes(content)
        )
        return leavings.read_artifact(run_id, stored)

    async def get_artifact(self, artifact_id: str) -> tuple[Artifact, bytes] | None:
        """Read content back."""
        rows.check_text("artifact id", artifact_id)
        return await self._read(reading.get_artifact, artifact_id)

    async def list_artifacts(self, run_id: str) -> list[Artifact]:
        """List a run's artifacts, in the order in which they were stored."""
        return await self._read(reading.list_artifacts, run_id)

    async def add_transcript(self, entry: TranscriptEntry) -> bool:
        """Store a message; False when the one of this run and sequence is there already."""
        row = leavings.transcript_row(entry)
        return await self._write(entry.run_id, operations.add_transcript, entry.run_id, row)

    async def list_transcript(
        self,
        *,
        conversation_id: str | None = None,
        thread_id: str | None = None,
        run_id: str | None = None,
        limit: int | None = None,
    ) -> list[TranscriptEntry]:
        """List messages, the oldest first; with *limit* the last ones."""
        return await self._read(reading.list_transcript, conversation_id, thread_id, run_id, limit)

    async def set_state(self, entry: StateEntry) -> bool:
        """Store a value; False when a later event of the same run has written the key already."""
        row = leavings.state_row(entry)
        return await self._write(f"{entry.scope} {entry.scope_id} {entry.key}", operations.set_state, entry, row)

    async def get_state(self, scope: str, scope_id: str) -> Mapping[str, StateEntry]:
        """Read the values of a scope."""
        return await self._read(reading.get_state, scope, scope_id)

    # ------------------------------------------------------------ workers

    async def take_slot(self, name: str, slots: int, owner: str, lease_seconds: float, *, now: datetime) -> bool:
        """Take or prolong one of the *slots* of a limit that all workers share; False when all are taken."""
        rows.check_text("slot", name)
        rows.check_text("owner", owner)
        until = rows.micros(now + rules.check_lease(lease_seconds))
        return await self._write(name, operations.take_slot, name, slots, owner, until, rows.micros(now))

    async def free_slot(self, name: str, owner: str) -> None:
        """Give a slot back."""
        await self._write(name, operations.free_slot, name, owner)

    async def put_runtime(self, record: RuntimeRecord) -> RuntimeRecord:
        """Store a runtime, or what is new about it: capabilities replaced, metadata merged."""
        leavings.runtime_row(record)  # may refuse it
        return await self._write(record.runtime_id, operations.put_runtime, record)

    async def drop_runtime(self, runtime_id: str) -> bool:
        """Forget a runtime."""
        return await self._write(runtime_id, operations.drop_runtime, runtime_id)

    async def list_runtimes(self) -> list[RuntimeRecord]:
        """List runtimes, by id."""
        return await self._read(reading.list_runtimes)

    # ------------------------------------------------------------ life

    async def wait_for_work(self, seconds: float) -> None:
        """Wait until a run is put into the queue, at most so long.

        A store on PostgreSQL is told what other processes put there; one on SQLite only what this one does.
        """
        self._writer.check_usable()
        if self._listener is None and isinstance(self._backend, PostgresBackend):
            self._listener = WorkListener(self._backend, self._bell)
        await self._bell.wait(seconds)

    async def aclose(self) -> None:
        """Store what was accepted, and close the database; harmless the second time."""
        listener, self._listener = self._listener, None
        with anyio.CancelScope(shield=True):
            if listener is not None:
                await run_in_thread(listener.close)
            await self._writer.aclose()


class SqliteRunLedgerStore(SqlRunLedgerStore):
    """A ledger in an SQLite file, in WAL mode; several processes of one machine may share it."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        synchronous: Synchronous = "NORMAL",
        queue_places: int = QUEUE_PLACES,
        patience_seconds: float = PATIENCE_SECONDS,
    ) -> None:
        """Take the path of the file; it and its folder are made if they are not there.

        Args:
            path: The file. It cannot lie on a network drive.
            synchronous: What a loss of power may take. With ``"NORMAL"`` the last transactions, and the file stays
                whole; with ``"FULL"`` nothing that was answered, and each transaction waits for the disk. A process
                that dies takes nothing in either.
            queue_places: Calls that may wait to be stored.
            patience_seconds: Seconds to wait for other writers before a caller is told.

        Raises:
            RunControlError: `invalid_argument`: no path, or an unknown setting.
        """
        super().__init__(SqliteBackend(path, synchronous), queue_places=queue_places, patience_seconds=patience_seconds)


class PostgresRunLedgerStore(SqlRunLedgerStore):
    """A ledger in a PostgreSQL database, which workers on several machines share."""

    def __init__(
        self, dsn: str, *, queue_places: int = QUEUE_PLACES, patience_seconds: float = PATIENCE_SECONDS
    ) -> None:
        """Take the connection string, as a URL or as ``key=value`` pairs.

        Args:
            dsn: Where the database is. Its tables are made in the first schema of the search path.
            queue_places: Calls that may wait to be stored.
            patience_seconds: Seconds to wait for a lost connection before a caller is told.

        Raises:
            RunControlError: `invalid_argument`: it is no connection string, or the package `psycopg` is missing.
        """
        super().__init__(PostgresBackend(dsn), queue_places=queue_places, patience_seconds=patience_seconds)
