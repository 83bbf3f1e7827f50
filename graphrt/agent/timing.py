"""The time that a run has, where something comes before the run."""

from __future__ import annotations

import anyio


class Timer:
    """Counts seconds down from now, by the clock of the event loop."""

    def __init__(self, seconds: float) -> None:
        """Take the seconds there are."""
        self.seconds = seconds
        self._ends = anyio.current_time() + seconds

    def left(self) -> float:
        """Give the seconds that are left, to the millisecond; none when it is 0."""
        return max(0.0, round(self._ends - anyio.current_time(), 3))
