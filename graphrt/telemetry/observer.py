"""The spans of one run: the engine says what happens, and each run, round, step and attempt becomes a span.

A span is never held open by a block of code. A step runs in a context of its own, which is thrown away with
it, so its span is put there and never taken out: a run that is left early has nothing to detach.
"""

from __future__ import annotations

import functools
import logging
from time import time_ns
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec

from opentelemetry import context as otel
from opentelemetry.trace import StatusCode, set_span_in_context

from graphrt.telemetry import conventions as names
from graphrt.telemetry.naming import MODEL_KINDS, describe, describe_run, is_nameless
from graphrt.telemetry.writing import (
    attribute_value,
    mark_cancelled,
    mark_failed,
    mark_timed_out,
    record_exception,
    set_attribute,
    set_content,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager
    from contextvars import Context

    from opentelemetry.trace import Span, Tracer

    from graphrt.hooks import HookContext
    from graphrt.telemetry.views import FrameView, OutcomeView, ProgramView, ScopeView, StepView

log = logging.getLogger("graphrt.telemetry")

_Rest = ParamSpec("_Rest")


def _guarded(
    method: Callable[Concatenate[RunObserver, _Rest], None],
) -> Callable[Concatenate[RunObserver, _Rest], None]:
    """Keep out of the run what a span processor, a sampler or a value's text raises; the first is logged."""

    @functools.wraps(method)
    def call(self: RunObserver, /, *args: _Rest.args, **kwargs: _Rest.kwargs) -> None:
        try:
            method(self, *args, **kwargs)
        except Exception as error:  # noqa: BLE001 - tracing must not stop a run
            self.complain(method.__name__, error)

    return call


class _OpenStep:
    """The span of a step that has not ended, and what its attempts need."""

    __slots__ = ("attempt", "began", "context", "failed", "recorded", "span")

    def __init__(self, span: Span, context: otel.Context) -> None:
        self.span = span
        self.context = context
        """With the span as the current one."""
        self.attempt: Span | None = None
        self.began = 0
        """When the first attempt began, in nanoseconds since the epoch."""
        self.failed: tuple[int, BaseException, bool] | None = None
        """How the first attempt ended: when, with what, and whether it was out of time."""
        self.recorded: BaseException | None = None
        """The error last recorded on the span."""


class RunObserver:
    """Makes the spans of one run. The engine calls it on its event loop; only `annotate` from any thread."""

    __slots__ = (
        "_around",
        "_chain",
        "_complained",
        "_inside",
        "_program",
        "_rounds",
        "_run",
        "_run_id",
        "_steps",
        "_tracer",
        "capture_content",
    )

    def __init__(
        self, tracer: Tracer, program: ProgramView, run_id: str, *, capture_content: bool, openinference: bool
    ) -> None:
        self._tracer = tracer
        self._program = program
        self._run_id = run_id
        self.capture_content = capture_content
        """Whether what people and models wrote is recorded: makers of content need not make it otherwise."""
        self._chain = {names.OPENINFERENCE_KIND: names.OPENINFERENCE_CHAIN} if openinference else {}
        self._around = otel.Context()
        self._inside = self._around
        self._run: Span | None = None
        self._steps: dict[StepView, _OpenStep] = {}
        self._rounds: dict[FrameView, tuple[Span, otel.Context]] = {}
        self._complained = False

    def complain(self, what: str, error: Exception) -> None:
        """Log the first failure of tracing in this run; the run goes on."""
        if not self._complained:
            self._complained = True
            text = "tracing of run %r failed in %s, and spans may be missing"
            log.error(text, self._run_id, what, exc_info=error)

    # ------------------------------------------------------------ the run

    @_guarded
    def run_started(self, value: Any, base: Context) -> None:
        """Begin the run's span under the caller's current one, and make it current in *base*."""
        self._around = base.run(otel.get_current)
        self._inside = self._around
        name, attributes, content = describe_run(self._program)
        attributes = {**attributes, names.RUN_ID: self._run_id, **self._chain}
        self._run = span = self._tracer.start_span(name, self._around, attributes=attributes)
        self._inside = set_span_in_context(span, self._around)
        base.run(otel.attach, self._inside)
        if self.capture_content and not content:
            self._content(span, names.INPUT, names.OPENINFERENCE_INPUT, value)
        elif self.capture_content:
            for key, said in content.items():
                set_content(span, key, said)

    @_guarded
    def run_ended(self, outcome: OutcomeView | None) -> None:
        """End the run's span, and every span that is still open: of steps that wait in a run left waiting."""
        status = "" if outcome is None else str(outcome.status.value)
        try:
            for step in reversed(list(self._steps)):
                self._end_open(step, status)
            for frame in reversed(list(self._rounds)):
                self.round_completed(frame)
            if self._run is not None:
                self._mark_run(self._run, outcome, status)
        finally:
            if self._run is not None:
                self._run.end()

    def _mark_run(self, span: Span, outcome: OutcomeView | None, status: str) -> None:
        if outcome is None:  # the engine itself was interrupted
            mark_cancelled(span)
            return
        span.set_attribute(names.RUN_STATUS, status)
        if status == "succeeded":
            if self.capture_content:
                self._content(span, names.OUTPUT, names.OPENINFERENCE_OUTPUT, outcome.output)
        elif status == "cancelled":
            mark_cancelled(span)
        elif status == "timed_out":
            mark_timed_out(span, outcome.error)
        elif outcome.error is not None:
            mark_failed(span, outcome.error)

    # ------------------------------------------------------------ rounds

    @_guarded
    def round_started(self, frame: FrameView) -> None:
        """Begin the span of a round."""
        self._start_round(frame)

    def _start_round(self, frame: FrameView) -> otel.Context:
        around = self._context_of(frame.parent or frame.scope)
        header = frame.cycle.header.name if frame.cycle is not None else ""
        span = self._tracer.start_span(
            f"round {header}",
            around,
            attributes={
                names.KIND: names.KIND_ROUND,
                names.NODE_ID: header,
                names.SCOPE: frame.scope.path,
                names.ROUND: frame.round[-1],
                **self._chain,
            },
        )
        inside = set_span_in_context(span, around)
        self._rounds[frame] = span, inside
        return inside

    @_guarded
    def round_completed(self, frame: FrameView) -> None:
        """End the span of a round; one that was cut short says why."""
        span, _ = self._rounds.pop(frame, (None, None))
        if span is None:
            return
        scope = frame.scope
        try:
            if not scope.dead:
                return
            if scope.cause == "timed_out":
                mark_timed_out(span, None)
            elif scope.cause == "cancelled" or scope.error is None:
                mark_cancelled(span)
            else:
                mark_failed(span, scope.error, record=False)
        finally:
            span.end()

    def _context_of(self, frame: FrameView) -> otel.Context:
        """Give the context in which what happens directly in *frame* belongs."""
        if frame.cycle is not None:
            found = self._rounds.get(frame)
            return found[1] if found is not None else self._start_round(frame)
        scope = frame.scope
        inside: otel.Context | None = scope.span
        if inside is None:
            inside = scope.span = self._open_scope(scope)
        return inside

    def _open_scope(self, scope: ScopeView) -> otel.Context:
        if scope.map_run is not None:
            return self._context_of(scope.map_run.frame)
        return self._inside if scope.holder is None else self._open(scope.holder).context

    # ------------------------------------------------------------ steps

    @_guarded
    def step_started(self, step: StepView) -> None:
        """Begin the span of a step."""
        self._start_step(step)

    def _open(self, step: StepView) -> _OpenStep:
        """Give a step's open span. A step of a run that was resumed may have none yet."""
        return self._steps.get(step) or self._start_step(step)

    def _start_step(self, step: StepView) -> _OpenStep:
        frame = step.frame
        around = self._context_of(frame)
        name, kind, attributes = describe(step.node)
        attributes[names.NODE_ID] = step.node.name
        attributes[names.SCOPE] = frame.scope.path
        attributes[names.ROUND] = step.round
        if self._chain and names.OPERATION not in attributes:
            attributes.update(self._chain)
        span = self._tracer.start_span(name, around, kind, attributes)
        opened = self._steps[step] = _OpenStep(span, set_span_in_context(span, around))
        if self.capture_content and step.arrivals:
            given = {edge.name: value for edge, _, value in step.arrivals}
            value = next(iter(given.values())) if len(given) == 1 else given
            self._content(span, names.INPUT, names.OPENINFERENCE_INPUT, value)
        return opened

    @_guarded
    def step_waiting(self, step: StepView, question: Any) -> None:
        """Say that a step waits for a person; its span goes on until the answer."""
        span = self._open(step).span
        attributes = {names.QUESTION_ID: step.key}
        span.add_event(names.EVENT_WAITING, attributes)
        if self.capture_content:
            set_content(span, names.QUESTION, question)

    @_guarded
    def step_ended(self, step: StepView) -> None:
        """End the span of a step, which may never have started; it says how the step ended."""
        opened = self._steps.pop(step, None)
        if opened is None:
            return
        state, span = step.state, opened.span
        try:
            if state == "succeeded":
                if self.capture_content:
                    self._content(span, names.OUTPUT, names.OPENINFERENCE_OUTPUT, step.value)
            elif state == "cancelled":
                mark_cancelled(span)
            elif state == "timed_out":
                mark_timed_out(span, None if step.error is opened.recorded else step.error)
            elif step.error is not None:
                mark_failed(span, step.error, record=step.error is not opened.recorded)
        finally:
            span.end()

    @_guarded
    def _end_open(self, step: StepView, status: str) -> None:
        opened = self._steps.pop(step)
        try:
            if status != "waiting":
                mark_cancelled(opened.span)
        finally:
            if opened.attempt is not None:
                opened.attempt.end()
            opened.span.end()

    @_guarded
    def enter(self, step: StepView, context: Context) -> None:
        """Make a step's span the current one in *context*, in which its function is about to run."""
        context.run(otel.attach, self._open(step).context)

    def annotate(self, step: StepView, key: str, value: Any) -> None:
        """Set an attribute of a step's span; from any thread. One that has ended is left alone.

        `None` is unknown and sets nothing; content is set only if it is captured. `gen_ai.request.model` (or
        `gen_ai.response.model`, if nothing was asked for) and `gen_ai.tool.name` name the span too, and
        `error.type` gives it the status of an error; an exception there is recorded.
        """
        opened = self._steps.get(step)
        if opened is not None:
            self._annotate(opened.span, step.node.kind, key, value)

    @_guarded
    def _annotate(self, span: Span, kind: str, key: str, value: Any) -> None:
        if key == names.ERROR_TYPE and isinstance(value, BaseException):
            mark_failed(span, value)
            return
        set_attribute(span, key, value, capture_content=self.capture_content)
        if value is None:
            return
        if kind in MODEL_KINDS and (key == names.REQUEST_MODEL or (key == names.RESPONSE_MODEL and is_nameless(span))):
            span.update_name(f"{names.OPERATION_CHAT} {attribute_value(value)}")
        elif key == names.TOOL_NAME and kind == "tool":
            span.update_name(f"{names.OPERATION_TOOL} {attribute_value(value)}")
        elif key == names.ERROR_TYPE:
            span.set_status(StatusCode.ERROR)

    def _content(self, span: Span, key: str, other_key: str, value: Any) -> None:
        set_content(span, key, value)
        if self._chain:
            set_content(span, other_key, value)

    def hook_span(
        self, name: str, context: HookContext | None = None, *, event: str | None = None, plugin_id: str | None = None
    ) -> AbstractContextManager[Callable[[BaseException], None]]:
        """Open the span of one call of a hook, under the current one; as `Telemetry.hook`, for this run's spans."""
        from graphrt.telemetry.spans import hook_span

        return hook_span(self, name, context, event=event, plugin_id=plugin_id)

    @property
    def tracer(self) -> Tracer:
        """What opens the run's spans."""
        return self._tracer

    # ------------------------------------------------------------ attempts

    @_guarded
    def attempt_started(self, step: StepView, number: int, context: Context) -> None:
        """Say that a try begins, which will run in *context*.

        The first one has the step's own span. From the second on each has a span, and the first is given one
        then, with the times at which it began and ended.
        """
        opened = self._open(step)
        if number == 1:
            opened.began = time_ns()
            context.run(otel.attach, opened.context)
            return
        if opened.failed is not None:
            ended, error, timed_out = opened.failed
            opened.failed = None
            first = self._start_attempt(opened, step, 1, opened.began)
            _end_attempt(first, error, timed_out=timed_out, at=ended)
        opened.attempt = span = self._start_attempt(opened, step, number, None)
        context.run(otel.attach, set_span_in_context(span, opened.context))

    def _start_attempt(self, opened: _OpenStep, step: StepView, number: int, began: int | None) -> Span:
        name = step.node.name
        return self._tracer.start_span(
            f"attempt {name}",
            opened.context,
            attributes={names.KIND: names.KIND_ATTEMPT, names.NODE_ID: name, names.ATTEMPT: number},
            start_time=began,
        )

    @_guarded
    def attempt_ended(self, step: StepView, error: BaseException | None, timed_out: bool) -> None:
        """Say how a try ended: with a value when *error* is None."""
        opened = self._steps.get(step)
        if opened is None:
            return
        attempt, opened.attempt = opened.attempt, None
        if attempt is not None:
            _end_attempt(attempt, error, timed_out=timed_out)
        elif error is not None:
            opened.failed = time_ns(), error, timed_out

    @_guarded
    def fallback_started(self, step: StepView, error: BaseException, context: Context | None) -> None:
        """Say that a fallback is tried after *error*, in *context*; a constant needs no context."""
        opened = self._open(step)
        if opened.recorded is not error:
            record_exception(opened.span, error)
            opened.recorded = error
        opened.span.add_event(names.EVENT_FALLBACK)
        if context is not None:
            context.run(otel.attach, opened.context)


def _end_attempt(span: Span, error: BaseException | None, *, timed_out: bool, at: int | None = None) -> None:
    try:
        if timed_out:
            mark_timed_out(span, error, at=at)
        elif isinstance(error, Exception):
            mark_failed(span, error, at=at)
        elif error is not None:
            mark_cancelled(span)
    finally:
        span.end(at)
