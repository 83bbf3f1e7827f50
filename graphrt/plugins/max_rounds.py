"""The limit on rounds, as a plugin."""

from __future__ import annotations

from typing import ClassVar, Literal

from graphrt.errors import ConfigError
from graphrt.plugins.plugin import Plugin, PluginDescriptor


class MaxRoundsPlugin(Plugin):
    """Limit the rounds of a run. The graph that is compiled from the agent keeps the limit, at the end of a round."""

    always_active: ClassVar[bool] = True

    def __init__(self, max_rounds: int, on_limit: Literal["stop", "answer"] = "stop") -> None:
        """Take the limit.

        Args:
            max_rounds: Inferences of one run, at least 1. The tools of the last round still run.
            on_limit: What happens then: `"stop"` ends the run as stopped; with `"answer"` the last round is asked
                without tools.

        Raises:
            ConfigError: There is no such limit.
        """
        if isinstance(max_rounds, bool) or not isinstance(max_rounds, int) or max_rounds < 1:
            raise ConfigError(
                f"max_rounds is {max_rounds!r}", hint="give a whole number from 1; there is no 'unlimited'"
            )
        if on_limit not in ("stop", "answer"):
            raise ConfigError(f"on_limit is {on_limit!r}", hint="give 'stop' or 'answer'")
        self.max_rounds = max_rounds
        self.on_limit = on_limit

    @property
    def descriptor(self) -> PluginDescriptor:
        """Who the plugin is: `max_rounds`."""
        return PluginDescriptor("max_rounds", f"Limits a run to {self.max_rounds} rounds.")
