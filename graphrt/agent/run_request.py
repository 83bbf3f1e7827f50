"""`RunRequest`: what an agent is to be run with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from graphrt.agent.history import without_dangling
from graphrt.errors import ConfigError
from graphrt.messages import Message

if TYPE_CHECKING:
    from datetime import datetime

Input: TypeAlias = str | Sequence[Message]
"""What the user says, or messages."""


@dataclass(frozen=True, slots=True)
class RunRequest:
    """One run of an agent.

    Attributes:
        agent_id: The agent.
        input: What the user says: a text, or messages.
        messages: What was said before.
        run_id: A name for the run; made up when None.
        deadline: A time with a zone, after which the run is over.
    """

    agent_id: str
    input: Input
    messages: Sequence[Message] = field(default_factory=list)
    run_id: str | None = None
    deadline: datetime | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.agent_id, str):
            raise ConfigError(f"agent_id of a RunRequest is {self.agent_id!r}, which is no text", hint="give an id")
        for name in ("input", "messages"):
            value = getattr(self, name)
            fits = isinstance(value, Sequence) and all(isinstance(each, Message) for each in value)
            if isinstance(value, str) if name == "messages" else not isinstance(value, str) and not fits:
                raise _unfit(name, value)
            if name == "messages" and not fits:
                raise _unfit(name, value)

    def conversation(self) -> list[Message]:
        """Give the messages to run with: those before, and the input; calls without an answer are left out."""
        if isinstance(self.input, str):
            new = [Message.user(self.input)] if self.input or not self.messages else []
        else:
            new = list(self.input)
        return without_dangling([*self.messages, *new])


def _unfit(name: str, value: object) -> ConfigError:
    wanted = "a list of Message" if name == "messages" else "a text or a list of Message"
    return ConfigError(f"{name} of a RunRequest is of type {type(value).__name__}", hint=f"give {wanted}")
