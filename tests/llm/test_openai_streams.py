from __future__ import annotations

import gc
import json
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import anyio
import httpx2
import openai
import pytest
from anyio.abc import SocketAttribute, SocketStream
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from graphrt.errors import LlmError, LlmErrorKind
from graphrt.llm import LLMDelta, OpenAIProvider, ToolCallPart
from graphrt.llm.provider import close_stream
from graphrt.llm.sse import EventStream
from graphrt.llm.wire import ToolCallBuffer
from graphrt.messages import LLMResponse, Message, TokenUsage, ToolCall
from tests.llm.fake_server import DONE, Body, FakeServer, chunk

USER = [Message.user("hi")]


def part(
    index: int | None, arguments: Any = None, *, call_id: str | None = None, name: str | None = None
) -> dict[str, Any]:
    piece: dict[str, Any] = {"function": {"name": name, "arguments": arguments}}
    if index is not None:
        piece["index"] = index
    return {**piece, "id": call_id} if call_id is not None else piece


async def read_into(texts: list[str], deltas: AsyncIterator[LLMDelta]) -> None:
    async for delta in deltas:
        texts.append(delta.text)  # noqa: PERF401  # what came before an error counts


async def collect(deltas: AsyncIterator[LLMDelta]) -> list[LLMDelta]:
    return [delta async for delta in deltas]


async def reply_to(*pieces: bytes | Exception | None, **kwargs: Any) -> LLMResponse:
    deltas = await collect(FakeServer(Body(pieces)).provider().stream(USER, **kwargs))
    response = deltas[-1].response
    assert response is not None
    assert all(delta.response is None for delta in deltas[:-1])
    return response


@pytest.mark.anyio
async def test_text_arrives_in_pieces_and_in_order() -> None:
    """AC-M11: the pieces join to the full text."""
    pieces = ["Good", " mor", "ning", "."]
    server = FakeServer(Body([*(chunk({"content": piece}) for piece in pieces), DONE]))
    assert [piece async for piece in server.provider().chat_stream(USER)] == pieces
    assert server.requests[0]["stream"] is True
    assert server.requests[0]["stream_options"] == {"include_usage": True}
    assert "tools" not in server.requests[0]


@pytest.mark.anyio
async def test_stand_in_for_the_client_may_stream_any_iterable() -> None:
    """AC-M11: with a fake client; what its chunks lack is unknown."""
    closed: list[bool] = []

    async def chunks() -> AsyncIterator[Any]:
        try:
            for text in ("a", "b", "c"):
                yield SimpleNamespace(choices=[SimpleNamespace(delta=SimpleNamespace(content=text))])
        finally:
            closed.append(True)

    async def create(**request: Any) -> Any:
        return chunks()

    fake: Any = SimpleNamespace(chat=SimpleNamespace(completions=SimpleNamespace(create=create)))
    provider = OpenAIProvider(client=fake)
    deltas = await collect(provider.stream(USER))
    assert [delta.text for delta in deltas] == ["a", "b", "c", ""]
    assert deltas[-1].response == LLMResponse("abc")
    stream = provider.stream(USER)
    assert (await anext(stream)).text == "a"
    await close_stream(stream)
    assert closed == [True, True]


@pytest.mark.anyio
async def test_usage_may_be_left_out_of_the_request() -> None:
    server = FakeServer(Body([chunk({"content": "a"}), DONE]))
    await collect(server.provider().stream(USER, stream_options=None))
    assert "stream_options" not in server.requests[0]


@pytest.mark.anyio
async def test_whole_reply_comes_last() -> None:
    usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
    response = await reply_to(
        chunk({"role": "assistant", "content": ""}),
        chunk({"content": "Hel"}),
        chunk({"content": "lo"}),
        chunk({}, finish_reason="stop"),
        chunk(usage=usage),
        DONE,
    )
    assert response == LLMResponse("Hello", usage=TokenUsage(10, 5, 15), finish_reason="stop", model="m-1")


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("usages", "expected"),
    [
        ([], []),
        ([None], []),
        ([{"completion_tokens": None}], []),
        ([{"prompt_tokens": 3, "completion_tokens": None}], [TokenUsage(3)]),
        (
            [{"completion_tokens": 1}, None, {"completion_tokens": 2}],
            [TokenUsage(None, 1), TokenUsage(None, 2)],
        ),
    ],
)
async def test_unknown_usage_in_a_stream_stays_unknown(usages: list[Any], expected: list[TokenUsage]) -> None:
    """B-113: the run goes on; what is known is told as it comes, the rest is None."""
    body = Body([chunk({"content": "a"}), *(chunk(usage=usage) for usage in usages), DONE])
    deltas = await collect(FakeServer(body).provider().stream(USER))
    assert [delta.usage for delta in deltas if delta.usage is not None] == expected
    assert deltas[-1].response is not None
    assert deltas[-1].response.usage == (expected[-1] if expected else None)


