"""The pure core of a run: it is told what happened and says what to do next.

No I/O, no clock, no randomness: time comes in as an argument, and what is to be done is left in plain queues:

* `ready`: steps to start (`step_started`), and steps whose `fallback=` is due (state running, `error` set);
* `cancels`: steps whose work is to be stopped; each is answered with `step_cancelled` (or how it ended otherwise);
* `opened`: maps with items to open, one `open_item` each, as far as slots allow;
* `outcome`: set when the run is over.

What happened is told by the methods below; every one costs what changed, never what exists.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from graphrt.errors import GraphError, LimitExceededError, RunCancelledError
from graphrt.graph.core import ends, finishing, joins, maps, routes
from graphrt.graph.core.records import MapRun, Scope, Slots, Step, StepLimit
from graphrt.graph.core.waiting import Waiting
from graphrt.graph.state import FoldCache, Update, apply_write, merge, read
from graphrt.graph.states import NodeState, check_move
from graphrt.graph.values import copy_value

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from graphrt.graph.compiled import CompiledMap, CompiledNode, Program
    from graphrt.graph.core.finishing import Outcome
    from graphrt.graph.core.records import Activation, Frame
    from graphrt.graph.history import History
    from graphrt.graph.protocols import Failure, RunEvent
    from graphrt.graph.statemodel import StateSpec

_RUNNING = NodeState.RUNNING
_PENDING = NodeState.PENDING
_SUCCEEDED = NodeState.SUCCEEDED
_WAITING = NodeState.WAITING


class RunCore(Waiting):
    """One run of a compiled graph. Not safe for several threads; its scheduler is its only caller."""

    def __init__(
        self,
        program: Program,
        run_id: str = "",
        *,
        sink: Callable[[RunEvent], None] | None = None,
        observer: Any = None,
    ) -> None:
        super().__init__(run_id, sink, observer)
        self.program = program
        self.ready: deque[Step] = deque()
        self.cancels: list[Step] = []
        self.opened: list[MapRun] = []
        self.outcome: Outcome | None = None
        self.failures: list[Failure] = []
        self.ends_after_round = False
        self.cuts: dict[Frame, frozenset[CompiledNode | CompiledMap]] = {}
        """Nodes and maps that a fired join with `cancel_rest=True` has made useless, by frame."""
        self.copies = program.decl.copy_values
        self.warned: set[tuple[str, type]] = set()
        self.folds = FoldCache()
        self.root = Scope(program.region, program, None)
        self.deaths: list[Scope] | None = None
        """Scopes as they fail, where somebody wants to know."""
        self.due: deque[Activation] = deque()
        """Cycles whose next round starts when what is being done now is done."""
        self._skips: deque[tuple[CompiledNode, Frame, str | None]] = deque()
        if program.max_steps is not None:
            self.root.counters = (StepLimit(self.root, program.max_steps),)

    # ------------------------------------------------------------ what happened

    def start(self, value: Any, now: float) -> None:
        """Begin the run with its input."""
        self.now = now
        value = self.own(value)
        if self.sink is not None:
            self.emit("run.started", None, {"input": self.own(value), "graph": self.program.name})
        self._enter(self.root, value, None)
        if self._skips or self.due:
            self.drain()

    def step_started(self, step: Step, now: float) -> bool:
        """Say that a ready step starts; False when it must not (it was cancelled, or a limit is reached)."""
        if step.state is not _PENDING:
            check_move(step, step.state, _RUNNING)
        scope = step.frame.scope
        if scope.counters and not self._count(step, scope, now):
            return False
        step.state = _RUNNING
        step.started = now
        step.attempts = 1
        self.steps.append(step)
        if self.observer is not None:
            self.observer.step_started(step)
        if self.sink is not None:
            self.now = now
            fired = {"edges": [e.index for e, _, _ in step.arrivals]} if step.node.quorum else {}
            self.emit("step.started", step, fired)
        return True

    def step_finished(self, step: Step, value: Any, now: float) -> Exception | None:
        """Say that a step's function returned.

        Returns:
            None when the step has succeeded; else why the value cannot leave the node (a condition raised, no case of
            a branch matched, a state write does not fit): the step is still running, and the caller goes on to its
            fallback or to `step_failed`.
        """
        if step.state is not _RUNNING:
            check_move(step, step.state, _SUCCEEDED)
        self.now = now
        if step.cancelling:
            self.step_cancelled(step, now)
            return None
        node = step.node
        taken = items = update = None
        history = step.history
        if node.conditional or isinstance(value, Update):
            try:
                if isinstance(value, Update):
                    update = value
                    history = self._write(step, value)
                    value = value.output
                if node.conditional:
                    taken, items = routes.route(self, step, value)
            except Exception as error:  # noqa: BLE001 - conditions, keys and reducers are user code (E13)
                return error
        step.state = _SUCCEEDED
        step.value = value
        step.error = None
        step.ended = now
        step.arrivals = ()
        step.history = history
        frame = step.frame
        scope = frame.scope
        del scope.live[step]
        self.active -= 1
        if self.sink is not None or self.observer is not None:
            self.step_completed(step, taken, update, self.own(value) if self.sink is not None else None)
        if scope.dead:
            ends.check_ended(self, scope)
            return None
        edge = node.next
        if edge is not None:
            step.shared = node.read_by_name or edge.dst.copies_inputs
            joins.ready(self, edge.dst, frame, ((edge, step, value),))
        else:
            routes.leave(self, step, taken, items)
        frame.open -= 1
        if not frame.open:
            joins.frame_done(self, frame)
        if self._skips or self.due:
            self.drain()
        return None

    def step_failed(
        self,
        step: Step,
        error: BaseException,
        now: float,
        *,
        timed_out: bool = False,
        culprit: Step | None = None,
        told: Mapping[str, Any] | None = None,
    ) -> None:
        """Say that a step has failed for good: attempts and fallbacks are used up (E11).

        *culprit* is the step inside the graph that it holds where the error comes from. *told* is what a stored event
        says of the failure: which edge has taken it is not asked again, as the error may be all that is left of it.
        """
        after = NodeState.TIMED_OUT if timed_out else NodeState.FAILED
        check_move(step, step.state, after)
        self.now = now
        handler = None
        scope = step.frame.scope
        if told is not None:
            handler = next((edge for edge in step.node.errors if edge.index == told.get("edge")), None)
        elif not step.cancelling:
            handler, after_handlers = ends.handler_of(step, error)
            if after_handlers is not error:
                error, culprit = after_handlers, None
        self._leave_live(step)
        step.state = after
        step.error = error
        step.ended = now
        step.arrivals = ()
        handled = handler is not None or (step.node.decl is not None and step.node.decl.on_error == "skip")
        kind = "step.timed_out" if timed_out else "step.failed"
        data = {"error": error, "handled": handled and not step.cancelling}
        self.step_ended(kind, step, data if handler is None else {**data, "edge": handler.index})
        if scope.dead:
            ends.note_failure(self, error, culprit or step)
            ends.check_ended(self, scope)
        elif handled or step.cancelling:
            ends.settle_failed(self, step, handler)
            ends.close_step(self, step)
        else:
            self.fail_scope(scope, error, culprit or step)
        if self._skips or self.due:
            self.drain()

    def step_cancelled(self, step: Step, now: float) -> None:
        """Say that a step's work has stopped before it had a value."""
        self.now = now
        check_move(step, step.state, NodeState.CANCELLED)
        self._leave_live(step)
        ends.end_cancelled(self, step)
        if self._skips or self.due:
            self.drain()

    def enter_graph(self, step: Step, now: float) -> None:
        """Bind the inputs of a started step that holds a graph, and open its scope; it fails if they do not bind."""
        program = step.node.graph
        assert program is not None
        try:
            inputs = step.node.binder.inputs(self, step, None)
        except GraphError as error:
            self.step_failed(step, error, now)
            return
        value = inputs if program.input_names else next(iter(inputs.values()), None)
        self.graph_entered(step, value, now)

    def graph_entered(self, step: Step, value: Any, now: float) -> None:
        """Open the scope of the graph that a started step holds, with its input."""
        self.now = now
        program = step.node.graph
        assert program is not None
        around = step.frame.scope
        scope = Scope(program.region, program, step)
        scope.limits = around.limits
        if program.decl.max_concurrency is not None:
            scope.limits = (*scope.limits, Slots(program.decl.max_concurrency))
        scope.counters = around.counters
        if program.max_steps is not None:
            scope.counters = (*scope.counters, StepLimit(scope, program.max_steps))
        step.child = scope
        self.active -= 1
        same = program.state is not None and around.program.state is not None
        shares = same and program.decl.state is around.program.decl.state
        self._enter(scope, value, step.history if shares else None)
        if self._skips or self.due:
            self.drain()

    def graph_timed_out(self, step: Step, error: BaseException, now: float) -> None:
        """Say that a step that holds a graph is out of time: its scope is cancelled, then the step has timed out."""
        self.now = now
        if step.child is not None and not step.child.dead:
            if self.sink is not None:
                self.emit("action.requested", step, {"request": "timeout", "error": error})
            ends.fail_scope(self, step.child, error, None, "timed_out")
        if self._skips or self.due:
            self.drain()

    def map_started(self, step: Step, map_: CompiledMap, *, remember: bool, now: float) -> MapRun:
        """Open the map of a running source that yields its items one by one."""
        self.now = now
        run = maps.open_map(self, map_, step, None)
        run.items = [] if remember else None
        return run

    def item_arrived(self, run: MapRun, value: Any, now: float) -> None:
        """Say that an iterator has yielded its next item; it is dropped once the map or its scope was given up."""
        self.now = now
        if run.aborted or run.frame.scope.dead:
            return
        if isinstance(run.items, list):
            run.items.append(self.own(value))
        maps.open_item(self, run, self.own(value))
        if self._skips or self.due:
            self.drain()

    def open_item(self, run: MapRun, now: float) -> None:
        """Open the next item of a list source."""
        self.now = now
        assert run.items is not None
        value = run.items[run.opened]
        if run.opened + 1 == run.total:
            self.opened.remove(run)
        maps.open_item(self, run, value)
        if self._skips or self.due:
            self.drain()

    def cancel(self, error: BaseException | None, now: float, *, timed_out: bool = False) -> None:
        """Cancel the whole run. *error* is what `run()` raises; a plain `RunCancelledError` when None."""
        self.now = now
        if self.outcome is None and not self.root.dead:
            error = error or RunCancelledError(f"run {self.run_id!r} was cancelled")
            if self.sink is not None:
                self.emit("action.requested", None, {"request": "cancel", "error": error, "timed_out": timed_out})
            ends.fail_scope(self, self.root, error, None, "timed_out" if timed_out else "cancelled")
        if self._skips or self.due:
            self.drain()

    def leave(self, now: float) -> None:
        """Let the call end while the run waits for a person or a time; it goes on when it is restored."""
        self.now = now
        finishing.leave(self)

    def cancel_after_round(self, now: float) -> None:
        """Let the rounds in progress end; the run is cancelled where a further one would start."""
        self.now = now
        self.ends_after_round = True
        if self.sink is not None:
            self.emit("action.requested", None, {"request": "cancel_after_round"})

    # ------------------------------------------------------------ for the parts of the core

    def copy(self, value: Any, source: Step) -> Any:
        """Give a reader its own copy of a value that has several (E22)."""
        return copy_value(value, where=source.node.name, warned=self.warned) if self.copies else value

    def own(self, value: Any) -> Any:
        """Give a copy that nobody else can change, as far as the value can be copied."""
        return copy_value(value, where="", warned=None) if self.copies else value

    def read_state(self, step: Step) -> Any:
        """Give the state as *step* sees it."""
        spec = step.frame.scope.program.state
        assert spec is not None
        return read(step.history, spec, self.folds, where=step.node.name, warned=self.warned, copies=self.copies)

    def fail_scope(self, scope: Scope, error: BaseException, culprit: Step | None) -> None:
        """Let a scope fail."""
        ends.fail_scope(self, scope, error, culprit, "failed")

    def stop_scope(self, scope: Scope, error: BaseException) -> None:
        """End a scope at a limit: at the root the run is stopped, elsewhere the scope has failed (E20)."""
        ends.fail_scope(self, scope, error, None, "stopped" if scope is self.root else "failed")

    def cancel_scope(self, scope: Scope) -> None:
        """Cancel a scope because of what happened around it."""
        ends.cancel_scope(self, scope)

    def cancel_now(self) -> None:
        """Cancel the run where it stands, as asked before."""
        self.cancel(None, self.now)

    def cancel_rest(self, join: CompiledNode, frame: Frame) -> None:
        """End what could only have led to a join that has fired."""
        ends.cancel_rest(self, join, frame)

    def check_ended(self, scope: Scope) -> None:
        """See whether a dying scope is over."""
        ends.check_ended(self, scope)

    def skip(self, node: CompiledNode, frame: Frame, note: str | None) -> None:
        """Skip a node, after what is being done now (a long chain of skips must not nest)."""
        self._skips.append((node, frame, note))

    def merge(self, histories: Sequence[History | None], spec: StateSpec) -> History | None:
        """Merge the histories of taken edges in declaration order."""
        return histories[0] if len(histories) == 1 else merge(histories, spec)

    def scope_done(self, scope: Scope) -> None:
        """Go on where a scope in which everything has ended leads."""
        finishing.scope_done(self, scope)

    def graph_ended(self, scope: Scope) -> None:
        """Go on after the graph that a step holds has failed, or was cancelled."""
        finishing.graph_ended(self, scope)

    def finish_root(self) -> None:
        """End the run: its root has died and nothing in it is live."""
        finishing.finish_root(self)

    def drain(self) -> None:
        """Pass over the nodes that have turned out to be skipped, then start the rounds that are due.

        What that brings about comes after. So a long chain of skips does not nest, and a round is complete before the
        next one starts, unless side nodes or a race hold it open.
        """
        skips, due = self._skips, self.due
        while skips or due:
            if skips:
                joins.skip_now(self, *skips.popleft())
            else:
                joins.next_round(self, due.popleft())

    # ------------------------------------------------------------ inner

    def _enter(self, scope: Scope, value: Any, history: History | None) -> None:
        source = Step(scope.program.start, scope, ())
        source.state = _SUCCEEDED
        source.value = value
        source.shared = scope.program.reads_input
        source.history = history
        scope.input = value
        try:
            taken, items = routes.route(self, source, value)
        except Exception as error:  # noqa: BLE001 - a condition on START is user code; it fails the run (E13)
            self.fail_scope(scope, error, None)
            return
        routes.leave(self, source, taken, items)
        if not scope.open and not scope.dead:
            joins.frame_done(self, scope)

    def _count(self, step: Step, scope: Scope, now: float) -> bool:
        for counter in scope.counters:
            if counter.started >= counter.limit:
                self.now = now
                error = LimitExceededError(
                    f"graph {counter.scope.program.name!r} has started its {counter.limit} steps: "
                    f"node {step.node.name!r} is refused",
                    limit="max_steps",
                    hint="raise max_steps, or let the graph end earlier",
                )
                self.stop_scope(counter.scope, error)
                if self._skips or self.due:
                    self.drain()
                return False
        for counter in scope.counters:
            counter.started += 1
        return True

    def _write(self, step: Step, update: Update[Any]) -> History | None:
        node = step.node
        spec = step.frame.scope.program.state
        if node.side:
            raise GraphError(
                f"side node {node.name!r} returned an Update, and its value goes nowhere",
                hint="return the Update from a node on the way to END, or return None here",
            )
        if spec is None:
            raise GraphError(
                f"node {node.name!r} returned an Update, and the graph has no state",
                hint="declare it: Workflow(name, state=Model)",
            )
        return apply_write(
            step.history,
            spec,
            self.folds,
            update.fields,
            writer=step,
            label=node.name,
            warned=self.warned,
            copies=self.copies,
        )

    def _leave_live(self, step: Step) -> None:
        step.frame.scope.live.pop(step, None)
        if step.state is _WAITING:
            self.waits_no_more(step)
        else:
            self.active -= 1
