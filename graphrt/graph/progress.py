"""How far a run is, worked out from its events: live ones or stored ones, without its graph."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from graphrt.messages import TokenUsage

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from graphrt.graph.protocols import RunEvent

_STEP_ENDS: Final[Mapping[str, str]] = {
    "step.completed": "succeeded",
    "step.failed": "failed",
    "step.timed_out": "timed_out",
    "step.cancelled": "cancelled",
    "step.skipped": "skipped",
}
_RUN_STATES: Final[Mapping[str, str]] = {
    "run.started": "running",
    "run.resumed": "running",
    "run.waiting": "waiting",
    "run.completed": "succeeded",
    "run.failed": "failed",
    "run.stopped": "stopped",
    "run.cancelled": "cancelled",
    "run.timed_out": "timed_out",
}
_TEXT_KEPT: Final = 4_000
"""Characters of streamed text that are kept for a step: its end is what people look at."""


@dataclass(slots=True, eq=False)
class StepProgress:
    """One step, as far as the events tell. Times are seconds since the epoch."""

    id: str
    node: str
    scope: str
    round: int
    state: str = "pending"
    attempts: int = 0
    started: float | None = None
    ended: float | None = None
    error: str | None = None
    question: Any = None
    """What it asks, while it waits for an answer."""
    until: str | None = None
    """The time that it waits for, if it waits for one."""
    usage: TokenUsage | None = None
    """Tokens that the replies of its models took; None when none was told."""
    text: str = ""
    """The end of what it has streamed in the attempt at hand, or in its last one."""
    detail: str = ""
    """What it is doing, in a few words, such as a tool that it calls."""

    @property
    def seconds(self) -> float | None:
        """How long it took, waiting included; None while it goes on."""
        return None if self.started is None or self.ended is None else self.ended - self.started


@dataclass(slots=True, eq=False)
class RunProgress:
    """What the events of a run tell, one at a time and in their order; `update` takes them.

    Attributes:
        steps: By id, in the order in which they started or were passed over.
        status: In one word; "pending" before the first event.
        usage: Tokens of all replies; None when none was told.
        events: How many were taken in.
    """

    run_id: str = ""
    graph: str = ""
    status: str = "pending"
    started: float | None = None
    ended: float | None = None
    output: Any = None
    """None unless it has ended well."""
    error: str | None = None
    usage: TokenUsage | None = None
    events: int = 0
    steps: dict[str, StepProgress] = field(default_factory=dict)

    @property
    def questions(self) -> list[StepProgress]:
        """The steps that wait for an answer."""
        return [step for step in self.steps.values() if step.state == "waiting" and step.until is None]

    def update(self, event: RunEvent) -> StepProgress | None:
        """Take in the next event, and give the step that it is about, if it is about one."""
        self.events += 1
        self.run_id = event.run_id
        if event.type in _RUN_STATES:
            self._run(event)
        elif event.type == "action.requested" and event.data.get("request") == "answer":
            return self._answered(event)
        elif event.step is not None:
            return self._step(event)
        return None

    def update_all(self, events: Iterable[RunEvent]) -> RunProgress:
        """Take in several events, and give this object."""
        for event in events:
            self.update(event)
        return self

    def _run(self, event: RunEvent) -> None:
        self.status = _RUN_STATES[event.type]
        data = event.data
        if event.type == "run.started":
            self.started, self.graph = event.time, str(data.get("graph", ""))
        elif event.type == "run.resumed":
            self.ended = self.error = None
            for step in self.steps.values():
                if step.state == "running":
                    step.state, step.started, step.attempts, step.text = "pending", None, 0, ""
        elif event.type != "run.waiting":
            self.ended, self.output, self.error = event.time, data.get("output"), error_text(data.get("error"))

    def _answered(self, event: RunEvent) -> StepProgress | None:
        step = self.steps.get(str(event.data.get("question_id")))
        if step is not None and step.state == "waiting":
            step.state = "answered"  # and nobody has gone on with that yet
        return step

    def _step(self, event: RunEvent) -> StepProgress | None:
        """Take down what an event says of its step."""
        ref, kind, data = event.step, event.type, event.data
        assert ref is not None
        step = self.steps.get(ref.key)
        if kind == "step.started":
            step = self.steps[ref.key] = StepProgress(ref.key, ref.node, ref.scope, ref.round, "running", 1, event.time)
        elif kind in _STEP_ENDS:
            if step is None:  # it was passed over
                step = self.steps[ref.key] = StepProgress(ref.key, ref.node, ref.scope, ref.round)
            step.state, step.ended = _STEP_ENDS[kind], event.time
            step.attempts = 0 if step.started is None else max(step.attempts, ref.attempt)
            step.error, step.detail = error_text(data.get("error")), ""
        elif step is None:
            return None
        elif kind == "attempt.failed":
            step.attempts, step.text = max(step.attempts, ref.attempt), ""
            step.detail = f"tries again after {error_text(data.get('error'))}"
        elif kind == "step.waiting":
            until = data.get("until")
            step.state, step.question, step.until = "waiting", data.get("question"), until and str(until)
        else:
            self._within(step, kind, data)
        return step

    def _within(self, step: StepProgress, kind: str, data: Mapping[str, Any]) -> None:
        """Take down what happens inside a step."""
        if kind == "message.delta":
            step.text = f"{step.text}{data.get('text', '')}"[-_TEXT_KEPT:]
        elif kind == "message.completed" and (used := data.get("usage")):
            usage = used if isinstance(used, TokenUsage) else TokenUsage.model_validate(dict(used))
            step.usage = usage if step.usage is None else step.usage + usage
            self.usage = usage if self.usage is None else self.usage + usage
        elif kind == "tool.call.started":
            step.detail = f"calls {data.get('tool_name')}"


def error_text(error: Any) -> str | None:
    """Give an error of an event in a line: live events hold exceptions, stored ones their names and messages."""
    if error is None:
        return None
    if isinstance(error, BaseException):
        try:
            return f"{type(error).__name__}: {error}"
        except Exception:  # noqa: BLE001 - a class of the user's, whose text may fail as well
            return type(error).__name__
    if isinstance(error, dict):
        return f"{error.get('type')}: {error.get('message')}"
    return str(error)
