"""A drawing as DOT text, the language of Graphviz."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from graphrt.graph.view.marks import CHARACTERS
from graphrt.graph.view.style import LIGHT
from graphrt.graph.view.tidy import tidy
from graphrt.graph.view.words import printable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from graphrt.graph.view.drawing import Drawing, DrawnEdge, DrawnNode

_SHAPES: Final = {
    "start": 'shape=box style="rounded,filled" fillcolor="#1b2430" fontcolor="#ffffff"',
    "end": 'shape=box style="rounded" peripheries=2',
    "function": 'shape=box style="rounded,filled"',
    "agent": 'shape=hexagon style="filled"',
    "inference": 'shape=oval style="filled"',
    "tool": 'shape=parallelogram style="filled"',
    "fallback": 'shape=trapezium style="filled"',
    "router": 'shape=diamond style="filled"',
    "join": 'shape=invtrapezium style="filled"',
    "ask": 'shape=note style="filled"',
    "timer": 'shape=octagon style="filled"',
    "graph": 'shape=box style="filled" peripheries=2',
    "plan_step": 'shape=box style="filled"',
}
_LINES: Final = {
    "conditional": {"arrowtail": "odiamond", "dir": "both"},
    "error": {"style": "dashed", "color": '"#c0392b"'},
    "map": {"penwidth": "2.4", "arrowhead": "normalnormal"},
    "gather": {"penwidth": "2.4"},
    "back": {"constraint": "false"},
}
_TAKEN: Final = {
    True: {"color": f'"{LIGHT.taken}"', "penwidth": "2.4"},
    False: {"color": f'"{LIGHT.faint}"', "style": "dotted"},
}
_FRAMES: Final = {"map": "peripheries=2", "graph": 'style="rounded"', "cycle": 'style="rounded,dotted"'}


def to_dot(drawing: Drawing) -> str:
    """Write *drawing* as a directed graph in DOT, with every node and every edge, however many there are.

    Groups become clusters. A node's state is a mark before its name and a colour.
    """
    neat = tidy(drawing)
    names = _ids(neat)
    lines = [
        f"digraph {_quoted(neat.name or 'graph')} {{",
        '    graph [rankdir=TB fontname="Helvetica" fontsize=11 labeljust=l newrank=true]',
        f'    node [fontname="Helvetica" fontsize=12 color="{LIGHT.outline}" fillcolor="{LIGHT.fill}"]',
        f'    edge [fontname="Helvetica" fontsize=10 color="{LIGHT.outline}"]',
        *_inside(neat, None, names, "    "),
        *(f"    {_edge(edge, names)}" for edge in neat.edges),
        "}",
    ]
    return "\n".join(lines) + "\n"


def _ids(drawing: Drawing) -> dict[str, str]:
    """Return each node's id as a quoted name; two that look the same on paper get different ones."""
    used: set[str] = set()
    found: dict[str, str] = {}
    for node in drawing.nodes:
        name = free = printable(node.id)
        number = 2
        while free in used:
            free, number = f"{name} ({number})", number + 1
        used.add(free)
        found[node.id] = _quoted(free)
    return found


def _inside(drawing: Drawing, group: str | None, names: dict[str, str], indent: str) -> Iterator[str]:
    for node in drawing.nodes:
        if node.group == group:
            yield f"{indent}{_node(node, names)}"
    for number, inner in enumerate(drawing.groups):
        if inner.parent == group:
            yield f"{indent}subgraph cluster_{number} {{"
            yield f'{indent}    label={_label(inner.label)} color="{LIGHT.frame_line}" {_FRAMES[inner.kind]}'
            yield from _inside(drawing, inner.id, names, indent + "    ")
            yield f"{indent}}}"


def _node(node: DrawnNode, names: dict[str, str]) -> str:
    mark = "" if node.state is None else f"{CHARACTERS[node.state]} "
    label = _label(f"{mark}{node.label}", *([node.note] if node.note else []))
    look = _SHAPES[node.kind]
    if node.state is not None:
        colours = LIGHT.states[node.state]
        look += f' color="{colours.line}"'
        if node.kind not in {"start", "end"}:
            look += f' fillcolor="{colours.fill}"'
    return f"{names[node.id]} [label={label} {look}]"


def _edge(edge: DrawnEdge, names: dict[str, str]) -> str:
    look = {} if edge.label is None else {"label": _label(edge.label)}
    look |= _LINES.get(edge.kind, {})
    if edge.taken is not None:
        look |= _TAKEN[edge.taken]
    about = " ".join(f"{name}={value}" for name, value in look.items())
    return f"{names[edge.src]} -> {names[edge.dst]}" + (f" [{about}]" if about else "")


def _label(*lines: str) -> str:
    """Quote the lines of a label, in which an ampersand would begin a named character."""
    return _quoted(*(line.replace("&", "&amp;") for line in lines))


def _quoted(*lines: str) -> str:
    escaped = (line.replace("\\", "\\\\").replace('"', '\\"') for line in lines)
    return '"' + "\\n".join(escaped) + '"'
