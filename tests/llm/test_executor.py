from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Sequence
from types import ModuleType
from typing import Any

import anyio
import pytest

from graphrt import llm
from graphrt.errors import LlmError, LlmErrorKind
from graphrt.llm import (
    CostTracker,
    InferenceRequest,
    LLMDelta,
    LLMExecutor,
    LLMProvider,
    ProviderExecutor,
    ScriptedProvider,
)
from graphrt.llm.per_loop import PerLoop
from graphrt.llm.provider import close_stream
from graphrt.messages import LLMResponse, Message, TokenUsage

USER = [Message.user("hi")]


class Whole(LLMProvider):
    """Implements nothing but what has to be."""

    def __init__(self, response: LLMResponse) -> None:
        self._response = response

    async def chat(self, messages: Sequence[Message], tools: Any = None, **kwargs: Any) -> LLMResponse:
        return self._response


def test_provider_has_to_implement_chat() -> None:
    with pytest.raises(TypeError, match="chat"):
        LLMProvider()  # type: ignore[abstract]  # what the test is about


@pytest.mark.anyio
async def test_provider_that_cannot_stream_gives_its_text_in_one_piece() -> None:
    response = LLMResponse("Good morning", usage=TokenUsage(3, 4))
    async with Whole(response) as provider:
        deltas = [delta async for delta in provider.stream(USER)]
        assert deltas == [LLMDelta("Good morning"), LLMDelta(usage=TokenUsage(3, 4), response=response)]
        assert [piece async for piece in provider.chat_stream(USER)] == ["Good morning"]


@pytest.mark.anyio
async def test_request_reaches_the_provider() -> None:
    provider = ScriptedProvider(["one", "two", "three"])
    executor = ProviderExecutor(provider)
    request = InferenceRequest("m", USER, params={"temperature": 0.5})
    assert (await executor.execute(request)).content == "one"
    deltas = [delta async for delta in executor.execute_stream(request)]
    assert deltas[-1].response == LLMResponse("two")
    await executor.execute(request.replace(model=None))
    assert [call.kwargs for call in provider.calls] == [
        {"temperature": 0.5, "model": "m"},
        {"temperature": 0.5, "model": "m"},
        {"temperature": 0.5},
    ]
    assert provider.calls[0].tools is None
    assert isinstance(executor, LLMExecutor)
    assert not isinstance(provider, LLMExecutor)


@pytest.mark.anyio
@pytest.mark.parametrize("script", [[TimeoutError("slow")], [["a", TimeoutError("slow")]]])
async def test_providers_own_timeout_is_a_model_error(script: list[Any]) -> None:
    """D-39: the run's deadline is another thing."""
    for ask in (_execute, _execute_stream):
        with pytest.raises(LlmError, match="took too long: slow") as caught:
            await ask(ProviderExecutor(ScriptedProvider(script)))
        assert caught.value.kind is LlmErrorKind.TIMEOUT
        assert isinstance(caught.value.__cause__, TimeoutError)


async def _execute(executor: ProviderExecutor) -> None:
    await executor.execute(InferenceRequest("m", USER))


async def _execute_stream(executor: ProviderExecutor) -> None:
    async for _ in executor.execute_stream(InferenceRequest("m", USER)):
        pass


@pytest.mark.anyio
async def test_deadline_around_a_call_stays_a_deadline() -> None:
    executor = ProviderExecutor(ScriptedProvider(["one"], delay=3600))
    with pytest.raises(TimeoutError), anyio.fail_after(0.01):
        await executor.execute(InferenceRequest("m", USER))


@pytest.mark.anyio
async def test_abandoned_stream_is_closed_down_to_the_provider() -> None:
    closed: list[str] = []

    class Source(Whole):
        async def stream(
            self, messages: Sequence[Message], tools: Any = None, **kwargs: Any
        ) -> AsyncIterator[LLMDelta]:
            try:
                yield LLMDelta("a")
                yield LLMDelta("b")
            finally:
                closed.append("source")

    source = Source(LLMResponse())
    streams: list[AsyncIterator[object]] = [
        ProviderExecutor(source).execute_stream(InferenceRequest("m", USER)),
        source.chat_stream(USER),
    ]
    for stream in streams:
        await anext(stream)
        await close_stream(stream)
    assert closed == ["source", "source"]


def test_costs_add_up_and_a_call_without_usage_counts() -> None:
    """AC-A13: (10, 5) and (7, 3) make 17 and 8; no usage leaves the totals alone."""
    tracker = CostTracker()
    assert (tracker.total, tracker.calls) == (TokenUsage(), 0)
    for usage in (TokenUsage(10, 5), TokenUsage(7, 3), None):
        tracker.add(usage)
    assert (tracker.total, tracker.calls) == (TokenUsage(17, 8), 3)


def test_costs_add_up_across_threads() -> None:
    tracker = CostTracker()

    def add() -> None:
        for _ in range(500):
            tracker.add(TokenUsage(1, 1))

    threads = [threading.Thread(target=add) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (tracker.total, tracker.calls) == (TokenUsage(2000, 2000), 2000)


def numbered() -> tuple[PerLoop[list[str]], list[list[str]]]:
    made: list[list[str]] = []

    def make() -> list[str]:
        made.append(["open"])
        return made[-1]

    async def close(value: list[str]) -> None:
        await anyio.lowlevel.checkpoint()
        value.append("closed")

    return PerLoop(make, close), made


@pytest.mark.anyio
async def test_value_of_a_loop_is_made_once_and_closed_once() -> None:
    values, made = numbered()
    assert await values.get() is await values.get()
    await values.aclose()
    await values.aclose()
    assert made == [["open", "closed"]]
    await values.get()
    await values.aclose()
    assert made == [["open", "closed"], ["open", "closed"]]


@pytest.mark.anyio
async def test_value_made_beforehand_goes_to_the_first_loop_or_is_closed() -> None:
    async def close(value: list[str]) -> None:
        value.append("closed")

    first = ["first"]
    values: PerLoop[list[str]] = PerLoop(lambda: ["made"], close, first=first)
    assert await values.get() is first
    await values.aclose()
    unused = ["unused"]
    await PerLoop(lambda: ["made"], close, first=unused).aclose()
    assert (first, unused) == (["first", "closed"], ["unused", "closed"])


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_value_is_closed_with_its_loop(backend: str) -> None:
    values, made = numbered()

    async def use() -> None:
        await values.get()

    anyio.run(use, backend=backend)
    anyio.run(use, backend=backend)
    assert [value[0] for value in made] == ["open", "open"]
    assert [len(value) for value in made] == [2, 2]


def test_loops_in_several_threads_have_a_value_each() -> None:
    values, made = numbered()
    barrier = threading.Barrier(3)

    async def use() -> None:
        value = await values.get()
        barrier.wait(10)
        assert await values.get() is value
        await values.aclose()

    threads = [threading.Thread(target=anyio.run, args=(use,)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert made == [["open", "closed"]] * 3


def test_every_public_name_is_what_it_says_whatever_was_imported_before() -> None:
    for name in llm.__all__:
        assert not isinstance(getattr(llm, name), ModuleType)
        assert getattr(llm, name).__doc__


def test_cost_tracker_shows_what_it_has_counted() -> None:
    tracker = CostTracker()
    tracker.add(TokenUsage(1, 2, 3))
    assert repr(tracker) == f"CostTracker(calls=1, total={TokenUsage(1, 2, 3)!r})"
