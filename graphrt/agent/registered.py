"""Agents of registries, as sessions and runtimes see them."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from graphrt.agent.agent import Agent
from graphrt.config import ContextPolicy
from graphrt.errors import AgentNotFoundError, ConfigError, ToolError
from graphrt.tools.registry import ToolRegistry

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from graphrt.agent.bundle import RuntimeBundle
    from graphrt.config import AgentConfig
    from graphrt.hooks import HookExecutor
    from graphrt.plugins import Plugin
    from graphrt.registry import AgentSpec, AgentSpecRegistry, PluginSource, RegistrySet
    from graphrt.tools.base import Tool, ToolDefinition


class RegisteredAgent(Agent):
    """An agent of a runtime's registries: read anew each time, so that a session follows what is registered."""

    def __init__(self, registries: RegistrySet, agent_id: str, config: AgentConfig) -> None:
        """Take the registries, the agent's id in them, and the runtime's config."""
        self._registries = registries
        self._id = agent_id
        self._config = config

    @property
    def name(self) -> str:
        """The agent's id."""
        return self._id

    @property
    def system_prompt(self) -> str | None:
        """The spec's prompt, else the text that the runtime's config was given.

        Raises:
            AgentNotFoundError: The agent is not registered any more.
        """
        return self.spec.system_prompt or _text_given(self._config)

    @property
    def spec(self) -> AgentSpec:
        """The agent's spec.

        Raises:
            AgentNotFoundError: The agent is not registered any more.
        """
        agents = self._registries.agents
        spec = agents.get(self._id)
        if spec is None:
            raise AgentNotFoundError(self._id, agents.ids())
        return spec

    def tool_definitions(self, bundle: RuntimeBundle) -> list[ToolDefinition]:
        """List what resolution gives the agent, whatever the bundle.

        Raises:
            ResolveError: The agent cannot be put together.
        """
        from graphrt.registry import resolve

        return [replace(tool.descriptor, id=id) for id, tool in resolve(self._registries, self._id).tools.items()]

    def world(self, tools: Sequence[Tool] = ()) -> RegistrySet:
        """Give the registries, in which the agent has *tools* besides its own.

        Raises:
            ConfigError: A tool of that id is there already.
        """
        return with_tools(self._registries, self._id, tools) if tools else self._registries


def with_tools(registries: RegistrySet, agent_id: str, tools: Sequence[Tool]) -> RegistrySet:
    """Give registries in which one agent has *tools* besides its own.

    Raises:
        ConfigError: A tool of that id is there already.
    """
    source = registries.tools
    overlay = ToolRegistry(permission_checker=getattr(source, "permission_checker", None))
    told = getattr(source, "source", None)
    try:
        for id in source.ids():
            if (tool := source.get(id)) is not None:
                overlay.register(tool, id=id, source=told(id) if callable(told) else "the runtime's tools")
        for tool in tools:
            overlay.register(tool, source="the session")
    except ToolError as error:
        raise ConfigError(error.message, cause=error, hint="give the agent's tool another id") from error
    extra = [tool.descriptor.id for tool in tools]

    def allow(spec: AgentSpec) -> AgentSpec:
        if spec.id != agent_id:
            return spec.model_copy(update={"excluded_tools": [*spec.excluded_tools, *extra]})
        allowed = spec.allowed_tools
        return spec if allowed is None else spec.model_copy(update={"allowed_tools": [*allowed, *extra]})

    return replace(registries, agents=_Altered(registries.agents, allow), tools=overlay)


def bridged(registries: RegistrySet, hooks: HookExecutor) -> RegistrySet:
    """Give registries in which every agent's requests are told to *hooks*.

    Raises:
        ConfigError: Another plugin has the id of the one that tells them.
    """
    from graphrt.plugins import HookBridgePlugin

    plugin = HookBridgePlugin(hooks)
    id = plugin.descriptor.id
    there = registries.plugins.get(id)
    if there is not None and not (isinstance(there, HookBridgePlugin) and there.hooks is hooks):
        raise ConfigError(
            f"a plugin is registered as {id!r}, the id of the built-in one that calls the hooks of a hook executor",
            hint="register it under another id, or give no hook executor",
        )

    def bridge(spec: AgentSpec) -> AgentSpec:
        if spec.endpoint is not None or id in spec.plugin_ids:
            return spec
        return spec.model_copy(update={"plugin_ids": [id, *spec.plugin_ids]})

    return replace(
        registries,
        agents=_Altered(registries.agents, bridge),
        plugins=_WithPlugin(registries.plugins, id, plugin),
    )


