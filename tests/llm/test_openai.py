from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import anyio
import httpx2
import openai
import pytest
from pydantic import BaseModel

from graphrt.errors import ConfigError, LlmError, LlmErrorKind
from graphrt.llm import OpenAIProvider
from graphrt.messages import Message, TokenUsage, ToolCall
from tests.llm.fake_server import FakeServer, completion

pytestmark = pytest.mark.anyio

USER = [Message.user("hi")]


@dataclass(frozen=True)
class Tool:
    name: str = "add"
    description: str = "Adds."
    parameters: Any = None


ADD = Tool(parameters={"type": "object", "properties": {"a": {"type": "integer"}}})
ADD_ON_THE_WIRE = {
    "type": "function",
    "function": {"name": "add", "description": "Adds.", "parameters": ADD.parameters},
}


def wire_call(arguments: Any, call_id: Any = "c-1") -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": "add", "arguments": arguments}}


class Weather(BaseModel):
    city: str
    degrees: float


async def test_tools_are_sent_when_there_are_any_and_the_reply_is_read() -> None:
    """AC-M09: definitions under `tools`, else no such key; parsed arguments and usage."""
    usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
    asks = {"content": None, "tool_calls": [wire_call('{"a": 1}')]}
    server = FakeServer(
        completion(asks, finish_reason="tool_calls", usage=usage),
        completion({"content": "hello"}),
        completion({"content": "hello"}),
    )
    provider = server.provider()
    response = await provider.chat(USER, [ADD], temperature=0.5)
    assert response.tool_calls == [ToolCall("c-1", "add", {"a": 1})]
    assert response.usage == TokenUsage(10, 5, 15)
    assert (response.content, response.finish_reason, response.model) == ("", "tool_calls", "m-1")
    assert (await provider.chat(USER, [])).content == "hello"
    await provider.chat(USER, max_tokens=None, model="other")
    first, second, third = server.requests
    assert first == {
        "messages": [{"role": "user", "content": "hi"}],
        "model": "gpt-4o-mini",
        "temperature": 0.5,
        "tools": [ADD_ON_THE_WIRE],
    }
    assert second == {"messages": [{"role": "user", "content": "hi"}], "model": "gpt-4o-mini"}
    assert third == {"messages": [{"role": "user", "content": "hi"}], "model": "other"}


async def test_any_object_with_the_clients_shape_will_do() -> None:
    """AC-M09: the client can be a stand-in, and fields it lacks are unknown."""
    requests: list[dict[str, Any]] = []

    async def create(**request: Any) -> Any:
        requests.append(request)
        call = SimpleNamespace(id="c-1", function=SimpleNamespace(name="add", arguments="{}"))
        return SimpleNamespace(choices=[SimpleNamespace(message=SimpleNamespace(tool_calls=[call]))])

    fake: Any = SimpleNamespace(chat=SimpleNamespace(completions=SimpleNamespace(create=create)))
    response = await OpenAIProvider("m", client=fake).chat(USER, [ADD])
    assert response.tool_calls == [ToolCall("c-1", "add", {})]
    assert (response.content, response.usage, response.model) == ("", None, None)
    assert requests[0]["tools"] == [ADD_ON_THE_WIRE]


async def test_own_client_retries_nothing_and_takes_its_settings() -> None:
    """AC-M09: the SDK's own retries are off."""
    async with OpenAIProvider(api_key="k", base_url="http://here/v1") as provider:
        assert provider.client.max_retries == 0
        assert provider.client.api_key == "k"
        assert str(provider.client.base_url) == "http://here/v1/"


async def test_missing_key_is_a_setting_to_make(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_ADMIN_KEY"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ConfigError, match="OPENAI_API_KEY"):
        OpenAIProvider()


async def test_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "openai", None)
    with pytest.raises(ConfigError, match="pip install openai"):
        OpenAIProvider(api_key="k")


async def test_sdk_is_not_imported_before_a_provider_is_made() -> None:
    code = "import sys, graphrt.llm as llm; llm.OpenAIProvider, llm.retrying; print('openai' in sys.modules)"
    ran = await anyio.run_process([sys.executable, "-c", code], stderr=subprocess.PIPE)
    assert ran.stdout.strip() == b"False"


