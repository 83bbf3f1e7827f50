"""What the tests of resolution share: plugins that say what is done with them, and a small world."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from graphrt.llm import LLMExecutor, LLMProvider, ScriptedProvider
from graphrt.plugins import ConfigSchema, Plugin, PluginDescriptor, PluginRegistrar
from graphrt.registry import (
    AgentSpec,
    MapAgentSpecRegistry,
    MapModelRegistry,
    MapPluginSource,
    MapProviderRegistry,
    ModelSpec,
    RegistrySet,
)
from graphrt.tools import Tool, ToolContext, ToolDescriptor, ToolRegistry


class Named(Tool):
    """A tool that gives its own id."""

    def __init__(self, id: str) -> None:
        self.id = id

    @property
    def descriptor(self) -> ToolDescriptor:
        return ToolDescriptor(self.id)

    async def execute(self, arguments: dict[str, Any], ctx: ToolContext[Any]) -> str:
        return self.id


class Noting(Plugin):
    """A plugin that counts how often it registers."""

    def __init__(
        self,
        id: str,
        *,
        tools: Sequence[str] = (),
        schemas: Sequence[ConfigSchema] = (),
        registers: Callable[[PluginRegistrar], object] | None = None,
    ) -> None:
        self.id = id
        self.tools = tools
        self.schemas = list(schemas)
        self.registers = registers
        self.registered = 0

    @property
    def descriptor(self) -> PluginDescriptor:
        return PluginDescriptor(self.id)

    def config_schemas(self) -> list[ConfigSchema]:
        return self.schemas

    def register(self, registrar: PluginRegistrar) -> None:
        self.registered += 1
        for id in self.tools:
            registrar.tool(Named(id))
        if self.registers is not None:
            self.registers(registrar)


def tools_of(*ids: str) -> ToolRegistry:
    registry = ToolRegistry()
    for id in ids:
        registry.register(Named(id))
    return registry


def world(
    *specs: AgentSpec,
    tools: Iterable[str] = (),
    plugins: Iterable[Noting] = (),
    models: Iterable[ModelSpec] = (),
    providers: Mapping[str, LLMProvider | LLMExecutor] | None = None,
    **rest: Any,
) -> RegistrySet:
    """Make registries with the model `default` of the provider `main`, and what else is given."""
    return RegistrySet(
        agents=MapAgentSpecRegistry(specs),
        tools=tools_of(*tools),
        models=MapModelRegistry([ModelSpec("default", "main", "big-1"), *models]),
        providers=MapProviderRegistry({"main": ScriptedProvider([]), **(providers or {})}),
        plugins=MapPluginSource({plugin.id: plugin for plugin in plugins}),
        **rest,
    )
