"""`graphrt run`."""

from __future__ import annotations

import sys
import traceback
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import anyio
from pydantic_core import to_json

from graphrt.cli import UsageError, print_error
from graphrt.cli.asking import TerminalAsker
from graphrt.cli.driving import Driven, drive, how_it_ended
from graphrt.cli.ledger import given_place, ledger_words
from graphrt.cli.target import load_graph, read_input
from graphrt.cli.waiting import print_result, tell_waiting

if TYPE_CHECKING:
    import argparse

    from graphrt.graph import RunEvent


def run(options: argparse.Namespace) -> int:
    """Run a workflow, and print its output.

    Raises:
        GraphrtError: The workflow, the input or a file is wrong; nothing was run.
    """
    if options.trace == "-":
        raise UsageError(
            "--trace cannot write to standard output, which has the workflow's output", hint="name a file for it"
        )
    graph = load_graph(options.target)
    value = read_input(options.input, graph.program.decl.input)
    with ExitStack() as stack:
        telemetry = _telemetry(options.trace, stack)
        on_event = _print_event if options.verbose else _pass_over

        shared: dict[str, Any] = {"on_event": on_event, "timeout": options.timeout, "telemetry": telemetry}
        place = given_place(options)

        async def main() -> Driven:
            if place is None:
                return await drive(graph, value, on_ask=TerminalAsker(), run_id=options.run_id, **shared)
            from graphrt.cli.stored import new_run_id, run_stored

            run_id = options.run_id or new_run_id()
            return await run_stored(graph, value, place, run_id, options.target, **shared)

        driven = anyio.run(main)
    drawn = options.svg == "-"
    if drawn:
        print(graph.to_svg(driven.result))
    elif options.svg:
        _write(options.svg, graph.to_svg(driven.result))
    # Where the drawing is on standard output it is there alone, so that it can be piped into a file.
    out = sys.stderr if drawn else sys.stdout
    return _conclude(driven, out, ledger_words(options), traceback_wanted=options.traceback, stored=place is not None)


def _conclude(driven: Driven, out: TextIO, ledger: str, *, traceback_wanted: bool, stored: bool) -> int:
    result = driven.result
    command = f"graphrt runs resume{ledger} {result.run_id}" if stored else ""
    if result.status == "succeeded":
        print_result(result.output, out)
    elif result.status == "waiting":
        tell_waiting(result.run_id, result.questions, ledger, result.wake_at)
    elif driven.signal is not None:
        print_error(f"cancelled; to go on: {command}" if stored else "cancelled")
    elif result.error is not None:
        if traceback_wanted:
            traceback.print_exception(result.error)
        notes = getattr(result.error, "__notes__", [])
        ended = how_it_ended(result)
        where = f" ({notes[0]})" if notes and notes[0] not in ended else ""
        print_error(f"{ended}{where}{f'; to try again: {command}' if stored else ''}")
    return driven.exit_code


def _print_event(event: RunEvent) -> None:
    step = "" if event.step is None else f" {'/'.join(filter(None, [event.step.scope, event.step.node]))}"
    number = "" if event.type == "message.delta" else str(event.sequence)
    data = " ".join(str(to_json(event.data, fallback=repr).decode()).split()) if event.data else ""
    print(f"{number:>4} {event.type}{step} {data}".rstrip(), file=sys.stderr)


def _pass_over(event: RunEvent) -> None:
    """Print nothing of an event."""


def _telemetry(path: str | None, stack: ExitStack) -> Any:
    """Trace into *path*, until *stack* closes; None where no trace is wanted."""
    if path is None:
        return None
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor

    from graphrt.telemetry import JsonLinesSpanExporter, Telemetry

    try:
        exporter = JsonLinesSpanExporter(path)
    except OSError as error:
        raise _cannot_write(path, error) from error
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    stack.callback(provider.shutdown)
    return Telemetry(provider)


def _write(path: str, text: str) -> None:
    try:
        Path(path).write_text(text, encoding="utf-8", newline="\n")
    except OSError as error:
        raise _cannot_write(path, error) from error


def _cannot_write(path: str, error: OSError) -> UsageError:
    return UsageError(f"cannot write to {path!r}: {error.strerror or error}")
