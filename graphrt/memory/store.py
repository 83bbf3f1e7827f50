"""The interface that all memory is built on, and the store that lives in the process."""

from __future__ import annotations

import threading
from typing import Any, Protocol, runtime_checkable

from graphrt.memory.values import check_limit, check_name, copied, json_value, matching


@runtime_checkable
class MemoryStore(Protocol):
    """Values by namespace and key. Every call may come from any task; what fails raises ``MemoryStoreError``.

    A value is what JSON holds, and comes back equal and of the same type. Nothing is shared with the caller:
    a value that is changed after it was saved, or after it was loaded, changes nothing in the store.
    """

    async def save(self, namespace: str, key: str, value: Any) -> None:
        """Store a value; the key keeps its place if it is there already, and else comes last."""
        ...

    async def load(self, namespace: str, key: str) -> Any:
        """Give the value, or None if there is no such key."""
        ...

    async def search(self, namespace: str, query: str = "", limit: int | None = None) -> list[tuple[str, Any]]:
        """Give the first *limit* keys with their values, in the order in which the keys were first saved.

        A store without an index gives those with *query* in the key or in the value's text, whatever its
        case; an empty query gives all.
        """
        ...

    async def delete(self, namespace: str, key: str) -> None:
        """Forget a key; harmless if it is not there."""
        ...

    async def clear(self, namespace: str) -> None:
        """Forget every key of a namespace, and of no other."""
        ...


class InMemoryStore:
    """A ``MemoryStore`` that ends with the process; may be used from several threads and event loops at once."""

    def __init__(self) -> None:
        self._namespaces: dict[str, dict[str, Any]] = {}
        self._lock = threading.Lock()

    async def save(self, namespace: str, key: str, value: Any) -> None:
        """Store a copy of *value*; the key keeps its place if it is there already, and else comes last.

        Raises:
            MemoryStoreError: JSON cannot hold the value, or namespace or key cannot be stored.
        """
        _check(namespace, key)
        stored = json_value(value, key)
        with self._lock:
            self._namespaces.setdefault(namespace, {})[key] = stored

    async def load(self, namespace: str, key: str) -> Any:
        """Give a copy of the value, or None if there is no such key."""
        _check(namespace, key)
        with self._lock:
            value = self._namespaces.get(namespace, {}).get(key)
        return copied(value)

    async def search(self, namespace: str, query: str = "", limit: int | None = None) -> list[tuple[str, Any]]:
        """Give the first *limit* entries with *query* in key or value, in the order of their first saving.

        Raises:
            MemoryStoreError: The limit is below 0.
        """
        check_name("namespace", namespace)
        check_limit(limit)
        with self._lock:
            entries = list(self._namespaces.get(namespace, {}).items())
        return [(key, copied(value)) for key, value in matching(entries, query, limit)]

    async def delete(self, namespace: str, key: str) -> None:
        """Forget a key; harmless if it is not there."""
        _check(namespace, key)
        with self._lock:
            entries = self._namespaces.get(namespace, {})
            entries.pop(key, None)
            if not entries:
                self._namespaces.pop(namespace, None)

    async def clear(self, namespace: str) -> None:
        """Forget every key of *namespace*."""
        check_name("namespace", namespace)
        with self._lock:
            self._namespaces.pop(namespace, None)


def _check(namespace: str, key: str) -> None:
    check_name("namespace", namespace)
    check_name("key", key)
