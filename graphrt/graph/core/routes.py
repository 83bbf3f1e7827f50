"""Where a finished step's value goes: conditions, branches, maps, and what END makes of what reaches it (E8, E13)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from graphrt.errors import GraphError, GraphTypeError, StateConflictError
from graphrt.graph.compiled import EdgeKind
from graphrt.graph.core import ends, joins, maps
from graphrt.graph.states import NodeState

if TYPE_CHECKING:
    from collections.abc import Sequence

    from graphrt.graph.compiled import CompiledEdge, CompiledMap, CompiledNode
    from graphrt.graph.core.records import Arrival, Scope, Step
    from graphrt.graph.core.run import RunCore
    from graphrt.graph.declared import BranchDecl
    from graphrt.graph.state import History

Items = dict["CompiledMap", "Sequence[Any]"]


def route(core: RunCore, step: Step, value: Any) -> tuple[list[bool], Items]:
    """Decide which edges out of a finished step are taken, in declaration order, and list the items of its maps.

    Raises:
        Exception: A condition or a branch's key raised, no case matched, or a map's source is no list of items.
    """
    node = step.node
    chosen = {branch: _choose(node, branch, value) for branch in node.branches}
    taken: list[bool] = []
    items: Items = {}
    for edge in node.out:
        decl = edge.decl
        go = chosen[decl.branch] is edge if decl.branch is not None else decl.when is None or bool(decl.when(value))
        taken.append(go)
        if go and edge.map is not None and not edge.map.lazy:
            items[edge.map] = maps.items_of(value, edge.map)
    return taken, items


def _choose(node: CompiledNode, branch: BranchDecl, value: Any) -> CompiledEdge:
    key = value if branch.key is None else branch.key(value)
    default = None
    for edge in node.out:
        if edge.decl.branch is branch:
            if edge.decl.is_default:
                default = edge
            elif edge.decl.case == key:
                return edge
    if default is not None:
        return default
    cases = ", ".join(repr(e.decl.case) for e in node.out if e.decl.branch is branch)
    raise GraphError(
        f"branch of {node.name!r} has no case for {key!r}; its cases are {cases}",
        hint="add the case, or give the branch default=",
    )


def leave(core: RunCore, step: Step, taken: Sequence[bool] | None, items: Items | None) -> None:
    """Settle every edge out of a step that has succeeded."""
    node = step.node
    value = step.value
    out = node.out
    if taken is None:
        step.shared = step.shared or len(out) > 1 or node.read_by_name or node.feeds_copies
        for edge in out:
            joins.settle(core, edge, step, True, value)
    else:
        readers = sum(taken)
        step.shared = step.shared or readers > 1 or node.read_by_name or node.feeds_copies
        for edge, go in zip(out, taken, strict=True):
            if edge.map is not None:
                _leave_by_map(core, edge, step, go, items)
            else:
                if not go:
                    _remember_untaken(step.frame.scope, edge)
                joins.settle(core, edge, step, go, value)
    for edge in node.errors:
        joins.settle(core, edge, step, False, None)


def _leave_by_map(core: RunCore, edge: CompiledEdge, step: Step, go: bool, items: Items | None) -> None:
    map_ = edge.map
    assert map_ is not None
    scope = step.frame.scope
    if scope.dead:
        return
    if map_.lazy:
        run = maps.run_of(step, map_) or maps.open_map(core, map_, step, None)
        run.total = run.opened
        maps.maybe_close(core, run)
    elif go and not (core.cuts and joins.is_cut(core, map_, step.frame)):
        maps.open_map(core, map_, step, (items or {})[map_])
    else:
        if not go:
            _remember_untaken(scope, edge)
        for gather in map_.gathers:
            joins.settle(core, gather, step, False, None)


def _remember_untaken(scope: Scope, edge: CompiledEdge) -> None:
    if scope.untaken is None:
        scope.untaken = {}
    scope.untaken[edge] = None


# ---------------------------------------------------------------- END


def _ordered_ends(scope: Scope) -> list[Arrival]:
    return sorted(scope.ends or (), key=lambda a: a[0].index)


def _source_name(edge: CompiledEdge) -> str:
    return edge.members[-1].src.name if edge.kind is EdgeKind.GATHER else edge.src.name


def outputs_of(core: RunCore, scope: Scope) -> dict[str, Any]:
    """Give every value that reached END, by source, in the order of the edges."""
    outputs = {}
    for edge, step, value in _ordered_ends(scope):
        outputs[_source_name(edge)] = core.copy(value, step) if step.shared else value
    return outputs


def history_of(core: RunCore, scope: Scope) -> History | None:
    """Give the writes upstream of END so far; None where they conflict."""
    spec = scope.program.state
    ends = _ordered_ends(scope)
    if spec is None or not ends:
        return None
    try:
        return core.merge(joins.histories(ends), spec)
    except StateConflictError:
        return joins.histories(ends)[0]


def result_of(core: RunCore, scope: Scope) -> tuple[Any, dict[str, Any], History | None]:
    """Give output, outputs and state history of a graph's scope in which everything has ended.

    Raises:
        GraphError: END was not reached, the output is not of the declared type, or state writes conflict.
    """
    program = scope.program
    ends = _ordered_ends(scope)
    if not ends:
        raise _not_reached(core, scope)
    outputs = outputs_of(core, scope)
    output = None
    for edge, _, _ in ends:
        decl = edge.src.decl
        if edge.kind is not EdgeKind.PLAIN or decl is None or not decl.signature.returns_none:
            output = outputs[_source_name(edge)]
            break
    check = program.check_output
    if check is not None and not check(output):
        raise GraphTypeError(
            f"graph {program.name!r} declares another output than the {type(output).__name__} that reached END",
            hint=f"mend the node that leads to END, or declare Workflow({program.name!r}, output=...)",
        )
    history = None
    if program.state is not None:
        history = core.merge(joins.histories(ends), program.state)
    return output, outputs, history


def _not_reached(core: RunCore, scope: Scope) -> GraphError:
    mine = [s for s in core.steps if s.frame.scope.graph is scope]
    failed = [s for s in mine if s.error is not None]
    ran = {s.node for s in mine if s.state is NodeState.SUCCEEDED} | {s.node for s in failed}
    missing = [n.name for n in scope.program.nodes if n not in ran and not n.side]
    untaken = [f"{e} ({e.decl.label})" if e.decl.label else str(e) for e in scope.untaken or ()]
    parts = [f"graph {scope.program.name!r} ended without reaching END"]
    if failed:
        gone = ", ".join(f"{s.key!r} ({type(s.error).__name__})" for s in failed)
        parts.append(f"steps that failed and were passed over: {gone}")
    if missing:
        parts.append(f"nodes that did not run: {', '.join(missing)}")
    if untaken:
        parts.append(f"conditions that were false: {', '.join(untaken)}")
    error = GraphError("; ".join(parts), hint="add an edge to END for this case, such as a branch default")
    for step in failed:
        assert step.error is not None
        error.__cause__ = error.__cause__ or step.error
        ends.note_failure(core, step.error, step)
    return error
