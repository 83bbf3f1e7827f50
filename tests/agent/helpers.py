"""What the tests of agents share: bundles, sessions, runtimes, and records of what was called."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from graphrt import AgentConfig, HookEvent, HookExecutor, ToolRegistry
from graphrt.agent import AgentBuilder, AgentSession, RuntimeBundle, SimpleAgent
from graphrt.hooks import HookContext, HookResult
from graphrt.llm import RecordedCall, ScriptedProvider
from graphrt.messages import LLMResponse, Message, Role, TokenUsage, ToolCall


def call(id: str, name: str = "add", **arguments: Any) -> ToolCall:
    return ToolCall(id, name, arguments)


def asks(*calls: ToolCall, usage: TokenUsage | None = None) -> LLMResponse:
    """Make a reply that calls tools."""
    return LLMResponse("", list(calls), usage)


async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


async def echo(text: str) -> str:
    """Give a text back."""
    return text


def registry(*tools: Any) -> ToolRegistry:
    found = ToolRegistry()
    for tool in tools:
        found.register(tool)
    return found


class Heard(list[HookContext]):
    """Every call of a hook on any event, in order."""

    def __init__(self, hooks: HookExecutor, events: Iterable[HookEvent] = HookEvent) -> None:
        for event in events:
            hooks.register(event, self.append, name="heard")

    def events(self) -> list[str]:
        return [ctx.event.value for ctx in self]

    def of(self, event: HookEvent) -> list[HookContext]:
        return [ctx for ctx in self if ctx.event is event]


def bundle_of(
    provider: Any, *tools: Any, hooks: HookExecutor | None = None, config: AgentConfig | None = None, **parts: Any
) -> RuntimeBundle:
    builder = AgentBuilder().provider(provider).tool_registry(registry(*tools)).hook_executor(hooks or HookExecutor())
    for name, value in parts.items():
        getattr(builder, name)(value)
    return builder.config(config or AgentConfig()).build()


def session_of(
    script: Iterable[Any],
    *tools: Any,
    hooks: HookExecutor | None = None,
    agent: SimpleAgent | None = None,
    options: dict[str, Any] | None = None,
    **config: Any,
) -> tuple[AgentSession, ScriptedProvider]:
    """Make a session whose model plays *script*."""
    provider = ScriptedProvider(script)
    bundle = bundle_of(provider, *tools, hooks=hooks, config=AgentConfig(**config))
    return AgentSession("s-1", agent or SimpleAgent("helper"), bundle, **(options or {})), provider


def texts(messages: Iterable[Message]) -> list[str]:
    return [f"{each.role.value}: {each.content}" for each in messages]


def is_paired(messages: list[Message]) -> bool:
    """Whether every call is answered right after its message, once, and nothing else answers."""
    waiting: list[str] = []
    for each in messages:
        if each.role is Role.TOOL:
            if each.tool_call_id not in waiting:
                return False
            waiting.remove(each.tool_call_id)
        elif waiting:
            return False
        else:
            waiting = [call.id for call in each.tool_calls]
    return not waiting


def block(ctx: HookContext) -> HookResult:
    return HookResult.block("no")


def offered(asked: RecordedCall) -> list[str]:
    """Names of the tools that a model was offered."""
    return [str(getattr(each, "name", each)) for each in asked.tools or ()]
