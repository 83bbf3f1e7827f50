"""Spans of a test, collected in memory, and ways to look at them."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from opentelemetry.context import Context
from opentelemetry.sdk.trace import ReadableSpan, Span, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from graphrt.graph import NodeKind
from graphrt.graph.signature import NodeSignature, Param
from graphrt.telemetry import Telemetry


class _Counting(SimpleSpanProcessor):
    """Counts the spans that were started, so that one that never ends is noticed."""

    def __init__(self, exporter: InMemorySpanExporter) -> None:
        super().__init__(exporter)
        self.started = 0

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        self.started += 1


class Collected:
    """A tracer provider of its own, and what it has collected."""

    def __init__(self, **options: Any) -> None:
        self._exporter = InMemorySpanExporter()
        self._counting = _Counting(self._exporter)
        self.provider = TracerProvider(shutdown_on_exit=False)
        self.provider.add_span_processor(self._counting)
        self.telemetry = Telemetry(self.provider, **options)

    @property
    def spans(self) -> list[ReadableSpan]:
        """Spans that have ended, in the order of their ends."""
        return list(self._exporter.get_finished_spans())

    def clear(self) -> None:
        """Forget what was collected."""
        self._exporter.clear()
        self._counting.started = 0

    def named(self, name: str) -> list[ReadableSpan]:
        """Spans of one name, in the order of their starts."""
        return sorted((s for s in self.spans if s.name == name), key=lambda s: s.start_time or 0)

    def one(self, name: str) -> ReadableSpan:
        """The only span of one name."""
        (span,) = self.named(name)
        return span

    def of_kind(self, kind: str) -> list[ReadableSpan]:
        """Spans of one `graphrt.kind`."""
        return [span for span in self.spans if attributes(span).get("graphrt.kind") == kind]

    def parent(self, span: ReadableSpan) -> ReadableSpan | None:
        """The collected span that is the parent of *span*."""
        if span.parent is None:
            return None
        (found,) = [s for s in self.spans if identity(s) == span.parent.span_id]
        return found

    def children(self, span: ReadableSpan) -> list[str]:
        """Names of the spans directly under *span*, in the order of their starts."""
        under = [s for s in self.spans if s.parent is not None and s.parent.span_id == identity(span)]
        return [s.name for s in sorted(under, key=lambda s: s.start_time or 0)]

    def path(self, span: ReadableSpan) -> str:
        """Names from the root down to *span*, without the operation of the root."""
        parent = self.parent(span)
        return span.name if parent is None else f"{self.path(parent)} > {span.name}"

    def paths(self) -> list[str]:
        """The path of every span, sorted."""
        return sorted(self.path(span) for span in self.spans)

    def check_whole(self) -> None:
        """Assert that every span has ended, within its parent, and that all are one tree under one root."""
        spans = self.spans
        assert self._counting.started == len(spans)
        assert [s.name for s in spans if s.parent is None] == [spans[-1].name]
        assert len({s.context.trace_id for s in spans if s.context is not None}) == 1
        for span in spans:
            parent = self.parent(span)
            if parent is not None:
                assert (parent.start_time or 0) <= (span.start_time or 0), self.path(span)
                assert (parent.end_time or 0) >= (span.end_time or 0), self.path(span)


def attributes(span: ReadableSpan) -> dict[str, Any]:
    """The attributes of *span*."""
    return dict(span.attributes or {})


def identity(span: ReadableSpan) -> int:
    """The span's id."""
    assert span.context is not None
    return int(span.context.span_id)


def status(span: ReadableSpan) -> tuple[str, str | None]:
    """The span's status and its description."""
    return span.status.status_code.name, span.status.description


def exceptions(span: ReadableSpan) -> list[str]:
    """Messages of the exceptions recorded on *span*."""
    return [str(dict(e.attributes or {})["exception.message"]) for e in span.events if e.name == "exception"]


def went_well(span: ReadableSpan) -> bool:
    """Whether *span* says nothing of an error."""
    return span.status.status_code is StatusCode.UNSET and not exceptions(span) and "error.type" not in attributes(span)


@dataclass(frozen=True)
class Doing:
    """A node object of any kind that calls a function with its one input and the context."""

    name: str
    kind: NodeKind
    does: Callable[[Any, Any], Awaitable[Any]]

    @property
    def signature(self) -> NodeSignature:
        return NodeSignature((Param("given"),), Any)

    async def run(self, inputs: Mapping[str, Any], ctx: Any) -> Any:
        return await self.does(inputs["given"], ctx)


class _Records(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())


@contextmanager
def logged() -> Iterator[list[str]]:
    """Give what is logged inside the block, by anyone."""
    handler = _Records()
    logging.getLogger().addHandler(handler)
    try:
        yield handler.texts
    finally:
        logging.getLogger().removeHandler(handler)
