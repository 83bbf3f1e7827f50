"""Where everything in a picture stands: rows from the top down, in plain Python and the same every time.

The steps are those of K. Sugiyama's layered drawings: turn the edges that close cycles, give each node a row,
order the rows, give each item its line, lead the edges. Groups are kept apart in each of them, so that a
frame holds its own nodes and no others.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from graphrt.graph.view.layout_align import Fan, Pull, coordinates
from graphrt.graph.view.layout_edges import Drawn, lead, runs
from graphrt.graph.view.layout_lane import insert_lanes
from graphrt.graph.view.layout_order import order
from graphrt.graph.view.layout_place import Room, Walls, insert_walls, room, straight
from graphrt.graph.view.layout_plan import Plan, loop_label, plan
from graphrt.graph.view.layout_ports import CLEAR, ports
from graphrt.graph.view.layout_rank import main_line
from graphrt.graph.view.layout_rows import Bands, bands
from graphrt.graph.view.sizes import CHIP_HEIGHT, TITLE_SIZE, NodeSize, chip_text, chip_width
from graphrt.graph.view.words import clip, width

if TYPE_CHECKING:
    from collections.abc import Iterator

    from graphrt.graph.view.drawing import Drawing, DrawnEdge, DrawnGroup, DrawnNode
    from graphrt.graph.view.layout_route import Line

_TITLE_LIMIT: Final = 220.0
_TITLE_MARGIN: Final = 12.0
_SPREAD: Final = 3
_WEIGHT: Final = {"error": 1, "conditional": 9}
_USUAL_WEIGHT: Final = 10
"""How much an edge counts in the search for the main line."""


@dataclass(frozen=True, slots=True)
class Box:
    """A rectangle, in pixels from the top left corner of the picture."""

    left: float
    top: float
    width: float
    height: float

    @property
    def right(self) -> float:
        """Its right edge."""
        return self.left + self.width

    @property
    def bottom(self) -> float:
        """Its lower edge."""
        return self.top + self.height


@dataclass(frozen=True, slots=True)
class PlacedNode:
    """A node and the box around its shape."""

    node: DrawnNode
    size: NodeSize
    box: Box


@dataclass(frozen=True, slots=True)
class PlacedGroup:
    """A group, its frame, its name as it fits, and how many frames are around it."""

    group: DrawnGroup
    box: Box
    title: str
    depth: int


@dataclass(frozen=True, slots=True)
class PlacedEdge:
    """An edge and its line; the chip with its label, as it fits, unless it has none."""

    edge: DrawnEdge
    line: Line
    label: str
    chip: Box | None
    framed: bool
    """Whether the chip lies in a frame."""


@dataclass(frozen=True, slots=True)
class Layout:
    """A whole picture."""

    width: float
    height: float
    nodes: tuple[PlacedNode, ...]
    edges: tuple[PlacedEdge, ...]
    groups: tuple[PlacedGroup, ...]


def lay_out(drawing: Drawing) -> Layout:
    """Place everything in a tidy *drawing*."""
    made = plan(drawing)
    order(made.grid, len(drawing.groups))
    insert_lanes(made.grid, made.lanes, made.chips)
    walls = insert_walls(made.grid, made.spans, made.group_paths)
    titles = [clip(group.label, TITLE_SIZE, _TITLE_LIMIT) for group in drawing.groups]
    x = _lines(drawing, made, walls, [math.ceil(width(title, TITLE_SIZE)) + 2 * _TITLE_MARGIN for title in titles])
    met = ports(made, x, [node.kind for node in drawing.nodes])
    heights, chips = _heights(made)
    stacked = bands(heights, chips, runs(made, x, met), made.spans, made.group_paths)
    grid = made.grid
    return Layout(
        width=max((x[item] + grid.right[item] for item in range(len(x))), default=0.0),
        height=stacked.height,
        nodes=tuple(_nodes(drawing, made, x, stacked)),
        edges=tuple(_edges(drawing, made, lead(drawing, made, x, stacked, met))),
        groups=tuple(
            PlacedGroup(
                group,
                Box(
                    x[wall.left[0]],
                    stacked.group_top[number],
                    x[wall.right[0]] - x[wall.left[0]],
                    stacked.group_bottom[number] - stacked.group_top[number],
                ),
                title,
                len(made.group_paths[number]) - 1,
            )
            for number, (group, wall, title) in enumerate(zip(drawing.groups, walls, titles, strict=True))
        ),
    )


def _lines(drawing: Drawing, made: Plan, walls: list[Walls], widths: list[float]) -> list[float]:
    """Return the x of each item."""
    rigid: list[list[int]] = []
    pulls: list[Pull] = []
    for wall in walls:
        rigid += [wall.left, wall.right]
        pulls += [Pull(wall.left[0], rightwards=True), Pull(wall.right[0], rightwards=False)]
    for lane in made.lanes:
        rigid.append(lane.items)
        pulls.append(Pull(lane.items[0], rightwards=lane.leftwards))
    down = list(made.chains)
    line = main_line(
        len(drawing.nodes),
        [made.arcs[edge] for edge in down],
        [_WEIGHT.get(drawing.edges[edge].kind, _USUAL_WEIGHT) for edge in down],
        made.grid.positions(),
    )
    fans = [
        Fan(node, tuple(made.chains[down[way]][1] for way in ways), below=True) for node, ways in line.leaving.items()
    ]
    fans += [
        Fan(node, tuple(made.chains[down[way]][-2] for way in ways), below=False)
        for node, ways in line.entering.items()
    ]
    rigid += [made.chains[down[way]] for way in line.arcs]
    long = sorted((chain[1:-1] for chain in made.chains.values()), key=lambda chain: -len(chain))
    chosen = straight(made.grid, [*rigid, *long])
    kept = {above: chosen[above] for chain in rigid for above in chain[:-1] if above in chosen}
    distances = _distances(drawing, made, walls, widths)
    return coordinates(made.grid, distances, rigid=kept, chosen=chosen, pulls=pulls, fans=fans)


def _distances(drawing: Drawing, made: Plan, walls: list[Walls], widths: list[float]) -> Room:
    """Return how far apart items stand: a group's name stands left of the first edge that enters through its top."""
    found = room(made.grid, walls, widths)
    for group, (wall, wide) in enumerate(zip(walls, widths, strict=True)):
        row = made.grid.rows[made.spans[group][0]]
        entered = next((item for item in row if group in made.grid.path[item] and made.grid.up[item]), None)
        if entered is not None:
            pair = wall.left[0], entered
            found.distance[pair] = max(found.distance.get(pair, 0.0), wide)
    _make_room_beside_routers(drawing, made, found)
    return found