@pytest.mark.anyio
async def test_interleaved_tool_calls_are_put_together() -> None:
    body = Body(
        [
            chunk({"tool_calls": [part(0, "", call_id="c-1", name="add")]}),
            chunk({"tool_calls": [part(0, '{"a"'), part(1, "", call_id="c-2", name="sub")]}),
            chunk({"tool_calls": [part(1, '{"b": 2')]}),
            chunk({"tool_calls": [part(0, ": 1}")]}),
            chunk({"tool_calls": [part(1, "}")]}),
            chunk({}, finish_reason="tool_calls"),
            DONE,
        ]
    )
    deltas = await collect(FakeServer(body).provider().stream(USER))
    assert deltas[-1].response is not None
    assert deltas[-1].response.tool_calls == [
        ToolCall("c-1", "add", {"a": 1}),
        ToolCall("c-2", "sub", {"b": 2}),
    ]
    parts = [delta.tool_call for delta in deltas if delta.tool_call is not None]
    assert parts[:2] == [ToolCallPart(0, "c-1", "add", ""), ToolCallPart(0, None, None, '{"a"')]
    assert [each.index for each in parts] == [0, 0, 1, 1, 0, 1]


@pytest.mark.anyio
async def test_cut_arguments_in_a_stream_are_an_error_and_not_empty() -> None:
    """B-111: the stream ends in the middle of a call."""
    response = await reply_to(
        chunk({"tool_calls": [part(0, '{"path": "/tm', call_id="c-1", name="delete")]}),
        chunk({}, finish_reason="length"),
        DONE,
    )
    (call,) = response.tool_calls
    assert (call.id, call.arguments, call.raw_arguments) == ("c-1", {}, '{"path": "/tm')
    assert call.error


@pytest.mark.parametrize(
    ("pieces", "expected"),
    [
        (
            [part(None, "{", call_id="c-1", name="add"), part(None, "}")],
            [ToolCall("c-1", "add")],
        ),
        (
            [part(None, "{}", call_id="c-1", name="add"), part(None, "{}", call_id="c-2", name="add")],
            [ToolCall("c-1", "add"), ToolCall("c-2", "add")],
        ),
        (
            [part(None, "{", call_id="c-1", name="add"), part(None, "}", call_id="c-1", name="add")],
            [ToolCall("c-1", "add")],
        ),
        (
            [part(0, "{}", call_id="c-1", name="add"), part(0, "{}", call_id="c-2", name="sub")],
            [ToolCall("c-1", "add"), ToolCall("c-2", "sub")],
        ),
        (
            [part(1, "{}", call_id="c-2", name="sub"), part(0, "{}", call_id="c-1", name="add")],
            [ToolCall("c-2", "sub"), ToolCall("c-1", "add")],
        ),
        (
            [part(0, None, call_id="c-1", name="se"), part(0, None, name="arch"), part(0, "{}")],
            [ToolCall("c-1", "search")],
        ),
        ([part(0, {"a": 1}, call_id="c-1", name="add")], [ToolCall("c-1", "add", {"a": 1})]),
        ([part(0, None, call_id="c-1", name="add")], [ToolCall("c-1", "add")]),
    ],
)
def test_pieces_find_their_call_whatever_the_server_leaves_out(
    pieces: list[dict[str, Any]], expected: list[ToolCall]
) -> None:
    buffer = ToolCallBuffer()
    for piece in pieces:
        buffer.add(piece)
    assert buffer.finish("tool_calls") == expected


