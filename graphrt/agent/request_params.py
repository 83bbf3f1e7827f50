"""Request parameters that a caller gives for one turn."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from graphrt.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable

_RESERVED: Final = {
    "messages": "what was said before is what the session holds",
    "tools": "an agent's tools are given to the runtime, and chosen by its AgentSpec",
    "stream": "a turn that is read along is AgentSession.stream_turn()",
    "on_event": "the events of a turn are those of AgentSession.stream_turn(), and a run takes on_event",
    "deps": "only run() takes deps",
    "budget": "only run() takes a budget",
    "run_id": "a turn makes up its own; only a RunRequest takes one",
}
"""Names that are no request parameters, and where to go with each."""


def check_params(names: Iterable[str]) -> None:
    """Refuse what is no request parameter.

    Raises:
        ConfigError: One or more of *names* are none; it names them.
    """
    wrong = [name for name in names if name in _RESERVED]
    if wrong:
        raise ConfigError(
            f"{', '.join(map(repr, wrong))} cannot be given as request parameters",
            hint="; ".join(f"{name}: {_RESERVED[name]}" for name in wrong),
        )
