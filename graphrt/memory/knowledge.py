"""Knowledge that outlives sessions."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import uuid4

from graphrt.errors import MemoryStoreError
from graphrt.memory.retriever import MemoryRetriever, ranked
from graphrt.memory.values import as_text, check_limit

if TYPE_CHECKING:
    from graphrt.memory.store import MemoryStore


class KnowledgeStore(MemoryRetriever):
    """Texts by id in one namespace of a ``MemoryStore``, and a retriever over them.

    What the store raises is raised as it is.
    """

    def __init__(self, store: MemoryStore, namespace: str = "knowledge") -> None:
        """Take where the texts are; two of one store and namespace share them."""
        self._store = store
        self._namespace = namespace

    async def add(self, text: str, *, id: str | None = None) -> str:
        """Store a text, and give its id; the text of an id that is there already is replaced.

        Raises:
            MemoryStoreError: The text is empty, or the store failed.
        """
        if not text.strip():
            raise MemoryStoreError("an empty text is no knowledge", hint="use remove() to forget one")
        entry_id = uuid4().hex if id is None else id
        await self._store.save(self._namespace, entry_id, text)
        return entry_id

    async def get(self, id: str) -> str | None:
        """Give the text with this id, or None."""
        value = await self._store.load(self._namespace, id)
        return None if value is None else as_text(value)

    async def remove(self, id: str) -> None:
        """Forget a text; harmless if there is none with this id."""
        await self._store.delete(self._namespace, id)

    async def search(self, query: str = "", limit: int | None = None) -> list[tuple[str, str]]:
        """Give at most *limit* ids with their texts: those with most words of *query* first, then the older.

        An empty query gives all. What has none of the words is left out.

        Raises:
            MemoryStoreError: The limit is below 0, or the store failed.
        """
        check_limit(limit)
        entries = await self._store.search(self._namespace)
        found = ranked(entries, query) if query.strip() else entries
        return [(key, as_text(value)) for key, value in found[:limit]]

    async def retrieve(self, query: str, limit: int = 5) -> list[str]:
        """Give the texts of ``search``."""
        return [text for _, text in await self.search(query, limit)]
