"""Revisions of the tables: which one a database has, and the way to the newest."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final

from graphrt.errors import RunControlError
from graphrt.ledger.sql.tables import HEAD, VERSION_TABLE

if TYPE_CHECKING:
    import sqlalchemy as sa
    from alembic.config import Config

    from graphrt.ledger.sql.backend import Tx

_one_at_a_time: Final = threading.Lock()  # Alembic keeps what it works on in module globals


def revision(tx: Tx, name: str) -> str:
    """Give the revision of the tables.

    Raises:
        RunControlError: `runtime_error`: it is not known here, or none is noted.
    """
    row = tx.one(f"SELECT version_num FROM {VERSION_TABLE}")  # noqa: S608  # a constant of ours
    if row is None:
        raise RunControlError(
            "runtime_error", f"{name}: no revision of its tables is noted", hint="bring back a copy of the database"
        )
    found = str(row[0])
    if found != HEAD and found not in known():
        raise RunControlError(
            "runtime_error",
            f"{name}: its tables are of revision {found!r}, and this graphrt knows up to {HEAD!r}",
            hint="use the graphrt that wrote it, or a newer one",
        )
    return found


def known() -> list[str]:
    """Give every revision that is known, the newest first."""
    from alembic.script import ScriptDirectory

    return [script.revision for script in ScriptDirectory.from_config(config()).walk_revisions()]


def upgrade(connection: sa.Connection) -> None:
    """Bring the tables up to date, within the transaction that is open on *connection*."""
    from alembic import command

    settings = config()
    settings.attributes["connection"] = connection
    if not connection.in_transaction():
        connection.begin()  # says so to Alembic, which else would end the driver's transaction by itself
    with _one_at_a_time:
        command.upgrade(settings, "head")


def config() -> Config:
    """Give Alembic's settings; there is no file of them."""
    from alembic.config import Config

    settings = Config()
    settings.set_main_option("script_location", "graphrt.ledger.sql:migrations")
    settings.set_main_option("path_separator", "os")
    return settings
