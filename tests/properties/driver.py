"""Drives the engine's pure core without an event loop, one completion at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from graphrt import CompiledGraph, InvalidTransitionError, RunEvent
from graphrt.graph.core.records import Scope, Step
from graphrt.graph.core.replay import requeue, restore
from graphrt.graph.core.run import RunCore
from graphrt.graph.states import NodeState
from tests.properties.description import Outcome, ScopeKey, StepEnd, StepKey, plain

Chooser = Callable[[Sequence[StepKey]], StepKey]


class Session:
    """One run of the pure core. Whatever the core wants done is done at once, but for functions that run."""

    def __init__(self, compiled: CompiledGraph, value: Any) -> None:
        self.events: list[RunEvent] = []
        self.core = RunCore(compiled.program, "run", sink=self.events.append)
        self.live: dict[StepKey, Step] = {}
        self.inputs: dict[StepKey, dict[str, Any]] = {}
        """What steps were started with, by parameter."""
        self.core.start(value, 0.0)
        self.carry_out()

    @property
    def over(self) -> bool:
        """Whether the run has ended."""
        return self.core.outcome is not None

    def running(self) -> list[StepKey]:
        """Steps whose function runs now, in a fixed order."""
        return sorted(self.live)

    def given(self, key: StepKey) -> dict[str, Any]:
        """What edges have brought to a running step, by the name of its parameter."""
        inputs = self.inputs[key]
        return {name: plain(value) for name, value in inputs.items() if name not in ("ctx", "state")}

    def finish(self, key: StepKey) -> None:
        """Let a running step end as its function says."""
        step = self.live.pop(key)
        try:
            value = self._call(step)
        except Exception as error:  # noqa: BLE001 - a node's error is an event
            self.core.step_failed(step, error, 0.0)
        else:
            problem = self.core.step_finished(step, value, 0.0)
            if problem is not None:
                self.core.step_failed(step, problem, 0.0)
        self.carry_out()

    def _call(self, step: Step) -> Any:
        coro = step.node.run.fn(**self.inputs[key_of(step)])
        try:
            coro.send(None)
        except StopIteration as end:
            return end.value
        raise AssertionError("a node function of a pure run does not wait")

    def carry_out(self) -> None:
        """Do at once what the core wants done, but for functions that run."""
        core = self.core
        while not self.over and (core.ready or core.cancels or core.opened):
            if core.cancels:
                cancels, core.cancels = core.cancels, []
                for step in cancels:
                    if step.state is NodeState.RUNNING:
                        self.live.pop(key_of(step), None)
                        core.step_cancelled(step, 0.0)
            elif core.opened:
                run = core.opened[0]
                if run.aborted or run.frame.scope.dead:
                    core.opened.remove(run)
                else:
                    core.open_item(run, 0.0)
            else:
                self._start(core.ready.popleft())

    def _start(self, step: Step) -> None:
        core = self.core
        if step.state is not NodeState.PENDING or not core.step_started(step, 0.0):
            return
        if step.node.graph is None:
            self.live[key_of(step)] = step
            self.inputs[key_of(step)] = step.node.binder.inputs(core, step, None)
            return
        inputs = step.node.binder.inputs(core, step, None)
        core.graph_entered(step, next(iter(inputs.values()), None), 0.0)

    def illegal(self, pick: Callable[[Sequence[Any]], Any]) -> None:
        """Tell the core what cannot have happened, and see that it refuses and has not changed."""
        ended = [step for step in self.core.steps if step.state not in (NodeState.RUNNING, NodeState.PENDING)]
        if not ended:
            return
        step = pick(ended)
        before = self.snapshot()
        told: list[Callable[[], object]] = [
            lambda: self.core.step_finished(step, 1, 0.0),
            lambda: self.core.step_failed(step, ValueError(), 0.0),
            lambda: self.core.step_cancelled(step, 0.0),
            lambda: self.core.step_started(step, 0.0),
            lambda: self.core.step_waiting(step, "?", 0.0),
        ]
        try:
            pick(told)()
        except InvalidTransitionError:
            assert self.snapshot() == before
            return
        raise AssertionError(f"{step} has ended and took another event")

    def snapshot(self) -> object:
        """Give all that can be seen of the run, to compare."""
        core = self.core
        scopes = [(scope.open, scope.dead, len(scope.live)) for scope in _scopes(core.root)]
        steps = [(key_of(step), step.state, repr(step.value)) for step in core.steps]
        counts = (
            core.sequence,
            core.active,
            core.waiting,
            len(core.ready),
            len(core.cancels),
            len(core.opened),
        )
        return (steps, scopes, counts, len(self.events), sorted(self.live))

    def outcome(self) -> Outcome:
        """Say how the run ended, in the reference's terms."""
        core, ended = self.core, self.core.outcome
        assert ended is not None
        ends = {key_of(step): StepEnd(*_end(step)) for step in core.steps}
        twice = [key for key, count in Counter(map(key_of, core.steps)).items() if count > 1]
        assert not twice, f"recorded twice: {twice}"
        rounds: dict[tuple[ScopeKey, str, tuple[int, ...]], int] = {}
        for step in core.steps:
            frame: Any = step.frame
            while frame is not None and frame.cycle is not None:
                place = (scope_key(frame.scope), frame.cycle.header.name, frame.round[:-1])
                rounds[place] = max(rounds.get(place, 1), frame.round[-1])
                frame = frame.parent
        state = None
        if core.program.state is not None and ended.error is None:
            from graphrt.graph.state import read

            state = read(ended.history, core.program.state, core.folds, where="END").model_dump()
        return Outcome(
            status=ended.status.value,  # type: ignore[arg-type]  # the same words
            output=plain(ended.output) if ended.error is None else None,
            outputs={name: plain(value) for name, value in ended.outputs.items()} if ended.error is None else {},
            state=state,
            error=type(ended.error).__name__ if ended.error is not None else None,
            steps=ends,
            rounds={place: number for place, number in rounds.items() if number > 1},
        )


