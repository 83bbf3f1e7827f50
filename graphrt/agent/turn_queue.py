"""One turn at a time per session, in the order in which they were submitted."""

from __future__ import annotations

import threading
from collections import deque
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import anyio
from anyio.lowlevel import current_token

from graphrt.errors import OtherAgentError
from graphrt.threads import call_soon

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from anyio.lowlevel import EventLoopToken


@dataclass(slots=True)
class _Turn:
    """A turn that is going on; code that runs in it, or was started by it, can see that."""

    queue: TurnQueue
    around: _Turn | None
    active: bool = True


@dataclass(slots=True, eq=False)
class _Waiting:
    """A turn whose time has not come, in the event loop it was submitted in."""

    loop: EventLoopToken
    event: anyio.Event = field(default_factory=anyio.Event)
    called: bool = False


_INSIDE: Final[ContextVar[_Turn | None]] = ContextVar("graphrt_turn", default=None)


class TurnQueue:
    """Lets in one turn after another, first come, first served; from any event loop of any thread."""

    def __init__(self, session_id: str) -> None:
        self._session_id = session_id
        self._lock = threading.Lock()
        self._busy = False
        self._waiting: deque[_Waiting] = deque()
        self._between: list[Callable[[], object]] = []

    @property
    def busy(self) -> bool:
        """Whether a turn is going on."""
        return self._busy

    def between_turns(self, do: Callable[[], object]) -> None:
        """Call *do* now, or when the turn that is going on is over, before the next one begins.

        It must neither raise nor wait.
        """
        with self._lock:
            if self._busy:
                self._between.append(do)
            else:
                do()

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Wait for every turn before this one to end, and hold up those after it meanwhile.

        Raises:
            OtherAgentError: It is asked for inside a turn of the same session, which would wait for itself.
        """
        around = _INSIDE.get()
        self._refuse_inside(around)
        await self._enter()
        turn = _Turn(self, around)
        token = _INSIDE.set(turn)
        try:
            yield
        finally:
            turn.active = False
            try:
                _INSIDE.reset(token)
            except ValueError:  # closed in another context, which has a value of its own
                pass
            finally:
                self._leave()

    def _refuse_inside(self, turn: _Turn | None) -> None:
        while turn is not None:
            if turn.queue is self and turn.active:
                raise OtherAgentError(
                    f"a turn of session {self._session_id!r} is submitted from inside a turn of it, and would wait "
                    "for itself",
                    hint="submit it when the turn is over, or use a session of its own; a task that the turn does not "
                    "wait for is told apart by a context of its own: contextvars.Context().run(tasks.start_soon, ...)",
                )
            turn = turn.around

    async def _enter(self) -> None:
        with self._lock:
            if not self._busy:
                self._busy = True
                return
            entry = _Waiting(current_token())
            self._waiting.append(entry)
        try:
            await entry.event.wait()
        except BaseException:
            with self._lock:
                called = entry.called
                if not called:
                    self._waiting.remove(entry)
            if called:
                self._leave()
            raise

    def _leave(self) -> None:
        """Let the next one in; those whose event loop is gone are passed over."""
        while True:
            with self._lock:
                while self._between:
                    self._between.pop(0)()
                if not self._waiting:
                    self._busy = False
                    return
                entry = self._waiting.popleft()
                entry.called = True
            if call_soon(entry.loop, entry.event.set):
                return
