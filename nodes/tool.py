"""Calling a tool: one tool as a node, and what answers calls that name none."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from graphrt.graph.protocols import NodeKind
from graphrt.graph.signature import NodeSignature, Param
from graphrt.messages import Message, ToolCall
from graphrt.tools.base import Tool, ToolContext, ToolResult
from graphrt.tools.executor import ToolGate, answer_call
from graphrt.tools.function import FunctionTool

if TYPE_CHECKING:
    from graphrt.graph.scheduler.context import RunContext
    from graphrt.tools.executor import Approve
    from graphrt.tools.permission import PermissionChecker

CALL: Final = Param("call", ToolCall)


def as_tool(tool: Tool | Callable[..., Any]) -> Tool:
    """Give a tool; a plain function becomes one.

    Raises:
        ToolError: The function cannot be described to a model.
    """
    return tool if isinstance(tool, Tool) else FunctionTool(tool)


def tool_context(ctx: RunContext[Any], call: ToolCall) -> ToolContext[Any]:
    """Give what a tool sees of the run."""
    return ToolContext(
        run_id=ctx.run_id,
        tool_call_id=call.id,
        tool_id=call.name,
        deps=ctx.deps,
        deadline=ctx.deadline,
        idempotency_key=ctx.idempotency_key,
        emit=ctx.emit,
    )


async def answer(
    call: ToolCall, ctx: RunContext[Any], make: Callable[[], Awaitable[ToolResult]]
) -> Message:
    """Have *make* answer a call, tell the run's readers of both, and give the answer for the conversation.

    Raises:
        Exception: What *make* raised; the call is reported as failed.
    """
    ctx.annotate("gen_ai.operation.name", "execute_tool")
    ctx.annotate("gen_ai.tool.name", call.name)
    ctx.annotate("gen_ai.tool.call.id", call.id)
    told = {"tool_call_id": call.id, "tool_name": call.name} if ctx.watched else None
    if told is not None:
        ctx.emit("tool.call.started", {**told, "parameters": call.arguments})
    try:
        result = await make()
    except Exception as error:
        if told is not None:
            ctx.emit("tool.call.completed", {**told, "error": f"{type(error).__name__}: {error}"})
        raise
    if result.kind is not None:
        ctx.annotate("error.type", str(result.kind))
    if told is not None:
        ctx.emit("tool.call.completed", {**told, "error" if result.is_error else "result": result.text})
    return result.to_message(call.id)


class ToolNode:
    """Answer one call of a tool with a message for the model.

    Whatever fails in the tool becomes text: arguments that do not fit, a refusal, an exception, its time-out.
    The run's own deadline, its cancellation and its budget do not.
    """

    kind = NodeKind.TOOL

    def __init__(
        self,
        tool: Tool | Callable[..., Any],
        *,
        name: str | None = None,
        permission: PermissionChecker | None = None,
        timeout: float | None = None,
        gated: bool | None = None,
    ) -> None:
        """Take the tool.

        Args:
            tool: A tool, or a function to make one of.
            name: Name of the node; `tool:<id>` when None.
            permission: Decides on each call.
            timeout: Seconds that one call may take; the nearest of this and the tool's own wins.
            gated: Whether calls keep to the turns that exclusive tools of the same graph need: then such a
                tool runs alone. When None, exclusive tools alone do so, and keep clear of one another.

        Raises:
            ToolError: A function cannot be described to a model.
        """
        self.tool = as_tool(tool)
        self._name = name or f"tool:{self.tool.descriptor.id}"
        self._permission = permission
        self._timeout = timeout
        self._gated = self.tool.exclusive if gated is None else gated

    @property
    def name(self) -> str:
        """Name of the node."""
        return self._name

    @property
    def signature(self) -> NodeSignature:
        """Takes `call`, a `ToolCall`, and gives a `Message` of role `tool`."""
        return NodeSignature((CALL,), Message)

    async def run(self, inputs: Mapping[str, Any], ctx: RunContext[Any]) -> Message:
        """Answer the call.

        Raises:
            LimitExceededError: The run's budget of tool calls is spent; the tool was not called.
            Exception: What *permission* raised; the tool was not called.
        """
        return await self.call(inputs["call"], ctx, permission=self._permission)

    async def call(
        self,
        call: ToolCall,
        ctx: RunContext[Any],
        *,
        permission: PermissionChecker | None = None,
        approve: Approve | None = None,
    ) -> Message:
        """Answer one call; *permission* and *approve* decide whether the tool is called."""
        if ctx.budget is not None:
            ctx.budget.take_tool_call()

        async def make() -> ToolResult:
            return await answer_call(
                self.tool,
                call,
                tool_context(ctx, call),
                permission=permission,
                timeout=self._timeout,
                approve=approve,
            )

        if not self._gated:
            return await answer(call, ctx, make)
        async with ctx.shared(_GATE, ToolGate).turn(exclusive=self.tool.exclusive):
            return await answer(call, ctx, make)


_GATE: Final = "graphrt.tools.gate"


class UnknownToolNode:
    """Answer a call of a tool that is not there, with the names of those that are."""

    kind = NodeKind.TOOL

    def __init__(self, name: str = "unknown", *, known: Sequence[str] = ()) -> None:
        """Take the names to tell the model."""
        self._name = name
        self._known = tuple(known)

    @property
    def name(self) -> str:
        """Name of the node."""
        return self._name

    @property
    def signature(self) -> NodeSignature:
        """Takes `call`, a `ToolCall`, and gives a `Message` of role `tool`."""
        return NodeSignature((CALL,), Message)

    async def run(self, inputs: Mapping[str, Any], ctx: RunContext[Any]) -> Message:
        """Answer the call, which counts in no budget."""
        call = inputs["call"]

        async def make() -> ToolResult:
            return await answer_call(None, call, tool_context(ctx, call), known=self._known)

        return await answer(call, ctx, make)
