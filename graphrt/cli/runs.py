"""`graphrt runs list`, `show` and `cancel`."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import anyio

from graphrt.cli import SUCCEEDED, UsageError, counted
from graphrt.cli.ledger import ledger_place, ledger_words, opened_ledger
from graphrt.cli.printing import (
    answer_command,
    clean,
    columns,
    graph_name,
    length_text,
    print_json,
    print_line,
    run_object,
    time_text,
    value_text,
)
from graphrt.cli.runs_progress import progress_of
from graphrt.errors import GraphTypeError
from graphrt.graph.durable.queued import known_run
from graphrt.graph.durable.work import Ledger, claim_run
from graphrt.graph.progress import RunProgress
from graphrt.ledger.control import RunControl
from graphrt.ledger.records import RunChange, RunFilter
from graphrt.ledger.status import AgentRunStatus

if TYPE_CHECKING:
    import argparse

    from graphrt.graph.progress import StepProgress
    from graphrt.ledger.records import AgentRun, RunPage
    from graphrt.ledger.store import RunLedgerStore

_S = AgentRunStatus


# --- list


def list_runs(options: argparse.Namespace) -> int:
    """List the runs of a ledger, the newest first."""

    async def read() -> RunPage:
        filters = RunFilter(
            status=[AgentRunStatus(checked_status(each)) for each in options.status] or None,
            runner_id=None if options.graph is None else f"graph:{options.graph}",
        )
        async with opened_ledger(ledger_place(options), create=False) as store:
            return await store.list_runs(filters, cursor=options.cursor, limit=options.limit)

    page = anyio.run(read)
    if options.json:
        runs = [run_object(run) for run in page.items]
        print_json({"runs": runs, "next_cursor": page.next_cursor, "has_more": page.has_more})
        return SUCCEEDED
    if not page.items:
        print_line("no runs")
        return SUCCEEDED
    rows = [("RUN", "STATUS", "GRAPH", "CREATED", "TOOK", "REASON")]
    for run in page.items:
        took = length_text(_took(run))
        reason = clean(run.status_reason or "")
        rows.append(
            (clean(run.run_id), run.status.value, clean(graph_name(run)), time_text(run.created_at), took, reason)
        )
    for line in columns(rows):
        print_line(line)
    if page.has_more:
        print_line(f"more: graphrt runs list{ledger_words(options)} --cursor {page.next_cursor}")
    return SUCCEEDED


def _took(run: AgentRun) -> float | None:
    if run.started_at is None or run.finished_at is None:
        return None
    return (run.finished_at - run.started_at).total_seconds()


# --- show


def show_run(options: argparse.Namespace) -> int:
    """Show one run: how it stands, its steps, its questions and how to answer them."""

    async def read() -> tuple[AgentRun, RunProgress]:
        async with opened_ledger(ledger_place(options), create=False) as store:
            run = await known_run(store, options.run_id)
            try:
                return run, await progress_of(store, options.run_id)
            except GraphTypeError:  # a run of something else than a graph
                return run, RunProgress()

    run, progress = anyio.run(read)
    if options.json:
        print_json(_run_with_steps(run, progress))
    else:
        _print_run(run, progress, ledger_words(options))
    return SUCCEEDED


def _run_with_steps(run: AgentRun, progress: RunProgress) -> dict[str, Any]:
    return {
        **run_object(run),
        "input": run.metadata.get("input"),
        "output": progress.output,
        "events": progress.events,
        "steps": [
            {
                "id": step.id,
                "node": step.node,
                "scope": step.scope,
                "round": step.round,
                "state": step.state,
                "attempts": step.attempts,
                "seconds": step.seconds,
                "error": step.error,
                "until": step.until,
            }
            for step in progress.steps.values()
        ],
        "questions": [_question(step) for step in progress.questions],
    }


def _question(step: StepProgress) -> dict[str, Any]:
    return {"id": step.id, "node": step.node, "scope": step.scope, "question": step.question}


def _print_run(run: AgentRun, progress: RunProgress, ledger: str) -> None:
    print_line(f"run {clean(run.run_id)}: {run.status.value}")
    for name, text in _about(run, progress).items():
        if text:
            print_line(f"  {name:<11}{text}")
    if progress.steps:
        print_line("steps")
        rows = []
        for step in progress.steps.values():
            name = "/".join(filter(None, [step.scope, step.node]))
            name = name if step.round == 1 else f"{name} (round {step.round})"
            attempts = "" if step.attempts == 0 else counted(step.attempts, "attempt")
            rows.append((f"  {clean(name)}", step.state, attempts, length_text(step.seconds), _more_of(step)))
        for line in columns(rows):
            print_line(line)
    if progress.questions and not run.is_terminal:
        print_line("questions")
        for step in progress.questions:
            print_line(f"  {clean(step.id)}: {value_text(step.question)}")
            print_line(f"    answer it: {answer_command(run.run_id, step.id, ledger)}")


def _more_of(step: StepProgress) -> str:
    if step.state == "waiting" and step.until is not None:
        return clean(f"until {step.until}")
    return clean(step.error or "")


def _about(run: AgentRun, progress: RunProgress) -> dict[str, str]:
    target = run.metadata.get("target")
    usage = run.usage
    forked = run.metadata.get("forked_from")
    cancelling = run.cancel_requested_at is not None and not run.is_terminal
    took = length_text(_took(run))
    return {
        "graph": clean(f"{graph_name(run)} ({target})" if target else graph_name(run)),
        "created": time_text(run.created_at),
        "started": time_text(run.started_at),
        "finished": time_text(run.finished_at) + (f", took {took}" if took else ""),
        "goes on": time_text(run.wake_at),
        "deadline": time_text(run.deadline_at),
        "cancelling": f"asked {time_text(run.cancel_requested_at)}" if cancelling else "",
        "worker": clean(f"{run.claimed_by}, until {time_text(run.lease_until)}") if run.claimed_by else "",
        "priority": str(run.priority) if run.priority else "",
        "attempt": str(run.attempt) if run.attempt > 1 else "",
        "usage": ""
        if usage is None
        else ", ".join(f"{key} {value}" for key, value in usage.model_dump(exclude_none=True).items()),
        "forked": clean(f"from {forked['run_id']} at event {forked['at']}") if isinstance(forked, dict) else "",
        "input": "" if run.metadata.get("input") is None else value_text(run.metadata["input"]),
        "output": "" if progress.output is None else value_text(progress.output),
        "reason": clean(run.status_reason or ""),
    }


# --- cancel


def cancel_run(options: argparse.Namespace) -> int:
    """Cancel a run: at once where nobody is at work on it, else as soon as its worker notices."""

    async def cancel() -> tuple[bool, AgentRun]:
        async with opened_ledger(ledger_place(options), create=False) as store:
            before = await known_run(store, options.run_id)
            return before.is_terminal, await _cancelled(store, options.run_id, options.reason)

    was_over, run = anyio.run(cancel)
    if options.json:
        print_json(run_object(run))
    elif was_over:
        print_line(f"run {clean(run.run_id)} is {run.status.value} already")
    elif run.is_terminal:
        print_line(f"run {clean(run.run_id)} is {run.status.value}")
    else:
        print_line(f"run {clean(run.run_id)} is asked to stop; {clean(run.claimed_by or 'its worker')} will notice")
    return SUCCEEDED


async def _cancelled(store: RunLedgerStore, run_id: str, reason: str | None) -> AgentRun:
    """Ask that the run be cancelled, and end it when nobody works on it."""
    run = await RunControl(store).cancel_run(run_id, reason)
    if run.is_terminal or run.graph_fingerprint is None:
        return run
    claim = await claim_run(Ledger(store), run)
    if claim is None:
        return await known_run(store, run_id)
    change = RunChange(status=_S.CANCELLED, status_reason=reason or "cancelled while nobody was at work on it")
    return await store.change_run(run_id, change, now=datetime.now(UTC), token=claim.token)


def checked_status(text: str) -> str:
    """Check that there is a status of this name.

    Raises:
        UsageError: There is none.
    """
    if text not in set(AgentRunStatus):
        raise UsageError(f"{text!r} is no status of a run", hint=f"one of {', '.join(AgentRunStatus)}")
    return text
