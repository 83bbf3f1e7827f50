"""Servers to open, calls to make, and whether a process is gone."""

from __future__ import annotations

import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Unpack

import anyio

from graphrt.messages import ToolCall
from graphrt.tools import Tool, ToolContext, ToolResult, answer_call
from graphrt.tools.mcp import McpOptions, McpServer

HERE = Path(__file__).parent
SHOP = str(HERE / "server.py")
REASON = "needs the package mcp: pip install 'graphrt[mcp]'"


def shop(**options: Unpack[McpOptions]) -> McpServer:
    options.setdefault("name", "shop")
    return McpServer.stdio(sys.executable, [SHOP], **options)


def odd(kind: str, *args: str, **options: Unpack[McpOptions]) -> McpServer:
    options.setdefault("name", "odd")
    return McpServer.stdio(sys.executable, [str(HERE / "odd_server.py"), kind, *args], **options)


def named(tools: list[Tool], name: str) -> Tool:
    return next(tool for tool in tools if tool.descriptor.id == name)


async def ask(tools: list[Tool], name: str, ctx: ToolContext[Any] | None = None, /, **arguments: Any) -> ToolResult:
    call = ToolCall("c-1", name, arguments)
    return await answer_call(named(tools, name), call, ctx or ToolContext())


async def pid_of(tools: list[Tool]) -> int:
    return int((await ask(tools, "pid")).text)


def is_gone(pid: int) -> bool:
    """Whether there is no such process, a dead one that nobody has waited for included."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


async def until(test: Callable[[], Awaitable[bool]]) -> None:
    """Wait until another process has done something, which no event tells."""
    with anyio.fail_after(10):
        while not await test():  # noqa: ASYNC110  there is no event to wait for
            await anyio.sleep(0.01)


async def written(path: Path) -> int:
    """Wait for the pid that a server writes when it starts."""
    file = anyio.Path(path)

    async def is_there() -> bool:
        return await file.exists() and bool(await file.read_text())

    await until(is_there)
    return int(await file.read_text())


def tasks() -> set[int]:
    return {task.id for task in anyio.get_running_tasks()}
