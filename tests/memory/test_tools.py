"""Memory in the hands of a model."""

from __future__ import annotations

from typing import Any

import pytest

from graphrt.errors import AgentMemoryError, ToolError, ToolErrorKind
from graphrt.memory import InMemoryStore, KnowledgeStore, MemoryRetriever, SessionMemory, session_memory_tools
from graphrt.messages import ToolCall
from graphrt.tools import SequentialToolExecutor, Tool, ToolRegistry, ToolResult
from graphrt.tools.retrieve import RetrieveTool
from tests.memory.failing import FailingStore

pytestmark = pytest.mark.anyio


async def call(tools: list[Tool], name: str, **arguments: Any) -> ToolResult:
    registry = ToolRegistry()
    for tool in tools:
        registry.register(tool)
    [result] = await SequentialToolExecutor(registry).execute([ToolCall("c1", name, arguments)])
    return result


class Recording(MemoryRetriever):
    """Finds too much, and notes what it was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, int]] = []

    async def retrieve(self, query: str, limit: int = 5) -> list[str]:
        self.asked.append((query, limit))
        return [f"text {number}" for number in range(60)]


class Failing(MemoryRetriever):
    def __init__(self, error: Exception) -> None:
        self.error = error

    async def retrieve(self, query: str, limit: int = 5) -> list[str]:
        raise self.error


# --- retrieve


def test_model_is_told_what_retrieve_takes() -> None:
    """A-050."""
    descriptor = RetrieveTool(Recording(), limit=7).descriptor

    assert descriptor.id == "retrieve"
    assert descriptor.description
    assert descriptor.parameters["required"] == ["query"]
    assert descriptor.parameters["properties"]["limit"]["default"] == 7


async def test_retrieve_gives_the_texts_that_are_found() -> None:
    """A-050."""
    knowledge = KnowledgeStore(InMemoryStore())
    await knowledge.add("the office is in Bern")
    await knowledge.add("lunch is at noon")

    result = await call([RetrieveTool(knowledge)], "retrieve", query="where is the office?")
    assert result.data == ["the office is in Bern", "lunch is at noon"]
    assert result.text == '["the office is in Bern","lunch is at noon"]'
    nothing = await call([RetrieveTool(knowledge)], "retrieve", query="zebra")
    assert (nothing.is_error, nothing.data) == (False, [])


@pytest.mark.parametrize(
    ("limit", "asked"), [({}, 5), ({"limit": 1}, 1), ({"limit": 50}, 50), ({"limit": 2.0}, 2)], ids=repr
)
async def test_retrieve_gives_no_more_than_its_limit(limit: dict[str, Any], asked: int) -> None:
    retriever = Recording()

    result = await call([RetrieveTool(retriever)], "retrieve", query="x", **limit)
    assert retriever.asked == [("x", asked)]
    assert type(retriever.asked[0][1]) is int
    assert result.data == [f"text {number}" for number in range(asked)]


async def test_retrieve_has_a_limit_of_its_own_choice() -> None:
    retriever = Recording()

    await call([RetrieveTool(retriever, limit=12)], "retrieve", query="x")
    assert retriever.asked == [("x", 12)]


@pytest.mark.parametrize(
    "arguments",
    [{}, {"query": ""}, {"query": 3}, {"query": "x", "limit": 0}, {"query": "x", "limit": 51}, {"query": "x", "k": 1}],
    ids=repr,
)
async def test_retrieve_refuses_arguments_that_do_not_fit(arguments: dict[str, Any]) -> None:
    retriever = Recording()

    result = await call([RetrieveTool(retriever)], "retrieve", **arguments)
    assert result.kind is ToolErrorKind.INVALID_ARGUMENTS
    assert retriever.asked == []


@pytest.mark.parametrize("limit", [0, -1, 51])
def test_retrieve_with_a_limit_that_no_call_may_have_is_refused(limit: int) -> None:
    with pytest.raises(ToolError, match=f"limit of tool 'retrieve' is {limit}") as caught:
        RetrieveTool(Recording(), limit)
    assert caught.value.kind is ToolErrorKind.REGISTRATION


async def test_failing_retriever_is_the_tools_error() -> None:
    error = OSError("index gone")

    result = await call([RetrieveTool(Failing(error))], "retrieve", query="x")
    assert result.error_message == "tool 'retrieve' failed: OSError: index gone"
    assert result.kind is ToolErrorKind.EXECUTION
    assert result.cause is error


# --- session memory


async def test_model_writes_reads_and_removes_notes() -> None:
    """A-090."""
    memory = SessionMemory.for_session(InMemoryStore(), "s")
    tools = session_memory_tools(memory)

    assert [tool.descriptor.id for tool in tools] == [
        "session_memory_set",
        "session_memory_get",
        "session_memory_remove",
        "session_memory_list",
    ]
    assert (await call(tools, "session_memory_list")).text == "there are no notes"
    await call(tools, "session_memory_set", key="db", value="PostgreSQL")
    assert await memory.get("db") == "PostgreSQL"
    assert (await call(tools, "session_memory_get", key="db")).text == "PostgreSQL"
    assert (await call(tools, "session_memory_list")).text == await memory.snapshot()
    await call(tools, "session_memory_remove", key="db")
    assert await memory.snapshot() == ""
    missing = await call(tools, "session_memory_get", key="db")
    assert (missing.is_error, missing.text) == (False, "there is no note 'db'")


@pytest.mark.parametrize("name", ["session_memory_set", "session_memory_get", "session_memory_remove"])
async def test_note_without_a_name_is_refused(name: str) -> None:
    tools = session_memory_tools(SessionMemory(InMemoryStore(), "n"))

    result = await call(tools, name, key="", **({"value": "x"} if name.endswith("set") else {}))
    assert result.kind is ToolErrorKind.INVALID_ARGUMENTS


def test_model_is_told_what_each_tool_of_the_session_does() -> None:
    tools = session_memory_tools(SessionMemory(InMemoryStore(), "n"))
    parameters = tools[0].descriptor.parameters

    assert all(tool.descriptor.description for tool in tools)
    assert parameters["required"] == ["key", "value"]
    assert parameters["properties"]["key"]["description"] == "Short name of the note."


async def test_failing_memory_is_the_tools_error() -> None:
    tools = session_memory_tools(SessionMemory(FailingStore(OSError("disk gone")), "n"))

    result = await call(tools, "session_memory_list")
    assert result.error_message == "tool 'session_memory_list' failed: cannot read in 'n': OSError: disk gone"
    assert isinstance(result.cause, AgentMemoryError)
