"""What a real model sends goes through: streams, tool calls, structured output, cancellation, many at once.

Shape, order, spans and states are asserted, never wording: a small model says what it likes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Literal

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from pydantic import BaseModel, Field

from graphrt.graph import END, START, NodeState, RunContext, RunEvent, Workflow
from graphrt.llm import InferenceRequest, OpenAIProvider
from graphrt.messages import LLMResponse, Message
from graphrt.nodes import AgentNode, AgentParts, compile_agent
from graphrt.telemetry import Telemetry
from graphrt.tools import function_tool

pytestmark = [pytest.mark.model, pytest.mark.anyio]

SHORT: dict[str, Any] = {"temperature": 0, "max_tokens": 40}
LONG_TASK = "Count from one to five hundred in words, one number a line."
GATE = {"type": "function", "function": {"name": "gate_of"}}


class Ticket(BaseModel):
    kind: Literal["bug", "question"]
    title: str = Field(description="A few words.")
    urgent: bool


class Spans:
    """The spans of one test, with what most tests ask of them."""

    def __init__(self) -> None:
        self.provider = TracerProvider(shutdown_on_exit=False)
        self._memory = InMemorySpanExporter()
        self.provider.add_span_processor(SimpleSpanProcessor(self._memory))

    @property
    def telemetry(self) -> Telemetry:
        return Telemetry(self.provider)

    def of(self, operation: str) -> list[ReadableSpan]:
        """Give the spans of one GenAI operation, in the order in which they began."""
        found = [
            each
            for each in self._memory.get_finished_spans()
            if (each.attributes or {}).get("gen_ai.operation.name") == operation
        ]
        return sorted(found, key=lambda each: each.start_time or 0)

    def assert_one_tree(self) -> None:
        spans = self._memory.get_finished_spans()
        ids = {context.span_id for each in spans if (context := each.get_span_context()) is not None}
        roots = [each for each in spans if each.parent is None]
        assert len(roots) == 1
        assert all(each.parent.span_id in ids for each in spans if each.parent is not None)


@pytest.fixture
def spans() -> Iterator[Spans]:
    spans = Spans()
    yield spans
    spans.provider.shutdown()


def of_type(events: list[RunEvent], type: str) -> list[RunEvent]:
    return [event for event in events if event.type == type]


async def test_stream_comes_in_pieces_that_make_up_the_reply(provider: OpenAIProvider) -> None:
    question = [Message.user("Name three colours.")]
    deltas = [each async for each in provider.stream(question, **SHORT)]
    pieces = [each.text for each in deltas if each.text]
    reply = deltas[-1].response
    assert len(pieces) > 1
    assert reply is not None
    assert reply.content == "".join(pieces)
    assert reply.finish_reason in {"stop", "length"}
    assert reply.usage is not None
    assert (reply.usage.output_tokens or 0) >= 2


async def test_agent_streams_its_answer_and_counts_its_tokens(provider: OpenAIProvider, spans: Spans) -> None:
    agent = AgentNode("speaker", model=provider, **SHORT)
    events: list[RunEvent] = []
    async with agent.graph.stream("Name three colours.", telemetry=spans.telemetry) as run:
        async for event in run:
            events.append(event)  # noqa: PERF401  # as a reader does
    deltas = of_type(events, "message.delta")
    assert run.result.output == "".join(event.data["text"] for event in deltas)
    assert [event.data["index"] for event in deltas] == list(range(len(deltas)))
    numbered = [event.sequence for event in events if event.type != "message.delta"]
    assert numbered == list(range(1, len(numbered) + 1))
    (chat,) = spans.of("chat")
    assert chat.attributes is not None
    assert chat.attributes["gen_ai.usage.output_tokens"] == run.result.usage.output_tokens > 0
    spans.assert_one_tree()


async def test_tool_call_has_arguments_that_fit_and_its_result_goes_back(
    provider: OpenAIProvider, spans: Spans
) -> None:
    asked: list[str] = []

    @function_tool
    async def gate_of(flight: str) -> str:
        """Tell the gate of a flight."""
        asked.append(flight)
        return "gate 12"

    def call_first(request: InferenceRequest, ctx: RunContext[Any]) -> InferenceRequest:
        # A model is free to answer without the tool; in its first round this one is not, if its server keeps to it.
        first = ctx.step.round == 1
        return replace(request, params={**request.params, "tool_choice": GATE}) if first else request

    agent = AgentParts(
        "traveller",
        provider,
        tools=[gate_of],
        params=SHORT,
        prepare=call_first,
        max_rounds=3,
        on_limit="answer",
    )
    events: list[RunEvent] = []
    result = await compile_agent(agent).run(
        "Call the function gate_of for the flight LH400.", on_event=events.append, telemetry=spans.telemetry
    )
    assert result.status == "succeeded"
    assert isinstance(result.output, str)
    assert len(asked) >= 1
    started, completed = of_type(events, "tool.call.started"), of_type(events, "tool.call.completed")
    assert [each.data["tool_call_id"] for each in started] == [each.data["tool_call_id"] for each in completed]
    assert completed[0].data["result"] == "gate 12"
    chats, tools = spans.of("chat"), spans.of("execute_tool")
    assert len(chats) >= 2
    assert len(tools) == len(asked)
    assert (chats[0].end_time or 0) <= (tools[0].start_time or 0) <= (chats[1].start_time or 0)
    spans.assert_one_tree()


async def test_structured_output_is_a_value_of_the_model(provider: OpenAIProvider) -> None:
    agent = AgentNode("triage", model=provider, output=Ticket, temperature=0, max_tokens=200)
    result = await agent.graph.run("The page crashes whenever I press save, please help at once!")
    assert isinstance(result.output, Ticket)


async def test_cancelling_in_mid_stream_ends_the_request_and_frees_the_model(
    provider: OpenAIProvider, spans: Spans
) -> None:
    agent = AgentNode("counter", model=provider, max_tokens=1500)
    events: list[RunEvent] = []
    async with agent.graph.stream(LONG_TASK, check=False, telemetry=spans.telemetry) as run:
        async for event in run:
            events.append(event)
            if event.type == "message.delta" and event.data["index"] == 2:
                answer = await run.cancel("now")
                assert answer.outcome == "cancelled"
    assert run.result.status == "cancelled"
    assert run.result.node_states["inference"] is NodeState.CANCELLED
    (cancelled,) = of_type(events, "step.cancelled")
    assert cancelled.data["partial"].startswith(
        "".join(each.data["text"] for each in of_type(events, "message.delta")[:3])
    )
    spans.assert_one_tree()
    reply = await provider.chat([Message.user("Say yes.")], **SHORT)
    assert isinstance(reply, LLMResponse)


async def test_eight_requests_at_once_keep_the_order_of_their_items(provider: OpenAIProvider, spans: Spans) -> None:
    words = ["sun", "rain", "snow", "wind", "fog", "hail", "frost", "storm"]
    wf = Workflow("eight", input=list[str], output=list[str])

    @wf.node
    async def each(words: list[str]) -> list[str]:
        return words

    @wf.node
    async def prompt(word: str) -> str:
        return f"Write one short sentence about the {word}."

    @wf.node
    async def together(sentences: list[str]) -> list[str]:
        return sentences

    wf.add(AgentNode("writer", model=provider, temperature=0, max_tokens=24))
    wf.chain(START, each)
    wf.map(each, prompt)
    wf.chain(prompt, "writer")
    wf.gather("writer", together, into="sentences")
    wf.chain(together, END)
    result = await wf.run(words, telemetry=spans.telemetry)
    written = [step for step in result.steps if step.node == "writer"]
    assert [step.state for step in written] == [NodeState.SUCCEEDED] * 8
    by_index = sorted(written, key=lambda step: int(step.scope.rstrip("]").rpartition("[")[2]))
    assert result.output == [step.value for step in by_index]
    chats = spans.of("chat")
    assert len(chats) == 8
    assert max(chat.start_time or 0 for chat in chats) < min(chat.end_time or 0 for chat in chats)
    spans.assert_one_tree()
