"""What a node may ask its run for, and tell it."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar, cast

from graphrt.errors import GraphError, GraphTypeError
from graphrt.graph.states import LIVE_STATES

if TYPE_CHECKING:
    import logging
    from collections.abc import Callable, Hashable, Iterator, Mapping
    from contextlib import AbstractAsyncContextManager, AbstractContextManager
    from datetime import datetime

    from graphrt.graph.core.records import Step
    from graphrt.graph.protocols import StepRef
    from graphrt.graph.scheduler.limits import BudgetTracker
    from graphrt.graph.scheduler.resources import RunHandle
    from graphrt.graph.scheduler.run import GraphScheduler
    from graphrt.hooks import HookContext
    from graphrt.messages import TokenUsage

if TYPE_CHECKING:
    from typing_extensions import TypeVar as TypeVarWithDefault

    Deps = TypeVarWithDefault("Deps", default=Any)
else:
    Deps = TypeVar("Deps")

OPEN_EVENTS = frozenset(
    {
        "message.completed",
        "tool.call.started",
        "tool.call.completed",
        "artifact.created",
        "state.updated",
        "action.requested",
        "thread.abandoned",
    }
)
"""Events of the engine's vocabulary that a node may emit; the others say what the engine itself has done."""
_T = TypeVar("_T")


def check_event_type(type: str) -> None:
    """Refuse an event that says what only the engine can have done.

    Raises:
        GraphError: The type belongs to the engine alone.
    """
    if not type.startswith("custom.") and type not in OPEN_EVENTS:
        raise GraphError(
            f"event type {type!r} is not a node's to emit",
            hint=f"call it 'custom.{type}', or use one of {', '.join(sorted(OPEN_EVENTS))}",
        )


