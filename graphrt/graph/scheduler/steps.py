"""One step with everything its node declares: attempts, pauses, timeouts, limits, fallbacks, threads, iterators (E11 to E21)."""

from __future__ import annotations

import math
import time
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, Any

import anyio

from graphrt.errors import GraphError, GraphTypeError
from graphrt.graph import typecheck
from graphrt.graph.core.maps import run_of
from graphrt.graph.scheduler.context import RunContext
from graphrt.graph.scheduler.drive import drive
from graphrt.graph.scheduler.runner import Way
from graphrt.graph.state import Update
from graphrt.graph.states import NodeState
from graphrt.graph.values import copy_value
from graphrt.threads import ThreadIterator, run_in_thread

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from graphrt.graph.core.records import MapRun, Slots, Step
    from graphrt.graph.protocols import Question
    from graphrt.graph.scheduler.run import GraphScheduler
    from graphrt.graph.scheduler.runner import Fallback, Runner

_RUNNING = NodeState.RUNNING


def mismatch(step: Step, value: Any) -> GraphTypeError | None:
    """Say how a value differs from what its node declares; the output of an `Update` counts, not the update."""
    check = step.node.run.check
    if isinstance(value, Update):
        value = value.output
    if check is None or check(value):
        return None
    decl = step.node.decl
    assert decl is not None
    return GraphTypeError(
        f"node {step.node.name!r} declares {typecheck.describe(decl.signature.returns)} and returned "
        f"{type(value).__name__}",
        hint="mend the annotation or the return",
    )


async def run_step(
    run: GraphScheduler, step: Step, scope: anyio.CancelScope, limits: tuple[Slots, ...]
) -> None:
    """Run a started step to its end and report it to the core; never raises what the node raises."""
    runner = step.node.run
    if runner.way is Way.GRAPH:
        _enter_graph(run, step, runner)
        return
    if runner.way is Way.ASK:
        await _ask(run, step)
        return
    step.task = scope
    work = Work(run, step, runner, limits)
    try:
        value = await work.all_attempts()
    except Exception as error:  # noqa: BLE001 - a node's error is an event, whatever it is (E11)
        run.core.step_failed(step, error, time.time(), timed_out=error is work.out_of_time)
    except BaseException as error:  # noqa: BLE001 - reported to the core, then raised again or kept for run()
        run.interrupted(step, error)
        if run.is_cancellation(error):
            raise
    else:
        problem = run.core.step_finished(step, value, time.time())
        if problem is not None:
            await _after_problem(run, step, work, problem)
    finally:
        work.give_slots()
    run.settle()


async def _after_problem(run: GraphScheduler, step: Step, work: Work, problem: Exception) -> None:
    """The value could not leave the node (E13): no further attempt, but its fallbacks are tried."""
    for i, fallback in enumerate(work.runner.fallbacks):
        if work.fallbacks_used > i:
            continue
        try:
            value = await work.fall_back(fallback, problem)
        except Exception as error:  # noqa: BLE001 - a fallback's error is a node's error
            problem = error
            continue
        refused = run.core.step_finished(step, value, time.time())
        if refused is None:
            return
        problem = refused
    run.core.step_failed(step, problem, time.time())


def finish(run: GraphScheduler, step: Step, value: Any) -> None:
    """End a step that needs no more work with *value*."""
    problem = run.core.step_finished(step, value, time.time())
    if problem is not None:
        run.core.step_failed(step, problem, time.time())


async def holder_fallback(run: GraphScheduler, step: Step, scope: anyio.CancelScope) -> None:
    """The graph that a step holds has failed: try the fallbacks of the node."""
    step.task = scope
    error = step.error
    step.error = None
    assert isinstance(error, Exception)
    work = Work(run, step, step.node.run, ())
    try:
        await _after_problem(run, step, work, error)
    except BaseException as interrupt:  # noqa: BLE001 - reported to the core, then raised again or kept for run()
        run.interrupted(step, interrupt)
        if run.is_cancellation(interrupt):
            raise
    run.settle()


