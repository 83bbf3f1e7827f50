"""What the plugins of an agent bring, gathered for one resolution of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from graphrt.errors import EnvBuildError
from graphrt.plugins.registrar import PluginRegistrar, ask
from graphrt.plugins.tagged import TaggedHandler, TaggedPhaseHook, TaggedRequestTransform

if TYPE_CHECKING:
    from collections.abc import Iterable, Set

    from graphrt.plugins.phases import Phase
    from graphrt.plugins.plugin import Plugin
    from graphrt.plugins.state import StateKey
    from graphrt.tools.base import Tool

__all__ = ["ExecutionEnv", "PluginRegistrar", "TaggedHandler", "TaggedPhaseHook", "TaggedRequestTransform"]


@dataclass(frozen=True)
class ExecutionEnv:
    """What acts in the runs of one resolved agent. It is made anew for each resolution, and shared by none.

    Attributes:
        phase_hooks: Hooks by phase, in the order in which they are called; the gates are under `TOOL_GATE`.
        scheduled_action_handlers: Handlers of actions, by key.
        effect_handlers: Handlers of effects, by key.
        request_transforms: In the order in which they are applied, each to what the one before gave.
        key_registrations: Keys of the state, each name once.
        tools: Tools of all plugins, by id; `active_tools` leaves out those that a filter does.
        plugins: In the order in which they are activated.
    """

    phase_hooks: dict[Phase, list[TaggedPhaseHook]] = field(default_factory=dict)
    scheduled_action_handlers: dict[str, TaggedHandler] = field(default_factory=dict)
    effect_handlers: dict[str, TaggedHandler] = field(default_factory=dict)
    request_transforms: list[TaggedRequestTransform] = field(default_factory=list)
    key_registrations: list[StateKey] = field(default_factory=list)
    tools: dict[str, Tool] = field(default_factory=dict)
    plugins: list[Plugin] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.__dict__["_owners"] = {}  # no field: who brought what is asked for by id

    @classmethod
    def from_plugins(cls, plugins: Iterable[Plugin]) -> ExecutionEnv:
        """Ask each plugin, in order, what it brings.

        Raises:
            EnvBuildError: Two bring the same thing, a plugin is listed twice, or one could not say what it brings.
        """
        env = cls()
        for plugin in plugins:
            plugin_id = plugin.descriptor.id
            if any(other.descriptor.id == plugin_id for other in env.plugins):
                raise EnvBuildError(f"plugin {plugin_id!r} is listed twice", hint="name each plugin once")
            env.plugins.append(plugin)
            ask(plugin, PluginRegistrar(env, plugin, env._owners))
        first = {each.descriptor.id for each in env.plugins if each.runs_first}
        for hooks in env.phase_hooks.values():
            hooks.sort(key=lambda each: each.plugin_id not in first)
        return env

    @property
    def round_limit(self) -> int | None:
        """The rounds that the plugins allow; None where none of them limits rounds."""
        from graphrt.plugins.max_rounds import MaxRoundsPlugin

        return min((each.max_rounds for each in self.plugins if isinstance(each, MaxRoundsPlugin)), default=None)

    def tool_owner(self, tool_id: str) -> str | None:
        """Say which plugin brought a tool; None if none did."""
        return self._owners.get(("tool", tool_id))

    def active_tools(self, active: Set[str] = frozenset()) -> dict[str, Tool]:
        """Give the tools of the plugins that a filter names, and of built-ins; an empty filter names all."""
        if not active:
            return dict(self.tools)
        named = {*active, *(each.descriptor.id for each in self.plugins if each.always_active)}
        return {tool_id: tool for tool_id, tool in self.tools.items() if self.tool_owner(tool_id) in named}

    @property
    def _owners(self) -> dict[tuple[str, str], str]:
        owners: dict[tuple[str, str], str] = self.__dict__["_owners"]
        return owners
