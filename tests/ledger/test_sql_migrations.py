"""The tables come from migrations, and are those that the statements are written for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory

from graphrt.ledger.sql import tables
from graphrt.ledger.sql.backend import Backend
from graphrt.ledger.sql.migrate import config, known
from graphrt.ledger.sql.postgres import PostgresBackend
from graphrt.ledger.sql.sqlite import SqliteBackend
from tests.ledger.stores import KINDS


@pytest.fixture(params=KINDS[1:])
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    if request.param == "sqlite":
        made: Backend = SqliteBackend(tmp_path / "ledger.db", "NORMAL")
    else:
        made = PostgresBackend(request.getfixturevalue("postgres_dsn"))
    yield made
    made.engine.dispose()


def test_migrations_make_the_tables_that_are_written_down(backend: Backend) -> None:
    tx = backend.connect()
    backend.prepare(tx)
    backend.prepare(tx)  # the second time there is nothing to do
    options = {"version_table": tables.VERSION_TABLE, "compare_type": True, "include_object": _can_be_compared}
    context = MigrationContext.configure(tx.connection, opts=options)
    assert compare_metadata(context, tables.metadata) == []
    assert context.get_current_revision() == tables.HEAD
    tx.connection.close()


def _can_be_compared(item: object, name: str | None, *_: object) -> bool:
    return name != "ledger_run_queue"  # by an expression, which Alembic cannot read back from SQLite


def test_migrations_make_files_as_the_tables_would(tmp_path: Path) -> None:
    made = []
    for name in ("migrated", "created"):
        backend = SqliteBackend(tmp_path / name, "NORMAL")
        tx = backend.connect()
        if name == "migrated":
            backend.prepare(tx)
        else:
            tables.metadata.create_all(tx.connection)
        found = tx.all("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL AND tbl_name != 'ledger_version'")
        made.append(sorted(" ".join(text.split()) for (text,) in found))
        tx.connection.close()
        backend.engine.dispose()
    assert made[0] == made[1]
    assert len(made[0]) > 15


def test_a_migration_that_fails_leaves_nothing_behind(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    tx = backend.connect()

    def fail(connection: sa.Connection) -> None:
        connection.exec_driver_sql("CREATE TABLE ledger_half (x INTEGER)")
        raise ZeroDivisionError

    with monkeypatch.context() as patch:
        patch.setattr(f"{type(backend).__module__}.upgrade", fail)
        with pytest.raises(ZeroDivisionError):
            backend.prepare(tx)
    assert not sa.inspect(tx.connection).get_table_names()
    backend.prepare(tx)
    assert "ledger_run" in sa.inspect(tx.connection).get_table_names()
    tx.connection.close()


def test_there_is_one_line_of_revisions_and_its_head_is_known() -> None:
    script = ScriptDirectory.from_config(config())
    assert script.get_heads() == [tables.HEAD]
    assert known()[0] == tables.HEAD
    assert len(script.get_bases()) == 1
