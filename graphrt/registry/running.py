"""Running a resolved agent: the one place that makes a run of what resolution gives."""

from __future__ import annotations

import os
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from graphrt.nodes.agent_graph import compile_agent
from graphrt.registry.recording import recorded

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from datetime import datetime

    from graphrt.config import AgentConfig
    from graphrt.graph.durable.work import Ledger
    from graphrt.graph.graph import CompiledGraph
    from graphrt.graph.protocols import Question, RunEvent
    from graphrt.graph.scheduler.limits import BudgetTracker
    from graphrt.graph.scheduler.result import RunResult
    from graphrt.hooks import HookExecutor
    from graphrt.ledger.store import RunLedgerStore
    from graphrt.messages import Message, TokenUsage
    from graphrt.plugins import PhaseRuntime
    from graphrt.policies import Budget
    from graphrt.registry.registries import RegistrySet
    from graphrt.registry.resolved import ResolvedAgent
    from graphrt.telemetry import Telemetry

OnAsk: TypeAlias = "Callable[[Question], Any]"
"""Asks a person, and gives the answer."""


@dataclass(frozen=True)
class CalledBy:
    """The call of a tool that an agent's run answers."""

    run_id: str | None
    """The run of the agent that called."""
    tool_call_id: str | None


@dataclass(frozen=True)
class RunScope:
    """What the runs of an agent have in common with those of the agents that it calls."""

    config: AgentConfig
    registries: RegistrySet
    """Where agents that are called are resolved."""
    telemetry: Telemetry | None = None
    on_ask: OnAsk | None = None
    """Answers questions of all the runs."""
    depth: int = 0
    """How many agents there are above, one calling the next."""
    params: Mapping[str, Any] = field(default_factory=dict)
    """Request parameters of the agent that is run; those that it calls have their own."""
    session_id: str | None = None
    on_usage: Callable[[TokenUsage | None], None] | None = None
    """Told once of each reply of a model, in any of the runs."""
    hooks: HookExecutor | None = None
    """Their `ON_RETRY` hooks are called, in any of the runs."""
    called_by: CalledBy | None = None
    """The call that the agent answers; None for the outermost."""
    ledger: RunLedgerStore | Ledger | None = None
    """Where each of the runs is recorded, as a run of its own."""
    on_ask_below: OnAsk | None = None
    """Answers questions of the agents that are called, where there is no *on_ask*: a call cannot be left waiting."""


_SCOPE: Final[ContextVar[RunScope | None]] = ContextVar("graphrt.registry.scope", default=None)


def current_scope() -> RunScope | None:
    """Give the scope of the agent that is running; None outside of one."""
    return _SCOPE.get()


@contextmanager
def running_in(scope: RunScope) -> Iterator[None]:
    """Make *scope* the one that agents find which are called by what starts in the block."""
    before = _SCOPE.set(scope)
    try:
        yield
    finally:
        _SCOPE.reset(before)


def new_run_id() -> str:
    """Make up a name for a run."""
    return f"run-{os.urandom(8).hex()}"


def compile_resolved(
    resolved: ResolvedAgent,
    *,
    scope: RunScope,
    state: Mapping[str, Any] | None = None,
    system_prompt: str | None = None,
    turn_index: int | None = None,
    phases: Callable[[], PhaseRuntime] | None = None,
) -> CompiledGraph:
    """Make the graph of one run of an agent; the arguments are those of ``run_resolved``.

    Raises:
        GraphrtError: The parts do not fit together.
    """
    if phases is None and (state is not None or turn_index is not None):
        phases = _phases(resolved, scope, state, turn_index)
    parts = resolved.parts(
        scope.config,
        system_prompt=system_prompt,
        params=scope.params,
        phases=phases,
        on_usage=scope.on_usage,
        session_id=scope.session_id,
        hooks=scope.hooks,
    )
    return compile_agent(parts)


