"""A small MCP server, run as a process by the tests."""

from __future__ import annotations

import base64
import os
import sys

import anyio
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import (
    BlobResourceContents,
    CallToolResult,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
    TextResourceContents,
    ToolAnnotations,
)

server = MCPServer("shop", log_level="ERROR")
inside: list[anyio.Event] = []
cancelled: list[str] = []


@server.tool()
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool(structured_output=False)
async def shout(text: str) -> str:
    """Say it loudly."""
    return text.upper()


@server.tool()
async def fail(why: str) -> str:
    """Fail."""
    raise ToolError(why)


@server.tool()
async def meet(who: str, people: int) -> str:
    """Wait until as many people are here; then let all go."""
    here = anyio.Event()
    inside.append(here)
    if len(inside) == people:
        while inside:
            inside.pop().set()
    await here.wait()
    return who


@server.tool()
async def hang(who: str) -> str:
    """Never end."""
    try:
        await anyio.sleep_forever()
    except anyio.get_cancelled_exc_class():
        cancelled.append(who)
        raise
    return who


@server.tool()
async def cancellations() -> list[str]:
    """Tell which calls were cancelled."""
    return cancelled


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
async def pid() -> int:
    """Tell the number of this process."""
    return os.getpid()


@server.tool(annotations=ToolAnnotations(title="Crash", destructive_hint=True))
async def crash() -> str:
    """Die."""
    sys.stderr.write("out of paper\n")
    sys.stderr.flush()
    os._exit(3)


@server.tool()
async def trace(ctx: Context) -> str:
    """Tell which trace the call belongs to."""
    return str((ctx.request_context.meta or {}).get("traceparent"))


@server.tool()
async def secret() -> str:
    """Tell what this process got from its parent."""
    return os.environ.get("GRAPHRT_TEST_SECRET", "nothing") + " " + os.environ.get("GRAPHRT_TEST_GIVEN", "nothing")


@server.tool()
async def token(ctx: Context) -> str:
    """Tell what the request was authorised with."""
    return str((ctx.headers or {}).get("authorization"))


@server.tool(name="show/all.things")
async def show() -> CallToolResult:
    """Give one of each kind."""
    data = base64.b64encode(b"12345").decode()
    return CallToolResult(
        content=[
            TextContent(text="look:"),
            ImageContent(data=data, mime_type="image/png"),
            EmbeddedResource(resource=TextResourceContents(uri="file:///a.txt", mime_type="text/plain", text="hello")),
            EmbeddedResource(resource=BlobResourceContents(uri="file:///b", blob=data)),
            ResourceLink(name="c", uri="file:///c", description="more of it"),
        ]
    )


if __name__ == "__main__":
    if len(sys.argv) > 1:
        server.run("streamable-http", port=int(sys.argv[1]))
    else:
        server.run()
