"""A drawing as Mermaid text, such as Markdown pages show it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from graphrt.graph.view.marks import CHARACTERS
from graphrt.graph.view.style import LIGHT
from graphrt.graph.view.tidy import tidy

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from graphrt.graph.view.drawing import Drawing, DrawnEdge, DrawnNode

_SHAPES: Final = {
    "start": ("((", "))"),
    "end": ("(((", ")))"),
    "function": ("(", ")"),
    "agent": ("{{", "}}"),
    "inference": ("([", "])"),
    "tool": ("[/", "/]"),
    "fallback": ("[/", "\\]"),
    "router": ("{", "}"),
    "join": ("[\\", "/]"),
    "ask": (">", "]"),
    "timer": ("[(", ")]"),
    "graph": ("[[", "]]"),
    "plan_step": ("[", "]"),
}
_ARROWS: Final = {"error": "-.->", "map": "==>", "gather": "==>"}
_WORDS: Final = frozenset(
    {
        *("call", "class", "classDef", "click", "default", "end", "flowchart", "graph"),
        *("href", "interpolate", "linkStyle", "style", "subgraph"),
    }
)
"""What cannot be an id because the language means something by it."""

_PLAIN: Final = re.compile(r"[\w .,:!?'()/+=*-]", re.UNICODE)


def to_mermaid(drawing: Drawing) -> str:
    """Write *drawing* as a Mermaid flowchart, with every node and every edge, however many there are.

    Groups become subgraphs. A node's state is a mark before its name and a class with its colours.
    """
    neat = tidy(drawing)
    names = _ids([node.id for node in neat.nodes])
    groups = _ids((group.id for group in neat.groups), taken=names.values())
    lines = ["flowchart TD", *_inside(neat, None, names, groups, "    ")]
    lines += [f"    {_edge(edge, names)}" for edge in neat.edges]
    lines += _colours(neat, names)
    return "\n".join(lines) + "\n"


def _ids(ids: Iterable[str], taken: Iterable[str] = ()) -> dict[str, str]:
    """Return a word of letters, digits and underscores for each id, all different."""
    used = set(taken)
    found: dict[str, str] = {}
    for id in ids:
        word = re.sub(r"\W", "_", id, flags=re.ASCII)
        if not word or word[0] in "_0123456789" or word in _WORDS:
            word = f"n_{word}"
        free, number = word, 2
        while free in used:
            free, number = f"{word}_{number}", number + 1
        used.add(free)
        found[id] = free
    return found


def _inside(
    drawing: Drawing, group: str | None, names: dict[str, str], groups: dict[str, str], indent: str
) -> Iterator[str]:
    for node in drawing.nodes:
        if node.group == group:
            yield f"{indent}{_node(node, names)}"
    for inner in drawing.groups:
        if inner.parent == group:
            yield f'{indent}subgraph {groups[inner.id]}["{_text(inner.label)}"]'
            yield from _inside(drawing, inner.id, names, groups, indent + "    ")
            yield f"{indent}end"


def _node(node: DrawnNode, names: dict[str, str]) -> str:
    left, right = _SHAPES[node.kind]
    mark = "" if node.state is None else f"{CHARACTERS[node.state]} "
    note = "" if node.note is None else f"<br/>{_text(node.note)}"
    return f'{names[node.id]}{left}"{mark}{_text(node.label)}{note}"{right}'


def _edge(edge: DrawnEdge, names: dict[str, str]) -> str:
    label = "" if edge.label is None else f'|"{_text(edge.label)}"|'
    return f"{names[edge.src]} {_ARROWS.get(edge.kind, '-->')}{label} {names[edge.dst]}"


def _colours(drawing: Drawing, names: dict[str, str]) -> Iterator[str]:
    members: dict[str, list[str]] = {}
    for node in drawing.nodes:
        if node.state is not None:
            members.setdefault(node.state, []).append(names[node.id])
    for state, nodes in members.items():
        colours = LIGHT.states[state]
        dashes = ",stroke-dasharray:4 3" if state == "skipped" else ""
        yield f"    classDef {state} fill:{colours.fill},stroke:{colours.line},color:{LIGHT.ink}{dashes}"
        yield f"    class {','.join(nodes)} {state}"
    for taken, look in ((True, "stroke-width:3px"), (False, "stroke-dasharray:2 4,opacity:0.5")):
        numbers = [str(number) for number, edge in enumerate(drawing.edges) if edge.taken is taken]
        if numbers:
            yield f"    linkStyle {','.join(numbers)} {look}"


def _text(text: str) -> str:
    """Write what the language might take for its own as numbered characters."""
    return "".join(
        character if _PLAIN.match(character) or not character.isascii() else f"#{ord(character)};" for character in text
    )
