"""Steps of a run that wait, for a person or for a time: what is asked, what was answered, what is due."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from graphrt.graph.core.telling import Telling
from graphrt.graph.protocols import Question, RunEvent
from graphrt.graph.states import NodeState, check_move

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from graphrt.graph.core.records import Step

_RUNNING = NodeState.RUNNING
_WAITING = NodeState.WAITING


class Waiting(Telling):
    """The waiting half of a run's core."""

    def __init__(self, run_id: str, sink: Callable[[RunEvent], None] | None, observer: Any) -> None:
        super().__init__(run_id, sink, observer)
        self.active = 0
        """Steps that are ready or at work; steps that wait for a person or a time, or hold a graph, are not."""
        self.waiting = 0
        self.questions: dict[str, Question] = {}
        self.early_answers: dict[str, Any] = {}
        self.asked: dict[str, Step] = {}
        """Steps that wait, by the id of their question."""
        self.timers: dict[Step, datetime] = {}
        """Steps that wait for a time, and the time, in UTC."""

    def step_waiting(self, step: Step, question: Any, now: float) -> bool:
        """Say that a step waits for a person; False when its answer was there before the question."""
        self._wait(step, now)
        key = step.key
        target = None if step.node.decl is None else step.node.decl.target
        check = getattr(target, "check_answer", None) or getattr(target, "accept", None)
        asked = Question(key, step.node.name, step.frame.scope.path, step.round, question, check)
        self.questions[key] = asked
        self.asked[key] = step
        if self.observer is not None:
            self.observer.step_waiting(step, question)
        if self.sink is not None:
            self.emit("step.waiting", step, {"question_id": key, "question": question})
        return key not in self.early_answers

    def answered(self, question_id: str, value: Any, now: float) -> Step | None:
        """Bring an answer; give the step that goes on with it, or None when the question is not open (yet).

        An answer that comes before its question is kept. The caller ends the step by `step_finished`.
        """
        step = self.asked.pop(question_id, None)
        if step is None or step.state is not _WAITING:
            self.early_answer(question_id, value, now)
            return None
        del self.questions[question_id]
        self.early_answers.pop(question_id, None)
        self._waited(step, now)
        return step

    def early_answer(self, question_id: str, value: Any, now: float) -> None:
        """Keep an answer whose question is not open yet; the last one counts."""
        self.now = now
        self.early_answers[question_id] = value
        if self.sink is not None:
            self.emit("action.requested", None, {"request": "answer", "question_id": question_id, "value": value})

    def step_waits_until(self, step: Step, until: datetime, now: float) -> None:
        """Say that a step waits for a time, aware and in UTC; `timer_fired` is to be called when it has come."""
        self._wait(step, now)
        self.timers[step] = until
        told = {"until": until.isoformat()}
        if self.observer is not None:
            self.observer.step_waiting(step, told)
        if self.sink is not None:
            self.emit("step.waiting", step, told)

    def timer_fired(self, step: Step, now: float) -> bool:
        """Say that a step's time has come; False when it does not wait any more. The caller then ends it."""
        if self.timers.pop(step, None) is None:
            return False
        self._waited(step, now)
        return True

    def _wait(self, step: Step, now: float) -> None:
        check_move(step, step.state, _WAITING)
        self.now = now
        step.state = _WAITING
        self.active -= 1
        self.waiting += 1

    def _waited(self, step: Step, now: float) -> None:
        self.now = now
        step.state = _RUNNING
        self.waiting -= 1
        self.active += 1

    def waits_no_more(self, step: Step) -> None:
        """Forget what a step waits for that ends otherwise."""
        self.waiting -= 1
        self.questions.pop(step.key, None)
        self.timers.pop(step, None)
