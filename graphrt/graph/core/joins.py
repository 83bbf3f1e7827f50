"""Joins and rounds (E1 to E6): when edges settle, when nodes run or are skipped, when rounds start and cycles end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from graphrt.errors import GraphError, LimitExceededError, StateConflictError
from graphrt.graph.compiled import EdgeKind
from graphrt.graph.core.records import NO_COUNTS, Activation, Arrival, Frame, Gathered, Step
from graphrt.graph.states import NodeState

if TYPE_CHECKING:
    from collections.abc import Sequence

    from graphrt.graph.compiled import CompiledCycle, CompiledEdge, CompiledMap, CompiledNode
    from graphrt.graph.core.run import RunCore
    from graphrt.graph.history import History

_GATHER = EdgeKind.GATHER
_MEMBER = EdgeKind.MEMBER


def _by_declaration(arrival: Arrival) -> int:
    return arrival[0].index


def settle(core: RunCore, edge: CompiledEdge, step: Step, taken: bool, value: Any) -> None:
    """Settle *edge*, which leaves *step*: taken with *value*, or skipped."""
    frame = step.frame
    if frame.scope.dead:
        return
    if edge.kind is _MEMBER:
        if taken:
            _enter_gather(core, edge, step, value)
        return
    climb = edge.src.depth - edge.depth
    if climb:
        if not taken:
            return  # an exit not taken is skipped when the cycle's activation is over
        round_ = frame.round
        while climb:
            assert frame.parent is not None
            frame = frame.parent
            climb -= 1
        if not _exit_once(core, edge, frame, round_):
            return
    if edge.dst is frame.scope.program.end:
        if taken:
            scope = frame.scope
            if scope.ends is None:
                scope.ends = []
            scope.ends.append((edge, step, value))
        return
    arrive(core, edge, frame, step if taken else None, value)


def _enter_gather(core: RunCore, edge: CompiledEdge, step: Step, value: Any) -> None:
    scope = step.frame.scope
    gather = edge.gather
    assert gather is not None
    if scope.entries is None:
        scope.entries = {}
    before = scope.entries.get(gather)
    if before is None:
        scope.entries[gather] = (edge, step, value)
        return
    first, then = before[1], step
    core.fail_scope(
        scope,
        GraphError(
            f"item {scope.path!r} gives two entries to one gather: edge {before[0]} of {first.key!r} "
            f"and edge {edge} of {then.key!r}",
            hint="give the edges conditions that exclude each other, or gather them under two names with into=",
        ),
        step,
    )


def _exit_once(core: RunCore, edge: CompiledEdge, frame: Frame, round_: tuple[int, ...]) -> bool:
    if frame.exits is None:
        frame.exits = {}
    before = frame.exits.get(edge)
    if before is None:
        frame.exits[edge] = round_
        return True
    first, then = (".".join(map(str, r)) for r in (before, round_))
    core.fail_scope(
        frame.scope,
        GraphError(
            f"edge {edge} leaves its cycle in round {first} and again in round {then}",
            hint="a node outside a cycle runs once: put it inside, or give the edge a condition",
        ),
        None,
    )
    return False


def arrive(core: RunCore, edge: CompiledEdge, frame: Frame, step: Step | None, value: Any) -> None:
    """Count *edge* at its destination; *step* is None when it was skipped, *frame* the one that holds both ends."""
    if edge.back:
        _back(core, edge, frame, step, value)
        return
    dst = edge.dst
    for cycle in dst.cycles[edge.depth :]:
        if not frame.open:
            return  # everything there has ended, the destination by an earlier edge: a later arrival is dropped
        frame = first_round(core, frame, cycle)
    if not frame.open:
        return
    slot = dst.slot
    left = frame.pending[slot] - 1
    frame.pending[slot] = left
    got = _gotten(frame, slot, bool(left or dst.quorum))
    if got is None:
        return  # it has fired: a later arrival is dropped
    if step is not None:
        got.append((edge, step, value))
    quorum = dst.quorum
    if quorum and len(got) >= quorum:
        assert frame.arrived is not None
        frame.arrived[slot] = None
        ready(core, dst, frame, got)
        if dst.cancel_sets:
            core.cancel_rest(dst, frame)
    elif not left:
        if quorum:
            core.skip(dst, frame, f"{len(got)} of {quorum}")
        elif got:
            if frame.arrived:
                frame.arrived.pop(slot, None)
            ready(core, dst, frame, got)
        else:
            core.skip(dst, frame, None)


def _gotten(frame: Frame, slot: int, keep: bool) -> list[Arrival] | None:
    """Give what has arrived at *slot* so far; None when the node there has fired."""
    arrived = frame.arrived
    if arrived is not None and slot in arrived:
        return arrived[slot]
    got: list[Arrival] = []
    if keep:
        if arrived is None:
            arrived = frame.arrived = {}
        arrived[slot] = got
    return got


def ready(core: RunCore, node: CompiledNode, frame: Frame, arrivals: Sequence[Arrival]) -> None:
    """Make the step of *node* in *frame*, ready to start."""
    scope = frame.scope
    if scope.dead:
        return
    if core.cuts and is_cut(core, node, frame):
        core.skip(node, frame, "a join that it led to has fired without it")
        return
    if len(arrivals) > 1:
        arrivals = sorted(arrivals, key=_by_declaration)
    step = Step(node, frame, arrivals)
    header = node.header_of
    if header is not None and frame.cycle is header and len(frame.round) and frame.round[-1] == 1:
        assert frame.activation is not None
        frame.activation.kept = arrivals
    if frame.cycle is not None and not frame.announced:
        announce(core, frame)
    if node.carry:
        step.carried = carry(node, arrivals)
    if scope.program.state is not None:
        source = arrivals[0][1]
        try:
            if len(arrivals) == 1 and not isinstance(source, Gathered):
                step.history = source.history
            else:
                step.history = core.merge(histories(arrivals), scope.program.state)
        except StateConflictError as error:
            core.fail_scope(scope, error, step)
            return
    scope.live[step] = None
    core.active += 1
    core.ready.append(step)


def is_cut(core: RunCore, part: CompiledNode | CompiledMap, frame: Frame | None) -> bool:
    """Whether a join with `cancel_rest=True` has made a node or a map useless in *frame*."""
    while frame is not None:
        if part in core.cuts.get(frame, ()):
            return True
        frame = frame.parent
    return False


def histories(arrivals: Sequence[Arrival]) -> list[History | None]:
    """Give the histories of taken edges in order; a gather brings its source's and those of its items."""
    found: list[History | None] = []
    for _, step, _ in arrivals:
        if isinstance(step, Gathered):
            found.extend(step.histories)
        else:
            found.append(step.history)
    return found


