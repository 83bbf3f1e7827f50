"""An agent as a node of a larger graph, or on its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from graphrt.errors import ConfigError, GraphError
from graphrt.graph.protocols import NodeKind
from graphrt.graph.signature import NodeSignature, Param
from graphrt.nodes.agent_graph import AgentParts, check_settings, compile_agent, tools_by_id
from graphrt.nodes.conversation import Prompt
from graphrt.nodes.inference import as_executor
from graphrt.nodes.tool import as_tool
from graphrt.tools.base import Tool
from graphrt.tools.registry import ToolRegistry

if TYPE_CHECKING:
    from graphrt.config import RetryConfig
    from graphrt.graph.graph import CompiledGraph
    from graphrt.graph.scheduler.context import RunContext
    from graphrt.nodes.agent_graph import CheckMode, OnLimit, ToolExecution
    from graphrt.nodes.inference import Model
    from graphrt.nodes.rounds import InputCheck
    from graphrt.nodes.spending import CostOf
    from graphrt.policies import RetryPolicy
    from graphrt.tools.permission import PermissionChecker

Tools: TypeAlias = Sequence[Tool | Callable[..., Any]] | ToolRegistry
"""Tools, functions to make some of, or a registry of them."""


class AgentNode:
    """An agent as a node: it takes a text or messages, and gives the agent's answer.

    Used alone, its graph runs like any other: `await agent.graph.run("hello")`; the result has the turn as
    `response` and the conversation as `messages`. In a larger graph the agent shares deps, budget, deadline
    and events of the run around it; its round limit is its own, and there reaching it is a failure of the node.
    """

    kind = NodeKind.AGENT

    def __init__(
        self,
        name: str,
        *,
        model: Model,
        tools: Tools = (),
        system_prompt: str | None = None,
        output: Any = str,
        max_rounds: int = 10,
        on_limit: OnLimit = "stop",
        input_check: InputCheck | None = None,
        input_check_mode: CheckMode = "block",
        retry: RetryPolicy | RetryConfig | None = None,
        fallbacks: Sequence[Model] = (),
        permission: PermissionChecker | None = None,
        temperature: float | None = None,
        max_tokens: int | None = None,
        params: Mapping[str, Any] | None = None,
        tool_execution: ToolExecution = "parallel",
        tool_timeout: float | None = None,
        cost_of: CostOf | None = None,
    ) -> None:
        """Put an agent together; it is compiled when it is first used.

        Args:
            name: Name of the node, and of the agent.
            model: Whom to ask: a provider, an executor, or one of them with the provider's name of a model.
            tools: Tools, functions to make some of, or a registry, which may also say who permits.
            system_prompt: Comes before the messages of each request, and is not kept among them.
            output: Type of the answer. For any but `str` the model is asked for JSON of that form; a reply
                that does not fit is told to it, and the next round begins.
            max_rounds: Inferences of one run, at least 1. The tools of the last round still run.
            on_limit: What happens then: `"stop"` raises `LimitExceededError`; with `"answer"` the last round
                offers no tools, and its reply is the answer, marked as cut short.
            input_check: A function of the input, async or not. True or None lets it pass; False, a text that
                says why, or an exception ends the agent with `HookBlockedError`.
            input_check_mode: `"block"` checks before the model is asked; `"parallel"` meanwhile, and then no
                tool starts before the verdict.
            retry: When a model is asked again; without a rule of its own, when another try may help.
            fallbacks: Models that stand in, in this order, when the one before cannot be asked.
            permission: Decides on each call of a tool; a registry's own when None.
            temperature: Request parameter.
            max_tokens: Request parameter: most tokens of one reply.
            params: Further request parameters, by the names that `LLMProvider.chat` takes.
            tool_execution: Whether the calls of one round run together, or one after another.
            tool_timeout: Seconds that one call of a tool may take.
            cost_of: What a call has cost, for budgets that limit the cost.

        Raises:
            ConfigError: A model cannot be asked, the tools are no sequence, two tools have one name, or a
                setting is unknown.
            ToolError: A function cannot be described to a model.
        """
        _check_is_sequence(name, tools)
        executor, model_name = as_executor(model)
        given: Sequence[Tool] | Mapping[str, Tool]
        if isinstance(tools, ToolRegistry):
            given = tools.tools()
            permission = permission or tools.permission_checker
        else:
            given = [as_tool(tool) for tool in tools]
        self.resolved = AgentParts(
            name,
            executor,
            model_name,
            fallbacks=[as_executor(each) for each in fallbacks],
            tools=given,
            system_prompt=system_prompt,
            output=output,
            max_rounds=max_rounds,
            on_limit=on_limit,
            params={**(params or {}), **_given(temperature=temperature, max_tokens=max_tokens)},
            permission=permission,
            retry=retry,
            tool_execution=tool_execution,
            tool_timeout=tool_timeout,
            input_check=input_check,
            input_check_mode=input_check_mode,
            cost_of=cost_of,
        )
        check_settings(self.resolved)
        tools_by_id(self.resolved)
        self._graph: CompiledGraph | None = None

    def __repr__(self) -> str:
        count = len(self.resolved.tools)
        return f"AgentNode({self.name!r}, {count} {'tool' if count == 1 else 'tools'})"

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        try:
            graph = self.graph
        except GraphError as error:
            return {"text/plain": f"{self!r}\n{error}"}
        return graph._repr_mimebundle_(include, exclude)

    @property
    def name(self) -> str:
        """Name of the node."""
        return self.resolved.name

    @property
    def signature(self) -> NodeSignature:
        """Takes `input`, a text or messages, and gives the declared output."""
        return NodeSignature((Param("input", Prompt),), self.resolved.output)

    @property
    def graph(self) -> CompiledGraph:
        """The agent's graph, to be run, streamed or drawn on its own.

        Raises:
            GraphError: It cannot be compiled.
        """
        if self._graph is None:
            self._graph = compile_agent(self.resolved)
        return self._graph

    def compiled_graph(self) -> CompiledGraph:
        """Give the graph to the one around it."""
        return self.graph

    async def run(self, inputs: Mapping[str, Any], ctx: RunContext[Any]) -> Any:
        """Run the agent by itself, with the deps and the budget of *ctx*, and give its answer.

        In a graph the engine does not call this: it opens the agent's graph inside the run.

        Raises:
            LimitExceededError: `max_rounds` was reached, or the budget is spent.
            Exception: Whatever else ended the agent.
        """
        result = await self.graph.run(inputs["input"], deps=ctx.deps, budget=ctx.budget)
        return result.output


def _check_is_sequence(agent: str, tools: object) -> None:
    """Refuse one tool in place of several.

    Raises:
        ConfigError: It is no sequence.
    """
    if isinstance(tools, (ToolRegistry, Iterable)) and not callable(tools) and not isinstance(tools, (str, bytes)):
        return
    name = getattr(tools, "__name__", "")
    shown = name if name.isidentifier() else "fn"
    what = f"function {name!r}" if name else type(tools).__name__
    raise ConfigError(
        f"the tools of agent {agent!r} are a sequence, not the {what}",
        hint="give a sequence of tools or functions" if isinstance(tools, (str, bytes)) else f"give tools=[{shown}]",
    )


def _given(**values: Any) -> dict[str, Any]:
    """Leave out what was not asked for: it must not hide a parameter of the same name."""
    return {name: value for name, value in values.items() if value is not None}
