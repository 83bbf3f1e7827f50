"""One connection to an MCP server, and the task that owns it."""

from __future__ import annotations

import logging
import os
from contextlib import asynccontextmanager
from contextvars import copy_context
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Self, TextIO
from urllib.parse import urlsplit

import anyio
import anyio.lowlevel

from graphrt.errors import ToolError, ToolErrorKind
from graphrt.messages import clean_text

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
    from pathlib import Path

    from mcp import Client
    from mcp.types import CallToolResult
    from mcp.types import Tool as Listed

    from graphrt.tools.base import ToolContext

log = logging.getLogger(__name__)

CLOSE_SECONDS: Final = 10.0
"""What a connection may take to close in order; then it is cancelled. A process has ended before that."""
TAIL_BYTES: Final = 4096
"""What is kept of the standard error of a server."""
HTTP_SECONDS: Final = 30.0
"""What connecting to an address, or sending to it, may take."""
HTTP_READ_SECONDS: Final = 300.0
"""How long a server may stay silent in the middle of an answer."""
QUOTED: Final = 300
"""Characters that an error quotes of what a server has said."""


@dataclass(frozen=True, slots=True)
class StdioTransport:
    """A server that is a process of its own, spoken to through its standard input and output."""

    command: str
    args: tuple[str, ...]
    env: Mapping[str, str] | None = field(repr=False)
    cwd: str | Path | None
    errlog: TextIO | None = field(repr=False)

    def __str__(self) -> str:
        return self.command

    @asynccontextmanager
    async def streams(self, stderr: _Stderr) -> AsyncIterator[Any]:
        """Start the process; when this is left, it is gone."""
        from mcp import StdioServerParameters, stdio_client

        env = None if self.env is None else dict(self.env)
        parameters = StdioServerParameters(command=self.command, args=list(self.args), env=env, cwd=self.cwd)
        async with stdio_client(parameters, errlog=self.errlog or stderr.file) as streams:
            stderr.file.close()  # the process has it: now its end is the end of the stream
            yield streams


@dataclass(frozen=True, slots=True)
class HttpTransport:
    """A server at an address, spoken to by streamable HTTP."""

    url: str = field(repr=False)
    headers: Mapping[str, str] | None = field(repr=False)

    def __str__(self) -> str:
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"  # the rest may hold a secret

    @asynccontextmanager
    async def streams(self, stderr: _Stderr) -> AsyncIterator[Any]:
        """Make ready to connect."""
        import httpx2  # comes with mcp
        from mcp.client.streamable_http import streamable_http_client

        stderr.file.close()
        timeout = httpx2.Timeout(HTTP_SECONDS, read=HTTP_READ_SECONDS)
        async with (
            httpx2.AsyncClient(headers=dict(self.headers or {}), timeout=timeout) as http,
            streamable_http_client(self.url, http_client=http) as streams,
        ):
            yield streams


