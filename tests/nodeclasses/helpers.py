"""What the tests of node classes share: replies, small tools, and one node in a workflow of its own."""

from __future__ import annotations

from typing import Any

from graphrt import END, START, RunEvent, Workflow
from graphrt.messages import LLMResponse, Message, Role, TokenUsage, ToolCall


def call(id: str, name: str = "add", **arguments: Any) -> ToolCall:
    return ToolCall(id, name, arguments)


def asks(*calls: ToolCall, usage: TokenUsage | None = None) -> LLMResponse:
    """Make a reply that calls tools."""
    return LLMResponse("", list(calls), usage)


def alone(node: Any, **options: Any) -> Workflow:
    """Make a workflow of one node."""
    workflow = Workflow("alone", **options)
    workflow.add(node)
    workflow.chain(START, node.name, END)
    return workflow


async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def answers(messages: list[Message]) -> list[tuple[str | None, str]]:
    """List the answers of tools, by the id of the call."""
    return [(each.tool_call_id, each.content) for each in messages if each.role is Role.TOOL]


def unanswered(messages: list[Message]) -> list[str]:
    """List the calls that no message answers."""
    answered = [each.tool_call_id for each in messages if each.role is Role.TOOL]
    return [one.id for each in messages for one in each.tool_calls if one.id not in answered]


class Events(list[RunEvent]):
    """Events of a run, to be given as `on_event`."""

    def __call__(self, event: RunEvent) -> None:
        self.append(event)

    def types(self) -> list[str]:
        return [event.type for event in self]

    def of(self, *types: str) -> list[RunEvent]:
        return [event for event in self if event.type in types]