def _scopes(root: Scope) -> Iterable[Scope]:
    todo = [root]
    while todo:
        scope = todo.pop()
        yield scope
        todo.extend(step.child for step in scope.live if step.child is not None)
        for run in scope.maps or ():
            todo.extend(run.children.values())


def _end(step: Step) -> tuple[Any, ...]:
    if step.state is NodeState.SUCCEEDED:
        return "succeeded", plain(step.value)
    if step.started is None:
        return ("never",)
    return (step.state.value,)


def scope_key(scope: Scope) -> ScopeKey:
    """Give the reference's name for a scope."""
    if scope.holder is None:
        return ()
    around = scope_key(scope.holder.frame.scope)
    rounds = scope.holder.frame.round
    if scope.map_run is None:
        return (*around, ("graph", scope.holder.node.name, rounds))
    edge = scope.map_run.map.edge
    return (*around, ("item", edge.src.name, edge.dst.name, rounds, scope.index))


def key_of(step: Step) -> StepKey:
    """Give the reference's name for a step."""
    return (scope_key(step.frame.scope), step.node.name, step.frame.round)


def drive(compiled: CompiledGraph, value: Any, chooser: Chooser, events: list[RunEvent] | None = None) -> Outcome:
    """Run the pure core to its end, finishing running steps in the order that *chooser* picks."""
    session = Session(compiled, value)
    while not session.over:
        session.finish(chooser(session.running()))
    if events is not None:
        events.extend(session.events)
    return session.outcome()


def resume(compiled: CompiledGraph, stored: Sequence[RunEvent]) -> Session:
    """Take up a run where *stored* ends; its session's events are those made since."""
    session = Session.__new__(Session)
    session.events, session.live, session.inputs = [], {}, {}
    session.core = restore(compiled.program, "run", stored, sink=session.events.append)
    requeue(session.core, 0.0)
    session.carry_out()
    return session


def continue_from(
    compiled: CompiledGraph, stored: Sequence[RunEvent], chooser: Chooser, events: list[RunEvent] | None = None
) -> Outcome:
    """Take up a run where *stored* ends and go on to its end, as `drive` does; *events* gets those made since."""
    session = resume(compiled, stored)
    while not session.over:
        session.finish(chooser(session.running()))
    if events is not None:
        events.extend(session.events)
    return session.outcome()
