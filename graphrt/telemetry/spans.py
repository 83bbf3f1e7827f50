"""`Telemetry`: where spans go and what they hold, and the spans that code around runs opens."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol, Self

from opentelemetry import context as otel
from opentelemetry import trace
from opentelemetry.trace import NoOpTracer, NoOpTracerProvider, ProxyTracerProvider, set_span_in_context

from graphrt.errors import ConfigError, RunCancelledError
from graphrt.telemetry import conventions as names
from graphrt.telemetry.observer import RunObserver
from graphrt.telemetry.writing import mark_cancelled, mark_failed, set_attribute

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from contextlib import AbstractContextManager
    from types import TracebackType

    from opentelemetry.trace import Span, Tracer, TracerProvider

    from graphrt.hooks import HookContext
    from graphrt.telemetry.views import ProgramView

log = logging.getLogger("graphrt.telemetry")


class Telemetry:
    """Where the spans of runs go, and what they hold; give it to `run(telemetry=)`.

    Args:
        tracer_provider: What makes the spans; when None, the provider that is the global one when a run
            starts. Without either nothing is recorded, and nothing is paid for it.
        capture_content: Record what people and models wrote: inputs, outputs, prompts, replies, arguments of
            tools.
        openinference: Mark runs, rounds and plain nodes as `CHAIN` for back ends that read OpenInference,
            such as Phoenix; what has a name in the GenAI conventions needs no mark there.

    Raises:
        ConfigError: The tracer provider is none.
    """

    def __init__(
        self,
        tracer_provider: TracerProvider | None = None,
        *,
        capture_content: bool = False,
        openinference: bool = False,
    ) -> None:
        if tracer_provider is not None and not callable(getattr(tracer_provider, "get_tracer", None)):
            raise ConfigError(
                f"tracer_provider is {tracer_provider!r}, which makes no tracers",
                hint="give a TracerProvider of opentelemetry.sdk.trace, or none to use the global one",
            )
        self.capture_content = capture_content
        self.openinference = openinference
        self._provider = tracer_provider
        self._made: tuple[TracerProvider, Tracer] | None = None

    def __repr__(self) -> str:
        where = "the global provider" if self._provider is None else type(self._provider).__name__
        return f"Telemetry({where}, capture_content={self.capture_content}, openinference={self.openinference})"

    @property
    def tracer_provider(self) -> TracerProvider | None:
        """The provider in use; None when there is none that records."""
        provider = self._provider if self._provider is not None else trace.get_tracer_provider()
        return None if isinstance(provider, ProxyTracerProvider | NoOpTracerProvider) else provider

    @property
    def tracer(self) -> Tracer | None:
        """What opens graphrt's spans; None when nothing is recorded."""
        provider = self.tracer_provider
        if provider is None:
            return None
        if self._made is None or self._made[0] is not provider:
            from graphrt import __version__

            scope = {names.CONVENTION_KEY: names.CONVENTION_VERSION}
            self._made = provider, provider.get_tracer(names.SCOPE_NAME, __version__, attributes=scope)
        tracer = self._made[1]
        return None if isinstance(tracer, NoOpTracer) else tracer

    def observer(self, program: ProgramView, run_id: str) -> RunObserver | None:
        """Make what a run tells its steps to; None when nothing is recorded."""
        tracer = self.tracer
        if tracer is None:
            return None
        return RunObserver(
            tracer, program, run_id, capture_content=self.capture_content, openinference=self.openinference
        )

    # ------------------------------------------------------------ spans around runs

    def turn(
        self,
        agent: str,
        *,
        session_id: str | None = None,
        turn_index: int | None = None,
        agent_id: str | None = None,
        user_input: object = None,
    ) -> CurrentSpan:
        """Open the span of one turn of an agent, `invoke_agent {agent}`, as a context manager.

        *user_input* is content.
        """
        attributes = {
            names.KIND: names.KIND_TURN,
            names.OPERATION: names.OPERATION_AGENT,
            names.AGENT_NAME: agent,
            names.AGENT_ID: agent_id,
            names.SESSION_ID: session_id,
            names.CONVERSATION_ID: session_id,
            names.TURN_INDEX: turn_index,
            names.INPUT: user_input,
        }
        return CurrentSpan(self, f"{names.OPERATION_AGENT} {agent}", attributes)

    def plan(self, name: str, *, plan_id: str | None = None, goal: str | None = None) -> CurrentSpan:
        """Open the span of a plan being carried out, `plan {name}`, as a context manager.

        *goal* is content.
        """
        attributes = {names.KIND: names.KIND_PLAN, names.PLAN_ID: plan_id, names.GOAL: goal}
        return CurrentSpan(self, f"plan {name}", attributes)

    def plan_step(self, name: str, *, index: int) -> CurrentSpan:
        """Open the span of a plan's step that no run makes, `plan_step {name}`, as a context manager."""
        attributes = {names.KIND: names.KIND_PLAN_STEP, names.PLAN_STEP_INDEX: index}
        return CurrentSpan(self, f"plan_step {name}", attributes)

    def hook(
        self,
        name: str,
        context: HookContext | None = None,
        *,
        event: str | None = None,
        plugin_id: str | None = None,
    ) -> AbstractContextManager[Callable[[BaseException], None]]:
        """Open the span of one call of a hook, `hook {name}`, and give the function that marks it as failed.

        It has the form that `HookExecutor(span=telemetry.hook)` takes; *event* is for hooks without context.
        """
        return hook_span(self, name, context, event=event, plugin_id=plugin_id)


