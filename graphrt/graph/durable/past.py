"""A run as far as its stored events tell it, and where it goes on."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from graphrt.errors import RecordedError, RunCancelledError
from graphrt.graph.core import ends
from graphrt.graph.core.replay import last_before_end, restore
from graphrt.graph.durable.stored import is_request, void_requests
from graphrt.graph.states import NodeState, RunStatus
from graphrt.ledger.status import AgentRunStatus

if TYPE_CHECKING:
    from collections.abc import Sequence

    from graphrt.graph.core.records import Slots, Step
    from graphrt.graph.core.run import RunCore
    from graphrt.graph.graph import CompiledGraph
    from graphrt.graph.protocols import RunEvent
    from graphrt.ledger.records import AgentRun

_FINAL = (RunStatus.SUCCEEDED, RunStatus.STOPPED)
_ENDED = frozenset({"step.completed", "action.requested"})


class Past:
    """What is stored of a run, and its core, which stands where the run goes on."""

    def __init__(
        self,
        graph: CompiledGraph,
        run_id: str,
        events: Sequence[RunEvent],
        *,
        limits: tuple[Slots, ...] = (),
        highest: int | None = None,
        reopen: bool = True,
    ) -> None:
        """Take the events that count, and the highest number stored; numbers go on after that.

        With *reopen* a run that has failed stands before its failure, else where it has ended.

        Raises:
            GraphChangedError: The graph does something else than the events say.
            GraphTypeError: It declares other types.
        """
        self.after: int | None = None
        """The last event that counts, when some do not any more."""
        self.made: list[tuple[RunEvent, Step | None]] = []
        """Events that follow from the stored ones and were not stored, with their steps."""
        self.ended: dict[str, RunEvent] = {}
        """Ends of steps that were stored after what counts, by their keys: those steps do not run again."""
        self.answers: dict[str, Any] = {}
        """Early answers that were stored there."""
        self._graph = graph
        self._run_id = run_id
        self._limits = limits
        last = events[-1].sequence if events else 0
        self.begun = bool(events)
        """Whether there is an event."""
        self.core: RunCore = self._restore(events)
        if reopen and self.core.root.dead and self.core.root.cause != "stopped":
            self._go_back(events)
        if not self.over:  # what follows from the last event is told after the run has been resumed
            self.core.sequence = last if highest is None else highest

    @property
    def over(self) -> bool:
        """Whether the run has ended, as far as the events say; one that waits has not."""
        return self.core.outcome is not None

    def _go_back(self, events: Sequence[RunEvent]) -> None:
        read = self._graph.event_codec().read
        after = last_before_end(self._graph.program, self._run_id, events, read=read)
        if not after:  # it failed as it began, and does so again
            return
        self.after = after
        for event in events:
            if event.sequence <= after or event.type not in _ENDED:
                continue
            if event.step is not None and event.type == "step.completed":
                self.ended[event.step.key] = event
            elif event.data.get("request") == "answer":
                self.answers[event.data["question_id"]] = event.data["value"]
        kept = [event for event in events if event.sequence <= after]
        void_requests(kept, [place for place, event in enumerate(kept) if is_request(event)])
        self.made.clear()
        self.core = self._restore(kept)

    def _restore(self, events: Sequence[RunEvent]) -> RunCore:
        return restore(
            self._graph.program,
            self._run_id,
            events,
            recorder=lambda event, step: self.made.append((event, step)),
            read=self._graph.event_codec().read,
            limits=self._limits,
        )


def close(core: RunCore, stored: AgentRun) -> None:
    """Let a restored run be as the ledger says that it ended, where its events do not say it."""
    now = stored.updated_at.timestamp()
    if stored.status is AgentRunStatus.WAITING:
        core.leave(now)
        return
    reason = stored.status_reason
    core.now = now
    if stored.status is AgentRunStatus.CANCELLED:
        core.cancel(RunCancelledError(reason=stored.cancel_reason or reason), now)
    elif stored.status is AgentRunStatus.TIMEOUT:
        core.cancel(TimeoutError(reason or f"run {stored.run_id!r} was out of time"), now, timed_out=True)
    else:
        kind, _, message = (reason or "").partition(": ")
        error = RecordedError(kind, message) if message else RecordedError("RunFailed", reason or "")
        ends.fail_scope(core, core.root, error, None, "failed")
    end_all(core, time.time())


def end_all(core: RunCore, now: float) -> None:
    """End every step that is being cancelled: nobody works on it."""
    while core.cancels:
        cancels, core.cancels = core.cancels, []
        for step in cancels:
            if step.state is NodeState.RUNNING:
                core.step_cancelled(step, now)
