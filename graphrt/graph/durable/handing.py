"""A stretch of work that a worker does, and can hand back to the queue."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import anyio

from graphrt.graph.durable.work import Stretch
from graphrt.graph.scheduler.result import annotate
from graphrt.graph.states import NodeState
from graphrt.ledger.records import RunChange
from graphrt.ledger.status import AgentRunStatus

if TYPE_CHECKING:
    from collections.abc import Mapping

    from graphrt.graph.durable.past import Past
    from graphrt.graph.durable.work import Ledger
    from graphrt.graph.graph import CompiledGraph
    from graphrt.graph.states import RunStatus
    from graphrt.ledger.records import Claim

_LOOK_SECONDS: Final = 0.02


class QueuedStretch(Stretch):
    """What a worker does of a run, until the run ends or waits, or is handed back.

    Where it cannot be stored how the run stands, the claim is left to the worker, which counts that as a failure.
    """

    def __init__(
        self, graph: CompiledGraph, ledger: Ledger, claim: Claim, options: Mapping[str, Any], past: Past | None = None
    ) -> None:
        """Take what `Stretch` takes."""
        super().__init__(graph, ledger, claim, options, past)
        self.handed_back = False
        """Whether the run has gone back to the queue: what was done of it is stored."""
        self._scope = anyio.CancelScope()

    async def work(self, value: Any = None) -> None:
        """Run to the end, or until the run is handed back; see `Stretch.work`."""
        with self._scope:
            await super().work(value)

    async def hand_back(self, grace_seconds: float) -> None:
        """Start no further step; when those at work have ended, or the grace is over, give the run back."""
        self.scheduler.gate = anyio.Event().wait
        with anyio.move_on_after(grace_seconds):
            while self._is_at_work():  # noqa: ASYNC110 - nobody is told when a step ends, and this is soon over
                await anyio.sleep(_LOOK_SECONDS)
        self.leave()

    def leave(self) -> None:
        """Give the run back now; steps that are at work are cancelled, and start again where it goes on.

        Nothing of that is in its events: the run itself has not been cancelled.
        """
        if self.scheduler.core.outcome is None and self.recorder.error is None:
            self.handed_back = True
            self.scheduler.core.recorder = None
            self._scope.cancel()

    def _is_at_work(self) -> bool:
        run = self.scheduler
        held_back = {source.source for source, _ in run.sources}  # they wait for room, which no item makes any more
        live = run.live_steps() if run.core.outcome is None else []
        return any(step.state is NodeState.RUNNING and step not in held_back for step in live)

    async def _store_end(self) -> None:
        outcome = self.scheduler.core.outcome
        if outcome is not None:
            annotate(self.scheduler)
            await self._end(outcome.status, outcome.error)
        self._ending = True

    async def _end(self, ended: RunStatus, error: BaseException | None) -> None:
        if not self.handed_back:
            return await super()._end(ended, error)
        self._ending = True
        await self.recorder.end(RunChange(status=AgentRunStatus.QUEUED, release=True))
        return None