def _enter_graph(run: GraphScheduler, step: Step, runner: Runner) -> None:
    run.core.enter_graph(step, time.time())
    if runner.step_timeout is not None and step.child is not None:
        run.clocks.add(step, runner.step_timeout)
    run.settle()


async def _ask(run: GraphScheduler, step: Step) -> None:
    core = run.core
    target = step.node.decl.target if step.node.decl is not None else None
    assert target is not None
    try:
        question = target.question_for(step.node.binder.inputs(core, step, None))
    except Exception as error:  # noqa: BLE001 - the question is made by user code
        core.step_failed(step, error, time.time())
        run.settle()
        return
    key = step.key
    if core.step_waiting(step, question, time.time()):
        if run.on_ask is not None:
            run.start_task(_call_on_ask, run, step)
    else:
        try:
            run.answer(key, core.early_answers[key])
        except GraphTypeError as error:
            core.answered(key, None, time.time())
            core.step_failed(step, error, time.time())
    run.settle()


async def _call_on_ask(run: GraphScheduler, step: Step) -> None:
    assert run.on_ask is not None
    key = step.key
    question = run.core.questions.get(key)
    if question is None:
        return
    context = run.base.copy()
    if run.observer is not None:
        run.observer.enter(step, context)
    try:
        run.answer(key, await drive(_ask_person(run.on_ask, question), context, run.suspended))
    except Exception as error:  # noqa: BLE001 - on_ask is user code: its error is the asking step's
        if step.state is NodeState.WAITING:
            run.core.questions.pop(key, None)
            run.core.step_failed(step, error, time.time())
            run.settle()
            run.wake()


async def _ask_person(on_ask: Callable[[Question], Awaitable[Any]], question: Question) -> Any:
    return await on_ask(question)


