"""From a compiled graph and a run of it to what is drawn, and to networkx."""

from __future__ import annotations

import linecache
from typing import TYPE_CHECKING, Any

from graphrt.graph.compiled import EdgeKind
from graphrt.graph.states import NodeState
from graphrt.graph.view.drawing import Drawing, DrawnEdge, DrawnGroup, DrawnNode

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from networkx import MultiDiGraph

    from graphrt.graph.compiled import CompiledEdge, CompiledNode, Program, Region
    from graphrt.graph.core.records import Step
    from graphrt.graph.scheduler.result import RunResult

_LONGEST = 40
"""Characters of a condition's own text that fit on an edge."""

_WORST = (
    NodeState.FAILED,
    NodeState.TIMED_OUT,
    NodeState.RUNNING,
    NodeState.WAITING,
    NodeState.CANCELLED,
    NodeState.SUCCEEDED,
    NodeState.SKIPPED,
    NodeState.PENDING,
)
"""Of several steps of one node the most telling state is drawn."""


def to_networkx(program: Program) -> MultiDiGraph[Any]:
    """Give a networkx copy of the graph; changing it changes nothing else.

    Nodes have `kind`, `label`, `timeout`, `retry` and `plugin_ids`; edges have `kind` ("normal", "conditional",
    "error", "map" or "gather"), `label` and `back` (whether the edge closes a cycle).
    """
    import networkx as nx

    graph: MultiDiGraph[Any] = nx.MultiDiGraph(name=program.name)
    for node in (program.start, *program.nodes, program.end):
        decl = node.decl
        graph.add_node(
            node.name,
            kind=node.kind.value,
            label=(decl.label if decl is not None and decl.label else node.name),
            timeout=decl.timeout if decl is not None else None,
            retry=decl.retry if decl is not None else None,
            plugin_ids=tuple(getattr(decl.target, "plugin_ids", ())) if decl is not None else (),
        )
    for edge in drawn_edges(program):
        graph.add_edge(edge.src.name, edge.dst.name, kind=kind_of(edge), label=label_of(edge), back=is_back(edge))
    return graph


def drawn_edges(program: Program) -> list[CompiledEdge]:
    """Give the edges a person declared, in their order."""
    return sorted((e for e in program.edges if e.kind is not EdgeKind.GATHER), key=lambda e: e.index)


def is_back(edge: CompiledEdge) -> bool:
    """Whether the edge closes a cycle; a gather does when its list goes back."""
    return edge.gather.back if edge.gather is not None else edge.back


def kind_of(edge: CompiledEdge) -> str:
    """Give the edge's kind in words."""
    if edge.kind is EdgeKind.MAP:
        return "map"
    if edge.kind is EdgeKind.MEMBER:
        return "gather"
    if edge.kind is EdgeKind.ERROR:
        return "error"
    return "conditional" if edge.cond else "normal"


def label_of(edge: CompiledEdge) -> str | None:
    """Give what is written on the edge: its label, its error classes, or the name of its condition."""
    decl = edge.decl
    if decl.label:
        return decl.label
    if decl.errors is not None:
        return " | ".join("error" if e is Exception else e.__name__ for e in decl.errors)
    if decl.when is not None:
        name = getattr(decl.when, "__name__", None)
        return name if name != "<lambda>" else _written(decl.when)
    return None


def _written(condition: Any) -> str | None:
    """Give what a lambda says, as it stands in its file: one line, and short; None where that cannot be told."""
    code = condition.__code__
    spans = [p for p in code.co_positions() if None not in p and p[2] != p[3]]
    lines = {line for p in spans for line in p[:2]}
    if not spans or len(lines) != 1:
        return None
    text = linecache.getline(code.co_filename, lines.pop()).encode()
    said = text[min(p[2] for p in spans) : max(p[3] for p in spans)].decode(errors="replace")
    return said if 0 < len(said) <= _LONGEST else None


def drawing_of(program: Program, run: RunResult | None) -> Drawing:
    """Describe the picture of a graph: bodies of maps and graphs inside as nested groups, a run by its states."""
    parts = _Parts(run)
    parts.add(program, "", None)
    status = run.status.value if run is not None else None
    return Drawing(program.name, tuple(parts.nodes), tuple(parts.edges), tuple(parts.groups), status)


