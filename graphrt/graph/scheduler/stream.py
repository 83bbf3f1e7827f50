"""A run that is watched: its events one by one, its answers, its cancellation (E17)."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol, Self

import anyio
import anyio.lowlevel

from graphrt.errors import GraphError, RunControlError
from graphrt.graph.scheduler.result import RunResult, annotate
from graphrt.graph.states import RunStatus

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from anyio.abc import TaskGroup

    from graphrt.graph.protocols import Question, RunEvent, StepRef
    from graphrt.graph.scheduler.run import GraphScheduler

BUFFER = 1024
"""Events that wait for a reader at most; beyond it a slow reader slows the run."""

CancelMode = Literal["now", "after_step", "after_round"]


class Working(Protocol):
    """A run that more belongs to than its scheduler, such as one that is stored."""

    scheduler: GraphScheduler

    def work(self, value: Any) -> Awaitable[None]:
        """Run to the end."""
        ...


@dataclass(frozen=True, slots=True)
class CancelAnswer:
    """What a cancel did."""

    outcome: Literal["cancelled", "already_finished", "stopping"]
    status: RunStatus
    steps: tuple[StepRef, ...] = ()
    """Steps that still clean up, when the outcome is `stopping`."""


def guarded(on_event: Callable[[RunEvent], Any] | None) -> Callable[[RunEvent], None] | None:
    """Let a reader's mistakes stay its own: what *on_event* raises is logged, and the run goes on."""
    if on_event is None:
        return None

    def tell(event: RunEvent) -> None:
        try:
            on_event(event)
        except Exception:
            import logging

            logging.getLogger("graphrt.run").exception("on_event failed on event %s (%s)", event.sequence, event.type)

    return tell


