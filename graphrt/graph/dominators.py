"""Which nodes lie on every way from START to another node, and are left there by a normal edge.

The dominator tree is computed by Cooper, Harvey and Kennedy's method (A Simple, Fast Dominance Algorithm, 2001). Every
node counts twice, as what is reached and as what is left by a normal edge, so that error edges leave only the first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphrt.graph.compiled import EdgeKind

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from graphrt.graph.compiled import CompiledEdge, CompiledNode, Program


class Dominators:
    """The dominator tree of one graph."""

    def __init__(self, program: Program, after: Callable[[CompiledNode], Sequence[CompiledEdge]]) -> None:
        nodes = (program.start, *program.nodes, program.end)
        self._nodes = nodes
        self._place = {node: 2 * i for i, node in enumerate(nodes)}
        following: list[list[int]] = [[] for _ in range(2 * len(nodes))]
        for node in nodes:
            reached = self._place[node]
            following[reached].append(reached + 1)
            for edge in after(node):
                left = reached if edge.kind is EdgeKind.ERROR else reached + 1
                following[left].append(self._place[edge.dst])
        order = _postorder(following)
        self._above = _immediate(following, order)
        self._first, self._last = _intervals(self._above, order)

    def always_left(self, source: CompiledNode, node: CompiledNode) -> bool:
        """Whether every way from START to *node* leaves *source* by a normal edge."""
        one, other = self._place[source] + 1, self._place[node]
        return self._first[one] <= self._first[other] < self._last[one]

    def nearest(self, node: CompiledNode) -> CompiledNode:
        """Give the last node before *node* that every way from START leaves by a normal edge."""
        place = self._above[self._place[node]]
        while not place % 2:
            place = self._above[place]
        return self._nodes[place // 2]


def _postorder(following: Sequence[Sequence[int]]) -> list[int]:
    """List the places that can be reached from the first one, each after those that follow it."""
    order: list[int] = []
    seen = bytearray(len(following))
    seen[0] = 1
    stack = [(0, iter(following[0]))]
    while stack:
        place, rest = stack[-1]
        for then in rest:
            if not seen[then]:
                seen[then] = 1
                stack.append((then, iter(following[then])))
                break
        else:
            stack.pop()
            order.append(place)
    return order


def _immediate(following: Sequence[Sequence[int]], order: Sequence[int]) -> list[int]:
    """Give the immediate dominator of each place; the first place is its own."""
    number = [-1] * len(following)
    for i, place in enumerate(order):
        number[place] = i
    before: list[list[int]] = [[] for _ in following]
    for place in order:
        for then in following[place]:
            before[then].append(place)
    above = [-1] * len(following)
    above[0] = 0
    changed = True
    while changed:
        changed = False
        for place in reversed(order[:-1]):
            known = [b for b in before[place] if above[b] >= 0]
            meet = known[0]
            for other in known[1:]:
                while meet != other:
                    while number[meet] < number[other]:
                        meet = above[meet]
                    while number[other] < number[meet]:
                        other = above[other]  # noqa: PLW2901 - the method's own two fingers
            if above[place] != meet:
                above[place] = meet
                changed = True
    return above


def _intervals(above: Sequence[int], order: Sequence[int]) -> tuple[list[int], list[int]]:
    """Give each place an interval that holds exactly the places it dominates."""
    below: list[list[int]] = [[] for _ in above]
    for place in order[:-1]:
        below[above[place]].append(place)
    first, last = [-1] * len(above), [-1] * len(above)
    count = 0
    stack = [(0, iter(below[0]))]
    first[0] = 0
    while stack:
        place, rest = stack[-1]
        for then in rest:
            count += 1
            first[then] = count
            stack.append((then, iter(below[then])))
            break
        else:
            stack.pop()
            last[place] = count + 1
    return first, last