class _Parts:
    def __init__(self, run: RunResult | None) -> None:
        self.nodes: list[DrawnNode] = []
        self.edges: list[DrawnEdge] = []
        self.groups: list[DrawnGroup] = []
        self.steps = _steps_by_node(run._run.core.steps) if run is not None else None

    def add(self, program: Program, prefix: str, around: str | None) -> None:
        groups: dict[Region, str | None] = {program.region: around}
        for map_ in program.maps:
            self._group_of(map_.body, groups, prefix)
        ends = (program.start, program.end) if not prefix else ()
        for node in (*ends[:1], *program.nodes, *ends[1:]):
            group = groups[node.region]
            if node.graph is not None:
                inner = f"{prefix}{node.name}"
                self.groups.append(DrawnGroup(inner, node.name, "graph", group))
                self.add(node.graph, f"{inner}/", inner)
            else:
                self.nodes.append(self._node(node, prefix, group))
        for edge in drawn_edges(program):
            if prefix and (edge.src is program.start or edge.dst is program.end):
                continue
            self._edge(edge, prefix)

    def _group_of(self, region: Region, groups: dict[Region, str | None], prefix: str) -> str | None:
        if region not in groups:
            assert region.map is not None
            assert region.parent is not None
            name = f"{prefix}map:{region.map.tag}>{region.map.edge.dst.name}"
            parent = self._group_of(region.parent, groups, prefix)
            self.groups.append(DrawnGroup(name, f"each of {region.map.edge.src.name}", "map", parent))
            groups[region] = name
        return groups[region]

    def _node(self, node: CompiledNode, prefix: str, group: str | None) -> DrawnNode:
        ident = f"{prefix}{node.name}"
        decl = node.decl
        label = decl.label if decl is not None and decl.label else node.name
        if self.steps is None or decl is None:
            return DrawnNode(ident, label, node.kind.value, group)
        steps = self.steps.get(ident, [])
        if not steps:
            return DrawnNode(ident, label, node.kind.value, group, NodeState.PENDING.value)
        state = min((s.state for s in steps), key=_WORST.index)
        return DrawnNode(ident, label, node.kind.value, group, state.value, _note(steps, state))

    def _edge(self, edge: CompiledEdge, prefix: str) -> None:
        kind = "back" if is_back(edge) else kind_of(edge)
        label = label_of(edge)
        for src in _leaving(edge.src, prefix):
            for dst in _entering(edge.dst, prefix):
                self.edges.append(DrawnEdge(src, dst, label, kind))


def _leaving(node: CompiledNode, prefix: str) -> list[str]:
    """Where an edge out of *node* is drawn from: the last nodes of a graph inside."""
    ident = f"{prefix}{node.name}"
    if node.graph is None:
        return [ident]
    sources = dict.fromkeys(e.src for e in drawn_edges(node.graph) if e.dst is node.graph.end)
    return [s for n in sources if n is not node.graph.start for s in _leaving(n, f"{ident}/")]


def _entering(node: CompiledNode, prefix: str) -> list[str]:
    ident = f"{prefix}{node.name}"
    if node.graph is None:
        return [ident]
    targets = dict.fromkeys(e.dst for e in node.graph.start.out)
    return [t for n in targets if n is not node.graph.end for t in _entering(n, f"{ident}/")]


def _steps_by_node(steps: Iterable[Step]) -> dict[str, list[Step]]:
    found: dict[str, list[Step]] = {}
    for step in steps:
        names = [step.node.name]
        holder = step.frame.scope.graph.holder
        while holder is not None:
            names.append(holder.node.name)
            holder = holder.frame.scope.graph.holder
        found.setdefault("/".join(reversed(names)), []).append(step)
    return found


def _note(steps: Sequence[Step], state: NodeState) -> str | None:
    ran = [s for s in steps if s.started is not None]
    if not ran:
        return steps[-1].note
    words: list[str] = []
    if len(ran) > 1:
        here = sum(s.state is state for s in ran)
        words.append(f"{len(ran)} steps" if here == len(ran) else f"{here} of {len(ran)} {state.value}")
    most = max(s.attempts for s in ran)
    if most > 1:
        words.append(f"{most} attempts")
    seconds = sum(s.ended - s.started for s in ran if s.ended is not None and s.started is not None)
    words.append(_seconds(seconds))
    return ", ".join(words)


def _seconds(seconds: float) -> str:
    millis = seconds * 1000
    if millis < 1:
        return f"{millis * 1000:.0f} \N{MICRO SIGN}s"
    return f"{millis:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"
