"""A drawing as one SVG document: no script, nothing from elsewhere, the same text every time."""

from __future__ import annotations

from collections import Counter
from html import escape
from typing import TYPE_CHECKING, Final

from graphrt.graph.view.drawing import NODE_STATES, Drawing, DrawnNode
from graphrt.graph.view.layout import Box, Layout, PlacedEdge, PlacedGroup, PlacedNode, lay_out
from graphrt.graph.view.layout_route import number
from graphrt.graph.view.shapes import ICONS, MARKS, badge_at, head, outline, tail
from graphrt.graph.view.sizes import ICON, ICON_GAP, LABEL_SIZE
from graphrt.graph.view.style import ROOT, style
from graphrt.graph.view.tidy import fold, tidy
from graphrt.graph.view.words import clip, printable, width

if TYPE_CHECKING:
    from collections.abc import Iterator

_MARGIN: Final = 20.0
_NAME_LIMIT: Final = 520.0
_NAME_SIZE: Final = 15.0
_SUMMARY_SIZE: Final = 12.0
_HEADER: Final = 34.0
_SUMMARY: Final = 26.0
_NOT_TAKEN_FIRST: Final = {False: 0, None: 1, True: 2}


def to_svg(drawing: Drawing, *, theme: str = "auto") -> str:
    """Draw *drawing* as an SVG document.

    Above about 150 nodes, groups are closed into one box each. Each node has the attributes ``data-node``
    (its id) and ``data-state``, and a class for its kind: ``k-tool``. Any drawing can be drawn: unknown kinds
    and states are drawn as plain ones, edges without their nodes are left out.

    Args:
        theme: ``light``, ``dark``, or ``auto``: as the reader's system asks for.
    """
    neat = fold(tidy(drawing))
    placed = lay_out(neat)
    header, wide, high = _header(neat)
    full = max(placed.width, wide) + 2 * _MARGIN
    tall = placed.height + high + 2 * _MARGIN
    shift = f"translate({number((full - placed.width) / 2 if placed.nodes else 0)} {number(_MARGIN + high)})"
    name = escape(neat.name or "graph")
    return "".join(
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" class="{ROOT}" {_size(full, tall)} ',
            f'viewBox="0 0 {number(full)} {number(tall)}" role="img" aria-label="{name}">',
            f"<title>{name}</title><style>{style(theme)}</style>",
            f'<rect class="canvas" {_size(full, tall)} rx="8"/>',
            header,
            f'<g transform="{shift}">',
            *_body(neat, placed),
            "</g></svg>",
        )
    )


def _body(neat: Drawing, placed: Layout) -> Iterator[str]:
    yield from (_frame(group) for group in placed.groups)
    edges = sorted(placed.edges, key=lambda edge: _NOT_TAKEN_FIRST[edge.edge.taken])
    routers = {node.id for node in neat.nodes if node.kind == "router"}
    yield from (_edge(edge, tailed=edge.edge.src not in routers) for edge in edges)
    yield from map(_node, placed.nodes)
    yield from (_title(group) for group in placed.groups)
    yield from map(_chip, edges)


def _header(drawing: Drawing) -> tuple[str, float, float]:
    """Return the name of the graph and how its run stands, and how wide and high both are."""
    parts: list[str] = []
    wide, y = 0.0, 0.0
    if drawing.name:
        name = clip(drawing.name, _NAME_SIZE, _NAME_LIMIT)
        parts.append(f'<text class="name begin" x="{number(_MARGIN)}" y="{number(_MARGIN + 12)}">{escape(name)}</text>')
        wide, y = width(name, _NAME_SIZE) * 1.1, _HEADER
    counts = Counter(node.state for node in drawing.nodes if node.state is not None)
    if not counts and drawing.status is None:
        return "".join(parts), wide, y
    x, middle = _MARGIN, _MARGIN + y + 2
    if drawing.status is not None:
        status = clip(drawing.status, _SUMMARY_SIZE, _NAME_LIMIT)
        parts.append(_sum(x, middle, status, "strong"))
        x += width(status, _SUMMARY_SIZE) * 1.1 + 14
    for state in NODE_STATES:
        if counts[state]:
            text = f"{counts[state]} {state.replace('_', ' ')}"
            parts.append(f'<g data-state="{state}">{_badge(state, x + 7, middle)}</g>')
            parts.append(_sum(x + 19, middle, text, "quiet"))
            x += 19 + width(text, _SUMMARY_SIZE) + 14
    return "".join(parts), max(wide, x - _MARGIN - 14), y + _SUMMARY


