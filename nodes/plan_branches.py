"""The turns of a plan's steps that run side by side."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from graphrt.nodes.plan_order import TERMINAL, StepState

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from graphrt.graph.scheduler.resources import RunHandle
    from graphrt.messages import ChatResponse, Message
    from graphrt.nodes.plan import PlanWork
    from graphrt.nodes.plan_order import StepView


class Branches:
    """The turns of a plan with parallel steps, each in a branch of the session."""

    def __init__(self, work: PlanWork) -> None:
        """Take the plan, and note what the conversation is now."""
        self._work = work
        self._history = tuple(work.session.messages)
        self._offsets: dict[int, int] = {}
        """By step, the turns that count before its own."""
        self._counting: set[int] = set()
        """Steps whose turns have succeeded, are at work, or are about to begin."""
        self._turns: dict[int, tuple[Message, ...]] = {}

    async def turn(self, step: StepView) -> ChatResponse:
        """Carry out one turn; it knows of those before it."""
        order = self._work.order
        before = [self._turns[i] for i in order.steps if i in order.before[step.index] and i in self._turns]
        history = [*self._history, *(message for turn in before for message in turn)]
        branch = self._work.session.branch(self._offset(step), history)
        response = await branch.submit_turn(step.description)
        self._turns[step.index] = tuple(branch.messages[len(history) :])
        return response

    def _offset(self, step: StepView) -> int:
        """Count the turns before one that begins now; steps that begin with it have theirs in the plan's order."""
        steps = self._work.plan.steps
        failed = {each for each in self._counting if steps[each].status.state in (StepState.FAILED, StepState.SKIPPED)}
        self._counting -= failed
        for index in self._work.order.steps:
            if index not in self._offsets and _may_begin(steps[index], steps):
                self._offsets[index] = len(self._counting)
                self._counting.add(index)
            if index == step.index:
                break
        return min(self._offsets[step.index], len(self._counting) - 1)

    def absorb(self) -> None:
        """Give the session what the finished turns have added."""
        turns = [self._turns[index] for index in self._work.order.steps if index in self._turns]
        if turns:
            self._work.session.absorb(turns, len(turns))


def _may_begin(step: StepView, steps: Sequence[StepView]) -> bool:
    """Say whether a step has not ended, and all that it depends on is completed."""
    if step.status.state in TERMINAL:
        return False
    return all(steps[source].status.state is StepState.COMPLETED for source in step.depends_on or ())


@asynccontextmanager
async def opened(work: PlanWork, run: RunHandle) -> AsyncIterator[Branches]:
    """Open the branches of one run of a plan; the session gets their turns at the end."""
    branches = Branches(work)
    try:
        yield branches
    finally:
        branches.absorb()
