"""Runs with a ledger: started once whoever asks, taken up again where they were left, forked at an event (E25, E26)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import anyio

from graphrt.errors import ConfigError, GraphChangedError, GraphError, RunCancelledError, RunControlError
from graphrt.graph.compiled import quote
from graphrt.graph.durable.past import Past, close
from graphrt.graph.durable.recorder import inlined
from graphrt.graph.durable.stored import effective, load_events
from graphrt.graph.durable.work import Ledger, Stretch, claim_run, give_back, is_free
from graphrt.graph.fingerprint import unpack
from graphrt.graph.scheduler.result import RunResult, annotate
from graphrt.graph.states import LIVE_STATES
from graphrt.ledger.authorization import AuthorizationSnapshot
from graphrt.ledger.records import AgentRun, JsonText, NewEvent, RunChange
from graphrt.ledger.status import TERMINAL, AgentRunStatus

if TYPE_CHECKING:
    from graphrt.graph.core.run import RunCore
    from graphrt.graph.graph import CompiledGraph
    from graphrt.graph.scheduler.run import GraphScheduler
    from graphrt.ledger.records import AgentRunEvent, Claim
    from graphrt.ledger.store import RunLedgerStore

POLL_SECONDS: Final = 0.05
LONGEST_POLL_SECONDS: Final = 1.0
SHOWN: Final = 40

_S = AgentRunStatus


# --- starting


async def run_durably(
    graph: CompiledGraph, value: Any, ledger: Ledger, run_id: str, options: Mapping[str, Any]
) -> GraphScheduler:
    """Start a run, or wait for the one of this id that exists; give its scheduler, which has ended.

    Raises:
        RunControlError: `conflict`: the run that exists has another input.
        GraphChangedError: It is a run of another graph.
        GraphTypeError: A value could not be stored.
    """
    store = ledger.store
    stored, created = await create(graph, value, store, run_id, **_row(ledger, options))
    pause = POLL_SECONDS
    while True:
        if stored.status in TERMINAL or (stored.status is _S.WAITING and not created):
            return await _as_it_ended(graph, store, stored)
        claim = None if _is_early(stored) else await claim_run(ledger, stored)
        if claim is not None:
            stretch = await begin(graph, ledger, claim, options)
            await stretch.work(value)
            return stretch.scheduler
        await anyio.sleep(pause)
        pause = min(2 * pause, LONGEST_POLL_SECONDS)
        stored = await _get(store, run_id)


def _is_early(stored: AgentRun) -> bool:
    """Say whether a queued run is not to begin yet."""
    return stored.status is _S.QUEUED and stored.wake_at is not None and stored.wake_at > datetime.now(UTC)


def _row(ledger: Ledger, options: Mapping[str, Any]) -> dict[str, Any]:
    """Give the fields of a new run's row that its graph does not know."""
    return {"deadline_at": options.get("deadline_at"), **ledger.row}


async def start(graph: CompiledGraph, value: Any, ledger: Ledger, run_id: str, options: Mapping[str, Any]) -> Stretch:
    """Create a run that does not exist yet, and claim it.

    Raises:
        RunControlError: `conflict`: it exists.
        GraphTypeError: A value could not be stored.
    """
    stored, created = await create(graph, value, ledger.store, run_id, **_row(ledger, options))
    claim = await claim_run(ledger, stored) if created else None
    if claim is None:
        raise RunControlError(
            "conflict", f"run {run_id!r} exists", hint="wait for it with run(run_id=...), or resume it"
        )
    return Stretch(graph, ledger, claim, options)


async def create(
    graph: CompiledGraph, value: Any, store: RunLedgerStore, run_id: str, **fields: Any
) -> tuple[AgentRun, bool]:
    """Store a run that has not begun; give the stored one, and whether it is new.

    *fields* are those of its row that a graph does not know; `metadata` among them is added to what is there.

    Raises:
        RunControlError: `conflict`: it exists, and has another input, or is one of another agent.
        GraphChangedError: It exists, and is one of another graph.
        GraphTypeError: A value could not be stored.
    """
    codec = graph.event_codec()
    codec.check()
    written = json.loads(codec.dump_input(value))
    now = datetime.now(UTC)
    runner = fields.pop("runner_id", f"graph:{graph.name}")
    run = AgentRun(
        run_id=run_id,
        runner_id=runner,
        authorization=fields.pop("authorization", None) or AuthorizationSnapshot(runner_id=runner),
        created_at=now,
        updated_at=now,
        graph_fingerprint=graph.fingerprint,
        metadata={
            **fields.pop("metadata", {}),
            "graph": graph.name,
            "input": written,
            "description": graph.program.packed_description,
        },
        **fields,
    )
    stored, created = await store.create_run(run)
    if not created:
        if run.agent_id is not None and stored.agent_id != run.agent_id:
            raise RunControlError(
                "conflict",
                f"run {run_id!r} exists and is one of agent {stored.agent_id!r}, not {run.agent_id!r}",
                hint="give a new run_id",
            )
        if stored.metadata.get("input") != written:
            raise RunControlError(
                "conflict",
                f"run {run_id!r} exists and has another input",
                hint="give the input that it was started with, or a new run_id",
            )
        check_graph(graph, stored)
    return stored, created


