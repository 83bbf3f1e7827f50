"""Plugins: what acts at the boundaries of an agent's rounds, unseen by the model.

A tool is offered to the model and called by it. A plugin is not: its hooks run at the nine phases of a run, may
change the run's state, and may schedule actions and emit effects; its transforms change what is sent to the model.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

__all__ = [
    "CompactionPlugin",
    "ConfigSchema",
    "ContextTransformPlugin",
    "ExecutionEnv",
    "GateDecision",
    "HookBridgePlugin",
    "LoopActionHandlersPlugin",
    "MaxRoundsPlugin",
    "MergeStrategy",
    "Phase",
    "PhaseContext",
    "PhaseRuntime",
    "Plugin",
    "PluginDescriptor",
    "PluginRegistrar",
    "RunView",
    "Snapshot",
    "StateCommand",
    "StateKey",
    "StateStore",
    "TaggedHandler",
    "TaggedPhaseHook",
    "TaggedRequestTransform",
]

if TYPE_CHECKING:
    from graphrt.plugins.bridge import HookBridgePlugin
    from graphrt.plugins.compaction import CompactionPlugin
    from graphrt.plugins.context_transform import ContextTransformPlugin
    from graphrt.plugins.env import ExecutionEnv
    from graphrt.plugins.loop_actions import LoopActionHandlersPlugin
    from graphrt.plugins.max_rounds import MaxRoundsPlugin
    from graphrt.plugins.phases import GateDecision, Phase, PhaseContext, RunView
    from graphrt.plugins.plugin import Plugin, PluginDescriptor
    from graphrt.plugins.registrar import PluginRegistrar
    from graphrt.plugins.runtime import PhaseRuntime
    from graphrt.plugins.sections import ConfigSchema
    from graphrt.plugins.state import MergeStrategy, Snapshot, StateCommand, StateKey, StateStore
    from graphrt.plugins.tagged import TaggedHandler, TaggedPhaseHook, TaggedRequestTransform

if not TYPE_CHECKING:
    from graphrt._lazy import lazy_names

    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "graphrt.plugins.bridge": ("HookBridgePlugin",),
            "graphrt.plugins.compaction": ("CompactionPlugin",),
            "graphrt.plugins.context_transform": ("ContextTransformPlugin",),
            "graphrt.plugins.env": ("ExecutionEnv",),
            "graphrt.plugins.loop_actions": ("LoopActionHandlersPlugin",),
            "graphrt.plugins.max_rounds": ("MaxRoundsPlugin",),
            "graphrt.plugins.phases": ("GateDecision", "Phase", "PhaseContext", "RunView"),
            "graphrt.plugins.plugin": ("Plugin", "PluginDescriptor"),
            "graphrt.plugins.registrar": ("PluginRegistrar",),
            "graphrt.plugins.runtime": ("PhaseRuntime",),
            "graphrt.plugins.sections": ("ConfigSchema",),
            "graphrt.plugins.state": ("MergeStrategy", "Snapshot", "StateCommand", "StateKey", "StateStore"),
            "graphrt.plugins.tagged": ("TaggedHandler", "TaggedPhaseHook", "TaggedRequestTransform"),
        },
    )
