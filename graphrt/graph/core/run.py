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
from graphrt.graph.core import ends, joins, maps, routes
from graphrt.graph.core.records import MapRun, Scope, Slots, Step, StepLimit
from graphrt.graph.protocols import NodeKind, Question, RunEvent
from graphrt.graph.state import FoldCache, Update, apply_write, merge, read
from graphrt.graph.states import NodeState, RunStatus, check_move
from graphrt.graph.values import copy_value

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from graphrt.graph.compiled import CompiledMap, CompiledNode, Program
    from graphrt.graph.core.records import Frame
    from graphrt.graph.protocols import Failure
    from graphrt.graph.state import History, StateSpec

_RUNNING = NodeState.RUNNING
_PENDING = NodeState.PENDING
_SUCCEEDED = NodeState.SUCCEEDED
_WAITING = NodeState.WAITING


class Outcome:
    """How a run ended, in the core's own terms."""

    __slots__ = ("culprit", "error", "history", "output", "outputs", "status")

    def __init__(self, status: RunStatus, error: BaseException | None, culprit: Step | None) -> None:
        self.status = status
        self.error = error
        self.culprit = culprit
        self.output: Any = None
        self.outputs: dict[str, Any] = {}
        self.history: History | None = None


class RunCore:
    """One run of a compiled graph. Not safe for several threads; its scheduler is its only caller."""

    def __init__(
        self,
        program: Program,
        run_id: str = "",
        *,
        sink: Callable[[RunEvent], None] | None = None,
        observer: Any = None,
    ) -> None:
        self.program = program
        self.run_id = run_id
        self.sink = sink
        self.observer = observer
        self.now = 0.0
        self.sequence = 0
        self.ready: deque[Step] = deque()
        self.cancels: list[Step] = []
        self.opened: list[MapRun] = []
        self.outcome: Outcome | None = None
        self.steps: list[Step] = []
        """Every step that has started or was passed over, in that order."""
        self.failures: list[Failure] = []
        self.active = 0
        """Steps that are ready or at work; steps that wait for a person and steps that hold a graph are not."""
        self.waiting = 0
        self.questions: dict[str, Question] = {}
        self.early_answers: dict[str, Any] = {}
        self.rounds = 0
        """Most rounds that one activation of a cycle of the run's own graph has started."""
        self.streamed: dict[Step, list[str]] = {}
        self.ends_after_round = False
        self.cuts: dict[Frame, frozenset[CompiledNode | CompiledMap]] = {}
        """Nodes and maps that a fired join with `cancel_rest=True` has made useless, by frame."""
        self.copies = program.decl.copy_values
        self.warned: set[tuple[str, type]] = set()
        self.folds = FoldCache()
        self.root = Scope(program.region, program, None)
        self.asked: dict[str, Step] = {}
        """Steps that wait, by the id of their question."""
        self._skips: deque[tuple[CompiledNode, Frame, str | None]] = deque()
        if program.max_steps is not None:
            self.root.counters = (StepLimit(self.root, program.max_steps),)

    # ------------------------------------------------------------ what happened

    def start(self, value: Any, now: float) -> None:
        """Begin the run with its input."""
        self.now = now
        if self.sink is not None:
            self._emit("run.started", None, {"input": value, "graph": self.program.name})
        self._enter(self.root, value, None)
        if self._skips:
            self._drain()

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
            self._emit("step.started", step, fired)
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
            self._completed(step, taken, update)
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
        if self._skips:
            self._drain()
        return None

    def step_failed(self, step: Step, error: BaseException, now: float, *, timed_out: bool = False) -> None:
        """Say that a step has failed for good: attempts and fallbacks are used up (E11)."""
        after = NodeState.TIMED_OUT if timed_out else NodeState.FAILED
        check_move(step, step.state, after)
        self.now = now
        handler = None
        scope = step.frame.scope
        if not step.cancelling:
            handler, error = ends.handler_of(step, error)
        self._leave_live(step)
        step.state = after
        step.error = error
        step.ended = now
        step.arrivals = ()
        handled = handler is not None or (step.node.decl is not None and step.node.decl.on_error == "skip")
        kind = "step.timed_out" if timed_out else "step.failed"
        self.step_ended(kind, step, {"error": error, "handled": handled and not step.cancelling})
        if scope.dead:
            ends.note_failure(self, error, step)
            ends.check_ended(self, scope)
        elif handled or step.cancelling:
            ends.settle_failed(self, step, handler)
            ends.close_step(self, step)
        else:
            self.fail_scope(scope, error, step)
        if self._skips:
            self._drain()

    def step_cancelled(self, step: Step, now: float) -> None:
        """Say that a step's work has stopped before it had a value."""
        self.now = now
        check_move(step, step.state, NodeState.CANCELLED)
        self._leave_live(step)
        ends.end_cancelled(self, step)
        if self._skips:
            self._drain()

    def step_waiting(self, step: Step, question: Any, now: float) -> bool:
        """Say that a step waits for a person; False when its answer was there before the question."""
        check_move(step, step.state, _WAITING)
        self.now = now
        step.state = _WAITING
        self.active -= 1
        self.waiting += 1
        key = step.key
        asked = Question(key, step.node.name, step.frame.scope.path, step.round, question)
        self.questions[key] = asked
        self.asked[key] = step
        if self.observer is not None:
            self.observer.step_waiting(step, question)
        if self.sink is not None:
            self._emit("step.waiting", step, {"question_id": key, "question": question})
        return key not in self.early_answers

    def answered(self, question_id: str, value: Any, now: float) -> Step | None:
        """Bring an answer; give the step that goes on with it, or None when the question is not open (yet).

        An answer that comes before its question is kept. The caller ends the step by `step_finished`.
        """
        step = self.asked.pop(question_id, None)
        if step is None or step.state is not _WAITING:
            self.early_answers[question_id] = value
            return None
        del self.questions[question_id]
        self.early_answers.pop(question_id, None)
        self.now = now
        step.state = _RUNNING
        self.waiting -= 1
        self.active += 1
        return step

    def enter_graph(self, step: Step, now: float) -> None:
        """Bind the inputs of a started step that holds a graph, and open its scope; its step fails if that cannot be."""
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
        if self._skips:
            self._drain()

    def graph_timed_out(self, step: Step, error: BaseException, now: float) -> None:
        """Say that a step that holds a graph is out of time: its scope is cancelled, then the step has timed out."""
        self.now = now
        if step.child is not None and not step.child.dead:
            if self.sink is not None:
                self._emit("action.requested", step, {"request": "timeout", "error": error})
            ends.fail_scope(self, step.child, error, None, "timed_out")
        if self._skips:
            self._drain()

    def map_started(self, step: Step, map_: CompiledMap, *, remember: bool, now: float) -> MapRun:
        """Open the map of a running source that yields its items one by one."""
        self.now = now
        run = maps.open_map(self, map_, step, None)
        run.items = [] if remember else None
        return run

    def item_arrived(self, run: MapRun, value: Any, now: float) -> None:
        """Say that an iterator has yielded its next item."""
        self.now = now
        if isinstance(run.items, list):
            run.items.append(value)
        maps.open_item(self, run, value)
        if self._skips:
            self._drain()

    def open_item(self, run: MapRun, now: float) -> None:
        """Open the next item of a list source."""
        self.now = now
        assert run.items is not None
        value = run.items[run.opened]
        if run.opened + 1 == run.total:
            self.opened.remove(run)
        maps.open_item(self, run, value)
        if self._skips:
            self._drain()

    def cancel(self, error: BaseException | None, now: float, *, timed_out: bool = False) -> None:
        """Cancel the whole run. *error* is what `run()` raises; a plain `RunCancelledError` when None."""
        self.now = now
        if self.outcome is None and not self.root.dead:
            error = error or RunCancelledError(f"run {self.run_id!r} was cancelled")
            if self.sink is not None:
                self._emit("action.requested", None, {"request": "cancel", "error": error, "timed_out": timed_out})
            ends.fail_scope(self, self.root, error, None, "timed_out" if timed_out else "cancelled")
        if self._skips:
            self._drain()

    def cancel_after_round(self, now: float) -> None:
        """Let the rounds in progress end; the run is cancelled where a further one would start."""
        self.now = now
        self.ends_after_round = True
        if self.sink is not None:
            self._emit("action.requested", None, {"request": "cancel_after_round"})

    def note(self, kind: str, step: Step | None, data: Mapping[str, Any], now: float) -> None:
        """Record something that happened and decides nothing, such as a tool call or a custom event."""
        self.now = now
        if self.sink is not None:
            self._emit(kind, step, data)

    def note_text(self, step: Step, chunk: str, now: float) -> None:
        """Record a piece of streamed text: it has no number of its own, and is kept until its step ends."""
        self.now = now
        if self.sink is None:
            return
        pieces = self.streamed.setdefault(step, [])
        pieces.append(chunk)
        data = {"text": chunk, "index": len(pieces) - 1}
        self.sink(RunEvent("message.delta", self.run_id, self.sequence, step.ref, data, now))

    # ------------------------------------------------------------ for the parts of the core

    def copy(self, value: Any, source: Step) -> Any:
        """Give a reader its own copy of a value that has several (E22)."""
        return copy_value(value, where=source.node.name, warned=self.warned) if self.copies else value

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

    def record_skip(self, step: Step) -> None:
        """Record a step that was passed over."""
        step.ended = self.now
        self.steps.append(step)
        if self.sink is not None:
            self._emit("step.skipped", step, {"reason": step.note} if step.note else {})

    def step_ended(self, kind: str, step: Step, data: Mapping[str, Any] | None = None) -> None:
        """Tell readers that a step has ended without a value."""
        if self.observer is not None:
            self.observer.step_ended(step)
        if self.sink is not None:
            data = dict(data or {})
            if step in self.streamed:
                data["partial"] = "".join(self.streamed.pop(step))
            self._emit(kind, step, data)

    def round_started(self, frame: Frame) -> None:
        """Tell readers that a round has started."""
        number = frame.round[-1]
        if frame.scope is self.root and number > self.rounds:
            self.rounds = number
        if self.observer is not None:
            self.observer.round_started(frame)
        if self.sink is not None:
            self._emit("round.started", None, self._round_data(frame))

    def round_completed(self, frame: Frame) -> None:
        """Tell readers that a round is complete, or has been cut short."""
        if self.observer is not None:
            self.observer.round_completed(frame)
        if self.sink is not None:
            self._emit("round.completed", None, self._round_data(frame))

    def item_opened(self, run: MapRun, scope: Scope, value: Any) -> None:
        """Tell readers that an item's scope has opened."""
        if self.sink is not None:
            data = {"map": run.map.tag, "index": scope.index, "scope": scope.path}
            if run.map.lazy:
                data["value"] = value
            self._emit("map.item", run.source, data)

    def scope_done(self, scope: Scope) -> None:
        """Everything in a scope has ended and it has not failed."""
        if scope.map_run is not None:
            maps.item_done(self, scope)
            return
        try:
            output, outputs, history = routes.result_of(self, scope)
        except GraphError as error:
            self.fail_scope(scope, error, None)
            return
        scope.over = True
        holder = scope.holder
        if holder is None:
            outcome = Outcome(RunStatus.SUCCEEDED, None, None)
            outcome.output, outcome.outputs, outcome.history = output, outputs, history
            self._finish(outcome)
            return
        holder.child = None
        self.active += 1
        around = holder.frame.scope.program
        if around.state is not None and scope.program.decl.state is around.decl.state:
            holder.history = history
        self.graph_returned(holder, output)

    def graph_returned(self, holder: Step, output: Any) -> None:
        """The graph that a step holds has ended well."""
        error = self.step_finished(holder, output, self.now)
        if error is not None:
            self._holder_failed(holder, error, timed_out=False)

    def graph_ended(self, scope: Scope) -> None:
        """The graph that a step holds has failed, or was cancelled, and is over."""
        holder = scope.holder
        assert holder is not None
        holder.child = None
        self.active += 1
        if holder.cancelling or scope.error is None:
            self.step_cancelled(holder, self.now)
        else:
            self._holder_failed(holder, scope.error, timed_out=scope.cause == "timed_out")

    def finish_root(self) -> None:
        """The root has died and nothing in it is live: the run is over."""
        root = self.root
        status = RunStatus(root.cause)
        outcome = Outcome(status, root.error, root.culprit)
        if root.error is not None:
            first = [f for f in self.failures if f.error is not root.error]
            self.failures = []
            ends.note_failure(self, root.error, root.culprit)
            self.failures.extend(first)
        outcome.outputs = routes.outputs_of(self, root)
        outcome.history = routes.history_of(self, root)
        self._finish(outcome)

    # ------------------------------------------------------------ inner

    def _enter(self, scope: Scope, value: Any, history: History | None) -> None:
        source = Step(scope.program.start, scope, ())
        source.state = _SUCCEEDED
        source.value = value
        source.shared = True
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
                if self._skips:
                    self._drain()
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

    def _completed(self, step: Step, taken: Sequence[bool] | None, update: Update[Any] | None) -> None:
        if self.observer is not None:
            self.observer.step_ended(step)
        if self.sink is not None:
            data: dict[str, Any] = {"output": step.value}
            if taken is not None:
                data["taken"] = [e.index for e, t in zip(step.node.out, taken, strict=True) if t]
            if update is not None:
                data["update"] = update.fields
            if step in self.streamed:
                data["text"] = "".join(self.streamed.pop(step))
            self._emit("step.completed", step, data)

    def _leave_live(self, step: Step) -> None:
        step.frame.scope.live.pop(step, None)
        if step.state is _WAITING:
            self.waiting -= 1
            self.questions.pop(step.key, None)
        else:
            self.active -= 1

    def _holder_failed(self, holder: Step, error: BaseException, *, timed_out: bool) -> None:
        decl = holder.node.decl
        if decl is not None and decl.fallback and not holder.frame.scope.dead:
            holder.error = error
            self.ready.append(holder)
        else:
            self.step_failed(holder, error, self.now, timed_out=timed_out)

    def _drain(self) -> None:
        skips = self._skips
        while skips:
            joins.skip_now(self, *skips.popleft())

    def _finish(self, outcome: Outcome) -> None:
        self.outcome = outcome
        if self.sink is not None:
            kind = {RunStatus.SUCCEEDED: "run.completed"}.get(outcome.status, f"run.{outcome.status.value}")
            data: dict[str, Any] = {"status": outcome.status.value}
            if outcome.error is not None:
                data["error"] = outcome.error
            else:
                data["output"] = outcome.output
            self._emit(kind, None, data)

    def _round_data(self, frame: Frame) -> dict[str, Any]:
        assert frame.cycle is not None
        return {"cycle": frame.cycle.header.name, "round": frame.round[-1], "scope": frame.scope.path}

    def _emit(self, kind: str, step: Step | None, data: Mapping[str, Any]) -> None:
        self.sequence += 1
        assert self.sink is not None
        ref = step.ref if step is not None and step.node.kind is not NodeKind.START else None
        self.sink(RunEvent(kind, self.run_id, self.sequence, ref, data, self.now))
