"""The trace of an agent in a workflow (AC-C11 and AC-C13, as far as they need no session)."""

from __future__ import annotations

import json

import pytest
from opentelemetry.trace import SpanKind

from graphrt import END, START, AgentNode, HookEvent, HookExecutor, Workflow, function_tool
from graphrt.hooks import HookContext
from graphrt.llm import ScriptedProvider
from graphrt.messages import LLMResponse, TokenUsage, ToolCall
from tests.telemetry.collecting import Collected, attributes, went_well

pytestmark = pytest.mark.anyio


@function_tool
async def search(query: str) -> str:
    """Search the archive."""
    return f"found {query}"


def researching() -> Workflow:
    asked = ToolCall(id="call-1", name="search", arguments={"query": "bees"})
    usage = TokenUsage(input_tokens=41, output_tokens=3)
    model = ScriptedProvider(
        [
            LLMResponse(tool_calls=[asked], usage=usage, model="small-2"),
            LLMResponse(content="bees, then", finish_reason="stop"),
        ]
    )
    workflow = Workflow("research")
    workflow.add(AgentNode("helper", model=model, tools=[search]))
    workflow.chain(START, "helper", END)
    return workflow


async def test_turn_with_a_tool_call_and_two_hooks_is_one_tree() -> None:
    collected = Collected()
    hooks = HookExecutor(span=collected.telemetry.hook)
    hooks.register(HookEvent.ON_TURN_START, lambda context: None, name="greet")
    hooks.register(HookEvent.ON_TURN_END, lambda context: None, name="part")
    with collected.telemetry.turn("helper", session_id="s-1", turn_index=0):
        await hooks.execute(HookEvent.ON_TURN_START, HookContext(HookEvent.ON_TURN_START, "s-1"))
        result = await researching().run("bees?", telemetry=collected.telemetry)
        await hooks.execute(HookEvent.ON_TURN_END, HookContext(HookEvent.ON_TURN_END, "s-1"))
    assert result.output == "bees, then"
    collected.check_whole()
    counts = {kind: len(collected.of_kind(kind)) for kind in ("turn", "run", "round", "inference", "tool", "hook")}
    assert counts == {"turn": 1, "run": 1, "round": 2, "inference": 2, "tool": 1, "hook": 2}
    assert all(went_well(span) for span in collected.spans)
    (tool,) = collected.of_kind("tool")
    above = "invoke_agent helper > invoke_workflow research > invoke_agent helper > round inference"
    assert collected.path(tool) == f"{above} > execute_tool search"
    assert {collected.path(span).rpartition(" > ")[0] for span in collected.of_kind("inference")} == {above}


async def test_model_calls_and_tool_calls_have_their_attributes() -> None:
    collected = Collected()
    await researching().run("bees?", telemetry=collected.telemetry)
    first, second = sorted(collected.of_kind("inference"), key=lambda span: span.start_time or 0)
    assert first.kind is second.kind is SpanKind.CLIENT
    assert first.name == "chat small-2"
    known, unknown = attributes(first), attributes(second)
    assert known["gen_ai.usage.input_tokens"] == 41
    assert known["gen_ai.usage.output_tokens"] == 3
    assert known["gen_ai.response.model"] == "small-2"
    assert not any(key.startswith("gen_ai.usage") for key in unknown)
    assert known["gen_ai.operation.name"] == unknown["gen_ai.operation.name"] == "chat"
    tool = attributes(collected.one("execute_tool search"))
    assert tool["gen_ai.operation.name"] == "execute_tool"
    assert tool["gen_ai.tool.name"] == "search"
    assert tool["gen_ai.tool.call.id"] == "call-1"
    assert not any("bees" in span.to_json() for span in collected.spans)


async def test_prompts_replies_and_arguments_are_recorded_when_they_are_wanted() -> None:
    collected = Collected(capture_content=True)
    await researching().run("bees?", telemetry=collected.telemetry)
    first, second = sorted(collected.of_kind("inference"), key=lambda span: span.start_time or 0)
    (question,) = json.loads(attributes(first)["gen_ai.input.messages"])
    assert question == {"role": "user", "parts": [{"type": "text", "content": "bees?"}]}
    call = {"type": "tool_call", "id": "call-1", "name": "search", "arguments": {"query": "bees"}}
    found = {"type": "tool_call_response", "id": "call-1", "response": "found bees"}
    assert json.loads(attributes(second)["gen_ai.input.messages"]) == [
        question,
        {"role": "assistant", "parts": [call]},
        {"role": "tool", "parts": [found]},
    ]
    assert json.loads(attributes(second)["gen_ai.output.messages"]) == [
        {
            "role": "assistant",
            "parts": [{"type": "text", "content": "bees, then"}],
            "finish_reason": "stop",
        }
    ]
    (reply,) = json.loads(attributes(first)["gen_ai.output.messages"])
    assert reply == {"role": "assistant", "parts": [call], "finish_reason": ""}
    tool = attributes(collected.one("execute_tool search"))
    assert json.loads(tool["gen_ai.tool.call.arguments"]) == {"query": "bees"}
    assert "found bees" in tool["gen_ai.tool.call.result"]
