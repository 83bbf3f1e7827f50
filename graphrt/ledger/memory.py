"""A ledger in memory, for tests and for runs that need not outlive the process."""

from __future__ import annotations

import secrets
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import anyio.lowlevel

from graphrt.errors import RunControlError
from graphrt.ledger import leavings, paging, rows, rules
from graphrt.ledger.bell import WorkBell
from graphrt.ledger.records import Claim, RunEventPage, RunPage
from graphrt.ledger.status import AgentRunStatus
from graphrt.ledger.store import RunLedgerStore

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence
    from datetime import datetime

    from graphrt.ledger.records import (
        AgentRun,
        Appended,
        Artifact,
        NewEvent,
        RunChange,
        RunFilter,
        RuntimeRecord,
        StateEntry,
        TranscriptEntry,
    )


@dataclass(slots=True)
class _Kept:
    """What is kept of one run, as a database keeps it: nobody outside can change it."""

    row: dict[str, Any]
    events: dict[int, rows.EventRow] = field(default_factory=dict)
    highest: int = 0
    artifacts: list[str] = field(default_factory=list)

    def read(self) -> rows.StoredRun:
        return rows.read_run([self.row[name] for name in rows.RUN_COLUMNS])

    def head(self) -> rules.Head:
        row = self.row
        return rules.Head(row["status"], row["claim_token"], row["lease_until"], self.highest)