async def test_conversation_reaches_the_wire_in_its_form() -> None:
    server = FakeServer(completion({"content": "ok"}))
    broken = ToolCall("c-2", "add", error="cut off", raw_arguments='{"a": ')
    await server.provider().chat(
        [
            Message.system("be brief"),
            Message("user", "hi", name="ann"),
            Message.assistant("", [ToolCall("c-1", "add", {"a": "é"}), broken]),
            Message.tool("c-1", "3", name="add"),
        ]
    )
    system, user, assistant, tool = server.requests[0]["messages"]
    assert system == {"role": "system", "content": "be brief"}
    assert user == {"role": "user", "content": "hi", "name": "ann"}
    assert assistant["content"] is None
    assert assistant["tool_calls"] == [wire_call('{"a": "é"}', "c-1"), wire_call("{}", "c-2")]
    assert tool == {"role": "tool", "content": "3", "tool_call_id": "c-1"}


async def test_text_that_cannot_be_sent_is_replaced_on_the_wire() -> None:
    """B-119: also in messages that were made without being checked."""
    server = FakeServer(completion({"content": "bad \ud800 reply"}))
    unchecked = Message.model_construct(
        role=Message.user("").role, content="a\ud800b\0", tool_calls=[], tool_call_id=None, name=None
    )
    tool = Tool("add", "desc \udfff", {"type": "object", "title": "\0"})
    response = await server.provider().chat([unchecked], [tool])
    assert server.requests[0]["messages"][0]["content"] == "a\ufffdb\ufffd"
    assert server.requests[0]["tools"][0]["function"]["description"] == "desc \ufffd"
    assert b"\\u0000" not in server.raw[0]
    assert b"\\ud" not in server.raw[0]
    assert response.content == "bad \ufffd reply"


@pytest.mark.parametrize(
    ("arguments", "finish_reason", "problem"),
    [
        ('{"path": "/tm', "tool_calls", "Unterminated string"),
        ('{"path": "/tm', "length", "Unterminated string"),
        ("", "length", "cut off"),
        ("[1, 2]", "tool_calls", "not an object"),
        ("null", "tool_calls", "not an object"),
        ('{"a": NaN}', "tool_calls", "NaN is not JSON"),
        ("delete everything", "tool_calls", "Expecting value"),
        ('{"a": ' * 100_000, "tool_calls", "recursion"),
    ],
)
async def test_malformed_arguments_are_an_error_and_not_empty_arguments(
    arguments: str, finish_reason: str, problem: str
) -> None:
    """B-111: the call keeps its id, and says what is wrong with it."""
    asks = {"content": None, "tool_calls": [wire_call(arguments)]}
    server = FakeServer(completion(asks, finish_reason=finish_reason))
    (call,) = (await server.provider().chat(USER, [ADD])).tool_calls
    assert (call.id, call.name, call.arguments, call.raw_arguments) == ("c-1", "add", {}, arguments)
    assert call.error is not None
    assert problem in call.error
    assert len(call.error) < 500


@pytest.mark.parametrize("arguments", ["{}", "", "  ", None])
async def test_call_without_arguments_has_none(arguments: Any) -> None:
    asks = {"content": None, "tool_calls": [wire_call(arguments)]}
    server = FakeServer(completion(asks, finish_reason="tool_calls"))
    (call,) = (await server.provider().chat(USER, [ADD])).tool_calls
    assert (call.arguments, call.error) == ({}, None)


async def test_calls_without_id_get_one_each() -> None:
    asks = {"content": None, "tool_calls": [wire_call("{}", None), wire_call("{}", "")]}
    server = FakeServer(completion(asks))
    first, second = (await server.provider().chat(USER, [ADD])).tool_calls
    assert first.id
    assert second.id
    assert first.id != second.id


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        (None, None),
        ({}, None),
        ({"prompt_tokens": None, "completion_tokens": None}, None),
        ({"prompt_tokens": 3}, TokenUsage(3)),
        ({"completion_tokens": 0}, TokenUsage(None, 0)),
        ({"prompt_tokens": "many", "completion_tokens": 4.0, "total_tokens": -1}, TokenUsage(None, 4)),
    ],
)
async def test_unknown_usage_stays_unknown(usage: Any, expected: TokenUsage | None) -> None:
    """B-113: absent, null or in part; unknown is None and not 0."""
    server = FakeServer(completion({"content": "hi"}, usage=usage))
    assert (await server.provider().chat(USER)).usage == expected


