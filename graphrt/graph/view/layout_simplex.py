"""Least total length along one axis under least distances, by the network simplex method.

After E. R. Gansner and others, "A Technique for Drawing Directed Graphs" (1993), section 2.3, without its
incremental cut values: the problems here are small and begin near their solution.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


class Bar(NamedTuple):
    """Keeps *head* at least *length* right of *tail*, at a cost of *weight* for each pixel between."""

    tail: int
    head: int
    length: float
    weight: int


def shorten(x: list[float], bars: Sequence[Bar], pivots: int) -> None:
    """Move the whole numbers *x*, which keep all distances, to where the bars cost least.

    At most *pivots* steps are made. What they reach keeps the distances, and costs less than before or the
    same.
    """
    if not x:
        return
    tree = _Tree(x, [*bars, *_joined(x, bars)])
    for _ in range(pivots):
        if not tree.pivot():
            return


def _joined(x: Sequence[float], bars: Sequence[Bar]) -> list[Bar]:
    """Return bars without cost that join the parts of a problem that no bar joins."""
    beside: list[list[int]] = [[] for _ in x]
    for bar in bars:
        beside[bar.tail].append(bar.head)
        beside[bar.head].append(bar.tail)
    found: list[Bar] = []
    seen = [False] * len(x)
    for start in range(len(x)):
        if seen[start]:
            continue
        if start:
            found.append(Bar(0, start, x[start] - x[0], 0))
        stack = [start]
        seen[start] = True
        while stack:
            for other in beside[stack.pop()]:
                if not seen[other]:
                    seen[other] = True
                    stack.append(other)
    return found


@dataclass(slots=True)
class _Tree:
    """A spanning tree of bars that are as short as they may be."""

    x: list[float]
    bars: list[Bar]
    at: list[list[int]] = field(default_factory=list)
    """The bars at each point, and of those the ones in the tree."""
    branches: list[list[int]] = field(default_factory=list)
    order: list[int] = field(default_factory=list)
    """The points so that each stands after its parent and a subtree is one piece."""
    parent: list[int] = field(default_factory=list)
    """The bar to each point's parent, -1 for the root."""
    first: list[int] = field(default_factory=list)
    end: list[int] = field(default_factory=list)
    """Where the subtree of each point begins in the order, and where it has ended."""

    def __post_init__(self) -> None:
        count = len(self.x)
        self.at = [[] for _ in range(count)]
        self.branches = [[] for _ in range(count)]
        self.parent, self.first, self.end = [-1] * count, [0] * count, [0] * count
        for number, bar in enumerate(self.bars):
            self.at[bar.tail].append(number)
            self.at[bar.head].append(number)
        self._grow()
        self._number()

    def _grow(self) -> None:
        """Find a first tree, moving what is in it until the next bar is as short as it may be."""
        x, inside, members = self.x, [False] * len(self.x), [0]
        inside[0] = True
        fresh = [0]
        while True:
            while fresh:
                point = fresh.pop()
                for number in self.at[point]:
                    bar = self.bars[number]
                    other = bar.head if bar.tail == point else bar.tail
                    if not inside[other] and x[bar.head] - x[bar.tail] == bar.length:
                        inside[other] = True
                        self._join(number)
                        members.append(other)
                        fresh.append(other)
            if len(members) == len(x):
                return
            number = min(
                (number for number, bar in enumerate(self.bars) if inside[bar.tail] != inside[bar.head]),
                key=self._slack,
            )
            bar = self.bars[number]
            shift = self._slack(number) if inside[bar.tail] else -self._slack(number)
            for member in members:
                x[member] += shift
            fresh.extend(members)

    def _slack(self, number: int) -> float:
        bar = self.bars[number]
        return self.x[bar.head] - self.x[bar.tail] - bar.length

    def _join(self, number: int) -> None:
        self.branches[self.bars[number].tail].append(number)
        self.branches[self.bars[number].head].append(number)

    def _number(self) -> None:
        self.order.clear()
        stack = [(0, -1)]
        while stack:
            point, via = stack.pop()
            self.parent[point] = via
            self.first[point] = len(self.order)
            self.order.append(point)
            for number in self.branches[point]:
                if number != via:
                    bar = self.bars[number]
                    stack.append((bar.head if bar.tail == point else bar.tail, number))
        size = [1] * len(self.x)
        for point in reversed(self.order):
            self.end[point] = self.first[point] + size[point]
            if self.parent[point] >= 0:
                size[self._above(point)] += size[point]

    def _above(self, point: int) -> int:
        bar = self.bars[self.parent[point]]
        return bar.tail if bar.head == point else bar.head

    def pivot(self) -> bool:
        """Exchange one bar of the tree so that the cost falls, or return False if none would."""
        leaving = self._leaving()
        if leaving is None:
            return False
        bar = self.bars[leaving]
        child = bar.tail if self.parent[bar.tail] == leaving else bar.head
        moving = self.order[self.first[child] : self.end[child]]
        entering = self._entering(child, leftwards=child == bar.tail)
        if entering is None:
            return False
        shift = self._slack(entering)
        for point in moving:
            self.x[point] += -shift if child == bar.tail else shift
        self.branches[bar.tail].remove(leaving)
        self.branches[bar.head].remove(leaving)
        self._join(entering)
        self._number()
        return True

    def _leaving(self) -> int | None:
        """Return the bar of the tree that would save most if it grew longer."""
        pull = [0] * len(self.x)
        for bar in self.bars:
            pull[bar.tail] += bar.weight
            pull[bar.head] -= bar.weight
        best, found = 0, None
        for point in reversed(self.order):
            number = self.parent[point]
            if number < 0:
                continue
            cut = pull[point] if self.bars[number].tail == point else -pull[point]
            pull[self._above(point)] += pull[point]
            if cut < best:
                best, found = cut, number
        return found

    def _entering(self, child: int, *, leftwards: bool) -> int | None:
        """Return the bar that first stops the subtree of *child* from moving on."""
        low, high = self.first[child], self.end[child]
        small = high - low <= len(self.x) // 2
        points: Iterable[int] = self.order[low:high] if small else chain(self.order[:low], self.order[high:])
        best: tuple[float, int] | None = None
        for point in points:
            for number in self.at[point]:
                bar = self.bars[number]
                inner_tail = low <= self.first[bar.tail] < high
                if inner_tail == (low <= self.first[bar.head] < high) or inner_tail == leftwards:
                    continue
                slack = self._slack(number)
                if best is None or (slack, number) < best:
                    best = slack, number
        return None if best is None else best[1]