def _sum(x: float, middle: float, text: str, look: str) -> str:
    return f'<text class="sum begin {look}" x="{number(x)}" y="{number(middle + 4)}">{escape(text)}</text>'


def _badge(state: str, x: float, y: float) -> str:
    return (
        f'<g transform="translate({number(x)} {number(y)})">'
        '<circle class="badge" r="7.5" stroke-width="1.5"/>'
        f'<path class="mark" d="{MARKS[state]}"/></g>'
    )


def _frame(placed: PlacedGroup) -> str:
    group, box = placed.group, placed.box
    kind = group.kind
    piled = Box(box.left + 4, box.top + 4, box.width, box.height)
    frames = (piled, box) if kind == "map" else (box,)
    rectangles = "".join(_rectangle(one, 8, ' class="frame"') for one in frames)
    return (
        f'<g class="group g-{kind}" data-group="{_attribute(group.id)}"><title>{escape(group.label)}</title>'
        f"{rectangles}</g>"
    )


def _title(placed: PlacedGroup) -> str:
    box = placed.box
    place = f'x="{number(box.left + 10)}" y="{number(box.top + 15)}"'
    return f'<text class="title" {place}>{escape(placed.title)}</text>'


def _edge(placed: PlacedEdge, *, tailed: bool) -> str:
    edge, line = placed.edge, placed.line
    begin = tail(line) if tailed and edge.kind == "conditional" else ""
    taken = {None: "", True: ' data-taken="yes"', False: ' data-taken="no"'}[edge.taken]
    about = f"{printable(edge.src)} → {printable(edge.dst)}" + (f": {edge.label}" if edge.label else "")
    ends = f'data-src="{_attribute(edge.src)}" data-dst="{_attribute(edge.dst)}"'
    return (
        f'<g class="edge e-{edge.kind}" {ends}{taken}>'
        f'<title>{escape(about)}</title><path class="line" d="{line.data}"/>'
        f"{begin}{head(line, double=edge.kind == 'map')}</g>"
    )


def _chip(placed: PlacedEdge) -> str:
    chip = placed.chip
    if chip is None:
        return ""
    look = "chip framed" if placed.framed else "chip"
    return (
        f'<g class="{look}">{_rectangle(chip, 9)}<text x="{number(chip.left + chip.width / 2)}" '
        f'y="{number(chip.top + 13)}">{escape(placed.label)}</text></g>'
    )


def _rectangle(box: Box, radius: float, look: str = "") -> str:
    return (
        f'<rect{look} x="{number(box.left)}" y="{number(box.top)}" {_size(box.width, box.height)} '
        f'rx="{number(radius)}"/>'
    )


def _size(width: float, height: float) -> str:
    return f'width="{number(width)}" height="{number(height)}"'


def _node(placed: PlacedNode) -> str:
    node, box = placed.node, placed.box
    state = "" if node.state is None else f' data-state="{node.state}"'
    parts = [
        f'<g class="node k-{node.kind}" data-node="{_attribute(node.id)}"{state}>',
        f"<title>{escape(_about(node))}</title>",
        outline(node.kind, box),
        *_words(placed),
    ]
    if node.state is not None:
        parts.append(_badge(node.state, *badge_at(node.kind, box)))
    return "".join((*parts, "</g>"))


def _words(placed: PlacedNode) -> Iterator[str]:
    size, box, kind = placed.size, placed.box, placed.node.kind
    x, y = box.left + box.width / 2, box.top + box.height / 2 + 4.5 - (7.5 if size.note else 0)
    if kind in ICONS:
        x += (ICON + ICON_GAP) / 2
        left = x - width(size.label, LABEL_SIZE) / 2 - ICON_GAP - ICON
        place = f"translate({number(left)} {number(y - 4.5 - ICON / 2)}) scale({ICON / 16:.3f})"
        yield f'<path class="icon" d="{ICONS[kind]}" transform="{place}"/>'
    yield f'<text class="label" x="{number(x)}" y="{number(y)}">{escape(size.label)}</text>'
    if size.note:
        middle = number(box.left + box.width / 2)
        yield f'<text class="note" x="{middle}" y="{number(y + 15)}">{escape(size.note)}</text>'


def _about(node: DrawnNode) -> str:
    """Return what is shown where a pointer rests on a node: everything in full."""
    kind = node.kind.replace("_", " ")
    state = "" if node.state is None else f", {node.state.replace('_', ' ')}"
    lines = [f"{node.label} ({kind}{state})", node.note, node.title]
    return "\n".join(line for line in lines if line)


def _attribute(text: str) -> str:
    return escape(printable(text))
