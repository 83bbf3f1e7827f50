"""How things end badly (E3, E11 to E14, E17): failing scopes, cancelled steps, and the end of the run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphrt.graph.core import joins, maps
from graphrt.graph.protocols import Failure
from graphrt.graph.states import NodeState, check_move
from graphrt.notes import set_context

if TYPE_CHECKING:
    from graphrt.graph.compiled import CompiledEdge, CompiledMap, CompiledNode
    from graphrt.graph.core.records import Frame, Scope, Step
    from graphrt.graph.core.run import RunCore

_RUNNING = NodeState.RUNNING
_WAITING = NodeState.WAITING
_PENDING = NodeState.PENDING


def handler_of(step: Step, error: BaseException) -> tuple[CompiledEdge | None, BaseException]:
    """Find the first `on_error` edge that takes *error*; an exception in a condition takes its place, unhandled."""
    for edge in step.node.errors:
        classes = edge.decl.errors
        if classes is None or not isinstance(error, classes):
            continue
        when = edge.decl.when
        if when is None:
            return edge, error
        try:
            if when(error):
                return edge, error
        except Exception as broken:  # noqa: BLE001 - a condition is user code; its error becomes the step's (E13)
            set_context(broken, error)
            return None, broken
    return None, error


def settle_failed(core: RunCore, step: Step, handler: CompiledEdge | None) -> None:
    """Settle the edges of a step whose failure is handled: one `on_error` edge at most is taken."""
    node = step.node
    aborted = abort_maps(core, step)
    for edge in node.out:
        if edge.map is None:
            joins.settle(core, edge, step, False, None)
        elif edge.map not in aborted:
            for gather in edge.map.gathers:
                joins.settle(core, gather, step, False, None)
    for edge in node.errors:
        joins.settle(core, edge, step, edge is handler, step.error)


def abort_maps(core: RunCore, step: Step) -> set[object]:
    """Cancel the maps that *step* has opened and that are still open; say which."""
    scope = step.frame.scope
    mine = [run for run in scope.maps or () if run.source is step]
    for run in mine:
        maps.abort(core, run)
    return {run.map for run in mine}


def fail_scope(core: RunCore, scope: Scope, error: BaseException, culprit: Step | None, cause: str) -> None:
    """Let a scope fail: nothing starts in it any more, what is live is cancelled and awaited."""
    if scope.dead:
        note_failure(core, error, culprit)
        return
    scope.dead = True
    scope.cause = cause
    scope.error = error
    scope.culprit = culprit
    if core.deaths is not None:
        core.deaths.append(scope)
    kill(core, scope)


def note_failure(core: RunCore, error: BaseException, culprit: Step | None) -> None:
    """Remember a further failure for the run's notes."""
    if any(f.error is error for f in core.failures):
        return
    if culprit is None:
        core.failures.append(Failure(error, "", "", 1))
    else:
        scope = culprit.frame.scope
        while scope.index < 0 and scope.holder is not None:
            scope = scope.holder.frame.scope
        index = scope.index
        core.failures.append(
            Failure(error, culprit.node.name, culprit.frame.scope.path, culprit.round, index if index >= 0 else None)
        )


def cancel_scope(core: RunCore, scope: Scope) -> None:
    """Cancel a scope because of what happened around it."""
    if scope.dead or scope.over:
        return
    scope.dead = True
    scope.cause = "cancelled"
    kill(core, scope)


def kill(core: RunCore, scope: Scope) -> None:
    """Cancel what is live in a scope that has just died, the scopes inside included."""
    for step in list(scope.live):
        cancel_step(core, step)
    for run in list(scope.maps or ()):
        for child in list(run.children.values()):
            cancel_scope(core, child)
    check_ended(core, scope)


def cancel_step(core: RunCore, step: Step) -> None:
    """Ask a live step to end; a step that has not started is cancelled at once."""
    if step.cancelling:
        return
    step.cancelling = True
    if step.state is _PENDING:
        core.active -= 1
        end_cancelled(core, step)
    elif step.state is _WAITING:
        core.waits_no_more(step)
        core.cancels.append(step)
        end_cancelled(core, step)
    elif step.child is not None:
        if step.child.dead:
            return  # it is on its way out already
        cancel_scope(core, step.child)
    else:
        core.cancels.append(step)


def end_cancelled(core: RunCore, step: Step) -> None:
    """Record a step as cancelled and let go of what waits for it. The caller has adjusted the counts."""
    check_move(step, step.state, NodeState.CANCELLED)
    if step.state is _PENDING:
        core.steps.append(step)
    step.state = NodeState.CANCELLED
    step.ended = core.now
    step.arrivals = ()
    scope = step.frame.scope
    scope.live.pop(step, None)
    core.step_ended("step.cancelled", step)
    if scope.dead:
        check_ended(core, scope)
        return
    settle_failed(core, step, None)
    close_step(core, step)


def close_step(core: RunCore, step: Step) -> None:
    """Let a step's frame wait for one thing less, now that the step's edges have settled."""
    frame = step.frame
    frame.open -= 1
    if not frame.open:
        joins.frame_done(core, frame)


def check_ended(core: RunCore, scope: Scope) -> None:
    """End a dying scope when nothing in it is live any more, and go on with what holds it."""
    if not scope.dead or scope.over or scope.live:
        return
    if any(run.children for run in scope.maps or ()):
        return
    scope.over = True
    scope.maps = None
    for frame in reversed(scope.rounds or ()):
        core.round_completed(frame)
    scope.rounds = None
    if scope.holder is None:
        core.finish_root()
    elif scope.map_run is not None:
        maps.item_failed(core, scope)
    else:
        core.graph_ended(scope)


def cancel_rest(core: RunCore, join: CompiledNode, frame: Frame) -> None:
    """End what could only have led to an any-join that has fired with `cancel_rest=True` (E3)."""
    scope = frame.scope
    useless: dict[CompiledNode | CompiledMap, int] = {}
    around: Frame | None = frame
    for depth in range(join.depth, -1, -1):
        assert around is not None
        parts = join.cancel_sets[depth]
        useless.update(dict.fromkeys(parts, depth))
        core.cuts[around] = core.cuts.get(around, frozenset()) | parts
        around = around.parent

    def here(part: CompiledNode | CompiledMap, round_: tuple[int, ...]) -> bool:
        depth = useless.get(part)
        return depth is not None and round_[:depth] == frame.round[:depth]

    for run in list(scope.maps or ()):
        if here(run.map, run.frame.round) or here(run.source.node, run.frame.round):
            maps.abort(core, run)
    for step in list(scope.live):
        if here(step.node, step.frame.round):
            cancel_step(core, step)
