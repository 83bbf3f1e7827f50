"""Stores that fail, for tests."""

from __future__ import annotations

from typing import Any

import anyio


class FailingStore:
    """Raises one error at every call."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    async def save(self, namespace: str, key: str, value: Any) -> None:
        raise self.error

    async def load(self, namespace: str, key: str) -> Any:
        raise self.error

    async def search(self, namespace: str, query: str = "", limit: int | None = None) -> list[tuple[str, Any]]:
        raise self.error

    async def delete(self, namespace: str, key: str) -> None:
        raise self.error

    async def clear(self, namespace: str) -> None:
        raise self.error


class SilentStore(FailingStore):
    """Answers no load."""

    def __init__(self) -> None:
        super().__init__(OSError("only loading is tried"))

    async def load(self, namespace: str, key: str) -> Any:
        await anyio.sleep_forever()