def test_calls_without_index_and_id_are_told_apart_by_name() -> None:
    buffer = ToolCallBuffer()
    for piece in (part(None, "{}", name="add"), part(None, "{", name="sub"), part(None, "}")):
        buffer.add(piece)
    calls = buffer.finish("tool_calls")
    assert [(call.name, call.arguments, call.error) for call in calls] == [
        ("add", {}, None),
        ("sub", {}, None),
    ]
    assert calls[0].id != calls[1].id


@given(st.lists(st.dictionaries(st.text(), st.integers(), max_size=3), min_size=1, max_size=4), st.data())
def test_calls_come_out_however_they_are_cut_and_mixed(arguments: list[dict[str, int]], data: st.DataObject) -> None:
    left = [list(json.dumps(each)) for each in arguments]
    begun: list[int] = []
    buffer = ToolCallBuffer()
    while any(left):
        index = data.draw(st.sampled_from([i for i, text in enumerate(left) if text]))
        size = data.draw(st.integers(1, len(left[index])))
        text, left[index] = "".join(left[index][:size]), left[index][size:]
        first = index not in begun
        begun += [index] if first else []
        buffer.add(part(index, text, call_id=f"c-{index}" if first else None, name="add" if first else None))
    assert buffer.finish("tool_calls") == [ToolCall(f"c-{i}", "add", arguments[i]) for i in begun]


@pytest.mark.anyio
async def test_refusal_is_streamed_as_text_and_marked() -> None:
    response = await reply_to(chunk({"refusal": "I will "}), chunk({"refusal": "not"}), DONE)
    assert (response.content, response.finish_reason) == ("I will not", "refusal")


@pytest.mark.anyio
async def test_streamed_reply_is_validated_too() -> None:
    class Answer(BaseModel):
        n: int

    response = await reply_to(chunk({"content": '{"n":'}), chunk({"content": " 3}"}), DONE, response_format=Answer)
    assert response.parsed == Answer(n=3)
    with pytest.raises(LlmError, match="does not fit 'Answer'"):
        await reply_to(chunk({"content": "three"}), DONE, response_format=Answer)


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("pieces", "kind"),
    [
        ([chunk({"content": "a"}), httpx2.ReadError("cut")], LlmErrorKind.PROVIDER),
        ([chunk({"content": "a"}), httpx2.ReadTimeout("late")], LlmErrorKind.TIMEOUT),
        (
            [chunk({"content": "a"}), b'data: {"error": {"message": "rate limit reached"}}\n\n'],
            LlmErrorKind.RATE_LIMITED,
        ),
        ([chunk({"content": "a"}), b'data: {"error": "overloaded"}\n\n'], LlmErrorKind.OVERLOADED),
        ([chunk({"content": "a"}), b'data: {"choi\n\n'], LlmErrorKind.PROVIDER),
        ([b'{"choices": []}'], LlmErrorKind.PROVIDER),
        ([DONE], LlmErrorKind.PROVIDER),
        ([], LlmErrorKind.PROVIDER),
    ],
)
async def test_stream_that_breaks_off_is_an_error(pieces: list[Any], kind: LlmErrorKind) -> None:
    body = Body(pieces)
    texts: list[str] = []
    with pytest.raises(LlmError) as caught:
        await read_into(texts, FakeServer(body).provider().stream(USER))
    assert caught.value.kind is kind
    assert "".join(texts) == ("a" if len(pieces) > 1 else "")
    assert body.closed


@pytest.mark.anyio
async def test_refused_stream_is_the_same_error_as_a_refused_call() -> None:
    answer = httpx2.Response(429, json={"error": {"message": "no"}}, headers={"retry-after": "7"})
    with pytest.raises(LlmError) as caught:
        await collect(FakeServer(answer).provider().stream(USER))
    assert (caught.value.kind, caught.value.retry_after) == (LlmErrorKind.RATE_LIMITED, 7.0)


@pytest.mark.anyio
async def test_invalid_bytes_in_a_stream_are_replaced() -> None:
    """B-119: bytes that are no UTF-8 come out visibly replaced."""
    raw = chunk({"content": "caf?"}).replace(b"?", b"\xff")
    assert (await reply_to(raw, DONE)).content == "caf\ufffd"


