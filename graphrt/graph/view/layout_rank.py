"""Which edges go back, and on which row each node stands."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Sequence

Arc: TypeAlias = tuple[int, int]
"""An edge as two node numbers."""

_ISOLATED_ROW: Final = 6


def going_back(count: int, arcs: Sequence[Arc], starts: Sequence[int]) -> list[bool]:
    """Tell for each arc whether it closes a cycle, walking from *starts* and then in the order of numbers.

    Without the arcs told the graph has no cycle; an arc from a node to itself is told too.
    """
    leaving: list[list[int]] = [[] for _ in range(count)]
    for number, (src, _) in enumerate(arcs):
        leaving[src].append(number)
    back = [False] * len(arcs)
    fresh, open_, done = 0, 1, 2
    colour = [fresh] * count
    for root in (*starts, *range(count)):
        if colour[root] != fresh:
            continue
        colour[root] = open_
        path = [(root, iter(leaving[root]))]
        while path:
            node, rest = path[-1]
            number = next(rest, -1)
            if number < 0:
                colour[node] = done
                path.pop()
                continue
            dst = arcs[number][1]
            if colour[dst] == open_:
                back[number] = True
            elif colour[dst] == fresh:
                colour[dst] = open_
                path.append((dst, iter(leaving[dst])))
    return back


def sorted_topologically(count: int, arcs: Sequence[Arc]) -> list[int]:
    """Return the nodes so that every arc leads to a later one. The arcs have no cycle."""
    below: list[list[int]] = [[] for _ in range(count)]
    waiting = [0] * count
    for src, dst in arcs:
        below[src].append(dst)
        waiting[dst] += 1
    order = [node for node in range(count) if not waiting[node]]
    for node in order:
        for dst in below[node]:
            waiting[dst] -= 1
            if not waiting[dst]:
                order.append(dst)  # the loop goes on to what it adds
    return order


def ranks(count: int, arcs: Sequence[Arc], ends: Sequence[int]) -> list[int]:
    """Return the row of each node, from 0 at the top; every arc leads downwards.

    A node stands as high as it can, or as low where that shortens its edges. *ends* stand in the last row.
    Nodes without any edge stand in rows of a few.
    """
    above: list[list[int]] = [[] for _ in range(count)]
    below: list[list[int]] = [[] for _ in range(count)]
    for src, dst in arcs:
        above[dst].append(src)
        below[src].append(dst)
    order = sorted_topologically(count, arcs)
    rank = [0] * count
    for node in order:
        rank[node] = max((rank[src] + 1 for src in above[node]), default=0)
    lowest = max(rank, default=0)
    for node in ends:
        if above[node] and not below[node]:
            rank[node] = lowest
    for node in reversed(order):
        if len(below[node]) > len(above[node]):
            rank[node] = min(rank[dst] for dst in below[node]) - 1
    alone = [node for node in range(count) if not above[node] and not below[node]]
    for number, node in enumerate(alone):
        rank[node] = number // _ISOLATED_ROW
    return rank


@dataclass(slots=True)
class MainLine:
    """The heaviest path through a graph, in arcs."""

    arcs: list[int] = field(default_factory=list)
    """Those that no other path as heavy shares an end with: here the line is straight."""
    leaving: dict[int, list[int]] = field(default_factory=dict)
    """Of its nodes where several such paths part, the arcs on which they go."""
    entering: dict[int, list[int]] = field(default_factory=dict)
    """Of its nodes where several such paths meet, the arcs on which they come."""


def main_line(count: int, arcs: Sequence[Arc], weight: Sequence[int], place: Sequence[int]) -> MainLine:
    """Find the heaviest path, the middle one of several.

    *place* orders nodes of one row from left to right. Where an odd number of paths part or meet, the middle
    one goes on straight.
    """
    leaving, entering = _heaviest(count, arcs, weight)
    for ways in leaving:
        ways.sort(key=lambda number: place[arcs[number][1]])
    for ways in entering:
        ways.sort(key=lambda number: place[arcs[number][0]])
    found = MainLine()
    node: int | None = next((node for node in range(count) if leaving[node] and not entering[node]), None)
    while node is not None:
        ways = leaving[node]
        if len(entering[node]) > 1:
            found.entering[node] = entering[node]
        if len(ways) > 1:
            found.leaving[node] = ways
        way = ways[(len(ways) - 1) // 2] if ways else None
        node = None if way is None else arcs[way][1]
        if way is not None and node is not None and len(ways) % 2:
            coming = entering[node]
            if len(coming) % 2 and coming[len(coming) // 2] == way:
                found.arcs.append(way)
    return found


def _heaviest(count: int, arcs: Sequence[Arc], weight: Sequence[int]) -> tuple[list[list[int]], list[list[int]]]:
    """Return for each node the arcs of heaviest paths that leave it, and those that enter it."""
    leaving: list[list[int]] = [[] for _ in range(count)]
    entering: list[list[int]] = [[] for _ in range(count)]
    for number, (src, dst) in enumerate(arcs):
        leaving[src].append(number)
        entering[dst].append(number)
    order = sorted_topologically(count, arcs)
    before, after = [0] * count, [0] * count
    for node in order:
        before[node] = max((before[arcs[number][0]] + weight[number] for number in entering[node]), default=0)
    for node in reversed(order):
        after[node] = max((after[arcs[number][1]] + weight[number] for number in leaving[node]), default=0)
    longest = max(after, default=0)
    heavy = [before[src] + weight[number] + after[dst] == longest for number, (src, dst) in enumerate(arcs)]
    return (
        [[number for number in ways if heavy[number]] for ways in leaving],
        [[number for number in ways if heavy[number]] for ways in entering],
    )
