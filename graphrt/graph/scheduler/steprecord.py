"""What a run's result tells of each step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from graphrt.graph.core.records import Step
    from graphrt.graph.states import NodeState


@dataclass(frozen=True, slots=True)
class StepRecord:
    """One step of a run, as it ended. `started` and `ended` are seconds since the epoch; None for what never ran."""

    node: str
    scope: str
    round: int
    state: NodeState
    attempts: int
    started: float | None
    ended: float | None
    value: Any = None
    error: BaseException | None = None
    reason: str | None = None
    """Why it was skipped, where its edges alone do not say."""


def record_of(step: Step) -> StepRecord:
    """Give what is told of *step*."""
    return StepRecord(
        step.node.name,
        step.frame.scope.path,
        step.round,
        step.state,
        step.attempts,
        step.started,
        step.ended,
        step.value,
        step.error,
        step.note,
    )
