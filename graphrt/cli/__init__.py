"""The command line: `graphrt demo`, `run`, `show`, `runs` and `worker`."""

from __future__ import annotations

import argparse
import os
import sys
from typing import TYPE_CHECKING, Final

from graphrt import __version__
from graphrt.cli.runs_parser import LEDGER_VARIABLE, add_ledger, add_runs, add_worker, seconds
from graphrt.errors import GraphrtError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

SUCCEEDED: Final = 0
FAILED: Final = 1
"""The run failed."""
NOT_STARTED: Final = 2
"""Nothing was run: an argument is wrong, or what was named is not there."""
WAITING: Final = 3
"""The run is stored, and waits for a person."""
INTERRUPTED: Final = 130
"""Cancelled by Ctrl-C."""

MOST_QUESTIONS: Final = 8
"""What the demo's plan may have; said here again, since a wrong call is to load nothing heavy."""


class UsageError(GraphrtError):
    """What was asked for on the command line cannot be done; nothing has been run."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command, and give its exit code.

    0; 1 for a failed run; 2 for a wrong call; 3 for a stored run that waits for a person; 130 for Ctrl-C.
    """
    try:
        options = _parser().parse_args(argv)
        command: Callable[[argparse.Namespace], int] = options.command
        return command(options)
    except SystemExit as end:  # argparse: 0 after --help, 2 after a mistake
        return end.code if isinstance(end.code, int) else NOT_STARTED
    except KeyboardInterrupt:
        print_error("interrupted")
        return INTERRUPTED
    except BrokenPipeError:
        # Whoever read the output has gone. What is still buffered must not raise again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except GraphrtError as error:
        print_error(one_line(error))
        return NOT_STARTED


def print_error(text: str) -> None:
    """Print what went wrong to where errors go, without what could steer a terminal."""
    shown = "".join(each if each.isprintable() else " " for each in text)
    print(f"graphrt: {shown}", file=sys.stderr)


def one_line(error: BaseException) -> str:
    """Put an error's message and its hint into one line."""
    if isinstance(error, GraphrtError):
        text = error.message if error.hint is None else f"{error.message} ({error.hint})"
    else:
        text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return " ".join(text.split())


def counted(number: int, thing: str) -> str:
    """Say how many there are of a *thing*, whose plural ends in s."""
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="graphrt",
        description="Run and look at workflows that are written as graphs.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"graphrt {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    _add_demo(commands)
    _add_run(commands)
    _add_show(commands)
    add_runs(commands)
    add_worker(commands)
    return parser


def _add_demo(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    demo = commands.add_parser(
        "demo",
        help="research a folder of documents and write a report; needs no key and no network",
        description="Plan questions about a folder of documents, research them side by side, and write a "
        "report. Asks the model that OPENAI_BASE_URL, OPENAI_API_KEY or --model name; without them, an "
        "offline stand-in that works by simple rules.",
        allow_abbrev=False,
    )
    demo.add_argument("folder", nargs="?", help="what to read (default: graphrt's own documents)")
    demo.add_argument("--goal", help="what the report is to tell")
    demo.add_argument("--out", default=None, metavar="DIR", help="where to write (default: ./graphrt-demo)")
    demo.add_argument("--model", help="the server's name of the model to ask (default: gpt-4o-mini)")
    demo.add_argument("--offline", action="store_true", help="use the stand-in, whatever the environment says")
    demo.add_argument(
        "--questions",
        type=_questions,
        default=4,
        metavar="N",
        help=f"questions at most, 1 to {MOST_QUESTIONS} (default: 4)",
    )
    demo.add_argument("--timeout", type=seconds, metavar="SECONDS", help="give up after so long")
    demo.set_defaults(command=_demo)


def _add_run(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    run = commands.add_parser(
        "run",
        help="run a workflow and print its output",
        description="Run a workflow and print its output: a text as it is, anything else as JSON.",
        allow_abbrev=False,
    )
    run.add_argument("target", metavar="module:workflow", help="where the workflow is, such as report:report")
    run.add_argument("--input", metavar="JSON", help="the input; what is not JSON is a text if the workflow takes one")
    run.add_argument("--timeout", type=seconds, metavar="SECONDS", help="give up after so long")
    run.add_argument(
        "--svg",
        metavar="FILE",
        help="draw the graph with the run's states; - for standard output, and the output to standard error",
    )
    run.add_argument("--trace", metavar="FILE", help="write the run's spans, a JSON object a line")
    add_ledger(
        run,
        f"store the run as it goes on: a file, or postgresql://... (default: {LEDGER_VARIABLE}; without both, nowhere)",
    )
    run.add_argument("--run-id", metavar="ID", help="its id; a stored run of this id is not run again")
    run.add_argument("--verbose", action="store_true", help="print what happens to standard error")
    run.add_argument("--traceback", action="store_true", help="print where a failure came from")
    run.set_defaults(command=_run)


def _add_show(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    show = commands.add_parser(
        "show",
        help="check a workflow and draw it",
        description="Check a workflow and draw it.",
        allow_abbrev=False,
    )
    show.add_argument("target", metavar="module:workflow", help="where the workflow is, such as report:report")
    form = show.add_mutually_exclusive_group()
    form.add_argument("--svg", metavar="FILE", help="draw it into a file; - for standard output")
    form.add_argument("--mermaid", action="store_true", help="print it as a Mermaid flowchart")
    show.set_defaults(command=_show)


def _questions(text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        number = 0
    if not 1 <= number <= MOST_QUESTIONS:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 to {MOST_QUESTIONS}")
    return number


# Each command is a module of its own, so that `--help` loads none of what they need.


def _demo(options: argparse.Namespace) -> int:
    from graphrt.cli.demo import demo

    return demo(options)


def _run(options: argparse.Namespace) -> int:
    from graphrt.cli.run import run

    return run(options)


def _show(options: argparse.Namespace) -> int:
    from graphrt.cli.show import show

    return show(options)
