from __future__ import annotations

import contextvars
import time
from collections.abc import Mapping
from typing import Any

import anyio
import pytest

from graphrt import END, START, Budget, LimitExceededError, Workflow, function_tool
from graphrt.messages import Message, ToolCall
from graphrt.nodes import ToolNode, UnknownToolNode
from graphrt.tools import PermissionChecker, PermissionDecision, ToolContext
from tests.nodeclasses.helpers import Events, add, alone, call

pytestmark = pytest.mark.anyio


class Deny(PermissionChecker):
    """Let nothing through."""

    async def check(self, tool_id: str, arguments: Mapping[str, Any], ctx: ToolContext[Any]) -> PermissionDecision:
        return PermissionDecision.deny("not today")


async def test_call_is_answered_with_a_message() -> None:
    result = await alone(ToolNode(add)).run(call("c-1", a=1, b=2))

    assert result.output == Message.tool("c-1", "3")
    assert result.steps[0].node == "tool:add"


async def test_what_a_tool_raises_becomes_text() -> None:
    """AC-M03."""

    async def save(path: str) -> None:
        raise ValueError("disk full")

    result = await alone(ToolNode(save)).run(call("c-1", "save", path="/x"))

    assert "disk full" in result.output.content


async def test_arguments_that_are_no_json_are_not_executed() -> None:
    """B-111: the parse error comes back under the same id."""
    deleted: list[str] = []

    async def delete(path: str = "/") -> None:
        deleted.append(path)

    cut = ToolCall("c-9", "delete", error="cut off at character 12", raw_arguments='{"path": "/t')
    result = await alone(ToolNode(delete)).run(cut)

    assert deleted == []
    assert result.output.tool_call_id == "c-9"
    assert "cut off at character 12" in result.output.content


async def test_denied_call_is_not_executed() -> None:
    """AC-W33."""
    result = await alone(ToolNode(add, permission=Deny())).run(call("c-1", a=1, b=2))

    assert "not today" in result.output.content


async def test_both_ends_of_a_call_are_told() -> None:
    events = Events()
    await alone(ToolNode(add)).run(call("c-1", a=1, b=2), on_event=events)

    started, completed = events.of("tool.call.started", "tool.call.completed")
    assert started.data == {"tool_call_id": "c-1", "tool_name": "add", "parameters": {"a": 1, "b": 2}}
    assert completed.data == {"tool_call_id": "c-1", "tool_name": "add", "result": "3"}


async def test_failed_call_is_told_as_an_error() -> None:
    events = Events()
    await alone(ToolNode(add)).run(call("c-1", a=1), on_event=events)

    (completed,) = events.of("tool.call.completed")
    assert "b: required" in completed.data["error"]
    assert "result" not in completed.data


async def test_error_of_the_permission_checker_ends_the_run_and_is_told() -> None:
    class Broken(PermissionChecker):
        async def check(self, tool_id: str, arguments: Mapping[str, Any], ctx: ToolContext[Any]) -> PermissionDecision:
            raise RuntimeError("no policy")

    events = Events()
    with pytest.raises(RuntimeError, match="no policy"):
        await alone(ToolNode(add, permission=Broken())).run(call("c-1", a=1, b=2), on_event=events)
    assert events.of("tool.call.completed")[0].data["error"] == "RuntimeError: no policy"


async def test_budget_of_tool_calls_is_exact_and_no_text() -> None:
    """AC-M03, D-12: the budget is never turned into text."""
    ran: list[int] = []

    async def work(n: int) -> int:
        ran.append(n)
        return n

    async def calls() -> list[ToolCall]:
        return [call(f"c-{n}", "work", n=n) for n in range(3)]

    workflow = Workflow("w")
    workflow.node(calls)
    workflow.add(ToolNode(work))
    workflow.chain(START, calls)
    workflow.map(calls, "tool:work", max_concurrency=1)
    workflow.gather("tool:work", END)

    with pytest.raises(LimitExceededError) as caught:
        await workflow.run(budget=Budget(tool_calls=2))
    assert caught.value.limit == "tool_calls"
    assert ran == [0, 1]


async def test_tool_sees_the_run() -> None:
    seen: list[ToolContext[Any]] = []

    async def look(ctx: ToolContext[Any]) -> str:
        seen.append(ctx)
        ctx.emit("custom.progress", {"done": 1})
        return "ok"

    events = Events()
    await alone(ToolNode(look)).run(call("c-1", "look"), run_id="r-1", deps={"db": 1}, on_event=events)

    (ctx,) = seen
    assert (ctx.run_id, ctx.tool_call_id, ctx.tool_id, ctx.deps) == ("r-1", "c-1", "look", {"db": 1})
    assert ctx.idempotency_key == "r-1:tool:look"
    assert events.of("custom.progress")[0].data == {"done": 1}


async def test_synchronous_tool_sees_the_callers_context_and_keeps_its_changes() -> None:
    """B-109."""
    user = contextvars.ContextVar("user", default="nobody")
    seen: list[str] = []

    def who() -> str:
        seen.append(user.get())
        user.set("the tool")
        return seen[-1]

    user.set("ann")
    result = await alone(ToolNode(who)).run(call("c-1", "who"))

    assert result.output.content == "ann"
    assert user.get() == "ann"


async def test_unknown_tool_is_named_with_those_there_are() -> None:
    result = await alone(UnknownToolNode(known=["add", "sub"])).run(call("c-1", "div"))

    assert result.output == Message.tool("c-1", "unknown tool 'div'; the tools are: add, sub")


async def test_arguments_are_the_tools_own() -> None:
    async def grow(items: list[int]) -> int:
        items.append(4)
        return len(items)

    asked = call("c-1", "grow", items=[1])
    result = await alone(ToolNode(grow)).run(asked)

    assert result.output.content == "2"
    assert asked.arguments == {"items": [1]}


async def test_exclusive_tools_of_two_runs_do_not_wait_for_each_other() -> None:
    """D-30: turns belong to one activation of a graph."""
    inside: list[int] = []
    both = anyio.Event()

    @function_tool(exclusive=True)
    async def work() -> None:
        inside.append(1)
        if len(inside) == 2:
            both.set()
        await both.wait()

    graph = alone(ToolNode(work)).compile()
    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(graph.run, call("c-1", "work"))
            tasks.start_soon(graph.run, call("c-2", "work"))


async def test_thread_left_behind_is_told() -> None:
    def slow() -> None:
        time.sleep(0.2)

    events = Events()
    result = await alone(ToolNode(slow, timeout=0.01)).run(call("c-1", "slow"), on_event=events)

    assert "was stopped" in result.output.content
    assert events.of("thread.abandoned")[0].data == {"tool_id": "slow", "tool_call_id": "c-1"}
    await anyio.sleep(0.3)
