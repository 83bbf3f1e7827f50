"""An agent as a graph: a model, those that stand in for it, its tools, and one edge back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, runtime_checkable

from graphrt.config import is_recoverable_llm_error
from graphrt.errors import ConfigError
from graphrt.graph.protocols import END, START
from graphrt.graph.workflow import Workflow
from graphrt.llm.retries import RetryingExecutor
from graphrt.nodes.approval import ApprovalNode, ApprovedToolNode, CallNode, SettledNode
from graphrt.nodes.conversation import Misfit, Prompt, ToolCalls, new_state_class
from graphrt.nodes.delegate import ApprovedDelegateNode, DelegateNode
from graphrt.nodes.inference import FallbackNode, InferenceNode, model_retry
from graphrt.nodes.phased import Phases, SettledCall, is_plugins_own
from graphrt.nodes.rounds import AnsweringNode, InputCheckNode, ReplyNode, ResultsNode, SpeakingNode
from graphrt.nodes.structured import output_format
from graphrt.nodes.tool import ToolNode, UnknownToolNode
from graphrt.tools.delegate import AgentTool

if TYPE_CHECKING:
    from collections.abc import Callable

    from graphrt.config import RetryConfig
    from graphrt.graph.graph import CompiledGraph
    from graphrt.hooks import HookExecutor
    from graphrt.llm.executor import LLMExecutor
    from graphrt.llm.provider import LLMProvider
    from graphrt.messages import ToolCall
    from graphrt.nodes.inference import Model, OnUsage, Prepare
    from graphrt.nodes.rounds import InputCheck
    from graphrt.nodes.spending import CostOf
    from graphrt.plugins.runtime import PhaseRuntime
    from graphrt.policies import RetryPolicy
    from graphrt.tools.base import Tool
    from graphrt.tools.permission import PermissionChecker

OnLimit: TypeAlias = Literal["stop", "answer"]
CheckMode: TypeAlias = Literal["block", "parallel"]
ToolExecution: TypeAlias = Literal["parallel", "sequential"]


@dataclass(frozen=True)
class AgentParts:
    """Everything an agent consists of, ready to be compiled."""

    name: str
    executor: LLMProvider | LLMExecutor
    """Asks the model. A `RetryingExecutor` is taken apart: its retries, and its fallbacks, become nodes'."""
    model_name: str | None = None
    """The provider's own name of the model; None: the provider's default."""
    fallbacks: Sequence[tuple[LLMProvider | LLMExecutor, str | None]] = ()
    """Models that stand in, in this order, when the one before cannot be asked."""
    tools: Sequence[Tool] | Mapping[str, Tool] = ()
    """Tools, or tools by the name that the model calls them by."""
    system_prompt: str | None = None
    output: Any = str
    """Type of the answer."""
    max_rounds: int = 10
    """Inferences of one run."""
    on_limit: OnLimit = "stop"
    """`"answer"`: the last permitted round offers no tools, and its text is the answer."""
    params: Mapping[str, Any] = field(default_factory=dict)
    """Request parameters by the names that `LLMProvider.chat` takes."""
    permission: PermissionChecker | None = None
    """Decides on each call of a tool."""
    retry: RetryPolicy | RetryConfig | None = None
    """When a model is asked again; unless it says otherwise, when another try may help."""
    tool_execution: ToolExecution = "parallel"
    """Whether the calls of one round run together or one after another."""
    tool_timeout: float | None = None
    """Seconds that one call of a tool may take."""
    input_check: InputCheck | None = None
    """Judges the input."""
    input_check_mode: CheckMode = "block"
    """`"parallel"`: beside the first inference; no tool starts before the verdict."""
    prepare: Prepare | None = None
    """Changes each request before it is sent."""
    cost_of: CostOf | None = None
    """What a call of the model has cost, for budgets that limit the cost."""
    phases: Callable[[], PhaseRuntime] | None = None
    """Makes the plugins' side of one activation of the graph."""
    on_usage: OnUsage | None = None
    """Called once for each reply of a model, with the usage it reported."""
    session_id: str | None = None
    """The session that tools and hooks are told of."""
    hooks: HookExecutor | None = None
    """Their `ON_RETRY` hooks are called before a model is asked again; a `RetryingExecutor`'s own when None."""


@runtime_checkable
class HasParts(Protocol):
    """What an agent was put together from, such as the `ResolvedAgent` of `graphrt.registry`."""

    def parts(self) -> AgentParts:
        """Give what there is to compile."""
        ...


