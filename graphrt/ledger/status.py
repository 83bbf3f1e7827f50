"""Statuses of a run in the ledger, and the one table of legal moves."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Final

from graphrt.errors import RunControlError

if TYPE_CHECKING:
    from collections.abc import Mapping


class AgentRunStatus(StrEnum):
    """How a run stands in the ledger."""

    CREATED = "created"
    """Written down; nobody has begun."""
    QUEUED = "queued"
    """Waits for a worker."""
    CLAIMED = "claimed"
    """A worker has taken it, and has not begun."""
    DISPATCHING = "dispatching"
    """The worker is handing it to what runs it."""
    RUNNING = "running"
    WAITING = "waiting"
    """All that is left waits for a person or a time; nobody holds a claim."""
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    TIMEOUT = "timeout"


_S = AgentRunStatus

TERMINAL: Final = frozenset({_S.COMPLETED, _S.FAILED, _S.CANCELLED, _S.TIMEOUT})
"""Final for appends and for `finalize`; only an explicit resume of a graph's run leaves one, and never `completed`."""

_ENDS: Final = frozenset(TERMINAL)

LEGAL_MOVES: Final[Mapping[AgentRunStatus, frozenset[AgentRunStatus]]] = {
    _S.CREATED: frozenset({_S.QUEUED, _S.RUNNING}) | _ENDS,
    _S.QUEUED: frozenset({_S.CLAIMED, _S.RUNNING}) | _ENDS,
    _S.CLAIMED: frozenset({_S.DISPATCHING, _S.RUNNING, _S.QUEUED, _S.WAITING}) | _ENDS,
    _S.DISPATCHING: frozenset({_S.RUNNING, _S.QUEUED, _S.WAITING}) | _ENDS,
    _S.RUNNING: frozenset({_S.WAITING, _S.QUEUED}) | _ENDS,
    _S.WAITING: frozenset({_S.RUNNING, _S.QUEUED}) | _ENDS,
    _S.COMPLETED: frozenset(),
    _S.FAILED: frozenset(),
    _S.CANCELLED: frozenset(),
    _S.TIMEOUT: frozenset(),
}
"""What may follow what; everything else is a `conflict`, and changes nothing."""

REOPENED: Final[Mapping[AgentRunStatus, frozenset[AgentRunStatus]]] = {
    status: frozenset({_S.RUNNING, _S.QUEUED}) for status in (_S.FAILED, _S.CANCELLED, _S.TIMEOUT)
}
"""What an explicit resume may do besides; it counts as a further attempt."""


def check_move(run_id: str, before: AgentRunStatus, after: AgentRunStatus, *, resume: bool = False) -> None:
    """Refuse a move that the table does not hold.

    Raises:
        RunControlError: `conflict`: *before* does not lead to *after*.
    """
    allowed = LEGAL_MOVES[before] | (REOPENED.get(before, frozenset()) if resume else frozenset())
    if after not in allowed:
        raise RunControlError(
            "conflict",
            f"run {run_id!r} is {before.value}, from where it cannot become {after.value}",
            details={"run_id": run_id, "status": before.value},
        )
