from __future__ import annotations

from typing import Any

import anyio
import pytest

from graphrt.errors import ConfigError, LlmError
from graphrt.llm import LLMDelta, ScriptedProvider, ToolCallPart
from graphrt.llm.scripted import Piece
from graphrt.messages import LLMResponse, Message, TokenUsage, ToolCall

pytestmark = pytest.mark.anyio

USER = [Message.user("hi")]


async def test_each_call_takes_one_entry() -> None:
    first, second = LLMResponse("one"), LLMResponse("two")
    async with ScriptedProvider([first, second]) as provider:
        assert await provider.chat(USER) is first
        assert await provider.chat(USER, None, temperature=0.5) is second
        assert provider.remaining == 0


async def test_text_stands_for_a_reply_and_an_exception_is_raised() -> None:
    provider = ScriptedProvider(["one", LlmError("oops")])
    assert await provider.chat(USER) == LLMResponse("one")
    with pytest.raises(LlmError, match="oops"):
        await provider.chat(USER)


async def test_function_answers_from_the_request() -> None:
    async def later(messages: list[Message], tools: Any, kwargs: dict[str, Any]) -> LLMResponse:
        await anyio.lowlevel.checkpoint()
        return LLMResponse(f"{messages[-1].content} at {kwargs['temperature']}")

    provider = ScriptedProvider([later, lambda messages, tools, kwargs: str(len(messages)), lambda *_: LlmError("no")])
    assert (await provider.chat(USER, temperature=0.5)).content == "hi at 0.5"
    assert (await provider.chat(USER)).content == "1"
    with pytest.raises(LlmError, match="no"):
        await provider.chat(USER)


async def test_call_beyond_the_script_fails_the_test() -> None:
    provider = ScriptedProvider(["one"])
    await provider.chat(USER)
    with pytest.raises(AssertionError, match="call 2"):
        await provider.chat(USER)
    with pytest.raises(AssertionError, match="call 3"):
        await anext(provider.stream(USER))
    assert len(provider.calls) == 3


async def test_calls_are_recorded_as_they_were() -> None:
    arguments = {"a": 1}
    messages = [Message.assistant("", [ToolCall("c-1", "add", arguments)])]
    tools = [{"type": "function"}]
    provider = ScriptedProvider(["one"])
    await provider.chat(messages, tools, temperature=0.5)
    messages[0].tool_calls[0].arguments["a"] = 2
    messages.append(Message.user("later"))
    tools.clear()
    (call,) = provider.calls
    assert [message.tool_calls[0].arguments for message in call.messages] == [{"a": 1}]
    assert call.tools == [{"type": "function"}]
    assert call.kwargs == {"temperature": 0.5}


async def test_stream_gives_words_then_calls_then_usage_then_the_reply() -> None:
    reply = LLMResponse("Good morning,  you.", [ToolCall("c-1", "add", {"a": 1})], TokenUsage(3, 4))
    deltas = [delta async for delta in ScriptedProvider([reply]).stream(USER)]
    assert deltas == [
        LLMDelta("Good "),
        LLMDelta("morning,  "),
        LLMDelta("you."),
        LLMDelta(tool_call=ToolCallPart(0, "c-1", "add", '{"a": 1}')),
        LLMDelta(usage=TokenUsage(3, 4)),
        LLMDelta(response=reply),
    ]


async def test_script_may_say_what_the_pieces_are_and_where_they_break_off() -> None:
    pieces: list[Piece] = ["a", LLMDelta("b", usage=TokenUsage(None, 2)), "c"]
    provider = ScriptedProvider([pieces, pieces, ["a", LlmError("oops")], ["a", LlmError("oops")]])
    deltas = [delta async for delta in provider.stream(USER)]
    assert [delta.text for delta in deltas] == ["a", "b", "c", ""]
    assert deltas[-1].response == LLMResponse("abc", usage=TokenUsage(None, 2))
    assert await provider.chat(USER) == deltas[-1].response
    broken = provider.stream(USER)
    assert await anext(broken) == LLMDelta("a")
    with pytest.raises(LlmError, match="oops"):
        await anext(broken)
    with pytest.raises(LlmError, match="oops"):
        await provider.chat(USER)


async def test_delay_can_be_cancelled() -> None:
    provider = ScriptedProvider(["one"], delay=3600)
    with anyio.move_on_after(0.01) as scope:
        await provider.chat(USER)
    assert scope.cancelled_caught


@pytest.mark.parametrize("script", ["one", LlmError("oops"), LLMResponse("one"), len, {"one": 1}])
def test_script_that_is_no_list_is_refused(script: Any) -> None:
    with pytest.raises(ConfigError, match="a script is a list of entries, not a") as caught:
        ScriptedProvider(script)
    assert "ScriptedProvider([entry])" in str(caught.value.hint)


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        (5, "entry 2 of the script is an int, which cannot be played"),
        (None, "entry 2 of the script is a NoneType"),
        (b"one", "entry 2 of the script is a bytes"),
        (Message.assistant("one"), "entry 2 of the script is a Message"),
        (LlmError, "entry 2 of the script is the class LlmError, not an instance of it"),
        (["one", 5], "entry 2 of the script has an int among its pieces"),
        (lambda: "x", "entry 2 of the script is a function that cannot be called with messages, tools and params"),
        (lambda messages, tools: "x", "entry 2 of the script is a function that cannot"),
        (["one", None], "entry 2 of the script has a NoneType among its pieces"),
    ],
)
def test_entry_that_cannot_be_played_is_refused_at_once(entry: Any, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        ScriptedProvider(["one", entry])
