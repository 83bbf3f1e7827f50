"""States of a step and of a run, and the one table of legal moves.

The table is data: the core obeys it, the tests walk it, and the documentation and the state picture are drawn from it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from graphrt.errors import InvalidTransitionError

if TYPE_CHECKING:
    from collections.abc import Mapping


class NodeState(StrEnum):
    """State of one step, that is of one activation of a node.

    Attributes:
        PENDING: It has not started.
        RUNNING: It is at work.
        WAITING: It waits for a person, or for a time.
        SUCCEEDED: It has a value.
        FAILED: It raised, or its value could not leave it.
        SKIPPED: It was passed over: no edge led to it.
        CANCELLED: It was stopped from outside, or by a failure beside it.
        TIMED_OUT: It ran into its time limit.
    """

    PENDING = "pending"
    RUNNING = "running"
    WAITING = "waiting"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    SKIPPED = "skipped"
    CANCELLED = "cancelled"
    TIMED_OUT = "timed_out"


_S = NodeState

LEGAL_MOVES: Final[Mapping[NodeState, frozenset[NodeState]]] = {
    _S.PENDING: frozenset({_S.RUNNING, _S.SKIPPED, _S.CANCELLED}),
    _S.RUNNING: frozenset({_S.SUCCEEDED, _S.FAILED, _S.SKIPPED, _S.CANCELLED, _S.TIMED_OUT, _S.WAITING}),
    _S.WAITING: frozenset({_S.RUNNING, _S.FAILED, _S.CANCELLED, _S.TIMED_OUT}),
    _S.SUCCEEDED: frozenset(),
    _S.FAILED: frozenset(),
    _S.SKIPPED: frozenset(),
    _S.CANCELLED: frozenset(),
    _S.TIMED_OUT: frozenset(),
}
"""What may follow what. Everything else raises `InvalidTransitionError` and changes nothing."""

FINAL_STATES: Final = frozenset(state for state, after in LEGAL_MOVES.items() if not after)
"""States that a step never leaves."""

LIVE_STATES: Final = frozenset({_S.RUNNING, _S.WAITING})
"""States in which a step holds its run open."""


def check_move(entity: object, before: NodeState, after: NodeState) -> None:
    """Refuse a move that the table does not hold.

    Raises:
        InvalidTransitionError: *before* does not lead to *after*; nothing was changed.
    """
    if after not in LEGAL_MOVES[before]:
        raise InvalidTransitionError(str(entity), before.value, after.value)


def state_diagram() -> str:
    """Draw the table of legal moves as a Mermaid state diagram."""
    lines = ["stateDiagram-v2", f"    [*] --> {NodeState.PENDING.value}"]
    for before, following in LEGAL_MOVES.items():
        lines.extend(f"    {before.value} --> {after.value}" for after in NodeState if after in following)
    lines.extend(f"    {state.value} --> [*]" for state in NodeState if state in FINAL_STATES)
    return "\n".join(lines)


class RunStatus(StrEnum):
    """How a run stands or ended (`RunResult.status`).

    Attributes:
        RUNNING: Somebody is at work on it.
        WAITING: All that is left waits for a person, or for a time.
        SUCCEEDED: It has an output.
        FAILED: A failure was not handled.
        STOPPED: A limit was reached, such as `max_rounds` or a budget.
        CANCELLED: It was cancelled.
        TIMED_OUT: It was out of time.
    """

    RUNNING = "running"
    WAITING = "waiting"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    STOPPED = "stopped"
    CANCELLED = "cancelled"
    TIMED_OUT = "timed_out"


class TerminationKind(StrEnum):
    """Why a run is over.

    Attributes:
        NATURAL_END: It came to its end.
        BEHAVIOR_REQUESTED: What was run asked for the end.
        STOPPED: A limit was reached; `code` names it.
        CANCELLED: It was cancelled.
        BLOCKED: A hook or a gate refused.
        SUSPENDED: It waits, and can be resumed.
        TIMEOUT: It was out of time.
        ERROR: It failed.
    """

    NATURAL_END = "natural_end"
    BEHAVIOR_REQUESTED = "behavior_requested"
    STOPPED = "stopped"
    CANCELLED = "cancelled"
    BLOCKED = "blocked"
    SUSPENDED = "suspended"
    TIMEOUT = "timeout"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Termination:
    """The end of a run: its kind, and for a limit its name in *code*.

    Attributes:
        kind: Why it is over.
        code: For a limit, its name.
        detail: The text of the error, if there was one.
    """

    kind: TerminationKind
    code: str | None = None
    detail: str | None = None