async def run_resolved(
    resolved: ResolvedAgent,
    input: str | Sequence[Message],
    *,
    scope: RunScope,
    run_id: str | None = None,
    deps: Any = None,
    timeout: float | None = None,
    deadline_at: datetime | None = None,
    budget: Budget | BudgetTracker | None = None,
    on_event: Callable[[RunEvent], Any] | None = None,
    state: Mapping[str, Any] | None = None,
    system_prompt: str | None = None,
    turn_index: int | None = None,
    phases: Callable[[], PhaseRuntime] | None = None,
    metadata: Mapping[str, Any] | None = None,
) -> RunResult:
    """Run an agent to its end; what ended it is found in the result, and not raised.

    Args:
        resolved: The agent.
        input: A text, or the messages up to here.
        scope: Found by the agents that this one calls.
        run_id: A name for the run; made up when None.
        deps: What tools find as ``ctx.deps``.
        timeout: Seconds of work, as for ``CompiledGraph.run``.
        deadline_at: A time with a zone, after which the run is over whatever it does.
        budget: What models and tools may use, in all.
        on_event: Called with every event.
        state: Values of the plugins' state that a session has kept.
        system_prompt: Takes the place of the spec's.
        turn_index: Turns that the session has finished before.
        phases: Makes what the plugins do, and then *state* and *turn_index* are its matter.
        metadata: Kept with the run in the scope's ledger.

    Raises:
        GraphrtError: The run cannot be started: an argument is of the wrong kind, the parts do not fit
            together, or a tool needs a person's approval and there is nobody to ask.
        RunControlError: The scope's ledger refused, or cannot be reached.
    """
    graph = compile_resolved(
        resolved, scope=scope, state=state, system_prompt=system_prompt, turn_index=turn_index, phases=phases
    )
    with running_in(scope):
        return await graph.run(
            input if isinstance(input, str) else list(input),
            deps=deps,
            run_id=run_id,
            timeout=timeout,
            deadline_at=deadline_at,
            budget=budget,
            check=False,
            on_event=on_event,
            on_ask=scope.on_ask,
            telemetry=scope.telemetry,
            ledger=recorded(resolved, scope, metadata),
        )


async def resume_resolved(
    resolved: ResolvedAgent,
    run_id: str,
    *,
    scope: RunScope,
    answers: Any = None,
    on_change: Literal["refuse", "ignore"] = "refuse",
    deps: Any = None,
    timeout: float | None = None,
    budget: Budget | BudgetTracker | None = None,
    on_event: Callable[[RunEvent], Any] | None = None,
    system_prompt: str | None = None,
    turn_index: int | None = None,
) -> RunResult:
    """Go on with a recorded run of an agent; arguments as for ``run_resolved`` and ``CompiledGraph.resume``.

    The scope has a ledger. What has ended is not done again, but the plugins are activated anew: what they kept in
    memory is gone.

    Raises:
        RunControlError: There is no such run, it is completed, or somebody is at work on it.
        GraphChangedError: The agent is not what it was.
        GraphError: A bare value as answer, and not exactly one question open.
        GraphTypeError: An answer does not fit its question; nothing was changed.
    """
    ledger = recorded(resolved, scope)
    assert ledger is not None
    graph = compile_resolved(resolved, scope=scope, system_prompt=system_prompt, turn_index=turn_index)
    with running_in(scope):
        return await graph.resume(
            run_id,
            ledger=ledger,
            deps=deps,
            answers=answers,
            on_change=on_change,
            timeout=timeout,
            budget=budget,
            check=False,
            on_event=on_event,
            on_ask=scope.on_ask,
            telemetry=scope.telemetry,
        )


def _phases(
    resolved: ResolvedAgent, scope: RunScope, state: Mapping[str, Any] | None, turn_index: int | None
) -> Callable[[], PhaseRuntime]:
    def make() -> PhaseRuntime:
        from graphrt.plugins import PhaseRuntime

        spec = resolved.spec
        return PhaseRuntime(
            resolved.env,
            spec=spec,
            agent_id=spec.id,
            session_id=scope.session_id,
            turn_index=turn_index,
            active=spec.active_hook_filter,
            state=state,
            on_usage=scope.on_usage,
        )

    return make
