"""The attempts of one step: pauses, timeouts, limits, fallbacks, threads (E11, E15, E16, E18, E21)."""

from __future__ import annotations

import math
import time
from contextlib import contextmanager
from itertools import count
from typing import TYPE_CHECKING, Any

import anyio

from graphrt.graph.scheduler.context import RunContext
from graphrt.graph.scheduler.drive import drive
from graphrt.graph.scheduler.iterate import awaited, iterate
from graphrt.graph.scheduler.runner import Way, mismatch
from graphrt.graph.values import copy_value
from graphrt.threads import run_in_thread

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from graphrt.graph.core.records import MapRun, Slots, Step
    from graphrt.graph.scheduler.limits import Borrowed, Limiter
    from graphrt.graph.scheduler.run import GraphScheduler
    from graphrt.graph.scheduler.runner import Fallback, Runner

_TRIES = 3
"""How often a step that finds the limiter taken lets its slots go; then it keeps them while it waits."""


class Work:
    """The attempts of one step."""

    __slots__ = (
        "attempt_span",
        "context",
        "fallbacks_used",
        "holding",
        "lent",
        "limiter",
        "limits",
        "map_run",
        "out_of_time",
        "run",
        "runner",
        "span",
        "step",
    )

    def __init__(self, run: GraphScheduler, step: Step, runner: Runner, limits: tuple[Slots, ...]) -> None:
        self.run = run
        self.step = step
        self.runner = runner
        self.limits = limits
        self.holding = bool(limits)
        """Whether the slots of *limits* are taken, those of *lent* left out."""
        self.limiter = self._limiter_of(runner)
        self.lent: tuple[Slots, ...] = ()
        """Slots given back for a while."""
        self.out_of_time: BaseException | None = None
        """The error that an attempt out of time ended in, if the last one did."""
        self.fallbacks_used = 0
        self.map_run: MapRun | None = None
        self.span: anyio.CancelScope | None = None
        """Ends by `step_timeout`."""
        self.attempt_span: anyio.CancelScope | None = None
        """Ends by `timeout`; the last attempt's."""

    def _limiter_of(self, runner: Runner) -> Limiter | Borrowed | None:
        limiter: Any = runner.limiter
        if limiter is None or hasattr(limiter, "acquire_nowait"):
            found: Limiter | None = limiter
            return found
        from graphrt.graph.scheduler.limits import Borrowed

        return Borrowed(limiter, f"{self.run.run_id}:{self.step.node.name}", self.run.start_task)

    async def all_attempts(self) -> Any:
        """Try, try again, then fall back; within `step_timeout` over all of it."""
        runner = self.runner
        if runner.step_timeout is None:
            return await self._tries_then_fallbacks()
        failed: Exception | None = None
        with anyio.CancelScope(deadline=anyio.current_time() + runner.step_timeout) as self.span:
            try:
                return await self._tries()
            except Exception as error:
                if not runner.fallbacks:
                    raise
                failed = error
        if failed is None:
            failed = TimeoutError(
                f"node {self.step.node.name!r} did not finish within step_timeout={runner.step_timeout:g} s"
            )
            self.out_of_time = failed
        return await self._fall_back_from(failed)

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
        self.run.core.attempt_failed(self.step, data, time.time())
        self.run.suspended()  # a pause comes now, without a coroutine that is seen to wait

    async def attempt(self, number: int) -> Any:
        """Make one attempt: take what it needs, run it for at most `timeout`, give all back."""
        run, step, runner = self.run, self.step, self.runner
        step.attempts = number
        self.out_of_time = self.attempt_span = None
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
        with anyio.CancelScope(deadline=anyio.current_time() + timeout) as self.attempt_span:
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
            return await iterate(self)
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
        call = named(call, fn)
        value = await drive(run_in_thread(call, on_abandon=self.abandoned), self.context, run.suspended)
        if hasattr(value, "__await__"):
            value = await drive(awaited(value), self.context, run.suspended)
        return value

    def abandoned(self) -> None:
        """Report that the step's thread has been left behind."""
        self.run.core.note("thread.abandoned", self.step, {"node": self.step.node.name}, time.time())

    # ------------------------------------------------------------ what an attempt holds

    async def _take(self) -> None:
        """Take slots, the node's limiter and its rate; the time it takes counts in no timeout."""
        runner = self.runner
        if (self.holding or not self.limits) and runner.limiter is None and runner.rate is None:
            return
        try:
            with self.clock_stopped():
                await self._take_turn()
        except BaseException:
            self.give_slots()
            raise

    @contextmanager
    def clock_stopped(self) -> Iterator[None]:
        """Count what happens inside in no timeout: a slot, a rate or a reader of items is waited for."""
        clocks = self.run.clocks
        now = anyio.current_time()
        left = [(scope, scope.deadline - now) for scope in (self.span, self.attempt_span) if scope is not None]
        for scope, _ in left:
            scope.deadline = math.inf
        clocks.held.add(self.step)
        if clocks.watching:
            clocks.look()
        try:
            yield
        finally:
            clocks.held.discard(self.step)
            if clocks.watching:
                clocks.look()
            now = anyio.current_time()
            for scope, seconds in left:
                scope.deadline = now + seconds

    async def _take_turn(self) -> None:
        """Take slots and the limiter, and start when the rate allows: nothing is held while that is waited for."""
        limiter, rate = self.limiter, self.runner.rate
        if rate is None:
            await self._take_slots_and_limiter()
            return
        from graphrt.graph.scheduler.limits import Turn

        turn = Turn()
        try:
            while True:
                await self._take_slots_and_limiter()
                pause = rate.reserve(turn)
                if pause <= 0:
                    return
                if limiter is not None:
                    limiter.release()
                self._lend_slots()
                self.run.suspended()
                await anyio.sleep(pause)
        except BaseException:
            rate.give_back(turn)
            raise

    async def _take_slots_and_limiter(self) -> None:
        """Take both. Who has the limiter never waits: so nobody waits for ever."""
        run, limiter = self.run, self.limiter
        for tries in count(1):
            await self.take_slots()
            if limiter is None or limiter.acquire_nowait():
                return
            patient = tries < _TRIES
            if patient:
                self._lend_slots()
            run.suspended()
            await limiter.acquire()
            if not patient or self._slots_at_once():
                return
            limiter.release()
        raise AssertionError("unreachable")

    async def take_slots(self) -> bool:
        """Take the slots of the run and the maps around that are not held; say whether they were waited for."""
        if self._slots_at_once():
            return False
        wanted = self.lent if self.holding else self.limits
        await self.run.slots.wait(wanted)
        self.holding, self.lent = True, ()
        return True

    def _slots_at_once(self) -> bool:
        wanted = self.lent if self.holding else self.limits
        if wanted and not self.run.slots.take_now(wanted):
            return False
        self.holding, self.lent = bool(self.limits), ()
        return True

    def _lend_slots(self) -> None:
        """Give back the slots of the run; those of maps are kept, so that no more items open than there is room for."""
        if self.holding and not self.lent:
            run = self.run
            self.lent = tuple(s for s in self.limits if s is run.threads or s in run.core.root.limits)
            run.slots.give(self.lent)

    def _give(self) -> None:
        if self.limiter is not None:
            self.limiter.release()
        self.give_slots()

    def give_slots(self) -> None:
        """Give back the slots that are held."""
        if self.holding:
            held = tuple(s for s in self.limits if s not in self.lent)
            self.holding, self.lent = False, ()
            self.run.slots.give(held)

    # ------------------------------------------------------------ fallbacks

    async def fall_back(self, fallback: Fallback, error: Exception) -> Any:
        """Give a fallback's value: a constant, or what its function returns for the node's inputs and the error."""
        run, step = self.run, self.step
        data = {"attempt": step.attempts, "error": error, "fallback": self.fallbacks_used}
        run.core.attempt_failed(step, data, time.time())
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
            await self._take_for_fallback(fallback)
            try:
                if fallback.is_async:
                    coro = fn(*args)
                else:
                    coro = run_in_thread(named(lambda: fn(*args), fn), on_abandon=self.abandoned)
                value = await drive(coro, context, run.suspended)
            finally:
                self.give_slots()
        problem = mismatch(step, value)
        if problem is not None:
            raise problem
        return value

    async def _take_for_fallback(self, fallback: Fallback) -> None:
        """Take the slots that the fallback's function holds: those around its step, and a thread's."""
        run = self.run
        around = self.step.frame.scope.limits
        self.give_slots()
        self.limits = around if fallback.is_async else (*around, run.threads)
        if self.limits and not self._slots_at_once():
            with self.clock_stopped():
                await self.take_slots()


def named(call: Callable[[], Any], fn: Callable[..., Any]) -> Callable[[], Any]:
    """Let a call go by the name of the function in it, for messages about threads."""
    call.__qualname__ = getattr(fn, "__qualname__", type(fn).__name__)
    return call