def _make_room_beside_routers(drawing: Drawing, made: Plan, distances: Room) -> None:
    """Keep two or three branches of a router so far apart that the outer ones can leave it at its sides."""
    place = made.grid.positions()
    branches: dict[int, dict[int, None]] = {}
    for chain in made.chains.values():
        if drawing.nodes[chain[0]].kind == "router":
            branches.setdefault(chain[0], {})[chain[1]] = None
    for router, items in branches.items():
        wide = made.sizes[router].width / 2 + CLEAR + 1
        ordered = sorted(items, key=lambda item: place[item])
        for left, right in pairwise(ordered if len(ordered) <= _SPREAD else ()):
            if place[right] == place[left] + 1:
                least = math.ceil(wide * 2 if len(ordered) == _SPREAD - 1 else wide)
                distances.distance[left, right] = max(distances.distance[left, right], least)


def _heights(made: Plan) -> tuple[list[float], list[bool]]:
    """Return how high each row is, and whether it holds nothing but labels."""
    heights = [0.0] * len(made.grid.rows)
    chips = [True] * len(heights)
    for node, size in enumerate(made.sizes):
        row = made.grid.row[node]
        heights[row] = max(heights[row], size.height)
        chips[row] = False
    for row, _ in made.chips.values():
        heights[row] = max(heights[row], CHIP_HEIGHT)
    return heights, chips


def _nodes(drawing: Drawing, made: Plan, x: list[float], stacked: Bands) -> Iterator[PlacedNode]:
    for number, (node, size) in enumerate(zip(drawing.nodes, made.sizes, strict=True)):
        row = made.grid.row[number]
        middle = (stacked.top[row] + stacked.bottom[row]) / 2
        box = Box(x[number] - size.width / 2, middle - size.height / 2, size.width, size.height)
        yield PlacedNode(node, size, box)


def _edges(drawing: Drawing, made: Plan, lines: list[Drawn]) -> Iterator[PlacedEdge]:
    shared = {edges[-1]: loop_label(drawing.edges, edges) for edges in made.loops.values()}
    for number, (edge, drawn) in enumerate(zip(drawing.edges, lines, strict=True)):
        label = shared[number] if number in shared else chip_text(edge.label or "")
        chip = None
        if drawn.chip is not None:
            wide = chip_width(label)
            chip = Box(drawn.chip[0] - wide / 2, drawn.chip[1] - CHIP_HEIGHT / 2, wide, CHIP_HEIGHT)
        yield PlacedEdge(edge, drawn.line, label, chip, drawn.framed)