class RunStream:
    """One run, watched from inside `async with`. Leaving the block early cancels the run and waits for it."""

    def __init__(
        self,
        begin: Callable[[Callable[[RunEvent], None] | None], GraphScheduler | Awaitable[Working]],
        value: Any,
        *,
        check: bool = True,
        on_event: Callable[[RunEvent], None] | None = None,
        events: bool = True,
    ) -> None:
        self._begin = begin
        self._value = value
        self._check = check
        self._on_event = on_event
        self._with_events = events
        self._events: deque[RunEvent] = deque()
        self._arrived: anyio.Event | None = None
        self._room: anyio.Event | None = None
        self._reading = False
        self._read = False
        self._seen = False
        self._ended = False
        self._interrupt: BaseException | None = None
        self._run: GraphScheduler | None = None
        self._work: Callable[[Any], Awaitable[None]]
        self._over: anyio.Event
        self._tasks: TaskGroup | None = None
        self.dropped = 0
        """Oldest events given up because nobody had begun to read when the buffer was full."""

    async def __aenter__(self) -> Self:
        """Start the run."""
        if self._run is not None:
            raise GraphError("this stream has been entered before", hint="call stream() again for a new run")
        begun = self._begin(self._put if self._with_events else self._on_event)
        if isinstance(begun, Awaitable):
            working = await begun
            self._run, self._work = working.scheduler, working.work
        else:
            self._run, self._work = begun, begun.run
        self._run.gate = self._gate
        self._over = anyio.Event()
        self._tasks = anyio.create_task_group()
        await self._tasks.__aenter__()
        self._tasks.start_soon(self._drive)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Cancel the run if it is still going, wait for it, and raise its error if nobody has read it."""
        assert self._tasks is not None
        self._reading = False
        self._open_gate()
        if not self._ended:
            self._seen = self._seen or error is None
            self._scheduler.cancel()
        await self._tasks.__aexit__(None, None, None)
        if error is None:
            if self._interrupt is not None:
                raise self._interrupt
            if not self._seen:
                self._raise()

    async def _drive(self) -> None:
        run = self._scheduler
        try:
            await self._work(self._value)
        except RunControlError as error:  # the end of a stored run could not be stored
            self._interrupt = error
        finally:
            self._ended = True
            annotate(run)
            outcome = run.core.outcome
            if outcome is not None and outcome.error is not None and not isinstance(outcome.error, Exception):
                self._interrupt = outcome.error
            self._wake()
            self._over.set()

    @property
    def _scheduler(self) -> GraphScheduler:
        if self._run is None:
            raise self._not_started()
        return self._run

    @staticmethod
    def _not_started() -> GraphError:
        return GraphError("the run has not started", hint="use it inside: async with graph.stream(...) as run")

    # ------------------------------------------------------------ events

    def _put(self, event: RunEvent) -> None:
        if self._on_event is not None:
            self._on_event(event)
        if len(self._events) >= BUFFER and not self._reading:
            self._events.popleft()
            self.dropped += 1
        self._events.append(event)
        self._wake()

    def _wake(self) -> None:
        if self._arrived is not None:
            self._arrived.set()

    def _gate(self) -> Any:
        if not self._reading or len(self._events) < BUFFER:
            return None
        if self._room is None:
            self._room = anyio.Event()
        return self._room.wait()

    def _open_gate(self) -> None:
        if self._room is not None:
            self._room.set()
            self._room = None

    def __aiter__(self) -> Self:
        """Read the events, once.

        Raises:
            GraphError: They are being read, or have been, or the run has not been started.
        """
        if self._run is None:
            raise self._not_started()
        if not self._with_events:
            raise GraphError("this run was started without events", hint="leave events=False out to read them")
        if self._read:
            raise GraphError(
                "the events of this run have a reader already",
                hint="a run has one reader: keep what it yields, or give on_event= a function",
            )
        self._read = self._reading = True
        return self

    async def __anext__(self) -> RunEvent:
        """Give the next event; ends normally however the run ends."""
        while not self._events:
            if self._ended:
                self._reading = False
                raise StopAsyncIteration
            self._arrived = anyio.Event()
            try:
                await self._arrived.wait()
            finally:
                self._arrived = None
        event = self._events.popleft()
        if self._room is not None and len(self._events) <= BUFFER // 2:
            self._open_gate()
        return event

    # ------------------------------------------------------------ result

    @property
    def result(self) -> RunResult:
        """The run's result.

        Raises:
            GraphError: The run has not ended.
            Exception: The run's own error, unless the stream was made with `check=False`.
        """
        if self._run is None:
            raise self._not_started()
        if not self._ended:
            raise GraphError("the run has not ended", hint="read its events to the end, or await run.wait()")
        self._seen = True
        self._raise()
        return RunResult(self._scheduler)

    def _raise(self) -> None:
        if isinstance(self._interrupt, RunControlError):
            raise self._interrupt
        outcome = self._scheduler.core.outcome
        error = outcome.error if outcome is not None else None
        if error is not None and (self._check or not isinstance(error, Exception)):
            raise error

    async def wait(self) -> RunResult:
        """Wait for the end without reading the events, and give the result; raises as `result`."""
        run = self._scheduler
        self._reading = False
        self._open_gate()
        await self._over.wait()
        self._seen = True
        self._raise()
        return RunResult(run)

    @property
    def run_id(self) -> str:
        """The run's id."""
        return self._scheduler.run_id

    @property
    def questions(self) -> list[Question]:
        """Questions that wait for a person."""
        return list(self._scheduler.core.questions.values())

    async def answer(self, question_id: str, value: Any) -> None:
        """Answer a question. One that is not open yet is kept for it; one that is closed is ignored.

        Raises:
            GraphTypeError: The answer does not fit the question, which stays open.
        """
        question = self._scheduler.core.questions.get(question_id)
        if question is not None and question.check is not None:
            question.check(value)
        self._scheduler.answer(question_id, value)
        await anyio.lowlevel.checkpoint()

    async def cancel(self, mode: CancelMode = "now", wait: float = 5.0) -> CancelAnswer:
        """Cancel the run, and say within *wait* seconds what that did.

        `"now"` cancels what is live; `"after_step"` lets the steps at work end and starts no other;
        `"after_round"` lets the rounds in progress end and starts no further one.
        """
        run = self._scheduler
        if run.core.outcome is not None:
            return CancelAnswer("already_finished", run.core.outcome.status)
        if mode == "now":
            run.cancel()
        elif mode == "after_step":
            run.cancel_after_steps()
        elif mode == "after_round":
            run.cancel_after_round()
        else:
            raise GraphError(f"there is no cancel mode {mode!r}", hint="give 'now', 'after_step' or 'after_round'")
        self._reading = False
        self._open_gate()
        with anyio.move_on_after(wait):
            await self._over.wait()
        outcome = run.core.outcome
        if outcome is None:
            return CancelAnswer("stopping", RunStatus.RUNNING, tuple(s.ref for s in run.live_steps()))
        if outcome.status is RunStatus.CANCELLED:
            return CancelAnswer("cancelled", outcome.status)
        return CancelAnswer("already_finished", outcome.status)
