"""The way of an edge down through the rows; many long edges to or from one node share theirs."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeAlias

from graphrt.graph.view.layout_grid import Grid, Path, Role, common

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from graphrt.graph.view.drawing import DrawnEdge
    from graphrt.graph.view.layout_rank import Arc

_MANY: Final = 5
"""Long edges of one kind at a node up to which each has a line of its own."""

_Knot: TypeAlias = tuple[int, bool, str]
"""The node at which edges are gathered, whether they come to it, and their kind."""


def knots(edges: Sequence[DrawnEdge], arcs: Sequence[Arc], row: Sequence[int], down: Sequence[int]) -> dict[int, _Knot]:
    """Return where the edges that share their way are gathered: long ones, of which a node has many.

    Edges with a label share only the way to their target.
    """
    long = [edge for edge in down if row[arcs[edge][1]] - row[arcs[edge][0]] > 1]
    coming = Counter((arcs[edge][1], True, edges[edge].kind) for edge in long)
    going = Counter((arcs[edge][0], False, edges[edge].kind) for edge in long if edges[edge].label is None)
    found: dict[int, _Knot] = {}
    for edge in long:
        to, kind = (arcs[edge][1], True, edges[edge].kind), edges[edge].kind
        if coming[to] > _MANY:
            found[edge] = to
        elif edges[edge].label is None and going[arcs[edge][0], False, kind] > _MANY:
            found[edge] = arcs[edge][0], False, kind
    return found


@dataclass(slots=True)
class Threads:
    """Leads edges through a grid, one after another; long ones that share their way come first."""

    grid: Grid
    spans: Sequence[tuple[int, int]]
    """Of each group, its first and last row."""
    ways: dict[tuple[_Knot, int, Path], tuple[list[int], int]] = field(default_factory=dict)
    """For a knot, a row and the groups there: the chain that passes, and at which place."""

    def lead(self, src: int, dst: int, chip: tuple[int, float] | None, knot: _Knot | None) -> list[int]:
        """Lead an edge down from *src* to *dst* through an item in each row between, and return all of them.

        *chip* is the row of the edge's label and its width. Inside a group the edge stays in it to its last
        row, so that it leaves through the bottom; the same holds for the groups around *dst*, from their first.
        """
        grid = self.grid
        chain = [src]
        along = knot is not None and not knot[1]
        for row in range(grid.row[src] + 1, grid.row[dst]):
            path = self._around(src, dst, row)
            labelled = chip is not None and chip[0] == row
            known = None if knot is None or labelled else self.ways.get((knot, row, path))
            if known is not None and knot is not None and knot[1]:
                grid.link(chain[-1], known[0][known[1]])
                chain += known[0][known[1] :]  # in place: what came before may be on the way of others
                return chain
            along = along and known is not None
            if along and known is not None:
                chain.append(known[0][known[1]])
                continue
            half = chip[1] / 2 if labelled and chip is not None else 0.0
            item = grid.append(Role.LABEL if labelled else Role.BEND, row, path, half, half)
            grid.link(chain[-1], item)
            chain.append(item)
            if knot is not None and not labelled:
                self.ways.setdefault((knot, row, path), (chain, len(chain) - 1))
        grid.link(chain[-1], dst)
        chain.append(dst)
        return chain

    def _around(self, src: int, dst: int, row: int) -> Path:
        """Return the groups around an edge in one of the rows it passes."""
        above, below, spans = self.grid.path[src], self.grid.path[dst], self.spans
        shared = len(common(above, below))
        top, bottom = self.grid.row[src], self.grid.row[dst]
        for length in range(len(above), shared, -1):
            if row <= spans[above[length - 1]][1] < bottom:
                return above[:length]
        for length in range(len(below), shared, -1):
            if row >= spans[below[length - 1]][0] > top:
                return below[:length]
        return above[:shared]


def crowds(arcs: Sequence[Arc], gathered: Mapping[int, _Knot], edges: Sequence[int]) -> Counter[int]:
    """Count how many lines meet each node at most on one side; edges that share their way count once."""
    leaving = {(arcs[edge][0], edge if _apart(gathered, edge, False) else -1) for edge in edges}
    coming = {(arcs[edge][1], edge if _apart(gathered, edge, True) else -1) for edge in edges}
    return Counter(src for src, _ in leaving) | Counter(dst for dst, _ in coming)


def _apart(gathered: Mapping[int, _Knot], edge: int, coming: bool) -> bool:
    return edge not in gathered or gathered[edge][1] != coming
