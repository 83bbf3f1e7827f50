"""What a summary stands for: so many messages at the beginning of a conversation, as they were."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from graphrt.llm.wire import dump_arguments
from graphrt.messages import Message, Role
from graphrt.plugins.units import mended, prefix_length

if TYPE_CHECKING:
    from collections.abc import Sequence

CHECKPOINT_KEY: Final = "compaction.checkpoint"
"""Name of the state key that holds the checkpoint as plain data; None before the first summary."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A summary, and the messages that it replaces in requests. The conversation itself keeps them."""

    covered: int
    """Messages at the beginning that the summary replaces; system messages before the conversation do not count."""
    digest: str
    """Of these messages: a history that was edited afterwards is not what was summarised."""
    summary: str

    @classmethod
    def of(cls, conversation: Sequence[Message], covered: int, summary: str) -> Checkpoint:
        """Make the checkpoint of the first *covered* messages."""
        return cls(covered, digest(conversation[:covered]), summary)

    @classmethod
    def read(cls, value: object) -> Checkpoint | None:
        """Read what `plain` gave; None if it is nothing of the kind."""
        if not isinstance(value, Mapping):
            return None
        covered, digest, summary = (value.get(name) for name in ("covered", "digest", "summary"))
        if not isinstance(covered, int) or isinstance(covered, bool) or covered < 1:
            return None
        if not isinstance(digest, str) or not isinstance(summary, str) or not summary.strip():
            return None
        return cls(covered, digest, summary)

    def plain(self) -> dict[str, Any]:
        """Give it as plain data, to be stored."""
        return {"covered": self.covered, "digest": self.digest, "summary": self.summary}

    def holds(self, conversation: Sequence[Message]) -> bool:
        """Say whether the conversation still begins with the messages that were summarised."""
        return len(conversation) >= self.covered and digest(conversation[: self.covered]) == self.digest

    @property
    def message(self) -> Message:
        """The summary as an entry in the conversation.

        The user's, not the system's: it may hold what a tool or a stranger wrote, which must not gain the weight
        of an instruction, and many models take one system message only, at the beginning.
        """
        return Message.user(f"<summary>\n{self.summary}\n</summary>")


def stored_checkpoint(state: Mapping[str, Any]) -> Checkpoint | None:
    """Give the checkpoint in a state, whether it holds or not."""
    return Checkpoint.read(state.get(CHECKPOINT_KEY))


def current_checkpoint(state: Mapping[str, Any], conversation: Sequence[Message]) -> Checkpoint | None:
    """Give the checkpoint in a state, if it holds for this conversation."""
    found = stored_checkpoint(state)
    return found if found is not None and found.holds(conversation) else None


def with_summary(messages: Sequence[Message], state: Mapping[str, Any]) -> Sequence[Message]:
    """Put the summary in the place of what it covers; system messages at the beginning stay before it."""
    start = prefix_length(messages)
    conversation = messages[start:]
    checkpoint = current_checkpoint(state, conversation)
    if checkpoint is None:
        return messages
    return [*messages[:start], checkpoint.message, *mended(conversation[checkpoint.covered :])]


def digest(messages: Sequence[Message]) -> str:
    """Give a digest of all that a model is told by *messages*."""
    running = hashlib.sha256()
    for message in messages:
        running.update(json.dumps(_fields(message)).encode())
        running.update(b"\n")
    return running.hexdigest()


def _fields(message: Message) -> list[Any]:
    calls = [[call.id, call.name, dump_arguments(call.arguments)] for call in message.tool_calls]
    return [message.role.value, message.content, calls, message.tool_call_id, message.name]


def transcript(messages: Sequence[Message], earlier: Checkpoint | None, limit: int | None = None) -> str:
    """Write messages down as one text, after the earlier summary if there is one.

    A model that is asked for a summary is then not led to go on with the conversation, and need not know the
    tools. Texts of more than *limit* characters are shortened in the middle.
    """
    lines = [] if earlier is None else [earlier.message.content]
    for message in messages:
        text = _shortened(message.content, limit)
        if message.role is Role.TOOL:
            lines.append(f"result of {message.name or 'tool'} ({message.tool_call_id}): {text}")
        elif text or not message.tool_calls:
            lines.append(f"{message.role.value}: {text}")
        for call in message.tool_calls:
            arguments = _shortened(dump_arguments(call.arguments), limit)
            lines.append(f"{message.role.value} calls {call.name} ({call.id}): {arguments}")
    return "\n\n".join(lines)


def _shortened(text: str, limit: int | None) -> str:
    if limit is None or len(text) <= limit:
        return text
    half = limit // 2
    return f"{text[:half]} [... {len(text) - 2 * half} characters left out ...] {text[len(text) - half :]}"