class Work:
    """The attempts of one step."""

    __slots__ = ("context", "fallbacks_used", "holding", "limits", "map_run", "out_of_time", "run", "runner", "span", "step")

    def __init__(self, run: GraphScheduler, step: Step, runner: Runner, limits: tuple[Slots, ...]) -> None:
        self.run = run
        self.step = step
        self.runner = runner
        self.limits = limits
        self.holding = bool(limits)
        """Whether the slots of *limits* are taken."""
        self.out_of_time: BaseException | None = None
        """The error that an attempt out of time ended in, if the last one did."""
        self.fallbacks_used = 0
        self.map_run: MapRun | None = None
        self.span: anyio.CancelScope | None = None

    async def all_attempts(self) -> Any:
        """Try, try again, then fall back; within `step_timeout` over all of it."""
        runner = self.runner
        if runner.step_timeout is None:
            return await self._tries_then_fallbacks()
        with anyio.CancelScope(deadline=anyio.current_time() + runner.step_timeout) as self.span:
            return await self._tries()
        error = TimeoutError(f"node {self.step.node.name!r} did not finish within step_timeout={runner.step_timeout:g} s")
        self.out_of_time = error
        return await self._fall_back_from(error)

    async def _tries_then_fallbacks(self) -> Any:
        try:
            return await self._tries()
        except Exception as error:
            if not self.runner.fallbacks:
                raise
            return await self._fall_back_from(error)

    async def _fall_back_from(self, error: Exception) -> Any:
        for fallback in self.runner.fallbacks:
            self.fallbacks_used += 1
            try:
                value = await self.fall_back(fallback, error)
            except Exception as worse:  # noqa: BLE001 - the next fallback is tried; the last error is raised
                error = worse
                self.out_of_time = None
            else:
                return value
        raise error

    async def _tries(self) -> Any:
        retry = self.runner.retry
        if retry is None:
            return await self.attempt(1)
        from graphrt.retry import retry_call

        return await retry_call(retry, self.attempt, on_retry=self._failed_attempt, monotonic=anyio.current_time)

    def _failed_attempt(self, attempt: int, error: BaseException, delay: float) -> None:
        data = {"attempt": attempt, "error": error, "delay": delay}
        self.run.core.note("attempt.failed", self.step, data, time.time())
        self.run.suspended()  # a pause comes now, without a coroutine that is seen to wait

    async def attempt(self, number: int) -> Any:
        """Make one attempt: take what it needs, run it for at most `timeout`, give all back."""
        run, step, runner = self.run, self.step, self.runner
        step.attempts = number
        self.out_of_time = None
        await self._take()
        observer = run.observer
        self.context = step.attempt = run.base.copy()
        if observer is not None:
            observer.attempt_started(step, number, self.context)
        try:
            value = await self._timed()
            if runner.check is not None and not runner.check(value):
                problem = mismatch(step, value)
                if problem is not None:
                    raise problem
        except BaseException as error:
            if observer is not None:
                observer.attempt_ended(step, error, error is self.out_of_time)
            raise
        else:
            if observer is not None:
                observer.attempt_ended(step, None, False)
            return value
        finally:
            step.attempt = None
            self._give()

    async def _timed(self) -> Any:
        timeout = self.runner.timeout
        if timeout is None:
            return await self._once()
        with anyio.CancelScope(deadline=anyio.current_time() + timeout):
            return await self._once()
        error = TimeoutError(f"node {self.step.node.name!r} did not finish within timeout={timeout:g} s")
        self.out_of_time = error
        raise error

    async def _once(self) -> Any:
        run, step = self.run, self.step
        way = self.runner.way
        if way is Way.SYNC:
            return await self._in_thread()
        if way is Way.ITERATOR or way is Way.ASYNC_ITERATOR:
            return await self._iterate()
        if way is Way.OBJECT:
            ctx: Any = RunContext(run, step)
            coro = self.runner.fn(step.node.binder.inputs(run.core, step, ctx), ctx)
        else:
            coro = run.call(step)
        return await drive(coro, self.context, run.suspended)

    async def _in_thread(self) -> Any:
        run, step = self.run, self.step
        core = run.core
        ctx: RunContext[Any] | None = RunContext(run, step) if step.node.binder.needs_context else None
        inputs = step.node.binder.inputs(core, step, ctx)
        fn = self.runner.fn
        if self.runner.positional:
            call: Callable[[], Any] = lambda: fn(*inputs.values())  # noqa: E731 - two shapes of one call
        else:
            call = lambda: fn(**inputs)  # noqa: E731 - two shapes of one call
        call = _named(call, fn)
        value = await drive(run_in_thread(call, on_abandon=self._abandoned), self.context, run.suspended)
        if hasattr(value, "__await__"):
            value = await drive(_awaited(value), self.context, run.suspended)
        return value

    def _abandoned(self) -> None:
        self.run.core.note("thread.abandoned", self.step, {"node": self.step.node.name}, time.time())

    # ------------------------------------------------------------ what an attempt holds

    async def _take(self) -> None:
        """Take slots, the node's rate and its limiter; the time it takes counts in no timeout."""
        runner, run = self.runner, self.run
        if (self.holding or not self.limits) and runner.limiter is None and runner.rate is None:
            return
        left = 0.0
        if self.span is not None:
            left = self.span.deadline - anyio.current_time()
            self.span.deadline = math.inf
        run.clocks.held.add(self.step)
        try:
            await self._take_slots()
            if runner.rate is not None and (pause := runner.rate.reserve()) > 0:
                run.suspended()
                await anyio.sleep(pause)
            if runner.limiter is not None and not runner.limiter.acquire_nowait():
                run.suspended()
                await runner.limiter.acquire()
        except BaseException:
            self._give_slots_only()
            raise
        finally:
            run.clocks.held.discard(self.step)
            if run.clocks.watching:
                run.clocks.look()
            if self.span is not None:
                self.span.deadline = anyio.current_time() + left

    async def _take_slots(self) -> None:
        if self.limits and not self.holding:
            await self.run.wait_for_slots(self.limits)
            self.holding = True

    def _give(self) -> None:
        if self.runner.limiter is not None:
            self.runner.limiter.release()
        self._give_slots_only()

    def _give_slots_only(self) -> None:
        if self.holding:
            self.holding = False
            self.run.give_slots(self.limits)

    def give_slots(self) -> None:
        """Give back what is still held."""
        self._give_slots_only()

    # ------------------------------------------------------------ fallbacks

    async def fall_back(self, fallback: Fallback, error: Exception) -> Any:
        """Give a fallback's value: a constant, or what its function returns for the node's inputs and the error."""
        run, step = self.run, self.step
        data = {"attempt": step.attempts, "error": error, "fallback": self.fallbacks_used}
        run.core.note("attempt.failed", step, data, time.time())
        fn = fallback.fn
        context = run.base.copy() if fn is not None else None
        if run.observer is not None:
            run.observer.fallback_started(step, error, context)
        if fn is None or context is None:
            value = copy_value(fallback.constant, where=step.node.name, warned=None)
        else:
            step.attempt = context
            ctx: RunContext[Any] = RunContext(run, step)
            given = step.node.binder.inputs(run.core, step, ctx)
            args = [ctx if source == "ctx" else error if source == "" else given[source] for source in fallback.inputs]
            coro = fn(*args) if fallback.is_async else run_in_thread(_named(lambda: fn(*args), fn))
            value = await drive(coro, context, run.suspended)
        problem = mismatch(step, value)
        if problem is not None:
            raise problem
        return value

    # ------------------------------------------------------------ iterators

    async def _iterate(self) -> None:
        """Read the source's items one by one, at most the map's `max_concurrency` ahead of what has settled (E10a)."""
        run, step = self.run, self.step
        map_ = next(e.map for e in step.node.out if e.map is not None)
        if self.map_run is None:
            self.map_run = run_of(step, map_)
        stored = len(self.map_run.items or ()) if self.map_run is not None else 0
        if self.map_run is None:
            remember = self.runner.retry is not None or run.core.sink is not None
            self.map_run = run.core.map_started(step, map_, remember=remember, now=time.time())
        target = self.map_run
        source = run.call(step)
        if hasattr(source, "__await__"):
            source = await drive(_awaited(source), self.context, run.suspended)
        reader = _reader(source, step, self.context, self._abandoned)
        index = 0
        try:
            while True:
                if index >= stored:
                    await self._room(target)
                try:
                    value = await drive(reader.__anext__(), self.context, run.suspended)
                except StopAsyncIteration:
                    break
                if target.aborted or target.closed:
                    break
                if index < stored:
                    _same_item(step, target, index, value)
                else:
                    run.core.item_arrived(target, value, time.time())
                    run.settle()
                    run.suspended()
                index += 1
        finally:
            close = getattr(reader, "aclose", None)
            if close is not None:
                with anyio.CancelScope(shield=True):
                    await drive(_awaited(close()), self.context, run.suspended)
        if index < stored:
            raise GraphError(
                f"node {step.node.name!r} yielded {stored} items before and only {index} when called again",
                hint="an iterator that is retried or resumed yields the same items again, and then goes on",
            )

    async def _room(self, target: MapRun) -> None:
        run = self.run
        while len(target.children) >= target.map.max_concurrency and not target.aborted:
            event = anyio.Event()
            entry = (target, event)
            run.sources.append(entry)
            self._give_slots_only()
            run.suspended()
            try:
                await event.wait()
            finally:
                run.sources.remove(entry)
        await self._take_slots()


def _same_item(step: Step, target: MapRun, index: int, value: Any) -> None:
    assert target.items is not None
    if target.items[index] != value:
        raise GraphError(
            f"item {index} of node {step.node.name!r} was {target.items[index]!r} and is {value!r} when called again",
            hint="an iterator that is retried or resumed yields the same items again, and then goes on",
        )


def _reader(source: Any, step: Step, context: Any, abandoned: Callable[[], None]) -> Any:
    if isinstance(source, AsyncIterator):
        return source
    if hasattr(source, "__aiter__"):
        return source.__aiter__()
    if isinstance(source, Iterator) or hasattr(source, "__iter__"):
        return context.run(ThreadIterator, iter(source), on_abandon=abandoned)
    raise GraphTypeError(
        f"node {step.node.name!r} declares an iterator and returned {type(source).__name__}",
        hint="yield the items, or return an iterator",
    )


async def _awaited(value: Any) -> Any:
    return await value


def _named(call: Callable[[], Any], fn: Callable[..., Any]) -> Callable[[], Any]:
    call.__qualname__ = getattr(fn, "__qualname__", type(fn).__name__)
    return call
