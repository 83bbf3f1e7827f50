"""`GraphAgentRunner`: lets a graph, or an agent of graphrt's own, answer events."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, Final

from graphrt.graph.graph import CompiledGraph
from graphrt.graph.states import RunStatus, TerminationKind
from graphrt.nodes.agent_graph import AgentParts, HasParts, compile_agent
from graphrt.nodes.conversation import Prompt
from graphrt.platform.results import AgentRunResult, ResultType

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from contextlib import AbstractContextManager

    from graphrt.graph.protocols import Question, RunEvent
    from graphrt.graph.scheduler.result import RunResult
    from graphrt.graph.workflow import Workflow
    from graphrt.messages import TokenUsage
    from graphrt.platform.resources import Resources
    from graphrt.platform.runner import AgentRunContext
    from graphrt.policies import Budget
    from graphrt.registry.resolved import ResolvedAgent
    from graphrt.registry.running import RunScope
    from graphrt.telemetry import Telemetry

_SAME: Final = frozenset(
    {
        ResultType.MESSAGE_COMPLETED,
        ResultType.TOOL_CALL_STARTED,
        ResultType.TOOL_CALL_COMPLETED,
        ResultType.ARTIFACT_CREATED,
        ResultType.STATE_UPDATED,
        ResultType.ACTION_REQUESTED,
    }
)
"""Events of the engine that are results as they are."""
_OVER: Final[Mapping[RunStatus, str]] = {RunStatus.TIMED_OUT: "timeout", RunStatus.CANCELLED: "cancelled"}
"""Endings of a graph that are not a plain failure, as the ledger calls them."""


class GraphAgentRunner:
    """Runs a graph for each event, and yields what happens in it as results.

    What is streamed, said, called, made and asked for becomes a result; steps and rounds are the graph's own affair.
    The run's deadline is the graph's, and a run that is cancelled cancels it.
    """

    def __init__(
        self,
        agent: CompiledGraph | Workflow | AgentParts | HasParts | ResolvedAgent,
        *,
        input_of: Callable[[AgentRunContext], Any] | None = None,
        scope: RunScope | None = None,
        deps: Any = None,
        budget: Budget | None = None,
        on_ask: Callable[[Question], Any] | None = None,
        telemetry: Telemetry | None = None,
        declares: Resources | None = None,
    ) -> None:
        """Take what to run.

        Args:
            agent: A graph, a workflow, a resolved agent, or the parts of one.
            input_of: Makes the graph's input of the context; else the event's `message`, `messages`, `text`,
                `content` or `input` is taken, or for a graph that declares fields the whole of the event's input.
            scope: What a resolved agent shares with those that it calls; needed when it has delegates.
            deps: What nodes and tools find as `ctx.deps`.
            budget: What one run may use.
            on_ask: Answers questions of the graph.
            telemetry: Where spans go.
            declares: What the runner may use at most.
        """
        self._agent = agent
        self._input_of = input_of
        self._scope = scope
        self._deps = deps
        self._budget = budget
        self._on_ask = on_ask
        self._telemetry = telemetry
        self.declares = declares

    async def run(self, ctx: AgentRunContext) -> AsyncIterator[AgentRunResult]:
        """Run the graph once, and yield its results; the last one says how it ended."""
        graph = self._graph()
        value = default_input(ctx, graph) if self._input_of is None else self._input_of(ctx)
        stream = graph.stream(
            value,
            deps=self._deps,
            run_id=ctx.run_id,
            deadline_at=ctx.deadline_at,
            budget=self._budget,
            check=False,
            on_ask=self._on_ask,
            telemetry=self._telemetry,
        )
        with self._running():
            async with stream as run:
                async for event in run:
                    data = data_of(event)
                    if data is not None:
                        yield AgentRunResult(ctx.run_id, event.type, data)
                last = run.result
        yield last_result(ctx.run_id, last)

    def _graph(self) -> CompiledGraph:
        agent = self._agent
        if isinstance(agent, CompiledGraph):
            return agent
        if self._scope is not None and not isinstance(agent, AgentParts) and hasattr(agent, "parts"):
            from graphrt.registry.running import compile_resolved

            return compile_resolved(agent, scope=self._scope)  # type: ignore[arg-type]  # what else takes a scope
        if isinstance(agent, AgentParts | HasParts):
            return compile_agent(agent)
        return agent.compile()

    def _running(self) -> AbstractContextManager[None]:
        if self._scope is None:
            return nullcontext()
        from graphrt.registry.running import running_in

        return running_in(self._scope)


def data_of(event: RunEvent) -> Mapping[str, Any] | None:
    """Give the data of the result that an event of the engine is; None for one that is none."""
    if event.type == ResultType.MESSAGE_DELTA:
        return {"chunk": {"role": "assistant", "content": event.data["text"]}}
    if event.type == ResultType.MESSAGE_COMPLETED:
        message = event.data.get("message")
        only_calls = isinstance(message, Mapping) and not message.get("content") and message.get("tool_calls")
        return None if only_calls else event.data  # the calls are told of when they begin
    return event.data if event.type in _SAME or event.type.startswith("custom.") else None


def last_result(run_id: str, result: RunResult) -> AgentRunResult:
    """Give the result that tells how a graph's run has ended."""
    usage: TokenUsage | None = result.usage
    ending = result.termination
    if result.status in (RunStatus.SUCCEEDED, RunStatus.STOPPED):
        reason = ending.kind.value
        if ending.kind is TerminationKind.STOPPED:
            reason = f"stopped:{ending.code or 'limit'}"
        data: dict[str, Any] = {"finish_reason": reason}
        response = result.response
        if response is not None:
            data["message"] = {"role": "assistant", "content": response.content}
        elif result.status is RunStatus.SUCCEEDED and (output := _plain(result.output)) is not None:
            data["output"] = output
        return AgentRunResult(run_id, ResultType.RUN_COMPLETED, data, usage)
    verdict = getattr(result.error, "is_recoverable", None)
    data = {
        "error": ending.detail or result.status.value,
        "code": "deadline_exceeded" if result.status is RunStatus.TIMED_OUT else ending.kind.value,
        "retryable": bool(verdict()) if callable(verdict) else False,
    }
    if result.status in _OVER:
        data["status"] = _OVER[result.status]
    return AgentRunResult(run_id, ResultType.RUN_FAILED, data, usage)


def default_input(ctx: AgentRunContext, graph: CompiledGraph) -> Any:
    """Make a graph's input of what the event brings."""
    given = ctx.input
    declared = graph.program.decl.input
    if declared == Prompt:
        if isinstance(given.get("messages"), list):
            from graphrt.nodes.conversation import as_messages

            return list(as_messages(given["messages"]))
        return _text_of(given)
    if isinstance(declared, dict) or hasattr(declared, "model_validate") or declared in (dict, Mapping):
        return dict(given)
    if declared is str:
        return _text_of(given)
    return given["input"] if set(given) == {"input"} else dict(given)


def _text_of(given: Mapping[str, Any]) -> str:
    """Find the text in an input; an input of another form is written as JSON."""
    for name in ("message", "text", "content", "input"):
        found = given.get(name)
        if isinstance(found, Mapping):
            found = found.get("content")
        if isinstance(found, str):
            return found
    return json.dumps(dict(given), ensure_ascii=False, default=str)


def _plain(value: Any) -> Any:
    """Give a value as JSON holds it; None when it cannot."""
    from pydantic_core import to_jsonable_python

    try:
        return to_jsonable_python(value)
    except Exception:  # noqa: BLE001 - a value of the user's, of any kind; the run has succeeded all the same
        return None
