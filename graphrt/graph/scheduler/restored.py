"""Going on with a run whose core was restored from stored events."""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphrt.errors import GraphTypeError
from graphrt.graph.core.replay import requeue
from graphrt.graph.scheduler import steps
from graphrt.graph.states import NodeState

if TYPE_CHECKING:
    from graphrt.graph.core.records import Step
    from graphrt.graph.scheduler.run import GraphScheduler


def go_on(run: GraphScheduler, now: float, *, late: bool) -> None:
    """Start again what was at work, ask again what is still open, and let clocks and timers go on.

    A run that is *late* is out of time and about to end so: answers are kept for the next one who resumes it.
    """
    core = run.core
    requeue(core, now, run.resumed)
    for step in core.steps:
        if step.state is not NodeState.RUNNING or step.child is None:
            continue
        limit = step.node.run.step_timeout
        if limit is not None:
            run.clocks.add(step, limit)
    for step, until in list(core.timers.items()):
        run.timers.add(step, until)
    if late:
        for question_id, answer in run.answers.items():
            core.early_answer(question_id, answer, now)
        return
    for question_id, answer in run.answers.items():
        if question_id not in core.asked:
            run.answer(question_id, answer)
        else:
            steps.take_answer(run, core.asked[question_id], answer)
    for question_id, step in list(core.asked.items()):
        if question_id in core.early_answers:
            steps.take_answer(run, step, core.early_answers[question_id])
        if step.state is NodeState.WAITING and run.on_ask is not None:
            steps.ask_again(run, step)


def ended_before(run: GraphScheduler, step: Step) -> bool:
    """End a step that has just started as it has ended before, if it has: it does not run again."""
    event = run.ended.pop(step.key, None)
    if event is None or run.durable is None or step.node.graph is not None or step.node.lazy:
        return False
    try:
        value = run.durable.load(event, step)
    except GraphTypeError:  # the graph has changed, and goes on all the same
        return False
    steps.finish(run, step, value)
    return True
