"""Another name of `graphrt.telemetry.files`, which is where the exporter is: import it from `graphrt.telemetry`."""

from __future__ import annotations

from graphrt.telemetry.files import JsonLinesSpanExporter, span_as_dict

__all__ = ["JsonLinesSpanExporter", "span_as_dict"]
