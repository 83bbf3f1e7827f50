"""Models behind OpenAI's chat completions, and behind every server that speaks the same."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import anyio
from pydantic import BaseModel, ValidationError

from graphrt.errors import ConfigError, LlmError, LlmErrorKind
from graphrt.llm.per_loop import PerLoop
from graphrt.llm.provider import LLMDelta, LLMProvider, Tools, close_stream
from graphrt.llm.refusals import refusal
from graphrt.llm.sse import EventStream
from graphrt.llm.wire import (
    ToolCallBuffer,
    field,
    read_tool_call,
    read_usage,
    request_messages,
    request_tools,
    text_field,
)
from graphrt.messages import LLMResponse, Message, TokenUsage

if TYPE_CHECKING:
    from openai import AsyncOpenAI

REFUSED = "refusal"
"""``finish_reason`` of a reply in which the model declines; its content is what the model says."""


class OpenAIProvider(LLMProvider):
    """Ask a model through the ``openai`` package, which is imported when a provider is made.

    Request parameters go to chat completions as they are; one that is None is left out. With
    ``response_format=SomeModel``, a pydantic model, the reply has to fit it and ``LLMResponse.parsed`` is the
    validated value, unless the model calls tools. A reply that does not fit is an ``LlmError`` of kind
    ``provider``, since another try may do better; one that was cut off at ``max_tokens`` is
    ``invalid_request``, and a refusal is ``content_filtered``.

    Connections are kept per event loop, and closed by ``aclose`` or with the loop. Nothing is retried here.
    """

    def __init__(
        self,
        model: str = "gpt-4o-mini",
        *,
        api_key: str | None = None,
        base_url: str | None = None,
        client: AsyncOpenAI | None = None,
    ) -> None:
        """Set up the client; nothing is sent.

        Args:
            model: The model asked when a call names none.
            api_key: None takes ``OPENAI_API_KEY``.
            base_url: Another server that speaks the same protocol; None takes ``OPENAI_BASE_URL``.
            client: A client of the caller's, used as it is on every loop, and never closed here.

        Raises:
            ConfigError: The package or the key is missing.
        """
        self.model = model
        self._own: PerLoop[AsyncOpenAI] | None = None
        if client is not None:
            self._client = client
            return

        def make() -> AsyncOpenAI:
            return _make_client(api_key, base_url)

        self._client = make()
        self._own = PerLoop(make, _close_client, first=self._client)

    @property
    def takes_cache_key(self) -> bool:  # type: ignore[override]  # read only, and known once there is a client
        """True where OpenAI itself is asked: other servers may refuse what they do not know."""
        return str(getattr(self._client, "base_url", "")).startswith("https://api.openai.com/")

    @property
    def client(self) -> AsyncOpenAI:
        """The client that was given, or the first one made."""
        return self._client

    async def chat(self, messages: Sequence[Message], tools: Tools = None, **kwargs: Any) -> LLMResponse:
        """Ask the model and wait for its whole reply.

        Raises:
            LlmError: The model could not be asked, or its reply is of no use.
        """
        client = self._client if self._own is None else await self._own.get()
        request = self._request(messages, tools, kwargs)
        with _sdk_errors():
            completion = await client.chat.completions.create(**request)
        return _validated(_read_reply(completion), kwargs.get("response_format"))

    async def stream(self, messages: Sequence[Message], tools: Tools = None, **kwargs: Any) -> AsyncIterator[LLMDelta]:
        """Ask the model and give its reply in pieces; the last one holds the whole reply.

        Usage is asked for as well; ``stream_options=None`` leaves that out, for servers that do not know it.

        Raises:
            LlmError: The model could not be asked, failed on the way, or its reply is of no use.
        """
        client = self._client if self._own is None else await self._own.get()
        asked = {"stream_options": {"include_usage": True}, **kwargs}
        with _sdk_errors():
            stream = await client.chat.completions.create(**self._request(messages, tools, asked), stream=True)
        reply = _StreamedReply()
        chunks = _chunks(stream)
        try:
            while True:
                with _sdk_errors():
                    try:
                        chunk = await anext(chunks)
                    except StopAsyncIteration:
                        break
                for delta in reply.add(chunk):
                    yield delta
        finally:
            with anyio.CancelScope(shield=True):
                await close_stream(chunks)
        yield LLMDelta(response=_validated(reply.finish(), kwargs.get("response_format")))

    async def aclose(self) -> None:
        """Close the connections of the running event loop; a client that was given stays open."""
        if self._own is not None:
            await self._own.aclose()

    def _request(self, messages: Sequence[Message], tools: Tools, params: Mapping[str, Any]) -> dict[str, Any]:
        request: dict[str, Any] = {name: value for name, value in params.items() if value is not None}
        request.setdefault("model", self.model)
        if "prompt_cache_key" in request:  # in the body: not every release of the package has a parameter for it
            key = request.pop("prompt_cache_key")
            request["extra_body"] = {"prompt_cache_key": key, **request.get("extra_body", {})}
        request["messages"] = request_messages(messages)
        offered = request_tools(tools)
        if offered:
            request["tools"] = offered
        if _is_model(request.get("response_format")):
            request["response_format"] = _response_format(request["response_format"])
        return request


def _make_client(api_key: str | None, base_url: str | None) -> AsyncOpenAI:
    try:
        import openai
    except ImportError as error:
        raise ConfigError("the package 'openai' is not installed", hint="pip install openai") from error
    try:
        return openai.AsyncOpenAI(api_key=api_key, base_url=base_url, max_retries=0)
    except openai.OpenAIError as error:
        raise ConfigError(
            f"no client for OpenAI: {error}",
            hint="set OPENAI_API_KEY or give api_key=; for a server that needs none any text will do",
        ) from error


async def _close_client(client: AsyncOpenAI) -> None:
    await client.close()


@contextmanager
def _sdk_errors() -> Iterator[None]:
    """Turn the SDK's errors into ``LlmError``."""
    import openai

    try:
        yield
    except openai.APITimeoutError as error:
        raise LlmError("the provider took too long", LlmErrorKind.TIMEOUT) from error
    except openai.APIConnectionError as error:
        reason = error.__cause__ or error
        raise LlmError(f"no connection to the provider: {reason}", LlmErrorKind.PROVIDER) from error
    except openai.APIStatusError as error:
        headers = error.response.headers
        raise refusal(error.message, status=error.status_code, body=error.body, headers=headers) from error
    except openai.APIError as error:
        raise refusal(error.message, body=error.body) from error
    except openai.OpenAIError as error:
        raise LlmError(f"the provider's client failed: {error}", LlmErrorKind.PROVIDER) from error
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise LlmError(f"the provider's reply cannot be read: {error}", LlmErrorKind.PROVIDER) from error


