"""A drawing as a few lines of text, for terminals and wherever no picture can be shown."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from graphrt.graph.view.drawing import NODE_STATES, Drawing, DrawnEdge, DrawnNode
from graphrt.graph.view.layout_rank import going_back
from graphrt.graph.view.marks import ASCII, CHARACTERS
from graphrt.graph.view.tidy import fold, lineage, tidy

if TYPE_CHECKING:
    from collections.abc import Iterator

_ARROWS: Final = {
    "normal": "→",
    "conditional": "→",
    "error": "⇢",
    "map": "⇉",
    "gather": "⇒",
    "back": "↺",
}
_ASCII_ARROWS: Final = {
    "normal": "->",
    "conditional": "->",
    "error": "-!>",
    "map": "=>>",
    "gather": "=>",
    "back": "^>",
}
_WIDE: Final = 100
_LONGEST: Final = 60
_MOST_LINES: Final = 240


def to_text(drawing: Drawing, *, unicode: bool = True) -> str:
    """Write *drawing* in lines: a run of nodes on one, branches below their node, groups indented.

    A state is a character before the name, and is explained in the second line. Long drawings are cut, and
    say so.

    Args:
        unicode: False for arrows and marks in ASCII alone; names stay as they are.
    """
    neat = fold(tidy(drawing))
    writer = _Writer(neat, CHARACTERS if unicode else ASCII, _ARROWS if unicode else _ASCII_ARROWS)
    lines = [*writer.header(), *writer.body(writer.ordered, 0)]
    if len(lines) > _MOST_LINES:
        lines = [*lines[:_MOST_LINES], f"(and {len(lines) - _MOST_LINES} more lines)"]
    return "\n".join(lines) + "\n"


class _Writer:
    """What is written so far, and how edges and states are told."""

    def __init__(self, drawing: Drawing, marks: dict[str, str], arrows: dict[str, str]) -> None:
        self.drawing = drawing
        self.marks = marks
        self.arrows = arrows
        self.written: set[str] = set()
        parents = {group.id: group.parent for group in drawing.groups}
        self.around = {node.id: lineage(node.group, parents) for node in drawing.nodes}
        self.nodes = {node.id: node for node in drawing.nodes}
        self.entering: Counter[str] = Counter()
        self.leaving: dict[str, list[tuple[DrawnEdge, bool]]] = {id: [] for id in self.nodes}
        for edge, back in zip(drawing.edges, _going_back(drawing), strict=True):
            self.leaving[edge.src].append((edge, back))
            self.entering[edge.dst] += not back
        self.ordered = self._ordered()

    def header(self) -> Iterator[str]:
        """Write the name, and how the run and its nodes stand."""
        if self.drawing.name:
            yield _short(self.drawing.name)
        counts = Counter(node.state for node in self.drawing.nodes if node.state is not None)
        parts = [] if self.drawing.status is None else [self.drawing.status]
        parts += [
            f"{self.marks[state]} {counts[state]} {state.replace('_', ' ')}" for state in NODE_STATES if counts[state]
        ]
        if parts:
            yield "   ".join(parts)

    def body(self, nodes: list[DrawnNode], depth: int) -> Iterator[str]:
        """Write *nodes*, those of a group at *depth* together where its first one stands."""
        indent = "    " * depth
        labels = {group.id: group.label for group in self.drawing.groups}
        opened: set[str] = set()
        for node in nodes:
            around = self.around[node.id]
            if len(around) == depth:
                if node.id not in self.written and not self._told(node):
                    yield from self._run(node, indent)
            elif around[depth] not in opened:
                group = around[depth]
                opened.add(group)
                yield f"{indent}[{_short(labels[group])}]"
                yield from self.body([one for one in nodes if group in self.around[one.id]], depth + 1)

    def _ordered(self) -> list[DrawnNode]:
        """Return the nodes so that edges lead down the page, except those that go back."""
        below = {id: [edge.dst for edge, back in edges if not back][::-1] for id, edges in self.leaving.items()}
        starts = [node.id for node in self.drawing.nodes if node.kind == "start"]
        met: set[str] = set()
        done: list[str] = []
        for root in reversed([*starts, *self.nodes]):
            stack = [] if root in met else [(root, iter(below[root]))]
            met.add(root)
            while stack:
                here, rest = stack[-1]
                then = next((other for other in rest if other not in met), None)
                if then is None:
                    done.append(here)
                    stack.pop()
                else:
                    met.add(then)
                    stack.append((then, iter(below[then])))
        return [self.nodes[here] for here in reversed(done)]

    def _run(self, node: DrawnNode, indent: str) -> Iterator[str]:
        """Write a node, the nodes that follow it without a branch, and the branches at the end."""
        text = f"{indent}{self._name(node)}"
        self.written.add(node.id)
        while len(self.leaving[node.id]) == 1:
            edge, back = self.leaving[node.id][0]
            then = self.nodes[edge.dst]
            follows = (
                not back
                and self.entering[then.id] == 1
                and self.around[then.id] == self.around[node.id]
                and then.id not in self.written
            )
            label = "" if edge.label is None else f"({_short(edge.label)})"
            name = self._name(then) if follows else _short(then.label)
            step = f" {self._arrow(edge, back)}{label} {name}{_fate(edge)}"
            if len(text) + len(step) > _WIDE:
                yield text
                text = f"{indent}   "
            text += step
            if not follows:
                break
            node = then
            self.written.add(node.id)
        yield text
        edges = self.leaving[node.id]
        for edge, back in edges if len(edges) > 1 else ():
            label = "" if edge.label is None else f"{_short(edge.label)} "
            target = _short(self.nodes[edge.dst].label)
            yield f"{indent}      {label}{self._arrow(edge, back)} {target}{_fate(edge)}"

    def _told(self, node: DrawnNode) -> bool:
        """Tell whether all there is to say of a node is said where edges lead to it, as of most ends."""
        return node.kind == "end" and self.entering[node.id] > 0 and not (self.leaving[node.id] or node.state)

    def _name(self, node: DrawnNode) -> str:
        mark = "" if node.state is None else f"{self.marks[node.state]} "
        return f"{mark}{_short(node.label)}" + (f" ({_short(node.note)})" if node.note else "")

    def _arrow(self, edge: DrawnEdge, back: bool) -> str:
        return self.arrows["back" if back else edge.kind]


def _going_back(drawing: Drawing) -> list[bool]:
    number = {node.id: place for place, node in enumerate(drawing.nodes)}
    arcs = [(number[edge.src], number[edge.dst]) for edge in drawing.edges if edge.kind != "back"]
    found = iter(going_back(len(number), arcs, [number[node.id] for node in drawing.nodes if node.kind == "start"]))
    return [edge.kind == "back" or next(found) for edge in drawing.edges]


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def _fate(edge: DrawnEdge) -> str:
    return " (not taken)" if edge.taken is False else ""
