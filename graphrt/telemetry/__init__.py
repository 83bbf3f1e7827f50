"""Tracing: every run, round, step, attempt, turn and hook is an OpenTelemetry span.

Spans go to the program's own tracer provider, or to one that `configure_tracing` sets up, or to the one given
with `run(telemetry=Telemetry(provider))`. Names and attributes are in `graphrt.telemetry.conventions`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

__all__ = [
    "CONVENTION_VERSION",
    "JsonLinesSpanExporter",
    "RunObserver",
    "Telemetry",
    "configure_tracing",
    "observer_for",
]

if TYPE_CHECKING:
    from graphrt.telemetry.conventions import CONVENTION_VERSION
    from graphrt.telemetry.export import configure_tracing
    from graphrt.telemetry.files import JsonLinesSpanExporter
    from graphrt.telemetry.observer import RunObserver
    from graphrt.telemetry.spans import Telemetry, observer_for

if not TYPE_CHECKING:
    from graphrt._lazy import lazy_names

    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "graphrt.telemetry.conventions": ("CONVENTION_VERSION",),
            "graphrt.telemetry.export": ("configure_tracing",),
            "graphrt.telemetry.files": ("JsonLinesSpanExporter",),
            "graphrt.telemetry.observer": ("RunObserver",),
            "graphrt.telemetry.spans": ("Telemetry", "observer_for"),
        },
    )