@pytest.mark.anyio
@pytest.mark.parametrize(
    "raw",
    [
        b'data: {"a": "x\xe2\x80\xa8y"}\n\ndata: {"a": 2}\n\n',
        b'\r\n: comment\r\nevent: e\r\ndata:{"a":\r\ndata: "x\xe2\x80\xa8y"}\r\n\r\ndata: {"a": 2}\r\n\r\n',
        b'data: {"a": "x\xe2\x80\xa8y"}\n\ndata: {"a": 2}\n\ndata: [DONE]\n\ndata: {"a": 3}\n\n',
        b'data: {"a": "x\xe2\x80\xa8y"}\n\nid: 7\ndata: {"a": 2}',
    ],
)
@pytest.mark.parametrize("size", [1, 7, 1000])
async def test_events_are_read_however_they_are_cut(raw: bytes, size: int) -> None:
    response = httpx2.Response(200, stream=Body([raw[at : at + size] for at in range(0, len(raw), size)]))
    assert [event async for event in EventStream(response)] == [{"a": "x\u2028y"}, {"a": 2}]
    assert response.is_closed


@pytest.mark.anyio
@pytest.mark.parametrize("together", [True, False])
async def test_abandoned_stream_closes_the_response(together: bool) -> None:
    """B-116: what is not read is not waited for."""
    pieces = [chunk({"content": "a"}), chunk({"content": "b"})]
    body = Body([b"".join(pieces), None] if together else [*pieces, None])
    stream = FakeServer(body).provider().chat_stream(USER)
    assert await anext(stream) == "a"
    await close_stream(stream)
    assert body.closed
    gc.collect()  # a generator left suspended would be a warning on trio


@pytest.mark.anyio
async def test_abandoned_stream_stops_near_where_it_was_left() -> None:
    """B-116: a limit of 3 pieces on a stream of 1000."""
    body = Body([chunk({"content": "a"})] * 1000)
    stream = FakeServer(body).provider().stream(USER)
    for _ in range(3):
        await anext(stream)
    await close_stream(stream)
    assert body.sent < 10
    assert body.closed


@pytest.mark.anyio
async def test_cancelled_stream_closes_the_response() -> None:
    body = Body([chunk({"content": "a"}), None])
    texts: list[str] = []
    with anyio.CancelScope() as scope:
        async for delta in FakeServer(body).provider().stream(USER):
            texts.append(delta.text)
            scope.cancel()
    assert scope.cancelled_caught
    assert texts == ["a"]
    assert body.closed


@pytest.mark.anyio
async def test_finished_stream_leaves_nothing_behind() -> None:
    body = Body([chunk({"content": "a"}), DONE, b": bye\n\n"])
    await collect(FakeServer(body).provider().stream(USER))
    assert body.closed
    gc.collect()  # a generator left suspended would be a warning on trio


@pytest.mark.anyio
async def test_server_sees_the_connection_close_when_a_stream_is_left() -> None:
    """B-039: over a real socket."""
    hung_up = anyio.Event()

    async def serve(connection: SocketStream) -> None:
        async with connection:
            await connection.receive()
            head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
            piece = chunk({"content": "a"})
            await connection.send(head + f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
            try:
                while await connection.receive():
                    pass
            except (anyio.EndOfStream, anyio.BrokenResourceError):
                hung_up.set()

    listener = await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=0)
    port = listener.extra(SocketAttribute.local_port)  # noqa: S610  # a socket's, not a query's
    with anyio.fail_after(10):
        async with listener, anyio.create_task_group() as tasks:
            tasks.start_soon(listener.serve, serve)
            async with OpenAIProvider(api_key="k", base_url=f"http://127.0.0.1:{port}/v1") as provider:
                stream = provider.stream(USER)
                assert (await anext(stream)).text == "a"
                await close_stream(stream)
                await hung_up.wait()
            tasks.cancel_scope.cancel()


def test_provider_serves_loop_after_loop_and_closes_with_each() -> None:
    """What is bound to an event loop is kept per loop: the second loop works, and both clients are closed."""
    seen: list[openai.AsyncOpenAI] = []
    provider = OpenAIProvider(api_key="k", base_url="http://127.0.0.1:9/v1")

    async def use() -> None:
        assert provider._own is not None
        client = await provider._own.get()
        assert await provider._own.get() is client
        seen.append(client)
        with pytest.raises(LlmError, match="no connection"):
            await provider.chat(USER)

    for backend in ("asyncio", "trio", "asyncio"):
        anyio.run(use, backend=backend)
    assert len(set(map(id, seen))) == 3
    assert all(client.is_closed() for client in seen)
