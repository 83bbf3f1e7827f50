"""Adding up what model calls cost in tokens."""

from __future__ import annotations

import threading

from graphrt.messages import TokenUsage


class CostTracker:
    """Counts calls and adds up their usage; safe to share between tasks and threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._total = TokenUsage()
        self._calls = 0

    @property
    def total(self) -> TokenUsage:
        """Sum of the usage that was reported; a field that nobody reported is None."""
        return self._total

    @property
    def calls(self) -> int:
        """Calls added so far, those without usage included."""
        return self._calls

    def __repr__(self) -> str:
        return f"CostTracker(calls={self._calls}, total={self._total!r})"

    def add(self, usage: TokenUsage | None) -> None:
        """Count one call; None, for a call that reported nothing, leaves the total as it is."""
        with self._lock:
            self._calls += 1
            if usage is not None:
                self._total += usage
