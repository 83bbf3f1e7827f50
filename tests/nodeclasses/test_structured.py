"""Answers of a declared type."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from pydantic import BaseModel

from graphrt import END, START, AgentNode, GraphTypeError, LimitExceededError, LlmError, Workflow
from graphrt.errors import LlmErrorKind
from graphrt.llm import ScriptedProvider
from graphrt.messages import LLMResponse, Message
from tests.nodeclasses.helpers import add, asks, call

pytestmark = pytest.mark.anyio


class Report(BaseModel):
    title: str
    pages: int


@dataclass
class Point:
    x: int


async def test_answer_is_of_the_declared_type() -> None:
    provider = ScriptedProvider(['{"title": "Bees", "pages": 3}'])
    result = await AgentNode("a", model=provider, output=Report).graph.run("go")

    assert result.output == Report(title="Bees", pages=3)
    assert provider.calls[0].kwargs["response_format"] is Report
    assert result.response is not None
    assert result.response.content == '{"title": "Bees", "pages": 3}'


async def test_model_is_told_what_does_not_fit_and_the_loop_goes_on() -> None:
    provider = ScriptedProvider(['{"title": "Bees"}', '```json\n{"title": "Bees", "pages": 3}\n```'])
    result = await AgentNode("a", model=provider, output=Report).graph.run("go")

    assert result.output == Report(title="Bees", pages=3)
    assert result.rounds == 2
    told = provider.calls[1].messages[-1]
    assert told.role == "user"
    assert "- pages: Field required" in told.content


async def test_tools_and_a_declared_type_go_together() -> None:
    provider = ScriptedProvider([asks(call("c-1", a=1, b=2)), "three", '{"title": "x", "pages": 3}'])
    result = await AgentNode("a", model=provider, tools=[add], output=Report).graph.run("go")

    assert result.output == Report(title="x", pages=3)
    assert [each.role for each in result.messages] == ["user", "assistant", "tool", "assistant", "user", "assistant"]


async def test_model_that_never_fits_ends_at_the_round_limit() -> None:
    provider = ScriptedProvider(["no"] * 5)
    with pytest.raises(LimitExceededError):
        await AgentNode("a", model=provider, output=Report, max_rounds=3).graph.run("go")
    assert len(provider.calls) == 3


async def test_value_that_the_provider_has_read_is_taken() -> None:
    parsed = Report(title="x", pages=1)
    provider = ScriptedProvider([LLMResponse("not looked at", parsed=parsed)])

    assert (await AgentNode("a", model=provider, output=Report).graph.run("go")).output is parsed


async def test_misfit_that_the_provider_reports_is_told_to_the_model() -> None:
    """A provider that checks the form itself raises, with the reply; that reply counts as one that does not fit."""
    misfit = LlmError("does not fit", LlmErrorKind.PROVIDER)
    misfit.reply = LLMResponse('{"title": 1}')
    provider = ScriptedProvider([misfit, '{"title": "x", "pages": 1}'])

    result = await AgentNode("a", model=provider, output=Report).graph.run("go")

    assert result.output == Report(title="x", pages=1)
    assert result.messages[1] == Message.assistant('{"title": 1}')


@pytest.mark.parametrize(
    ("declared", "text", "value"),
    [
        (int, '{"answer": 3}', 3),
        (int, "3", 3),
        (list[int], '{"answer": [1, 2]}', [1, 2]),
        (list[int], "[1, 2]", [1, 2]),
        (dict[str, int], '{"answer": {"a": 1}}', {"a": 1}),
        (Point, '{"answer": {"x": 1}}', Point(1)),
        (Point, '{"x": 1}', Point(1)),
        (Report | None, '{"answer": null}', None),
    ],
)
async def test_other_types_are_the_field_of_a_model(declared: Any, text: str, value: Any) -> None:
    result = await AgentNode("a", model=ScriptedProvider([text]), output=declared).graph.run("go")

    assert result.output == value


async def test_declared_type_is_checked_along_edges() -> None:
    async def show(text: str) -> str:
        return text

    workflow = Workflow("w", input=str)
    workflow.add(AgentNode("a", model=ScriptedProvider(), output=Report))
    workflow.node(show)
    workflow.chain(START, "a", show, END)

    with pytest.raises(GraphTypeError, match=r"brings .*Report"):
        workflow.compile()


async def test_declared_type_is_what_the_next_node_gets() -> None:
    async def pages(report: Report) -> int:
        return report.pages

    workflow = Workflow("w", input=str, output=int)
    workflow.add(AgentNode("a", model=ScriptedProvider(['{"title": "x", "pages": 7}']), output=Report))
    workflow.node(pages)
    workflow.chain(START, "a", pages, END)

    assert (await workflow.run("go")).output == 7
