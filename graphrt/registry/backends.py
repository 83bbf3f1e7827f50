"""Who runs an agent that another one calls: this program, or what the agent's endpoint names."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

from graphrt.config import AgentConfig
from graphrt.errors import GraphrtError, ResolveError, ToolErrorKind
from graphrt.graph.states import RunStatus, TerminationKind
from graphrt.llm.cost import CostTracker
from graphrt.registry.a2a import A2ABackend
from graphrt.registry.recording import child_run_id, was_left
from graphrt.registry.running import CalledBy, RunScope, current_scope, new_run_id, resume_resolved, run_resolved
from graphrt.tools.delegate import Delegate, DelegateReply, current_caller, tell_started

if TYPE_CHECKING:
    from graphrt.graph.protocols import Question
    from graphrt.graph.scheduler.result import RunResult
    from graphrt.messages import TokenUsage
    from graphrt.registry.registries import RegistrySet
    from graphrt.registry.running import OnAsk
    from graphrt.registry.specs import AgentSpec, RemoteEndpoint
    from graphrt.tools.base import ToolContext
    from graphrt.tools.delegate import Caller


class RemoteBackend(Delegate, Protocol):
    """Has an agent that lives behind an endpoint work on prompts."""


BackendFactory: TypeAlias = Callable[[str, "RemoteEndpoint"], RemoteBackend]
"""Makes the back end of one agent, of its id and its endpoint; raises when the endpoint's settings are wrong."""

BUILT_IN: Final[Mapping[str, BackendFactory]] = MappingProxyType({"a2a": A2ABackend})
"""Back ends by the kind that an endpoint names."""


def remote_delegate(registries: RegistrySet, spec: AgentSpec) -> Delegate:
    """Give what talks to an agent with an endpoint; nothing is sent.

    Raises:
        ResolveError: The endpoint names no kind of back end that there is, or its settings are wrong.
    """
    endpoint = spec.endpoint
    if endpoint is None:
        raise ResolveError(f"agent {spec.id!r} has no endpoint", hint="give it one, or run it here")
    factories = {**BUILT_IN, **(registries.backends or {})}
    factory = factories.get(endpoint.backend)
    if factory is None:
        raise ResolveError(
            f"agent {spec.id!r} lives behind a back end of kind {endpoint.backend!r}, which there is not",
            hint=f"kinds so far: {', '.join(factories)}; add one with RegistrySet(backends=...)",
        )
    try:
        return factory(spec.id, endpoint)
    except ResolveError:
        raise
    except GraphrtError as error:
        raise ResolveError(
            f"the endpoint of agent {spec.id!r} is of no use: {error.message}", hint=error.hint
        ) from error
    except Exception as error:  # a factory of the application's own may raise anything
        reason = f"{type(error).__name__}: {error}"
        raise ResolveError(f"the endpoint of agent {spec.id!r} is of no use: {reason}") from error


def local_delegate(registries: RegistrySet, agent_id: str) -> Delegate:
    """Give what runs an agent of these registries, or of those that the calling agent was resolved from."""
    return LocalDelegate(registries, agent_id)