async def test_reply_is_validated_as_the_model_asked_for() -> None:
    server = FakeServer(completion({"content": '{"city": "Oslo", "degrees": -3}'}))
    response = await server.provider().chat(USER, response_format=Weather)
    assert response.parsed == Weather(city="Oslo", degrees=-3)
    wire = server.requests[0]["response_format"]
    assert wire["type"] == "json_schema"
    assert wire["json_schema"]["name"] == "Weather"
    assert wire["json_schema"]["strict"] is True
    assert wire["json_schema"]["schema"]["required"] == ["city", "degrees"]
    assert wire["json_schema"]["schema"]["additionalProperties"] is False


@pytest.mark.parametrize(
    ("message", "finish_reason", "kind"),
    [
        ({"content": '{"city": "Oslo"}'}, "stop", LlmErrorKind.PROVIDER),
        ({"content": "it is cold"}, "stop", LlmErrorKind.PROVIDER),
        ({"content": ""}, "stop", LlmErrorKind.PROVIDER),
        ({"content": '{"city": '}, "length", LlmErrorKind.INVALID_REQUEST),
        ({"content": None, "refusal": "I will not"}, "stop", LlmErrorKind.CONTENT_FILTERED),
        ({"content": ""}, "content_filter", LlmErrorKind.CONTENT_FILTERED),
    ],
)
async def test_reply_that_does_not_fit_is_an_error(
    message: dict[str, Any], finish_reason: str, kind: LlmErrorKind
) -> None:
    server = FakeServer(completion(message, finish_reason=finish_reason))
    with pytest.raises(LlmError) as caught:
        await server.provider().chat(USER, response_format=Weather)
    assert caught.value.kind is kind
    assert (caught.value.reply is not None) is (kind is LlmErrorKind.PROVIDER)


async def test_tool_calls_come_before_the_structured_reply() -> None:
    server = FakeServer(completion({"content": None, "tool_calls": [wire_call("{}")]}))
    response = await server.provider().chat(USER, [ADD], response_format=Weather)
    assert response.parsed is None
    assert len(response.tool_calls) == 1


async def test_response_format_of_the_vendors_own_is_passed_on() -> None:
    server = FakeServer(completion({"content": "{}"}))
    response = await server.provider().chat(USER, response_format={"type": "json_object"})
    assert server.requests[0]["response_format"] == {"type": "json_object"}
    assert response.parsed is None


async def test_refusal_is_a_reply_that_says_so() -> None:
    server = FakeServer(completion({"content": None, "refusal": "I will not"}))
    response = await server.provider().chat(USER)
    assert (response.content, response.finish_reason) == ("I will not", "refusal")


def refused(status: int, error: Any = None, **headers: str) -> httpx2.Response:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return httpx2.Response(status, json={"error": error or {"message": "no"}}, headers=named)


OVERFLOW = {"message": "too long", "code": "context_length_exceeded"}
OVERFLOW_TEXT = {"message": "This model's maximum context length is 8192 tokens, you asked for 9000"}


