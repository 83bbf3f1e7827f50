"""What vendors implement: a provider answers a conversation, whole or in pieces."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeAlias

if TYPE_CHECKING:
    from graphrt.messages import LLMResponse, Message, TokenUsage


class ToolSpec(Protocol):
    """What a provider needs to know of a tool; it reads these when it builds a request."""

    @property
    def name(self) -> str:
        """Name under which the model calls the tool."""
        ...

    @property
    def description(self) -> str:
        """What the tool does, for the model."""
        ...

    @property
    def parameters(self) -> Mapping[str, Any]:
        """JSON schema of the arguments, an object."""
        ...


Tools: TypeAlias = Sequence[ToolSpec | Mapping[str, Any]] | None
"""Tools offered to the model; a mapping is passed on in the vendor's own form."""


@dataclass(frozen=True, slots=True)
class ToolCallPart:
    """A piece of a tool call, as it comes in."""

    index: int
    """Which call of the reply, from 0."""
    id: str | None = None
    """Id of the call, on its first piece."""
    name: str | None = None
    """Name of the tool, on its first piece."""
    arguments: str = ""
    """The next characters of the arguments' JSON."""


@dataclass(frozen=True, slots=True)
class LLMDelta:
    """A piece of a reply. The last one of a stream has ``response``, and only that one."""

    text: str = ""
    tool_call: ToolCallPart | None = None
    usage: TokenUsage | None = None
    """What is known so far of the tokens; a later one replaces it."""
    response: LLMResponse | None = None
    """The whole reply."""


class LLMProvider(ABC):
    """A vendor's models behind one interface.

    A provider is safe to share between the tasks of an event loop, and between loops. ``async with
    provider:`` closes it at the end.
    """

    takes_cache_key: bool = False
    """Whether a ``prompt_cache_key`` among the parameters is of use to it; else an executor leaves it out."""

    @abstractmethod
    async def chat(self, messages: Sequence[Message], tools: Tools = None, **kwargs: Any) -> LLMResponse:
        """Ask the model and wait for its whole reply.

        *kwargs* are request parameters (``temperature``, ``max_tokens``, ``model``, ...); one that is None is
        not sent.

        Raises:
            LlmError: The model could not be asked; its kind says why.
        """

    async def stream(self, messages: Sequence[Message], tools: Tools = None, **kwargs: Any) -> AsyncIterator[LLMDelta]:
        """Ask the model and give its reply in pieces; the last one holds the whole reply.

        Unless a provider overrides it, the text comes in one piece. Who leaves the iterator early has to
        ``aclose()`` it: that is what ends the request.

        Raises:
            LlmError: The model could not be asked, or failed on the way.
        """
        response = await self.chat(messages, tools, **kwargs)
        if response.content:
            yield LLMDelta(text=response.content)
        yield LLMDelta(usage=response.usage, response=response)

    async def chat_stream(self, messages: Sequence[Message], tools: Tools = None, **kwargs: Any) -> AsyncIterator[str]:
        """Ask the model and give the text of its reply in pieces, as ``stream`` does.

        Raises:
            LlmError: The model could not be asked, or failed on the way.
        """
        deltas = self.stream(messages, tools, **kwargs)
        try:
            async for delta in deltas:
                if delta.text:
                    yield delta.text
        finally:
            await close_stream(deltas)

    async def aclose(self) -> None:  # noqa: B027  # most providers hold nothing
        """Give back what the provider holds for the running event loop; it may be used again afterwards."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.aclose()


async def close_stream(stream: AsyncIterator[Any]) -> None:
    """Close *stream* if it can be closed: a generator left alone ends whenever memory is collected."""
    close = getattr(stream, "aclose", None)
    if close is not None:
        await close()
