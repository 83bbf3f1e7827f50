"""The clocks of a run: its timeout, its deadline, and the timeouts of steps that hold a graph (E15).

A timeout counts work: while all that is live below it waits for a person, a slot or a rate limit, its clock stands
still. Only `deadline_at` never does.
"""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING

import anyio

from graphrt.graph.states import NodeState

if TYPE_CHECKING:
    from datetime import datetime

    from graphrt.graph.core.records import Scope, Step
    from graphrt.graph.scheduler.run import GraphScheduler


class Clock:
    """A stretch of working time, in seconds of the event loop's clock."""

    __slots__ = ("moved", "paused_at", "scope", "seconds", "started", "step", "task")

    def __init__(self, scope: Scope, step: Step | None, seconds: float, now: float) -> None:
        self.scope = scope
        self.step = step
        self.seconds = seconds
        self.started = now
        self.paused_at: float | None = None
        self.moved = anyio.Event()
        self.task = anyio.CancelScope()

    def pause(self, idle: bool, now: float) -> None:
        """Stop or go on, as the work below does."""
        if idle and self.paused_at is None:
            self.paused_at = now
        elif not idle and self.paused_at is not None:
            self.started += now - self.paused_at
            self.paused_at = None
            self.moved.set()
            self.moved = anyio.Event()

    def left(self, now: float) -> float:
        """Seconds of work left."""
        return self.started + self.seconds - now


class Clocks:
    """All clocks of one run."""

    def __init__(self, run: GraphScheduler, timeout: float | None, deadline_at: datetime | None) -> None:
        self._run = run
        self._timeout = timeout
        self._deadline_at = deadline_at
        self._began: float | None = None
        """Seconds since the epoch."""
        self._clocks: list[Clock] = []
        self.held: set[Step] = set()
        """Steps that wait for a slot or a rate."""

    @property
    def watching(self) -> bool:
        """Whether any clock has to be told when work pauses."""
        return bool(self._clocks)

    def deadline(self) -> datetime | None:
        """Give the nearest end of the run, in UTC."""
        from datetime import UTC, datetime

        ends = []
        with contextlib.suppress(OverflowError, ValueError, OSError):  # beyond what a datetime holds: no limit
            if self._deadline_at is not None:
                ends.append(self._deadline_at.astimezone(UTC))
        with contextlib.suppress(OverflowError, ValueError, OSError):
            if self._timeout is not None and self._began is not None:
                ends.append(datetime.fromtimestamp(self._began + self._timeout, UTC))
        return min(ends) if ends else None

    def overdue(self) -> TimeoutError | None:
        """Say that the run is out of time before it has begun."""
        if self._timeout is not None and self._timeout <= 0:
            return TimeoutError(f"run {self._run.run_id!r} had no time left when it began")
        if self._deadline_at is not None and self._deadline_at.timestamp() <= time.time():
            return self._past(self._deadline_at)
        return None

    def start(self) -> None:
        """Start the run's own clocks, as far as it has any."""
        run = self._run
        self._began = time.time()
        if self._timeout is not None:
            clock = Clock(run.core.root, None, self._timeout, anyio.current_time())
            self._clocks.append(clock)
            run.start_task(self._watch, clock)
        if self._deadline_at is not None:
            run.start_task(self._until, self._deadline_at)

    def add(self, step: Step, seconds: float) -> None:
        """Start a clock for a step that holds a graph."""
        assert step.child is not None
        clock = Clock(step.child, step, seconds, anyio.current_time())
        self._clocks.append(clock)
        self._run.start_task(self._watch, clock)

    def look(self) -> None:
        """Stop the clocks of what only waits, start them again when it works, end those of steps that have ended."""
        desk = self._run.slots
        if desk.on_change is None:
            desk.on_change = self.look
        now = anyio.current_time()
        for clock in list(self._clocks):
            if clock.step is not None and clock.step.state is not NodeState.RUNNING:
                self._clocks.remove(clock)
                clock.task.cancel()
            else:
                clock.pause(self._only_waits(clock.scope), now)

    def _only_waits(self, scope: Scope) -> bool:
        core = self._run.core
        queued = self._run.slots.queued
        if not (core.waiting or self.held or queued or core.opened):
            return False
        scopes, waits = [scope], False
        while scopes:
            inner = scopes.pop()
            for run in inner.maps or ():
                if run.total is not None and run.opened < run.total and not run.children:
                    if all(slots.used < slots.capacity for slots in inner.limits):
                        return False
                    waits = True  # its items wait for a slot
                scopes.extend(run.children.values())
            for step in inner.live:
                if step.child is not None:
                    scopes.append(step.child)
                elif step.state is NodeState.WAITING or step in self.held or step in queued:
                    waits = True
                else:
                    return False
        return waits

    async def _watch(self, clock: Clock) -> None:
        with clock.task:
            while True:
                if clock.paused_at is not None:
                    await clock.moved.wait()
                    continue
                left = clock.left(anyio.current_time())
                if left <= 0:
                    break
                await anyio.sleep(left)
            self._fire(clock)

    def _fire(self, clock: Clock) -> None:
        run = self._run
        if clock in self._clocks:
            self._clocks.remove(clock)
        if clock.step is None:
            run.cancel(self._late(clock.seconds), timed_out=True)
        else:
            run.graph_timed_out(clock.step, clock.seconds)

    async def _until(self, deadline_at: datetime) -> None:
        await anyio.sleep(max(0.0, deadline_at.timestamp() - time.time()))
        self._run.cancel(self._past(deadline_at), timed_out=True)

    def _late(self, seconds: float) -> TimeoutError:
        return TimeoutError(f"run {self._run.run_id!r} did not finish within {seconds:g} s")

    def _past(self, deadline_at: datetime) -> TimeoutError:
        return TimeoutError(f"run {self._run.run_id!r} passed its deadline, {deadline_at.isoformat()}")
