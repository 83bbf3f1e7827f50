"""Level runs of edges between two rows: which lies above which, so that few cross and none coincide."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

_APART: Final = 10.0
"""How far two runs on one track stay from each other, in pixels."""

_COINCIDE: Final = 4.0
_COINCIDING: Final = 3
"""How many crossings it is worth when two uprights lie on each other."""

MOST: Final = 70
"""Runs in one gap up to which each gets a track; above, edges go slantwise."""


@dataclass(frozen=True, slots=True)
class Run:
    """The level part of an edge between two rows: where it comes from above, and where it goes on below."""

    ups: tuple[float, ...]
    downs: tuple[float, ...]

    @property
    def left(self) -> float:
        """Its left end."""
        return min(*self.ups, *self.downs)

    @property
    def right(self) -> float:
        """Its right end."""
        return max(*self.ups, *self.downs)


def tracks(runs: Sequence[Run]) -> list[int]:
    """Return the track of each run, counted from 0 at the top."""
    count = len(runs)
    beside: list[list[int]] = [[] for _ in range(count)]
    under: list[list[int]] = [[] for _ in range(count)]
    wait = [0] * count
    for one in range(count):
        for other in range(one + 1, count):
            if runs[one].left > runs[other].right + _APART or runs[other].left > runs[one].right + _APART:
                continue
            beside[one].append(other)
            beside[other].append(one)
            gain = _cost(runs[one], runs[other]) - _cost(runs[other], runs[one])
            if gain:
                upper, lower = (one, other) if gain < 0 else (other, one)
                under[upper].append(lower)
                wait[lower] += 1
    track = [-1] * count
    left = list(range(count))
    while left:
        run = min(left, key=lambda run: (wait[run], runs[run].left, run))  # above zero only where wishes go in a ring
        left.remove(run)
        track[run] = max((track[other] + 1 for other in beside[run] if track[other] >= 0), default=0)
        for lower in under[run]:
            wait[lower] -= 1
    return track


def _cost(upper: Run, lower: Run) -> int:
    """Count the crossings of two runs when one lies above the other."""
    return _met(upper.downs, lower) + _met(lower.ups, upper)


def _met(uprights: Sequence[float], run: Run) -> int:
    met = 0
    for x in uprights:
        if run.left - _COINCIDE <= x <= run.right + _COINCIDE:
            near = any(abs(x - end) < _COINCIDE for end in (*run.ups, *run.downs))
            met += _COINCIDING if near else 1
    return met
