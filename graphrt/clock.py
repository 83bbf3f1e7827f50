"""Where time comes from, so that tests can bring their own."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """Tells the time. Sessions, ledgers and control ask it; nothing else reads the system's clock."""

    def now(self) -> datetime:
        """Give the present moment, aware and in UTC."""
        ...

    def monotonic(self) -> float:
        """Give seconds that never run backwards; only differences mean anything."""
        ...


class SystemClock:
    """Tell the time of this machine."""

    def now(self) -> datetime:
        """Give the present moment, aware and in UTC."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Give seconds that never run backwards; only differences mean anything."""
        return time.monotonic()
