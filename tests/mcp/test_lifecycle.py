"""A connection belongs to one task, is used from any, and leaves nothing behind. B-121."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import anyio
import pytest

from graphrt.errors import ToolError, ToolErrorKind
from graphrt.threads import run_in_thread
from tests.mcp.helpers import REASON, ask, is_gone, odd, pid_of, shop, tasks, until, written

pytest.importorskip("mcp", reason=REASON)

from graphrt.tools.mcp import McpServer

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
async def opened(anyio_backend: str) -> AsyncIterator[McpServer]:
    async with shop() as server:
        yield server


# --- closing


async def test_nothing_is_left_of_a_server_that_was_used_in_parallel_branches() -> None:
    """B-121."""
    before = tasks()
    texts: list[str] = []

    async with shop() as server, anyio.create_task_group() as branches:
        pid = await pid_of(server.tools)

        async def branch(n: int) -> None:
            texts.append((await ask(server.tools, "add", a=n, b=n)).text)

        for n in range(5):
            branches.start_soon(branch, n)

    assert sorted(texts) == ["0", "2", "4", "6", "8"]
    assert is_gone(pid)
    assert tasks() == before
    await until(no_thread_waits)


async def no_thread_waits() -> bool:
    """Whether the thread is gone that waits for the end of a process on asyncio, and which then ends soon."""
    return not [each for each in threading.enumerate() if each.name.startswith(("asyncio", "AnyIO"))]


async def test_server_is_closed_after_a_cancel_in_the_middle_of_a_call() -> None:
    """B-121: no error, and the process is gone."""
    before = tasks()
    pid = 0

    with anyio.CancelScope() as scope:
        async with shop() as server, anyio.create_task_group() as branches:
            pid = await pid_of(server.tools)
            for name in ("one", "two"):
                branches.start_soon(ask_to_hang, server, name)
            await ask(server.tools, "add", a=1, b=1)
            scope.cancel()

    assert scope.cancelled_caught
    assert is_gone(pid)
    assert tasks() == before


async def ask_to_hang(server: McpServer, name: str) -> None:
    await ask(server.tools, "hang", who=name)


async def test_server_may_be_left_in_another_task_than_the_one_that_entered_it() -> None:
    """B-121."""
    before = tasks()
    stack = AsyncExitStack()
    pids: list[int] = []

    async def enter() -> None:
        server = await stack.enter_async_context(shop())
        pids.append(await pid_of(server.tools))

    async with anyio.create_task_group() as opener:
        opener.start_soon(enter)
    async with anyio.create_task_group() as closer:
        closer.start_soon(stack.aclose)

    assert is_gone(pids[0])
    assert tasks() == before


async def test_calls_under_way_and_later_ones_are_told_that_the_server_is_closed() -> None:
    told: list[str] = []

    async with shop() as server:
        tools = server.tools

        async def wait() -> None:
            told.append((await ask(tools, "hang", who="x")).text)

        async with anyio.create_task_group() as group:
            group.start_soon(wait)
            await ask(tools, "add", a=1, b=1)
            group.start_soon(server.aclose)
            await server.aclose()
        told.append((await ask(tools, "add", a=1, b=1)).text)
        with pytest.raises(ToolError, match="'shop' is not open"):
            _ = server.tools

    assert told == [
        "tool 'hang' failed: the connection to MCP server 'shop' is closed",
        "tool 'add' failed: the connection to MCP server 'shop' is closed",
    ]


async def test_server_can_be_opened_again_and_its_old_tools_stay_closed() -> None:
    server = shop()
    async with server:
        old = server.tools
    async with server:
        assert (await ask(server.tools, "add", a=1, b=1)).text == "2"
        assert (await ask(old, "add", a=1, b=1)).is_error


async def test_server_is_not_opened_twice_at_once(opened: McpServer) -> None:
    with pytest.raises(ToolError, match="'shop' is open already"):
        await opened.__aenter__()

    assert (await ask(opened.tools, "add", a=1, b=1)).text == "2"


async def test_server_is_used_in_the_loop_it_was_opened_in(opened: McpServer) -> None:
    def elsewhere() -> str:
        return anyio.run(ask, opened.tools, "cancellations").text

    text = await run_in_thread(elsewhere)

    assert text == "tool 'cancellations' failed: MCP server 'shop' is open in another event loop"


# --- opening that fails


async def test_server_that_does_not_answer_is_given_up_and_ended(tmp_path: Path) -> None:
    before = tasks()
    with pytest.raises(ToolError, match=r"'odd' has not answered after 0\.5 seconds") as caught:
        await odd("stubborn", str(tmp_path / "pid"), connect_timeout=0.5).list_tools()

    assert caught.value.kind is ToolErrorKind.TIMEOUT
    assert is_gone(await written(tmp_path / "pid"))
    assert tasks() == before


async def test_opening_can_be_cancelled(tmp_path: Path) -> None:
    """B-121."""
    before = tasks()
    pid = 0
    async with anyio.create_task_group() as group:

        async def open_it() -> None:
            async with odd("silent", str(tmp_path / "pid")):
                pytest.fail("it was opened")

        group.start_soon(open_it)
        pid = await written(tmp_path / "pid")
        group.cancel_scope.cancel()

    assert is_gone(pid)
    assert tasks() == before


# --- a server that ends


async def test_server_that_ends_is_told_to_its_callers_and_not_started_again(
    capfd: pytest.CaptureFixture[str],
) -> None:
    told: dict[str, str] = {}
    async with shop() as server:
        pid = await pid_of(server.tools)

        async def wait() -> None:
            told["waiting"] = (await ask(server.tools, "hang", who="x")).text

        async with anyio.create_task_group() as group:
            group.start_soon(wait)
            await ask(server.tools, "add", a=1, b=1)
            crashed = await ask(server.tools, "crash")
        told["later"] = (await ask(server.tools, "add", a=1, b=1)).text

    assert is_gone(pid)
    assert crashed.text == "tool 'crash' failed: the connection to MCP server 'shop' is lost"
    assert isinstance(crashed.cause, ToolError)
    assert crashed.cause.hint == "the last line of its standard error: out of paper"
    assert told == {
        "waiting": "tool 'hang' failed: the connection to MCP server 'shop' is lost",
        "later": "tool 'add' failed: the connection to MCP server 'shop' is lost",
    }
    assert capfd.readouterr() == ("", "")


async def test_closing_what_was_never_open_does_nothing() -> None:
    await shop().aclose()
