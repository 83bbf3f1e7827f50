"""What stores decide, as pure functions: all stores answer alike since they ask here."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from graphrt.errors import RunControlError
from graphrt.ledger.paging import known_status
from graphrt.ledger.records import AgentRunEvent, Appended, JsonText, RunChange
from graphrt.ledger.rows import EventRow, StoredRun, WrittenData, micros, read_event, same_event
from graphrt.ledger.status import TERMINAL, AgentRunStatus, check_move

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from datetime import datetime

    from graphrt.ledger.records import AgentRun, NewEvent, RuntimeRecord, StateEntry

_S = AgentRunStatus

CLAIMABLE_BY_NAME: Final = frozenset({_S.CREATED, _S.QUEUED, _S.CLAIMED, _S.DISPATCHING, _S.RUNNING, _S.WAITING})
WAKES: Final = frozenset({_S.QUEUED, _S.WAITING})
"""Statuses in which a run may have a time of its own."""
HANDED_OVER: Final = frozenset({_S.CLAIMED, _S.DISPATCHING})
"""Taken by a worker that has not begun."""
OF_ONE_ATTEMPT: Final = frozenset({"error", "finish_reason", "result", "trace_id"})
"""Metadata that an attempt leaves, and that does not go back into the queue with its run."""

ATTEMPTS: Final = "graphrt.attempts"
"""Metadata that lists the attempts that failed, with what they left."""
ATTEMPTS_KEPT: Final = 100

_NO_CLAIM: Final[Mapping[str, Any]] = {"claimed_by": None, "lease_until": None}


# --- runs


def new_run(run: AgentRun) -> StoredRun:
    """Give a run as it is stored first: nobody holds it."""
    status = known_status(run.status)
    started, finished = run.started_at, run.finished_at
    if status is _S.RUNNING and started is None:
        started = run.created_at
    if status in TERMINAL and finished is None:
        finished = run.created_at
    made = replace(run, status=status, started_at=started, finished_at=finished, **_NO_CLAIM)
    return StoredRun(replace(made, wake_at=_look_at(made)) if status is _S.WAITING else made)


def change_run(stored: StoredRun, change: RunChange, now: datetime) -> StoredRun:
    """Give the run as it is after *change*, the same object when nothing of it changes.

    Raises:
        RunControlError: `conflict`: the move is not legal; `invalid_argument`: there is no such status.
    """
    run = stored.run
    if change.expects is not None and run.status not in change.expects:
        raise RunControlError(
            "conflict",
            f"run {run.run_id!r} is {run.status.value} meanwhile",
            details={"run_id": run.run_id, "status": run.status.value},
        )
    status = run.status if change.status is None else known_status(change.status)
    if run.is_terminal and change.status is not None and status is run.status:
        return stored  # it is over already, and stays as it ended
    new: dict[str, Any] = {}
    if status is not run.status:
        check_move(run.run_id, run.status, status, resume=change.resume)
        new.update(_moved(run, status, now))
    if change.clear_reason:
        new["status_reason"] = None
    for name in ("status_reason", "usage", "priority", "graph_fingerprint"):
        if getattr(change, name) is not None:
            new[name] = getattr(change, name)
    if change.cancel_requested_at is not None and run.cancel_requested_at is None and not run.is_terminal:
        new["cancel_requested_at"], new["cancel_reason"] = change.cancel_requested_at, change.cancel_reason
    if change.wake_at is not None and status in WAKES:
        new["wake_at"] = change.wake_at
    if status is _S.WAITING:
        before = new.get("wake_at", run.wake_at)
        if (first := _look_at(replace(run, **new))) != before:
            new["wake_at"] = first
    if change.add_attempt:
        new["attempt"] = run.attempt + 1
    if change.metadata:
        new["metadata"] = {**new.get("metadata", run.metadata), **change.metadata}
    ends = change.release or "claimed_by" in new
    if not new and not (ends and stored.token is not None):
        return stored
    if ends:
        return StoredRun(replace(run, **{**new, **_NO_CLAIM, "updated_at": now}))
    return replace(stored, run=replace(run, **new, updated_at=now))


def _look_at(run: AgentRun) -> datetime | None:
    """Give when the queue has to look at a run that waits: the first of what may take it out of that."""
    times = (run.wake_at, run.deadline_at, run.cancel_requested_at)
    return min((time for time in times if time is not None), default=None)


def _moved(run: AgentRun, status: AgentRunStatus, now: datetime) -> dict[str, Any]:
    """Give what a legal move changes besides."""
    new: dict[str, Any] = {"status": status, "wake_at": None}
    if run.is_terminal:  # reopened
        new.update(finished_at=None, status_reason=None, cancel_requested_at=None, cancel_reason=None)
        if run.status is _S.TIMEOUT and run.deadline_at is not None and run.deadline_at <= now:
            new["deadline_at"] = None  # or it would end at once, and could never be resumed
    if status is _S.QUEUED and run.status is not _S.CREATED:
        kept = {key: value for key, value in run.metadata.items() if key not in OF_ONE_ATTEMPT}
        new.update(usage=None, status_reason=None, metadata=kept)
    if status is _S.RUNNING and run.started_at is None:
        new["started_at"] = now
    if status in TERMINAL:
        new["finished_at"] = now
    if status in TERMINAL or status in {_S.WAITING, _S.QUEUED}:
        new.update(_NO_CLAIM)
    return new


def only_cancels(change: RunChange) -> bool:
    """Whether a change is nothing but the request to cancel, which needs no claim."""
    return change.cancel_requested_at is not None and change == RunChange(
        cancel_requested_at=change.cancel_requested_at, cancel_reason=change.cancel_reason
    )


def check_holder(run_id: str, held: str | None, lease_until: int | None, token: str | None, now: int) -> None:
    """Refuse who does not hold the claim; a claim whose lease has ended keeps out only other tokens.

    Raises:
        RunControlError: `conflict`: another holds the run, or the caller does not any more.
    """
    if held is not None and token == held:
        return
    if token is not None:
        raise RunControlError(
            "conflict",
            f"the claim on run {run_id!r} is not the caller's any more",
            details={"run_id": run_id},
            hint="claim the run again",
        )
    if held is not None and lease_until is not None and lease_until > now:
        raise RunControlError(
            "conflict", f"run {run_id!r} is claimed, and the caller has not its token", details={"run_id": run_id}
        )


def prunable(status: Collection[AgentRunStatus] | None) -> frozenset[AgentRunStatus]:
    """Give the statuses of runs that may be removed."""
    return TERMINAL if status is None else TERMINAL & frozenset(map(known_status, status))


# --- events


class Head(NamedTuple):
    """What an append has to know of its run."""

    status: str
    token: str | None
    lease_until: int | None
    highest: int
    """Its highest sequence, 0 when it has no event."""


class Placed(NamedTuple):
    """Where an event stands, and what is to be said of it."""

    row: EventRow
    created: bool
    differs: bool
    gap: bool


def stored_before(rows: Sequence[EventRow], highest: int) -> list[int]:
    """Give the sequences that may be there already, which `place` wants to see."""
    return [row.sequence for row in rows if 0 < row.sequence <= highest]


def place(run_id: str, rows: Sequence[EventRow], highest: int, stored: Mapping[int, EventRow]) -> list[Placed]:
    """Give each event its place after *highest*, or find it among what is *stored*.

    Raises:
        RunControlError: `invalid_argument`: a sequence goes back to where there is none.
    """
    placed: list[Placed] = []
    fresh: dict[int, EventRow] = {}
    for row in rows:
        sequence = row.sequence
        if sequence == 0:
            fresh[highest + 1] = numbered = row._replace(sequence=highest + 1)
            placed.append(Placed(numbered, created=True, differs=False, gap=False))
            highest += 1
        elif sequence > highest:
            fresh[sequence] = row
            placed.append(Placed(row, created=True, differs=False, gap=sequence > highest + 1))
            highest = sequence
        else:
            before = fresh.get(sequence) or stored.get(sequence)
            if before is None:
                raise RunControlError(
                    "invalid_argument",
                    f"sequence {sequence} of run {run_id!r} goes back: {highest} is stored",
                    details={"run_id": run_id, "sequence": sequence, "highest": highest},
                    hint="number events upwards, or leave the number to the ledger",
                )
            placed.append(Placed(before, created=False, differs=not same_event(before, row), gap=False))
    return placed


def check_open(run_id: str, placed: Sequence[Placed], before: str, after: str, *, audit: bool) -> None:
    """Refuse new events of a run that is over, unless they are an audit or come with its reopening.

    Raises:
        RunControlError: `conflict`.
    """
    if audit or before not in TERMINAL or after not in TERMINAL:
        return
    if any(place.created for place in placed):
        raise RunControlError(
            "conflict", f"run {run_id!r} is {before}, and takes no more events", details={"run_id": run_id}
        )


class Decision(NamedTuple):
    """What an append comes to: nothing of it is written yet."""

    placed: list[Placed]
    rows: list[EventRow]
    """To be inserted."""
    run: StoredRun | None
    """To be written, None when the run stays as it is."""


def append(
    run_id: str,
    head: Head,
    rows: Sequence[EventRow],
    found: Mapping[int, EventRow],
    *,
    now: datetime,
    token: str | None,
    change: RunChange | None,
    audit: bool,
    load: Callable[[], StoredRun],
) -> Decision:
    """Decide on events and a change that belong together; a change of events that were all there is done already.

    Args:
        run_id: The run.
        head: What is stored of it.
        rows: The events.
        found: Those of `stored_before` that are stored.
        now: The time.
        token: Proof of the claim.
        change: What to change of the run.
        audit: Whether the events may be added to a run that is over.
        load: Reads the whole run; called when there is a change.

    Raises:
        RunControlError: `conflict` or `invalid_argument`, see `RunLedgerStore.append_events`.
    """
    placed = place(run_id, rows, head.highest, found)
    new = [one.row for one in placed if one.created]
    over = head.status in TERMINAL
    if over and rows and not new:
        return Decision(placed, new, None)
    if not over and (rows or change is None or not only_cancels(change)):
        check_holder(run_id, head.token, head.lease_until, token, micros(now))
    if change is None or (rows and not new):
        check_open(run_id, placed, head.status, head.status, audit=audit)
        return Decision(placed, new, None)
    before = load()
    after = change_run(before, change, now)
    check_open(run_id, placed, head.status, after.run.status, audit=audit)
    return Decision(placed, new, None if after is before else after)


def answers(run_id: str, events: Sequence[NewEvent], placed: Sequence[Placed], now: datetime) -> list[Appended]:
    """Say what became of each event."""
    return [
        Appended(
            AgentRunEvent(
                run_id,
                row.sequence,
                event.type,
                WrittenData(row.data) if isinstance(event.data, JsonText) else event.data,
                event.created_at or now,
                event.source,
                event.artifact_refs,
                event.metadata,
            )
            if created
            else read_event(run_id, row),
            created,
            differs,
            gap,
        )
        for event, (row, created, differs, gap) in zip(events, placed, strict=True)
    ]


# --- claims


def check_lease(seconds: float) -> timedelta:
    """Give the length of a lease.

    Raises:
        RunControlError: `invalid_argument`: it is no time above 0.
    """
    if not (math.isfinite(seconds) and seconds > 0):
        raise RunControlError("invalid_argument", f"a lease of {seconds!r} seconds is none")
    return timedelta(seconds=seconds)


def lives(stored: StoredRun, now: datetime) -> bool:
    """Whether a worker holds the run."""
    until = stored.run.lease_until
    return stored.token is not None and until is not None and until > now


def claimable(stored: StoredRun, now: datetime, *, by_name: bool, fingerprints: Collection[str] | None) -> bool:
    """Whether a worker may take the run; one that is named also before its time."""
    run = stored.run
    known = fingerprints is None or run.graph_fingerprint is None or run.graph_fingerprint in fingerprints
    if not known or lives(stored, now):
        return False
    if by_name:
        return run.status in CLAIMABLE_BY_NAME
    return run.status is _S.QUEUED and (run.wake_at is None or run.wake_at <= now)


def claim(stored: StoredRun, worker_id: str, token: str, lease: timedelta, now: datetime) -> StoredRun:
    """Give the run as the worker holds it; one that was queued or handed over is claimed, others stay as they are."""
    run = stored.run
    queued = run.status is _S.QUEUED or run.status in HANDED_OVER
    held = replace(
        run,
        status=_S.CLAIMED if queued else run.status,
        status_reason=None if queued else run.status_reason,
        attempt=run.attempt + 1,
        claimed_by=worker_id,
        lease_until=now + lease,
        wake_at=None if queued else run.wake_at,
        updated_at=now,
    )
    return StoredRun(held, token, now)


def release(stored: StoredRun, status: AgentRunStatus | None, now: datetime) -> StoredRun:
    """Give the run without its claim; one that was not begun goes back into the queue.

    Raises:
        RunControlError: `conflict`: the move to *status* is not legal.
    """
    if status is None and stored.run.status in HANDED_OVER:
        status = _S.QUEUED
    return change_run(stored, RunChange(status=status, release=True), now)


def expire(
    stored: StoredRun, now: datetime, max_attempts: int | None, dispatch_seconds: float | None
) -> StoredRun | None:
    """Give the run as it is once its worker is given up; None while there is no reason to."""
    run, token = stored.run, stored.token
    if token is None:
        return None
    if not lives(stored, now):
        reason = f"the lease of {run.claimed_by!r} has ended"
    elif dispatch_seconds is not None and not_begun(stored, now, dispatch_seconds):
        reason = f"{run.claimed_by!r} has not begun within {dispatch_seconds:g} s"
    else:
        return None
    if run.status is _S.WAITING:  # it waits for no worker
        return change_run(stored, RunChange(release=True), now)
    return change_run(stored, after_failure(run, reason, now, max_attempts), now)


def wake(stored: StoredRun, now: datetime) -> StoredRun | None:
    """Give a run that waits as it goes back into the queue, or ends; None while its time has not come."""
    run = stored.run
    if run.status is not _S.WAITING or lives(stored, now):
        return None
    end = end_of_unheld(run, now)
    if end is not None:
        return change_run(stored, end, now)
    if run.wake_at is None or run.wake_at > now:
        return None
    queued = change_run(stored, RunChange(status=_S.QUEUED), now)
    return replace(queued, run=replace(queued.run, usage=run.usage))  # it goes on, and does not begin anew


def end_of_unheld(run: AgentRun, now: datetime) -> RunChange | None:
    """Give how a run ends that nobody works on: its cancel was requested, or its deadline has passed; else None."""
    waits = run.status is _S.WAITING
    if run.cancel_requested_at is not None:
        reason = run.cancel_reason or f"cancelled {'while it waited' if waits else 'before it was begun'}"
        return RunChange(status=_S.CANCELLED, status_reason=reason)
    if run.deadline_at is not None and run.deadline_at <= now:
        reason = f"its deadline passed {'while it waited' if waits else 'before it was begun'}"
        return RunChange(status=_S.TIMEOUT, status_reason=reason)
    return None


def after_failure(run: AgentRun, reason: str, now: datetime, max_attempts: int | None) -> RunChange:
    """Give what becomes of a run whose attempt has failed: it goes back into the queue, or fails for good.

    What the attempt has left goes into the run's list of attempts. Only attempts that failed count: not those that
    ended with a question, or were handed back.
    """
    before = run.metadata.get(ATTEMPTS)
    attempts = list(before) if isinstance(before, list) else []
    left = {key: run.metadata[key] for key in OF_ONE_ATTEMPT if key in run.metadata}
    entry = {"attempt": run.attempt, "worker": run.claimed_by, "reason": reason, "at": now.isoformat()}
    attempts.append(left | entry)
    metadata = {ATTEMPTS: attempts[-max(ATTEMPTS_KEPT, max_attempts or 0) :]}
    if max_attempts is not None and len(attempts) >= max_attempts:
        reason = f"given up after {len(attempts)} attempts: {reason}"
        return RunChange(status=_S.FAILED, status_reason=reason, metadata=metadata)
    return RunChange(status=_S.QUEUED, metadata=metadata)


def not_begun(stored: StoredRun, now: datetime, seconds: float) -> bool:
    """Whether a run was claimed *seconds* ago, and has not begun."""
    since = stored.claimed_at
    late = since is not None and micros(since) + round(seconds * 1e6) <= micros(now)
    return late and stored.run.status in HANDED_OVER


# --- what runs leave, and workers


def outdated(entry: StateEntry, before: StateEntry | None) -> bool | None:
    """Whether a later event of the run has written the key; None when this very event has."""
    if before is None or before.run_id != entry.run_id or before.sequence < entry.sequence:
        return False
    return True if before.sequence > entry.sequence else None


def merge_runtime(record: RuntimeRecord, before: RuntimeRecord | None) -> RuntimeRecord:
    """Give a runtime with what was known of it."""
    if before is None:
        return record
    return replace(record, registered_at=before.registered_at, metadata={**before.metadata, **record.metadata})
