"""The third stage of resolution: tools of all sources, and which of them the agent gets."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, TypeAlias

from graphrt.errors import ToolIdConflictError
from graphrt.registry.lookup import AGENT, TOOL, asked, find
from graphrt.registry.registries import A2A
from graphrt.tools.registry import ToolRegistry

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from graphrt.plugins import ExecutionEnv
    from graphrt.registry.registries import RegistrySet
    from graphrt.registry.specs import AgentSpec
    from graphrt.tools.base import Tool

log = logging.getLogger(__name__)

Offer: TypeAlias = tuple[str, str, "Tool"]
"""A tool's id, where it comes from in words, and the tool."""


def gather_tools(registries: RegistrySet, spec: AgentSpec, env: ExecutionEnv) -> dict[str, Tool]:
    """Merge global tools, delegates and the plugins' tools, in this order, and leave out what *spec* leaves out.

    Raises:
        ResolveError: Two sources give one id, though none of the two tools may be wanted; or a source fails.
    """
    offers = [*_global_tools(registries), *_delegates(registries, spec), *_plugin_tools(env)]
    tools = merge(offers)
    off = env.tools.keys() - env.active_tools(spec.active_hook_filter).keys()
    return {id: tool for id, tool in tools.items() if id not in off and is_wanted(spec, id)}


def merge(offers: Iterable[Offer]) -> dict[str, Tool]:
    """Put tools together by id, in order.

    Raises:
        ToolIdConflictError: Two have one id.
    """
    tools: dict[str, Tool] = {}
    sources: dict[str, str] = {}
    for id, source, tool in offers:
        if id in tools:
            raise ToolIdConflictError(id, sources[id], source)
        tools[id], sources[id] = tool, source
    return tools


def is_wanted(spec: AgentSpec, tool_id: str) -> bool:
    """Say whether a spec's lists let a tool through; excluding one wins over allowing it."""
    allowed = spec.allowed_tools is None or tool_id in spec.allowed_tools
    return allowed and tool_id not in spec.excluded_tools


def _global_tools(registries: RegistrySet) -> Iterator[Offer]:
    registry = registries.tools
    for id in asked("the registry of tools failed to list its ids", lambda: list(dict.fromkeys(registry.ids()))):
        origin = registry.source(id) if isinstance(registry, ToolRegistry) else None
        yield id, f"global tools ({origin})" if origin else "global tools", find(registry, TOOL, id)


def _delegates(registries: RegistrySet, spec: AgentSpec) -> Iterator[Offer]:
    """Make a tool of each agent that this one may ask."""
    if not spec.delegates:
        return
    if A2A not in registries.features:
        log.warning(
            "agent %r is resolved without its delegates (%s): feature 'a2a' is off",
            spec.id,
            ", ".join(spec.delegates),
        )
        return
    from graphrt.registry.backends import local_delegate, remote_delegate
    from graphrt.tools.delegate import AgentTool

    for id in spec.delegates:
        other = find(registries.agents, AGENT, id)
        remote = other.endpoint is not None
        tool = AgentTool(id, remote_delegate(registries, other) if remote else local_delegate(registries, id))
        yield tool.descriptor.id, f"delegate {id}", tool


def _plugin_tools(env: ExecutionEnv) -> Iterator[Offer]:
    for id, tool in env.tools.items():
        yield id, f"plugin {env.tool_owner(id)}", tool