def carry(node: CompiledNode, arrivals: Sequence[Arrival]) -> tuple[Step, ...]:
    """Pick, for each node that *node* keeps at hand, its step of the highest round upstream."""
    carried = []
    for i in range(len(node.carry)):
        best: Step | None = None
        for edge, step, _ in arrivals:
            place = edge.carry[i]
            source = step.source if edge.kind is _GATHER else step  # type: ignore[attr-defined]  # a Gathered
            found = source if place < 0 else source.carried[place]
            if best is None or found.frame.round > best.frame.round:
                best = found
        assert best is not None
        carried.append(best)
    return tuple(carried)


# ---------------------------------------------------------------- rounds


def first_round(core: RunCore, frame: Frame, cycle: CompiledCycle) -> Frame:
    """Give the first round of *cycle*'s activation inside *frame*, opening it when nothing has arrived there before."""
    inner = frame.inner
    if inner is None:
        inner = frame.inner = {}
    activation = inner.get(cycle)
    if activation is None:
        activation = inner[cycle] = Activation(cycle, frame)
        activation.first = _open_round(core, activation)
    assert activation.first is not None
    return activation.first


def _open_round(core: RunCore, activation: Activation) -> Frame:
    cycle, parent = activation.cycle, activation.parent
    activation.rounds += 1
    activation.live += 1
    number = activation.rounds
    fresh = parent.fresh if number == 1 else cycle.level
    frame = Frame(
        parent.scope,
        cycle,
        parent,
        activation,
        (*parent.round, number),
        fresh,
        list(cycle.zero[fresh]),
        cycle.width,
    )
    frame.back_pending = len(cycle.header.back_in)
    for header in cycle.orphans[fresh]:
        core.skip(header, first_round(core, frame, header.cycles[-1]), None)
    return frame