def _read_reply(completion: Any) -> LLMResponse:
    choices = field(completion, "choices")
    if not choices:
        raise refusal("the reply holds no choices", body=field(completion, "error"))
    message, finish_reason = field(choices[0], "message"), text_field(choices[0], "finish_reason")
    content, refused = text_field(message, "content"), text_field(message, "refusal")
    return LLMResponse(
        content or refused or "",
        [read_tool_call(call, finish_reason) for call in field(message, "tool_calls") or ()],
        read_usage(field(completion, "usage")),
        REFUSED if refused else finish_reason,
        text_field(completion, "model"),
    )


class _StreamedReply:
    """Puts the chunks of a stream together."""

    def __init__(self) -> None:
        self._text: list[str] = []
        self._calls = ToolCallBuffer()
        self._usage: TokenUsage | None = None
        self._finish_reason: str | None = None
        self._model: str | None = None
        self._refused = False
        self._begun = False

    def add(self, chunk: Any) -> Iterator[LLMDelta]:
        """Take in one chunk, and give what is new in it."""
        problem = field(chunk, "error")
        if isinstance(problem, (Mapping, str)):
            raise refusal("the stream ended in an error", body=problem)
        self._begun = True
        self._model = text_field(chunk, "model") or self._model
        for choice in field(chunk, "choices") or ():
            index = field(choice, "index")
            if not isinstance(index, int) or index == 0:
                yield from self._add_choice(choice)
        usage = read_usage(field(chunk, "usage"))
        if usage is not None:
            self._usage = usage
            yield LLMDelta(usage=usage)

    def _add_choice(self, choice: Any) -> Iterator[LLMDelta]:
        self._finish_reason = text_field(choice, "finish_reason") or self._finish_reason
        delta = field(choice, "delta")
        refused = text_field(delta, "refusal")
        self._refused = self._refused or bool(refused)
        text = text_field(delta, "content") or refused
        if text:
            self._text.append(text)
            yield LLMDelta(text=text)
        for piece in field(delta, "tool_calls") or ():
            yield LLMDelta(tool_call=self._calls.add(piece))

    def finish(self) -> LLMResponse:
        """Give the whole reply.

        Raises:
            LlmError: There was none.
        """
        if not self._begun:
            raise LlmError("the stream ended without a reply", LlmErrorKind.PROVIDER)
        return LLMResponse(
            "".join(self._text),
            self._calls.finish(self._finish_reason),
            self._usage,
            REFUSED if self._refused else self._finish_reason,
            self._model,
        )


def _chunks(stream: Any) -> AsyncIterator[Any]:
    """Give the chunks of what the client answered: the SDK's stream, or any other asynchronous iterable."""
    import openai

    return EventStream(stream.response) if isinstance(stream, openai.AsyncStream) else aiter(stream)


def _is_model(response_format: object) -> bool:
    return isinstance(response_format, type) and issubclass(response_format, BaseModel)


def _response_format(model: type[BaseModel]) -> dict[str, Any]:
    import openai

    schema = openai.pydantic_function_tool(model)["function"].get("parameters", {})
    return {
        "type": "json_schema",
        "json_schema": {"name": model.__name__, "schema": schema, "strict": True},
    }


def _validated(response: LLMResponse, response_format: Any) -> LLMResponse:
    """Check the reply against the model that was asked for, if one was."""
    if not _is_model(response_format) or response.tool_calls:
        return response
    name = response_format.__name__
    if response.finish_reason in {REFUSED, "content_filter"}:
        raise LlmError(f"the model refused: {response.content}", LlmErrorKind.CONTENT_FILTERED)
    if response.finish_reason == "length":
        raise LlmError(
            f"the reply was cut off before it made a {name!r}",
            LlmErrorKind.INVALID_REQUEST,
            hint="raise max_tokens",
        )
    try:
        parsed = response_format.model_validate_json(response.content)
    except ValidationError as error:
        misfit = LlmError(f"the reply does not fit {name!r}: {error}", LlmErrorKind.PROVIDER)
        misfit.reply = response
        raise misfit from error
    return response.model_copy(update={"parsed": parsed})