async def begin(graph: CompiledGraph, ledger: Ledger, claim: Claim, options: Mapping[str, Any]) -> Stretch:
    """Make ready to work on a claimed run: where its stored events end, or from its input if there are none.

    A run that has failed and was taken from the queue again goes on before its failure.

    Raises:
        GraphChangedError: The graph does something else than the events say; the claim has been given back.
        GraphTypeError: It declares other types.
    """
    try:
        events = await load_events(ledger.store, claim.run.run_id)
        past = _past(graph, claim.run.run_id, events, options, reopen=claim.run.status is _S.CLAIMED)
        return Stretch(graph, ledger, claim, options, past if past.begun else None)
    except BaseException:
        await give_back(ledger.store, claim)
        raise


def _past(
    graph: CompiledGraph, run_id: str, events: list[AgentRunEvent], options: Mapping[str, Any], *, reopen: bool
) -> Past:
    limits = graph.run_limits(options.get("max_concurrency"))
    highest = events[-1].sequence if events else 0
    return Past(graph, run_id, effective(events), limits=limits, highest=highest, reopen=reopen)


def stored_input(graph: CompiledGraph, stored: AgentRun) -> Any:
    """Read the input that a run was created with.

    Raises:
        GraphTypeError: The graph now takes something else.
    """
    return graph.event_codec().load_input(stored.metadata.get("input"))


async def _get(store: RunLedgerStore, run_id: str) -> AgentRun:
    stored = await store.get_run(run_id)
    if stored is None:
        raise RunControlError("not_found", f"there is no run {run_id!r} in the ledger")
    return stored


# --- going on


async def resume_run(
    graph: CompiledGraph,
    ledger: Ledger,
    run_id: str,
    options: Mapping[str, Any],
    *,
    answers: Any = None,
    on_change: str = "refuse",
) -> GraphScheduler:
    """Take a run up again where it was left; give its scheduler, which has ended.

    Raises:
        RunControlError: `not_found`; `conflict`: somebody is at work on it, or it has been completed.
        GraphChangedError: The graph is not the one it was started with.
        GraphError: A bare value as answer, and not exactly one question open.
        GraphTypeError: An answer does not fit.
    """
    graph.event_codec().check()
    stored = await _get(ledger.store, run_id)
    if on_change not in ("refuse", "ignore"):
        raise ConfigError(f"on_change is {on_change!r}", hint="give 'refuse' or 'ignore'")
    if on_change == "refuse" or stored.graph_fingerprint is None:
        check_graph(graph, stored)
    if stored.status is _S.COMPLETED:
        raise RunControlError(
            "conflict", f"run {run_id!r} is completed", hint="fork it to run a part of it again: graph.fork()"
        )
    if not is_free(stored):
        raise _held(stored)
    past = _past(graph, run_id, await load_events(ledger.store, run_id), options, reopen=True)
    given = {} if answers is None else _check_answers(graph, past.core, run_id, answers)
    claim = await _take(ledger, stored)
    stretch = Stretch(graph, ledger, claim, options, past if past.begun else None)
    stretch.scheduler.answers |= given
    if stored.status in TERMINAL:
        stretch.scheduler.add_usage(stored.usage)  # which begins anew with the claim
    await stretch.work(None if stretch.scheduler.restored else stored_input(graph, stored))
    return stretch.scheduler


async def _take(ledger: Ledger, stored: AgentRun) -> Claim:
    """Claim a run as it was read; what was read has not changed meanwhile.

    Raises:
        RunControlError: `conflict`: somebody else was faster.
    """
    store, run_id, before = ledger.store, stored.run_id, stored
    if stored.status in TERMINAL:
        change = RunChange(status=_S.QUEUED, resume=True, expects=(stored.status,))
        stored = await store.change_run(run_id, change, now=datetime.now(UTC))
    claim = await claim_run(ledger, stored)
    if claim is None:
        raise _held(await _get(store, run_id))
    if claim.attempt != before.attempt + 1:
        ended = RunChange(status=before.status, status_reason=before.status_reason)
        await give_back(store, claim, ended if before.status in TERMINAL else None)
        raise _held(claim.run)
    return claim


def _held(stored: AgentRun) -> RunControlError:
    return RunControlError(
        "conflict",
        f"run {stored.run_id!r} is being worked on by {stored.claimed_by or 'somebody else'}",
        retryable=True,
        details={"run_id": stored.run_id},
        hint="wait for it with run(run_id=...), or resume it when its lease has ended",
    )


