"""Which agents, models, providers, tools and plugins there are, and how an agent is put together from them."""

from __future__ import annotations

from typing import TYPE_CHECKING

__all__ = [
    "AgentRuntimeBuilder",
    "AgentSpec",
    "AgentSpecRegistry",
    "BackendFactory",
    "MapAgentSpecRegistry",
    "MapModelRegistry",
    "MapPluginSource",
    "MapProviderRegistry",
    "MapToolRegistry",
    "ModelRegistry",
    "ModelSpec",
    "PluginSource",
    "ProviderRegistry",
    "Registry",
    "RegistrySet",
    "RemoteBackend",
    "RemoteEndpoint",
    "ResolvedAgent",
    "RunScope",
    "ToolSource",
    "resolve",
    "run_resolved",
]

if TYPE_CHECKING:
    from graphrt.agent.runtime_builder import AgentRuntimeBuilder
    from graphrt.registry.backends import BackendFactory, RemoteBackend
    from graphrt.registry.registries import (
        AgentSpecRegistry,
        MapAgentSpecRegistry,
        MapModelRegistry,
        MapPluginSource,
        MapProviderRegistry,
        MapToolRegistry,
        ModelRegistry,
        PluginSource,
        ProviderRegistry,
        Registry,
        RegistrySet,
        ToolSource,
    )
    from graphrt.registry.resolution import resolve
    from graphrt.registry.resolved import ResolvedAgent
    from graphrt.registry.running import RunScope, run_resolved
    from graphrt.registry.specs import AgentSpec, ModelSpec, RemoteEndpoint

if not TYPE_CHECKING:
    from graphrt._lazy import lazy_names

    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "graphrt.agent.runtime_builder": ("AgentRuntimeBuilder",),  # above this layer: loaded when it is asked for
            "graphrt.registry.backends": ("BackendFactory", "RemoteBackend"),
            "graphrt.registry.registries": (
                "AgentSpecRegistry",
                "MapAgentSpecRegistry",
                "MapModelRegistry",
                "MapPluginSource",
                "MapProviderRegistry",
                "MapToolRegistry",
                "ModelRegistry",
                "PluginSource",
                "ProviderRegistry",
                "Registry",
                "RegistrySet",
                "ToolSource",
            ),
            "graphrt.registry.resolution": ("resolve",),
            "graphrt.registry.resolved": ("ResolvedAgent",),
            "graphrt.registry.running": ("RunScope", "run_resolved"),
            "graphrt.registry.specs": ("AgentSpec", "ModelSpec", "RemoteEndpoint"),
        },
    )
