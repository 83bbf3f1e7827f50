"""Time that a test decides: clocks that move when they are told to, and event loops whose time jumps."""

from __future__ import annotations

import asyncio  # noqa: TID251 - the loop of controlled time for the asyncio back end is a loop of asyncio
import selectors
from datetime import UTC, datetime, timedelta
from time import monotonic
from typing import Any

import anyio.lowlevel

from graphrt.threads import awaits_thread


class FakeClock:
    """A `graphrt.clock.Clock` that stands still until it is moved, and a sleep that moves it at once.

    Give it where a `clock=` is taken, and its `sleep` where a `sleep=` is.
    """

    def __init__(self, start: datetime = datetime(2030, 1, 1, tzinfo=UTC)) -> None:
        """Begin at *start*, which has a zone."""
        if start.utcoffset() is None:
            raise ValueError(f"start is {start!r}, a time without a zone: give one such as datetime(..., tzinfo=UTC)")
        self._start = start.astimezone(UTC)
        self._passed = 0.0
        self.sleeps: list[float] = []
        """Seconds of each sleep, in order."""

    def now(self) -> datetime:
        """Give the present moment, aware and in UTC."""
        return self._start + timedelta(seconds=self._passed)

    def monotonic(self) -> float:
        """Give the seconds that have passed."""
        return self._passed

    def advance(self, seconds: float | timedelta) -> None:
        """Let time pass.

        Raises:
            ValueError: It would run backwards.
        """
        passed = seconds.total_seconds() if isinstance(seconds, timedelta) else seconds
        if passed < 0:
            raise ValueError(f"the clock cannot go back by {-passed:g} s")
        self._passed += passed

    async def sleep(self, seconds: float) -> None:
        """Take down how long, move the clock by it, and let other tasks go on."""
        self.sleeps.append(seconds)
        self.advance(max(0.0, seconds))
        await anyio.lowlevel.checkpoint()


class _SkippingSelector(selectors.DefaultSelector):
    """Waits for a timer only while a thread works: else it moves the loop's clock, once nothing else is to be done."""

    def __init__(self) -> None:
        super().__init__()
        self.skipped = 0.0
        self.loop: object = None

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        waits = timeout is None or awaits_thread(self.loop)
        began = monotonic()
        found = super().select(timeout if waits else 0)
        if timeout is not None and timeout > 0:
            if not found:
                self.skipped += timeout
            elif waits:
                self.skipped += min(monotonic() - began, timeout)
        return found


class SkippingLoop(asyncio.SelectorEventLoop):
    """An asyncio loop whose clock jumps to the next timer when every task waits, as trio's `MockClock` does.

    While a task waits for a synchronous function that graphrt calls in a thread, the clock goes as others do.
    """

    def __init__(self) -> None:
        self._skipping = _SkippingSelector()
        super().__init__(self._skipping)
        self._skipping.loop = self

    def time(self) -> float:
        """Give the time that was skipped so far, in seconds."""
        return self._skipping.skipped


def fake_time(backend: str = "asyncio") -> tuple[str, dict[str, Any]]:
    """Give a back end, `"asyncio"` or `"trio"`, whose time jumps to the next timer when every task waits.

    It is what anyio's pytest plugin takes from a fixture `anyio_backend`, and `anyio.run` as `backend=` and
    `backend_options=`.

    Synchronous nodes, synchronous tools and `SqliteMemoryStore` work in threads. On asyncio the clock does not jump
    while one of these is at work. Trio knows nothing of them: time jumps on, and whatever has a time limit is out of
    time. Make them async in a test that runs on trio too. Threads of your own are seen by neither.

    Raises:
        ValueError: There is no such back end.
    """
    if backend == "asyncio":
        return "asyncio", {"loop_factory": SkippingLoop}
    if backend == "trio":
        from trio.testing import MockClock

        return "trio", {"clock": MockClock(autojump_threshold=0)}
    raise ValueError(f"there is no back end {backend!r}: give 'asyncio' or 'trio'")
