"""Running a graph from code that is not async: in a loop of its own, in a thread of its own."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, TypeVar

import anyio
import anyio.lowlevel

from graphrt.threads import call_soon, copy_for_thread

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from anyio.lowlevel import EventLoopToken

T = TypeVar("T")
_LOOK = 1.0
"""Seconds after which a waiting caller looks up: where a lock cannot be interrupted, Ctrl-C is noticed then."""


class _Call:
    """One async call in a thread, with what its caller needs to cancel it."""

    def __init__(self, fn: Callable[[], Awaitable[T]], backend: str) -> None:
        self._fn = fn
        self._backend = backend
        self._token: EventLoopToken | None = None
        self._scope: anyio.CancelScope | None = None
        self._lock = threading.Lock()
        self._begun = False
        self._given_up = False
        self._over = threading.Lock()
        self._over.acquire()
        self._ended = False
        self.started = threading.Event()
        self.error: BaseException | None = None
        self.value: object = None

    def run(self) -> None:
        with self._lock:
            if self._given_up:
                return
            self._begun = True
        try:
            self.value = anyio.run(self._main, backend=self._backend)
        except BaseException as error:  # noqa: BLE001 - carried to the calling thread, which raises it
            self.error = error
        finally:
            self.started.set()
            self._ended = True
            self._over.release()

    async def _main(self) -> object:
        self._token = anyio.lowlevel.current_token()
        with anyio.CancelScope() as self._scope:
            self.started.set()
            return await self._fn()
        return None

    def wait(self) -> None:
        """Wait for the end. An interrupt may come at any moment and leaves all as it was, unlike in Event or join()."""
        while not self._ended:
            self._over.acquire(timeout=_LOOK)

    def give_up(self) -> bool:
        """Cancel the call, and say whether there is anything to wait for; one that has not begun never will."""
        with self._lock:
            self._given_up = True
        if not self._begun:
            return False
        self.started.wait()
        if self._token is not None and self._scope is not None:
            call_soon(self._token, self._scope.cancel)
        return True


def run_sync(fn: Callable[[], Awaitable[T]], *, backend: str = "asyncio") -> T:
    """Await `fn()` in a new event loop, in a thread with the caller's context, and give what it returns.

    It works in a script, in a notebook cell and in a callback of a running loop, which it blocks. Ctrl-C cancels the
    call, waits for it to clean up, and raises `KeyboardInterrupt`.
    """
    call = _Call(fn, backend)
    context = copy_for_thread()
    thread = threading.Thread(target=context.run, args=(call.run,), name="graphrt-run-sync", daemon=True)
    try:
        thread.start()
        call.wait()
    except BaseException:  # Ctrl-C, at whatever moment: let the run clean up, then leave with it
        if call.give_up():
            call.wait()
            thread.join()
        raise
    thread.join()
    if call.error is not None:
        error, call.error = call.error, None
        try:
            raise error
        finally:
            del error
    return call.value  # type: ignore[return-value]  # what fn() returned
