"""The tools of MCP servers, on the official `mcp` package: ``pip install 'graphrt[mcp]'``.

A server is opened for a stretch of a program, by whoever runs it, and used from any task of the event loop:

    async with McpServer.stdio("uvx", ["mcp-server-git"], prefix="git_") as server:
        server.register(registry)
        ...

Or its tools are listed once, and each run that calls one has a connection of its own, opened at the first call
and closed when the run is over:

    tools = await McpServer.stdio("uvx", ["mcp-server-git"]).list_tools()

A connection belongs to a task of its own, which opens it and closes it; nobody else enters or leaves its scopes.
A server that ends is not started again behind the caller's back: each further call says that the connection is
lost. A call is part of the trace of the span it is made in; the package passes that on.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Self, TextIO, TypeAlias, TypedDict, Unpack
from urllib.parse import unquote

from graphrt.errors import ConfigError, ToolError, ToolErrorKind
from graphrt.tools.base import Tool, ToolContext, ToolDescriptor, ToolResult
from graphrt.tools.mcp_connection import HttpTransport, McpConnection, StdioTransport
from graphrt.tools.schema import validator_for

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path
    from types import TracebackType

    from mcp.types import CallToolResult, ContentBlock
    from mcp.types import Tool as Listed

    from graphrt.tools.registry import ToolRegistry

__all__ = ["McpOptions", "McpServer", "McpTool", "McpToolInfo"]

CONNECT_SECONDS: Final = 60.0
"""What a server may take to start, to greet and to list its tools."""
_NOT_IN_IDS: Final = re.compile(r"[^A-Za-z0-9_-]")


@dataclass(frozen=True, slots=True)
class McpToolInfo:
    """What a server says of a tool. None of it is checked, and a server may lie.

    Attributes:
        name: Its name at the server, without the prefix.
        title: A name for people.
        description: What it does, in the server's words.
        read_only: Whether it changes nothing.
        destructive: Whether it may change or remove what is there, and not only add to it.
        idempotent: Whether calling it again with the same arguments changes nothing more.
        open_world: Whether it reaches beyond the server, as a search of the web does.
    """

    name: str
    title: str | None = None
    description: str = ""
    read_only: bool = False
    destructive: bool = True
    idempotent: bool = False
    open_world: bool = True


class McpOptions(TypedDict, total=False):
    """What can be chosen for a server, whichever way it is reached.

    Attributes:
        name: Names the server in errors and where a tool comes from; its command or address by default, so give one
            where several servers have the same command.
        prefix: Goes before the name of each tool.
        allow: Names at the server of the tools to take; all when None.
        requires_approval: Whether a person has to say yes to each call, or a function that says for which tools.
        timeout: Seconds that one call may take.
        connect_timeout: Seconds that it may take to start, to greet and to list its tools.
    """

    name: str
    prefix: str
    allow: Collection[str] | None
    requires_approval: bool | Callable[[McpToolInfo], bool]
    timeout: float | None
    connect_timeout: float


Reach: TypeAlias = "Callable[[ToolContext[Any]], Awaitable[McpConnection]]"


class McpTool(Tool):
    """A tool of an MCP server. Its arguments are checked against the server's schema before it is asked."""

    def __init__(self, server: McpServer, listed: Listed, reach: Reach) -> None:
        """Take the tool as the server lists it, and how a call gets at the connection.

        Raises:
            ToolError: The schema of its arguments is no JSON Schema, or refers to what is not in it.
        """
        self.info = _info(listed)
        tool_id = _NOT_IN_IDS.sub("_", f"{server.prefix}{listed.name}")
        try:
            validator_for(listed.input_schema, tool_id=tool_id)
            _check_references(listed.input_schema, tool_id)
        except ToolError as error:
            raise ToolError(
                f"MCP server {server.name!r}: {error.message}",
                ToolErrorKind.REGISTRATION,
                tool_id,
                hint="leave the tool out: name the ones to take with allow=",
            ) from error
        self._descriptor = ToolDescriptor(tool_id, self.info.description or self.info.title or "", listed.input_schema)
        self._reach = reach
        self.timeout = server.timeout
        asked = server.requires_approval
        self.requires_approval = asked if isinstance(asked, bool) else bool(asked(self.info))

    @property
    def descriptor(self) -> ToolDescriptor:
        """What the model is told of the tool."""
        return self._descriptor

    async def execute(self, arguments: dict[str, Any], ctx: ToolContext[Any]) -> ToolResult:
        """Have the server do the work; a call that is cancelled is cancelled there too.

        The data is what the server gives as structured content, else its text; the model reads the text, if
        there is one. Of what is no text, such as an image, it is told what it is.

        Raises:
            ToolError: The server cannot be reached, the connection is closed or lost, or the server refused the
                call or gave no proper result.
        """
        connection = await self._reach(ctx)
        return _result(await connection.call(self.info.name, arguments))


