"""What a plugin is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from graphrt.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Sequence

    from graphrt.plugins.env import PluginRegistrar
    from graphrt.plugins.sections import ConfigSchema
    from graphrt.plugins.state import StateCommand


@dataclass(frozen=True, slots=True)
class PluginDescriptor:
    """What a plugin says of itself.

    Attributes:
        id: Unique among the plugins of an agent; spans and errors name it.
        description: What it does, for people.
    """

    id: str
    description: str = ""

    def __post_init__(self) -> None:
        if not isinstance(self.id, str) or not self.id:
            raise ConfigError(f"the id of a plugin is {self.id!r}, which is no name", hint="give it a text as its id")


class Plugin(ABC):
    """Act at the phases of an agent's runs. One plugin object may serve many agents and runs at a time.

    What belongs to one run goes into state keys, or is kept apart by the run's id.

    Attributes:
        always_active: Whether an agent's `active_hook_filter` leaves the plugin alone; its hooks make no spans
            then. For built-ins.
        runs_first: Whether its hooks come before those of other plugins at each phase, wherever it is registered.
    """

    always_active: ClassVar[bool] = False
    runs_first: ClassVar[bool] = False

    @property
    @abstractmethod
    def descriptor(self) -> PluginDescriptor:
        """Who the plugin is."""

    def register(self, registrar: PluginRegistrar) -> None:  # noqa: B027  # a plugin may do all in on_activate
        """Say what the plugin brings. Called each time an agent is resolved; it must change nothing else."""

    def config_schemas(self) -> Sequence[ConfigSchema]:
        """Give the sections of an agent's spec that the plugin reads, each with its schema."""
        return []

    def on_activate(self, spec: Any, cmd: StateCommand) -> Awaitable[None] | None:
        """Get ready for a run, before its first phase; sync or async.

        Args:
            spec: The agent's spec; None for an agent without one.
            cmd: Takes what the plugin wants to do to the run's state; committed when this returns.
        """
        return None

    def on_deactivate(self, cmd: StateCommand) -> Awaitable[None] | None:
        """Clean up after a run, in every ending; sync or async. Called once for each `on_activate` that returned.

        What it raises is logged. Actions can no longer be scheduled.
        """
        return None