class InMemoryRunLedgerStore(RunLedgerStore):
    """Keeps runs and their events in this process. Safe to share between tasks, event loops and threads."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._bell = WorkBell()
        self._closed = False
        self._last_id = 0
        self._runs: dict[str, _Kept] = {}  # in order of creation
        self._artifacts: dict[str, tuple[str, tuple[Any, ...], bytes]] = {}
        self._transcript: dict[tuple[str, int], tuple[Any, ...]] = {}
        self._state: dict[tuple[str, str], dict[str, tuple[Any, ...]]] = {}
        self._slots: dict[str, dict[str, int]] = {}
        self._runtimes: dict[str, tuple[Any, ...]] = {}

    async def _begin(self) -> None:
        """Let others have their turn, and be cancelled here if anywhere: what follows is done whole."""
        await anyio.lowlevel.checkpoint()
        if self._closed:
            raise RunControlError("runtime_error", "the ledger is closed", hint="make a new InMemoryRunLedgerStore")

    # ------------------------------------------------------------ runs

    async def create_run(self, run: AgentRun) -> tuple[AgentRun, bool]:
        """Store a run; give the stored one, and whether it is new: a run of the same id is left as it is."""
        await self._begin()
        row = rows.run_row(rules.new_run(run))
        with self._lock:
            kept = self._runs.get(run.run_id)
            if created := kept is None:
                self._last_id += 1
                kept = self._runs[run.run_id] = _Kept(row | {"id": self._last_id})
            result = kept.read().run
        self._ring_for([result] if created else [])
        return result, created

    async def get_run(self, run_id: str) -> AgentRun | None:
        """Look a run up."""
        await self._begin()
        with self._lock:
            kept = self._runs.get(run_id)
            return None if kept is None else kept.read().run

    async def list_runs(self, filters: RunFilter, *, cursor: str | None = None, limit: int = 50) -> RunPage:
        """List runs, the newest first; see `RunLedgerStore`."""
        await self._begin()
        limit = paging.clamped(limit, paging.RUNS_LIMIT)
        below = None if cursor is None else paging.read_cursor("runs", cursor)
        wanted = paging.statuses(filters)
        found: list[AgentRun] = []
        with self._lock:
            for kept in reversed(self._runs.values()):
                if below is not None and kept.row["id"] >= below:
                    continue
                run = kept.read().run
                if paging.matches(run, filters, wanted):
                    found.append(run)
                    if len(found) > limit:
                        break
        return paging.run_page(found, limit)

    async def change_run(self, run_id: str, change: RunChange, *, now: datetime, token: str | None = None) -> AgentRun:
        """Change a run; see `RunLedgerStore`."""
        await self._begin()
        with self._lock:
            self._append(run_id, [], now=now, token=token, change=change, audit=False)
            run = self._kept(run_id).read().run
        self._ring_for([run] if change.status is not None else [])
        return run

    async def prune_runs(self, older_than: datetime, status: Collection[AgentRunStatus] | None = None) -> int:
        """Remove runs that finished before *older_than*, with all that belongs to them; give their number."""
        await self._begin()
        wanted, before = rules.prunable(status), rows.micros(older_than)
        with self._lock:
            gone = {
                run_id
                for run_id, kept in self._runs.items()
                if kept.row["status"] in wanted and kept.row["finished_at"] < before
            }
            for run_id in gone:
                for artifact_id in self._runs.pop(run_id).artifacts:
                    del self._artifacts[artifact_id]
            self._transcript = {key: row for key, row in self._transcript.items() if key[0] not in gone}
        return len(gone)

    def _kept(self, run_id: str) -> _Kept:
        kept = self._runs.get(run_id)
        if kept is None:
            raise paging.unknown_run(run_id)
        return kept

    def _write(self, kept: _Kept, stored: rows.StoredRun) -> AgentRun:
        kept.row.update(zip(rows.CHANGING, rows.changing_row(stored), strict=True))
        return kept.read().run

    def _ring_for(self, runs: Iterable[AgentRun]) -> None:
        if any(run.status is AgentRunStatus.QUEUED for run in runs):
            self._bell.ring()

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
        await self._begin()
        stamp = rows.micros(now)
        given = [rows.event_row(event, stamp) for event in events]
        with self._lock:
            decision = self._append(run_id, given, now=now, token=token, change=change, audit=audit)
        if decision.run is not None:
            self._ring_for([decision.run.run])
        return rules.answers(run_id, events, decision.placed, now)

    def _append(
        self,
        run_id: str,
        given: list[rows.EventRow],
        *,
        now: datetime,
        token: str | None,
        change: RunChange | None,
        audit: bool,
    ) -> rules.Decision:
        kept = self._kept(run_id)
        found = {
            number: kept.events[number] for number in rules.stored_before(given, kept.highest) if number in kept.events
        }
        decision = rules.append(
            run_id, kept.head(), given, found, now=now, token=token, change=change, audit=audit, load=kept.read
        )
        if decision.run is not None:
            self._write(kept, decision.run)  # first, since it may refuse what cannot be stored
        for row in decision.rows:
            kept.events[row.sequence] = row
            kept.highest = row.sequence
        return decision

    async def page_events(self, run_id: str, *, cursor: str | None = None, limit: int = 100) -> RunEventPage:
        """Read events, ascending; see `RunLedgerStore`."""
        await self._begin()
        limit = paging.clamped(limit, paging.EVENTS_LIMIT)
        after = 0 if cursor is None else paging.read_cursor("events", cursor)
        with self._lock:
            events = self._kept(run_id).events
            if len(events) == self._kept(run_id).highest:  # no gap: a sequence is a place
                found = [events[number] for number in range(after + 1, min(after + limit + 1, len(events)) + 1)]
            else:
                found = [row for number, row in events.items() if number > after][: limit + 1]
        return paging.event_page(run_id, found, after, limit)

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
        await self._begin()
        rows.check_text("worker", worker_id)
        lease, rung = rules.check_lease(lease_seconds), self._bell.rung
        with self._lock:
            kept = self._find(now, run_id, fingerprints)
            if kept is not None:
                token = secrets.token_hex(16)
                held = self._write(kept, rules.claim(kept.read(), worker_id, token, lease, now))
                return Claim(held, token, held.attempt, now + lease)
        if run_id is None:
            self._bell.looked(rung)
        return None

    def _find(self, now: datetime, run_id: str | None, fingerprints: Collection[str] | None) -> _Kept | None:
        by_name = run_id is not None
        if run_id is not None:
            among = [kept for kept in [self._runs.get(run_id)] if kept is not None]
        else:
            among = [kept for kept in self._runs.values() if kept.row["status"] == AgentRunStatus.QUEUED]
            among.sort(key=lambda kept: (-kept.row["priority"], kept.row["id"]))
        claimable = (
            kept for kept in among if rules.claimable(kept.read(), now, by_name=by_name, fingerprints=fingerprints)
        )
        return next(claimable, None)

    async def renew_claim(self, run_id: str, token: str, lease_seconds: float, *, now: datetime) -> bool:
        """Prolong a lease; False when it is not the caller's any more, whatever the run has become."""
        await self._begin()
        until = rows.micros(now + rules.check_lease(lease_seconds))
        with self._lock:
            kept = self._held(run_id, token, now)
            if kept is not None:
                kept.row["lease_until"] = until
        return kept is not None

    async def release_claim(
        self, run_id: str, token: str, *, now: datetime, status: AgentRunStatus | None = None
    ) -> bool:
        """Give a claim back, and move the run to *status*; see `RunLedgerStore`."""
        await self._begin()
        with self._lock:
            kept = self._held(run_id, token, now)
            if kept is None:
                return False
            run = self._write(kept, rules.release(kept.read(), status, now))
        self._ring_for([run])
        return True

    def _held(self, run_id: str, token: str, now: datetime) -> _Kept | None:
        kept = self._runs.get(run_id)
        if kept is None or kept.row["claim_token"] != token or kept.row["lease_until"] <= rows.micros(now):
            return None
        return kept

    async def break_claim(self, run_id: str, worker_id: str, *, now: datetime) -> bool:
        """End the lease of a worker that is known to be no more; False when it does not hold the run any more."""
        await self._begin()
        until = rows.micros(now)
        with self._lock:
            kept = self._runs.get(run_id)
            held = kept is not None and kept.row["claim_token"] is not None and kept.row["claimed_by"] == worker_id
            if kept is not None and held:
                kept.row["lease_until"] = until
        return held

    async def expire_claims(
        self, *, now: datetime, max_attempts: int | None = None, dispatch_seconds: float | None = None
    ) -> list[AgentRun]:
        """Put runs back into the queue whose worker is gone; see `RunLedgerStore`."""
        await self._begin()
        changed: list[AgentRun] = []
        with self._lock:
            for kept in self._runs.values():
                if kept.row["claim_token"] is None:
                    continue
                after = rules.expire(kept.read(), now, max_attempts, dispatch_seconds)
                if after is not None:
                    changed.append(self._write(kept, after))
        self._ring_for(changed)
        return changed

    async def wake_due(self, *, now: datetime) -> list[AgentRun]:
        """Put runs into the queue whose time has come, or end them; see `RunLedgerStore`."""
        await self._begin()
        changed: list[AgentRun] = []
        moment = rows.micros(now)
        with self._lock:
            for kept in self._runs.values():
                due = kept.row["wake_at"]
                if due is None or due > moment or (after := rules.wake(kept.read(), now)) is None:
                    continue
                changed.append(self._write(kept, after))
        self._ring_for(changed)
        return changed

    # ------------------------------------------------------------ what runs leave

    async def put_artifact(self, artifact: Artifact, content: bytes) -> Artifact:
        """Store content; the same id again is the same artifact."""
        await self._begin()
        row = leavings.artifact_row(artifact)
        with self._lock:
            before = self._artifacts.get(artifact.id)
            if before is None:
                self._kept(artifact.run_id).artifacts.append(artifact.id)
                before = self._artifacts[artifact.id] = (artifact.run_id, row, bytes(content))
        return leavings.read_artifact(*before[:2])

    async def get_artifact(self, artifact_id: str) -> tuple[Artifact, bytes] | None:
        """Read content back."""
        await self._begin()
        with self._lock:
            found = self._artifacts.get(artifact_id)
        return None if found is None else (leavings.read_artifact(*found[:2]), found[2])

    async def list_artifacts(self, run_id: str) -> list[Artifact]:
        """List a run's artifacts, in the order in which they were stored."""
        await self._begin()
        with self._lock:
            kept = self._runs.get(run_id)
            ids = [] if kept is None else kept.artifacts
            return [leavings.read_artifact(*self._artifacts[artifact_id][:2]) for artifact_id in ids]

    async def add_transcript(self, entry: TranscriptEntry) -> bool:
        """Store a message; False when the one of this run and sequence is there already."""
        await self._begin()
        row = leavings.transcript_row(entry)
        with self._lock:
            self._kept(entry.run_id)
            if (entry.run_id, entry.sequence) in self._transcript:
                return False
            self._transcript[entry.run_id, entry.sequence] = row
            return True

    async def list_transcript(
        self,
        *,
        conversation_id: str | None = None,
        thread_id: str | None = None,
        run_id: str | None = None,
        limit: int | None = None,
    ) -> list[TranscriptEntry]:
        """List messages, the oldest first; with *limit* the last ones."""
        await self._begin()
        with self._lock:
            found = [
                leavings.read_transcript(owner, row)
                for (owner, _), row in self._transcript.items()
                if run_id in (None, owner) and conversation_id in (None, row[1]) and thread_id in (None, row[2])
            ]
        return found if limit is None else found[max(0, len(found) - limit) :] if limit > 0 else []

    async def set_state(self, entry: StateEntry) -> bool:
        """Store a value; False when a later event of the same run has written the key already."""
        await self._begin()
        row = leavings.state_row(entry)
        with self._lock:
            values = self._state.setdefault((entry.scope, entry.scope_id), {})
            before = values.get(entry.key)
            outdated = rules.outdated(entry, None if before is None else leavings.read_state(before))
            if outdated is False:
                values[entry.key] = row
        return not outdated

    async def get_state(self, scope: str, scope_id: str) -> Mapping[str, StateEntry]:
        """Read the values of a scope."""
        await self._begin()
        with self._lock:
            values = dict(self._state.get((scope, scope_id), {}))
        return {key: leavings.read_state(values[key]) for key in sorted(values)}

    # ------------------------------------------------------------ workers

    async def take_slot(self, name: str, slots: int, owner: str, lease_seconds: float, *, now: datetime) -> bool:
        """Take or prolong one of the *slots* of a limit that all workers share; False when all are taken."""
        await self._begin()
        until, moment = rows.micros(now + rules.check_lease(lease_seconds)), rows.micros(now)
        with self._lock:
            held = {key: end for key, end in self._slots.get(name, {}).items() if end > moment}
            self._slots[name] = held
            if owner not in held and len(held) >= slots:
                return False
            held[owner] = until
            return True

    async def free_slot(self, name: str, owner: str) -> None:
        """Give a slot back."""
        await self._begin()
        with self._lock:
            self._slots.get(name, {}).pop(owner, None)

    async def put_runtime(self, record: RuntimeRecord) -> RuntimeRecord:
        """Store a runtime, or what is new about it: capabilities replaced, metadata merged."""
        await self._begin()
        leavings.runtime_row(record)  # may refuse it
        with self._lock:
            before = self._runtimes.get(record.runtime_id)
            merged = rules.merge_runtime(record, None if before is None else leavings.read_runtime(before))
            row = self._runtimes[record.runtime_id] = leavings.runtime_row(merged)
        return leavings.read_runtime(row)

    async def drop_runtime(self, runtime_id: str) -> bool:
        """Forget a runtime."""
        await self._begin()
        with self._lock:
            return self._runtimes.pop(runtime_id, None) is not None

    async def list_runtimes(self) -> list[RuntimeRecord]:
        """List runtimes, by id."""
        await self._begin()
        with self._lock:
            return [leavings.read_runtime(self._runtimes[runtime_id]) for runtime_id in sorted(self._runtimes)]

    # ------------------------------------------------------------ life

    async def wait_for_work(self, seconds: float) -> None:
        """Wait until a run is put into the queue, at most so long."""
        await self._bell.wait(seconds)

    async def aclose(self) -> None:
        """Refuse further calls; what it holds goes with it."""
        self._closed = True
