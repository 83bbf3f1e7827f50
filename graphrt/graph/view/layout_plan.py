"""A drawing in numbers: what goes down, what goes back, and the grid of both."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from graphrt.graph.view.drawing import FOLDED
from graphrt.graph.view.layout_grid import Grid, Path, Role, extents, fill
from graphrt.graph.view.layout_lane import Lane
from graphrt.graph.view.layout_rank import Arc, going_back, ranks
from graphrt.graph.view.layout_thread import Threads, crowds, knots
from graphrt.graph.view.sizes import PILE, NodeSize, chip_text, chip_width, node_size
from graphrt.graph.view.tidy import lineage

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from graphrt.graph.view.drawing import Drawing, DrawnEdge

LOOP_REACH: Final = 18.0
LOOP_STEP: Final = 8.0
"""How far the first loop at a node's side reaches out, and each further one beyond it, in pixels."""


@dataclass(slots=True)
class Plan:
    """What the later steps of the layout work on. Nodes, edges and groups are numbered as in the drawing."""

    sizes: list[NodeSize]
    arcs: list[Arc]
    paths: list[Path]
    """Of each node, the groups around it."""
    group_paths: list[Path]
    """Of each group, the groups from the outermost down to itself."""
    spans: list[tuple[int, int]]
    """Of each group, its first and last row."""
    grid: Grid
    chains: dict[int, list[int]] = field(default_factory=dict)
    """Of each edge that goes down, its items."""
    shared: set[int] = field(default_factory=set)
    """Items that several edges pass."""
    lanes: list[Lane] = field(default_factory=list)
    loops: dict[int, list[int]] = field(default_factory=dict)
    """Of each node with edges to itself, those edges."""
    chips: dict[int, tuple[int, float]] = field(default_factory=dict)
    """Of each labelled edge between two nodes, the row of its label and the width."""


def plan(drawing: Drawing) -> Plan:
    """Give each node of a tidy *drawing* its row, and lead the edges that go down through the rows."""
    number = {node.id: index for index, node in enumerate(drawing.nodes)}
    arcs = [(number[edge.src], number[edge.dst]) for edge in drawing.edges]
    forward = _forward(drawing, arcs)
    rank = ranks(
        len(number),
        [arcs[edge] for edge in forward],
        [index for index, node in enumerate(drawing.nodes) if node.kind == "end"],
    )
    lanes = [
        Lane(edge, *arc)
        for edge, arc in enumerate(arcs)
        if edge not in forward and arc[0] != arc[1] and rank[arc[0]] >= rank[arc[1]]
    ]
    up = {lane.edge for lane in lanes}
    row, chips, count = _rows(drawing.edges, arcs, rank, up)
    down = [edge for edge, arc in enumerate(arcs) if edge not in up and arc[0] != arc[1]]
    gathered = knots(drawing.edges, arcs, row, down)
    made = _empty(drawing, arcs, row, count, crowds(arcs, gathered, [*down, *sorted(up)]))
    made.lanes, made.chips = lanes, chips
    threads = Threads(made.grid, made.spans)
    longest_first = sorted(gathered, key=lambda edge: row[arcs[edge][0]] - row[arcs[edge][1]])
    for edge in (*longest_first, *(edge for edge in down if edge not in gathered)):
        made.chains[edge] = threads.lead(*arcs[edge], chips.get(edge), gathered.get(edge))
    made.chains = {edge: made.chains[edge] for edge in down}
    uses = Counter(item for chain in made.chains.values() for item in chain[1:-1])
    made.shared = {item for item, count in uses.items() if count > 1}
    fill(made.grid, made.spans, made.group_paths)
    return made


def _forward(drawing: Drawing, arcs: Sequence[Arc]) -> dict[int, None]:
    """Return the edges that decide about the rows: without the rest, the graph has no cycle."""
    edges = [edge for edge, (src, dst) in enumerate(arcs) if src != dst and drawing.edges[edge].kind != "back"]
    starts = [index for index, node in enumerate(drawing.nodes) if node.kind == "start"]
    back = going_back(len(drawing.nodes), [arcs[edge] for edge in edges], starts)
    return {edge: None for edge, turned in zip(edges, back, strict=True) if not turned}


def _rows(
    edges: Sequence[DrawnEdge], arcs: Sequence[Arc], rank: Sequence[int], up: set[int]
) -> tuple[list[int], dict[int, tuple[int, float]], int]:
    """Turn ranks into rows, with a row for labels below each rank that needs one.

    Returns:
        The row of each node, the row and width of each label, and the number of rows.
    """
    below: dict[int, int] = {}
    for edge, (src, dst) in enumerate(arcs):
        if edges[edge].label is not None and src != dst:
            below[edge] = rank[src] - 1 if edge in up and rank[src] > rank[dst] else rank[src]
    gaps = sorted({gap for edge, gap in below.items() if not _level(arcs[edge], rank)})
    row_of = [level + bisect_left(gaps, level) for level in range(max(rank, default=-1) + 1)]
    chips = {
        edge: (
            row_of[gap] + (0 if _level(arcs[edge], rank) else 1),
            chip_width(chip_text(edges[edge].label or "")),
        )
        for edge, gap in below.items()
    }
    return [row_of[level] for level in rank], chips, (row_of[-1] + 1 if row_of else 0)


def _level(arc: Arc, rank: Sequence[int]) -> bool:
    return rank[arc[0]] == rank[arc[1]]


def _empty(drawing: Drawing, arcs: list[Arc], row: Sequence[int], count: int, crowd: Mapping[int, int]) -> Plan:
    """Return a plan with the nodes in their rows and no edges yet."""
    group = {group.id: index for index, group in enumerate(drawing.groups)}
    parents = {group.id: group.parent for group in drawing.groups}
    group_paths = [tuple(group[id] for id in lineage(one.id, parents)) for one in drawing.groups]
    paths = [tuple(group[id] for id in lineage(node.group, parents)) for node in drawing.nodes]
    sizes = [node_size(node, crowd.get(index, 0)) for index, node in enumerate(drawing.nodes)]
    loops: dict[int, list[int]] = {}
    for edge, (src, dst) in enumerate(arcs):
        if src == dst:
            loops.setdefault(src, []).append(edge)
    grid = Grid([[] for _ in range(count)])
    for node, size in enumerate(sizes):
        half = size.width / 2
        extra = loop_room(drawing.edges, loops.get(node, []))
        extra += PILE if drawing.nodes[node].kind == FOLDED else 0
        grid.append(Role.NODE, row[node], paths[node], half, half + extra)
    spans = extents(grid, len(group_paths), range(len(sizes)))
    return Plan(sizes, arcs, paths, group_paths, spans, grid, loops=loops)


def loop_label(edges: Sequence[DrawnEdge], loops: Sequence[int]) -> str:
    """Return the one label that stands beside all loops of a node."""
    labels = dict.fromkeys(edges[edge].label for edge in loops)
    return chip_text(" / ".join(label for label in labels if label is not None))


def loop_room(edges: Sequence[DrawnEdge], loops: Sequence[int]) -> float:
    """Return how much room the loops of a node take at its right, with their label."""
    if not loops:
        return 0.0
    label = loop_label(edges, loops)
    return LOOP_REACH + LOOP_STEP * (len(loops) - 1) + (chip_width(label) + 4 if label else 0)