def announce(core: RunCore, frame: Frame) -> None:
    """Record that the rounds up to *frame* have started; a cycle that is skipped as a whole has none."""
    if frame.parent is not None and frame.parent.cycle is not None and not frame.parent.announced:
        announce(core, frame.parent)
    frame.announced = True
    scope = frame.scope
    if scope.rounds is None:
        scope.rounds = []
    scope.rounds.append(frame)
    core.round_started(frame)


def _back(core: RunCore, edge: CompiledEdge, frame: Frame, step: Step | None, value: Any) -> None:
    frame.back_pending -= 1
    activation = frame.activation
    assert activation is not None
    if activation.due is not None or frame.round[-1] < activation.rounds:
        return  # the next round starts, or has started already: a later arrival is dropped
    if step is not None:
        if frame.back is None:
            frame.back = []
        frame.back.append((edge, step, value))
    decl = edge.dst.decl
    if frame.back and (not frame.back_pending or (decl is not None and decl.join == "any")):
        activation.due = frame.back
        core.due.append(activation)


def next_round(core: RunCore, activation: Activation) -> None:
    """Start the next round with what the back edges brought, or refuse it at the limit (E20)."""
    cycle = activation.cycle
    scope = activation.parent.scope
    arrivals, activation.due = activation.due, None
    if scope.dead:
        return
    if core.cuts and is_cut(core, cycle.header, activation.parent):
        if not activation.live:
            frame_done(core, _end_activation(core, activation))
        return
    assert arrivals is not None
    limit = scope.program.max_rounds
    if activation.rounds >= limit:
        edge = arrivals[0][0]
        error = LimitExceededError(
            f"cycle at {cycle.header.name!r} has had its {limit} rounds: edge {edge} would start round {limit + 1}",
            limit="max_rounds",
            hint="let the cycle end earlier, or raise max_rounds",
        )
        core.stop_scope(scope, error)
        return
    if core.ends_after_round:
        core.cancel_now()
        return
    frame = _open_round(core, activation)
    frame.pending[cycle.header.slot] = 0
    ready(core, cycle.header, frame, arrivals)


def frame_done(core: RunCore, frame: Frame) -> None:
    """Close a round in which everything has ended, and the activation when it was the last one."""
    while not frame.open and not frame.scope.dead:
        activation = frame.activation
        if activation is None:
            if not frame.scope.over:
                core.scope_done(frame.scope)
            return
        if frame.announced:
            rounds = frame.scope.rounds
            assert rounds is not None
            rounds.remove(frame)
            core.round_completed(frame)
        frame.pending = NO_COUNTS
        frame.inner = frame.arrived = frame.back = None
        activation.live -= 1
        if activation.live or activation.due is not None:
            return
        frame = _end_activation(core, activation)


def _end_activation(core: RunCore, activation: Activation) -> Frame:
    """Skip the exits that no round has taken; give the frame around, which waits for one thing less."""
    parent = activation.parent
    for edge in activation.cycle.exits:
        if edge.kind is _MEMBER or (parent.exits is not None and edge in parent.exits):
            continue
        if edge.dst is not parent.scope.program.end:
            arrive(core, edge, parent, None, None)
    parent.open -= 1
    return parent


def skip_now(core: RunCore, node: CompiledNode, frame: Frame, note: str | None) -> None:
    """Skip *node* in *frame*: its step is recorded and its edges are skipped too."""
    if frame.scope.dead:
        return
    step = Step(node, frame, ())
    step.state = NodeState.SKIPPED
    step.note = note
    core.record_skip(step)
    skip_edges(core, step)
    frame.open -= 1
    if not frame.open:
        frame_done(core, frame)


def skip_edges(core: RunCore, step: Step) -> None:
    """Settle every edge out of *step* as skipped, the gathers of its maps included."""
    node = step.node
    for edge in node.out:
        if edge.map is None:
            settle(core, edge, step, False, None)
        else:
            for gather in edge.map.gathers:
                settle(core, gather, step, False, None)
    for edge in node.errors:
        settle(core, edge, step, False, None)


__all__ = ["announce", "arrive", "carry", "first_round", "frame_done", "ready", "settle", "skip_edges", "skip_now"]
