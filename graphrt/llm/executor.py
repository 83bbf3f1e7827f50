"""What the engine calls: an executor carries out one inference request."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from graphrt.errors import LlmError, LlmErrorKind
from graphrt.llm.provider import close_stream

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from graphrt.llm.provider import LLMDelta, LLMProvider, ToolSpec
    from graphrt.messages import ChatResponse, LLMResponse, Message


@dataclass(frozen=True, slots=True)
class InferenceRequest:
    """One question to a model.

    Attributes:
        model: The provider's own name of the model; None: the provider's default.
        messages: The conversation as it is sent.
        tools: What the model is told of its tools.
        params: Request parameters by the names that ``LLMProvider.chat`` takes.
    """

    model: str | None
    messages: Sequence[Message]
    tools: Sequence[ToolSpec] = ()
    params: dict[str, Any] = field(default_factory=dict)

    def replace(self, **changes: Any) -> InferenceRequest:
        """Give a copy with some fields changed."""
        return replace(self, **changes)


@runtime_checkable
class LLMExecutor(Protocol):
    """Carries out requests. The engine calls one for each inference, streaming when somebody reads along."""

    async def execute(self, request: InferenceRequest) -> LLMResponse:
        """Ask, and wait for the whole reply."""
        ...

    def execute_stream(self, request: InferenceRequest) -> AsyncIterator[LLMDelta]:
        """Ask, and give the reply in pieces; the last one holds the whole reply."""
        ...


class LlmCycle(Protocol):
    """One turn with tools: the model decides, tools run, their results go back, until it answers.

    The agent layer implements it over a compiled graph; services that need a model with tools take this.
    """

    async def submit_with_tools(self, messages: Sequence[Message]) -> ChatResponse:
        """Run the turn that *messages* lead up to."""
        ...


class ProviderExecutor:
    """Carry out requests with one provider.

    A ``TimeoutError`` of the provider's own becomes an ``LlmError`` of kind ``timeout``, which may be
    retried.
    """

    def __init__(self, provider: LLMProvider) -> None:
        self.provider = provider

    async def execute(self, request: InferenceRequest) -> LLMResponse:
        """Ask the provider, and wait for the whole reply.

        Raises:
            LlmError: The model could not be asked.
        """
        try:
            reply = await self.provider.chat(request.messages, request.tools or None, **self._params(request))
        except TimeoutError as error:
            raise _timed_out(error) from error
        if not hasattr(reply, "tool_calls"):
            given = f"{type(self.provider).__name__}.chat() gave a {type(reply).__name__}"
            raise TypeError(f"{given}, and not an LLMResponse: return LLMResponse(text)")
        return reply

    async def execute_stream(self, request: InferenceRequest) -> AsyncIterator[LLMDelta]:
        """Ask the provider, and give the reply in pieces; the last one holds the whole reply.

        Raises:
            LlmError: The model could not be asked, or failed on the way.
        """
        deltas = self.provider.stream(request.messages, request.tools or None, **self._params(request))
        try:
            while True:
                try:
                    delta = await anext(deltas)
                except StopAsyncIteration:
                    return
                except TimeoutError as error:
                    raise _timed_out(error) from error
                yield delta
        finally:
            await close_stream(deltas)

    def _params(self, request: InferenceRequest) -> dict[str, Any]:
        params = request.params if request.model is None else {**request.params, "model": request.model}
        if "prompt_cache_key" in params and not self.provider.takes_cache_key:
            params = {name: value for name, value in params.items() if name != "prompt_cache_key"}
        return params


def _timed_out(error: TimeoutError) -> LlmError:
    return LlmError(f"the provider took too long: {error}".removesuffix(": "), LlmErrorKind.TIMEOUT)
