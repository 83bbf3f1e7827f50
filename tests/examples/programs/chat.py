"""A chat with an agent that asks before it buys: whoever reads the turn's events answers for the person.

A session keeps the conversation from turn to turn. Of the events of a turn, four matter to a chat: text that comes in,
calls of tools that start and end, and questions. A call that is denied is not made, and the model is told why.
"""

from __future__ import annotations

from typing import Any

from graphrt import AgentBuilder, AgentSession, HookExecutor, LLMProvider, SimpleAgent, ToolRegistry, function_tool
from graphrt.llm import ScriptedProvider
from graphrt.messages import LLMResponse, ToolCall

tools = ToolRegistry()


@tools.register
@function_tool(requires_approval=True)
async def buy(item: str, amount: int) -> str:
    """Buy some of an item."""
    return f"{amount} {item} bought"


def decide(call: dict[str, Any]) -> bool | dict[str, Any]:
    """Stand in for a person who reads the call: its tool, description and arguments."""
    if call["arguments"]["amount"] > 100:
        return {"approved": False, "reason": "too many"}
    return True


async def say(session: AgentSession, text: str) -> list[str]:
    """Carry out one turn, and list what a screen would show of it."""
    shown, streamed = [], ""
    async with session.stream_turn(text) as turn:
        async for event in turn:
            if event.type == "message.delta":
                streamed += event.data["text"]
            elif event.type == "step.waiting":
                for question in turn.questions:
                    await turn.answer(question.id, decide(question.question))
            elif event.type == "tool.call.completed":
                shown.append(event.data.get("result") or event.data["error"])
    assert streamed == turn.response.content
    return [*sorted(shown), streamed]


def build(model: LLMProvider) -> AgentSession:
    """Open a session of the agent on top of *model*."""
    bundle = AgentBuilder().provider(model).tool_registry(tools).hook_executor(HookExecutor()).build()
    return AgentSession("s-1", SimpleAgent("buyer", "You buy what is asked for."), bundle)


def scripted() -> ScriptedProvider:
    """Stand in for a model that buys two things at once, and remembers it."""
    calls = [
        ToolCall("1", "buy", {"item": "lamps", "amount": 2}),
        ToolCall("2", "buy", {"item": "nails", "amount": 900}),
    ]
    return ScriptedProvider([LLMResponse(tool_calls=calls), "Two lamps, and no nails.", "Lamps."])


async def chat() -> list[str]:
    """Have two turns."""
    session = build(scripted())
    return [*await say(session, "Two lamps and 900 nails, please."), *await say(session, "What did I get?")]


def main() -> list[str]:
    """Run it once."""
    import anyio

    return anyio.run(chat)
