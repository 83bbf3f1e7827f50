"""What the writing thread does in a transaction: read, decide by the rules, and only then write."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any, Final

import sqlalchemy as sa

from graphrt.ledger import leavings, paging, rows, rules
from graphrt.ledger.records import Claim
from graphrt.ledger.sql import tables as t
from graphrt.ledger.sql.statements import INSERTED
from graphrt.ledger.status import AgentRunStatus

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from datetime import datetime, timedelta

    from graphrt.ledger.records import AgentRun, RunChange, RuntimeRecord, StateEntry
    from graphrt.ledger.sql.backend import Tx


_WAITING: Final[sa.ColumnElement[str]] = sa.literal_column("'waiting'")
"""As an index has it in its condition, which a parameter would not meet."""


def nothing(tx: Tx) -> None:
    """Do nothing: opening is all that is wanted."""


# --- runs and events


def create_run(tx: Tx, row: Mapping[str, Any]) -> tuple[AgentRun, bool]:
    """Store a run, unless there is one of its id."""
    made = tx.one(tx.sql.insert_run, [row[name] for name in INSERTED])
    if made is None:
        return rows.read_run(tx.one(tx.sql.run, (row["run_id"],))).run, False
    _note(tx, row["status"])
    return rows.read_run([made[0] if name == "id" else row[name] for name in rows.RUN_COLUMNS]).run, True


def append(
    tx: Tx,
    run_id: str,
    given: Sequence[rows.EventRow],
    now: datetime,
    token: str | None,
    change: RunChange | None,
    audit: bool,
) -> rules.Decision:
    """Append events, and change the run with them."""
    key, head = _head(tx, run_id)
    found: dict[int, rows.EventRow] = {}
    before = rules.stored_before(given, head.highest)
    if before:
        wanted = sa.select(*t.EVENT).where(t.event.c.run == key, t.event.c.sequence.in_(before))
        found = {row[0]: rows.EventRow(*row) for row in tx.built(wanted)}

    def load() -> rows.StoredRun:
        return rows.read_run(tx.one(tx.sql.run, (run_id,)))

    decision = rules.append(run_id, head, given, found, now=now, token=token, change=change, audit=audit, load=load)
    if decision.run is not None:
        _write(tx, decision.run)
    tx.many(tx.sql.insert_event, [(key, *row) for row in decision.rows])
    return decision


def change_run(tx: Tx, run_id: str, now: datetime, token: str | None, change: RunChange) -> AgentRun:
    """Change a run; give it as it is then."""
    append(tx, run_id, (), now, token, change, audit=False)
    return rows.read_run(tx.one(tx.sql.run, (run_id,))).run


def prune_runs(tx: Tx, before: int, wanted: Collection[AgentRunStatus], most: int) -> int:
    """Remove up to *most* runs, with all that belongs to them; give their number."""
    run = t.run
    found = (
        sa.select(run.c.id)
        .where(run.c.finished_at.is_not(None), run.c.finished_at < before)
        .where(run.c.status.in_([status.value for status in wanted]))
        .order_by(run.c.id)
        .limit(most)
        .with_for_update(skip_locked=True)
    )
    keys = [key for (key,) in tx.built(found)]
    if keys:
        for table in (t.event, t.artifact, t.transcript):
            tx.delete(sa.delete(table).where(table.c.run.in_(keys)))
        tx.delete(sa.delete(run).where(run.c.id.in_(keys)))
    return len(keys)


def _head(tx: Tx, run_id: str) -> tuple[int, rules.Head]:
    """Read what an append has to know, and keep other writers off the run."""
    if tx.backend.order_matters:
        row = tx.one(tx.sql.locked_head, (run_id,))
        # A statement of its own: one that has waited for the lock still sees what was there before.
        highest = None if row is None else tx.one(tx.sql.highest, (row[0],))[0]
    else:
        row = tx.one(tx.sql.head, (run_id,))
        highest = None if row is None else row[4]
    if row is None:
        raise paging.unknown_run(run_id)
    return row[0], rules.Head(row[1], row[2], row[3], highest or 0)


def _write(tx: Tx, stored: rows.StoredRun) -> None:
    tx.run(tx.sql.update_run, (*rows.changing_row(stored), stored.run.id))
    _note(tx, stored.run.status)


def _note(tx: Tx, status: str) -> None:
    if status == AgentRunStatus.QUEUED:
        tx.queued = True


def _key(tx: Tx, run_id: str) -> int:
    row = tx.one(tx.sql.key, (run_id,))
    if row is None:
        raise paging.unknown_run(run_id)
    key: int = row[0]
    return key


# --- claims


def claim_run(
    tx: Tx,
    worker_id: str,
    lease: timedelta,
    now: datetime,
    run_id: str | None,
    fingerprints: Collection[str] | None,
) -> Claim | None:
    """Claim the run named, or the first of the queue."""
    if run_id is not None:
        row = tx.one(tx.sql.locked_run, (run_id,))
    else:
        of_its_time = sa.or_(t.run.c.wake_at.is_(None), t.run.c.wake_at <= rows.micros(now))
        first = tx.sql.queued.where(of_its_time)
        if fingerprints is not None:
            of = t.run.c.graph_fingerprint
            first = first.where(sa.or_(of.is_(None), of.in_(list(fingerprints))))
        row = next(iter(tx.built(first)), None)
    if row is None:
        return None
    stored = rows.read_run(row)
    if not rules.claimable(stored, now, by_name=run_id is not None, fingerprints=fingerprints):
        return None
    token = secrets.token_hex(16)
    held = rules.claim(stored, worker_id, token, lease, now)
    _write(tx, held)
    return Claim(held.run, token, held.run.attempt, now + lease)


def renew_claim(tx: Tx, run_id: str, token: str, until: int, now: int) -> bool:
    """Prolong a lease that lives."""
    return tx.run(tx.sql.renew, (until, run_id, token, now)) > 0


def break_claim(tx: Tx, run_id: str, worker_id: str, now: int) -> bool:
    """End the lease of a worker that is no more."""
    return tx.run(tx.sql.break_claim, (now, run_id, worker_id)) > 0


def release_claim(tx: Tx, run_id: str, token: str, now: datetime, status: AgentRunStatus | None) -> bool:
    """Give back a claim that lives."""
    row = tx.one(tx.sql.locked_run, (run_id,))
    stored = None if row is None else rows.read_run(row)
    if stored is None or stored.token != token or not rules.lives(stored, now):
        return False
    _write(tx, rules.release(stored, status, now))
    return True


def expire_claims(tx: Tx, now: datetime, max_attempts: int | None, dispatch_seconds: float | None) -> list[AgentRun]:
    """Take runs from workers that are gone, or that do not begin."""
    run = t.run
    gone = run.c.lease_until <= rows.micros(now)
    if dispatch_seconds is not None:
        begun = rows.micros(now) - round(dispatch_seconds * 1e6)
        handed_over = run.c.status.in_(sorted(rules.HANDED_OVER))
        gone = sa.or_(gone, sa.and_(handed_over, run.c.claimed_at <= begun))
    wanted = sa.select(*t.RUN).where(run.c.claim_token.is_not(None), gone).order_by(run.c.id)
    changed: list[AgentRun] = []
    for row in tx.built(wanted.with_for_update(skip_locked=True)):
        after = rules.expire(rows.read_run(row), now, max_attempts, dispatch_seconds)
        if after is not None:
            _write(tx, after)
            changed.append(after.run)
    return changed


def wake_due(tx: Tx, now: datetime) -> list[AgentRun]:
    """Put runs into the queue whose time has come, or end those that are to be cancelled or out of time."""
    run = t.run
    due = sa.select(*t.RUN).where(run.c.status == _WAITING, run.c.wake_at <= rows.micros(now)).order_by(run.c.id)
    changed: list[AgentRun] = []
    for row in tx.built(due.with_for_update(skip_locked=True)):
        after = rules.wake(rows.read_run(row), now)
        if after is not None:
            _write(tx, after)
            changed.append(after.run)
    return changed


# --- what runs leave


def put_artifact(tx: Tx, run_id: str, row: tuple[Any, ...], content: bytes) -> tuple[str, tuple[Any, ...]]:
    """Store content, unless it is there; give the columns that are stored."""
    found = tx.one(tx.sql.artifact, (row[0],))
    if found is None:
        tx.run(tx.sql.insert_artifact, (_key(tx, run_id), *row, content))
        found = tx.one(tx.sql.artifact, (row[0],))
    return found[0], found[1:]


def add_transcript(tx: Tx, run_id: str, row: tuple[Any, ...]) -> bool:
    """Store a message, unless the one of its event is there."""
    return tx.run(tx.sql.insert_transcript, (_key(tx, run_id), *row)) > 0


def set_state(tx: Tx, entry: StateEntry, row: tuple[Any, ...]) -> bool:
    """Store a value, unless a later event of its run has written the key."""
    tx.lock(f"state {entry.scope} {entry.scope_id} {entry.key}")
    found = tx.one(tx.sql.state, row[:3])
    outdated = rules.outdated(entry, None if found is None else leavings.read_state(found))
    if outdated is False:
        tx.run(tx.sql.put_state, row)
    return not outdated


# --- workers


def take_slot(tx: Tx, name: str, slots: int, owner: str, until: int, now: int) -> bool:
    """Take or prolong a slot; those whose lease has ended are free."""
    tx.lock(f"slot {name}")
    tx.run(tx.sql.old_slots, (name, now))
    owners = {holder for (holder,) in tx.all(tx.sql.owners, (name,))}
    if owner not in owners and len(owners) >= slots:
        return False
    tx.run(tx.sql.put_slot, (name, owner, until))
    return True


def free_slot(tx: Tx, name: str, owner: str) -> None:
    """Give a slot back."""
    tx.run(tx.sql.free_slot, (name, owner))


def put_runtime(tx: Tx, record: RuntimeRecord) -> RuntimeRecord:
    """Store a runtime, with what was known of it."""
    tx.lock(f"runtime {record.runtime_id}")
    found = tx.one(tx.sql.runtime, (record.runtime_id,))
    merged = rules.merge_runtime(record, None if found is None else leavings.read_runtime(found))
    row = leavings.runtime_row(merged)
    tx.run(tx.sql.put_runtime, row)
    return leavings.read_runtime(row)


def drop_runtime(tx: Tx, runtime_id: str) -> bool:
    """Forget a runtime."""
    return tx.run(tx.sql.drop_runtime, (runtime_id,)) > 0
