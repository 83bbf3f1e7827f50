from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import anyio
import pytest

from graphrt.config import RetryConfig
from graphrt.errors import LlmError, LlmErrorKind
from graphrt.hooks import HookContext, HookEvent, HookExecutor
from graphrt.llm import (
    InferenceRequest,
    LLMDelta,
    ProviderExecutor,
    RetryingExecutor,
    ScriptedProvider,
    retrying,
    with_fallback,
)
from graphrt.llm.provider import close_stream
from graphrt.llm.scripted import ScriptEntry
from graphrt.messages import LLMResponse, Message
from graphrt.policies import RetryPolicy

pytestmark = pytest.mark.anyio

REQUEST = InferenceRequest("primary", [Message.user("hi")])
UNAUTHORIZED = LlmError("no key", LlmErrorKind.UNAUTHORIZED)


def fails(kind: LlmErrorKind = LlmErrorKind.PROVIDER, **rest: Any) -> LlmError:
    return LlmError("oops", kind, **rest)


class Sleeps(list[float]):
    async def __call__(self, seconds: float) -> None:
        await anyio.lowlevel.checkpoint()
        self.append(seconds)


def scripted(*script: ScriptEntry) -> tuple[ScriptedProvider, ProviderExecutor]:
    provider = ScriptedProvider(script)
    return provider, ProviderExecutor(provider)


async def stream_of(executor: RetryingExecutor) -> tuple[list[str], LLMResponse]:
    deltas = [delta async for delta in executor.execute_stream(REQUEST)]
    assert deltas[-1].response is not None
    return [delta.text for delta in deltas if delta.text], deltas[-1].response


async def read_into(texts: list[str], deltas: AsyncIterator[LLMDelta]) -> None:
    async for delta in deltas:
        texts.append(delta.text)  # noqa: PERF401  # what came before an error counts


async def answer_of(executor: RetryingExecutor, *, streaming: bool) -> LLMResponse:
    return (await stream_of(executor))[1] if streaming else await executor.execute(REQUEST)


@pytest.mark.parametrize("streaming", [False, True])
async def test_recoverable_failures_are_tried_again_after_growing_pauses(streaming: bool) -> None:
    """AC-M15: success on the third call, pauses of 0.5 and 1.0 seconds, two events."""
    provider, inner = scripted(fails(), fails(), "yes")
    heard: list[HookContext] = []
    hooks = HookExecutor()
    hooks.register(HookEvent.ON_RETRY, heard.append)
    sleeps = Sleeps()
    executor = RetryingExecutor(inner, RetryConfig(max_retries=2, backoff_base=0.5), hooks=hooks, sleep=sleeps)
    assert (await answer_of(executor, streaming=streaming)).content == "yes"
    assert len(provider.calls) == 3
    assert sleeps == [0.5, 1.0]
    assert [(ctx.data["attempt"], ctx.data["delay"], ctx.data["model"]) for ctx in heard] == [
        (1, 0.5, "primary"),
        (2, 1.0, "primary"),
    ]
    assert all(isinstance(ctx.data["error"], LlmError) for ctx in heard)


@pytest.mark.parametrize("streaming", [False, True])
async def test_each_model_has_the_whole_budget(streaming: bool) -> None:
    """AC-M17: call counts are 2, 2, 1 and the answer is the last model's."""
    a, primary = scripted(fails(), fails())
    b, second = scripted(fails(), fails())
    c, third = scripted("from c")
    executor = RetryingExecutor(
        primary, RetryConfig(max_retries=1), fallbacks=[(second, "b"), (third, None)], sleep=Sleeps()
    )
    assert (await answer_of(executor, streaming=streaming)).content == "from c"
    assert [len(each.calls) for each in (a, b, c)] == [2, 2, 1]
    assert [each.calls[0].kwargs for each in (a, b, c)] == [{"model": "primary"}, {"model": "b"}, {}]


@pytest.mark.parametrize("streaming", [False, True])
async def test_permanent_error_ends_the_chain_at_once(streaming: bool) -> None:
    a, primary = scripted(UNAUTHORIZED)
    b, second = scripted("from b")
    executor = RetryingExecutor(primary, RetryConfig(max_retries=5), fallbacks=[(second, "b")])
    with pytest.raises(LlmError) as caught:
        await answer_of(executor, streaming=streaming)
    assert caught.value is UNAUTHORIZED
    assert (len(a.calls), len(b.calls)) == (1, 0)


async def test_last_error_surfaces_with_notes_on_the_models_before() -> None:
    _, primary = scripted(fails(LlmErrorKind.OVERLOADED))
    _, second = scripted(fails(LlmErrorKind.TIMEOUT))
    executor = RetryingExecutor(primary, RetryConfig(max_retries=0), fallbacks=[(second, "b")])
    with pytest.raises(LlmError) as caught:
        await executor.execute(REQUEST)
    assert caught.value.kind is LlmErrorKind.TIMEOUT
    assert caught.value.__notes__ == ["before this, model 'primary' failed: oops"]


