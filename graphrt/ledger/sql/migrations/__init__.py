"""How the ledger's tables came to be; run by Alembic."""
