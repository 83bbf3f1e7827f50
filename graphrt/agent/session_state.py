"""`Session`: a conversation as plain data, and the queue of its turns."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

from graphrt.agent.turn_queue import TurnQueue
from graphrt.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from graphrt.messages import Message


@dataclass
class Session:
    """A conversation: its messages, in order, without the system prompt.

    Whoever runs a turn of it, an `AgentSession` or `AgentRuntime.process`, waits for the turns before. It can be copied
    and pickled.

    Attributes:
        id: Names the conversation.
        messages: What was said so far. A turn writes it when it has succeeded, into the same list.
        state: What plugins keep from turn to turn.
        turn_index: Turns that have succeeded.
    """

    id: str
    messages: list[Message] = field(default_factory=list)
    state: dict[str, Any] = field(default_factory=dict)
    turn_index: int = 0

    def __post_init__(self) -> None:
        if not isinstance(self.id, str) or not self.id:
            raise ConfigError(f"a session's id is {self.id!r}, which is no text", hint="give it a name of its own")
        if not isinstance(self.messages, list):
            raise ConfigError(
                f"the messages of session {self.id!r} are of type {type(self.messages).__name__}",
                hint="give a list of Message, which the session keeps and adds to",
            )
        self._queue = TurnQueue(self.id)

    @property
    def queue(self) -> TurnQueue:
        """Lets one turn in after another."""
        return self._queue

    def __getstate__(self) -> dict[str, Any]:
        return {each.name: getattr(self, each.name) for each in fields(self)}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        self.__dict__.update(state)
        self._queue = TurnQueue(self.id)
