"""Plans: steps towards a goal, each of which is one turn, and the states that a step goes through."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Final

from graphrt.errors import AgentError, ConfigError, InvalidTransitionError
from graphrt.nodes.plan_order import TERMINAL, FailurePolicy, StepState, order_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from graphrt.graph.view.drawing import Drawing
    from graphrt.messages import ChatResponse

__all__ = ["NEXT", "FailurePolicy", "Plan", "Step", "StepState", "StepStatus", "transition"]

NEXT: Final[Mapping[StepState, frozenset[StepState]]] = {
    StepState.PENDING: frozenset({StepState.RUNNING}),
    StepState.RUNNING: TERMINAL,
    **{state: frozenset() for state in sorted(TERMINAL)},
}
"""Which states may follow which."""


@dataclass(frozen=True, slots=True)
class StepStatus:
    """Where a step stands, and what its end has brought.

    Attributes:
        state: Where the step stands.
        response: The turn; present if, and only if, the step is completed.
        error: What the turn raised; present if, and only if, the step has failed.
        reason: Why a step was skipped, if that is known.

    Raises:
        ConfigError: There is a response without a completed step or the other way round, or an error without a
            failed one, or a reason without a skipped one.
    """

    state: StepState
    response: ChatResponse | None = None
    error: AgentError | None = None
    reason: str | None = None

    def __post_init__(self) -> None:
        state = self.state
        fits = (
            (self.response is not None) == (state == StepState.COMPLETED)
            and (self.error is not None) == (state == StepState.FAILED)
            and (self.reason is None or state == StepState.SKIPPED)
        )
        if not fits:
            raise ConfigError(
                f"status {state!s} does not go with response={self.response!r}, error={self.error!r}, "
                f"reason={self.reason!r}",
                hint="a completed step has a response, a failed one an error, a skipped one may have a reason",
            )

    @classmethod
    def pending(cls) -> StepStatus:
        """Make the status of a step that waits."""
        return cls(StepState.PENDING)

    @classmethod
    def running(cls) -> StepStatus:
        """Make the status of a step at work."""
        return cls(StepState.RUNNING)

    @classmethod
    def completed(cls, response: ChatResponse) -> StepStatus:
        """Make the status of a step whose turn has succeeded."""
        return cls(StepState.COMPLETED, response=response)

    @classmethod
    def failed(cls, error: AgentError) -> StepStatus:
        """Make the status of a step whose turn has failed."""
        return cls(StepState.FAILED, error=error)

    @classmethod
    def skipped(cls, reason: str | None = None) -> StepStatus:
        """Make the status of a step that has no turn."""
        return cls(StepState.SKIPPED, reason=reason)


def transition(before: StepStatus, after: StepStatus, *, step: object) -> StepStatus:
    """Give the status *after*, if it may follow; *step* is what the message calls the step.

    Raises:
        InvalidTransitionError: It may not.
    """
    if after.state not in NEXT[before.state]:
        raise InvalidTransitionError(step, before.state, after.state)
    return after


@dataclass(slots=True)
class Step:
    """One step of a plan; its states follow one another in one direction.

    Attributes:
        index: Place in the plan, from 0.
        description: What is to be done: the text of the step's turn.
        status: Where it stands.
        depends_on: Indices of the steps that have to be completed before; empty: none has to be, None: not said. See
            `Plan` for what becomes of that.

    Raises:
        InvalidTransitionError: From the methods, when the step cannot go there; it is unchanged then.
    """

    index: int
    description: str
    status: StepStatus = field(default_factory=StepStatus.pending)
    depends_on: Sequence[int] | None = None

    def __post_init__(self) -> None:
        if self.depends_on is not None:
            self.depends_on = tuple(self.depends_on)

    def start(self) -> None:
        """Go from pending to running."""
        self._go(StepStatus.running())

    def complete(self, response: ChatResponse) -> None:
        """Go from running to completed."""
        self._go(StepStatus.completed(response))

    def fail(self, error: Exception) -> None:
        """Go from running to failed; an error that is no `AgentError` is kept as the cause of one."""
        self._go(StepStatus.failed(AgentError.wrap(error)))

    def skip(self, reason: str | None = None) -> None:
        """Go from running to skipped."""
        self._go(StepStatus.skipped(reason))

    def _go(self, after: StepStatus) -> None:
        self.status = transition(self.status, after, step=f"step {self.index}")


@dataclass(slots=True)
class Plan:
    """Steps towards a goal, each of which is one turn.

    The steps follow one another, unless one names another in `depends_on`, or each has a `depends_on`, be it empty.
    Then a step starts when those are completed that it depends on, and steps that need nothing of one another run at
    the same time.

    A step's turn is told its own description and sees the conversation; `goal` is for pictures and spans, so that
    descriptions have to say what their steps need to know.

    Attributes:
        goal: What the plan is for.
        steps: The steps, each at its index.
        id: Unique among plans.

    Raises:
        ConfigError: The steps are not numbered 0, 1, 2, ... in their order, or one depends on a step that the
            plan lacks, or on itself, directly or by way of others.
    """

    __graphrt_immutable__: ClassVar = True  # a node that gives a plan gives this one, and no copy of it

    goal: str
    steps: list[Step]
    id: str = field(default_factory=lambda: str(uuid.uuid4()))

    def __post_init__(self) -> None:
        self.steps = list(self.steps)
        order_of(self.steps, plan=self.id)

    @property
    def finished(self) -> bool:
        """Whether every step has ended, in whatever way."""
        return all(step.status.state in TERMINAL for step in self.steps)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        try:
            from graphrt.graph.view import mimebundle

            return mimebundle(_drawing_of(self))
        except Exception:  # noqa: BLE001 - a notebook shows what it can; a step may hold anything by now
            return {"text/plain": repr(self)}


_DRAWN: Final = {
    StepState.PENDING: "pending",
    StepState.RUNNING: "running",
    StepState.COMPLETED: "succeeded",
    StepState.FAILED: "failed",
    StepState.SKIPPED: "skipped",
}


def _drawing_of(plan: Plan) -> Drawing:
    """Describe the picture of a plan with the states of its steps."""
    from graphrt.graph.view.drawing import Drawing, DrawnEdge, DrawnNode
    from graphrt.nodes.plan import label_of

    steps = plan.steps
    nodes = [
        DrawnNode(f"step:{step.index}", label_of(step), "plan_step", state=_DRAWN[step.status.state], title=_said(step))
        for step in steps
    ]
    edges = [
        DrawnEdge(
            "plan_start" if source is None else f"step:{source}", "plan_end" if target is None else f"step:{target}"
        )
        for source, target in order_of(steps, plan=plan.id).edges(steps)
    ]
    ends = DrawnNode("plan_start", "plan_start", "start"), DrawnNode("plan_end", "plan_end", "end")
    return Drawing(plan.goal, (ends[0], *nodes, ends[1]), tuple(edges))


def _said(step: Step) -> str:
    """Give the whole description of a step, and why it ended as it did."""
    status = step.status
    why = status.reason if status.error is None else str(status.error)
    return step.description if why is None else f"{step.description}\n{why}"
