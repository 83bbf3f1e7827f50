"""Reading server-sent events off a response, so that every generator below has ended when the reading ends.

The SDK's own stream leaves suspended generators behind, at the end of a stream too: on trio each one is a
warning, on asyncio a task that nobody waits for.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Protocol

import anyio

from graphrt.errors import LlmError, LlmErrorKind
from graphrt.messages import clean_text

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

_DONE = "[DONE]"
_TAIL_SECONDS = 0.1  # for what may follow the last event: read to its end, a connection can be used again
_MAX_UNREAD = 64  # pieces that are read on to bring an abandoned stream to its end


class StreamedResponse(Protocol):
    """An HTTP response whose body has not been read yet."""

    def aiter_bytes(self) -> AsyncIterator[bytes]:
        """Give the decoded body in pieces."""
        ...

    async def aclose(self) -> None:
        """Give back the connection."""
        ...


class EventStream:
    """The JSON values of an event stream, one after another, up to ``[DONE]`` or the end of the body."""

    def __init__(self, response: StreamedResponse) -> None:
        self._response = response
        self._body = response.aiter_bytes()
        self._unread = bytearray()
        self._body_ended = False
        self._closed = False

    def __aiter__(self) -> EventStream:
        return self

    async def __anext__(self) -> Any:
        data = await self._next_data()
        if data is None or data.startswith(_DONE):
            await self._end(seconds=_TAIL_SECONDS)
            raise StopAsyncIteration
        try:
            return json.loads(data)
        except ValueError as error:
            raise LlmError(f"the provider's stream cannot be read: {error}", LlmErrorKind.PROVIDER) from error

    async def aclose(self) -> None:
        """End the reading, wherever it is, and give back the connection; a second call does nothing."""
        await self._end(seconds=0)

    async def _end(self, seconds: float) -> None:
        """Let the body end within *seconds*, then cancel a read of it.

        Closing a generator that reads through others leaves those to be collected some time later. A read
        that is cancelled ends them all, from the inside out.
        """
        if self._closed:
            return
        self._closed = True
        with anyio.move_on_after(seconds, shield=True):
            await self._read_on()
        with anyio.CancelScope(shield=True):
            await self._response.aclose()

    async def _read_on(self) -> None:
        try:
            for _ in range(_MAX_UNREAD):
                await anext(self._body)
        except StopAsyncIteration:
            return
        except Exception as error:  # noqa: BLE001  # the reply is complete, or nobody waits for it any more
            del error

    async def _next_data(self) -> str | None:
        """Give the data of the next event; None at the end of the body."""
        data: list[str] = []
        while True:
            line = await self._next_line()
            if line:
                name, _, value = line.partition(":")
                if name == "data":
                    data.append(value.removeprefix(" "))
            elif data:
                return "\n".join(data)
            elif line is None:
                return None

    async def _next_line(self) -> str | None:
        while (end := self._unread.find(b"\n")) < 0:
            if self._body_ended:
                rest = bytes(self._unread)
                self._unread.clear()
                return clean_text(rest) if rest else None
            self._unread += await self._more()
        line = bytes(self._unread[:end])
        del self._unread[: end + 1]
        return clean_text(line.removesuffix(b"\r"))

    async def _more(self) -> bytes:
        try:
            return await anext(self._body)
        except StopAsyncIteration:
            self._body_ended = True
            return b""
        except Exception as error:
            timed_out = isinstance(error, TimeoutError) or "Timeout" in type(error).__name__
            kind = LlmErrorKind.TIMEOUT if timed_out else LlmErrorKind.PROVIDER
            raise LlmError(f"the provider's stream broke off: {error!r}", kind) from error