@pytest.mark.parametrize(
    ("answer", "kind", "status"),
    [
        (refused(400), LlmErrorKind.INVALID_REQUEST, 400),
        (refused(400, OVERFLOW), LlmErrorKind.CONTEXT_OVERFLOW, 400),
        (refused(400, OVERFLOW_TEXT), LlmErrorKind.CONTEXT_OVERFLOW, 400),
        (refused(400, {"message": "no", "code": "content_filter"}), LlmErrorKind.CONTENT_FILTERED, 400),
        (refused(401), LlmErrorKind.UNAUTHORIZED, 401),
        (refused(403), LlmErrorKind.UNAUTHORIZED, 403),
        (refused(404), LlmErrorKind.MODEL_NOT_FOUND, 404),
        (refused(408), LlmErrorKind.TIMEOUT, 408),
        (refused(409), LlmErrorKind.PROVIDER, 409),
        (refused(413, {"message": "prompt is too long"}), LlmErrorKind.CONTEXT_OVERFLOW, 413),
        (refused(422), LlmErrorKind.INVALID_REQUEST, 422),
        (refused(429), LlmErrorKind.RATE_LIMITED, 429),
        (refused(500), LlmErrorKind.PROVIDER, 500),
        (refused(500, {"message": "we are overloaded"}), LlmErrorKind.OVERLOADED, 500),
        (refused(502), LlmErrorKind.PROVIDER, 502),
        (refused(503), LlmErrorKind.OVERLOADED, 503),
        (refused(529), LlmErrorKind.OVERLOADED, 529),
        (httpx2.Response(502, text="<html>bad gateway</html>"), LlmErrorKind.PROVIDER, 502),
        (
            httpx2.Response(200, json={"error": {"message": "slow", "code": 429}}),
            LlmErrorKind.RATE_LIMITED,
            429,
        ),
        (httpx2.Response(200, json={"choices": []}), LlmErrorKind.PROVIDER, None),
        (httpx2.Response(200, text="hello"), LlmErrorKind.PROVIDER, None),
        (
            httpx2.Response(200, content=b"{", headers={"content-type": "application/json"}),
            LlmErrorKind.PROVIDER,
            None,
        ),
        (httpx2.ReadTimeout("late"), LlmErrorKind.TIMEOUT, None),
        (httpx2.ConnectTimeout("late"), LlmErrorKind.TIMEOUT, None),
        (httpx2.ConnectError("no route"), LlmErrorKind.PROVIDER, None),
        (httpx2.RemoteProtocolError("cut"), LlmErrorKind.PROVIDER, None),
    ],
)
async def test_refusals_and_broken_connections_have_their_kind(
    answer: Any, kind: LlmErrorKind, status: int | None
) -> None:
    server = FakeServer(answer)
    with pytest.raises(LlmError) as caught:
        await server.provider().chat(USER)
    assert (caught.value.kind, caught.value.status) == (kind, status)
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({"retry_after": "7"}, 7.0),
        ({"retry_after": "0.5"}, 0.5),
        ({"retry_after_ms": "1500", "retry_after": "7"}, 1.5),
        ({"retry_after": "Thu, 01 Jan 1970 00:00:00 GMT"}, 0.0),
        ({"retry_after": "soon"}, None),
        ({"retry_after": "-1"}, None),
        ({"retry_after": "inf"}, None),
        ({}, None),
    ],
)
async def test_retry_after_is_read(headers: dict[str, str], expected: float | None) -> None:
    server = FakeServer(refused(429, **headers))
    with pytest.raises(LlmError) as caught:
        await server.provider().chat(USER)
    assert caught.value.retry_after == expected


async def test_refusal_says_what_the_server_said() -> None:
    server = FakeServer(refused(404, {"message": "The model 'x' does not exist"}))
    with pytest.raises(LlmError, match=r"The model 'x' does not exist\n  hint: check the model's name"):
        await server.provider().chat(USER)


async def test_given_client_stays_open_and_own_one_is_closed() -> None:
    server = FakeServer()
    given = server.client()
    async with OpenAIProvider(client=given) as provider:
        assert provider.client is given
    assert not given.is_closed()
    await given.close()
    own = OpenAIProvider(api_key="k")
    first = own.client
    await own.aclose()
    assert first.is_closed()


async def test_cancelled_call_ends_at_once() -> None:
    """B-036: cancellation is never taken for an error of the provider."""

    async def hang(request: httpx2.Request) -> httpx2.Response:
        scope.cancel()
        await anyio.sleep_forever()
        raise AssertionError(request)

    http_client = openai.DefaultAsyncHttpxClient(transport=httpx2.MockTransport(hang))
    client = openai.AsyncOpenAI(api_key="k", base_url="http://t/v1", max_retries=0, http_client=http_client)
    with anyio.CancelScope() as scope:
        await OpenAIProvider(client=client).chat(USER)
    assert scope.cancelled_caught
