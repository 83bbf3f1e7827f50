"""Recorders: the events of runs, and the spans of runs, turns and hooks, to be looked at in a test."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan

    from graphrt.graph.protocols import RunEvent
    from graphrt.telemetry import Telemetry


class EventRecorder(list["RunEvent"]):
    """A list of events that fills itself: give it as `on_event=`."""

    def __call__(self, event: RunEvent) -> None:
        """Take one event down."""
        self.append(event)

    @property
    def types(self) -> list[str]:
        """Types of the events, in order."""
        return [event.type for event in self]

    def of(self, *types: str) -> list[RunEvent]:
        """Give the events of these types, in order."""
        return [event for event in self if event.type in types]

    def about(self, node: str) -> list[RunEvent]:
        """Give the events about the steps of one node, in order."""
        return [event for event in self if event.step is not None and event.step.node == node]

    @property
    def text(self) -> str:
        """The text that was streamed, put together."""
        return "".join(event.data["text"] for event in self.of("message.delta"))


class SpanRecorder:
    """A tracer provider of its own, whose spans stay in memory: give its `telemetry` to a run or a session."""

    def __init__(self, *, capture_content: bool = False) -> None:
        """Start empty; *capture_content* keeps what people and models wrote."""
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import SimpleSpanProcessor
        from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

        from graphrt.telemetry import Telemetry

        self._exporter = InMemorySpanExporter()
        self.tracer_provider = TracerProvider(shutdown_on_exit=False)
        self.tracer_provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.telemetry: Telemetry = Telemetry(self.tracer_provider, capture_content=capture_content)

    @property
    def spans(self) -> list[ReadableSpan]:
        """The spans that have ended, in the order of their starts."""
        return sorted(self._exporter.get_finished_spans(), key=lambda span: span.start_time or 0)

    def clear(self) -> None:
        """Forget what was recorded."""
        self._exporter.clear()

    def of_kind(self, kind: str) -> list[ReadableSpan]:
        """Give the spans of one `graphrt.kind`: run, turn, round, node, inference, attempt, tool, hook, plan."""
        return [span for span in self.spans if (span.attributes or {}).get("graphrt.kind") == kind]

    def children(self, span: ReadableSpan) -> list[ReadableSpan]:
        """Give the spans directly under *span*."""
        return [each for each in self.spans if each.parent is not None and each.parent.span_id == _id_of(span)]

    def roots(self) -> list[ReadableSpan]:
        """Give the spans that have no parent among those recorded."""
        known = {_id_of(span) for span in self.spans}
        return [span for span in self.spans if span.parent is None or span.parent.span_id not in known]

    def tree(self) -> list[Any]:
        """Give names as nested lists, `[name, [children]]` for each root: easy to compare, and to read."""
        return [self._branch(root) for root in self.roots()]

    def _branch(self, span: ReadableSpan) -> list[Any]:
        return [span.name, [self._branch(child) for child in self.children(span)]]


def _id_of(span: ReadableSpan) -> int:
    assert span.context is not None
    found: int = span.context.span_id
    return found
