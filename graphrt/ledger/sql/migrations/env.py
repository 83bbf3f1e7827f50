"""What Alembic runs: the connection comes from whoever opens the ledger."""

from alembic import context

from graphrt.ledger.sql.tables import VERSION_TABLE, metadata

context.configure(
    connection=context.config.attributes["connection"], target_metadata=metadata, version_table=VERSION_TABLE
)
with context.begin_transaction():
    context.run_migrations()