class McpServer:
    """A server whose tools models can call; make it with ``stdio`` or ``http``.

    It is an async context manager that may be left in another task than the one that entered it.
    """

    def __init__(self, transport: StdioTransport | HttpTransport, **options: Unpack[McpOptions]) -> None:
        """Take what ``stdio`` and ``http`` make.

        Raises:
            TypeError: There is no such option.
            ConfigError: The package `mcp` is missing, or too old, or a time-out is no number above 0.
        """
        if unknown := sorted(options.keys() - McpOptions.__annotations__.keys()):
            raise TypeError(
                f"{unknown[0]!r} is no option of an MCP server; there are {', '.join(McpOptions.__annotations__)}"
            )
        try:
            from mcp import Client, StdioServerParameters, stdio_client  # noqa: F401  what is needed must be there
        except ImportError as error:
            raise ConfigError(
                "MCP servers need the package 'mcp', version 2 or newer", hint="pip install 'graphrt[mcp]'"
            ) from error
        self._transport = transport
        self.name: str = options.get("name") or str(transport)
        self.prefix: str = options.get("prefix", "")
        self.requires_approval = options.get("requires_approval", False)
        self.timeout = options.get("timeout")
        self._allow = options.get("allow")
        self._connect_timeout = options.get("connect_timeout", CONNECT_SECONDS)
        self._connection: McpConnection | None = None
        self._tools: list[Tool] = []
        for limit in (self.timeout, self._connect_timeout):
            if limit is not None and not limit > 0:
                raise ConfigError(f"a time-out of MCP server {self.name!r} is {limit!r}, no number of seconds above 0")

    @classmethod
    def stdio(
        cls,
        command: str,
        args: Sequence[str] = (),
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | Path | None = None,
        errlog: TextIO | None = None,
        **options: Unpack[McpOptions],
    ) -> Self:
        """Describe a server that is a process; nothing is started yet.

        Args:
            command: The program.
            args: Its arguments.
            env: Variables besides the few that it gets anyway, such as PATH and HOME: the rest of this
                program's environment is kept from it.
            cwd: The folder it runs in.
            errlog: A file for its standard error, such as ``sys.stderr``. When None, the end of it is kept for
                the hints of errors, and shown nowhere else.
            options: Those of ``McpOptions``: ``name`` (for errors), ``prefix`` (of the tools' names), ``allow`` (names
                of the tools to take), ``requires_approval`` (True, or a function of an ``McpToolInfo``), ``timeout``
                and ``connect_timeout`` (seconds).

        Raises:
            TypeError: There is no such option.
            ConfigError: The package `mcp` is missing, or a time-out is no number above 0.
        """
        return cls(StdioTransport(command, tuple(args), env, cwd, errlog), **options)

    @classmethod
    def http(cls, url: str, *, headers: Mapping[str, str] | None = None, **options: Unpack[McpOptions]) -> Self:
        """Describe a server at an address that speaks streamable HTTP; nothing is sent yet.

        Args:
            url: The address of its endpoint.
            headers: Sent with each request, such as ``Authorization``; shown nowhere.
            options: Those of ``McpOptions``: ``name`` (for errors), ``prefix`` (of the tools' names), ``allow`` (names
                of the tools to take), ``requires_approval`` (True, or a function of an ``McpToolInfo``), ``timeout``
                and ``connect_timeout`` (seconds).

        Raises:
            TypeError: There is no such option.
            ConfigError: The package `mcp` is missing, or a time-out is no number above 0.
        """
        return cls(HttpTransport(url, headers), **options)

    def __repr__(self) -> str:
        return f"McpServer({self.name!r})"

    # --- open for a stretch of a program

    async def __aenter__(self) -> Self:
        if self._connection is not None and not self._connection.over:
            raise ToolError(
                f"MCP server {self.name!r} is open already",
                hint="use server.tools of the one that is open, or make a second McpServer",
            )
        connection = self._connection = self._make()
        await connection.open(self._connect_timeout)
        try:
            self._tools = self._take(connection.listed, connection.itself)
        except BaseException:
            await connection.close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connection and wait until its process is gone, even if the caller is being cancelled.

        From any task of the event loop it was opened in, as often as you like. Calls that are under way end
        with an error.

        Raises:
            ToolError: It is open in another event loop.
        """
        if self._connection is not None:
            await self._connection.close()

    @property
    def tools(self) -> list[Tool]:
        """The tools, bound to the open connection; in the order of the server.

        Raises:
            ToolError: The server is not open.
        """
        if self._connection is None or self._connection.over:
            raise ToolError(f"MCP server {self.name!r} is not open", hint="use it within `async with`")
        return list(self._tools)

    def register(self, registry: ToolRegistry) -> list[Tool]:
        """Add the tools of the open connection to *registry*.

        Raises:
            ToolError: The server is not open, or an id is taken; those before that one have been added.
        """
        return [registry.register(tool, source=f"MCP server {self.name!r}") for tool in self.tools]

    # --- open for a run

    async def list_tools(self) -> list[Tool]:
        """Connect, list the tools, and close: what is given connects anew in each run that uses it.

        The connection is opened by the first call in the run, shared by the calls of one graph, and closed
        when the run is over.

        Raises:
            ToolError: The server cannot be reached, or what it lists cannot be used.
        """
        async with self._connected() as connection:
            return self._take(connection.listed, self._of_the_run)

    async def _of_the_run(self, ctx: ToolContext[Any]) -> McpConnection:
        if ctx.resource is None:
            raise ToolError(
                f"MCP server {self.name!r} is not open, and there is no run to open it for",
                hint="use server.tools within `async with` the server",
            )
        connection: McpConnection = await ctx.resource(self, lambda run: self._connected())
        return connection

    def _connected(self) -> AbstractAsyncContextManager[McpConnection]:
        return self._make().opened(self._connect_timeout)

    # --- both

    def _make(self) -> McpConnection:
        return McpConnection(self.name, self._transport)

    def _take(self, listed: Sequence[Listed], reach: Reach) -> list[Tool]:
        """Make the tools that are allowed.

        Raises:
            ToolError: One that is allowed is not listed, two have one id, or a schema is broken.
        """
        names = [each.name for each in listed]
        missing = sorted(set(self._allow or ()) - set(names))
        if missing:
            raise ToolError(
                f"MCP server {self.name!r} has no tool {missing[0]!r}, which allow= names",
                ToolErrorKind.REGISTRATION,
                missing[0],
                hint=f"its tools are: {', '.join(names) or 'none'}",
            )
        tools: dict[str, Tool] = {}
        for each in listed:
            if self._allow is not None and each.name not in self._allow:
                continue
            tool = McpTool(self, each, reach)
            if tools.setdefault(tool.descriptor.id, tool) is not tool:
                raise ToolError(
                    f"MCP server {self.name!r} has two tools with the id {tool.descriptor.id!r}",
                    ToolErrorKind.REGISTRATION,
                    tool.descriptor.id,
                    hint="name the ones to take with allow=",
                )
        return list(tools.values())


def _check_references(schema: Mapping[str, Any], tool_id: str) -> None:
    """Look up what the schema refers to within itself: otherwise each call would fail on it.

    Raises:
        ToolError: It refers to a part that it lacks.
    """
    for reference in _references(schema):
        found: Any = schema
        for part in reference.removeprefix("#/").split("/"):
            key = unquote(part).replace("~1", "/").replace("~0", "~")
            if isinstance(found, list) and key.isdecimal() and int(key) < len(found):
                found = found[int(key)]
            elif isinstance(found, dict) and key in found:
                found = found[key]
            else:
                raise ToolError(
                    f"the parameters of tool {tool_id!r} refer to {reference!r}, which is not there",
                    ToolErrorKind.REGISTRATION,
                    tool_id,
                )


def _references(part: Any) -> Iterator[str]:
    """Find the references to places in the same schema; those in a part with an ``$id`` are relative to it."""
    if isinstance(part, list):
        for each in part:
            yield from _references(each)
    elif isinstance(part, dict):
        reference = part.get("$ref")
        if isinstance(reference, str) and reference.startswith("#/"):
            yield reference
        for each in part.values():
            if not (isinstance(each, dict) and "$id" in each):
                yield from _references(each)


def _info(listed: Listed) -> McpToolInfo:
    hints = listed.annotations

    def said(hint: str, default: bool) -> bool:
        value = getattr(hints, hint, None)
        return default if value is None else bool(value)

    return McpToolInfo(
        name=listed.name,
        title=listed.title or (hints.title if hints is not None else None),
        description=listed.description or "",
        read_only=said("read_only_hint", False),
        destructive=said("destructive_hint", True),
        idempotent=said("idempotent_hint", False),
        open_world=said("open_world_hint", True),
    )


def _result(reply: CallToolResult) -> ToolResult:
    text = "\n".join(_in_words(block) for block in reply.content)
    if reply.is_error:
        return ToolResult.error(text or "the tool failed, and did not say why")
    structured = reply.structured_content
    return ToolResult.success(text if structured is None else structured, text=text or None)


def _in_words(block: ContentBlock) -> str:
    """Give a piece of a result as the model is told of it."""
    if block.type == "text":
        return block.text
    if block.type == "resource_link":
        about = ", ".join(filter(None, (block.name, block.mime_type, block.description)))
        return f"[link to {block.uri}: {about}]"
    if block.type == "resource":
        resource = block.resource
        about = ", ".join(filter(None, (str(resource.uri), resource.mime_type)))
        text = getattr(resource, "text", None)
        if text is not None:
            return f"[resource {about}]\n{text}"
        return f"[resource {about}, {_size(getattr(resource, 'blob', ''))} bytes]"
    return f"[{block.type}, {block.mime_type}, {_size(block.data)} bytes]"


def _size(base64: str) -> int:
    return len(base64) * 3 // 4 - base64[-2:].count("=")
