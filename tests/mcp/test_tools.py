"""What the tools of a server are, and how their calls are answered."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from typing import Any

import anyio
import pytest
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, use_span

from graphrt.errors import ConfigError, ToolErrorKind
from graphrt.messages import ToolCall
from graphrt.tools import ParallelToolExecutor, Tool, ToolRegistry
from tests.mcp.helpers import REASON, ask, named, shop, until

pytest.importorskip("mcp", reason=REASON)

from graphrt.tools.mcp import McpServer, McpTool, McpToolInfo

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
async def tools(anyio_backend: str) -> AsyncIterator[list[Tool]]:
    async with shop(requires_approval=lambda tool: tool.name == "crash" and tool.destructive) as server:
        yield server.tools


# --- what a model is told


async def test_tools_are_described_by_the_servers_own_schema(tools: list[Tool]) -> None:
    descriptor = named(tools, "add").descriptor

    assert descriptor.description == "Add two numbers."
    assert descriptor.parameters["required"] == ["a", "b"]
    assert descriptor.parameters["properties"]["a"]["type"] == "integer"


async def test_predicate_on_the_hints_says_which_calls_need_approval(tools: list[Tool]) -> None:
    assert [tool.descriptor.id for tool in tools if tool.requires_approval] == ["crash"]
    crash, pid = named(tools, "crash"), named(tools, "pid")
    assert isinstance(crash, McpTool)
    assert isinstance(pid, McpTool)
    assert crash.info == McpToolInfo("crash", "Crash", "Die.", destructive=True)
    assert pid.info.read_only


async def test_name_that_no_model_could_call_is_changed_and_still_reaches_its_tool(tools: list[Tool]) -> None:
    result = await ask(tools, "show_all_things")

    assert result.text.splitlines() == [
        "look:",
        "[image, image/png, 5 bytes]",
        "[resource file:///a.txt, text/plain]",
        "hello",
        "[resource file:///b, 5 bytes]",
        "[link to file:///c: c, more of it]",
    ]


# --- results


async def test_structured_content_is_the_data_and_text_is_what_the_model_reads(tools: list[Tool]) -> None:
    result = await ask(tools, "add", a=1, b=2)

    assert result.data == {"result": 3}
    assert result.text == "3"


async def test_text_alone_is_data_and_text(tools: list[Tool]) -> None:
    result = await ask(tools, "shout", text="quiet")

    assert (result.data, result.text) == ("QUIET", "QUIET")


async def test_error_of_a_tool_is_told_in_its_words(tools: list[Tool]) -> None:
    result = await ask(tools, "fail", why="no stock")

    assert result.kind is ToolErrorKind.EXECUTION
    assert "no stock" in result.text


async def test_arguments_that_do_not_fit_are_refused_before_the_server_is_asked(
    tools: list[Tool], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []

    async def note(self: McpTool, *args: Any) -> None:
        asked.append(args)

    monkeypatch.setattr(McpTool, "execute", note)
    result = await ask(tools, "add", a="one")

    assert result.kind is ToolErrorKind.INVALID_ARGUMENTS
    assert "'b' is a required property" in result.text
    assert "a: 'one' is not of type 'integer'" in result.text
    assert asked == []


# --- several at once


async def test_parallel_calls_run_together_and_answer_in_order(tools: list[Tool]) -> None:
    registry = ToolRegistry()
    for tool in tools:
        registry.register(tool)
    calls = [ToolCall(f"c-{n}", "meet", {"who": f"guest {n}", "people": 8}) for n in range(8)]

    with anyio.fail_after(20):
        results = await ParallelToolExecutor(registry).execute(calls)

    assert [result.text for result in results] == [f"guest {n}" for n in range(8)]


async def test_slow_call_is_cut_off_while_others_go_on(tools: list[Tool]) -> None:
    registry = ToolRegistry()
    for tool in tools:
        registry.register(tool)
    calls = [ToolCall("c-1", "hang", {"who": "too slow"}), ToolCall("c-2", "add", {"a": 1, "b": 2})]

    slow, quick = await ParallelToolExecutor(registry, timeout=0.5).execute(calls)

    assert slow.kind is ToolErrorKind.TIMEOUT
    assert quick.text == "3"
    await until(lambda: was_cancelled(tools, "too slow"))


async def test_server_is_told_of_a_call_that_is_cancelled(tools: list[Tool]) -> None:
    async with anyio.create_task_group() as group:
        group.start_soon(lambda: ask(tools, "hang", who="unwanted"))
        await ask(tools, "add", a=1, b=1)
        group.cancel_scope.cancel()

    await until(lambda: was_cancelled(tools, "unwanted"))


async def was_cancelled(tools: list[Tool], name: str) -> bool:
    """Ask the server whether it has ended the work on a call."""
    return name in (await ask(tools, "cancellations")).data["result"]


# --- what goes along with a call


async def test_call_belongs_to_the_trace_of_the_span_it_is_made_in(tools: list[Tool]) -> None:
    span = NonRecordingSpan(SpanContext(0xABC, 0xDEF, is_remote=False, trace_flags=TraceFlags(1)))
    with use_span(span):
        result = await ask(tools, "trace")

    assert result.text.startswith(f"00-{0xABC:032x}-")


# --- settings


def test_missing_package_is_an_error_that_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mcp", None)
    with pytest.raises(ConfigError) as caught:
        McpServer.stdio("anything")

    assert caught.value.hint == "pip install 'graphrt[mcp]'"


@pytest.mark.parametrize("limit", ["timeout", "connect_timeout"])
def test_time_limit_of_nothing_is_refused(limit: str) -> None:
    with pytest.raises(ConfigError, match="no number of seconds above 0"):
        McpServer.stdio("anything", **{limit: 0})  # type: ignore[arg-type]  # the name is a parameter here


def test_neither_variables_nor_headers_are_shown() -> None:
    http = McpServer.http("https://me:pass@host/mcp?key=hush", headers={"Authorization": "hush"})
    stdio = McpServer.stdio("server", env={"KEY": "hush"})

    assert repr(http) == "McpServer('https://host/mcp')"
    assert "hush" not in f"{http._transport!r} {stdio._transport!r}"
