"""`RuntimeBundle`: everything that one agent's sessions run with, passed explicitly."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from graphrt.agent.registered import context_settings, model_name
from graphrt.config import AgentConfig
from graphrt.errors import ConfigError, ToolError
from graphrt.hooks import HookExecutor
from graphrt.llm.executor import LLMExecutor
from graphrt.llm.provider import LLMProvider
from graphrt.tools.base import Tool, ToolContext, ToolDescriptor, ToolResult
from graphrt.tools.registry import ToolRegistry
from graphrt.tools.schema import check_against

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from graphrt.agent.agent import Agent
    from graphrt.memory.retriever import MemoryRetriever
    from graphrt.memory.store import MemoryStore
    from graphrt.registry import AgentSpec, RegistrySet

log = logging.getLogger(__name__)

MODEL_ID: Final = "default"
"""Id of the model in a bundle's registries."""
PROVIDER_ID: Final = "bundle"
"""Id of the provider in a bundle's registries."""


@dataclass(frozen=True)
class RuntimeBundle:
    """What one agent's sessions run with; made by `AgentBuilder`, and shared by as many sessions as wanted.

    Attributes:
        provider: Whom models are asked of.
        tool_registry: A layer of the bundle's own over the registry it was given.
        hook_executor: Who is told of turns and requests.
        memory_store: Persistent memory, for the application's own use.
        retriever: What the tool `retrieve` asks.
        session_memory_backend: Where the memory of sessions is kept; None: each session keeps its own.
        config: Limits, the model and what else can be chosen.
    """

    provider: LLMProvider | LLMExecutor
    tool_registry: ToolRegistry
    hook_executor: HookExecutor
    memory_store: MemoryStore | None = None
    retriever: MemoryRetriever | None = None
    session_memory_backend: MemoryStore | None = None
    config: AgentConfig = field(default_factory=AgentConfig)

    @classmethod
    def new(
        cls,
        *,
        provider: LLMProvider | LLMExecutor,
        tool_registry: ToolRegistry,
        hook_executor: HookExecutor,
        memory_store: MemoryStore | None = None,
        retriever: MemoryRetriever | None = None,
        session_memory_backend: MemoryStore | None = None,
        config: AgentConfig | None = None,
    ) -> RuntimeBundle:
        """Make a bundle, and register a tool `retrieve` when there is a retriever; use `AgentBuilder`.

        Raises:
            ConfigError: A part is of the wrong type, or there is a tool called `retrieve` besides the retriever.
        """
        config = AgentConfig() if config is None else config
        for name, value in {
            "provider": provider,
            "tool_registry": tool_registry,
            "hook_executor": hook_executor,
            "memory_store": memory_store,
            "retriever": retriever,
            "session_memory_backend": session_memory_backend,
            "config": config,
        }.items():
            _check_part(name, value)
        return cls(
            provider=provider,
            tool_registry=_overlay(tool_registry, retriever),
            hook_executor=hook_executor,
            memory_store=memory_store,
            retriever=retriever,
            session_memory_backend=session_memory_backend,
            config=config,
        )

    def to_registry_set(self, agent: Agent, *, tools: Iterable[Tool] = ()) -> RegistrySet:
        """Make the registries in which *agent* is the only one, for `resolve()`.

        The agent's id is its name; model and provider are `"default"` and `"bundle"`. *tools* are offered besides what
        the agent lists.

        Raises:
            ConfigError: A tool of the agent's own has the id of another one.
        """
        from graphrt.plugins import HookBridgePlugin
        from graphrt.registry import (
            MapAgentSpecRegistry,
            MapModelRegistry,
            MapPluginSource,
            MapProviderRegistry,
            ModelSpec,
            RegistrySet,
        )

        extra = list(tools)
        registry = _with_tools(self.tool_registry, agent, extra)
        definitions = [*agent.tool_definitions(self), *(tool.descriptor for tool in extra)]
        bridge = HookBridgePlugin(self.hook_executor)
        bridge_id = bridge.descriptor.id
        spec = self._spec(agent, [each.id for each in definitions], bridge_id)
        return RegistrySet(
            agents=MapAgentSpecRegistry([spec]),
            tools=_as_defined(registry, definitions, agent),
            models=MapModelRegistry([ModelSpec(MODEL_ID, PROVIDER_ID, model_name(self.provider, self.config))]),
            providers=MapProviderRegistry({PROVIDER_ID: self.provider}),
            plugins=MapPluginSource({bridge_id: bridge}),
        )

    def _spec(self, agent: Agent, allowed: Sequence[str], bridge_id: str) -> AgentSpec:
        from graphrt.registry import AgentSpec

        return AgentSpec(
            id=agent.name,
            model=MODEL_ID,
            system_prompt=agent.system_prompt or "",
            max_rounds=self.config.max_rounds,
            plugin_ids=[bridge_id],
            allowed_tools=list(allowed),
            **context_settings(self.config),
        )


