"""What the core tells its readers: numbered events, and an observer that makes spans of them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from graphrt.graph.protocols import NodeKind, RunEvent

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from graphrt.graph.core.records import Frame, MapRun, Scope, Step
    from graphrt.graph.state import Update


class Telling:
    """The telling half of a run's core. Without a reader nothing is made and nothing is numbered."""

    def __init__(self, run_id: str, sink: Callable[[RunEvent], None] | None, observer: Any) -> None:
        self.run_id = run_id
        self.sink = sink
        self.observer = observer
        self.recorder: Callable[[RunEvent, Step | None], None] | None = None
        """Told of each numbered event, with its step, before the reader is; only where there is a reader."""
        self.now = 0.0
        self.sequence = 0
        self.held: list[tuple[RunEvent, Step | None]] = []
        """Events that a run which goes on has made already, and tells next."""
        self.steps: list[Step] = []
        """Every step that has started or was passed over, in that order."""
        self.rounds = 0
        """Most rounds that one activation of a cycle of the run's own graph has started."""
        self.streamed: dict[Step, list[str]] = {}
        """Pieces of text that live steps have streamed."""

    def note(self, kind: str, step: Step | None, data: Mapping[str, Any], now: float) -> None:
        """Record something that happened and decides nothing, such as a tool call or a custom event."""
        self.now = now
        if self.sink is not None:
            self.emit(kind, step, data)

    def note_text(self, step: Step, chunk: str, now: float) -> None:
        """Record a piece of streamed text: it has no number of its own, and is kept until its step ends."""
        self.now = now
        if self.sink is None:
            return
        pieces = self.streamed.setdefault(step, [])
        pieces.append(chunk)
        data = {"text": chunk, "index": len(pieces) - 1}
        self.sink(RunEvent("message.delta", self.run_id, self.sequence, step.ref, data, now))

    def attempt_failed(self, step: Step, data: Mapping[str, Any], now: float) -> None:
        """Record an attempt after which another follows, or a fallback; what it had streamed is no part of that."""
        self.now = now
        if self.sink is not None:
            pieces = self.streamed.pop(step, None)
            self.emit("attempt.failed", step, data if pieces is None else {**data, "partial": "".join(pieces)})

    def record_skip(self, step: Step) -> None:
        """Record a step that was passed over."""
        step.ended = self.now
        self.steps.append(step)
        if self.sink is not None:
            self.emit("step.skipped", step, {"reason": step.note} if step.note else {})

    def step_ended(self, kind: str, step: Step, data: Mapping[str, Any] | None = None) -> None:
        """Tell readers that a step has ended without a value."""
        if self.observer is not None:
            self.observer.step_ended(step)
        if self.sink is not None:
            data = dict(data or {})
            if step in self.streamed:
                data["partial"] = "".join(self.streamed.pop(step))
            self.emit(kind, step, data)

    def round_started(self, frame: Frame) -> None:
        """Tell readers that a round has started."""
        number = frame.round[-1]
        if frame.scope.holder is None and number > self.rounds:
            self.rounds = number
        if self.observer is not None:
            self.observer.round_started(frame)
        if self.sink is not None:
            self.emit("round.started", None, self._round_data(frame))

    def round_completed(self, frame: Frame) -> None:
        """Tell readers that a round is complete, or has been cut short."""
        if self.observer is not None:
            self.observer.round_completed(frame)
        if self.sink is not None:
            self.emit("round.completed", None, self._round_data(frame))

    def item_opened(self, run: MapRun, scope: Scope, value: Any) -> None:
        """Tell readers that an item's scope has opened."""
        if self.sink is not None:
            data = {"map": run.map.tag, "index": scope.index, "scope": scope.path}
            if run.map.lazy:
                data["value"] = value
            self.emit("map.item", run.source, data)

    def step_completed(self, step: Step, taken: Sequence[bool] | None, update: Update[Any] | None, output: Any) -> None:
        """Tell readers that a step has succeeded, and what the core needs to repeat that."""
        if self.observer is not None:
            self.observer.step_ended(step)
        if self.sink is not None:
            data: dict[str, Any] = {"output": output}
            if taken is not None:
                data["taken"] = [e.index for e, t in zip(step.node.out, taken, strict=True) if t]
            if update is not None:
                data["update"] = update.fields
            if step in self.streamed:
                data["text"] = "".join(self.streamed.pop(step))
            self.emit("step.completed", step, data)

    def _round_data(self, frame: Frame) -> dict[str, Any]:
        assert frame.cycle is not None
        return {"cycle": frame.cycle.header.name, "round": frame.round[-1], "scope": frame.scope.path}

    def emit(self, kind: str, step: Step | None, data: Mapping[str, Any]) -> None:
        """Give an event its number and hand it to the reader, who must be there."""
        self.sequence += 1
        ref = step.ref if step is not None and step.node.kind is not NodeKind.START else None
        self._tell(RunEvent(kind, self.run_id, self.sequence, ref, data, self.now), step)

    def tell_again(self, event: RunEvent, step: Step | None) -> None:
        """Hand on an event that was made before, with the next number."""
        self.sequence += 1
        self._tell(replace(event, sequence=self.sequence), step)

    def _tell(self, event: RunEvent, step: Step | None) -> None:
        assert self.sink is not None
        if self.recorder is not None:
            self.recorder(event, step)
        self.sink(event)
