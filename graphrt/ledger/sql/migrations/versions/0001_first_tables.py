"""The first tables."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

_KEY = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_QUEUED = sa.text("status = 'queued'")
_CLAIMED = sa.text("claim_token IS NOT NULL")
_WAITING = sa.text("status = 'waiting'")
_FINISHED = sa.text("finished_at IS NOT NULL")


def upgrade() -> None:
    """Make them."""
    op.create_table(
        "ledger_run",
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
        sqlite_autoincrement=True,
    )
    op.create_index("ledger_run_run_id", "ledger_run", ["run_id"], unique=True)
    op.create_index("ledger_run_status", "ledger_run", ["status", "id"])
    op.create_index("ledger_run_conversation", "ledger_run", ["conversation_id", "id"])
    op.create_index(
        "ledger_run_queue",
        "ledger_run",
        [sa.text("priority DESC"), "id"],
        sqlite_where=_QUEUED,
        postgresql_where=_QUEUED,
    )
    op.create_index("ledger_run_lease", "ledger_run", ["lease_until"], sqlite_where=_CLAIMED, postgresql_where=_CLAIMED)
    op.create_index("ledger_run_wake", "ledger_run", ["wake_at"], sqlite_where=_WAITING, postgresql_where=_WAITING)
    op.create_index(
        "ledger_run_finished", "ledger_run", ["finished_at"], sqlite_where=_FINISHED, postgresql_where=_FINISHED
    )
    op.create_table(
        "ledger_event",
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
    op.create_table(
        "ledger_artifact",
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
    )
    op.create_index("ledger_artifact_id", "ledger_artifact", ["id"], unique=True)
    op.create_index("ledger_artifact_run", "ledger_artifact", ["run"])
    op.create_table(
        "ledger_transcript",
        sa.Column("position", _KEY, sa.Identity(), primary_key=True),
        sa.Column("run", sa.BigInteger, nullable=False),
        sa.Column("sequence", sa.BigInteger, nullable=False),
        sa.Column("conversation_id", sa.Text),
        sa.Column("thread_id", sa.Text),
        sa.Column("role", sa.Text, nullable=False),
        sa.Column("content", sa.Text, nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
    )
    op.create_index("ledger_transcript_event", "ledger_transcript", ["run", "sequence"], unique=True)
    op.create_index("ledger_transcript_conversation", "ledger_transcript", ["conversation_id", "position"])
    op.create_table(
        "ledger_state",
        sa.Column("scope", sa.Text, primary_key=True),
        sa.Column("scope_id", sa.Text, primary_key=True),
        sa.Column("key", sa.Text, primary_key=True),
        sa.Column("value", sa.Text, nullable=False),
        sa.Column("run_id", sa.Text, nullable=False),
        sa.Column("sequence", sa.BigInteger, nullable=False),
        sa.Column("updated_at", sa.BigInteger, nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "ledger_slot",
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("owner", sa.Text, primary_key=True),
        sa.Column("lease_until", sa.BigInteger, nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "ledger_runtime",
        sa.Column("runtime_id", sa.Text, primary_key=True),
        sa.Column("capabilities", sa.Text, nullable=False),
        sa.Column("registered_at", sa.BigInteger, nullable=False),
        sa.Column("heartbeat_at", sa.BigInteger, nullable=False),
        sa.Column("heartbeat_seconds", sa.Double, nullable=False),
        sa.Column("metadata", sa.Text),
        sqlite_with_rowid=False,
    )


def downgrade() -> None:
    """Drop them, with all they hold."""
    for name in (
        "ledger_run",
        "ledger_event",
        "ledger_artifact",
        "ledger_transcript",
        "ledger_state",
        "ledger_slot",
        "ledger_runtime",
    ):
        op.drop_table(name)