async def test_retry_after_and_overload_lengthen_the_pause() -> None:
    sleeps = Sleeps()
    _, inner = scripted(fails(LlmErrorKind.OVERLOADED), fails(LlmErrorKind.RATE_LIMITED, retry_after=30), "yes")
    await RetryingExecutor(inner, RetryConfig(), sleep=sleeps).execute(REQUEST)
    assert sleeps == [2.0, 30.0]


async def test_providers_own_timeout_is_retried() -> None:
    """D-39: a provider's time-out is an error like any other."""
    provider, inner = scripted(TimeoutError("slow"), fails(LlmErrorKind.TIMEOUT), "yes")
    response = await RetryingExecutor(inner, RetryConfig(), sleep=Sleeps()).execute(REQUEST)
    assert response.content == "yes"
    assert len(provider.calls) == 3


async def test_other_errors_are_not_retried() -> None:
    provider, inner = scripted(ValueError("bug"), "yes")
    with pytest.raises(ValueError, match="bug"):
        await RetryingExecutor(inner, RetryConfig(), sleep=Sleeps()).execute(REQUEST)
    assert len(provider.calls) == 1


@pytest.mark.parametrize("streaming", [False, True])
async def test_cancellation_is_never_retried(streaming: bool) -> None:
    """B-036: one attempt, then the cancellation."""
    provider = ScriptedProvider(["yes", "yes"], delay=3600)
    executor = RetryingExecutor(
        ProviderExecutor(provider), RetryConfig(), fallbacks=[(ProviderExecutor(provider), "b")]
    )
    with anyio.move_on_after(0.01) as scope:
        await answer_of(executor, streaming=streaming)
    assert scope.cancelled_caught
    assert len(provider.calls) == 1


def is_no_refusal(response: LLMResponse) -> bool:
    return "cannot" not in response.content


@pytest.mark.parametrize("streaming", [False, True])
async def test_reply_that_is_not_accepted_counts_as_a_failure(streaming: bool) -> None:
    """B-056: streaming and not streaming fall back alike, and give the same answer."""
    a, primary = scripted("I cannot do that", "I really cannot")
    _, second = scripted("Here it is")
    executor = RetryingExecutor(
        primary, RetryConfig(max_retries=1), fallbacks=[(second, "b")], accept=is_no_refusal, sleep=Sleeps()
    )
    assert (await answer_of(executor, streaming=streaming)).content == "Here it is"
    assert len(a.calls) == 2


async def test_no_piece_of_a_reply_that_is_not_accepted_is_passed_on() -> None:
    """B-056: the pieces are held back until the reply is whole."""
    _, primary = scripted("I cannot do that")
    _, second = scripted("Here it is")

    async def accept(response: LLMResponse) -> bool:
        await anyio.lowlevel.checkpoint()
        return is_no_refusal(response)

    executor = RetryingExecutor(
        primary, RetryConfig(max_retries=0), fallbacks=[(second, "b")], accept=accept, sleep=Sleeps()
    )
    assert (await stream_of(executor))[0] == ["Here ", "it ", "is"]


@pytest.mark.parametrize("streaming", [False, True])
async def test_reply_that_no_model_gets_accepted_is_an_error(streaming: bool) -> None:
    _, primary = scripted("I cannot do that")
    executor = RetryingExecutor(primary, RetryConfig(max_retries=0), accept=is_no_refusal)
    with pytest.raises(LlmError, match="not accepted"):
        await answer_of(executor, streaming=streaming)


async def test_stream_is_not_retried_once_a_piece_was_passed_on() -> None:
    """B-056: what was read cannot be taken back, so the failure is the reader's."""
    provider, inner = scripted(["Hel", fails()], "Hello")
    texts: list[str] = []
    stream = RetryingExecutor(inner, RetryConfig(), sleep=Sleeps()).execute_stream(REQUEST)
    with pytest.raises(LlmError, match="oops"):
        await read_into(texts, stream)
    assert texts == ["Hel"]
    assert len(provider.calls) == 1


async def test_held_back_stream_is_retried_after_a_failure_in_its_middle() -> None:
    """B-056: nothing was passed on yet."""
    _, inner = scripted(["Hel", fails()], "Hello you")
    executor = RetryingExecutor(inner, RetryConfig(), accept=is_no_refusal, sleep=Sleeps())
    assert await stream_of(executor) == (["Hello ", "you"], LLMResponse("Hello you"))


class Silent:
    """Streams pieces that never make a reply, and notes how its streams end."""

    def __init__(self, *pieces: LLMDelta) -> None:
        self.closed = 0
        self._pieces = pieces

    async def execute(self, request: InferenceRequest) -> LLMResponse:
        raise NotImplementedError

    async def execute_stream(self, request: InferenceRequest) -> AsyncIterator[LLMDelta]:
        try:
            for piece in self._pieces:
                await anyio.lowlevel.checkpoint()
                yield piece
        finally:
            self.closed += 1


