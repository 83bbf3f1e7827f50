"""Bring any drawing into order, so that what draws it has no odd cases to look at."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from graphrt.graph.view.drawing import (
    EDGE_KINDS,
    FOLDED,
    GROUP_KINDS,
    NODE_KINDS,
    NODE_STATES,
    Drawing,
    DrawnEdge,
    DrawnGroup,
    DrawnNode,
)
from graphrt.graph.view.words import printable

FOLD_ABOVE: Final = 150
"""Nodes up to which every group is drawn open."""

DEEPEST: Final = 16
"""Groups in one another up to which each has a frame; what lies deeper is drawn in the last of them."""

_UNNAMED: Final = "(unnamed)"
_NAMES_IN_TITLE: Final = 40
_LOUDEST: Final = (
    "failed",
    "timed_out",
    "running",
    "waiting",
    "cancelled",
    "pending",
    "succeeded",
    "skipped",
)


def tidy(drawing: Drawing) -> Drawing:
    """Return *drawing* with unique ids, known kinds and states, edges between its nodes, printable texts.

    Groups come parents first, each with at least one node in it, and no group is around itself.
    """
    nodes = {node.id: node for node in reversed(drawing.nodes)}
    groups = {group.id: group for group in reversed(drawing.groups)}
    lines = _lines(groups)
    used = {around for node in nodes.values() for around in lines.get(node.group, ())}
    return Drawing(
        name=printable(drawing.name),
        nodes=tuple(_tidy_node(nodes.pop(node.id), lines) for node in drawing.nodes if node.id in nodes),
        edges=_tidy_edges(drawing),
        groups=tuple(
            replace(
                groups[id],
                label=printable(groups[id].label) or printable(id) or _UNNAMED,
                kind=groups[id].kind if groups[id].kind in GROUP_KINDS else "graph",
                parent=lines[id][-2] if len(lines[id]) > 1 else None,
            )
            for id in sorted(dict.fromkeys(group.id for group in drawing.groups), key=lambda id: len(lines[id]))
            if id in used
        ),
        status=None if drawing.status is None else printable(drawing.status),
    )


def _lines(groups: dict[str, DrawnGroup]) -> dict[str | None, tuple[str, ...]]:
    """Return for each group those around it, outermost first, and itself; of a deep one, the outer part."""
    lines: dict[str | None, tuple[str, ...]] = {}
    for id in groups:
        climbed: dict[str, None] = {}
        here: str | None = id
        while here in groups and here not in lines and here not in climbed:
            climbed[here] = None
            here = groups[here].parent
        line = lines.get(here, ())  # a ring is cut where it was met
        for group in reversed(climbed):
            line = (*line, group) if len(line) < DEEPEST else line
            lines[group] = line
    return lines


def lineage(group: str | None, parents: dict[str, str | None]) -> tuple[str, ...]:
    """Return the groups from the outermost down to *group*, itself included."""
    line: list[str] = []
    while group is not None:
        line.append(group)
        group = parents[group]
    return tuple(reversed(line))


def _tidy_node(node: DrawnNode, lines: dict[str | None, tuple[str, ...]]) -> DrawnNode:
    return replace(
        node,
        label=printable(node.label) or printable(node.id) or _UNNAMED,
        kind=node.kind if node.kind in NODE_KINDS else "function",
        group=lines[node.group][-1] if node.group in lines else None,
        state=node.state if node.state in NODE_STATES else None,
        note=printable(node.note) or None if node.note is not None else None,
        title=printable(node.title) or None if node.title is not None else None,
    )


def _tidy_edges(drawing: Drawing) -> tuple[DrawnEdge, ...]:
    known = {node.id for node in drawing.nodes}
    return tuple(
        replace(
            edge,
            label=printable(edge.label) or None if edge.label is not None else None,
            kind=edge.kind if edge.kind in EDGE_KINDS else "normal",
            taken=None if edge.taken is None else bool(edge.taken),
        )
        for edge in drawing.edges
        if edge.src in known and edge.dst in known
    )


def fold(drawing: Drawing, limit: int = FOLD_ABOVE) -> Drawing:
    """Close the groups of a tidy *drawing*, the innermost first, until at most *limit* nodes are left.

    A closed group is one node of kind ``folded`` with the group's id: it tells how many nodes it holds, and
    shows the state among theirs that most needs to be seen. Groups at the same depth are closed together. A
    drawing without groups stays as it is.
    """
    parents = {group.id: group.parent for group in drawing.groups}
    depth = {group: len(lineage(group, parents)) for group in parents}
    while len(drawing.nodes) > limit and drawing.groups:
        deepest = max(depth[group.id] for group in drawing.groups)
        drawing = _close(drawing, [group for group in drawing.groups if depth[group.id] == deepest])
    return drawing


def _close(drawing: Drawing, groups: list[DrawnGroup]) -> Drawing:
    inside: dict[str | None, list[DrawnNode]] = {group.id: [] for group in groups}
    for node in drawing.nodes:
        if node.group in inside:
            inside[node.group].append(node)
    taken = {node.id for node in drawing.nodes if node.group not in inside}
    boxes: dict[str | None, DrawnNode] = {}
    for group in groups:
        id = group.id
        while id in taken:
            id += "'"
        taken.add(id)
        boxes[group.id] = _box(group, id, inside[group.id])
    stands_for = {node.id: boxes[group].id for group, nodes in inside.items() for node in nodes}
    nodes = dict.fromkeys(boxes.get(node.group, node) for node in drawing.nodes)
    return replace(
        drawing,
        nodes=tuple(nodes),
        edges=_merged(drawing.edges, stands_for),
        groups=tuple(group for group in drawing.groups if group.id not in inside),
    )


def _box(group: DrawnGroup, id: str, inside: list[DrawnNode]) -> DrawnNode:
    count = sum(_count(node) for node in inside)
    names = ", ".join(node.label for node in inside[:_NAMES_IN_TITLE])
    states = {node.state for node in inside}
    return DrawnNode(
        id=id,
        label=group.label,
        kind=FOLDED,
        group=group.parent,
        state=next((state for state in _LOUDEST if state in states), None),
        note="1 node" if count == 1 else f"{count} nodes",
        title=names if len(inside) <= _NAMES_IN_TITLE else f"{names}, ...",
    )


def _count(node: DrawnNode) -> int:
    """Count the nodes that *node* stands for; a folded one says so in its note."""
    return int(node.note.split()[0]) if node.kind == FOLDED and node.note is not None else 1


def _merged(edges: tuple[DrawnEdge, ...], stands_for: dict[str, str]) -> tuple[DrawnEdge, ...]:
    """Move the ends of *edges* to the boxes that stand for them.

    Edges of one kind that then run between the same two boxes become one, with their label if they have the
    same.
    """
    found: dict[tuple[str, ...], DrawnEdge] = {}
    for number, edge in enumerate(edges):
        src, dst = stands_for.get(edge.src, edge.src), stands_for.get(edge.dst, edge.dst)
        if src == edge.src and dst == edge.dst:
            found[(str(number),)] = edge
        elif src != dst:
            before = found.get((src, dst, edge.kind), edge)
            found[src, dst, edge.kind] = replace(
                edge,
                src=src,
                dst=dst,
                label=edge.label if edge.label == before.label else None,
                taken=_either(before.taken, edge.taken),
            )
    return tuple(found.values())


def _either(one: bool | None, other: bool | None) -> bool | None:
    if one is None or other is None:
        return one if other is None else other
    return one or other