def _check_answers(graph: CompiledGraph, core: RunCore, run_id: str, answers: Any) -> dict[str, Any]:
    """Give answers by the id of their question, those of closed questions left out.

    Raises:
        GraphError: A bare value, and not exactly one question open; an id that no question has.
        GraphTypeError: An answer does not fit its open question, or could not be stored.
    """
    if not isinstance(answers, Mapping):
        if len(core.questions) != 1:
            raise GraphError(
                f"run {run_id!r} has {len(core.questions)} questions open, and a bare value says not which it answers",
                hint=f"give answers={{id: value}}; open are: {', '.join(core.questions) or 'none'}",
            )
        answers = {next(iter(core.questions)): answers}
    codec = graph.event_codec()
    closed = {step.key for step in core.steps if step.state not in LIVE_STATES}
    given = {}
    for question_id, answer in answers.items():
        step = core.asked.get(question_id)
        if step is not None:
            assert step.node.decl is not None
            codec.dump_value(step, step.node.decl.target.accept(answer))
        elif not _may_ask(graph, question_id):
            raise GraphError(
                f"run {run_id!r} has no question {question_id!r}",
                hint=f"open are: {', '.join(core.questions) or 'none'}",
            )
        elif question_id in closed:
            continue
        else:
            codec.dump_answer(question_id, answer)
        given[question_id] = answer
    return given


def _may_ask(graph: CompiledGraph, question_id: Any) -> bool:
    """Say whether an id may be that of a question of this graph: it names a node that asks."""
    if not isinstance(question_id, str):
        return False
    return question_id.rpartition("/")[2].partition("#")[0] in {quote(name) for name in graph.asks}


def check_graph(graph: CompiledGraph, stored: AgentRun) -> None:
    """Refuse to go on with a run of another graph (E26).

    Raises:
        GraphChangedError: With the lines that differ.
    """
    if stored.graph_fingerprint == graph.fingerprint:
        return
    if stored.graph_fingerprint is None:
        raise GraphChangedError(f"run {stored.run_id!r} is no run of a graph", hint="name a run that graph.run() made")
    before = set(unpack(stored.metadata.get("description")))
    now = set(unpack(graph.program.packed_description))
    changes = [f"- {line}" for line in sorted(before - now)] + [f"+ {line}" for line in sorted(now - before)]
    raise GraphChangedError(
        f"graph {graph.name!r} is not the one that run {stored.run_id!r} was started with:\n"
        + "\n".join(changes[:SHOWN]),
        hint="go on with the code it was started with, start a new run, or resume with on_change='ignore'",
    )


# --- looking back, and forking


async def _as_it_ended(graph: CompiledGraph, store: RunLedgerStore, stored: AgentRun) -> GraphScheduler:
    """Give a scheduler that stands where a run has ended, to read its result from."""
    run_id = stored.run_id
    core = Past(graph, run_id, effective(await load_events(store, run_id)), reopen=False).core
    if core.outcome is None:
        close(core, stored)
    outcome = core.outcome
    assert outcome is not None
    if outcome.error is not None and not isinstance(outcome.error, Exception):
        interrupt = outcome.error  # it was of another process, or long ago: it does not interrupt this one
        outcome.error = RunCancelledError(reason=f"it was interrupted by {type(interrupt).__name__}")
        outcome.error.__cause__ = interrupt
    scheduler = graph.make_scheduler(run_id=run_id, core=core)
    scheduler.add_usage(stored.usage)
    annotate(scheduler)
    return scheduler


async def fork_run(graph: CompiledGraph, ledger: Ledger, run_id: str, at: int, new_id: str) -> str:
    """Store a new run that has the events of another one up to number *at*; resume it to go on from there.

    Raises:
        RunControlError: `not_found`; `invalid_argument`: there is no such event; `conflict`: *new_id* exists.
        GraphChangedError: The run is one of another graph.
    """
    store = ledger.store
    stored = await _get(store, run_id)
    check_graph(graph, stored)
    events = await load_events(store, run_id)
    highest = events[-1].sequence if events else 0
    if not isinstance(at, int) or not 1 <= at <= highest:
        raise RunControlError(
            "invalid_argument", f"run {run_id!r} has no event {at!r}", hint=f"give a number from 1 to {highest}"
        )
    kept = {event.sequence for event in effective([event for event in events if event.sequence <= at])}
    now = datetime.now(UTC)
    run = AgentRun(
        run_id=new_id,
        runner_id=stored.runner_id,
        authorization=stored.authorization,
        created_at=now,
        updated_at=now,
        graph_fingerprint=stored.graph_fingerprint,
        metadata={**stored.metadata, "forked_from": {"run_id": run_id, "at": at}},
    )
    _, created = await store.create_run(run)
    if not created:
        raise RunControlError("conflict", f"run {new_id!r} exists", hint="give another id, or none")
    group: list[NewEvent] = []
    for number, event in enumerate((event for event in events if event.sequence in kept), 1):
        data = {key: each for key, each in event.data.items() if key != "after"}
        text = JsonText(json.dumps(data, ensure_ascii=False, separators=(",", ":")))
        group.append(NewEvent(event.type, text, number, event.source, created_at=event.created_at))
    await store.append_events(new_id, await inlined(store, new_id, group), now=now)
    return new_id


def result_of(scheduler: GraphScheduler, *, check: bool) -> RunResult:
    """Give the result of a run that has ended, or raise its error."""
    outcome = scheduler.core.outcome
    assert outcome is not None
    if outcome.error is not None and (check or not isinstance(outcome.error, Exception)):
        raise outcome.error
    return RunResult(scheduler)