class RunContext(Generic[Deps]):
    """The run as one step sees it. Every method refuses a step that has ended, such as a thread left behind.

    A node gets it by a parameter annotated `RunContext` or `RunContext[Deps]`.
    """

    __graphrt_context__: ClassVar = True
    __slots__ = ("_attempt", "_run", "_step")

    def __init__(self, run: GraphScheduler, step: Step) -> None:
        self._run = run
        self._step = step
        self._attempt = step.attempt

    @property
    def deps(self) -> Deps:
        """What the caller gave the run as `deps=`."""
        return self._run.deps  # type: ignore[no-any-return]  # the caller's promise, in the annotation

    @property
    def run_id(self) -> str:
        """The run's id, the same in every graph inside it."""
        return self._run.run_id

    @property
    def step(self) -> StepRef:
        """Which step this is: node, scope, round, attempt."""
        return self._step.ref

    @property
    def idempotency_key(self) -> str:
        """A key that is the same for all attempts of this step and after a resume, and that no other step has."""
        return f"{self._run.run_id}:{self._step.key}"

    @property
    def deadline(self) -> datetime | None:
        """When the run is out of time, in UTC; None without a limit."""
        return self._run.deadline

    @property
    def cancel_requested(self) -> bool:
        """Whether this step or its run is being cancelled; for loops in synchronous nodes."""
        step = self._step
        return step.cancelling or self._is_over() or self._run.stopping

    @property
    def budget(self) -> BudgetTracker | None:
        """What the run may still use, shared by all its branches; None without a budget."""
        return self._run.budget

    @property
    def logger(self) -> logging.LoggerAdapter[logging.Logger]:
        """A logger whose records carry `run_id`, `node`, `scope` and `round`."""
        import logging

        ref = self._step.ref
        fields = {"run_id": self._run.run_id, "node": ref.node, "scope": ref.scope, "round": ref.round}
        return logging.LoggerAdapter(logging.getLogger("graphrt.run"), fields)

    @property
    def watched(self) -> bool:
        """Whether somebody reads the run's events: without a reader nothing has to be streamed."""
        return self._run.watched

    def emit(self, type: str, data: Mapping[str, Any] | None = None) -> None:
        """Put an event of your own into the run's stream; its type starts with `custom.` or is one of the engine's.

        Safe to call from a synchronous node's thread.

        Raises:
            GraphError: The step has ended, or the type belongs to the engine alone.
        """
        self._alive("emit")
        check_event_type(type)
        self._run.emit(self._step, type, dict(data or {}))

    def send_text(self, chunk: str) -> None:
        """Stream a piece of text: a `message.delta` event, not stored on its own.

        Raises:
            GraphError: The step has ended.
            GraphTypeError: *chunk* is no text.
        """
        self._alive("send_text")
        if not isinstance(chunk, str):
            raise GraphTypeError(
                f"send_text() of node {self._step.node.name!r} got {type(chunk).__name__}, which is no text",
                hint="give a str; other values go into the data of emit('custom.…', {...})",
            )
        self._run.send_text(self._step, chunk)

    def record_usage(self, usage: TokenUsage | None) -> None:
        """Add to `RunResult.usage` what a model call has reported; None is unknown, and adds nothing."""
        self._alive("record_usage")
        self._run.add_usage(usage)

    @property
    def traced(self) -> bool:
        """Whether this step has a span, so that it is worth while to make attributes for it."""
        return self._run.observer is not None

    @property
    def captures_content(self) -> bool:
        """Whether spans hold what people and models wrote: without that, nobody need make it ready."""
        observer = self._run.observer
        return observer is not None and observer.capture_content

    def annotate(self, name: str, value: Any) -> None:
        """Set an attribute on the span of this step; None, which is unknown, sets none. Without a span, nothing."""
        self._alive("annotate")
        if self._run.observer is not None:
            self._run.observer.annotate(self._step, name, value)

    def shared(self, key: Hashable, make: Callable[[], _T]) -> _T:
        """Give what the steps of this activation of the graph share under *key*; the first to ask makes it.

        It lives as long as the run and is not stored: after a resume it is made anew. The items of a map share it
        with the graph around them; another activation of the graph has its own.
        """
        self._alive("shared")
        return cast("_T", self._run.share(self._step.frame.scope.graph, key, make))

    async def resource(self, key: Hashable, opening: Callable[[RunHandle], AbstractAsyncContextManager[_T]]) -> _T:
        """Give what *opening* opens: the first step to ask has it opened, the others of this activation share it.

        A task of the run's own opens it, in the run's context, and closes it when the run is over, in every
        ending, the last one opened first. It is not stored: after a resume it is opened anew.

        Raises:
            Exception: What opening it raised, in every step that asks.
        """
        self._alive("resource")
        run = self._run
        if run.resources is None:
            from graphrt.graph.scheduler.resources import ResourceDesk

            run.resources = ResourceDesk(run)
        return cast("_T", await run.resources.get(self._step.frame.scope.graph, key, opening))

    def hook_span(
        self, name: str, *, event: str | None = None, plugin_id: str | None = None, context: HookContext | None = None
    ) -> AbstractContextManager[Callable[[BaseException], object]]:
        """Open the span of one call of a hook under the current span; it gives what marks the span as failed."""
        from graphrt.graph.scheduler.resources import hook_span

        return hook_span(self._run, name, event=event, plugin_id=plugin_id, context=context)

    @contextmanager
    def holding(self) -> Iterator[None]:
        """Count this step as one that only waits, so that clocks of work stand still: for another's run, a person."""
        clocks = self._run.clocks
        step = self._step
        clocks.held.add(step)
        self._run.settle()
        try:
            yield
        finally:
            clocks.held.discard(step)
            self._run.settle()

    def _is_over(self) -> bool:
        return self._step.state not in LIVE_STATES or self._step.attempt is not self._attempt

    def _alive(self, method: str) -> None:
        if self._is_over():
            step = self._step
            ended = f"its end (it is {step.state.value})" if step.state not in LIVE_STATES else "its attempt's end"
            raise GraphError(
                f"{method}() of step {step.key!r} comes after {ended}",
                hint="a step out of time or cancelled can touch nothing; look at ctx.cancel_requested in long loops",
            )
