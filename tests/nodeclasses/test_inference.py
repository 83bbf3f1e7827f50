from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

import anyio
import pytest

from graphrt import END, START, Budget, ConfigError, LimitExceededError, LlmError, RetryPolicy, RunContext, Workflow
from graphrt.errors import GraphTypeError, LlmErrorKind
from graphrt.hooks import HookContext, HookEvent, HookExecutor, HookResult
from graphrt.llm import InferenceRequest, LLMDelta, LLMProvider, ProviderExecutor, ScriptedProvider
from graphrt.llm.provider import Tools
from graphrt.messages import LLMResponse, Message, TokenUsage
from graphrt.nodes import FallbackNode, InferenceNode
from tests.nodeclasses.helpers import Events, alone

pytestmark = pytest.mark.anyio


class Whole(LLMProvider):
    """A provider that cannot stream."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []

    async def chat(self, messages: Sequence[Message], tools: Tools = None, **kwargs: Any) -> LLMResponse:
        self.asked.append(kwargs)
        return LLMResponse("one piece", usage=TokenUsage(1, 2))

    async def stream(self, messages: Sequence[Message], tools: Tools = None, **kwargs: Any) -> AsyncIterator[LLMDelta]:
        raise AssertionError("this is not to be called")
        yield LLMDelta()


class Endless(LLMProvider):
    """A provider that never stops, and reports the tokens so far with each piece."""

    def __init__(self) -> None:
        self.pieces = 0
        self.closed = False
        self.asked: list[dict[str, Any]] = []

    async def chat(self, messages: Sequence[Message], tools: Tools = None, **kwargs: Any) -> LLMResponse:
        raise AssertionError("this is not to be called")

    async def stream(self, messages: Sequence[Message], tools: Tools = None, **kwargs: Any) -> AsyncIterator[LLMDelta]:
        self.asked.append(kwargs)
        try:
            while True:
                await anyio.lowlevel.checkpoint()
                self.pieces += 1
                yield LLMDelta(text="word ", usage=TokenUsage(total_tokens=10 * self.pieces))
        finally:
            self.closed = True


# --- one call


async def test_node_asks_once_and_gives_the_whole_reply() -> None:
    provider = ScriptedProvider([LLMResponse("hello", usage=TokenUsage(10, 5), model="m-1")])
    node = InferenceNode("ask", model=(provider, "big"), system_prompt="Be kind.", params={"temperature": 0.0})

    result = await alone(node).run("hi")

    assert result.output == LLMResponse("hello", usage=TokenUsage(10, 5), model="m-1")
    assert provider.calls[0].messages == [Message.system("Be kind."), Message.user("hi")]
    assert provider.calls[0].kwargs == {"model": "big", "temperature": 0.0}
    assert result.usage == TokenUsage(10, 5)


async def test_messages_are_taken_as_they_are() -> None:
    provider = ScriptedProvider(["ok"])
    conversation = [Message.user("one"), Message.assistant("two"), Message.user("three")]

    await alone(InferenceNode("ask", model=provider)).run(conversation)

    assert provider.calls[0].messages == conversation


async def test_value_that_is_no_message_is_refused() -> None:
    async def number() -> Any:
        return [1]

    workflow = Workflow("w")
    workflow.node(number)
    workflow.add(InferenceNode("ask", model=ScriptedProvider(["never"])))
    workflow.chain(START, number, "ask", END)

    with pytest.raises(GraphTypeError, match="asked with a int"):
        await workflow.run()


async def test_unknown_usage_adds_nothing() -> None:
    """B-113."""
    workflow = Workflow("two", input=str)
    for name, usage in (("first", TokenUsage(3, None)), ("second", None)):
        workflow.add(InferenceNode(name, model=ScriptedProvider([LLMResponse("x", usage=usage)])))
    workflow.edge(START, "first")
    workflow.edge(START, "second")
    workflow.edge("first", END)
    workflow.edge("second", END)

    result = await workflow.run("hi")

    assert result.usage == TokenUsage(3, None, None)


def test_what_cannot_be_asked_is_refused() -> None:
    model: Any = "gpt-4o-mini"
    with pytest.raises(ConfigError, match="cannot be asked"):
        InferenceNode("ask", model=model)


async def test_prepare_changes_what_is_sent_and_nothing_else() -> None:
    provider = ScriptedProvider(["ok"])

    async def shorten(request: InferenceRequest, ctx: RunContext[Any]) -> InferenceRequest:
        assert ctx.step.node == "ask"
        return request.replace(messages=list(request.messages)[-1:], params={"seed": 1})

    await alone(InferenceNode("ask", model=provider, prepare=shorten)).run([Message.user("a"), Message.user("b")])

    assert provider.calls[0].messages == [Message.user("b")]
    assert provider.calls[0].kwargs == {"seed": 1}


# --- streaming


async def test_text_is_streamed_when_somebody_reads() -> None:
    """B-056: streaming or not, the answer is the same."""
    events = Events()
    graph = alone(InferenceNode("ask", model=ScriptedProvider(["a b c", "a b c"]))).compile()

    read = await graph.run("hi", on_event=events)
    unread = await graph.run("hi")

    assert [event.data["text"] for event in events.of("message.delta")] == ["a ", "b ", "c"]
    assert events.of("step.completed")[0].data["text"] == "a b c"
    assert read.output == unread.output


async def test_completed_message_is_told_with_its_usage() -> None:
    events = Events()
    reply = LLMResponse("hello", usage=TokenUsage(10, 5), finish_reason="stop", model="m-1")

    await alone(InferenceNode("ask", model=ScriptedProvider([reply]))).run("hi", on_event=events)

    (told,) = events.of("message.completed")
    assert told.data["message"] == {"role": "assistant", "content": "hello", "tool_calls": []}
    assert told.data["usage"] == {"input_tokens": 10, "output_tokens": 5}
    assert (told.data["model"], told.data["finish_reason"]) == ("m-1", "stop")


async def test_provider_that_only_answers_whole_is_not_streamed() -> None:
    class Plain(LLMProvider):
        async def chat(self, messages: Sequence[Message], tools: Tools = None, **kwargs: Any) -> LLMResponse:
            return LLMResponse("one piece")

    events = Events()
    await alone(InferenceNode("ask", model=Plain())).run("hi", on_event=events)

    assert events.of("message.delta") == []
    assert (await alone(InferenceNode("ask", model=Whole())).run("hi")).output.content == "one piece"


async def test_refused_reply_is_neither_streamed_nor_given() -> None:
    events = Events()
    node = InferenceNode("ask", model=ScriptedProvider(["no", "yes it is"]), accept=lambda reply: reply.content != "no")
    workflow = Workflow("w", input=str)
    workflow.add(node, retry=RetryPolicy(attempts=2, wait_initial=0))
    workflow.chain(START, "ask", END)

    result = await workflow.run("hi", on_event=events)

    assert result.output.content == "yes it is"
    assert [event.data["text"] for event in events.of("message.delta")] == ["yes it is"]


async def test_stream_that_ends_without_a_reply_is_an_error() -> None:
    class Broken(LLMProvider):
        async def chat(self, messages: Sequence[Message], tools: Tools = None, **kwargs: Any) -> LLMResponse:
            raise AssertionError("this is not to be called")

        async def stream(
            self, messages: Sequence[Message], tools: Tools = None, **kwargs: Any
        ) -> AsyncIterator[LLMDelta]:
            yield LLMDelta(text="half")

    with pytest.raises(LlmError, match="without a reply"):
        await alone(InferenceNode("ask", model=Broken())).run("hi", on_event=Events())


async def test_cancelled_run_closes_the_stream() -> None:
    """B-039: when the block has been left, the request is over."""
    provider = Endless()
    async with alone(InferenceNode("ask", model=provider)).stream("hi") as run:
        async for event in run:
            if event.type == "message.delta":
                break

    assert provider.closed


# --- budgets


async def test_token_limit_stops_a_stream_on_its_way() -> None:
    """B-116: near the limit, and the connection is closed."""
    provider = Endless()

    with pytest.raises(LimitExceededError) as caught:
        await alone(InferenceNode("ask", model=provider)).run("hi", budget=Budget(tokens=100))

    assert caught.value.limit == "tokens"
    assert provider.pieces == 11
    assert provider.closed
    assert provider.asked == [{"max_tokens": 100}]


async def test_parallel_branches_share_the_token_limit() -> None:
    """B-116."""
    providers = [Endless(), Endless()]
    workflow = Workflow("two", input=str)
    for name, provider in zip("ab", providers, strict=True):
        workflow.add(InferenceNode(name, model=provider, params={"max_tokens": 50}))
        workflow.chain(START, name, END)

    with pytest.raises(LimitExceededError):
        await workflow.run("hi", budget=Budget(tokens=100))

    assert sum(provider.pieces for provider in providers) <= 12


async def test_call_asks_for_no_more_than_is_left() -> None:
    provider = ScriptedProvider([LLMResponse("a", usage=TokenUsage(20, 10)), LLMResponse("b", usage=TokenUsage(1, 1))])
    workflow = Workflow("chain", input=str)
    for name in ("first", "second"):
        workflow.add(InferenceNode(name, model=provider, params={"max_tokens": 80}))

    async def text(reply: LLMResponse) -> str:
        return reply.content

    workflow.node(text)
    workflow.chain(START, "first", text, "second", END)

    await workflow.run("hi", budget=Budget(tokens=100))

    assert [asked.kwargs["max_tokens"] for asked in provider.calls] == [80, 70]


async def test_unknown_usage_settles_at_the_reservation() -> None:
    """B-113."""
    provider = ScriptedProvider(["a", "b"])
    workflow = Workflow("chain", input=str)
    for name in ("first", "second"):
        workflow.add(InferenceNode(name, model=provider))

    async def text(reply: LLMResponse) -> str:
        return reply.content

    workflow.node(text)
    workflow.chain(START, "first", text, "second", END)

    with pytest.raises(LimitExceededError):
        await workflow.run("hi", budget=Budget(tokens=100))
    assert len(provider.calls) == 1


async def test_failed_call_gives_its_tokens_back_and_counts_as_a_request() -> None:
    provider = ScriptedProvider([LlmError("busy", LlmErrorKind.OVERLOADED), LLMResponse("ok", usage=TokenUsage(5, 5))])
    workflow = Workflow("w", input=str)
    workflow.add(InferenceNode("ask", model=provider), retry=RetryPolicy(attempts=3, wait_initial=0))
    workflow.chain(START, "ask", END)

    result = await workflow.run("hi", budget=Budget(tokens=100, requests=2))

    assert result.output.content == "ok"
    assert [asked.kwargs["max_tokens"] for asked in provider.calls] == [100, 100]


async def test_request_limit_is_exact() -> None:
    provider = ScriptedProvider(["a", "b"])
    workflow = Workflow("w", input=str)
    for name in ("first", "second"):
        workflow.add(InferenceNode(name, model=provider))

    async def text(reply: LLMResponse) -> str:
        return reply.content

    workflow.node(text)
    workflow.chain(START, "first", text, "second", END)

    with pytest.raises(LimitExceededError) as caught:
        await workflow.run("hi", budget=Budget(requests=1))
    assert caught.value.limit == "requests"
    assert len(provider.calls) == 1


async def test_cost_limit_needs_to_know_what_a_call_costs() -> None:
    reply = LLMResponse("x", usage=TokenUsage(1_000, 1_000))
    priced = InferenceNode("ask", model=ScriptedProvider([reply]), cost_of=lambda usage: 2.0)
    unpriced = InferenceNode("ask", model=ScriptedProvider([reply]))

    assert (await alone(priced).run("hi", budget=Budget(cost=1.0))).output == reply
    with pytest.raises(ConfigError, match="what its model costs"):
        await alone(unpriced).run("hi", budget=Budget(cost=1.0))


async def test_usage_of_a_stopped_stream_is_kept() -> None:
    """D-32: usage already spent is counted, however the call ends."""
    result = await alone(InferenceNode("ask", model=Endless())).run("hi", budget=Budget(tokens=100), check=False)

    assert result.usage == TokenUsage(total_tokens=110)


# --- standing in


def with_fallback(first: LLMProvider, second: LLMProvider) -> Workflow:
    workflow = Workflow("w", input=str)
    workflow.add(InferenceNode("first", model=first))
    workflow.add(FallbackNode("second", model=second))
    workflow.chain(START, "first", END)
    workflow.edge("first", "second", on_error=LlmError)
    workflow.edge("second", END)
    return workflow


async def test_other_model_takes_the_place_of_one_that_failed() -> None:
    second = ScriptedProvider(["from the second"])
    result = await with_fallback(ScriptedProvider([LlmError("down")]), second).run("hi")

    assert result.output.content == "from the second"
    assert second.calls[0].messages == [Message.user("hi")]


async def test_error_of_the_last_model_has_a_note_on_the_one_before() -> None:
    workflow = with_fallback(ScriptedProvider([LlmError("down")]), ScriptedProvider([LlmError("down too")]))

    with pytest.raises(LlmError, match="down too") as caught:
        await workflow.run("hi")
    assert any("before this, another model failed: LlmError: down" in note for note in caught.value.__notes__)


async def test_retry_hooks_are_told_before_each_pause() -> None:
    told: list[tuple[int, float]] = []

    def note(ctx: HookContext) -> HookResult:
        told.append((ctx.data["attempt"], ctx.data["delay"]))
        return HookResult.ok()

    hooks = HookExecutor()
    hooks.register(HookEvent.ON_RETRY, note)
    policy = RetryPolicy(attempts=3, wait_initial=0)
    provider = ScriptedProvider([LlmError("1"), LlmError("2"), LlmError("3")])
    workflow = Workflow("w", input=str)
    workflow.add(InferenceNode("ask", model=ProviderExecutor(provider), retry=policy, hooks=hooks), retry=policy)
    workflow.chain(START, "ask", END)

    with pytest.raises(LlmError, match="3"):
        await workflow.run("hi")
    assert told == [(1, 0.0), (2, 0.0)]