class RedescribedTool(Tool):
    """A tool of which the model is told something else than the tool says of itself."""

    def __init__(self, tool: Tool, descriptor: ToolDescriptor) -> None:
        """Take the tool, and what the model is told of it; arguments have to fit both."""
        self._tool = tool
        self._descriptor = descriptor
        self.timeout = tool.timeout
        self.requires_approval = tool.requires_approval
        self.exclusive = tool.exclusive

    @property
    def descriptor(self) -> ToolDescriptor:
        """What the model is told."""
        return self._descriptor

    def check(self, arguments: Mapping[str, Any]) -> None:
        """Check arguments against what the model was told, and then as the tool does.

        Raises:
            ToolError: They do not fit.
        """
        if self._descriptor.parameters != self._tool.descriptor.parameters:
            check_against(self._descriptor.parameters, arguments, tool_id=self._descriptor.id)
        self._tool.check(arguments)

    async def execute(self, arguments: dict[str, Any], ctx: ToolContext[Any]) -> ToolResult | Any:
        """Do what the tool does."""
        return await self._tool.execute(arguments, ctx)


def _overlay(registry: ToolRegistry, retriever: MemoryRetriever | None) -> ToolRegistry:
    overlay = registry.child()
    if retriever is None:
        return overlay
    from graphrt.tools.retrieve import RetrieveTool

    tool = RetrieveTool(retriever)
    _add(overlay, tool, "the bundle's retriever", "rename that tool, or build the bundle without a retriever")
    return overlay


def _with_tools(registry: ToolRegistry, agent: Agent, extra: Sequence[Tool]) -> ToolRegistry:
    own: Sequence[Tool] = getattr(agent, "own_tools", ())
    if not own and not extra:
        return registry
    overlay = registry.child()
    for tool in own:
        there = overlay.get(tool.descriptor.id)
        if there is None or not _is_same(there, tool):
            _add(overlay, tool, f"agent {agent.name!r}", "give one of them another id")
    for tool in extra:
        _add(overlay, tool, "the session", "give the agent's tool another id")
    return overlay


def _add(registry: ToolRegistry, tool: Tool, source: str, hint: str) -> None:
    """Add a tool.

    Raises:
        ConfigError: Its id is taken.
    """
    try:
        registry.register(tool, source=source)
    except ToolError as error:
        raise ConfigError(error.message, cause=error, hint=hint) from error


def _is_same(one: Tool, other: Tool) -> bool:
    function = getattr(other, "__wrapped__", None)
    return one is other or (function is not None and getattr(one, "__wrapped__", None) is function)


def _as_defined(registry: ToolRegistry, definitions: Sequence[ToolDescriptor], agent: Agent) -> ToolRegistry:
    """Give the tools in the order and under the definitions in which they are offered, then the others."""
    tools = registry.tools()
    found = ToolRegistry(permission_checker=registry.permission_checker)
    for each in definitions:
        tool = tools.pop(each.id, None)
        if tool is None:
            if each.id not in found:
                log.warning("agent %r defines the tool %r, which its bundle lacks", agent.name, each.id)
            continue
        tool = tool if each == tool.descriptor else RedescribedTool(tool, each)
        found.register(tool, source=registry.source(each.id))
    for id, tool in tools.items():
        found.register(tool, source=registry.source(id))
    return found


# --- what the parts have to be ---------------------------------------------------------------------------


def _has(*methods: str) -> Callable[[object], bool]:
    return lambda value: all(callable(getattr(value, name, None)) for name in methods)


def _is(*kinds: type) -> Callable[[object], bool]:
    return lambda value: isinstance(value, kinds)


_STORE: Final = _has("save", "load", "search", "delete", "clear")
_PARTS: Final[Mapping[str, tuple[bool, Callable[[object], bool], str]]] = {
    "provider": (True, _is(LLMProvider, LLMExecutor), "an LLMProvider or an LLMExecutor"),
    "tool_registry": (True, _is(ToolRegistry), "a ToolRegistry"),
    "hook_executor": (True, _is(HookExecutor), "a HookExecutor"),
    "memory_store": (False, _STORE, "a MemoryStore"),
    "retriever": (False, _has("retrieve"), "a MemoryRetriever"),
    "session_memory_backend": (False, _STORE, "a MemoryStore"),
    "config": (True, _is(AgentConfig), "an AgentConfig"),
}


def _check_part(name: str, value: object) -> None:
    """Refuse a part of the wrong type.

    Raises:
        ConfigError: It is of the wrong type.
    """
    required, fits, wanted = _PARTS[name]
    if isinstance(value, type) or not (fits(value) or (value is None and not required)):
        shown = f"the class {value.__name__}" if isinstance(value, type) else f"of type {type(value).__name__}"
        raise ConfigError(f"{name} of the bundle is {shown}", hint=f"give {wanted}{'' if required else ', or None'}")
