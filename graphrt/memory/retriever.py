"""Finding what is remembered: the interface, and a reference that compares words."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Final

from graphrt.memory.values import as_text, check_limit

if TYPE_CHECKING:
    from collections.abc import Iterable

    from graphrt.memory.store import MemoryStore

_WORD: Final = re.compile(r"\w+")


class MemoryRetriever(ABC):
    """Finds texts that bear on a question. Derive a class over the index of your choice."""

    @abstractmethod
    async def retrieve(self, query: str, limit: int = 5) -> list[str]:
        """Give at most *limit* texts, the most fitting first."""


class StoreRetriever(MemoryRetriever):
    """Finds the values of one namespace that have most of a question's words in key or text.

    A reference: it reads the whole namespace, and knows words, not what they mean.
    """

    def __init__(self, store: MemoryStore, namespace: str) -> None:
        """Take where the values are."""
        self._store = store
        self._namespace = namespace

    async def retrieve(self, query: str, limit: int = 5) -> list[str]:
        """Give at most *limit* values as text: those with most words first, and the older of equals.

        Raises:
            MemoryStoreError: The limit is below 0, or the store failed.
        """
        check_limit(limit)
        found = ranked(await self._store.search(self._namespace), query)
        return [as_text(value) for _, value in found[:limit]]


def ranked(entries: Iterable[tuple[str, Any]], query: str) -> list[tuple[str, Any]]:
    """Order *entries* by how many different words of *query* are in key or value; without any they are left out.

    A word counts wherever it stands, inside a longer one too, whatever its case. Equals keep their order.
    """
    words = set(_WORD.findall(query.casefold()))
    scored = []
    for key, value in entries:
        text = f"{key}\n{as_text(value)}".casefold()
        score = sum(word in text for word in words)
        if score:
            scored.append((score, key, value))
    scored.sort(key=lambda each: -each[0])
    return [(key, value) for _, key, value in scored]
