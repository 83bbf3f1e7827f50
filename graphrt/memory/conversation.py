"""What was said, conversation by conversation."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import uuid4

from graphrt.errors import MemoryStoreError
from graphrt.memory.store import InMemoryStore

if TYPE_CHECKING:
    from graphrt.memory.store import MemoryStore
    from graphrt.messages import Message


class ConversationMemory:
    """Messages by session, in order, on a ``MemoryStore``; derive a class to keep them elsewhere.

    No turn uses it: an application adds messages when it sees fit, as in a hook on ``ON_TURN_END``. What the
    store raises is raised as it is.
    """

    def __init__(self, store: MemoryStore | None = None) -> None:
        """Take where the messages are; without a store they end with this object."""
        self._store: MemoryStore = InMemoryStore() if store is None else store

    async def add_message(self, session_id: str, message: Message) -> None:
        """Put *message* after all that are there; of several at once, from wherever, none is lost.

        Raises:
            MemoryStoreError: JSON cannot hold what is in the message, or the store failed.
        """
        data = message.model_dump(mode="json", exclude_defaults=True)
        await self._store.save(_namespace(session_id), uuid4().hex, data)

    async def messages(self, session_id: str) -> list[Message]:
        """Give the messages of a session, the oldest first; none if it is unknown.

        Raises:
            MemoryStoreError: The store failed, or an entry is no message.
        """
        return [_message(key, value) for key, value in await self._store.search(_namespace(session_id))]

    async def clear(self, session_id: str) -> None:
        """Forget the messages of a session."""
        await self._store.clear(_namespace(session_id))


def _namespace(session_id: str) -> str:
    return f"_conversation_{session_id}"


def _message(key: str, value: object) -> Message:
    from pydantic import ValidationError

    from graphrt.messages import Message

    try:
        return Message.model_validate(value)
    except ValidationError as error:
        raise MemoryStoreError(f"what is stored for {key!r} is no message", hint="delete it") from error