def compile_agent(resolved: AgentParts | HasParts) -> CompiledGraph:
    """Make the graph of an agent.

    ```
    START -> inference -[cannot be asked]-> fallback:<model> ...      inference, fallback:* -> reply
    reply -[no tool calls]-> END
    reply -map, one scope for each call-> call -by tool id-> tool:<id>, or unknown
    tool:<id>, unknown -gather, in the order of the calls-> results -> inference      (the one back edge)
    ```

    A tool that requires approval has a node `approve:<id>` before it, which asks a person. With an input check
    there is a node `check`, before `inference` or beside it. With plugins, a call that one of them answers in the place
    of its tool goes to a node `settled`.

    Raises:
        ConfigError: Two tools have one name, or a setting is none of those there are.
    """
    return _Plan(resolved if isinstance(resolved, AgentParts) else resolved.parts()).workflow().compile()


class _Plan:
    """One agent on its way to a graph."""

    def __init__(self, resolved: AgentParts) -> None:
        check_settings(resolved)
        self.agent = _taken_apart(resolved)
        executor = resolved.executor
        self.accept = executor.accept if isinstance(executor, RetryingExecutor) else None
        self.hooks = resolved.hooks or (executor.hooks if isinstance(executor, RetryingExecutor) else None)
        self.phases = None if resolved.phases is None else Phases(resolved.phases)
        self.tools = tools_by_id(resolved)
        self.form = output_format(resolved.output)
        self.retry = model_retry(self.agent.retry)
        if self.phases is not None and self.retry is not None:
            self.retry = replace(self.retry, retry_on=_unless_a_plugins(self.retry.retries))
        self.state = new_state_class()

    def workflow(self) -> Workflow:
        """Declare the graph."""
        agent = self.agent
        output = Any if self.form is None and agent.output is not str else agent.output
        graph = Workflow(agent.name, input=Prompt, output=output, state=self.state, max_rounds=agent.max_rounds)
        checks = agent.input_check is not None
        blocks = agent.input_check_mode == "block"
        if agent.input_check is not None:
            graph.add(InputCheckNode(agent.name, agent.input_check, passes_on=blocks))
        speakers = self._add_models(graph)
        reply = ReplyNode(output, self.form, waits_for="check" if checks and not blocks else None, phases=self.phases)
        graph.add(reply)
        graph.chain(START, "check", "inference") if checks and blocks else graph.chain(START, "inference")
        for name in speakers:
            graph.edge(name, "reply")
        if checks and not blocks:
            graph.chain(START, "check", "reply")
        graph.edge("reply", END, when=_answers, label="no tool calls")
        self._add_tools(graph)
        graph.edge("results", "inference")
        return graph

    def _add_models(self, graph: Workflow) -> list[str]:
        """Add the model and those that stand in for it, each after the failure of the one before."""
        agent = self.agent
        graph.add(self._speaking(InferenceNode, "inference", (agent.executor, agent.model_name)), retry=self.retry)
        names = ["inference"]
        again = _unless_a_plugins(is_recoverable_llm_error if self.retry is None else self.retry.retries)
        for index, model in enumerate(agent.fallbacks, start=1):
            name = f"fallback:{model[1] or index}"
            if name in names:
                name = f"{name}#{index}"
            graph.add(self._speaking(FallbackNode, name, model), retry=self.retry)
            graph.edge(names[-1], name, on_error=Exception, when=again, label="cannot be asked")
            names.append(name)
        return names

    def _speaking(self, kind: type[InferenceNode], name: str, model: Model) -> SpeakingNode:
        agent = self.agent
        params = dict(agent.params)
        if self.form is not None:
            params["response_format"] = self.form.model
        node = kind(
            name,
            model=model,
            system_prompt=agent.system_prompt,
            tools=[replace(tool.descriptor, id=name) for name, tool in self.tools.items()],
            params=params,
            accept=self.accept,
            prepare=agent.prepare,
            retry=self.retry,
            hooks=self.hooks,
            cost_of=agent.cost_of,
            on_usage=agent.on_usage,
            session_id=agent.session_id,
        )
        last = agent.max_rounds if agent.on_limit == "answer" and self.tools else None
        return SpeakingNode(node, self.state, form=self.form, last_round=last, phases=self.phases)

    def _add_tools(self, graph: Workflow) -> None:
        """Add one round's calls: a scope for each, its tool, and the way back."""
        agent = self.agent
        asked = {name: tool for name, tool in self.tools.items() if tool.requires_approval}
        graph.add(CallNode(asked, agent.permission, self.phases))
        slots = 1 if agent.tool_execution == "sequential" else 100
        graph.map("reply", "call", when=asks_for_tools, max_concurrency=slots)
        cases: dict[Any, str] = {}
        answering: list[str] = []
        for name, tool in self.tools.items():
            node = self._tool_node(name, tool)
            answering.append(graph.add(AnsweringNode(node)))
            cases[name] = node.name
            if name in asked:
                cases[name] = graph.add(ApprovalNode(tool, name))
                graph.edge(cases[name], node.name, into="approval")
        answering.append(graph.add(AnsweringNode(UnknownToolNode(known=list(self.tools)))))
        if asked or self.phases is not None:
            answering.append(graph.add(AnsweringNode(SettledNode())))
            cases[_SETTLED] = "settled"
        graph.branch("call", cases, key=_tool_of, default="unknown")
        graph.add(ResultsNode(structured=self.form is not None, phases=self.phases))
        for name in answering:
            graph.gather(name, "results", into="answered")
        if self.form is not None:
            graph.edge("reply", "results", when=_misfits, into="misfit", label="not of the form asked for")

    def _tool_node(self, name: str, tool: Tool) -> ToolNode:
        agent = self.agent
        options: dict[str, Any] = {
            "name": f"tool:{name}",
            "permission": agent.permission,
            "timeout": agent.tool_timeout,
            "gated": any(each.exclusive for each in self.tools.values()),
            "phases": self.phases,
            "session_id": agent.session_id,
        }
        kind: type[ToolNode] = ToolNode
        if isinstance(tool, AgentTool):
            kind = ApprovedDelegateNode if tool.requires_approval else DelegateNode
        elif tool.requires_approval:
            kind = ApprovedToolNode
        return kind(tool, **options)


