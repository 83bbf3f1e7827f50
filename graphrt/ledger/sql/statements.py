"""Statements of the ledger, built once for a dialect: running one costs no more than the driver does."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, Final

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.dialects.postgresql import psycopg

from graphrt.ledger import rows
from graphrt.ledger.sql import tables as t

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy.sql.dml import Insert

INSERTED: Final = rows.RUN_COLUMNS[1:]
"""Columns of a new run: the database gives the number."""
_QUEUED: Final[sa.ColumnElement[str]] = sa.literal_column("'queued'")


def compiled(dialect: sa.Dialect, statement: sa.ClauseElement) -> tuple[str, tuple[Any, ...]]:
    """Give the text of a statement, and the values that stand in it."""
    done = statement.compile(dialect=dialect, compile_kwargs={"render_postcompile": True})
    order: Sequence[str] = done.positiontup or ()  # type: ignore[attr-defined]  # every dialect here is positional
    return str(done), tuple(done.params[name] for name in order)


@cache
def statements_for(dialect: str) -> Statements:
    """Give the statements of `sqlite` or `postgresql`; building them takes longer than opening a database."""
    if dialect == "sqlite":
        return Statements(sqlite.dialect())
    return Statements(psycopg.dialect(paramstyle="format"))  # type: ignore[no-untyped-call]  # SQLAlchemy's


class Statements:
    """The statements whose text never changes; each names its parameters in their order."""

    def __init__(self, dialect: sa.Dialect) -> None:
        self._dialect = dialect
        run, event = t.run, t.event
        by_id = run.c.run_id == sa.bindparam("run_id")
        of_run = event.c.run == sa.bindparam("run")
        highest = sa.select(sa.func.max(event.c.sequence)).where(event.c.run == run.c.id).scalar_subquery()
        head = (run.c.id, run.c.status, run.c.claim_token, run.c.lease_until)

        self.head = self._text(sa.select(*head, highest).where(by_id), "run_id")
        self.locked_head = self._text(sa.select(*head).where(by_id).with_for_update(), "run_id")
        self.highest = self._text(sa.select(sa.func.max(event.c.sequence)).where(of_run), "run")
        self.key = self._text(sa.select(run.c.id).where(by_id), "run_id")
        self.run = self._text(sa.select(*t.RUN).where(by_id), "run_id")
        self.locked_run = self._text(sa.select(*t.RUN).where(by_id).with_for_update(), "run_id")
        self.insert_run = self._text(
            self._insert(t.run, INSERTED).on_conflict_do_nothing(index_elements=["run_id"]).returning(run.c.id),
            *INSERTED,
        )
        self.update_run = self._text(
            sa.update(run).where(run.c.id == sa.bindparam("key")).values({n: sa.bindparam(n) for n in rows.CHANGING}),
            *(name for name in rows.RUN_COLUMNS if name in rows.CHANGING),
            "key",
        )
        self.renew = self._text(
            sa.update(run)
            .where(by_id, run.c.claim_token == sa.bindparam("token"), run.c.lease_until > sa.bindparam("now"))
            .values(lease_until=sa.bindparam("until")),
            "until",
            "run_id",
            "token",
            "now",
        )
        self.break_claim = self._text(
            sa.update(run)
            .where(by_id, run.c.claimed_by == sa.bindparam("worker"), run.c.claim_token.is_not(None))
            .values(lease_until=sa.bindparam("until")),
            "until",
            "run_id",
            "worker",
        )
        columns = ("run", *rows.EventRow._fields)
        self.insert_event = self._text(sa.insert(event).values({n: sa.bindparam(n) for n in columns}), *columns)
        page = sa.select(*t.EVENT).where(of_run, event.c.sequence > sa.bindparam("after")).order_by(event.c.sequence)
        mark = "?" if dialect.name == "sqlite" else "%s"  # a limit of Core's brings an offset along
        self.page = f"{self._text(page, 'run', 'after')} LIMIT {mark}"
        self.queued = (
            sa.select(*t.RUN)
            .where(run.c.status == _QUEUED)
            .order_by(run.c.priority.desc(), run.c.id)
            .limit(sa.literal_column("1"))
            .with_for_update(skip_locked=True)
        )
        self._add_left()
        self._add_shared()

    def _add_left(self) -> None:
        """Add what is about artifacts, messages and state."""
        artifact, transcript, state = t.artifact, t.transcript, t.state
        names = ("run", *(column.name for column in t.ARTIFACT), "content")
        self.insert_artifact = self._text(
            self._insert(artifact, names).on_conflict_do_nothing(index_elements=["id"]),
            *(column.name for column in artifact.c if column.name in names),
        )
        owner = sa.select(t.run.c.run_id, *t.ARTIFACT).join_from(artifact, t.run, t.run.c.id == artifact.c.run)
        self.artifact = self._text(owner.where(artifact.c.id == sa.bindparam("id")), "id")
        self.content = self._text(sa.select(artifact.c.content).where(artifact.c.id == sa.bindparam("id")), "id")
        self.artifacts = self._text(
            owner.where(t.run.c.run_id == sa.bindparam("run_id")).order_by(artifact.c.position), "run_id"
        )
        names = ("run", *(column.name for column in t.TRANSCRIPT))
        self.insert_transcript = self._text(
            self._insert(transcript, names).on_conflict_do_nothing(index_elements=["run", "sequence"]), *names
        )
        names = tuple(column.name for column in state.c)
        self.put_state = self._text(self._put(state, names, 3), *names)
        at = [state.c[name] == sa.bindparam(name) for name in ("scope", "scope_id", "key")]
        self.state = self._text(sa.select(state).where(*at), "scope", "scope_id", "key")
        self.states = self._text(sa.select(state).where(*at[:2]), "scope", "scope_id")

    def _add_shared(self) -> None:
        """Add what is about slots and runtimes."""
        slot, runtime = t.slot, t.runtime
        named = slot.c.name == sa.bindparam("name")
        self.put_slot = self._text(self._put(slot, ("name", "owner", "lease_until"), 2), "name", "owner", "lease_until")
        self.old_slots = self._text(
            sa.delete(slot).where(named, slot.c.lease_until <= sa.bindparam("now")), "name", "now"
        )
        self.owners = self._text(sa.select(slot.c.owner).where(named), "name")
        self.free_slot = self._text(
            sa.delete(slot).where(named, slot.c.owner == sa.bindparam("owner")), "name", "owner"
        )
        names = tuple(column.name for column in runtime.c)
        by_id = runtime.c.runtime_id == sa.bindparam("runtime_id")
        self.put_runtime = self._text(self._put(runtime, names, 1), *names)
        self.runtime = self._text(sa.select(runtime).where(by_id), "runtime_id")
        self.runtimes = self._text(sa.select(runtime))
        self.drop_runtime = self._text(sa.delete(runtime).where(by_id), "runtime_id")

    def _text(self, statement: sa.ClauseElement, *names: str) -> str:
        """Give the text of a statement that takes its values in the order of *names*."""
        done = statement.compile(dialect=self._dialect)
        order = tuple(done.positiontup or ())  # type: ignore[attr-defined]  # every dialect here is positional
        assert order == names, (str(done), order, names)
        return str(done)

    def _insert(self, table: sa.Table, names: Sequence[str]) -> Any:
        """Begin an insertion that may say what to do about a row that is there: both dialects spell it alike."""
        insert: Insert = (sqlite if self._dialect.name == "sqlite" else postgresql).insert(table)
        return insert.values({name: sa.bindparam(name) for name in names})

    def _put(self, table: sa.Table, names: Sequence[str], keys: int) -> Any:
        """Insert a row, or replace the one of the same key."""
        insert = self._insert(table, names)
        return insert.on_conflict_do_update(
            index_elements=list(names[:keys]), set_={name: insert.excluded[name] for name in names[keys:]}
        )
