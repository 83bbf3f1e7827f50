"""What lives as long as a run: the run as its resources see it, and the tasks that own them.

A resource is an async context manager. One task opens it and the same task closes it, as cancel scopes demand;
the steps only use what it gave. It is closed when the run is over, in every ending, the last one opened first.
"""

from __future__ import annotations

import logging
import time
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, TypeAlias

import anyio

from graphrt.errors import GraphError
from graphrt.graph.scheduler.context import check_event_type

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping
    from contextlib import AbstractAsyncContextManager, AbstractContextManager
    from datetime import datetime

    from graphrt.graph.core.records import Scope
    from graphrt.graph.scheduler.limits import BudgetTracker
    from graphrt.graph.scheduler.run import GraphScheduler
    from graphrt.graph.states import RunStatus
    from graphrt.hooks import HookContext
    from graphrt.messages import TokenUsage

    Opening: TypeAlias = Callable[["RunHandle"], AbstractAsyncContextManager[Any]]

log = logging.getLogger("graphrt.run")

CLOSE_SECONDS = 30.0
"""What a resource may take to close; then it is cancelled, and a warning logged."""


class RunHandle:
    """The run as what outlives a step sees it."""

    __slots__ = ("_run",)

    def __init__(self, run: GraphScheduler) -> None:
        self._run = run

    @property
    def run_id(self) -> str:
        """The run's id."""
        return self._run.run_id

    @property
    def deps(self) -> Any:
        """What the caller gave the run as `deps=`."""
        return self._run.deps

    @property
    def budget(self) -> BudgetTracker | None:
        """What the run may still use; None without a budget."""
        return self._run.budget

    @property
    def deadline(self) -> datetime | None:
        """When the run is out of time, in UTC; None without a limit."""
        return self._run.deadline

    @property
    def watched(self) -> bool:
        """Whether somebody reads the run's events."""
        return self._run.watched

    @property
    def traced(self) -> bool:
        """Whether the run has spans."""
        return self._run.observer is not None

    @property
    def status(self) -> RunStatus | None:
        """How the run ended; None while it goes on."""
        outcome = self._run.core.outcome
        return None if outcome is None else outcome.status

    def emit(self, type: str, data: Mapping[str, Any] | None = None) -> None:
        """Put an event into the run's stream that belongs to no step; nothing once the run is over.

        Raises:
            GraphError: The type belongs to the engine alone.
        """
        check_event_type(type)
        core = self._run.core

        def tell() -> None:
            if core.outcome is None:
                core.note(type, None, dict(data or {}), time.time())

        self._run.on_loop(tell)

    def record_usage(self, usage: TokenUsage | None) -> None:
        """Add to `RunResult.usage` what a model call has reported; None is unknown, and adds nothing."""
        self._run.add_usage(usage)

    def hook_span(
        self, name: str, *, event: str | None = None, plugin_id: str | None = None, context: HookContext | None = None
    ) -> AbstractContextManager[Callable[[BaseException], object]]:
        """Open the span of one call of a hook under the current span; it gives what marks the span as failed."""
        return hook_span(self._run, name, event=event, plugin_id=plugin_id, context=context)


def hook_span(
    run: GraphScheduler, name: str, *, event: str | None, plugin_id: str | None, context: HookContext | None
) -> AbstractContextManager[Callable[[BaseException], object]]:
    """Open the span of one call of a hook, where the run has spans."""
    observer = run.observer
    if observer is None:
        return nullcontext(_ignore)
    span: AbstractContextManager[Callable[[BaseException], object]] = observer.hook_span(
        name, context, event=event, plugin_id=plugin_id
    )
    return span


def _ignore(error: BaseException) -> None:
    """Take the place of a span that nobody records."""


class ResourceDesk:
    """The resources of one run, by the activation of the graph that asked for them and their key."""

    def __init__(self, run: GraphScheduler) -> None:
        self._run = run
        self._open: dict[tuple[Scope, Hashable], _Resource] = {}
        self._over = False

    async def get(self, scope: Scope, key: Hashable, opening: Opening) -> Any:
        """Give what a resource gave when it was opened, which is now if nobody has asked for it before.

        Raises:
            GraphError: The run is over.
            Exception: What opening it raised.
        """
        found = self._open.get((scope, key))
        if found is None:
            if self._over or self._run.core.outcome is not None:
                raise GraphError(f"resource {key!r} of run {self._run.run_id!r} is asked for when the run is over")
            found = self._open[scope, key] = _Resource(self._run, key, opening)
            self._run.base.copy().run(self._run.start_task, found.own)
        if not found.ready.is_set():
            await found.ready.wait()
        if found.error is not None:
            raise found.error
        return found.value

    async def close(self) -> None:
        """Have every resource closed by its owner, the last one opened first, whatever else is being cancelled."""
        self._over = True
        with anyio.CancelScope(shield=True):
            while self._open:
                await self._open.popitem()[1].close()


class _Resource:
    """One resource of a run, and the task that owns it."""

    def __init__(self, run: GraphScheduler, key: Hashable, opening: Opening) -> None:
        self._run = run
        self._key = key
        self._opening = opening
        self._scope = anyio.CancelScope(shield=True)  # what cancels the run must not cut its cleaning up short
        self._closing = anyio.Event()
        self._closed = anyio.Event()
        self._entered = False
        self.ready = anyio.Event()
        self.value: Any = None
        self.error: Exception | None = None

    async def own(self) -> None:
        """Open the resource, wait until the run is over, and close it: the life of the owner's task."""
        try:
            with self._scope:
                await self._live()
        except Exception as error:
            if self._entered:
                log.exception("closing resource %r of run %r failed", self._key, self._run.run_id)
            else:
                self.error = error
        finally:
            if not self._entered and self.error is None:
                self.error = GraphError(f"resource {self._key!r} was not opened: run {self._run.run_id!r} is over")
            self.ready.set()
            self._closed.set()

    async def _live(self) -> None:
        async with self._opening(RunHandle(self._run)) as self.value:
            self._entered = True
            self.ready.set()
            await self._closing.wait()

    async def close(self) -> None:
        """Let the owner close it, and wait for that; one that is still being opened is cancelled."""
        self._closing.set()
        if not self._entered:
            self._scope.cancel()
        with anyio.move_on_after(CLOSE_SECONDS):
            await self._closed.wait()
            return
        text = "resource %r of run %r did not close within %g s, and is cancelled"
        log.warning(text, self._key, self._run.run_id, CLOSE_SECONDS)
        self._scope.cancel()
