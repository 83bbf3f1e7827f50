"""Runs of agents in a ledger: what their rows say, and how the runs of agents that are called are found again."""

from __future__ import annotations

import hashlib
from collections import Counter
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from graphrt.errors import ConfigError, RunControlError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from graphrt.graph.durable.work import Ledger
    from graphrt.graph.scheduler.resources import RunHandle
    from graphrt.ledger.records import AgentRun
    from graphrt.ledger.store import RunLedgerStore
    from graphrt.registry.resolved import ResolvedAgent
    from graphrt.registry.running import RunScope
    from graphrt.registry.specs import AgentSpec
    from graphrt.tools.base import ToolContext

PARENT_RUN: Final = "parent_run_id"
"""Metadata of a run that answers a call of another agent: that agent's run."""
PARENT_CALL: Final = "tool_call_id"
"""Metadata of such a run: the call."""

_COUNTS: Final = "graphrt.registry.calls"
_METHODS: Final = ("create_run", "get_run", "change_run", "append_events", "page_events", "claim_run")


def checked_ledger(ledger: Any) -> Any:
    """Give what runs are to be recorded in, None included.

    Raises:
        ConfigError: It is no ledger.
    """
    if ledger is None:
        return None
    store = getattr(ledger, "store", ledger)
    if isinstance(ledger, type) or not all(callable(getattr(store, name, None)) for name in _METHODS):
        shown = f"the class {ledger.__name__}" if isinstance(ledger, type) else f"of type {type(ledger).__name__}"
        raise ConfigError(
            f"the ledger is {shown}, which keeps no runs",
            hint="give a RunLedgerStore, such as SqliteRunLedgerStore(path)",
        )
    return ledger


def store_of(ledger: RunLedgerStore | Ledger) -> RunLedgerStore:
    """Give the store of what a caller gave as the ledger."""
    from graphrt.graph.durable.work import Ledger

    return Ledger.of(ledger, "async").store


def recorded(resolved: ResolvedAgent, scope: RunScope, metadata: Mapping[str, Any] | None = None) -> Ledger | None:
    """Give the scope's ledger, with what the row of this agent's run says besides; None without a ledger."""
    if scope.ledger is None:
        return None
    from graphrt.graph.durable.work import Ledger

    return replace(Ledger.of(scope.ledger, "async"), row=_row(resolved, scope, metadata or {}))


def _row(resolved: ResolvedAgent, scope: RunScope, metadata: Mapping[str, Any]) -> dict[str, Any]:
    from graphrt.ledger.authorization import AuthorizationSnapshot

    spec, caller = resolved.spec, scope.called_by
    runner = f"agent:{spec.id}"
    conversation = scope.session_id
    called = {} if caller is None else {PARENT_RUN: caller.run_id, PARENT_CALL: caller.tool_call_id}
    return {
        "runner_id": runner,
        "agent_id": spec.id,
        "conversation_id": conversation,
        "authorization": AuthorizationSnapshot(
            runner_id=runner,
            allowed_tools=tuple(resolved.tools),
            allowed_models=_models(spec),
            conversation_id=conversation if caller is None else None,  # who is called sees the prompt only
        ),
        "metadata": {**metadata, **called},
    }


def _models(spec: AgentSpec) -> tuple[str, ...]:
    """Name the models that an agent may ask, by their ids."""
    retry = spec.sections.get("retry")
    others = retry.get("fallback_models", ()) if isinstance(retry, dict) else getattr(retry, "fallback_models", ())
    return tuple(dict.fromkeys([spec.model, *others]))


async def stored_run(ledger: RunLedgerStore | Ledger, run_id: str) -> AgentRun:
    """Look up the run of an agent.

    Raises:
        RunControlError: `not_found`; `invalid_argument`: it is the run of something else.
    """
    stored = await store_of(ledger).get_run(run_id)
    if stored is None:
        raise RunControlError("not_found", f"there is no run {run_id!r} in the ledger")
    if stored.agent_id is None or stored.graph_fingerprint is None:
        raise RunControlError(
            "invalid_argument",
            f"run {run_id!r} is one of {stored.runner_id!r}, and not of an agent's graph",
            hint="resume the run of a graph with graph.resume()",
        )
    return stored


# --- runs of agents that are called


async def child_run_id(agent_id: str, prompt: str, ctx: ToolContext[Any]) -> str | None:
    """Name the run that answers a call: the same when the step is run again, and different for every other call.

    It is made of the step's key, of what is asked of whom, and of how often the step has asked that before. None where
    there is no step.
    """
    if ctx.idempotency_key is None or ctx.resource is None:
        return None
    asked = ctx.idempotency_key, agent_id, prompt
    counts: Counter[tuple[str, str, str]] = await ctx.resource(_COUNTS, _counting)
    earlier = counts[asked]
    counts[asked] += 1
    return f"run-{hashlib.sha256(repr((*asked, earlier)).encode()).hexdigest()[:16]}"


@asynccontextmanager
async def _counting(run: RunHandle) -> AsyncIterator[Counter[tuple[str, str, str]]]:
    yield Counter()


async def was_left(ledger: RunLedgerStore | Ledger, run_id: str) -> bool:
    """Say whether a run has to be resumed: it waits, or it was cancelled with the run of the agent that called it.

    One that a person has cancelled stays so.
    """
    from graphrt.ledger.status import AgentRunStatus

    stored = await store_of(ledger).get_run(run_id)
    if stored is None:
        return False
    if stored.status is AgentRunStatus.CANCELLED:
        return stored.cancel_requested_at is None
    return stored.status is AgentRunStatus.WAITING