def hooks_of(registries: RegistrySet) -> HookExecutor | None:
    """Give the hooks that a `HookBridgePlugin` among the plugins calls; None without one."""
    from graphrt.plugins import HookBridgePlugin

    plugins = (registries.plugins.get(id) for id in registries.plugins.ids())
    return next((each.hooks for each in plugins if isinstance(each, HookBridgePlugin)), None)


def compacting(registries: RegistrySet, config: AgentConfig) -> RegistrySet:
    """Give registries whose agents have old messages summarised as the config wants it, unless they say how."""
    settings = context_settings(config)
    if not settings:
        return registries

    def settle(spec: AgentSpec) -> AgentSpec:
        if spec.endpoint is not None:
            return spec
        policy = settings["context_policy"] if spec.context_policy is None else spec.context_policy
        sections = {**settings["sections"], **spec.sections}
        return spec.model_copy(update={"context_policy": policy, "sections": sections})

    return replace(registries, agents=_Altered(registries.agents, settle))


@dataclass(frozen=True)
class _Altered:
    """Agents as another registry has them, each changed in the same way."""

    agents: AgentSpecRegistry
    change: Any

    def get(self, id: str, /) -> AgentSpec | None:
        spec = self.agents.get(id)
        if spec is None:
            return None
        changed: AgentSpec = self.change(spec)
        return changed

    def ids(self) -> list[str]:
        return self.agents.ids()


@dataclass(frozen=True)
class _WithPlugin:
    """The plugins of another source, and one more."""

    plugins: PluginSource
    id: str
    plugin: Plugin

    def get(self, id: str, /) -> Plugin | None:
        return self.plugin if id == self.id else self.plugins.get(id)

    def ids(self) -> list[str]:
        return [*(each for each in self.plugins.ids() if each != self.id), self.id]


# --- what a config says of specs --------------------------------------------------------------------------


def context_settings(config: AgentConfig) -> dict[str, Any]:
    """Give the fields of a spec that have old messages summarised as the config wants it."""
    compact = config.compact_config
    if compact is None:
        return {}
    return {"context_policy": ContextPolicy(), "sections": {"compaction": compact.model_dump()}}


def model_name(provider: object, config: AgentConfig) -> str:
    """Name the model to ask: the one that the config was given, else the provider's own, else the config's default."""
    if "model" in config.model_fields_set:
        return config.model
    for inside in ("inner", "provider"):  # a `RetryingExecutor`, a `ProviderExecutor`
        provider = getattr(provider, inside, provider)
    own = getattr(provider, "model", None)
    return own if isinstance(own, str) and own else config.model


def local_ids(agents: AgentSpecRegistry) -> list[str]:
    """List the agents that can be run here."""
    found: Iterable[tuple[str, AgentSpec | None]] = ((id, agents.get(id)) for id in agents.ids())
    return [id for id, spec in found if spec is not None and spec.endpoint is None]


async def prompt_of(agent: Agent, config: AgentConfig, session: object) -> str | None:
    """Give what an agent is told: its own prompt, else what the config makes for each turn; None: nothing.

    Raises:
        ConfigError: It is no text.
    """
    prompt = agent.system_prompt
    if prompt is None:
        return await _built(config, session)
    if not isinstance(prompt, str):
        raise ConfigError(
            f"the system prompt of agent {agent.name!r} is of type {type(prompt).__name__}",
            hint="let the property system_prompt give a text, or None",
        )
    return prompt


async def _built(config: AgentConfig, session: object) -> str | None:
    """Ask what makes the prompt of each turn; None when the config has a plain text."""
    builder = config.system_prompt
    if isinstance(builder, str):
        return None
    prompt: Any = builder.build(config, session)
    if inspect.isawaitable(prompt):
        prompt = await prompt
    if not isinstance(prompt, str):
        raise ConfigError(
            f"the SystemPromptBuilder gave {type(prompt).__name__}, which is no text",
            hint="return a str from build(config, session)",
        )
    return prompt


def _text_given(config: AgentConfig) -> str | None:
    prompt = config.system_prompt
    return prompt or None if isinstance(prompt, str) and "system_prompt" in config.model_fields_set else None
