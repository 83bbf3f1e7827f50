"""Things that belong to one event loop, such as a pool of connections."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Generic, TypeVar
from weakref import WeakKeyDictionary

import anyio
import anyio.lowlevel

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

_T = TypeVar("_T")

_CLOSE_SECONDS = 2.0
"""How long closing may take when its caller has been cancelled or its loop is ending."""


class _Kept(Generic[_T]):
    """A value until it is closed, and the generator that closes it."""

    def __init__(self, value: _T) -> None:
        self.value: _T | None = value
        self.keeper: AsyncGenerator[None, None] | None = None


class PerLoop(Generic[_T]):
    """Keeps one value for each event loop that asks, and closes it there.

    The value is closed by ``aclose``, or else with its loop: a suspended async generator stands for it, and
    both asyncio and trio close those when they end.
    """

    def __init__(
        self, make: Callable[[], _T], close: Callable[[_T], Awaitable[None]], *, first: _T | None = None
    ) -> None:
        self._make = make
        self._close = close
        self._spare = first
        self._kept: WeakKeyDictionary[object, _Kept[_T]] = WeakKeyDictionary()
        self._lock = threading.Lock()

    async def get(self) -> _T:
        """Give the value of the running loop; the first loop to ask gets the one made beforehand."""
        token = anyio.lowlevel.current_token().native_token
        with self._lock:
            kept = self._kept.get(token)
            if kept is not None and kept.value is not None:
                return kept.value
            value, self._spare = self._spare, None
            if value is None:
                value = self._make()
            kept = self._kept[token] = _Kept(value)
        kept.keeper = self._keep(kept)
        await anext(kept.keeper)
        return value

    async def aclose(self) -> None:
        """Close the value of the running loop, and the one that no loop has asked for."""
        with self._lock:
            kept = self._kept.pop(anyio.lowlevel.current_token().native_token, None)
            spare, self._spare = self._spare, None
        if spare is not None:
            await self._close(spare)
        if kept is not None and kept.keeper is not None:
            await kept.keeper.aclose()

    async def _keep(self, kept: _Kept[_T]) -> AsyncGenerator[None, None]:
        try:
            yield
        finally:
            value, kept.value = kept.value, None
            if value is not None:
                with anyio.move_on_after(_CLOSE_SECONDS, shield=True):
                    await self._close(value)
