"""One run under the orchestrator: opened, asked for result after result, and closed in every ending."""

from __future__ import annotations

import copy
import logging
import math
import sys
from contextlib import nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import anyio

from graphrt.agent.turn import tracing
from graphrt.errors import RunCancelledError, RunControlError
from graphrt.ledger.requests import TERMINAL_TYPES
from graphrt.ledger.status import AgentRunStatus
from graphrt.platform.driving import END, Bell, RunnerTask
from graphrt.platform.journal import RunJournal
from graphrt.platform.patience import Patience
from graphrt.platform.resources import resources_of
from graphrt.platform.results import AgentRunResult, ResultType
from graphrt.platform.runner import AgentRunContext

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager
    from datetime import datetime

    from graphrt.ledger.records import AgentRun
    from graphrt.platform.binding import AgentBinding
    from graphrt.platform.envelope import EventEnvelope
    from graphrt.platform.orchestrator import AgentRunOrchestrator
    from graphrt.telemetry.spans import CurrentSpan

log = logging.getLogger("graphrt.platform")

_S = AgentRunStatus
_TOLD: Final = frozenset({_S.TIMEOUT, _S.CANCELLED})
"""How a run may end besides, when the data of its `run.failed` name it as `status`."""


class OrchestratedRun:
    """What the orchestrator knows of one run in progress."""

    def __init__(
        self,
        orchestrator: AgentRunOrchestrator,
        event: EventEnvelope,
        binding: AgentBinding,
        *,
        run_id: str,
        deadline_at: datetime | None,
        claim_token: str | None,
    ) -> None:
        self.binding = binding
        self._home = orchestrator
        self._control = orchestrator.control
        self._event = event
        self._run_id = run_id
        self._deadline_at = deadline_at
        self._ends = math.inf
        self._token = claim_token
        self._bell = Bell()
        self._asked_to_cancel = False
        self._unwatch: Callable[[], None] | None = None
        self._patience = Patience(run_id)
        self._journal: RunJournal
        self._task: RunnerTask | None = None
        self._stopped = False
        self._span: CurrentSpan | None = None
        self._asked = False
        self._error: Exception | None = None
        self._ending: tuple[_S, str | None] | None = None
        self._closed_in_ledger = False

    # ------------------------------------------------------------ beginning

    async def open(self) -> None:
        """Write the run down, and make all ready; the runner is not asked for anything yet.

        Raises:
            RunControlError: The run cannot be written down or taken up, or there is no such runner.
        """
        control, binding = self._control, self.binding
        runner = self._home.runners.get(binding.runner_id)
        request = binding.run_request(
            self._event,
            declares=getattr(runner, "declares", None),
            run_id=self._run_id,
            deadline_at=self._deadline_at,
        )
        made = await self._patience.call(lambda: control.create_run(request))
        run = made.run
        if not made.created:
            self._check_taken_up(run)
        if runner is None:
            raise RunControlError(
                "not_found",
                f"there is no runner {binding.runner_id!r}, which binding {binding.binding_id!r} names",
                hint=f"runners: {', '.join(self._home.runners) or 'none'}",
            )
        self._unwatch = control.watch_cancel(self._run_id, self._cancel_asked)
        self._journal = RunJournal(control, run, claim_token=self._token)
        if not made.created:
            await self._patience.call(self._journal.open)
        if run.deadline_at is not None:
            self._deadline_at = min(run.deadline_at, self._deadline_at or run.deadline_at)
        if self._deadline_at is not None:
            self._ends = anyio.current_time() + (self._deadline_at - control.clock.now()).total_seconds()
        context = await self._patience.call(lambda: self._context(run))
        await self._patience.call(lambda: control.start_run(self._run_id, claim_token=self._token))
        name = f"runner {binding.runner_id} of {self._run_id}"
        self._task = RunnerTask(lambda: runner.run(self._traced(context)), self._bell, name, around=self._open_span())

    def _check_taken_up(self, run: AgentRun) -> None:
        """Refuse a run that somebody else has begun, or that is another runner's."""
        fresh = run.status in {_S.CREATED, _S.QUEUED} or (self._token is not None and not run.is_terminal)
        if not fresh or run.runner_id != self.binding.runner_id:
            self._closed_in_ledger = True  # it is not this one's to close
            raise RunControlError(
                "conflict",
                f"run {run.run_id!r} of runner {run.runner_id!r} is {run.status.value}, and cannot be begun here",
                details={"run_id": run.run_id, "status": run.status.value},
            )

    async def _context(self, run: AgentRun) -> AgentRunContext:
        event, binding, snapshot = self._event, self.binding, run.authorization
        said = await self._control.transcript.messages(
            conversation_id=run.conversation_id,
            thread_id=run.thread_id,
            run_id=run.run_id if run.conversation_id is None else None,
            limit=2,
        )
        names = [allowed.partition(":")[0] for allowed in snapshot.state_scopes]
        state = {name: await self._control.read_state(run.run_id, name) for name in names}
        place = {name: getattr(run, name) for name in ("conversation_id", "thread_id", "workspace_id", "bot_id")}
        return AgentRunContext(
            run_id=run.run_id,
            trigger={"type": event.event_type, "source": event.source, "event_id": event.event_id},
            event=event,
            conversation={**place, "has_history": any(entry.run_id != run.run_id for entry in said)},
            actor=event.actor,
            subject=event.subject,
            input=copy.deepcopy(dict(event.input)),
            delivery=dict(event.delivery or binding.delivery),
            resources=resources_of(snapshot),
            state={scope: {key: entry.value for key, entry in values.items()} for scope, values in state.items()},
            config=copy.deepcopy(dict(binding.config)),
            metadata=copy.deepcopy(dict(event.metadata)),
            deadline_at=self._deadline_at,
            asks_to_cancel=lambda: self._asked_to_cancel,
        )

    def _open_span(self) -> AbstractContextManager[Any]:
        telemetry = tracing(self._home.telemetry)
        if telemetry is None:
            return nullcontext()
        binding = self.binding
        self._span = telemetry.turn(
            binding.agent_id or binding.runner_id,
            session_id=self._event.conversation_id,
            agent_id=binding.agent_id,
            user_input=dict(self._event.input) or None,
        )
        return self._span

    def _traced(self, context: AgentRunContext) -> AgentRunContext:
        """Write into the context to which trace the run belongs; called inside its span."""
        if self._span is None:
            return context
        from opentelemetry import trace

        from graphrt.telemetry import conventions as names

        self._span.set(names.RUN_ID, self._run_id)
        here = trace.get_current_span().get_span_context()
        return replace(context, trace_id=trace.format_trace_id(here.trace_id)) if here.is_valid else context

    # ------------------------------------------------------------ results

    async def next(self) -> AgentRunResult | None:
        """Give the next result that was stored; None when the run is over."""
        while self._ending is None and not await self._looks_over():
            reply = await self._reply()
            if reply is None:
                return await self._cut_short()
            self._asked = False
            (said,) = reply
            if said is END:
                if not await self._is_over():  # one that saw the request to cancel, and left
                    self._ending = (_S.COMPLETED, None)
            elif isinstance(said, BaseException):
                return await self._failed(said)
            elif (stored := await self._record(said)) is not None:
                return stored
        return None

    async def _record(self, said: Any) -> AgentRunResult | None:
        """Write down what the runner has said; None when that was dropped, or the run has been closed."""
        try:
            stored = await self._patience.call(lambda: self._journal.record(said))
        except RunControlError as error:
            if error.code == "conflict" and await self._is_over():
                return None
            raise
        if stored is not None and stored.type in TERMINAL_TYPES:
            self._ending = _ending(stored)
            await self._finish()
        return stored

    async def _reply(self) -> tuple[Any] | None:
        """Wait for what the runner says next; None when its time is over, or it is to be cancelled."""
        task = self._task
        assert task is not None
        while True:
            out_of_time = self._seconds_left() <= 0
            if task.reply is not None and self._asked:
                return task.reply
            if out_of_time or self._asked_to_cancel:
                return None
            if not self._asked:
                self._asked = True
                task.ask()
            await self._bell.wait(min(self._seconds_left(), self._home.poll_seconds))
            if task.reply is None and await self._looks_over():
                return None

    def _seconds_left(self) -> float:
        if self._deadline_at is None:
            return math.inf
        by_clock = (self._deadline_at - self._control.clock.now()).total_seconds()
        return min(by_clock, self._ends - anyio.current_time())

    async def _is_over(self) -> bool:
        """Whether the ledger says that the run is to be cancelled, or that somebody has closed it."""
        return self._tells_of_end(await self._patience.call(lambda: self._control.get_run(self._run_id)))

    async def _looks_over(self) -> bool:
        """As `_is_over`, and False while the ledger cannot be asked: the next look may find out."""
        run = await self._patience.poll(lambda: self._control.get_run(self._run_id))
        return run is not None and self._tells_of_end(run)

    def _tells_of_end(self, run: AgentRun) -> bool:
        if run.is_terminal:
            log.warning("run %r was closed as %s while its runner was at work", self._run_id, run.status.value)
            self._ending, self._closed_in_ledger = (run.status, run.status_reason), True
            return True
        if run.cancel_requested_at is not None:
            self._asked_to_cancel = True
            self._ending = (_S.CANCELLED, run.cancel_reason or "it was asked to be cancelled")
        return self._ending is not None

    async def _cut_short(self) -> AgentRunResult | None:
        """End a run whose time is over, or that was cancelled while its runner was at work."""
        if self._ending is None and self._asked_to_cancel and await self._is_over():
            return None
        if self._ending is not None:
            return None
        error = f"the deadline, {self._deadline_at}, has passed"
        return await self._told_by_host(_S.TIMEOUT, error, code="deadline_exceeded", retryable=True)

    async def _failed(self, error: BaseException) -> AgentRunResult | None:
        """End a run whose runner has raised."""
        if not isinstance(error, Exception):
            raise error
        if isinstance(error, RunCancelledError) and self._asked_to_cancel and await self._is_over():
            return None
        self._error = error
        log.error("runner %r of run %r failed", self.binding.runner_id, self._run_id, exc_info=error)
        verdict = getattr(error, "is_recoverable", None)
        text = f"{type(error).__name__}: {error}"
        return await self._told_by_host(
            _S.FAILED, text, code="runtime_error", retryable=bool(verdict()) if callable(verdict) else False
        )

    async def _told_by_host(self, status: _S, error: str, *, code: str, retryable: bool) -> AgentRunResult | None:
        self._ending = (status, error)
        await self._stop_runner()
        data = {"error": error, "code": code, "retryable": retryable}
        result = AgentRunResult(self._run_id, ResultType.RUN_FAILED, data)
        stored = await self._patience.call(lambda: self._journal.record(result, source="host"))
        await self._finish()
        return stored

    # ------------------------------------------------------------ ending

    def ends_as(self, status: AgentRunStatus, reason: str) -> None:
        """Say how the run ends, unless it has ended already."""
        if self._ending is None or status is _S.FAILED:
            self._ending = (status, reason)

    async def close(self) -> None:
        """Stop the runner, and close the run in the ledger.

        Raises:
            RunControlError: The ledger does not take it, and there is no other error on its way.
        """
        with anyio.CancelScope(shield=True):
            if self._unwatch is not None:
                self._unwatch()
            await self._stop_runner()
            await self._finish()

    async def _stop_runner(self) -> None:
        """Stop the runner, once: one that is left alone is not waited for again."""
        task = self._task
        if task is None or self._stopped:
            return
        self._mark_span()
        if not await task.close(self._home.close_seconds):
            log.warning(
                "runner %r of run %r has not cleaned up within %g s, and is left alone",
                self.binding.runner_id,
                self._run_id,
                self._home.close_seconds,
            )
        self._stopped = True

    async def _finish(self) -> None:
        """Close the run in the ledger, unless that has been done; what fails is tried again by the next call."""
        if self._closed_in_ledger:
            return
        status, reason = self._ending or (_S.CANCELLED, None)
        in_flight = sys.exc_info()[1]
        try:
            await self._patience.call(
                lambda: self._control.finalize_run(self._run_id, status, reason, claim_token=self._token)
            )
        except RunControlError as error:
            if error.code == "not_found" and self._task is None:
                return  # it was never written down
            if in_flight is None:
                raise
            log.exception("run %r cannot be closed as %s", self._run_id, status.value)
        else:
            self._closed_in_ledger = True

    def _mark_span(self) -> None:
        """Say in the run's span how it ended, before its task closes it."""
        if self._span is None or self._ending is None:
            return
        from graphrt.telemetry import conventions as names

        status, reason = self._ending
        self._span.set(names.RUN_STATUS, status.value)
        if status in {_S.FAILED, _S.TIMEOUT}:
            self._span.failed(self._error or RunControlError("runtime_error", reason or ""))

    def _cancel_asked(self) -> None:
        self._asked_to_cancel = True
        self._bell.ring_from_anywhere()


def _ending(last: AgentRunResult) -> tuple[_S, str | None]:
    """Say how a run ends after its last result."""
    data = last.data
    if last.type == ResultType.RUN_COMPLETED:
        reason = data.get("finish_reason")
        return _S.COMPLETED, reason if isinstance(reason, str) and reason.startswith("stopped:") else None
    status = next((each for each in _TOLD if each == data.get("status")), _S.FAILED)
    return status, str(data.get("error") or data.get("code") or "the runner gave no reason")