def _unless_a_plugins(rule: Callable[[Exception], bool]) -> Callable[[Exception], bool]:
    """Give the rule without errors of plugins: whatever they raise, the model is not asked again for it."""

    def retries(error: Exception) -> bool:
        return not is_plugins_own(error) and rule(error)

    return retries


class _Settled:
    """Stands for the tool of a call that is answered without one; equal to no name."""

    def __repr__(self) -> str:  # the same in every process: fingerprints are made of it
        return "settled"


_SETTLED = _Settled()


def _tool_of(call: ToolCall) -> object:
    return _SETTLED if isinstance(call, SettledCall) else call.name


def asks_for_tools(reply: Any) -> bool:
    """Tell whether a reply has calls; pictures show the name."""
    return isinstance(reply, ToolCalls)


def _misfits(reply: Any) -> bool:
    return isinstance(reply, Misfit)


def _answers(reply: Any) -> bool:
    return not isinstance(reply, (ToolCalls, Misfit))


def _taken_apart(resolved: AgentParts) -> AgentParts:
    executor = resolved.executor
    if not isinstance(executor, RetryingExecutor):
        return resolved
    return replace(
        resolved,
        executor=executor.inner,
        fallbacks=(*executor.fallbacks, *resolved.fallbacks),
        retry=resolved.retry or executor.policy,
    )


def tools_by_id(resolved: AgentParts) -> dict[str, Tool]:
    """Give an agent's tools by the name that the model calls them by.

    Raises:
        ConfigError: Two have one name.
    """
    if isinstance(resolved.tools, Mapping):
        return dict(resolved.tools)
    found: dict[str, Tool] = {}
    for tool in resolved.tools:
        name = tool.descriptor.id
        if name in found:
            raise ConfigError(
                f"agent {resolved.name!r} has two tools called {name!r}",
                hint="give one of them another id",
            )
        found[name] = tool
    return found


def check_settings(resolved: AgentParts) -> None:
    """Check what is given by word.

    Raises:
        ConfigError: There is no such choice.
    """
    choices = {
        "on_limit": ("stop", "answer"),
        "input_check_mode": ("block", "parallel"),
        "tool_execution": ("parallel", "sequential"),
    }
    for setting, known in choices.items():
        value = getattr(resolved, setting)
        if value not in known:
            raise ConfigError(
                f"{setting} of agent {resolved.name!r} is {value!r}",
                hint=f"give {' or '.join(map(repr, known))}",
            )
