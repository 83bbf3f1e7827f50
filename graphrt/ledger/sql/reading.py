"""What readers do with a connection, in a thread: each looks, and changes nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import sqlalchemy as sa

from graphrt.ledger import leavings, paging, rows
from graphrt.ledger.sql import tables as t

if TYPE_CHECKING:
    from graphrt.ledger.records import (
        AgentRun,
        Artifact,
        RunEventPage,
        RunFilter,
        RunPage,
        RuntimeRecord,
        StateEntry,
        TranscriptEntry,
    )
    from graphrt.ledger.sql.backend import Tx


def get_run(tx: Tx, run_id: str) -> AgentRun | None:
    """Look a run up."""
    row = tx.one(tx.sql.run, (run_id,))
    return None if row is None else rows.read_run(row).run


def list_runs(tx: Tx, filters: RunFilter, below: int | None, limit: int) -> RunPage:
    """List runs, the newest first."""
    run = t.run
    wanted = paging.statuses(filters)
    query = sa.select(*t.RUN).order_by(run.c.id.desc()).limit(limit + 1)
    if below is not None:
        query = query.where(run.c.id < below)
    if wanted is not None:
        query = query.where(run.c.status.in_(sorted(wanted)))
    for name in (*paging.FILTERED, "created_by"):
        value = getattr(filters, name)
        if value is not None:
            query = query.where(run.c[name] == value)
    return paging.run_page([rows.read_run(row).run for row in tx.built(query)], limit)


def page_events(tx: Tx, run_id: str, after: int, limit: int) -> RunEventPage:
    """Read events, ascending."""
    row = tx.one(tx.sql.key, (run_id,))
    if row is None:
        raise paging.unknown_run(run_id)
    return paging.event_page(run_id, tx.all(tx.sql.page, (row[0], after, limit + 1)), after, limit)


def get_artifact(tx: Tx, artifact_id: str) -> tuple[Artifact, bytes] | None:
    """Read content back."""
    row = tx.one(tx.sql.artifact, (artifact_id,))
    content = None if row is None else tx.one(tx.sql.content, (artifact_id,))
    return None if content is None else (leavings.read_artifact(row[0], row[1:]), bytes(content[0]))


def list_artifacts(tx: Tx, run_id: str) -> list[Artifact]:
    """List a run's artifacts, in the order in which they were stored."""
    return [leavings.read_artifact(row[0], row[1:]) for row in tx.all(tx.sql.artifacts, (run_id,))]


def list_transcript(
    tx: Tx, conversation_id: str | None, thread_id: str | None, run_id: str | None, limit: int | None
) -> list[TranscriptEntry]:
    """List messages, the oldest first; with *limit* the last ones."""
    entry = t.transcript
    query = sa.select(t.run.c.run_id, *t.TRANSCRIPT).join_from(entry, t.run, t.run.c.id == entry.c.run)
    for column, value in (
        (entry.c.conversation_id, conversation_id),
        (entry.c.thread_id, thread_id),
        (t.run.c.run_id, run_id),
    ):
        if value is not None:
            query = query.where(column == value)
    if limit is not None:
        query = query.limit(max(0, limit))
    found = tx.built(query.order_by(entry.c.position.desc()))
    return [leavings.read_transcript(row[0], row[1:]) for row in reversed(found)]


def get_state(tx: Tx, scope: str, scope_id: str) -> dict[str, StateEntry]:
    """Read the values of a scope."""
    found = {row[2]: row for row in tx.all(tx.sql.states, (scope, scope_id))}
    return {key: leavings.read_state(found[key]) for key in sorted(found)}


def list_runtimes(tx: Tx) -> list[RuntimeRecord]:
    """List runtimes, by id."""
    return [leavings.read_runtime(row) for row in sorted(tx.all(tx.sql.runtimes))]
