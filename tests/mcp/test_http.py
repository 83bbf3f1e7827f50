"""A server at an address, spoken to by streamable HTTP."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import suppress

import anyio
import pytest
from anyio.abc import Process

from graphrt.errors import ToolError
from tests.mcp.helpers import REASON, SHOP, ask, tasks, until

pytest.importorskip("mcp", reason=REASON)

from graphrt.tools.mcp import McpServer

pytestmark = pytest.mark.anyio

Running = tuple[Process, str]


@pytest.fixture
async def running() -> AsyncIterator[Running]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
    process = await anyio.open_process([sys.executable, SHOP, str(port)], stderr=subprocess.DEVNULL)

    async def listens() -> bool:
        try:
            stream = await anyio.connect_tcp("127.0.0.1", port)
        except OSError:
            return False
        await stream.aclose()
        return True

    try:
        await until(listens)
        yield process, f"http://127.0.0.1:{port}/mcp"
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.aclose()


async def test_tools_at_an_address_are_listed_called_and_left_behind(running: Running) -> None:
    before = tasks()

    async with McpServer.http(running[1], headers={"Authorization": "Bearer x"}, timeout=10) as server:
        assert (await ask(server.tools, "add", a=1, b=2)).text == "3"
        assert (await ask(server.tools, "token")).text == "Bearer x"
        assert (await ask(server.tools, "fail", why="no stock")).is_error

    assert tasks() == before
    assert running[0].returncode is None


async def test_server_that_ends_is_an_error_for_each_call_and_closing_is_none(running: Running) -> None:
    process, url = running
    async with McpServer.http(url) as server:
        tools = server.tools
        assert (await ask(tools, "add", a=1, b=2)).text == "3"
        process.kill()
        await process.wait()
        with anyio.fail_after(10):
            texts = [(await ask(tools, "add", a=1, b=2)).text for _ in range(2)]

    assert texts == [f"tool 'add' failed: the connection to MCP server '{url}' is lost"] * 2


async def test_address_where_nobody_listens_is_an_error() -> None:
    with pytest.raises(ToolError, match=r"MCP server 'http://127\.0\.0\.1:9/mcp' cannot be reached: ConnectError"):
        await McpServer.http("http://127.0.0.1:9/mcp").list_tools()
