"""A runner at work: in a task of its own, from its first result to its last clean-up.

A runner may hold cancel scopes and task groups open while it yields. Those belong to the task that entered them, and
must be left in order; so neither time limits nor the reader's own scopes may come between. The task is no child of the
reader's: a reader that goes away in the middle of a run leaves no scope of its own half open either. It is always
waited for: by `close`, which the orchestrator calls in every ending.
"""

from __future__ import annotations

import inspect
import logging
from contextvars import copy_context
from typing import TYPE_CHECKING, Any, Final

import anyio
import anyio.lowlevel

from graphrt.errors import RunControlError
from graphrt.threads import call_soon

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from contextlib import AbstractContextManager

log = logging.getLogger("graphrt.platform")

END: Final = object()
"""Comes after the last result."""
IN_PEACE: Final = 0.9
"""The part of its time that a runner has to clean up before it is cancelled."""


class Bell:
    """Wakes the one task that waits for something to happen; from any thread."""

    def __init__(self) -> None:
        self._token = anyio.lowlevel.current_token()
        self._rung = anyio.Event()

    def ring(self) -> None:
        """Wake the task that waits, or the next one that does."""
        self._rung.set()

    def ring_from_anywhere(self) -> None:
        """Ring, from any thread."""
        call_soon(self._token, self.ring)

    async def wait(self, seconds: float) -> None:
        """Wait for a ring, at most so long."""
        with anyio.move_on_after(seconds):
            await self._rung.wait()
        if self._rung.is_set():
            self._rung = anyio.Event()


class RunnerTask:
    """Drives one runner, a result at a time: it does not run ahead of who asks."""

    def __init__(self, begin: Callable[[], Any], bell: Bell, name: str, *, around: AbstractContextManager[Any]) -> None:
        """Take what gives the runner's results, the bell to ring when there is a reply, and what is open meanwhile."""
        self._begin = begin
        self._bell = bell
        self._name = name
        self._around = around
        self._scope = anyio.CancelScope()
        self._turn = anyio.Event()
        self._over = anyio.Event()
        self._busy = False
        self._closing = False
        self._reply: tuple[Any] | None = None
        self._task: Any = None

    def ask(self) -> None:
        """Ask for the next result."""
        self._reply = None
        self._turn.set()
        if self._task is None:
            self._task = _spawn(self._own, self._name) or self

    @property
    def reply(self) -> tuple[Any] | None:
        """What came of the last question: a result, END, or an exception that the runner raised; None so far."""
        return self._reply

    async def close(self, seconds: float) -> bool:
        """Stop the runner and wait until it has cleaned up; False when it has not within *seconds*.

        A runner that has yielded is closed, and may clean up in peace; one that is at work, or has used most of its
        time, is cancelled.
        """
        if self._task is None:
            return True
        self._closing = True
        self._turn.set()
        peace = 0.0 if self._busy else IN_PEACE * seconds
        if peace:
            await self._wait(peace)
        if not self._over.is_set():
            self._scope.cancel()
            await self._wait(seconds - peace)
        return self._over.is_set()

    async def _wait(self, seconds: float) -> None:
        with anyio.move_on_after(seconds, shield=True):
            await self._over.wait()

    async def _own(self) -> None:
        try:
            with self._scope, self._around:
                await self._run()
        except anyio.get_cancelled_exc_class():
            raise  # the event loop ends
        except BaseException as error:  # raised by who asks, or logged when nobody does
            if self._closing:
                log.warning("%s failed while it was closed", self._name, exc_info=error)
            self._answer(error)
        finally:
            if self._reply is None:
                self._answer(RunControlError("runtime_error", "the runner was cancelled from within"))
            self._over.set()

    async def _run(self) -> None:
        results: Any = None
        try:
            while await self._is_my_turn():
                try:
                    if results is None:
                        results = self._begin()
                        if inspect.isawaitable(results):
                            results = await results
                    said = await anext(results)
                except StopAsyncIteration:
                    said = END
                except Exception as error:  # noqa: BLE001 - it is raised by who asks
                    said = error
                self._answer(said)
        finally:
            await _close(results)

    async def _is_my_turn(self) -> bool:
        """Wait until the next result is asked for; False when none will be."""
        self._busy = False
        await self._turn.wait()
        self._turn = anyio.Event()
        self._busy = not self._closing
        return self._busy

    def _answer(self, said: Any) -> None:
        self._reply = (said,)
        self._bell.ring()


async def _close(results: Any) -> None:
    aclose: Callable[[], Awaitable[None]] | None = getattr(results, "aclose", None)
    if aclose is not None:
        await aclose()


def _spawn(fn: Callable[[], Any], name: str) -> Any:
    """Start a task that is nobody's child, in a copy of the current context; give what keeps it alive."""
    native: Any = anyio.lowlevel.current_token().native_token
    create_task = getattr(native, "create_task", None)  # a loop of asyncio
    if create_task is not None:
        return create_task(fn(), name=name)
    import trio

    return trio.lowlevel.spawn_system_task(fn, name=name, context=copy_context())
