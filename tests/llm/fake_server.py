"""A server for chat completions inside the process: real SDK objects on top, no network below."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Any

import anyio
import httpx2
import openai

from graphrt.llm import OpenAIProvider


def completion(message: Mapping[str, Any], **rest: Any) -> dict[str, Any]:
    """A whole reply with one choice."""
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": "stop"}
    choice["finish_reason"] = rest.pop("finish_reason", "stop")
    return {
        "id": "c-1",
        "object": "chat.completion",
        "created": 1,
        "model": "m-1",
        "choices": [choice],
        **rest,
    }


def chunk(delta: Mapping[str, Any] | None = None, *, finish_reason: str | None = None, **rest: Any) -> bytes:
    """A piece of a streamed reply, as server-sent event."""
    choices = [] if delta is None else [{"index": 0, "delta": dict(delta), "finish_reason": finish_reason}]
    return event({"id": "c-1", "object": "chat.completion.chunk", "created": 1, "model": "m-1"}, choices, rest)


def event(head: Mapping[str, Any], choices: list[dict[str, Any]], rest: Mapping[str, Any]) -> bytes:
    return f"data: {json.dumps({**head, 'choices': choices, **rest})}\n\n".encode()


DONE = b"data: [DONE]\n\n"


class Body(httpx2.AsyncByteStream):
    """A streamed body; a None in it waits for ever, an exception is raised."""

    def __init__(self, pieces: Iterable[bytes | Exception | None]) -> None:
        self.closed = False
        self.sent = 0
        self._pieces = pieces

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for piece in self._pieces:
            if piece is None:
                await anyio.sleep_forever()
            elif isinstance(piece, Exception):
                raise piece
            else:
                await anyio.lowlevel.checkpoint()
                self.sent += 1
                yield piece

    async def aclose(self) -> None:
        self.closed = True


class FakeServer:
    """Answers request after request with what it was given, and remembers what it was asked."""

    def __init__(self, *answers: Mapping[str, Any] | httpx2.Response | Body | Exception) -> None:
        self.requests: list[dict[str, Any]] = []
        self.raw: list[bytes] = []
        self._answers = list(answers)

    def _handle(self, request: httpx2.Request) -> httpx2.Response:
        self.raw.append(request.content)
        self.requests.append(json.loads(request.content))
        answer = self._answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        if isinstance(answer, Body):
            return httpx2.Response(200, headers={"content-type": "text/event-stream"}, stream=answer)
        if isinstance(answer, httpx2.Response):
            return httpx2.Response(answer.status_code, headers=answer.headers, content=answer.content)
        return httpx2.Response(200, headers={"content-type": "application/json"}, content=json.dumps(answer))

    def client(self) -> openai.AsyncOpenAI:
        http_client = openai.DefaultAsyncHttpxClient(transport=httpx2.MockTransport(self._handle))
        return openai.AsyncOpenAI(api_key="test", base_url="http://test/v1", max_retries=0, http_client=http_client)

    def provider(self) -> OpenAIProvider:
        return OpenAIProvider(client=self.client())
