"""The tables of the ledger, for SQLite and PostgreSQL."""

from __future__ import annotations

from typing import Final

import sqlalchemy as sa

from graphrt.ledger import rows

HEAD: Final = "0001"
"""The newest revision of the tables; what opens a database of that revision need not load Alembic."""
VERSION_TABLE: Final = "ledger_version"
"""Where Alembic notes the revision."""

metadata: Final = sa.MetaData()

_KEY: Final = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_QUEUED: Final = sa.text("status = 'queued'")
_CLAIMED: Final = sa.text("claim_token IS NOT NULL")
_WAITING: Final = sa.text("status = 'waiting'")
_FINISHED: Final = sa.text("finished_at IS NOT NULL")

run: Final = sa.Table(
    "ledger_run",
    metadata,
    sa.Column("id", _KEY, sa.Identity(), primary_key=True),
    sa.Column("run_id", sa.Text, nullable=False),
    sa.Column("runner_id", sa.Text, nullable=False),
    sa.Column("event_id", sa.Text),
    sa.Column("agent_id", sa.Text),
    sa.Column("binding_id", sa.Text),
    sa.Column("conversation_id", sa.Text),
    sa.Column("thread_id", sa.Text),
    sa.Column("workspace_id", sa.Text),
    sa.Column("bot_id", sa.Text),
    sa.Column("created_by", sa.Text),
    sa.Column("authorization", sa.Text, nullable=False),
    sa.Column("created_at", sa.BigInteger, nullable=False),
    sa.Column("deadline_at", sa.BigInteger),
    sa.Column("status", sa.Text, nullable=False),
    sa.Column("status_reason", sa.Text),
    sa.Column("started_at", sa.BigInteger),
    sa.Column("finished_at", sa.BigInteger),
    sa.Column("updated_at", sa.BigInteger, nullable=False),
    sa.Column("cancel_requested_at", sa.BigInteger),
    sa.Column("cancel_reason", sa.Text),
    sa.Column("usage", sa.Text),
    sa.Column("priority", sa.BigInteger, nullable=False),
    sa.Column("attempt", sa.BigInteger, nullable=False),
    sa.Column("graph_fingerprint", sa.Text),
    sa.Column("claimed_by", sa.Text),
    sa.Column("claim_token", sa.Text),
    sa.Column("claimed_at", sa.BigInteger),
    sa.Column("lease_until", sa.BigInteger),
    sa.Column("wake_at", sa.BigInteger),
    sa.Column("metadata", sa.Text),
    sa.Index("ledger_run_run_id", "run_id", unique=True),
    sa.Index("ledger_run_status", "status", "id"),
    sa.Index("ledger_run_conversation", "conversation_id", "id"),
    sa.Index("ledger_run_queue", sa.desc("priority"), "id", sqlite_where=_QUEUED, postgresql_where=_QUEUED),
    sa.Index("ledger_run_lease", "lease_until", sqlite_where=_CLAIMED, postgresql_where=_CLAIMED),
    sa.Index("ledger_run_wake", "wake_at", sqlite_where=_WAITING, postgresql_where=_WAITING),
    sa.Index("ledger_run_finished", "finished_at", sqlite_where=_FINISHED, postgresql_where=_FINISHED),
    sqlite_autoincrement=True,
)
event: Final = sa.Table(
    "ledger_event",
    metadata,
    sa.Column("run", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("sequence", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("type", sa.Text, nullable=False),
    sa.Column("data", sa.Text, nullable=False),
    sa.Column("created_at", sa.BigInteger, nullable=False),
    sa.Column("source", sa.Text, nullable=False),
    sa.Column("artifact_refs", sa.Text),
    sa.Column("metadata", sa.Text),
    sqlite_with_rowid=False,
)
artifact: Final = sa.Table(
    "ledger_artifact",
    metadata,
    sa.Column("position", _KEY, sa.Identity(), primary_key=True),
    sa.Column("run", sa.BigInteger, nullable=False),
    sa.Column("id", sa.Text, nullable=False),
    sa.Column("sequence", sa.BigInteger),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("mime_type", sa.Text, nullable=False),
    sa.Column("size", sa.BigInteger, nullable=False),
    sa.Column("created_at", sa.BigInteger, nullable=False),
    sa.Column("metadata", sa.Text),
    sa.Column("content", sa.LargeBinary, nullable=False),
    sa.Index("ledger_artifact_id", "id", unique=True),
    sa.Index("ledger_artifact_run", "run"),
)
transcript: Final = sa.Table(
    "ledger_transcript",
    metadata,
    sa.Column("position", _KEY, sa.Identity(), primary_key=True),
    sa.Column("run", sa.BigInteger, nullable=False),
    sa.Column("sequence", sa.BigInteger, nullable=False),
    sa.Column("conversation_id", sa.Text),
    sa.Column("thread_id", sa.Text),
    sa.Column("role", sa.Text, nullable=False),
    sa.Column("content", sa.Text, nullable=False),
    sa.Column("created_at", sa.BigInteger, nullable=False),
    sa.Index("ledger_transcript_event", "run", "sequence", unique=True),
    sa.Index("ledger_transcript_conversation", "conversation_id", "position"),
)
state: Final = sa.Table(
    "ledger_state",
    metadata,
    sa.Column("scope", sa.Text, primary_key=True),
    sa.Column("scope_id", sa.Text, primary_key=True),
    sa.Column("key", sa.Text, primary_key=True),
    sa.Column("value", sa.Text, nullable=False),
    sa.Column("run_id", sa.Text, nullable=False),
    sa.Column("sequence", sa.BigInteger, nullable=False),
    sa.Column("updated_at", sa.BigInteger, nullable=False),
    sqlite_with_rowid=False,
)
slot: Final = sa.Table(
    "ledger_slot",
    metadata,
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("owner", sa.Text, primary_key=True),
    sa.Column("lease_until", sa.BigInteger, nullable=False),
    sqlite_with_rowid=False,
)
runtime: Final = sa.Table(
    "ledger_runtime",
    metadata,
    sa.Column("runtime_id", sa.Text, primary_key=True),
    sa.Column("capabilities", sa.Text, nullable=False),
    sa.Column("registered_at", sa.BigInteger, nullable=False),
    sa.Column("heartbeat_at", sa.BigInteger, nullable=False),
    sa.Column("heartbeat_seconds", sa.Double, nullable=False),
    sa.Column("metadata", sa.Text),
    sqlite_with_rowid=False,
)

RUN: Final = tuple(run.c[name] for name in rows.RUN_COLUMNS)
EVENT: Final = tuple(event.c[name] for name in rows.EventRow._fields)
ARTIFACT: Final = tuple(
    artifact.c[name] for name in ("id", "sequence", "name", "mime_type", "size", "created_at", "metadata")
)
TRANSCRIPT: Final = tuple(
    transcript.c[name] for name in ("sequence", "conversation_id", "thread_id", "role", "content", "created_at")
)
