"""Continuing a run from its events: they are fed back in, and the core stands where they end.

Events are of two kinds. Some tell the core what happened outside it (a step has started, has ended, an item has come);
the others it worked out itself (a step is skipped, a round is complete). The first are fed in; the second must come out
again in the same order, which shows that the graph still means the same.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeAlias

from graphrt.errors import GraphChangedError
from graphrt.graph.core.run import RunCore
from graphrt.graph.protocols import START, RunEvent
from graphrt.graph.state import Update
from graphrt.graph.states import NodeState

if TYPE_CHECKING:
    from collections.abc import Iterable

    from graphrt.graph.compiled import Program
    from graphrt.graph.core.records import MapRun, Scope, Slots, Step

Read: TypeAlias = Callable[[RunEvent, "Step | None"], Mapping[str, Any]]
"""Gives the data of a stored event as the core takes it."""

_PENDING = NodeState.PENDING
_RUNNING = NodeState.RUNNING
_WAITING = NodeState.WAITING


def restore(
    program: Program,
    run_id: str,
    events: Iterable[RunEvent],
    *,
    sink: Callable[[RunEvent], None] | None = None,
    observer: Any = None,
    recorder: Callable[[RunEvent, Step | None], None] | None = None,
    read: Read | None = None,
    limits: tuple[Slots, ...] = (),
) -> RunCore:
    """Build the core of a run from its first events, from number 1 on without gaps but those before a resume.

    *limits* are those of the whole run.

    *read* gives the data of a stored event, for a step that is known; without it the data is taken as it is.

    Events that follow from the last stored one, and were not stored themselves, go to *sink* and *recorder* with
    their numbers.
    Steps that had started and not ended are still running: call `requeue` to have them started again.

    Raises:
        GraphChangedError: The graph does something else than the events say.
    """
    replay = _Replay(program, run_id, read)
    replay.core.root.limits = limits
    for event in events:
        replay.feed(event)
    core = replay.core
    core.sink = sink
    core.observer = observer
    core.recorder = recorder
    core.ready.extend(step for step in replay.known.values() if _is_due(step))
    for event, step in replay.made:
        if recorder is not None:
            recorder(event, step)
        if sink is not None:
            sink(event)
    return core


def last_before_end(program: Program, run_id: str, events: Iterable[RunEvent], *, read: Read | None = None) -> int:
    """Give the number of the last event before what ended a run that failed, was cancelled, or was out of time.

    Restored up to there, the run goes on as if that had not happened: what had failed is still to be done.
    """
    events = list(events)
    for event in reversed(events):
        if event.type == "action.requested" and event.data.get("request") == "cancel":
            return event.sequence - 1
    replay = _Replay(program, run_id, read)
    root = replay.core.root
    deaths: list[Scope] = []
    replay.core.deaths = deaths
    before = 0
    begun: dict[Scope, int] = {}
    """Where the failure of a scope that is not over began."""
    for event in events:
        replay.feed(event)
        for scope in deaths:
            inner = [at for dead, at in begun.items() if _parent(dead) is scope and dead.error is scope.error]
            begun[scope] = min([before, *inner])
        deaths.clear()
        if root.dead or replay.core.outcome is not None:
            return begun.get(root, before)
        for scope in [dead for dead in begun if dead.over]:
            del begun[scope]
        if not replay.made:
            before = event.sequence
    return before


def _parent(scope: Scope) -> Scope | None:
    return None if scope.holder is None else scope.holder.frame.scope


def requeue(core: RunCore, now: float, data: Mapping[str, Any] | None = None) -> None:
    """Have every step that was at work when the run was left start again, as its first attempt.

    A `run.resumed` event says so, with *data*. What the core holds back comes next: events that follow from what is
    stored, and were not stored themselves.
    """
    if core.outcome is not None:
        return
    core.note("run.resumed", None, data or {}, now)
    held, core.held = core.held, []
    for event, step in held:
        core.tell_again(event, step)
    again = [s for s in core.steps if s.state is _RUNNING and s.child is None]
    for step in again:
        if step.cancelling:
            core.step_cancelled(step, now)
    fresh = [s for s in again if s.state is _RUNNING]
    if not fresh:
        return
    left = set(fresh)
    core.steps = [s for s in core.steps if s not in left]
    for step in fresh:
        step.state = _PENDING
        step.started = None
        step.attempts = 0
        step.error = None
    core.cancels = [s for s in core.cancels if s.state is _RUNNING]
    core.ready.extendleft(reversed(fresh))


def _nobody(event: RunEvent) -> None:
    """Stand for a reader: the core makes events only where somebody reads them."""


def _is_due(step: Step) -> bool:
    return step.state is _PENDING or (step.state is _RUNNING and step.error is not None and step.child is None)


class _Replay:
    def __init__(self, program: Program, run_id: str, read: Read | None) -> None:
        self.made: deque[tuple[RunEvent, Step | None]] = deque()
        """Events that the core has worked out and that have not been met among the stored ones."""
        self.core = RunCore(program, run_id, sink=_nobody)
        self.core.recorder = lambda event, step: self.made.append((event, step))
        self.known: dict[str, Step] = {}
        self._read = read

    def feed(self, event: RunEvent) -> None:
        if event.type == "message.delta":
            return
        if not self.made or event.type == "run.resumed":
            self._tell(event)
            self._learn()
        if not self.made or not _same(self.made[0][0], event):
            raise self._changed(event)
        self.made.popleft()

    def _learn(self) -> None:
        ready = self.core.ready
        while ready:
            step = ready.popleft()
            self.known[step.key] = step

    def _changed(self, event: RunEvent) -> GraphChangedError:
        does = f"{_name(self.made[0][0])}" if self.made else "nothing"
        return GraphChangedError(
            f"run {self.core.run_id!r} cannot be continued: event {event.sequence} is {_name(event)}, "
            f"and the graph {self.core.program.name!r} now does {does}",
            hint="resume it with the graph it was started with, or start a new run",
        )

    def _tell(self, event: RunEvent) -> None:
        core = self.core
        kind = event.type
        now = event.time
        step = self.known.get(event.step.key) if event.step is not None else None
        if self._read is not None:
            event = replace(event, data=self._read(event, step))
        if kind == "run.started":
            core.start(event.data["input"], now)
        elif kind == "run.resumed":
            core.held = list(self.made)
            self.made.clear()
            core.sequence = event.sequence - 1
            requeue(core, now, event.data)
        elif kind == "run.waiting":
            core.note(kind, None, event.data, now)
        elif kind == "action.requested" and "request" in event.data:
            self._requested(event, step)
        elif kind == "action.requested" and "refused" in event.data and step is not None:
            core.early_answers.pop(step.key, None)
            core.note(kind, step, event.data, now)
        elif kind.startswith("step."):
            if step is not None:
                self._step_told(event, step)
        elif kind == "map.item":
            self._item(event)
        elif not kind.startswith(("run.", "round.")):
            core.note(kind, step, event.data, now)

    def _requested(self, event: RunEvent, step: Step | None) -> None:
        core = self.core
        request = event.data["request"]
        if event.data.get("void"):
            core.note(event.type, step, event.data, event.time)
        elif request == "cancel_after_round":
            core.cancel_after_round(event.time)
        elif request == "answer":
            core.early_answer(event.data["question_id"], event.data["value"], event.time)
        elif request == "timeout" and step is not None:
            core.graph_timed_out(step, event.data["error"], event.time)
        elif request == "cancel":
            core.cancel(event.data["error"], event.time, timed_out=event.data["timed_out"])

    def _step_told(self, event: RunEvent, step: Step) -> None:
        core = self.core
        now = event.time
        kind = event.type
        if kind == "step.started" and step.state is _PENDING:
            if core.step_started(step, now) and step.node.graph is not None:
                core.enter_graph(step, now)
        elif kind == "step.waiting" and step.state is _RUNNING:
            until = event.data.get("until")
            if until is None:
                core.step_waiting(step, event.data["question"], now)
            else:
                core.step_waits_until(step, datetime.fromisoformat(until), now)
        elif kind == "step.completed":
            if step.state is _WAITING and not core.timer_fired(step, now):
                core.answered(step.key, None, now)
            if step.state is _RUNNING:
                output = event.data["output"]
                update = event.data.get("update")
                core.step_finished(step, Update(output, **update) if update is not None else output, now)
        elif kind in ("step.failed", "step.timed_out") and step.state in (_RUNNING, _WAITING):
            core.step_failed(step, event.data["error"], now, timed_out=kind == "step.timed_out", told=event.data)
        elif kind == "step.cancelled" and step.state is _PENDING:
            core.step_started(step, now)  # which a limit refuses
        elif kind == "step.cancelled" and step.state in (_RUNNING, _WAITING):
            core.step_cancelled(step, now)

    def _item(self, event: RunEvent) -> None:
        core = self.core
        source = event.step.key if event.step is not None else _key_of_start(event.data["scope"])
        run = self._map_of(source, event.data["map"])
        if run is not None and run.total is None:
            core.item_arrived(run, event.data["value"], event.time)
        elif run is not None:
            core.open_item(run, event.time)
        else:
            step = self.known.get(source)
            if step is not None and step.state is _RUNNING:
                map_ = next(e.map for e in step.node.out if e.map is not None and e.map.tag == event.data["map"])
                run = core.map_started(step, map_, remember=True, now=event.time)
                core.item_arrived(run, event.data["value"], event.time)

    def _map_of(self, source: str, tag: str) -> MapRun | None:
        scopes = [self.core.root]
        while scopes:
            scope = scopes.pop()
            for run in scope.maps or ():
                if run.map.tag == tag and run.source.key == source:
                    return run
                scopes.extend(run.children.values())
            scopes.extend(step.child for step in scope.live if step.child is not None)
        return None


def _key_of_start(item: str) -> str:
    """Give the key of the START that an item, named by its scope, comes from."""
    around = item.rpartition("/")[0]
    return f"{around}/{START.name}" if around else START.name


def _same(made: RunEvent, stored: RunEvent) -> bool:
    if made.type != stored.type or made.sequence != stored.sequence:
        return False
    one, other = made.step, stored.step
    if one is None or other is None:
        return one is other
    return one.key == other.key


def _name(event: RunEvent) -> str:
    return f"{event.type!r}" + (f" of step {event.step.key!r}" if event.step is not None else "")
