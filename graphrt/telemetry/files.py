"""Spans into a file that people and tools can read: one JSON object a line, written as each span ends."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.trace import format_span_id, format_trace_id

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.trace import SpanContext

log = logging.getLogger(__name__)

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class JsonLinesSpanExporter(SpanExporter):
    """Write each span to a file as one line of JSON.

    A line has ``name``, ``kind``, ``trace_id``, ``span_id``, ``parent_id`` (null for a root), ``start`` and
    ``end`` (ISO 8601 in UTC, to the microsecond), ``attributes``, ``status`` (``code`` and ``description``),
    ``events`` and ``links``. Spans stand in the order in which they ended, so a parent comes after its
    children. Use it with ``SimpleSpanProcessor`` for a file that is complete at any time.
    """

    def __init__(self, path: str | Path) -> None:
        """Open *path* anew; what was in it is gone.

        Raises:
            OSError: The file cannot be written.
        """
        self.path = Path(path)
        # A lone surrogate becomes \udc80, which is how JSON writes it.
        self._file = self.path.open("w", encoding="utf-8", errors="backslashreplace", newline="\n")
        self._lock = threading.Lock()

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Write *spans*; a failure is logged and told by the result: tracing must not stop a program."""
        lines = "".join(f"{json.dumps(span_as_dict(span), ensure_ascii=False)}\n" for span in spans)
        try:
            with self._lock:
                self._file.write(lines)
                self._file.flush()
        except (OSError, ValueError) as error:  # a ValueError: the file is closed
            log.warning("cannot write %d spans to %s: %s", len(spans), self.path, error)
            return SpanExportResult.FAILURE
        return SpanExportResult.SUCCESS

    def shutdown(self) -> None:
        """Close the file; may be called again."""
        with self._lock:
            self._file.close()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Say yes: what was exported is written."""
        return True


def span_as_dict(span: ReadableSpan) -> dict[str, Any]:
    """Give a span as JSON can hold it; see ``JsonLinesSpanExporter`` for the keys."""
    context = span.get_span_context()
    return {
        "name": span.name,
        "kind": span.kind.name.lower(),
        **_ids(context),
        "parent_id": None if span.parent is None else format_span_id(span.parent.span_id),
        "start": _time(span.start_time),
        "end": _time(span.end_time),
        "attributes": _plain(span.attributes or {}),
        "status": {"code": span.status.status_code.name.lower(), "description": span.status.description},
        "events": [
            {"name": each.name, "time": _time(each.timestamp), "attributes": _plain(each.attributes or {})}
            for each in span.events
        ],
        "links": [{**_ids(each.context), "attributes": _plain(each.attributes or {})} for each in span.links],
    }


def _ids(context: SpanContext | None) -> dict[str, str | None]:
    if context is None:
        return {"trace_id": None, "span_id": None}
    return {"trace_id": format_trace_id(context.trace_id), "span_id": format_span_id(context.span_id)}


def _time(nanoseconds: int | None) -> str | None:
    if nanoseconds is None:
        return None
    moment = _EPOCH + timedelta(microseconds=nanoseconds // 1000)
    return moment.isoformat(timespec="microseconds").replace("+00:00", "Z")


def _plain(value: Any) -> Any:
    """Turn attribute values, at any depth, into what JSON knows; the rest into text."""
    if value is None or isinstance(value, (str, bool, int, float)):
        return value
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, (bytes, bytearray)):
        return [_plain(item) for item in value]
    return str(value)
