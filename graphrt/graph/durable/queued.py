"""Stored runs and the queue: put there from outside, with answers, or moved to another graph first."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from graphrt.errors import GraphError, RunControlError
from graphrt.graph.core.replay import requeue
from graphrt.graph.durable.past import Past
from graphrt.graph.durable.recorder import SOURCE, inlined
from graphrt.graph.durable.runs import check_graph, create, stored_input
from graphrt.graph.durable.stored import effective, load_events
from graphrt.graph.durable.work import Ledger, claim_run, give_back
from graphrt.ledger.queue import ExecutionQueue
from graphrt.ledger.records import JsonText, NewEvent, RunChange
from graphrt.ledger.status import TERMINAL, AgentRunStatus

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from graphrt.graph.core.records import Step
    from graphrt.graph.graph import CompiledGraph
    from graphrt.graph.protocols import RunEvent
    from graphrt.ledger.records import AgentRun, AgentRunEvent, Claim
    from graphrt.ledger.store import RunLedgerStore

QUEUED: Final = "queued"
"""Metadata that says that a run belongs to workers."""
TARGET: Final = "target"
"""Metadata that says where a run's graph is to be found, as `module:name`."""

_S = AgentRunStatus
_AT_WORK: Final = frozenset({_S.CLAIMED, _S.DISPATCHING, _S.RUNNING})
_AT_REST: Final = frozenset({_S.CREATED, _S.QUEUED, _S.WAITING})


async def enqueue(
    graph: CompiledGraph,
    value: Any,
    store: RunLedgerStore,
    run_id: str,
    *,
    priority: int = 0,
    not_before: datetime | None = None,
    target: str | None = None,
) -> tuple[AgentRun, bool]:
    """Put a run into the queue for a worker that has the graph; give it, and whether it is new.

    Asked again with the same id, it changes nothing, however far the run has come; but one that was written down and
    did not get into the queue gets there.

    Args:
        graph: What to run.
        value: The run's input.
        store: The ledger.
        run_id: The run's id.
        priority: Higher is claimed sooner.
        not_before: The time, aware, before which nobody begins; None for at once.
        target: Where the graph is to be found; kept with the run.

    Raises:
        RunControlError: `conflict`: a run of this id has another input.
        GraphChangedError: It is one of another graph.
        GraphTypeError: The input does not fit, or a value could not be stored.
    """
    stored, created = await create(graph, value, store, run_id)
    if stored.status is not _S.CREATED:
        return stored, created
    metadata = {QUEUED: True} if target is None else {QUEUED: True, TARGET: target}
    change = RunChange(status=_S.QUEUED, priority=priority, wake_at=not_before, metadata=metadata, expects={_S.CREATED})
    try:
        return await store.change_run(run_id, change, now=datetime.now(UTC)), created
    except RunControlError as error:
        if error.code != "conflict":
            raise
        return await known_run(store, run_id), created  # another caller was faster


async def put_back(
    store: RunLedgerStore, run_id: str, *, graph: CompiledGraph | None = None, answers: Mapping[str, Any] | None = None
) -> AgentRun:
    """Let a worker go on with a run that waits, failed, was cancelled or out of time, or has lost its process.

    Answers are stored with it, as events; they need the graph, which says what fits.

    Raises:
        RunControlError: `not_found`; `conflict`: it is completed, or somebody is at work on it.
        GraphChangedError: There are answers, and the graph is not the one that the run was started with.
        GraphError: An answer is to a question that is not open.
        GraphTypeError: An answer does not fit; nothing was changed.
    """
    stored = await known_run(store, run_id)
    if stored.status is _S.COMPLETED:
        raise RunControlError(
            "conflict", f"run {run_id!r} is completed", hint="fork it to run a part of it again: graphrt runs fork"
        )
    if answers:
        if graph is None:
            raise GraphError(f"answers to run {run_id!r} need its graph", hint="give graph=")
        return await _with_answers(graph, store, stored, answers)
    if stored.status is _S.QUEUED:
        return stored
    if stored.status in (_S.CREATED, _S.WAITING) or stored.status in TERMINAL:
        return await ExecutionQueue(store).enqueue(run_id, stored.priority, resume=True)
    claim = await _claimed(store, stored)
    await store.release_claim(run_id, claim.token, now=datetime.now(UTC), status=_S.QUEUED)
    return await known_run(store, run_id)