class Opens(Protocol):
    """What spans are opened with, and whether they hold content: `Telemetry`, or the observer of a run."""

    @property
    def tracer(self) -> Tracer | None:
        """What opens spans; None when nothing is recorded."""
        ...

    @property
    def capture_content(self) -> bool:
        """Whether what people and models wrote is recorded."""
        ...


@contextmanager
def hook_span(
    opens: Opens,
    name: str,
    context: HookContext | None = None,
    *,
    event: str | None = None,
    plugin_id: str | None = None,
) -> Iterator[Callable[[BaseException], None]]:
    """Open the span of one call of a hook, and give the function that marks it as failed."""
    attributes: dict[str, Any] = {
        names.KIND: names.KIND_HOOK,
        names.HOOK_EVENT: event,
        names.PLUGIN_ID: plugin_id,
    }
    if context is not None:
        attributes |= {
            names.HOOK_EVENT: context.event.value,
            names.SESSION_ID: context.session_id,
            names.RUN_ID: context.run_id,
            names.TURN_INDEX: context.turn_index,
            names.PLAN_STEP_INDEX: context.plan_step_index,
        }
    with CurrentSpan(opens, f"hook {name}", attributes) as span:
        yield span.failed


class CurrentSpan:
    """A span that is the current one inside `with`, and ends with it; what leaves the block says how.

    Leaving it cannot fail: in another context, where an abandoned generator is closed, there is nothing to
    restore.
    """

    def __init__(self, telemetry: Opens, name: str, attributes: Mapping[str, Any]) -> None:
        self._telemetry = telemetry
        self._name = name
        self._attributes = attributes
        self._span: Span | None = None
        self._before: otel.Context | None = None
        self._inside: otel.Context | None = None
        self._marked = False

    def __enter__(self) -> Self:
        """Begin the span under the current one."""
        try:
            self._begin()
        except Exception:
            log.exception("cannot open span %r", self._name)
        return self

    def _begin(self) -> None:
        tracer = self._telemetry.tracer
        if tracer is None:
            return
        self._before = otel.get_current()
        self._span = tracer.start_span(self._name, self._before)
        self._inside = set_span_in_context(self._span, self._before)
        otel.attach(self._inside)
        for key, value in self._attributes.items():
            set_attribute(self._span, key, value, capture_content=self._telemetry.capture_content)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """End the span, and make the one before it current again."""
        if self._before is not None and otel.get_current() is self._inside:
            otel.attach(self._before)
        if self._span is None:
            return
        try:
            if error is not None and not self._marked:
                self.failed(error)
            self._span.end()
        except Exception:
            log.exception("cannot end span %r", self._name)

    def set(self, key: str, value: object) -> None:
        """Set an attribute; `None` is unknown and sets none, and content is set only if it is captured."""
        if self._span is not None:
            set_attribute(self._span, key, value, capture_content=self._telemetry.capture_content)

    def failed(self, error: BaseException) -> None:
        """Say that what the span stands for has failed or was cancelled, though nothing leaves its block."""
        self._marked = True
        if self._span is None:
            return
        if isinstance(error, Exception) and not isinstance(error, RunCancelledError):
            mark_failed(self._span, error)
        else:
            mark_cancelled(self._span)


def observer_for(telemetry: Telemetry | None, program: ProgramView, run_id: str) -> RunObserver | None:
    """Make the observer of a run; None when no tracer provider is configured."""
    return (telemetry or Telemetry()).observer(program, run_id)