class LocalDelegate:
    """Runs an agent here: resolved anew for each call, as a run of its own with its own limit on rounds.

    The run shares deps, budget, telemetry, and whoever answers questions, with the run of the caller. With a ledger
    it is recorded, and a call that is made again after a resume of the caller finds it there: a run that had ended is
    not run again.
    """

    def __init__(self, registries: RegistrySet, agent_id: str) -> None:
        """Take the agent's id, and where it is looked up if the call comes from outside of any run."""
        self._registries = registries
        self._agent_id = agent_id

    async def run(self, prompt: str, ctx: ToolContext[Any]) -> DelegateReply:
        """Run the agent, and give its last words; too deep below other agents it is not run."""
        from graphrt.registry.resolution import resolve

        outer = current_scope() or RunScope(AgentConfig(), self._registries)
        deepest = outer.config.max_delegate_depth
        if outer.depth >= deepest:
            reason = (
                f"agent {self._agent_id!r} was not run: agents call agents {deepest} deep at most; answer without it"
            )
            return DelegateReply(error=reason, kind=ToolErrorKind.DENIED)
        caller, spent = current_caller(), CostTracker()
        try:
            known = None if outer.ledger is None else await child_run_id(self._agent_id, prompt, ctx)
            run_id = known or new_run_id()
            resolved = resolve(outer.registries, self._agent_id)
            tell_started(self._agent_id, run_id, ctx)
            scope = _inner(outer, caller, spent, CalledBy(ctx.run_id, ctx.tool_call_id))
            options: dict[str, Any] = {"scope": scope, "deps": ctx.deps, "budget": ctx.budget}
            if known is not None and outer.ledger is not None and await was_left(outer.ledger, known):
                result = await resume_resolved(resolved, run_id, **options)
            else:
                result = await run_resolved(resolved, prompt, run_id=run_id, **options)
        except GraphrtError as error:
            reason = f"agent {self._agent_id!r} could not be run: {error.message}"
            return DelegateReply(error=reason, cause=error)
        except BaseException:
            caller.used(spent.total if spent.calls else None)  # it was used, whatever became of the call
            raise
        return _reply(self._agent_id, result)


def _inner(outer: RunScope, caller: Caller, spent: CostTracker, called_by: CalledBy) -> RunScope:
    """Give the scope of an agent that is called: one deeper, and its questions are the caller's to wait for."""
    on_ask, on_usage = outer.on_ask or outer.on_ask_below, outer.on_usage

    def use(usage: TokenUsage | None) -> None:
        spent.add(usage)
        if on_usage is not None:
            on_usage(usage)

    ask = None if on_ask is None else _waiting(on_ask, caller)
    return replace(outer, depth=outer.depth + 1, params={}, on_ask=ask, on_usage=use, called_by=called_by)


def _waiting(on_ask: OnAsk, caller: Caller) -> OnAsk:
    async def ask(question: Question) -> Any:
        with caller.waiting():
            answer = on_ask(question)
            return await answer if inspect.isawaitable(answer) else answer

    return ask


_ENDED: Final[Mapping[RunStatus, str]] = MappingProxyType(
    {
        RunStatus.FAILED: "failed",
        RunStatus.STOPPED: "was stopped",
        RunStatus.CANCELLED: "was cancelled",
        RunStatus.TIMED_OUT: "ran out of time",
    }
)


def _reply(agent_id: str, result: RunResult) -> DelegateReply:
    """Say how a run has ended, for the model that asked."""
    if result.status is RunStatus.SUCCEEDED:
        said = result.response
        return DelegateReply(str(result.output) if said is None else said.content, result.run_id, result.usage)
    if result.status is RunStatus.WAITING:
        reason = f"agent {agent_id!r} was left waiting for a person: nobody answers questions here"
        return DelegateReply(run_id=result.run_id, usage=result.usage, error=reason)
    blocked = result.termination.kind is TerminationKind.BLOCKED
    how = "was blocked" if blocked else _ENDED.get(result.status, f"ended as {result.status}")
    kind = ToolErrorKind.DENIED if blocked else ToolErrorKind.EXECUTION
    if result.status is RunStatus.TIMED_OUT:
        kind = ToolErrorKind.TIMEOUT
    return DelegateReply(
        run_id=result.run_id,
        usage=result.usage,
        error=f"agent {agent_id!r} {how}: {_reason(result)}",
        kind=kind,
        cause=result.error,
    )


def _reason(result: RunResult) -> str:
    limit, error = result.termination.code, result.error
    if limit is not None:
        return f"its limit {limit!r} was reached"
    return error.message if isinstance(error, GraphrtError) else f"{type(error).__name__}: {error}"
