"""Reading the ledger in pages: cursors, filters, and the statuses that callers name."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from graphrt.errors import RunControlError
from graphrt.ledger.records import RunEventPage, RunPage
from graphrt.ledger.rows import read_event
from graphrt.ledger.status import AgentRunStatus

if TYPE_CHECKING:
    from collections.abc import Sequence

    from graphrt.ledger.records import AgentRun, RunFilter

RUNS_LIMIT: Final = 100
EVENTS_LIMIT: Final = 1000
FILTERED: Final = (
    "agent_id",
    "binding_id",
    "runner_id",
    "event_id",
    "conversation_id",
    "thread_id",
    "workspace_id",
    "bot_id",
)
"""Fields that a filter compares as they are."""


def clamped(limit: int, most: int) -> int:
    """Give a page size between 1 and *most*.

    Raises:
        RunControlError: `invalid_argument`: it is no whole number.
    """
    if not isinstance(limit, int) or isinstance(limit, bool):
        raise RunControlError("invalid_argument", f"limit {limit!r} is no whole number", hint="give an int")
    return max(1, min(limit, most))


def cursor_after(kind: str, number: int) -> str:
    """Give a cursor that goes on after *number*."""
    return base64.urlsafe_b64encode(f"{kind}:{number}".encode()).decode().rstrip("=")


def read_cursor(kind: str, cursor: str) -> int:
    """Read a cursor back.

    Raises:
        RunControlError: `invalid_argument`: it is none of this kind.
    """
    try:
        text = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True).decode("ascii")
        name, _, number = text.partition(":")
        if name == kind and number.isdecimal() and cursor_after(kind, int(number)) == cursor:
            return int(number)
    except (binascii.Error, UnicodeError, ValueError, TypeError):
        pass
    raise RunControlError(
        "invalid_argument", f"{cursor!r} is no cursor of this list", hint="pass the next_cursor of the page before"
    )


def run_page(runs: Sequence[AgentRun], limit: int) -> RunPage:
    """Make a page of the *limit* first runs; one more says that there are more."""
    items, more = list(runs[:limit]), len(runs) > limit
    return RunPage(items, cursor_after("runs", items[-1].id) if more else None, more)


def event_page(run_id: str, found: Sequence[Sequence[Any]], after: int, limit: int) -> RunEventPage:
    """Make a page of the *limit* first events after a sequence; one more says that there are more."""
    items = [read_event(run_id, row) for row in found[:limit]]
    last = items[-1].sequence if items else after
    return RunEventPage(items, cursor_after("events", last), len(found) > limit)


def statuses(filters: RunFilter) -> frozenset[AgentRunStatus] | None:
    """Give the statuses that a filter lets through, None for all.

    Raises:
        RunControlError: `invalid_argument`: one is no status.
    """
    wanted = filters.status
    if wanted is None:
        return None
    if not isinstance(wanted, Iterable):
        raise RunControlError("invalid_argument", f"status {wanted!r} is none", hint="give one, or several in a list")
    return frozenset(map(known_status, [wanted] if isinstance(wanted, str) else wanted))


def matches(run: AgentRun, filters: RunFilter, wanted: frozenset[AgentRunStatus] | None) -> bool:
    """Whether a filter lets a run through."""
    if wanted is not None and run.status not in wanted:
        return False
    if filters.created_by is not None and run.authorization.caller_plugin_id != filters.created_by:
        return False
    return all(getattr(filters, name) in (None, getattr(run, name)) for name in FILTERED)


def known_status(status: str) -> AgentRunStatus:
    """Give a status by its name.

    Raises:
        RunControlError: `invalid_argument`: there is none of that name.
    """
    try:
        return AgentRunStatus(status)
    except ValueError as error:
        raise RunControlError(
            "invalid_argument", f"{status!r} is no status of a run", hint=f"one of {', '.join(AgentRunStatus)}"
        ) from error


def unknown_run(run_id: str) -> RunControlError:
    """Make the error that says that there is no such run."""
    return RunControlError("not_found", f"there is no run {run_id!r}", details={"run_id": run_id})
