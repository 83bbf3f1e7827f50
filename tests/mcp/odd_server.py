"""MCP servers that are odd in one way each; the first argument says which, the second where to write the pid."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

KIND = sys.argv[1]
if len(sys.argv) > 2:
    Path(sys.argv[2]).write_text(str(os.getpid()))

match KIND:
    case "silent":
        sys.stdin.read()
        sys.exit()
    case "stubborn":  # neither answers nor ends when its input does
        while True:
            time.sleep(60)
    case "broke":
        sys.stderr.write("x" * 300_000 + "\nlast but one\n\n")
        sys.exit("cannot open the shop")
    case "chatty":
        sys.stderr.write("x" * 300_000)
        KIND = "paged"

import anyio  # noqa: E402  the kinds above start at once
from mcp.server.lowlevel import Server  # noqa: E402
from mcp.server.stdio import stdio_server  # noqa: E402
from mcp.types import (  # noqa: E402
    CallToolRequestParams,
    CallToolResult,
    ListToolsResult,
    PaginatedRequestParams,
    TextContent,
    Tool,
)

ANYTHING: dict[str, Any] = {"type": "object"}
PAGES = {None: ("one", "2"), "2": ("two", "3"), "3": ("three", None)}


async def paged(ctx: Any, params: PaginatedRequestParams | None) -> ListToolsResult:
    name, cursor = PAGES[None if params is None else params.cursor]
    return ListToolsResult(tools=[Tool(name=name, input_schema=ANYTHING)], next_cursor=cursor)


async def endless(ctx: Any, params: PaginatedRequestParams | None) -> ListToolsResult:
    return ListToolsResult(tools=[], next_cursor="again")


async def broken(ctx: Any, params: PaginatedRequestParams | None) -> ListToolsResult:
    schema = {"type": "object", "properties": {"x": {"type": "strnig"}}}
    return ListToolsResult(tools=[Tool(name="good", input_schema=ANYTHING), Tool(name="bad", input_schema=schema)])


async def dangling(ctx: Any, params: PaginatedRequestParams | None) -> ListToolsResult:
    def schema(place: str) -> dict[str, Any]:
        return {
            "type": "object",
            "$defs": {"a/b": {"type": "string"}},
            "properties": {"x": {"$ref": f"#/$defs/{place}"}},
        }

    places = {"good": "a~1b", "bad": "c"}
    return ListToolsResult(tools=[Tool(name=name, input_schema=schema(place)) for name, place in places.items()])


async def twins(ctx: Any, params: PaginatedRequestParams | None) -> ListToolsResult:
    return ListToolsResult(tools=[Tool(name=name, input_schema=ANYTHING) for name in ("a.b", "a_b")])


async def liar(ctx: Any, params: PaginatedRequestParams | None) -> ListToolsResult:
    shape = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    return ListToolsResult(tools=[Tool(name="count", input_schema=ANYTHING, output_schema=shape)])


async def call(ctx: Any, params: CallToolRequestParams) -> CallToolResult:
    if params.name == "two":
        raise KeyError("no such row")
    structured = {"n": "many"} if params.name == "count" else None
    return CallToolResult(content=[TextContent(text=f"{params.name} done")], structured_content=structured)


async def serve(kind: str) -> None:
    lists = globals().get(kind)
    server: Server[Any] = Server("odd", on_list_tools=lists, on_call_tool=call if lists else None)
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


if __name__ == "__main__":
    anyio.run(serve, KIND)