async def adopt(graph: CompiledGraph, store: RunLedgerStore, run_id: str) -> AgentRun:
    """Move a run to another graph, as far as its stored events fit it: from now on it is a run of that one.

    Raises:
        RunControlError: `not_found`; `conflict`: somebody is at work on it.
        GraphChangedError: The events do not fit.
        GraphTypeError: The graph takes another input, or declares other types.
    """
    stored = await known_run(store, run_id)
    if stored.graph_fingerprint == graph.fingerprint:
        return stored
    graph.event_codec().check()
    if not Past(graph, run_id, effective(await load_events(store, run_id))).begun:
        stored_input(graph, stored)
    change = RunChange(
        graph_fingerprint=graph.fingerprint,
        metadata={"graph": graph.name, "description": graph.program.packed_description},
        clear_reason=stored.status is _S.QUEUED,
    )
    return await store.change_run(run_id, change, now=datetime.now(UTC))


async def known_run(store: RunLedgerStore, run_id: str) -> AgentRun:
    """Look a run up.

    Raises:
        RunControlError: `not_found`.
    """
    stored = await store.get_run(run_id)
    if stored is None:
        raise RunControlError("not_found", f"there is no run {run_id!r} in the ledger")
    return stored


async def _claimed(store: RunLedgerStore, stored: AgentRun) -> Claim:
    claim = await claim_run(Ledger(store), stored)
    if claim is None:
        raise RunControlError(
            "conflict",
            f"run {stored.run_id!r} is being worked on by {stored.claimed_by or 'somebody else'}",
            retryable=True,
            details={"run_id": stored.run_id},
            hint="wait until it ends or waits",
        )
    return claim


async def _with_answers(
    graph: CompiledGraph, store: RunLedgerStore, stored: AgentRun, answers: Mapping[str, Any]
) -> AgentRun:
    """Store answers as events that a worker finds, and put the run into the queue, in one transaction."""
    run_id = stored.run_id
    check_graph(graph, stored)
    claim = await _claimed(store, stored) if stored.status in _AT_WORK else None
    try:
        events = await load_events(store, run_id)
        group = await inlined(store, run_id, _answering(graph, run_id, events, answers))
        change = RunChange(status=_S.QUEUED, release=claim is not None, expects=_AT_WORK if claim else _AT_REST)
        token = None if claim is None else claim.token
        await store.append_events(run_id, group, now=datetime.now(UTC), token=token, change=change)
    except BaseException:
        if claim is not None:
            await give_back(store, claim)
        raise
    return await known_run(store, run_id)


def _answering(
    graph: CompiledGraph, run_id: str, stored: Sequence[AgentRunEvent], answers: Mapping[str, Any]
) -> list[NewEvent]:
    """Make the events with which a run learns of answers.

    Raises:
        GraphError: A question is not open.
        GraphTypeError: An answer does not fit.
    """
    past = Past(graph, run_id, effective(stored), highest=stored[-1].sequence if stored else 0, reopen=False)
    core, codec = past.core, graph.event_codec()
    for question_id, answer in answers.items():
        step = core.asked.get(question_id)
        if step is None or question_id not in core.questions:
            raise GraphError(
                f"run {run_id!r} has no question {question_id!r} open",
                hint=f"open are: {', '.join(core.questions) or 'none'}",
            )
        assert step.node.decl is not None
        codec.dump_value(step, step.node.decl.target.accept(answer))
    made: list[NewEvent] = []

    def record(event: RunEvent, step: Step | None) -> None:
        moment = datetime.fromtimestamp(event.time, UTC)
        text = JsonText(codec.write(event, step, None))
        made.append(NewEvent(event.type, text, event.sequence, SOURCE, created_at=moment))

    core.recorder, core.sink = record, _nobody
    now = time.time()
    if past.made or stored[-1].source != SOURCE:
        core.held = past.made  # its numbers do not go on where the core's own end
        requeue(core, now)
    for question_id, answer in answers.items():
        core.early_answer(question_id, answer, now)
    return made


def _nobody(event: RunEvent) -> None:
    """Stand for a reader: the core makes events only where somebody reads them."""
