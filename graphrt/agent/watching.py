"""A turn or a run that is watched while it goes on."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Generic, Self, TypeAlias, TypeVar

import anyio
import anyio.lowlevel

from graphrt.errors import GraphError
from graphrt.graph.scheduler.stream import BUFFER

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from types import TracebackType

    from anyio.abc import TaskGroup

    from graphrt.agent.questions import Questions
    from graphrt.graph.protocols import Question, RunEvent
    from graphrt.graph.scheduler.result import RunResult
    from graphrt.messages import ChatResponse

T = TypeVar("T")

Tell: TypeAlias = "Callable[[RunEvent], None]"


class Watched(Generic[T]):
    """Something that goes on inside `async with`, and whose events are read meanwhile: `async for event in turn: ...`.

    Leaving the block early cancels it and waits for it. Its events end normally however it ends; an error that nobody
    has asked for is raised at the end of the block.
    """

    def __init__(self, begin: Callable[[Tell], Awaitable[T]], questions: Questions) -> None:
        """Take what is to be done, which is given a function to tell its events to; and where it asks a person."""
        self._begin = begin
        self._questions = questions
        self._events: deque[RunEvent] = deque()
        self.dropped = 0
        """Oldest events given up because nobody had begun to read when the buffer was full."""
        self._arrived: anyio.Event | None = None
        self._over: anyio.Event
        self._tasks: TaskGroup | None = None
        self._read = False
        self._waited = False
        self._ended = False
        self._seen = False
        self._value: list[T] = []
        self._error: Exception | None = None
        self._interrupt: BaseException | None = None

    async def __aenter__(self) -> Self:
        """Start it."""
        if self._tasks is not None:
            raise GraphError("this stream has been entered before", hint="make a new one")
        self._over = anyio.Event()
        self._tasks = anyio.create_task_group()
        await self._tasks.__aenter__()
        self._tasks.start_soon(self._drive)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Cancel it if it is still going, wait for it, and raise its error if nobody has asked for that."""
        assert self._tasks is not None
        left_early = not self._ended
        if left_early:
            self._tasks.cancel_scope.cancel()
        await self._tasks.__aexit__(None, None, None)
        if error is None:
            if self._interrupt is not None:
                raise self._interrupt
            if self._error is not None and not self._seen and not left_early:
                raise self._error

    async def _drive(self) -> None:
        try:
            self._value.append(await self._begin(self._tell))
        except (KeyboardInterrupt, SystemExit) as error:
            self._interrupt = error
        except Exception as error:  # noqa: BLE001 - raised to whoever asks for the outcome
            self._error = error
        finally:
            self._ended = True
            self._over.set()
            self._wake()

    def _tell(self, event: RunEvent) -> None:
        if self._waited:
            return
        if not self._read and len(self._events) >= BUFFER:
            self._events.popleft()
            self.dropped += 1
        self._events.append(event)
        self._wake()

    def _wake(self) -> None:
        if self._arrived is not None:
            self._arrived.set()

    # ------------------------------------------------------------ events

    def __aiter__(self) -> Self:
        """Read the events, once.

        Raises:
            GraphError: It has not been started, or its events have a reader already.
        """
        if self._tasks is None:
            raise self._not_started()
        if self._read:
            raise GraphError("the events have a reader already", hint="keep what it yields")
        self._read = True
        return self

    async def __anext__(self) -> RunEvent:
        """Give the next event."""
        while not self._events:
            if self._ended:
                raise StopAsyncIteration
            self._arrived = anyio.Event()
            await self._arrived.wait()
        event = self._events.popleft()
        if event.type == "step.waiting":
            await anyio.lowlevel.checkpoint()  # the question is opened by a task that starts with the event
        return event

    # ------------------------------------------------------------ questions

    @property
    def questions(self) -> list[Question]:
        """Questions that wait for a person."""
        return self._questions.open()

    async def answer(self, question_id: str, value: Any) -> None:
        """Answer a question.

        Raises:
            ConfigError: No such question is open.
            GraphTypeError: The answer does not fit the question, which stays open.
        """
        await self._questions.answer(question_id, value)

    # ------------------------------------------------------------ outcome

    async def wait(self) -> T:
        """Wait for the end without reading the events, and give the outcome; raises what it ended with."""
        if self._tasks is None:
            raise self._not_started()
        self._waited = True
        self._events.clear()
        await self._over.wait()
        return self._outcome()

    def _outcome(self) -> T:
        if self._tasks is None:
            raise self._not_started()
        if not self._ended:
            raise GraphError("it has not ended", hint="read the events to the end, or await wait()")
        self._seen = True
        if self._error is not None:
            raise self._error
        if not self._value:
            raise GraphError("it was left before its end, and has no outcome", hint="read the events to the end")
        return self._value[0]

    @staticmethod
    def _not_started() -> GraphError:
        return GraphError("it has not started", hint="use it inside: async with ... as turn")


class TurnStream(Watched["ChatResponse"]):
    """One turn of a session, watched. Leaving it early gives the history back as it was."""

    @property
    def response(self) -> ChatResponse:
        """What the turn came to.

        Raises:
            GraphError: The turn has not ended.
            AgentError: The turn failed.
        """
        return self._outcome()


class AgentRunStream(Watched["RunResult"]):
    """One run of an agent, watched."""

    @property
    def result(self) -> RunResult:
        """How the run ended, whatever the ending.

        Raises:
            GraphError: The run has not ended.
            ResolveError: The agent could not be put together.
        """
        return self._outcome()