@pytest.mark.parametrize("pieces", [[], [LLMDelta(text="a")]])
@pytest.mark.parametrize("accept", [None, is_no_refusal])
async def test_stream_without_a_reply_is_an_error(pieces: list[LLMDelta], accept: Any) -> None:
    silent = Silent(*pieces)
    executor = RetryingExecutor(silent, RetryConfig(max_retries=1), accept=accept, sleep=Sleeps())
    with pytest.raises(LlmError, match="without a reply"):
        await stream_of(executor)
    assert silent.closed == (1 if pieces and accept is None else 2)


async def test_abandoned_stream_is_closed_down_to_the_source() -> None:
    source = Silent(LLMDelta(text="a"), LLMDelta(text="b"))
    stream = RetryingExecutor(source, RetryConfig()).execute_stream(REQUEST)
    assert (await anext(stream)).text == "a"
    await close_stream(stream)
    assert source.closed == 1


async def test_engines_policy_serves_as_well() -> None:
    provider, inner = scripted(fails(), UNAUTHORIZED, "yes")
    sleeps = Sleeps()
    with pytest.raises(LlmError, match="no key"):
        await RetryingExecutor(inner, RetryPolicy(attempts=9, wait_initial=3), sleep=sleeps).execute(REQUEST)
    assert sleeps == [3.0]
    assert provider.remaining == 1


async def test_decorated_function_is_tried_again_on_recoverable_model_errors() -> None:
    """D-47: the default rule of @retrying."""
    sleeps = Sleeps()
    outcomes: list[Exception] = [fails(), ValueError("bug")]

    @retrying(RetryConfig(fallback_models=["ignored"]), sleep=sleeps)
    async def ask(text: str, *, loud: bool = False) -> str:
        """Ask."""
        if outcomes:
            raise outcomes.pop(0)
        return text.upper() if loud else text

    with pytest.raises(ValueError, match="bug"):
        await ask("hi")
    assert sleeps == [0.5]
    assert await ask("hi", loud=True) == "HI"
    assert (ask.__name__, ask.__doc__) == ("ask", "Ask.")


@pytest.mark.parametrize("rule", [ValueError, (KeyError, ValueError), lambda error: "bug" in str(error)])
async def test_rule_of_the_decorator_replaces_the_default(rule: Any) -> None:
    outcomes: list[Exception] = [ValueError("bug"), fails()]

    @retrying(RetryConfig(backoff_base=0), retry_on=rule)
    async def ask() -> str:
        raise outcomes.pop(0)

    with pytest.raises(LlmError):
        await ask()
    assert outcomes == []


async def test_rule_of_a_policy_counts_unless_it_is_the_default() -> None:
    outcomes: list[Exception] = [ValueError("bug"), KeyError("x")]

    @retrying(RetryPolicy(wait_initial=0, retry_on=ValueError))
    async def with_rule() -> str:
        raise outcomes.pop(0)

    @retrying(RetryPolicy(wait_initial=0))
    async def without_rule() -> str:
        raise ValueError("bug")

    with pytest.raises(KeyError):
        await with_rule()
    with pytest.raises(ValueError, match="bug"):
        await without_rule()


async def test_fallback_is_called_after_a_recoverable_error_only() -> None:
    """AC-M19: an unauthorized call does not move on."""
    called: list[str] = []
    errors: list[Exception] = [fails(), UNAUTHORIZED, ValueError("bug")]

    async def b(text: str) -> str:
        called.append(text)
        return f"b says {text}"

    @with_fallback(b)
    async def a(text: str) -> str:
        raise errors.pop(0)

    assert await a("hi") == "b says hi"
    with pytest.raises(LlmError, match="no key"):
        await a("hi")
    with pytest.raises(ValueError, match="bug"):
        await a("hi")
    assert called == ["hi"]


async def test_fallbacks_are_called_in_order_and_the_last_error_surfaces() -> None:
    """AC-M19: each alternative once."""
    called: list[str] = []

    async def b() -> str:
        called.append("b")
        raise KeyError("b")

    async def c() -> str:
        called.append("c")
        raise UNAUTHORIZED

    @with_fallback(b, c, retry_on=(KeyError, ValueError))
    async def a() -> str:
        called.append("a")
        raise ValueError("a")

    with pytest.raises(LlmError, match="no key"):
        await a()
    assert called == ["a", "b", "c"]


async def test_cancellation_does_not_move_on_to_a_fallback() -> None:
    """B-036: neither decorator takes cancellation for a failure."""
    called: list[str] = []

    async def b() -> None:
        called.append("b")

    @with_fallback(b, retry_on=lambda error: True)
    @retrying(RetryConfig(), retry_on=lambda error: True)
    async def a() -> None:
        called.append("a")
        scope.cancel()
        await anyio.sleep_forever()

    with anyio.CancelScope() as scope:
        await a()
    assert scope.cancelled_caught
    assert called == ["a"]


async def test_decorators_refuse_what_is_not_async() -> None:
    def plain() -> str:
        return "a"

    decorators: list[Any] = [retrying(RetryConfig()), with_fallback(), with_fallback]
    for decorate in decorators:
        with pytest.raises(TypeError, match="no async function"):
            decorate(plain)
