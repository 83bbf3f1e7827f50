"""What the contexts of one session have to know of each other."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Self

from graphrt.errors import AgentMemoryError, GraphrtError
from graphrt.memory.values import as_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from graphrt.memory.store import MemoryStore


class SessionMemory:
    """Short texts by key in one namespace of a ``MemoryStore``.

    Two objects of one store and namespace share what they keep, also across processes if the store does.
    Whatever the store raises comes out as ``AgentMemoryError``, with the store's own error as its cause.
    """

    def __init__(self, store: MemoryStore, namespace: str) -> None:
        """Take where the texts are; ``for_session`` gives a session the namespace that is its own."""
        self._store = store
        self._namespace = namespace

    @classmethod
    def for_session(cls, store: MemoryStore, session_id: str) -> Self:
        """Make the memory of a session: its namespace is ``_session_<id>``."""
        return cls(store, f"_session_{session_id}")

    @property
    def namespace(self) -> str:
        """Where in the store the texts are."""
        return self._namespace

    async def set(self, key: str, value: str) -> None:
        """Keep *value*; a key that is there already keeps its place.

        Raises:
            AgentMemoryError: The store failed.
        """
        with self._surfacing(f"set {key!r}"):
            await self._store.save(self._namespace, key, value)

    async def get(self, key: str) -> str | None:
        """Give what is kept under *key*, or None.

        Raises:
            AgentMemoryError: The store failed.
        """
        with self._surfacing(f"get {key!r}"):
            value = await self._store.load(self._namespace, key)
            return None if value is None else as_text(value)

    async def snapshot(self) -> str:
        """Write all down for a system prompt, in the order in which the keys were first set; "" if there is nothing.

        One line ``key: value`` for each, between the lines ``<session-context>`` and ``</session-context>``.
        Values are not altered: one with line breaks takes several lines.

        Raises:
            AgentMemoryError: The store failed.
        """
        with self._surfacing("read"):
            entries = await self._store.search(self._namespace)
            lines = [f"{key}: {as_text(value)}" for key, value in entries]
        return "\n".join(["<session-context>", *lines, "</session-context>"]) if lines else ""

    async def remove(self, key: str) -> None:
        """Forget a key; harmless if it is not there.

        Raises:
            AgentMemoryError: The store failed.
        """
        with self._surfacing(f"remove {key!r}"):
            await self._store.delete(self._namespace, key)

    async def clear(self) -> None:
        """Forget all that is kept here, and nothing of another session.

        Raises:
            AgentMemoryError: The store failed.
        """
        with self._surfacing("clear"):
            await self._store.clear(self._namespace)

    @contextmanager
    def _surfacing(self, what: str) -> Iterator[None]:
        """Raise what a store raises, whoever wrote it, as AgentMemoryError; cancellation passes."""
        try:
            yield
        except AgentMemoryError:
            raise
        except Exception as error:
            reason, hint = f"{type(error).__name__}: {error}", None
            if isinstance(error, GraphrtError):
                reason, hint = error.message, error.hint
            raise AgentMemoryError(f"cannot {what} in {self._namespace!r}: {reason}", cause=error, hint=hint) from error
