"""`graphrt demo`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio
from rich.console import Console

from graphrt.cli import print_error
from graphrt.cli.driving import how_it_ended
from graphrt.demo.output import DEFAULT_OUT, OutputFolder
from graphrt.demo.prompts import DEFAULT_GOAL
from graphrt.demo.runner import DemoRun, run_demo
from graphrt.demo.sources import ChosenModel, choose_documents, choose_model

if TYPE_CHECKING:
    import argparse

    from graphrt.demo.documents import Documents


def demo(options: argparse.Namespace) -> int:
    """Run the demo, and say where what it made is.

    Raises:
        GraphrtError: A folder, the model or a number is wrong; nothing was run.
    """
    console = Console(soft_wrap=True)
    model = choose_model(options.model, offline=options.offline)
    with choose_documents(options.folder) as documents:
        _introduce(console, model, documents)
        out = OutputFolder(options.out or DEFAULT_OUT)

        async def run() -> DemoRun:
            return await run_demo(
                options.goal or DEFAULT_GOAL,
                model,
                documents,
                out,
                console,
                questions=options.questions,
                timeout=options.timeout,
            )

        ended = anyio.run(run)
    return _conclude(console, ended)


def _introduce(console: Console, model: ChosenModel, documents: Documents) -> None:
    what = "an offline stand-in, which is no language model and works by simple rules" if model.is_stand_in else ""
    console.print(f"model: {what or model.name}", markup=False, highlight=False)
    console.print(f"documents: {documents.root}", markup=False, highlight=False)


def _conclude(console: Console, ended: DemoRun) -> int:
    driven = ended.driven
    for name in ("report", "graph", "trace"):
        if name in ended.written:
            console.print(f"{name}: {ended.written[name]}", markup=False, highlight=False)
    if driven.result.status == "succeeded":
        return driven.exit_code
    if driven.signal is not None:
        print_error("cancelled; nothing of the run is left running")
    else:
        print_error(how_it_ended(driven.result))
    return driven.exit_code
