"""The scheduler of one run: it carries out what the core says, and decides nothing.

The task that awaits the run is its first worker. A worker takes ready steps one after the other and runs them in
itself; only when a step really suspends while others are ready does it start another worker. So a chain costs no
task, and a fan-out as many as there are steps that wait at the same time.
"""

from __future__ import annotations

import time
from contextvars import copy_context
from typing import TYPE_CHECKING, Any

import anyio
import anyio.lowlevel

from graphrt.errors import GraphError, RunCancelledError
from graphrt.graph.binding import deliver
from graphrt.graph.core.records import Slots
from graphrt.graph.scheduler import steps
from graphrt.graph.scheduler.clocks import Clocks
from graphrt.graph.scheduler.context import RunContext
from graphrt.graph.scheduler.drive import rest
from graphrt.graph.scheduler.restored import ended_before, go_on
from graphrt.graph.scheduler.runner import Way, mismatch
from graphrt.graph.scheduler.slots import SlotDesk
from graphrt.graph.scheduler.timers import STAY_SECONDS, Timers
from graphrt.graph.scheduler.told import ToldRun
from graphrt.graph.states import NodeState

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from datetime import datetime

    from anyio.abc import TaskGroup

    from graphrt.graph.compiled import Program
    from graphrt.graph.core.records import MapRun, Step
    from graphrt.graph.core.run import RunCore
    from graphrt.graph.protocols import Question, RunEvent
    from graphrt.graph.scheduler.limits import BudgetTracker
    from graphrt.graph.scheduler.resources import ResourceDesk
    from graphrt.graph.scheduler.told import Durable
    from graphrt.policies import Budget

_PENDING = NodeState.PENDING
_RUNNING = NodeState.RUNNING
_SLICE = 0.005
"""Seconds that a worker runs steps which never suspend before it lets the event loop do other things."""
_THREADS = 64
"""Synchronous nodes of one run that are at work at the same time."""


