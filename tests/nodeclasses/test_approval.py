"""Tools that a person has to approve: the run waits, for several at once, and the tool runs once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from graphrt import AgentNode, GraphError, GraphTypeError, function_tool
from graphrt.graph import CompiledGraph, NodeState, Question
from graphrt.llm import ScriptedProvider
from graphrt.nodes import Approval
from graphrt.tools import PermissionChecker, PermissionDecision, ToolContext
from tests.nodeclasses.helpers import add, answers, asks, call

pytestmark = pytest.mark.anyio


def agent(removed: list[str], *calls: Any, permission: PermissionChecker | None = None) -> CompiledGraph:
    @function_tool(requires_approval=True)
    async def remove(path: str) -> str:
        """Remove a file."""
        removed.append(path)
        return f"removed {path}"

    provider = ScriptedProvider([asks(*calls), "done"])
    return AgentNode("a", model=provider, tools=[remove, add], permission=permission).graph


def answering(**by_id: Any) -> Any:
    async def reply(question: Question) -> Any:
        return by_id[question.question["tool_call_id"]]

    return reply


async def test_person_sees_the_call_and_decides() -> None:
    asked: list[Question] = []
    removed: list[str] = []

    async def reply(question: Question) -> bool:
        asked.append(question)
        return True

    result = await agent(removed, call("c1", "remove", path="/x")).run("go", on_ask=reply)

    assert removed == ["/x"]
    assert answers(result.messages) == [("c1", "removed /x")]
    (question,) = asked
    assert question.node == "approve:remove"
    assert question.question == {
        "tool": "remove",
        "description": "Remove a file.",
        "arguments": {"path": "/x"},
        "tool_call_id": "c1",
    }


async def test_denied_call_is_not_made_and_the_model_reads_why() -> None:
    removed: list[str] = []
    graph = agent(removed, call("c1", "remove", path="/x"), call("c2", "remove", path="/y"))

    result = await graph.run("go", on_ask=answering(c1={"approved": False, "reason": "keep it"}, c2=False))

    assert removed == []
    texts = dict(answers(result.messages))
    assert "keep it" in texts["c1"]
    assert "permission denied" in texts["c2"]
    assert result.output == "done"


async def test_arguments_may_be_changed_and_are_checked_again() -> None:
    removed: list[str] = []
    graph = agent(removed, call("c1", "remove", path="/x"), call("c2", "remove", path="/y"))

    result = await graph.run(
        "go",
        on_ask=answering(
            c1=Approval(approved=True, arguments={"path": "/z"}),
            c2=Approval(approved=True, arguments={"file": "/z"}),
        ),
    )

    assert removed == ["/z"]
    texts = dict(answers(result.messages))
    assert texts["c1"] == "removed /z"
    assert "file: not an argument" in texts["c2"]


async def test_other_calls_of_the_round_go_on_meanwhile() -> None:
    """B-098: the round waits for the answer, and nothing runs twice."""
    removed: list[str] = []
    graph = agent(removed, call("c1", a=1, b=2), call("c2", "remove", path="/x"), call("c3", a=3, b=4))

    async with graph.stream("go") as run:
        async for event in run:
            if event.type == "step.waiting":
                break
        assert [one.node for one in run.questions] == ["approve:remove"]
        await run.answer(run.questions[0].id, True)
        result = await run.wait()

    assert answers(result.messages) == [("c1", "3"), ("c2", "removed /x"), ("c3", "7")]
    states = [step.state for step in result.steps if step.node == "tool:add"]
    assert states.count(NodeState.SUCCEEDED) == 2


async def test_several_are_answered_in_any_order() -> None:
    """B-093: each by its id."""
    removed: list[str] = []
    graph = agent(removed, *(call(f"c{n}", "remove", path=f"/{n}") for n in range(3)))
    open_now = 0

    async with graph.stream("go") as run:
        async for event in run:
            open_now += event.type == "step.waiting"
            if open_now == 3:
                break
        for question in reversed(run.questions):
            await run.answer(question.id, True)
        result = await run.wait()

    assert [text for _, text in answers(result.messages)] == ["removed /0", "removed /1", "removed /2"]


async def test_answer_that_means_nothing_is_refused_and_the_question_stays() -> None:
    removed: list[str] = []
    async with agent(removed, call("c1", "remove", path="/x")).stream("go") as run:
        async for event in run:
            if event.type == "step.waiting":
                break
        with pytest.raises(GraphTypeError, match="no answer to 'approve:remove'"):
            await run.answer(run.questions[0].id, "yes")
        assert len(run.questions) == 1
        await run.answer(run.questions[0].id, PermissionDecision.deny("no"))
        await run.wait()

    assert removed == []


async def test_nobody_is_asked_about_a_call_that_cannot_be_made() -> None:
    class ReadOnly(PermissionChecker):
        async def check(self, tool_id: str, arguments: Mapping[str, Any], ctx: ToolContext[Any]) -> PermissionDecision:
            allowed = arguments.get("path") != "/etc"
            return PermissionDecision(allowed, None if allowed else "read only")

    removed: list[str] = []
    graph = agent(
        removed,
        call("c1", "remove", path="/etc"),
        call("c2", "remove"),
        call("c3", "remove", path="/tmp"),  # noqa: S108 - a word, and no file
        permission=ReadOnly(),
    )

    result = await graph.run("go", on_ask=answering(c3=True))

    assert removed == ["/tmp"]  # noqa: S108 - the same
    texts = dict(answers(result.messages))
    assert "read only" in texts["c1"]
    assert "path: required" in texts["c2"]


async def test_changed_arguments_need_permission_too() -> None:
    class OnlyX(PermissionChecker):
        async def check(self, tool_id: str, arguments: Mapping[str, Any], ctx: ToolContext[Any]) -> PermissionDecision:
            return PermissionDecision(arguments["path"] == "/x", "only /x")

    removed: list[str] = []
    graph = agent(removed, call("c1", "remove", path="/x"), permission=OnlyX())

    result = await graph.run("go", on_ask=answering(c1={"approved": True, "arguments": {"path": "/y"}}))

    assert removed == []
    assert "only /x" in answers(result.messages)[0][1]


async def test_agent_with_such_a_tool_needs_somebody_to_ask() -> None:
    with pytest.raises(GraphError, match="'approve:remove' of graph 'a' asks a person"):
        await agent([], call("c1", "remove", path="/x")).run("go")
