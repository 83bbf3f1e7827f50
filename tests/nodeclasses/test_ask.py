from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any, Literal

import pytest
from pydantic import BaseModel

from graphrt import END, START, GraphError, GraphTypeError, RunContext, Workflow
from graphrt.graph import Question
from graphrt.nodes import Ask
from tests.nodeclasses.helpers import alone

pytestmark = pytest.mark.anyio


class Verdict(BaseModel):
    ok: bool
    note: str = ""


class Colour(enum.Enum):
    RED = "red"


@dataclass
class Point:
    x: int


async def test_run_waits_for_the_answer() -> None:
    asked: list[Question] = []

    async def reply(question: Question) -> bool:
        asked.append(question)
        return True

    result = await alone(Ask("approve", question="Publish?", answer=bool)).run("a text", on_ask=reply)

    assert result.output is True
    assert [(one.node, one.question) for one in asked] == [("approve", "Publish?")]


async def test_question_is_made_of_the_nodes_inputs() -> None:
    """The parameters of the question's function are the node's, and are filled like any other's."""

    async def draft(topic: str) -> str:
        return f"all about {topic}"

    def show(draft: str, topic: str) -> dict[str, str]:
        return {"topic": topic, "draft": draft}

    async def reply(question: Question) -> str:
        return f"seen {question.question['draft']} for {question.question['topic']}"

    workflow = Workflow("w", input=str)
    workflow.node(draft)
    workflow.add(Ask("review", question=show, answer=str))
    workflow.chain(START, draft, "review", END)

    assert (await workflow.run("bees", on_ask=reply)).output == "seen all about bees for bees"


async def test_answer_that_does_not_fit_leaves_the_question_open() -> None:
    async with alone(Ask("approve", question="Publish?", answer=bool)).stream("x") as run:
        async for event in run:
            if event.type == "step.waiting":
                key = event.data["question_id"]
                with pytest.raises(GraphTypeError, match="'yes' is no answer to 'approve', which takes bool"):
                    await run.answer(key, "yes")
                assert [one.id for one in run.questions] == [key]
                await run.answer(key, False)
        assert run.result.output is False


async def test_answer_that_comes_as_json_is_converted() -> None:
    async def reply(question: Question) -> Any:
        return {"ok": True}

    result = await alone(Ask("review", question="Good?", answer=Verdict)).run(1, on_ask=reply)

    assert result.output == Verdict(ok=True)


@pytest.mark.parametrize(
    ("declared", "answer", "value"),
    [
        (Any, object, object),
        (str, "text", "text"),
        (int, 3, 3),
        (float, 3, 3),
        (list[int], ["1"], [1]),
        (Literal["yes", "no"], "yes", "yes"),
        (Colour, "red", Colour.RED),
        (Point, {"x": 1}, Point(1)),
        (Verdict, Verdict(ok=False), Verdict(ok=False)),
        (int | None, None, None),
    ],
)
def test_answer_fits(declared: Any, answer: Any, value: Any) -> None:
    assert Ask("a", question="?", answer=declared).accept(answer) == value


@pytest.mark.parametrize(
    ("declared", "answer"),
    [
        (str, 1),
        (int, True),
        (int, "1"),
        (float, False),
        (list[int], ["x"]),
        (Literal["yes", "no"], "maybe"),
        (Colour, "blue"),
        (Point, {"y": 1}),
        (Verdict, "fine"),
        (int | None, "x"),
    ],
)
def test_answer_does_not_fit(declared: Any, answer: Any) -> None:
    with pytest.raises(GraphTypeError, match="is no answer to 'a'"):
        Ask("a", question="?", answer=declared).accept(answer)


def test_question_is_made_at_once_and_of_values_alone() -> None:
    async def later(value: str) -> str:
        return value

    def with_context(value: str, ctx: RunContext[Any]) -> str:
        return value

    with pytest.raises(GraphError, match="async or yields"):
        Ask("a", question=later)
    with pytest.raises(GraphError, match="takes the run's context, as 'ctx'"):
        Ask("a", question=with_context)


async def test_nobody_to_ask_is_said_before_anything_starts() -> None:
    started: list[str] = []

    async def work(x: str) -> str:
        started.append(x)
        return x

    workflow = Workflow("w", input=str)
    workflow.node(work)
    workflow.add(Ask("approve", question="?"))
    workflow.chain(START, work, "approve", END)

    with pytest.raises(GraphError, match="'approve' of graph 'w' asks a person"):
        await workflow.run("x")
    assert started == []


async def test_ask_is_not_called() -> None:
    ctx: Any = None
    with pytest.raises(GraphError, match="cannot be called"):
        await Ask("a", question="?").run({}, ctx)
