"""What a person sees of an agent: its name, its drawing, and what is wrong with its tools."""

from __future__ import annotations

from typing import Any

import pytest

from graphrt import AgentNode, ConfigError, function_tool
from graphrt.llm import ScriptedProvider


async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def agent(**options: Any) -> AgentNode:
    return AgentNode("calc", model=ScriptedProvider(), **options)


@pytest.mark.parametrize(("count", "shown"), [(0, "0 tools"), (1, "1 tool"), (2, "2 tools")])
def test_agent_is_shown_by_name_and_number_of_tools(count: int, shown: str) -> None:
    assert repr(agent(tools=[function_tool(add, id=f"t{at}") for at in range(count)])) == f"AgentNode('calc', {shown})"


def test_agent_is_drawn_in_a_notebook_as_its_graph_is() -> None:
    node = agent(tools=[add])
    assert node._repr_mimebundle_() == node.graph._repr_mimebundle_()
    assert "image/svg+xml" in node._repr_mimebundle_()["text/html"]


@pytest.mark.parametrize(
    ("tools", "hint"),
    [
        (add, "give tools=[add]"),
        (lambda a: a, "give tools=[fn]"),
        (function_tool(add), "give tools=[add]"),
        ("add", "give a sequence of tools or functions"),
    ],
)
def test_one_tool_in_place_of_several_is_refused(tools: Any, hint: str) -> None:
    with pytest.raises(ConfigError, match="the tools of agent 'calc' are a sequence") as caught:
        agent(tools=tools)
    assert caught.value.hint == hint
