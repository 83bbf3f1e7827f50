"""An agent that uses tools: it is asked, calls tools until it knows enough, and answers.

A tool is a function; its schema comes from its annotations and its docstring. The agent runs alone here, by its own
graph; the calls of one round run at the same time, and their results come back in the order of the calls.
"""

from __future__ import annotations

from graphrt import AgentNode, LLMProvider
from graphrt.llm import ScriptedProvider
from graphrt.messages import LLMResponse, ToolCall

PRICES = {"honey": 7, "wax": 3}


async def price(item: str) -> int:
    """Look up the price of an item, in euros."""
    return PRICES[item]


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def build(model: LLMProvider) -> AgentNode:
    """Make the agent on top of *model*."""
    return AgentNode("shop", model=model, tools=[price, add], system_prompt="You sell honey.", max_rounds=5)


def scripted() -> ScriptedProvider:
    """Stand in for a model that looks two prices up, adds them, and answers."""
    return ScriptedProvider(
        [
            LLMResponse(
                tool_calls=[
                    ToolCall("1", "price", {"item": "honey"}),
                    ToolCall("2", "price", {"item": "wax"}),
                ]
            ),
            LLMResponse(tool_calls=[ToolCall("3", "add", {"a": 7, "b": 3})]),
            "Together they cost 10 euros.",
        ]
    )


def main() -> str:
    """Run it once."""
    return str(build(scripted()).graph.run_sync("What do honey and wax cost together?").output)
