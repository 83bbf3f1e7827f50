"""What runtimes are made of, where they are not given it ready-made."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final

from graphrt.agent.registered import context_settings, model_name
from graphrt.errors import ConfigError, ToolError
from graphrt.tools.base import Tool
from graphrt.tools.registry import ToolRegistry

if TYPE_CHECKING:
    from graphrt.config import AgentConfig
    from graphrt.llm.executor import LLMExecutor
    from graphrt.llm.provider import LLMProvider
    from graphrt.registry import RegistrySet
    from graphrt.telemetry import Telemetry

DEFAULT: Final = "default"
"""Id of agent, model and provider of a runtime that was made from a provider."""


def world_of(provider: LLMProvider | LLMExecutor, config: AgentConfig, tools: ToolRegistry) -> RegistrySet:
    """Make the registries of one agent that asks *provider*.

    Raises:
        ConfigError: It is no provider.
    """
    from graphrt.registry import (
        AgentSpec,
        MapAgentSpecRegistry,
        MapModelRegistry,
        MapPluginSource,
        MapProviderRegistry,
        ModelSpec,
        RegistrySet,
    )

    prompt = config.system_prompt
    spec = AgentSpec(
        id=DEFAULT,
        model=DEFAULT,
        system_prompt=prompt if isinstance(prompt, str) else "",
        max_rounds=config.max_rounds,
        **context_settings(config),
    )
    return RegistrySet(
        agents=MapAgentSpecRegistry([spec]),
        tools=tools,
        models=MapModelRegistry([ModelSpec(DEFAULT, DEFAULT, model_name(provider, config))]),
        providers=MapProviderRegistry({DEFAULT: provider}),
        plugins=MapPluginSource(),
    )


def telemetry_of(tracer_provider: Any) -> Telemetry | None:
    """Give what sends spans to a tracer provider; None, the global one, without one.

    A `Telemetry` is taken as it is.

    Raises:
        ConfigError: It is neither.
    """
    if tracer_provider is None:
        return None
    from graphrt.telemetry import Telemetry

    return tracer_provider if isinstance(tracer_provider, Telemetry) else Telemetry(tracer_provider)


def registry_of(tools: Iterable[Tool | Callable[..., Any]] | ToolRegistry) -> ToolRegistry:
    """Give a registry of tools.

    Raises:
        ConfigError: It is no sequence of tools, or two have one id.
    """
    if isinstance(tools, ToolRegistry):
        return tools
    if callable(tools) or isinstance(tools, (str, bytes)) or not isinstance(tools, Iterable):
        raise ConfigError(f"tools is a {type(tools).__name__}, which is no sequence", hint="give tools=[...]")
    registry = ToolRegistry()
    for tool in tools:
        if not isinstance(tool, Tool) and not callable(tool):
            raise ConfigError(f"{tool!r} among the tools cannot be called", hint="give tools or functions")
        try:
            registry.register(tool)
        except ToolError as error:
            raise ConfigError(error.message, cause=error, hint=error.hint) from error
    return registry
