"""Lead every edge: level runs between the rows, its line, and the place of its label."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Final, TypeAlias

from graphrt.graph.view.layout_grid import Role
from graphrt.graph.view.layout_plan import LOOP_REACH, LOOP_STEP, Plan, loop_label
from graphrt.graph.view.layout_route import Direction, Line, Point, Zone, bent, loop
from graphrt.graph.view.layout_tracks import Run
from graphrt.graph.view.sizes import chip_width, inset, rise

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from graphrt.graph.view.drawing import Drawing
    from graphrt.graph.view.layout_lane import Lane
    from graphrt.graph.view.layout_ports import Ports
    from graphrt.graph.view.layout_rows import Bands

_NEAR: Final = 0.75
_JOG: Final = 3.5
"""A step to the side so small that it is left out, in pixels."""

_SIDES: Final[dict[bool, Direction]] = {True: "left", False: "right"}
RunKey: TypeAlias = tuple[int, int]
"""The complement of an edge and the place in its chain where a run begins, or two items for a shared run.

Of a lane it is the edge, and -1 at its source or -2 at its target.
"""


def runs(made: Plan, x: Sequence[float], found: Ports) -> dict[Zone, dict[RunKey, Run]]:
    """Return the level runs of all edges, by where they lie: in a gap, or just below or above a row."""
    zones: dict[Zone, dict[RunKey, Run]] = {}
    for edge, chain in made.chains.items():
        lines = chain_lines(made, x, found, edge)
        for place, (here, there) in enumerate(pairwise(lines)):
            if abs(here - there) >= _NEAR:
                zone: Zone = ("gap", made.grid.row[chain[place]])
                zones.setdefault(zone, {})[_key(made, edge, place)] = Run((here,), (there,))
    for lane in made.lanes:
        line = x[lane.items[0]]
        if (lane.edge, False) not in found.beside:
            run = Run((x[lane.src] + found.leaving[lane.edge], line), ())
            zones.setdefault(("below", made.grid.row[lane.src]), {})[lane.edge, -1] = run
        if (lane.edge, True) not in found.beside:
            run = Run((), (x[lane.dst] + found.entering[lane.edge], line))
            zones.setdefault(("above", made.grid.row[lane.dst]), {})[lane.edge, -2] = run
    return zones


def chain_lines(made: Plan, x: Sequence[float], found: Ports, edge: int) -> list[float]:
    """Return the line of an edge in each row it passes, from its first to its last."""
    chain = made.chains[edge]
    end = x[chain[-1]] + found.entering[edge]
    inner = [x[item] for item in chain[1:-1]]
    start = x[chain[0]] + found.leaving[edge] if edge in found.leaving else (inner or [end])[0]
    lines = [start, *inner, end]
    for place in range(1, len(lines)):
        small = abs(lines[place] - lines[place - 1]) < _JOG
        if small and chain[place] not in made.shared and chain[place - 1] not in made.shared:
            lines[place] = lines[place - 1]
    return lines


def _key(made: Plan, edge: int, place: int) -> RunKey:
    """Name a run; edges that share it name it alike."""
    here, there = made.chains[edge][place : place + 2]
    return (here, there) if here in made.shared or there in made.shared else (~edge, place)


@dataclass(frozen=True, slots=True)
class Drawn:
    """The line of an edge, and the middle of its label if it has one."""

    line: Line
    chip: Point | None = None
    framed: bool = False
    """Whether that label lies in the frame of a group."""


@dataclass(frozen=True, slots=True)
class _Router:
    """Everything has its place; what is left are lines."""

    made: Plan
    x: Sequence[float]
    bands: Bands
    found: Ports
    kinds: Sequence[str]

    def middle(self, row: int) -> float:
        return (self.bands.top[row] + self.bands.bottom[row]) / 2

    def port(self, node: int, offset: float, side: int) -> Point:
        """Return the point of the lower outline (*side* 1) or the upper (-1), *offset* from the middle."""
        size = self.made.sizes[node]
        reach = size.height / 2 - rise(self.kinds[node], size, offset)
        return self.x[node] + offset, self.middle(self.made.grid.row[node]) + side * reach

    def side(self, node: int, offset: float, *, left: bool) -> Point:
        """Return the point of the left or right outline, *offset* below the middle."""
        size = self.made.sizes[node]
        reach = size.width / 2 - inset(self.kinds[node], size, offset)
        return self.x[node] + (-reach if left else reach), self.middle(self.made.grid.row[node]) + offset

    def chain(self, edge: int) -> Drawn:
        """Lead an edge down through its rows."""
        items, rows = self.made.chains[edge], self.made.grid.row
        lines = chain_lines(self.made, self.x, self.found, edge)
        left = self.found.sideways.get(edge)
        corners: list[Point] = []
        if left is None:
            corners.append(self.port(items[0], lines[0] - self.x[items[0]], 1))
        else:
            corners.append(self.side(items[0], 0, left=left))
            corners.append((lines[0], corners[0][1]))
        for place, (here, there) in enumerate(pairwise(lines)):
            if abs(here - there) >= _NEAR:
                high, low = self.bands.level[("gap", rows[items[place]])].at(_key(self.made, edge, place))
                corners += [(here, high), (there, low)]
        corners.append(self.port(items[-1], lines[-1] - self.x[items[-1]], -1))
        line = bent(corners, "down" if left is None else _SIDES[left], "down")
        for item, x in zip(items, lines, strict=True):
            if self.made.grid.role[item] is Role.LABEL:
                return Drawn(line, (x, self.middle(rows[item])), bool(self.made.grid.path[item]))
        return Drawn(line)

    def lane(self, lane: Lane) -> Drawn:
        """Lead an edge back up its lane."""
        x = self.x[lane.items[0]]
        outwards, inwards = self._lane_end(lane, upper=False), self._lane_end(lane, upper=True)
        corners = [*outwards, (x, outwards[-1][1]), (x, inwards[-1][1]), *reversed(inwards)]
        line = bent(
            corners,
            _SIDES[lane.leftwards] if (lane.edge, False) in self.found.beside else "down",
            _SIDES[not lane.leftwards] if (lane.edge, True) in self.found.beside else "down",
        )
        chip = self.made.chips.get(lane.edge)
        if chip is None:
            return Drawn(line)
        return Drawn(line, (x, self.middle(chip[0])), bool(self.made.grid.path[lane.items[0]]))

    def _lane_end(self, lane: Lane, *, upper: bool) -> list[Point]:
        """Return the corners between a node and the lane, from the node on."""
        node = lane.dst if upper else lane.src
        if (lane.edge, upper) in self.found.beside:
            return [self.side(node, self.found.beside[lane.edge, upper], left=lane.leftwards)]
        port = (
            self.port(node, self.found.entering[lane.edge], -1)
            if upper
            else (self.port(node, self.found.leaving[lane.edge], 1))
        )
        zone: Zone = ("above" if upper else "below", self.made.grid.row[node])
        return [port, (port[0], self.bands.level[zone].at((lane.edge, -2 if upper else -1))[0])]

    def loops(self, node: int, edges: Sequence[int], label: str) -> Iterable[tuple[int, Drawn]]:
        """Lead the edges from a node to itself; the outermost has the label of all."""
        right, middle = self.side(node, 0, left=False)
        for place, edge in enumerate(edges):
            reach = LOOP_REACH + LOOP_STEP * place
            last = edge == edges[-1] and label
            chip = (
                self.x[node] + self.made.sizes[node].width / 2 + reach + 2 + chip_width(label) / 2,
                middle,
            )
            line = loop(right, middle, reach, min(5.0 + 6.5 * place, self.made.sizes[node].height / 2 - 4))
            yield edge, Drawn(line, chip if last else None, bool(self.made.paths[node]))


def lead(drawing: Drawing, made: Plan, x: Sequence[float], bands: Bands, found: Ports) -> list[Drawn]:
    """Return the line of each edge, in the order of the drawing."""
    router = _Router(made, x, bands, found, [node.kind for node in drawing.nodes])
    drawn = {edge: router.chain(edge) for edge in made.chains}
    drawn.update((lane.edge, router.lane(lane)) for lane in made.lanes)
    for node, edges in made.loops.items():
        drawn.update(router.loops(node, edges, loop_label(drawing.edges, edges)))
    return [drawn[edge] for edge in range(len(drawing.edges))]