class GraphScheduler(ToldRun):
    """Runs one run of a compiled graph on the event loop that awaits it, asyncio's or trio's."""

    def __init__(
        self,
        program: Program,
        *,
        run_id: str,
        deps: Any = None,
        timeout: float | None = None,
        deadline_at: datetime | None = None,
        budget: Budget | BudgetTracker | None = None,
        max_concurrency: int | None = None,
        sink: Callable[[RunEvent], None] | None = None,
        on_ask: Callable[[Question], Any] | None = None,
        observer: Any = None,
        durable: Durable | None = None,
        core: RunCore | None = None,
        stay_seconds: float = STAY_SECONDS,
    ) -> None:
        super().__init__(program, run_id, sink, observer, durable, core)
        self.deps = deps
        self.on_ask = on_ask
        self.resumed: dict[str, Any] = {}
        """What the event says with which a restored run goes on."""
        self.answers: dict[str, Any] = {}
        """Answers that a restored run brings with it, by the id of their question."""
        self.ended: dict[str, RunEvent] = {}
        """Ends of steps that were stored, and that a restored run does not reach, by the steps' keys."""
        self.budget = None if budget is None else _tracked(budget)
        limit = max_concurrency if max_concurrency is not None else program.decl.max_concurrency
        if limit is not None and core is None:
            self.core.root.limits = (Slots(limit),)
        self.clocks = Clocks(self, timeout if timeout is not None else program.decl.timeout, deadline_at)
        self.timers = Timers(self, stay_seconds)
        self.threads = Slots(_THREADS)
        self.slots = SlotDesk(self.core.ready, self.suspended)
        self.base = copy_context()
        self.tasks: TaskGroup
        self.sources: list[tuple[MapRun, anyio.Event]] = []
        """Iterators that wait for room, with what wakes them."""
        self.resources: ResourceDesk | None = None
        """What steps have opened for as long as the run lives; None while there is nothing."""
        self._cancelled: type[BaseException] = anyio.get_cancelled_exc_class()
        self._waking = False
        self._left = False
        """Whether a step was cancelled from outside; it may have kept that to itself, and `run` must not."""
        self._extra = False
        """Whether tasks other than workers have been started."""
        self._host_idle: anyio.Event | None = None
        self._slice = 0.0
        self._rested = False
        """Whether a step has waited, and the event loop had its turn, since the slice began."""

    @property
    def deadline(self) -> datetime | None:
        """When the run is out of time, in UTC; None without a limit."""
        return self.clocks.deadline()

    # ------------------------------------------------------------ the run

    async def run(self, value: Any) -> None:
        """Run to the end; how it ended is in `core.outcome`.

        Raises:
            BaseException: The cancellation of the awaiting task, after everything has been cleaned up.
        """
        core = self.core
        self.token = anyio.lowlevel.current_token()
        if self.observer is not None:
            self.observer.run_started(value, self.base)
        try:
            async with anyio.create_task_group() as self.tasks:
                self._slice = now = time.time()
                self.clocks.start()
                self._begin(value, now)
                try:
                    while core.outcome is None:
                        await self._work()
                        if core.outcome is None:
                            await self._idle()
                finally:
                    if self.resources is not None:
                        await self.resources.close()
                if self._extra:
                    self.tasks.cancel_scope.cancel()
            if self._left:
                await anyio.lowlevel.checkpoint_if_cancelled()
        except self._cancelled:
            self._cancelled_outside()
            raise
        except BaseExceptionGroup as group:  # nothing of a node comes here: a fault of the engine leaves bare too
            raise _first_of(group) from None
        finally:
            if self.observer is not None:
                self.observer.run_ended(core.outcome)

    def _begin(self, value: Any, now: float) -> None:
        """Start the core, then do what was asked for before: a run that is cancelled at once has begun all the same."""
        core = self.core
        late = self.clocks.overdue()
        try:
            if self.restored:
                go_on(self, now, late=late is not None)
            else:
                core.start(value, now)
        except Exception:
            raise
        except BaseException as error:  # noqa: BLE001 - a condition on START was interrupted: run() raises it bare
            core.cancel(error, now)
        self._begun = True
        if late is not None:
            core.cancel(late, now, timed_out=True)
        for ask in self._asked_before:
            ask()
        self.settle()

    def _cancelled_outside(self) -> None:
        core = self.core
        now = time.time()
        core.cancel(RunCancelledError("the task that awaited the run was cancelled"), now)
        for step in [*core.cancels, *self.live_steps()]:
            if step.state in (_RUNNING, NodeState.WAITING):
                core.step_cancelled(step, now)
        core.cancels.clear()

    async def _idle(self) -> None:
        """Wait until something is ready again, or the run is over."""
        core = self.core
        if self._may_leave():
            core.leave(time.time())
            return
        if core.ready or self._map_with_room() is not None:
            return  # a map without room is opened by whoever gives a slot back
        if not core.active and not core.waiting and not self._extra and core.outcome is None:
            raise GraphError(
                f"run {self.run_id!r} has nothing left to do and has not ended",
                hint="this is a fault of graphrt itself: please report it with the graph",
            )
        self._host_idle = anyio.Event()
        try:
            await self._host_idle.wait()
        finally:
            self._host_idle = None

    def _may_leave(self) -> bool:
        """Whether the call ends here, since a stored run only waits: for a time that is far, or unasked people."""
        core = self.core
        if self.durable is None or not core.waiting or core.active or core.ready:
            return False
        return (self.on_ask is None or not core.questions) and self.timers.are_far()

    # ------------------------------------------------------------ workers

    async def _worker(self) -> None:
        self._waking = False
        await self._work()

    async def _work(self) -> None:
        """Run ready steps until there are none. The scope is there to cancel the step in hand; others go on."""
        while True:
            with anyio.CancelScope() as scope:
                await self._steps(scope)
            if not scope.cancel_called:
                return

    async def _steps(self, scope: anyio.CancelScope) -> None:
        core = self.core
        ready = core.ready
        clock = time.time
        while core.outcome is None and not scope.cancel_called:
            if not ready and not self._open_item():
                return
            if (self.gate is not None or self.durable is not None) and (wait := self.held_back()) is not None:
                self._rested = True
                await wait
                continue
            step = ready.popleft()
            if step.state is not _PENDING:
                if step.state is _RUNNING and step.error is not None and not step.cancelling:
                    await steps.holder_fallback(self, step, scope)
                else:
                    self.slots.pass_on((*step.frame.scope.limits, self.threads))
                continue
            if self.graceful:
                continue
            runner = step.node.run
            now = clock()
            if self._rested:
                self._rested = False
                self._slice = now
            elif now - self._slice > _SLICE:
                await self._breathe(step)
                continue
            limits = step.frame.scope.limits
            if runner.way is not Way.ASYNC:
                limits = (
                    () if runner.way >= Way.GRAPH else (*limits, self.threads) if runner.way is Way.SYNC else limits
                )
            if limits and not self.slots.take(limits, step):
                continue
            if not core.step_started(step, now):
                self.slots.give(limits)
                self.settle()
                continue
            if self.ended and ended_before(self, step):
                self.slots.give(limits)
                self.settle()
            elif runner.plain:
                await self._plain(step, scope, limits)
            else:
                await steps.run_step(self, step, scope, limits)

    async def _plain(self, step: Step, scope: anyio.CancelScope, limits: tuple[Slots, ...]) -> None:
        """Run a coroutine function, or a node object, without any policy: the path that most steps take."""
        core = self.core
        runner = step.node.run
        step.task = scope
        try:
            if runner.single and len(step.arrivals) == 1:
                edge, source, value = step.arrivals[0]
                if source.shared or edge.map is not None or step.node.copies_inputs:
                    value = deliver(core, step, edge, source, value)
                coro = runner.fn(value)
            else:
                coro = self.call(step)
            context = self.base.copy()
            if self.observer is not None:
                self.observer.enter(step, context)
            try:
                pending = context.run(coro.send, None)
            except StopIteration as end:
                value = end.value
            else:
                self.suspended()
                value = await rest(coro, context, pending)
        except Exception as error:  # noqa: BLE001 - a node's error is an event, whatever it is (E11)
            if limits:
                self.slots.give(limits)
            core.step_failed(step, error, time.time())
        except BaseException as error:
            if limits:
                self.slots.give(limits)
            self.interrupted(step, error)
            if isinstance(error, self._cancelled):
                raise
        else:
            if limits:
                self.slots.give(limits)
            check = runner.check
            problem: Exception | None = mismatch(step, value) if check is not None and not check(value) else None
            if problem is None:
                problem = self.finished(step, value)
            if problem is not None:
                core.step_failed(step, problem, time.time())
        self.settle()

    def finished(self, step: Step, value: Any) -> Exception | None:
        """Tell the core that a step has its value; what interrupts a condition on the way ends the run (E14)."""
        if self.durable is not None and (problem := self.durable.check(step, value)) is not None:
            return problem
        try:
            return self.core.step_finished(step, value, time.time())
        except Exception:
            raise
        except BaseException as error:  # noqa: BLE001 - user code in conditions and keys; run() raises it bare
            self.interrupted(step, error)
            return None

    def call(self, step: Step) -> Any:
        """Call the node's function with the step's inputs."""
        runner = step.node.run
        binder = step.node.binder
        if runner.way is Way.OBJECT:
            own: RunContext[Any] = RunContext(self, step)
            return runner.fn(binder.inputs(self.core, step, own), own)
        ctx: RunContext[Any] | None = RunContext(self, step) if binder.needs_context else None
        if runner.positional:
            return runner.fn(*binder.values(self.core, step, ctx))
        return runner.fn(**binder.inputs(self.core, step, ctx))

    def suspended(self) -> None:
        """Let another worker run what is ready, while the step in hand waits."""
        self._rested = True
        if not self._waking and (self.core.ready or self._map_with_room() is not None):
            self.wake()

    def wake(self) -> None:
        """Have somebody run what is ready."""
        if self._host_idle is not None:
            self._host_idle.set()
        elif not self._waking and self.core.outcome is None:
            self._waking = True
            self.tasks.start_soon(self._worker)

    def settle(self) -> None:
        """Carry out what the core has left besides ready steps: cancellations, room for iterators, the end."""
        core = self.core
        if core.cancels:
            self._stop_steps()
        if self.sources:
            for run, event in self.sources:
                if run.closed or run.aborted or len(run.children) < run.map.max_concurrency:
                    event.set()
        if self.clocks.watching:
            self.clocks.look()
        if core.outcome is not None:
            if self._host_idle is not None:
                self._host_idle.set()
        elif self.graceful and not core.root.dead and not self._at_work():
            core.cancel(None, time.time())
            self.settle()
        elif self._host_idle is not None and self.durable is not None and self._may_leave():
            self._host_idle.set()

    def _at_work(self) -> bool:
        """Whether a step is at work, and not a source that waits for room that no item makes any more."""
        held_back = {run.source for run, _ in self.sources}
        return any(step.state is _RUNNING and step not in held_back for step in self.live_steps())

    def _stop_steps(self) -> None:
        core = self.core
        while core.cancels:
            cancels, core.cancels = core.cancels, []
            for step in cancels:
                if step.state is not _RUNNING:
                    continue
                if step.task is None:
                    core.step_cancelled(step, time.time())
                else:
                    step.task.cancel()

    def interrupted(self, step: Step, error: BaseException) -> None:
        """Record a step left by something that is no `Exception`: cancelled, or a KeyboardInterrupt and its like."""
        core = self.core
        now = time.time()
        others = None if isinstance(error, self._cancelled) else error
        if isinstance(error, BaseExceptionGroup):  # on trio: a task group in the step was cancelled, and failed
            others = error.split(self._cancelled)[1]
        if others is not None and not isinstance(others, Exception):
            core.cancel(others, now)
        elif not step.cancelling:
            self._left = True
            core.cancel(RunCancelledError("the task that awaited the run was cancelled"), now)
        if step.state is _RUNNING:
            if isinstance(others, Exception):
                core.step_failed(step, others, now)
            else:
                core.step_cancelled(step, now)
        self.settle()

    async def _breathe(self, step: Step) -> None:
        """Put the step in hand back, and let the event loop do other things."""
        self.core.ready.appendleft(step)
        await anyio.lowlevel.checkpoint()
        self._slice = time.time()

    def _open_item(self) -> bool:
        """Open items of maps that have a slot for them until a step is ready; False when none can be opened."""
        core = self.core
        while core.outcome is None and (run := self._map_with_room()) is not None:
            core.open_item(run, time.time())
            self.settle()
            if core.ready:
                return True
        return False

    def _map_with_room(self) -> MapRun | None:
        """Find a map that has an item to open and a slot for it; strike off those that have been given up."""
        opened = self.core.opened
        place = 0
        while place < len(opened):
            run = opened[place]
            if run.aborted or run.frame.scope.dead:
                del opened[place]
                continue
            around = run.frame.scope.limits
            if run.limit.used < run.limit.capacity and all(s.used < s.capacity for s in around):
                return run
            place += 1
        return None

    # ------------------------------------------------------------ from outside

    def answer(self, question_id: str, value: Any) -> None:
        """Bring a person's answer to a question; one that is not open yet is kept.

        Raises:
            GraphTypeError: The answer does not fit; the question stays open.
        """
        core = self.core
        step = core.asked.get(question_id)
        problem: Exception | None = None
        if step is not None:
            decl = step.node.decl
            assert decl is not None
            value = decl.target.accept(value)
            if self.durable is not None:
                problem = self.durable.check(step, value)
        elif self.durable is not None:
            problem = self.durable.check_answer(question_id, value)
        if problem is not None:
            raise problem
        going = core.answered(question_id, value, time.time())
        if going is not None:
            steps.finish(self, going, value)
            self.settle()
            self.wake()

    def is_cancellation(self, error: BaseException) -> bool:
        """Whether *error* is the event loop's cancellation."""
        return isinstance(error, self._cancelled)

    def graph_timed_out(self, step: Step, seconds: float) -> None:
        """Let a step that holds a graph be out of time."""
        error = TimeoutError(f"node {step.node.name!r} did not finish within {seconds:g} s of work")
        self.core.graph_timed_out(step, error, time.time())
        self.settle()
        self.wake()

    def start_task(self, fn: Callable[..., Coroutine[Any, Any, Any]], *args: Any) -> None:
        """Start a task that lives as long as the run at most."""
        self._extra = True
        self.tasks.start_soon(fn, *args)


def _tracked(budget: Budget | BudgetTracker) -> BudgetTracker:
    from graphrt.graph.scheduler.limits import BudgetTracker

    return budget if isinstance(budget, BudgetTracker) else BudgetTracker(budget)


def _first_of(group: BaseExceptionGroup[BaseException]) -> BaseException:
    first = group.exceptions[0]
    return _first_of(first) if isinstance(first, BaseExceptionGroup) else first
