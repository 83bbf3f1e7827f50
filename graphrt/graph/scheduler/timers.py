"""The times that steps of a run wait for, over restarts too: a time that has passed meanwhile has come at once."""

from __future__ import annotations

import heapq
import time
from datetime import UTC, datetime
from itertools import count
from typing import TYPE_CHECKING, Any, Final

import anyio

from graphrt.errors import GraphTypeError
from graphrt.graph.scheduler import steps

if TYPE_CHECKING:
    from graphrt.graph.core.records import Step
    from graphrt.graph.protocols import WaitsUntil
    from graphrt.graph.scheduler.run import GraphScheduler

STAY_SECONDS: Final = 5.0
"""How near a time must be for a stored run to wait for it in the process, when nothing else is left to do."""


class Timers:
    """The timers of one run. A single task sleeps until the nearest, by the event loop's clock."""

    def __init__(self, run: GraphScheduler, stay_seconds: float) -> None:
        self._run = run
        self._stay_seconds = stay_seconds
        self._due: list[tuple[float, int, Step]] = []
        """Times of the event loop's clock; those of steps that have ended otherwise are passed over."""
        self._order = count()
        self._nearer: anyio.Event | None = None
        """Set when there is a nearer time; None while no task sleeps."""

    def start(self, step: Step) -> None:
        """Let a started step wait until its node's time."""
        run = self._run
        try:
            inputs = step.node.binder.inputs(run.core, step, None)
            until = _due(step, _target(step), inputs)
        except Exception as error:  # noqa: BLE001 - the time is made by user code
            run.core.step_failed(step, error, time.time())
        except BaseException as error:  # noqa: BLE001 - the same, interrupted: run() raises it bare
            run.interrupted(step, error)
            return
        else:
            run.core.step_waits_until(step, until, time.time())
            self.add(step, until)
        run.settle()

    def add(self, step: Step, until: datetime) -> None:
        """Have a step that waits go on at its time."""
        left = max(0.0, until.timestamp() - time.time())
        heapq.heappush(self._due, (anyio.current_time() + left, next(self._order), step))
        if self._nearer is None:
            self._nearer = anyio.Event()
            self._run.start_task(self._watch)
        elif self._due[0][2] is step:
            self._nearer.set()

    def are_far(self) -> bool:
        """Whether no time is so near that it is waited for in the process; also when there is none."""
        self._drop()
        return not self._due or self._due[0][0] - anyio.current_time() > self._stay_seconds

    def _drop(self) -> None:
        while self._due and self._due[0][2] not in self._run.core.timers:
            heapq.heappop(self._due)

    async def _watch(self) -> None:
        while True:
            self._drop()
            if not self._due:
                self._nearer = None
                return
            left = self._due[0][0] - anyio.current_time()
            if left > 0:
                self._nearer = anyio.Event()
                with anyio.move_on_after(left):
                    await self._nearer.wait()
            else:
                self._fire(heapq.heappop(self._due)[2])

    def _fire(self, step: Step) -> None:
        run = self._run
        if not run.core.timer_fired(step, time.time()):
            return
        try:
            value = _target(step).passed_on(step.node.binder.inputs(run.core, step, None))
        except Exception as error:  # noqa: BLE001 - a node's error is an event, whatever it is (E11)
            run.core.step_failed(step, error, time.time())
        except BaseException as error:  # noqa: BLE001 - the same, interrupted: run() raises it bare
            run.interrupted(step, error)
        else:
            steps.finish(run, step, value)
        run.settle()
        run.wake()


def _target(step: Step) -> WaitsUntil:
    assert step.node.decl is not None
    target: WaitsUntil = step.node.decl.target
    return target


def _due(step: Step, target: WaitsUntil, inputs: dict[str, Any]) -> datetime:
    until = target.due(inputs, datetime.now(UTC))
    if not isinstance(until, datetime) or until.utcoffset() is None:
        raise GraphTypeError(
            f"node {step.node.name!r} waits until {until!r}, which is no time with a zone",
            hint="give an aware datetime, such as datetime.now(UTC) + timedelta(hours=1)",
        )
    return until.astimezone(UTC)
