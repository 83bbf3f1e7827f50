"""Which tools are taken from a server, what goes wrong then, and what a process is given and says."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest

from graphrt.errors import ToolError, ToolErrorKind
from graphrt.tools import McpOptions, ToolRegistry
from tests.mcp.helpers import REASON, SHOP, ask, odd, shop

pytest.importorskip("mcp", reason=REASON)

from graphrt.tools.mcp import McpServer

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    """Run on one event loop: each test starts a process or two, and what it shows is the same on the other."""
    return "asyncio"


# --- which tools are taken


@pytest.mark.parametrize("option", ["require_approval", "allowed", "Name"])
def test_option_that_there_is_not_is_refused(option: str) -> None:
    wrong: Any = {option: True}
    words = f"{option!r} is no option of an MCP server; there are name, prefix, allow, requires_approval, timeout, conn"
    with pytest.raises(TypeError, match=words):
        McpServer.stdio("server", **wrong)
    with pytest.raises(TypeError, match=words):
        McpServer.http("http://localhost/mcp", **wrong)


@pytest.mark.parametrize("option", McpOptions.__annotations__)
def test_help_of_the_constructors_names_every_option(option: str) -> None:
    for told in (McpServer.stdio.__doc__, McpServer.http.__doc__):
        assert f"``{option}``" in (told or "")


async def test_prefix_and_allow_list_choose_and_name_the_tools() -> None:
    registry = ToolRegistry()
    async with shop(prefix="shop_", allow=["add", "shout"], timeout=7, requires_approval=True) as server:
        taken = server.register(registry)

        assert registry.ids() == ["shop_add", "shop_shout"]
        assert registry.source("shop_add") == "MCP server 'shop'"
        assert {(tool.timeout, tool.requires_approval) for tool in taken} == {(7, True)}
        with pytest.raises(ToolError, match="comes from MCP server 'shop' and again from MCP server 'shop'"):
            server.register(registry)


async def test_name_in_the_allow_list_that_the_server_lacks_is_an_error() -> None:
    with pytest.raises(ToolError, match="'odd' has no tool 'tow', which allow= names") as caught:
        await odd("paged", allow=["one", "tow"]).list_tools()

    assert caught.value.hint == "its tools are: one, two, three"


async def test_every_page_of_the_list_is_read_and_a_refusal_of_the_server_is_told() -> None:
    async with odd("paged") as server:
        assert [tool.descriptor.id for tool in server.tools] == ["one", "two", "three"]
        assert (await ask(server.tools, "one")).text == "one done"
        refused = await ask(server.tools, "two")
        assert refused.text.startswith("tool 'two' failed: MCP server 'odd' refused the call: ")


@pytest.mark.parametrize(
    ("kind", "complaint"),
    [
        ("broken", "the parameters of tool 'bad' are no JSON Schema"),
        ("dangling", r"the parameters of tool 'bad' refer to '#/\$defs/c', which is not there"),
    ],
)
async def test_schema_that_is_broken_is_an_error_at_the_start(kind: str, complaint: str) -> None:
    with pytest.raises(ToolError, match=f"MCP server 'odd': {complaint}") as caught:
        await odd(kind).list_tools()

    assert caught.value.hint == "leave the tool out: name the ones to take with allow="


async def test_tool_with_a_broken_schema_can_be_left_out() -> None:
    async with odd("dangling", allow=["good"]) as server:
        assert [tool.descriptor.id for tool in server.tools] == ["good"]
        assert (await ask(server.tools, "good", x="y")).text == "good done"
        assert (await ask(server.tools, "good", x=1)).kind is ToolErrorKind.INVALID_ARGUMENTS


async def test_two_tools_with_one_id_are_an_error_at_the_start() -> None:
    with pytest.raises(ToolError, match="'odd' has two tools with the id 'a_b'"):
        await odd("twins").list_tools()


async def test_result_that_breaks_the_servers_own_promise_is_an_error_for_the_model() -> None:
    async with odd("liar") as server:
        result = await ask(server.tools, "count")

    assert result.kind is ToolErrorKind.EXECUTION
    assert "the result of MCP server 'odd' cannot be used" in result.text
    assert "'many' is not of type 'integer'" in result.text


async def test_server_without_tools_has_an_empty_list() -> None:
    assert await odd("toolless").list_tools() == []


async def test_list_of_tools_that_goes_round_in_a_circle_is_an_error() -> None:
    with pytest.raises(ToolError, match="'odd' cannot be reached: its list of tools comes to no end"):
        await odd("endless").list_tools()


# --- servers that do not start


async def test_program_that_is_not_there_is_an_error() -> None:
    with pytest.raises(ToolError, match="MCP server '/no/such' cannot be reached: FileNotFoundError") as caught:
        await McpServer.stdio("/no/such").list_tools()

    assert isinstance(caught.value.__cause__, FileNotFoundError)


async def test_server_that_ends_at_once_is_an_error_with_its_last_words(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ToolError, match="MCP server 'odd' cannot be reached: ") as caught:
        await odd("broke").list_tools()

    assert caught.value.hint == "the last line of its standard error: cannot open the shop"
    assert capfd.readouterr() == ("", "")


# --- what a process is given, and says beside the protocol


async def test_server_gets_the_variables_it_is_given_and_not_those_of_the_program(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(os.environ, "GRAPHRT_TEST_SECRET", "hush")
    async with McpServer.stdio(sys.executable, [SHOP], env={"GRAPHRT_TEST_GIVEN": "here"}) as server:
        assert (await ask(server.tools, "secret")).text == "nothing here"


async def test_server_with_much_to_say_is_not_held_up() -> None:
    with anyio.fail_after(20):
        async with odd("chatty") as server:
            assert (await ask(server.tools, "one")).text == "one done"


async def test_standard_error_goes_where_it_is_told(tmp_path: Path) -> None:
    path = tmp_path / "errors"
    with path.open("w") as errlog, pytest.raises(ToolError, match="cannot be reached") as caught:
        await McpServer.stdio(sys.executable, ["-c", "raise SystemExit('closed')"], errlog=errlog).list_tools()

    assert path.read_text() == "closed\n"
    assert caught.value.hint is None
