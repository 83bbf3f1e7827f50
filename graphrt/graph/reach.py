"""What the compiler asks about the paths of a graph: what always lies before what, what is sure to deliver."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from graphrt.errors import GraphError
from graphrt.graph.compiled import EdgeKind
from graphrt.graph.dominators import Dominators
from graphrt.graph.signature import MISSING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from graphrt.graph.binding import Bind
    from graphrt.graph.compiled import CompiledEdge, CompiledNode, Program


class Paths:
    """The paths of one graph; answers are computed when first asked for."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self._dominators: Dominators | None = None
        self._implied: dict[CompiledNode, set[CompiledNode]] = {}
        self._unconditional: set[CompiledNode] | None = None
        self._after: dict[CompiledNode, list[CompiledEdge]] | None = None
        self.certain = not any(e.cond or e.kind is EdgeKind.ERROR for e in program.edges) and not any(
            n.quorum > 1 or (n.decl is not None and n.decl.on_error == "skip") for n in program.nodes
        )
        """Nothing in the graph can be passed over while the run goes on."""

    def after(self, node: CompiledNode) -> list[CompiledEdge]:
        """Give the edges that lead on from *node*: a map leads into its body, and on to its gathers."""
        if self._after is None:
            self._after = {}
            for edge in self.program.edges:
                self._after.setdefault(edge.src, []).append(edge)
        return self._after.get(node, [])

    def around(self, outer: CompiledNode, inner: CompiledNode) -> bool:
        """Whether *outer*'s scope is *inner*'s scope or lies around it."""
        region = inner.region
        while region is not outer.region:
            if region.parent is None:
                return False
            region = region.parent
        return True

    def always_before(self, source: CompiledNode, node: CompiledNode) -> bool:
        """Whether every way from START to *node* leaves *source* by a normal edge."""
        return self.dominators.always_left(source, node)

    @property
    def dominators(self) -> Dominators:
        """The graph's dominator tree."""
        if self._dominators is None:
            self._dominators = Dominators(self.program, self.after)
        return self._dominators

    # ------------------------------------------------------------ what is certain

    def unconditional(self, edge: CompiledEdge) -> bool:
        """Whether some way from START through *edge* has no condition, branch or error on it."""
        if self._unconditional is None:
            start = self.program.start
            self._unconditional = {start}
            queue = deque([start])
            while queue:
                for out in self.after(queue.popleft()):
                    if not out.cond and out.dst not in self._unconditional:
                        self._unconditional.add(out.dst)
                        queue.append(out.dst)
        return not edge.cond and edge.src in self._unconditional

    def certainly_taken(self, edge: CompiledEdge, node: CompiledNode) -> bool:
        """Whether *edge* is surely taken whenever *node*, into which it leads, runs."""
        if self.certain:
            return True
        if edge.cond:
            return False
        if self.always_before(edge.src, node):
            return True
        return edge.src in self._implied_by(self.dominators.nearest(node))

    def _implied_by(self, source: CompiledNode) -> set[CompiledNode]:
        """Give the nodes that surely run and leave by their normal edges once *source* has left by its own."""
        sure = self._implied.get(source)
        if sure is None:
            sure = self._implied[source] = {source}
            queue = deque(sure)
            while queue:
                for out in self.after(queue.popleft()):
                    dst = out.dst
                    if out.cond or out.kind in (EdgeKind.ERROR, EdgeKind.MAP, EdgeKind.MEMBER) or dst in sure:
                        continue
                    if dst.quorum > 1 or dst.errors or (dst.decl is not None and dst.decl.on_error == "skip"):
                        continue
                    sure.add(dst)
                    queue.append(dst)
        return sure


def check_delivery(paths: Paths, node: CompiledNode, bind: Bind) -> None:
    """Check that a parameter whose edge may be skipped while its node runs has a default or a type that allows None.

    Raises:
        GraphError: It has neither.
    """
    edges = bind.edges
    if len(edges) == len(node.forward_in) + len(node.back_in) or (paths.certain and not node.depth and not node.quorum):
        return
    if bind.param.default is not MISSING or bind.param.optional:
        return
    annotation = bind.param.annotation
    if annotation is MISSING or bind.param.unresolved:
        return
    forward = [e for e in node.forward_in if e in edges]
    if not forward:
        why = f"edge {edges[0]} brings nothing in the first round"
    elif node.quorum and not all(e in edges for e in node.forward_in):
        needed = "the first edge" if node.quorum == 1 else f"{node.quorum} edges"
        why = f"the node runs on {needed} and {forward[0]} may be late"
    elif not all(e in edges for e in node.forward_in) and not (
        len(forward) > 1 or paths.certainly_taken(forward[0], node)
    ):
        why = f"edge {forward[0]} may be skipped while the node runs"
    elif node.header_of is None and node.depth and all(e.depth < node.depth for e in forward):
        why = f"edge {forward[0]} comes from outside the cycle and brings a value in its first round only"
    else:
        return
    raise GraphError(
        f"parameter {bind.name!r} of node {node.name!r} needs a default: {why}",
        hint=f"write {bind.name}: ... | None = None, or give it another default{_alike(node, bind)}",
    )


def _alike(node: CompiledNode, bind: Bind) -> str:
    """Say how a header takes its first value and the loop's by one parameter."""
    if not node.back_in or any(not e.back for e in bind.edges):
        return ""
    others = ", ".join(str(e) for e in node.forward_in)
    return f"; for the first value too, give {others} the same into={bind.name!r}, or none of them an into="


def reaching(
    targets: Iterable[CompiledNode], before: Callable[[CompiledNode], Iterable[CompiledNode]]
) -> set[CompiledNode]:
    """Give all nodes from which one of *targets* can be reached."""
    seen = set(targets)
    queue = deque(seen)
    while queue:
        for node in before(queue.popleft()):
            if node not in seen:
                seen.add(node)
                queue.append(node)
    return seen
