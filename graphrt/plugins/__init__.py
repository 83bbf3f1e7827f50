"""Plugins: what acts at the boundaries of an agent's rounds, unseen by the model.

A tool is offered to the model and called by it. A plugin is not: its hooks run at the nine phases of a run, may
change the run's state, and may schedule actions and emit effects; its transforms change what is sent to the model.

    class Reminder(Plugin):
        descriptor = PluginDescriptor("reminder")

        def register(self, registrar):
            registrar.phase_hook(Phase.STEP_START, self.remind)

        def remind(self, ctx):
            return StateCommand().schedule(ADD_CONTEXT_MESSAGE, Message.system("Be brief."))

Four actions are there for every agent. Each holds for the next request to the model only:

- `ADD_CONTEXT_MESSAGE`: a `Message`. What the system says comes after the system prompt, all else at the end.
- `SET_INFERENCE_OVERRIDE`: a mapping of `model` and request parameters, such as `{"temperature": 0}`.
- `EXCLUDE_TOOL`: the id of a tool that is not offered.
- `INCLUDE_ONLY_TOOLS`: a list of ids; only tools on some such list are offered, less those excluded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

__all__ = [
    "ADD_CONTEXT_MESSAGE",
    "EXCLUDE_TOOL",
    "INCLUDE_ONLY_TOOLS",
    "SET_INFERENCE_OVERRIDE",
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
    from graphrt.plugins.loop_actions import (
        ADD_CONTEXT_MESSAGE,
        EXCLUDE_TOOL,
        INCLUDE_ONLY_TOOLS,
        SET_INFERENCE_OVERRIDE,
        LoopActionHandlersPlugin,
    )
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
            "graphrt.plugins.loop_actions": (
                "ADD_CONTEXT_MESSAGE",
                "EXCLUDE_TOOL",
                "INCLUDE_ONLY_TOOLS",
                "SET_INFERENCE_OVERRIDE",
                "LoopActionHandlersPlugin",
            ),
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
