"""A bell between threads and event loops: who waits for work is told when there may be some."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import anyio
import anyio.lowlevel

from graphrt.threads import call_soon

if TYPE_CHECKING:
    from anyio.lowlevel import EventLoopToken


class WorkBell:
    """Counts how often a run may have become claimable, and wakes those who wait for that."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._rung = 0
        self._seen = 0
        self._waiting: set[tuple[EventLoopToken, anyio.Event]] = set()

    @property
    def rung(self) -> int:
        """How often it has rung: ask before looking for work."""
        return self._rung

    def ring(self) -> None:
        """Wake all who wait; from any thread."""
        with self._lock:
            self._rung += 1
            waiting, self._waiting = self._waiting, set()
        for token, event in waiting:
            call_soon(token, event.set)

    def looked(self, rung: int) -> None:
        """Note that after so many rings there was no work."""
        with self._lock:
            self._seen = max(self._seen, rung)

    async def wait(self, seconds: float) -> None:
        """Wait for a ring, at most so long; return at once when it has rung since somebody last found no work."""
        await anyio.lowlevel.checkpoint()
        entry = (anyio.lowlevel.current_token(), anyio.Event())
        with self._lock:
            if self._rung > self._seen:
                return
            self._waiting.add(entry)
        try:
            with anyio.move_on_after(seconds):
                await entry[1].wait()
        finally:
            with self._lock:
                self._waiting.discard(entry)
