"""The arguments of `graphrt runs` and `graphrt worker`. Loads nothing of what the commands need."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    Commands = argparse._SubParsersAction[argparse.ArgumentParser]
    Command = Callable[[argparse.Namespace], int]

LEDGER_VARIABLE: Final = "GRAPHRT_LEDGER"
"""What names the ledger in the environment."""
_WHERE: Final = f"the ledger: a file, or postgresql://... (default: {LEDGER_VARIABLE}, else .graphrt/runs.db)"


def add_runs(commands: Commands) -> None:
    """Add `graphrt runs` and what is below it."""
    runs = commands.add_parser(
        "runs",
        help="look at stored runs, and let them go on",
        description="Look at the runs of a ledger, cancel them, let them go on, and put new ones into the queue.",
        allow_abbrev=False,
    )
    below = runs.add_subparsers(title="commands", metavar="COMMAND", required=True)
    _add_list(below)
    _add_of_one_run(below, "show", "show a run: its steps, its questions and how to answer them", _show)
    events = _add_of_one_run(below, "events", "print the events of a run", _events)
    events.add_argument("--follow", action="store_true", help="go on until the run ends")
    cancel = _add_of_one_run(below, "cancel", "cancel a run", _cancel)
    cancel.add_argument("--reason", help="why; kept with the run")
    _add_resume(below)
    _add_fork(below)
    _add_enqueue(below)


def add_worker(commands: Commands) -> None:
    """Add `graphrt worker`."""
    worker = commands.add_parser(
        "worker",
        help="work on the queued runs of a ledger",
        description="Claim queued runs of these workflows, and work on several of them at once. SIGTERM or Ctrl-C "
        "lets the steps at work end and gives the runs back to the queue; a second one gives them back at once.",
        allow_abbrev=False,
    )
    worker.add_argument("targets", nargs="+", metavar="module:workflow", help="what it can run")
    worker.add_argument("--concurrency", type=whole_number, default=4, metavar="N", help="runs at once (default: 4)")
    worker.add_argument(
        "--lease",
        type=seconds,
        default=15.0,
        metavar="SECONDS",
        help="how long a run stays with a worker that is not heard of any more (default: 15)",
    )
    worker.add_argument(
        "--grace",
        type=seconds,
        default=10.0,
        metavar="SECONDS",
        help="how long steps at work may go on when the worker is stopped (default: 10)",
    )
    worker.add_argument("--once", action="store_true", help="end when nothing is left to claim")
    worker.add_argument("--backend", choices=("asyncio", "trio"), default="asyncio", help="the event loop")
    _add_common(worker)
    worker.set_defaults(command=_worker)


def add_ledger(parser: argparse.ArgumentParser, about: str = _WHERE) -> None:
    """Add `--ledger`."""
    parser.add_argument("--ledger", metavar="PATH_OR_URL", help=about)


def seconds(text: str) -> float:
    """Read a number of seconds above 0."""
    number = float(text)
    if not 0 < number < float("inf"):
        raise ValueError(text)
    return number


seconds.__name__ = "number of seconds above 0"  # what argparse calls it in its message


def whole_number(text: str) -> int:
    """Read a whole number of at least 1."""
    number = int(text)
    if number < 1:
        raise ValueError(text)
    return number


whole_number.__name__ = "whole number above 0"


def _add_common(parser: argparse.ArgumentParser) -> None:
    add_ledger(parser)
    parser.add_argument("--json", action="store_true", help="print JSON")


def _add_of_one_run(commands: Commands, name: str, about: str, command: Command) -> argparse.ArgumentParser:
    parser = commands.add_parser(name, help=about, description=f"{about[0].upper()}{about[1:]}.", allow_abbrev=False)
    parser.add_argument("run_id", metavar="ID", help="the run")
    _add_common(parser)
    parser.set_defaults(command=command)
    return parser


def _add_list(commands: Commands) -> None:
    parser = commands.add_parser(
        "list", help="list runs, the newest first", description="List runs, the newest first.", allow_abbrev=False
    )
    parser.add_argument("--status", action="append", default=[], help="only runs that stand so; may be repeated")
    parser.add_argument("--graph", metavar="NAME", help="only runs of the workflow of this name")
    parser.add_argument("--limit", type=whole_number, default=50, metavar="N", help="at most, up to 100 (default: 50)")
    parser.add_argument("--cursor", help="go on where a list before ended")
    _add_common(parser)
    parser.set_defaults(command=_list)


def _add_resume(commands: Commands) -> None:
    parser = _add_of_one_run(
        commands, "resume", "let a run go on that waits, failed, was cancelled or has lost its process", _resume
    )
    parser.add_argument(
        "--answer",
        action="append",
        default=[],
        metavar="ID=JSON",
        help="answer a question; what is not JSON is a text; may be repeated",
    )
    _add_graph(parser)
    parser.add_argument("--force", action="store_true", help="go on with a workflow that has changed since")
    parser.add_argument(
        "--timeout", type=seconds, metavar="SECONDS", help="give up after so long, when it goes on here"
    )
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--here", action="store_true", help="go on in this process, and print the output")
    where.add_argument("--queue", action="store_true", help="leave it to a worker (default for runs from the queue)")


def _add_fork(commands: Commands) -> None:
    parser = _add_of_one_run(commands, "fork", "store a new run that begins with the events of another", _fork)
    parser.add_argument("--at", type=whole_number, required=True, metavar="N", help="the last event to take over")
    parser.add_argument("--new-id", metavar="ID", help="the id of the new run")
    _add_graph(parser)


def _add_enqueue(commands: Commands) -> None:
    parser = commands.add_parser(
        "enqueue",
        help="put a run into the queue, for a worker",
        description="Put a run into the queue, for a worker, and print its id.",
        allow_abbrev=False,
    )
    parser.add_argument("target", metavar="module:workflow", help="where the workflow is, such as report:report")
    parser.add_argument("--input", metavar="JSON", help="the input; what is not JSON is a text if one is taken")
    parser.add_argument("--priority", type=int, default=0, metavar="N", help="higher is claimed sooner (default: 0)")
    parser.add_argument("--run-id", metavar="ID", help="its id; asked again with the same id, it is not put twice")
    _add_common(parser)
    parser.set_defaults(command=_enqueue)


def _add_graph(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--graph", metavar="module:workflow", help="where the workflow is, if not where it was when the run was begun"
    )


# Each command is a module of its own, so that `--help` loads none of what they need.


def _list(options: argparse.Namespace) -> int:
    from graphrt.cli.runs import list_runs

    return list_runs(options)


def _show(options: argparse.Namespace) -> int:
    from graphrt.cli.runs import show_run

    return show_run(options)


def _events(options: argparse.Namespace) -> int:
    from graphrt.cli.runs_events import print_events

    return print_events(options)


def _cancel(options: argparse.Namespace) -> int:
    from graphrt.cli.runs import cancel_run

    return cancel_run(options)


def _resume(options: argparse.Namespace) -> int:
    from graphrt.cli.runs_going import resume_run

    return resume_run(options)


def _fork(options: argparse.Namespace) -> int:
    from graphrt.cli.runs_going import fork_run

    return fork_run(options)


def _enqueue(options: argparse.Namespace) -> int:
    from graphrt.cli.runs_going import enqueue_run

    return enqueue_run(options)


def _worker(options: argparse.Namespace) -> int:
    from graphrt.cli.worker import worker

    return worker(options)
