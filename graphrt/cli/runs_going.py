"""`graphrt runs enqueue`, `resume` and `fork`: what lets runs begin, and go on."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import anyio

from graphrt.cli import SUCCEEDED, UsageError, print_error
from graphrt.cli.driving import how_it_ended
from graphrt.cli.ledger import ledger_place, ledger_words, opened_ledger
from graphrt.cli.printing import clean, print_json, print_line, run_object
from graphrt.cli.runs_progress import progress_of
from graphrt.cli.stored import new_run_id, resume_stored
from graphrt.cli.target import load_graph, read_input
from graphrt.cli.waiting import print_result, tell_waiting
from graphrt.errors import GraphChangedError
from graphrt.graph.durable.queued import QUEUED, TARGET, adopt, enqueue, known_run, put_back
from graphrt.ledger.status import AgentRunStatus

if TYPE_CHECKING:
    import argparse

    from graphrt.cli.driving import Driven
    from graphrt.graph import CompiledGraph
    from graphrt.graph.progress import StepProgress
    from graphrt.ledger.records import AgentRun
    from graphrt.ledger.store import RunLedgerStore


# --- enqueue


def enqueue_run(options: argparse.Namespace) -> int:
    """Put a run into the queue, for a worker."""
    graph = load_graph(options.target)
    value = read_input(options.input, graph.program.decl.input)
    run_id = options.run_id or new_run_id()

    async def put() -> tuple[AgentRun, bool]:
        async with opened_ledger(ledger_place(options), create=True) as store:
            return await enqueue(graph, value, store, run_id, priority=options.priority, target=options.target)

    run, created = anyio.run(put)
    if options.json:
        print_json({**run_object(run), "created": created})
    elif created:
        print_line(run.run_id)
    else:
        print_line(run.run_id)
        print_error(f"run {run.run_id!r} was there already, and is {run.status.value}")
    return SUCCEEDED


# --- fork


def fork_run(options: argparse.Namespace) -> int:
    """Store a new run that begins with the events of another."""

    async def fork() -> str:
        async with opened_ledger(ledger_place(options), create=False) as store:
            graph = _graph_of(options, await known_run(store, options.run_id))
            return await graph.fork(options.run_id, options.at, ledger=store, new_id=options.new_id)

    new_id = anyio.run(fork)
    if options.json:
        print_json({"run_id": new_id, "forked_from": options.run_id, "at": options.at})
    else:
        print_line(new_id)
        print(f"go on with it: graphrt runs resume{ledger_words(options)} {clean(new_id)}", file=sys.stderr)
    return SUCCEEDED


# --- resume


def resume_run(options: argparse.Namespace) -> int:
    """Let a run go on: by a worker if it came from the queue, else here; `--queue` and `--here` decide otherwise.

    Raises:
        GraphrtError: It cannot go on; nothing was changed.
    """

    async def main() -> int:
        async with opened_ledger(ledger_place(options), create=False) as store:
            try:
                return await _resume(store, options)
            except GraphChangedError as error:
                hint = "the run does not fit it" if options.force else "--force goes on as far as the run still fits it"
                raise UsageError(error.message, hint=hint) from error

    return anyio.run(main)


async def _resume(store: RunLedgerStore, options: argparse.Namespace) -> int:
    run = await known_run(store, options.run_id)
    queue = options.queue or (not options.here and bool(run.metadata.get(QUEUED)))
    if queue and options.timeout is not None:
        raise UsageError("--timeout is for a run that goes on here", hint="add --here, or leave it out")
    progress = await progress_of(store, run.run_id)
    answers = read_answers(options.answer, run.run_id, progress.questions)
    if run.status is AgentRunStatus.COMPLETED:
        raise UsageError(f"run {run.run_id!r} is completed", hint="fork it to run a part of it again")
    graph = None
    if answers or options.force or not queue:
        graph = _graph_of(options, run)
        if options.force:
            run = await adopt(graph, store, run.run_id)
    if not queue:
        assert graph is not None
        return await _resume_here(graph, store, run, answers, options)
    if run.status is AgentRunStatus.WAITING and progress.questions and not answers:
        tell_waiting(run.run_id, progress.questions, ledger_words(options))
        raise UsageError(f"run {run.run_id!r} waits for an answer", hint="give it with --answer")
    run = await put_back(store, run.run_id, graph=graph, answers=answers)
    if options.json:
        print_json({**run_object(run), "here": False})
    else:
        print_line(f"run {clean(run.run_id)} is {run.status.value}: a worker that has its graph goes on with it")
    return SUCCEEDED


async def _resume_here(
    graph: CompiledGraph, store: RunLedgerStore, run: AgentRun, answers: dict[str, Any], options: argparse.Namespace
) -> int:
    driven = await resume_stored(graph, store, run.run_id, answers=answers or None, timeout=options.timeout)
    progress = await progress_of(store, run.run_id)
    if options.json:
        print_json(_result_object(driven, await known_run(store, run.run_id), progress.questions, progress.output))
    else:
        conclude(driven, progress.questions, ledger_words(options))
    return driven.exit_code


def conclude(driven: Driven, questions: list[StepProgress], ledger: str) -> None:
    """Print how a stored run has ended, or what it waits for."""
    result = driven.result
    if result.status == "succeeded":
        print_result(result.output, sys.stdout)
    elif result.status == "waiting":
        tell_waiting(result.run_id, questions, ledger, result.wake_at)
    elif driven.signal is not None:
        print_error(f"cancelled; to go on: graphrt runs resume{ledger} {result.run_id}")
    else:
        print_error(f"{how_it_ended(result)}; to try again: graphrt runs resume{ledger} {result.run_id}")


def _result_object(driven: Driven, run: AgentRun, questions: list[StepProgress], output: Any) -> dict[str, Any]:
    asked = [{"id": step.id, "node": step.node, "scope": step.scope, "question": step.question} for step in questions]
    return {**run_object(run), "here": True, "output": output, "questions": asked, "exit_code": driven.exit_code}


def read_answers(given: list[str], run_id: str, questions: list[StepProgress]) -> dict[str, Any]:
    """Read answers of the form `ID=JSON`; what is not JSON is a text.

    Raises:
        UsageError: One names no open question, or two name the same.
    """
    open_ids = {step.id for step in questions}
    answers: dict[str, Any] = {}
    for text in given:
        cuts = [place for place, each in enumerate(text) if each == "="]
        cut = next((place for place in cuts if text[:place] in open_ids), None)
        if cut is None:
            known = f"open are: {', '.join(sorted(open_ids)) or 'none'}"
            if not cuts:
                raise UsageError(f"{text!r} is not of the form ID=JSON", hint=known)
            raise UsageError(f"run {run_id!r} has no question {text[: cuts[0]]!r} open", hint=known)
        name, value = text[:cut], text[cut + 1 :]
        if name in answers:
            raise UsageError(f"question {name!r} is answered twice", hint="give one answer")
        try:
            answers[name] = json.loads(value)
        except ValueError:
            answers[name] = value
    return answers


def _graph_of(options: argparse.Namespace, run: AgentRun) -> CompiledGraph:
    """Load the graph of a run: the one given, or where it was when the run was begun.

    Raises:
        UsageError: Nobody says where it is.
    """
    target = options.graph or run.metadata.get(TARGET)
    if not target:
        raise UsageError(f"run {run.run_id!r} does not say where its graph is", hint="name it: --graph module:workflow")
    try:
        return load_graph(str(target))
    except UsageError as error:
        if options.graph:
            raise
        raise UsageError(
            f"the graph of run {run.run_id!r} cannot be loaded: {error.message}",
            hint="name it: --graph module:workflow",
        ) from error
