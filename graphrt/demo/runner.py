"""One run of the demo: progress on the terminal, and three files that it leaves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor

from graphrt.cli.driving import drive
from graphrt.demo.output import GRAPH, REPORT, TRACE, OutputFolder
from graphrt.demo.progress import view_for
from graphrt.demo.workflow import build_workflow
from graphrt.telemetry import JsonLinesSpanExporter, Telemetry

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Console

    from graphrt.cli.driving import Driven
    from graphrt.demo.documents import Documents
    from graphrt.demo.sources import ChosenModel

_CONCURRENCY: Final = 4


@dataclass(frozen=True, slots=True)
class DemoRun:
    """How a run of the demo ended."""

    driven: Driven
    written: dict[str, Path]
    """What was written: "report" (only of a success), "graph" and "trace"."""


async def run_demo(
    goal: str,
    model: ChosenModel,
    documents: Documents,
    out: OutputFolder,
    console: Console,
    *,
    questions: int = 4,
    timeout: float | None = None,
) -> DemoRun:
    """Run the workflow, show it on *console*, and write its report, graph and trace to *out*.

    A failed or cancelled run is not raised; its graph and its trace are written as well.

    Raises:
        ConfigError: *questions* is out of range.
        OutputError: A file cannot be written.
    """
    graph = build_workflow(
        model.provider,
        documents,
        most_steps=questions,
        max_concurrency=_CONCURRENCY,
        model=model.name,
        temperature=model.temperature,
        max_tokens=model.max_tokens,
    ).compile()
    out.clear(REPORT)
    trace = out.clear(TRACE)
    tracing = _tracing(trace)
    try:
        with view_for(console) as view:
            async with model.provider:
                options: dict[str, Any] = {"telemetry": Telemetry(tracing), "timeout": timeout}
                driven = await drive(graph, goal, on_event=view.show, **options)
    finally:
        tracing.shutdown()
    written = {"graph": out.write(GRAPH, graph.to_svg(driven.result)), "trace": trace}
    if driven.result.status == "succeeded":
        written["report"] = out.write(REPORT, driven.result.output)
    return DemoRun(driven, written)


def _tracing(path: Path) -> TracerProvider:
    """Set up tracing of this run alone, into *path*; the program's own tracing is left as it is."""
    provider = TracerProvider(resource=Resource({"service.name": "graphrt-demo"}), shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(JsonLinesSpanExporter(path)))
    return provider