class McpConnection:
    """One connection, and the task that owns it from its opening to its end."""

    def __init__(self, name: str, transport: StdioTransport | HttpTransport) -> None:
        self._name = name
        self._transport = transport
        self._loop = anyio.lowlevel.current_token().native_token
        self._scope = anyio.CancelScope()
        self._ready = anyio.Event()
        self._closing = anyio.Event()
        self._ended = anyio.Event()
        self._client: Client | None = None
        self._error: BaseException | None = None
        self._stderr: _Stderr | None = None
        self._task: object = None
        self.listed: list[Listed] = []

    @property
    def over(self) -> bool:
        """Whether it is closed, or being closed."""
        return self._closing.is_set() or self._ended.is_set()

    async def itself(self, ctx: ToolContext[Any]) -> McpConnection:
        """Give the connection for a call, which may be any."""
        return self

    @asynccontextmanager
    async def opened(self, seconds: float) -> AsyncIterator[McpConnection]:
        """Open it, and close it in the end."""
        await self.open(seconds)
        try:
            yield self
        finally:
            await self.close()

    async def open(self, seconds: float) -> None:
        """Connect and list the tools; if that fails, or is cancelled, nothing is left.

        Raises:
            ToolError: The server cannot be started or reached, or has not answered in time.
        """
        self._task = _start(self._own, f"connection to MCP server {self._name!r}")
        opened = False
        try:
            with anyio.move_on_after(seconds) as limit:
                await self._ready.wait()
                opened = not self._ended.is_set()
        finally:
            if not opened:
                self._scope.cancel()
                await self.close()
        if not opened:
            raise self._unreachable(seconds if limit.cancelled_caught else None) from self._error

    async def call(self, tool: str, arguments: dict[str, Any]) -> CallToolResult:
        """Call a tool, from any task of the loop.

        Raises:
            ToolError: The connection is lost or closed; or the server refused the call, or gave no proper result.
        """
        from mcp import MCPError
        from mcp.types import CONNECTION_CLOSED

        self._check_loop()
        if self._client is None or self.over:
            raise self._gone() from self._error
        try:
            return await self._client.call_tool(tool, arguments)
        except MCPError as error:
            if self.over or error.code == CONNECTION_CLOSED:
                raise self._gone() from error
            text = f"MCP server {self._name!r} refused the call: {_short(error.message)}"
            raise ToolError(text, tool_name=tool) from error
        except (RuntimeError, ValueError) as error:  # what the package says of a result that it cannot use
            text = f"the result of MCP server {self._name!r} cannot be used: {_short(str(error))}"
            raise ToolError(text, tool_name=tool) from error

    async def close(self) -> None:
        """Have the owner close it, and wait for that, even if the caller is being cancelled."""
        if self._ended.is_set():
            return
        self._check_loop()
        self._closing.set()
        with anyio.CancelScope(shield=True):
            with anyio.move_on_after(CLOSE_SECONDS):
                await self._ended.wait()
                return
            self._scope.cancel()
            await self._ended.wait()

    async def _own(self) -> None:
        """Open the connection, wait until it is to be closed, and close it: the life of the owner's task."""
        try:
            with self._scope:
                await self._live()
        except Exception as error:  # the task is nobody's child: who waits for it is told
            self._error = _first(error)
            if self._client is not None and self._closing.is_set():
                log.warning("closing the connection to MCP server %r failed", self._name, exc_info=error)
        finally:
            self._ended.set()
            self._ready.set()

    async def _live(self) -> None:
        from mcp import Client
        from mcp.types import Implementation

        from graphrt import __version__

        this = Implementation(name="graphrt", version=__version__)
        with _Stderr() as self._stderr:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._stderr.read)
                async with Client(self._transport.streams(self._stderr), client_info=this, cache=None) as client:
                    self.listed = await _list(client)
                    self._client = client
                    self._ready.set()
                    await self._closing.wait()
                tasks.cancel_scope.cancel()

    def _check_loop(self) -> None:
        if anyio.lowlevel.current_token().native_token is not self._loop:
            raise ToolError(
                f"MCP server {self._name!r} is open in another event loop",
                hint="open it in the loop that uses it; tools of list_tools() are opened there for each run",
            )

    def _unreachable(self, seconds: float | None) -> ToolError:
        if seconds is not None:
            text, kind = f"has not answered after {seconds:g} seconds", ToolErrorKind.TIMEOUT
        else:
            text, kind = f"cannot be reached: {_told(self._error)}", ToolErrorKind.EXECUTION
        return ToolError(f"MCP server {self._name!r} {text}", kind, hint=self._last_words())

    def _gone(self) -> ToolError:
        text = f"the connection to MCP server {self._name!r} is"
        if self._closing.is_set():
            return ToolError(f"{text} closed", hint="use its tools while it is open")
        return ToolError(f"{text} lost", hint=self._last_words() or "open the server again")

    def _last_words(self) -> str | None:
        line = "" if self._stderr is None else self._stderr.last_line()
        return f"the last line of its standard error: {_short(line)}" if line else None


class _Stderr:
    """The end of what a server writes to its standard error."""

    def __init__(self) -> None:
        self._from, to = os.pipe()
        os.set_blocking(self._from, False)
        self.file = os.fdopen(to, "w")
        """What the server writes to."""
        self._tail = b""
        self._closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.file.close()
        self._take()
        self._closed = True
        os.close(self._from)

    def last_line(self) -> str:
        """Give the last line that is not empty."""
        if not self._closed:
            self._take()
        lines = [line for line in clean_text(self._tail).splitlines() if line.strip()]
        return lines[-1].strip() if lines else ""

    async def read(self) -> None:
        """Read what comes, so that the server never waits, until there is no more."""
        while self._take():
            await anyio.wait_readable(self._from)

    def _take(self) -> bool:
        """Read what is there; false if there will be no more."""
        try:
            while piece := os.read(self._from, 65536):
                self._tail = (self._tail + piece)[-TAIL_BYTES:]
        except BlockingIOError:
            return True
        return False


def _start(task: Callable[[], Coroutine[Any, Any, None]], name: str) -> object:
    """Start a task of the loop's own, within no scope of the caller; it is cancelled when the loop ends."""
    loop: Any = anyio.lowlevel.current_token().native_token
    if hasattr(loop, "create_task"):
        return loop.create_task(task(), name=name)
    import trio

    return trio.lowlevel.spawn_system_task(task, name=name, context=copy_context())


async def _list(client: Client) -> list[Listed]:
    """List the tools, page by page.

    Raises:
        ToolError: A page leads back to one before it.
    """
    from mcp import MCPError
    from mcp.types import METHOD_NOT_FOUND

    listed: list[Listed] = []
    seen: set[str | None] = set()
    cursor = None
    while cursor not in seen:
        seen.add(cursor)
        try:
            page = await client.list_tools(cursor=cursor)
        except MCPError as error:
            if error.code == METHOD_NOT_FOUND:  # a server that has other things than tools
                return listed
            raise
        listed += page.tools
        cursor = page.next_cursor
        if cursor is None:
            return listed
    raise ToolError("its list of tools comes to no end")


def _first(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _told(error: BaseException | None) -> str:
    return error.message if isinstance(error, ToolError) else _short(f"{type(error).__name__}: {error}")


def _short(text: str) -> str:
    text = text.splitlines()[0] if text else ""
    return text if len(text) <= QUOTED else f"{text[: QUOTED - 3]}..."
