"""Agents with the tools of a server: one that is open, and one that each run opens for itself."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest

from graphrt import END, START, AgentNode, RunEvent, Workflow
from graphrt.llm import ScriptedProvider
from graphrt.messages import Message
from graphrt.tools import Tool
from graphrt.tools.mcp import McpServer
from tests.mcp.helpers import REASON, SHOP, ask, is_gone, shop, tasks
from tests.nodeclasses.helpers import answers, asks, call

pytest.importorskip("mcp", reason=REASON)

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
async def tools(anyio_backend: str) -> list[Tool]:
    """List the tools once; no process is left, and each run starts one."""
    return await shop(allow=["add", "pid", "meet", "hang", "crash"]).list_tools()


@pytest.fixture(scope="module")
async def open_tools(anyio_backend: str) -> AsyncIterator[list[Tool]]:
    async with shop() as server:
        yield server.tools


def pids(messages: list[Message]) -> set[int]:
    return {int(text) for id, text in answers(messages) if id is not None and id.startswith("pid")}


async def test_agent_uses_the_tools_of_an_open_server(open_tools: list[Tool]) -> None:
    provider = ScriptedProvider([asks(call("c-1", a=1, b=2), call("c-2", a="x"), call("c-3", "fail", why="no")), "3"])

    result = await AgentNode("clerk", model=provider, tools=open_tools).graph.run("1 + 2?")

    assert result.output == "3"
    texts = dict(answers(result.messages))
    assert texts["c-1"] == "3"
    assert texts["c-2"].startswith("tool 'add' was not executed: the arguments do not fit:")
    assert texts["c-3"].endswith("no")


async def test_agents_in_parallel_branches_share_an_open_server(open_tools: list[Tool]) -> None:
    """B-121."""

    async def both(one: str, two: str) -> str:
        return f"{one} {two}"

    flow = Workflow("shop")
    flow.add(both)
    for name in ("one", "two"):
        script = [asks(call("c-1", "meet", who=name, people=2)), name]
        flow.chain(START, flow.add(AgentNode(name, model=ScriptedProvider(script), tools=open_tools)), both)
    flow.chain(both, END)

    with anyio.fail_after(20):
        result = await flow.run("go")

    assert result.output == "one two"


async def test_run_has_a_connection_of_its_own_that_ends_with_it(tools: list[Tool]) -> None:
    before = tasks()
    seen: list[set[int]] = []
    for _ in range(2):
        round_1 = asks(*(call(f"pid-{n}", "pid") for n in range(3)))
        provider = ScriptedProvider([round_1, asks(call("pid-3", "pid")), "done"])
        result = await AgentNode("clerk", model=provider, tools=tools).graph.run("who?")
        seen.append(pids(result.messages))

    first, second = seen
    assert len(first) == len(second) == 1
    assert first != second
    assert all(is_gone(pid) for pid in first | second)
    assert tasks() == before


async def test_connection_of_a_run_is_closed_when_the_run_is_cancelled(tools: list[Tool]) -> None:
    """B-121."""
    before = tasks()
    told: list[int] = []
    provider = ScriptedProvider([asks(call("c-1", "pid")), asks(call("c-2", "hang", who="x"), call("c-3", "pid"))])

    with anyio.CancelScope() as scope:

        def watch(event: RunEvent) -> None:
            if event.type == "tool.call.completed":
                told.append(int(event.data["result"]))
                if len(told) == 2:
                    scope.cancel()

        await AgentNode("clerk", model=provider, tools=tools).graph.run("go", on_event=watch)

    assert scope.cancelled_caught
    assert is_gone(told[0])
    assert tasks() == before


async def test_server_that_ends_in_a_run_stays_ended_for_it(tools: list[Tool]) -> None:
    provider = ScriptedProvider([asks(call("c-1", "crash")), asks(call("c-2", a=1, b=2)), "sorry"])

    result = await AgentNode("clerk", model=provider, tools=tools).graph.run("go")

    assert dict(answers(result.messages)) == {
        "c-1": "tool 'crash' failed: the connection to MCP server 'shop' is lost",
        "c-2": "tool 'add' failed: the connection to MCP server 'shop' is lost",
    }
    assert result.output == "sorry"


async def test_server_that_cannot_be_opened_in_a_run_is_told_to_the_model(tmp_path: Path) -> None:
    """The program is there when its tools are listed, and is gone when a run needs it."""
    program = tmp_path / "server"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{SHOP}"\n')
    program.chmod(0o700)
    listed = await McpServer.stdio(str(program), name="shop", allow=["add"]).list_tools()
    program.unlink()
    provider = ScriptedProvider([asks(call("c-1", a=1, b=2)), "sorry"])

    result = await AgentNode("clerk", model=provider, tools=listed).graph.run("go")

    [(_, text)] = answers(result.messages)
    assert text.startswith("tool 'add' failed: MCP server 'shop' cannot be reached: FileNotFoundError")
    assert result.output == "sorry"


async def test_tool_of_a_run_says_so_outside_one(tools: list[Tool]) -> None:
    result = await ask(tools, "add", a=1, b=2)

    assert "MCP server 'shop' is not open, and there is no run to open it for" in result.text
