"""What people and models wrote is on a span only when it was asked for, and what is unknown never (C-11)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from pydantic import BaseModel

from graphrt import END, START, RunContext, Workflow
from graphrt.graph import NodeKind
from graphrt.telemetry import conventions as names
from tests.engine.helpers import Asking
from tests.telemetry.collecting import Collected, Doing, attributes, logged, status

pytestmark = pytest.mark.anyio

WORDS = "the words of a person"


class Reply(BaseModel):
    text: str


async def answers(text: str) -> Reply:
    return Reply(text=text.upper())


async def asks_a_model(given: Reply, ctx: RunContext[Any]) -> str:
    ctx.annotate(names.REQUEST_MODEL, "small")
    ctx.annotate(names.RESPONSE_MODEL, "small-2")
    ctx.annotate(names.INPUT_TOKENS, 41)
    ctx.annotate(names.INPUT_MESSAGES, given.text)
    return given.text


def chatting() -> Workflow:
    workflow = Workflow("chatting")
    workflow.node(answers)
    workflow.add(Doing("model", NodeKind.INFERENCE, asks_a_model))
    workflow.add(Asking("approve"))
    workflow.chain(START, answers, "model", "approve", END)
    return workflow


async def approve(question: Any) -> str:
    return "yes"


async def test_no_content_unless_it_is_wanted() -> None:
    collected = Collected()
    await chatting().run(WORDS, on_ask=approve, telemetry=collected.telemetry)
    collected.check_whole()
    for span in collected.spans:
        assert WORDS not in span.to_json().lower()
        assert set(attributes(span)).isdisjoint(names.CONTENT)


async def test_content_that_is_wanted_is_on_runs_steps_and_model_calls() -> None:
    collected = Collected(capture_content=True)
    await chatting().run(WORDS, on_ask=approve, telemetry=collected.telemetry)
    run = attributes(collected.one("invoke_workflow chatting"))
    assert (run["graphrt.input"], run["graphrt.output"]) == (WORDS, "yes")
    step = attributes(collected.one("node answers"))
    assert step["graphrt.input"] == WORDS
    assert json.loads(step["graphrt.output"]) == {"text": WORDS.upper()}
    assert attributes(collected.one("chat small"))["gen_ai.input.messages"] == WORDS.upper()
    assert WORDS.upper() in attributes(collected.one("node approve"))["graphrt.question"]


async def test_model_call_is_named_by_its_model_and_tells_what_is_known() -> None:
    """AC-C13: usage that was not reported is no attribute."""
    calls: list[dict[str, Any]] = [
        {names.REQUEST_MODEL: "small", names.INPUT_TOKENS: 41, names.OUTPUT_TOKENS: 21},
        {names.REQUEST_MODEL: "large", names.INPUT_TOKENS: None, names.OUTPUT_TOKENS: None},
    ]

    async def ask(given: Any, ctx: RunContext[Any]) -> Any:
        for key, value in calls[given].items():
            ctx.annotate(key, value)
        return given + 1

    workflow = Workflow("two")
    workflow.add(Doing("first", NodeKind.INFERENCE, ask))
    workflow.add(Doing("second", NodeKind.INFERENCE, ask))
    workflow.chain(START, "first", "second", END)
    collected = Collected()
    await workflow.run(0, telemetry=collected.telemetry)
    known, unknown = attributes(collected.one("chat small")), attributes(collected.one("chat large"))
    assert (known["gen_ai.usage.input_tokens"], known["gen_ai.usage.output_tokens"]) == (41, 21)
    assert not any(key.startswith("gen_ai.usage") for key in unknown)
    for one in (known, unknown):
        assert one["gen_ai.operation.name"] == "chat"
        assert one["graphrt.kind"] == "inference"
    assert known["gen_ai.request.model"] == "small"


async def test_tool_is_named_by_what_was_called_and_may_report_an_error_of_its_own() -> None:
    async def call(given: Any, ctx: RunContext[Any]) -> Any:
        ctx.annotate(names.TOOL_NAME, "search")
        ctx.annotate(names.TOOL_CALL_ID, "call-1")
        ctx.annotate(names.ERROR_TYPE, "not_found")
        return given

    workflow = Workflow("tools")
    workflow.add(Doing("call", NodeKind.TOOL, call))
    workflow.chain(START, "call", END)
    collected = Collected()
    await workflow.run(0, telemetry=collected.telemetry)
    span = collected.one("execute_tool search")
    assert attributes(span)["gen_ai.tool.name"] == "search"
    assert attributes(span)["gen_ai.tool.call.id"] == "call-1"
    assert attributes(span)["error.type"] == "not_found"
    assert status(span) == ("ERROR", None)


async def test_annotating_needs_no_tracing() -> None:
    workflow = Workflow("plain")
    workflow.add(Doing("model", NodeKind.INFERENCE, asks_a_model))
    workflow.chain(START, "model", END)
    assert (await workflow.run(Reply(text="hello"))).output == "hello"


async def test_long_content_is_cut_off_and_marked() -> None:
    async def much(x: str) -> str:
        return "y" * (names.CONTENT_LIMIT + 1)

    workflow = Workflow("much")
    workflow.node(much)
    workflow.chain(START, much, END)
    collected = Collected(capture_content=True)
    await workflow.run("x" * (names.CONTENT_LIMIT + 1), telemetry=collected.telemetry)
    step = attributes(collected.one("node much"))
    assert step["graphrt.output"] == "y" * names.CONTENT_LIMIT
    assert step["graphrt.truncated"] == ("graphrt.input", "graphrt.output")


@dataclass
class Point:
    x: int
    y: set[int]


def numbers() -> Iterator[int]:
    yield 1


LOOP: list[Any] = []
LOOP.append(LOOP)

ODD = [
    ({"a": [1, 2.5, None, True]}, '{"a": [1, 2.5, null, true]}'),
    (Point(1, {2}), '{"x": 1, "y": [2]}'),
    ([Reply(text="a")], '[{"text": "a"}]'),
    (b"caf\xc3\xa9 \xff", '"caf\u00e9 \ufffd"'),
    ("half a \ud83d pair", "half a \ufffd pair"),
    ({"k": "\0\udc80"}, '{"k": "\\u0000\ufffd"}'),
    (LOOP, "[[...]]"),
]


@pytest.mark.parametrize(("value", "text"), ODD, ids=[str(place) for place in range(len(ODD))])
async def test_any_value_can_be_content(value: Any, text: str) -> None:
    """B-119: what cannot be sent is replaced."""

    async def give(x: int) -> Any:
        return value

    workflow = Workflow("odd", copy_values=False)
    workflow.node(give)
    workflow.chain(START, give, END)
    collected = Collected(capture_content=True)
    with logged() as texts:
        await workflow.run(1, telemetry=collected.telemetry)
    assert texts == []
    assert attributes(collected.one("node give"))["graphrt.output"] == text
    text.encode()


async def test_capturing_does_not_read_iterators() -> None:
    workflow = Workflow("lazy", copy_values=False)

    @workflow.node
    async def give(x: int) -> Any:
        return [numbers()]

    @workflow.node
    async def take(x: Any) -> list[int]:
        return list(x[0])

    workflow.chain(START, give, take, END)
    collected = Collected(capture_content=True)
    assert (await workflow.run(1, telemetry=collected.telemetry)).output == [1]


async def test_value_whose_text_fails_is_left_out_and_logged_once() -> None:
    class Mute:
        def __str__(self) -> str:
            raise RuntimeError

        __repr__ = __str__

    async def give(x: int) -> Any:
        return Mute()

    async def take(x: Any) -> int:
        return 1

    workflow = Workflow("mute", copy_values=False)
    workflow.node(give)
    workflow.node(take)
    workflow.chain(START, give, take, END)
    collected = Collected(capture_content=True)
    with logged() as texts:
        result = await workflow.run(1, run_id="r-1", telemetry=collected.telemetry)
    assert result.output == 1
    assert texts == ["tracing of run 'r-1' failed in step_ended, and spans may be missing"]
    collected.check_whole()


async def test_readers_of_openinference_see_chains() -> None:
    collected = Collected(capture_content=True, openinference=True)
    await chatting().run("hello", on_ask=approve, telemetry=collected.telemetry)
    kinds = {span.name: attributes(span).get("openinference.span.kind") for span in collected.spans}
    assert kinds == {
        "invoke_workflow chatting": "CHAIN",
        "node answers": "CHAIN",
        "node approve": "CHAIN",
        "chat small": None,
    }
    run = attributes(collected.one("invoke_workflow chatting"))
    assert (run["input.value"], run["output.value"]) == ("hello", "yes")
