"""What the stored events of a run say of its steps, without its graph."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from graphrt.graph.durable.stored import effective, load_events

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from graphrt.graph import RunEvent
    from graphrt.ledger.store import RunLedgerStore

_ENDS: Final[Mapping[str, str]] = {
    "step.completed": "succeeded",
    "step.failed": "failed",
    "step.timed_out": "timed_out",
    "step.cancelled": "cancelled",
    "step.skipped": "skipped",
}


@dataclass(slots=True)
class StepView:
    """One step, as far as the events tell."""

    id: str
    node: str
    scope: str
    round: int
    state: str
    attempts: int = 0
    started: float | None = None
    ended: float | None = None
    error: str | None = None
    question: Any = None
    """What it asks, while it waits for an answer."""
    until: str | None = None
    """The time that it waits for, if it waits for one."""

    @property
    def seconds(self) -> float | None:
        """How long it took, waiting included; None while it goes on."""
        return None if self.started is None or self.ended is None else self.ended - self.started


@dataclass(frozen=True, slots=True)
class RunView:
    """What the events tell of a run."""

    steps: list[StepView]
    output: Any
    """None unless it has ended well."""
    events: int

    @property
    def questions(self) -> list[StepView]:
        """The steps that wait for an answer."""
        return [step for step in self.steps if step.state == "waiting" and step.until is None]


async def run_view(store: RunLedgerStore, run_id: str) -> RunView:
    """Read a run's events, and make steps of them.

    Raises:
        RunControlError: There is no such run.
        GraphTypeError: The events are not those of a graph's run.
    """
    events = await load_events(store, run_id)
    counted = effective(events)
    steps = steps_of(counted)
    last = counted[-1] if counted else None
    output = last.data.get("output") if last is not None and last.type == "run.completed" else None
    return RunView(steps, output, len(events))


def steps_of(events: Iterable[RunEvent]) -> list[StepView]:
    """Give the steps in the order in which they started, or were passed over."""
    steps: dict[str, StepView] = {}
    for event in events:
        if event.step is not None:
            _note(steps, event)
        elif event.type == "run.resumed":
            for step in steps.values():
                if step.state == "running":
                    step.state, step.started, step.attempts = "pending", None, 0
        elif event.type == "action.requested" and event.data.get("request") == "answer":
            answered = steps.get(str(event.data.get("question_id")))
            if answered is not None and answered.state == "waiting":
                answered.state = "answered"  # and nobody has gone on with that yet
    return list(steps.values())


def _note(steps: dict[str, StepView], event: RunEvent) -> None:
    """Take down what an event says of its step."""
    ref = event.step
    assert ref is not None
    kind = event.type
    if not kind.startswith(("step.", "attempt.")):
        return
    step = steps.get(ref.key)
    if step is None or kind == "step.started":
        step = steps[ref.key] = StepView(ref.key, ref.node, ref.scope, ref.round, "pending")
    if kind == "step.started":
        step.state, step.started, step.attempts = "running", event.time, 1
    elif kind == "attempt.failed":
        step.attempts = max(step.attempts, ref.attempt)
    elif kind == "step.waiting":
        until = event.data.get("until")
        step.state, step.question, step.until = "waiting", event.data.get("question"), until and str(until)
    elif kind in _ENDS:
        step.state, step.ended = _ENDS[kind], event.time
        step.attempts = 0 if kind == "step.skipped" else max(step.attempts, ref.attempt)
        step.error = _error_text(event.data.get("error"))


def _error_text(error: Any) -> str | None:
    if not isinstance(error, dict):
        return None
    return f"{error.get('type')}: {error.get('message')}"
