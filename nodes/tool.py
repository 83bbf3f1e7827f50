"""Calling a tool: one tool as a node, and what answers calls that name none."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from graphrt.graph.protocols import NodeKind
from graphrt.graph.signature import NodeSignature, Param
from graphrt.messages import Message, ToolCall
from graphrt.telemetry import conventions as names
from graphrt.tools.base import Tool, ToolContext, ToolResult
from graphrt.tools.executor import ToolGate, answer_call
from graphrt.tools.function import FunctionTool

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from graphrt.graph.scheduler.context import RunContext
    from graphrt.nodes.phased import Phases
    from graphrt.tools.executor import Approve
    from graphrt.tools.permission import PermissionChecker

CALL: Final = Param("call", ToolCall)


def as_tool(tool: Tool | Callable[..., Any]) -> Tool:
    """Give a tool; a plain function becomes one.

    Raises:
        ToolError: The function cannot be described to a model.
    """
    return tool if isinstance(tool, Tool) else FunctionTool(tool)


def tool_context(ctx: RunContext[Any], call: ToolCall, session_id: str | None = None) -> ToolContext[Any]:
    """Give what a tool sees of the run."""
    return ToolContext(
        run_id=ctx.run_id,
        session_id=session_id,
        tool_call_id=call.id,
        tool_id=call.name,
        deps=ctx.deps,
        deadline=ctx.deadline,
        idempotency_key=ctx.idempotency_key,
        emit=ctx.emit,
        budget=ctx.budget,
        resource=ctx.resource,
    )


Told: TypeAlias = dict[str, Any] | None
"""What the events of a call say of it; None when nobody reads them."""


def begin_call(call: ToolCall, ctx: RunContext[Any]) -> Told:
    """Tell the run's readers, and its trace, that a call is being answered."""
    if ctx.traced:
        ctx.annotate(names.OPERATION, names.OPERATION_TOOL)
        ctx.annotate(names.TOOL_NAME, call.name)
        ctx.annotate(names.TOOL_CALL_ID, call.id)
        if ctx.captures_content:
            ctx.annotate(names.TOOL_ARGUMENTS, call.arguments)
    if not ctx.watched:
        return None
    told = {"tool_call_id": call.id, "tool_name": call.name}
    ctx.emit("tool.call.started", {**told, "parameters": call.arguments})
    return told


def end_call(call: ToolCall, result: ToolResult, told: Told, ctx: RunContext[Any]) -> Message:
    """Tell them how the call was answered, and give the answer for the conversation."""
    if ctx.traced:
        if result.kind is not None:
            ctx.annotate(names.ERROR_TYPE, str(result.kind))
        if ctx.captures_content:
            ctx.annotate(names.TOOL_RESULT, result.text)
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
        phases: Phases | None = None,
        session_id: str | None = None,
    ) -> None:
        """Take the tool.

        Args:
            tool: A tool, or a function to make one of.
            name: Name of the node; `tool:<id>` when None.
            permission: Decides on each call.
            timeout: Seconds that one call may take; the nearest of this and the tool's own wins.
            gated: Whether calls keep to the turns that exclusive tools of the same graph need: then such a
                tool runs alone. When None, exclusive tools alone do so, and keep clear of one another.
            phases: Plugins whose hooks are called before and after the tool.
            session_id: The session that the tool is told of.

        Raises:
            ToolError: A function cannot be described to a model.
        """
        self.tool = as_tool(tool)
        self._name = name or f"tool:{self.tool.descriptor.id}"
        self._permission = permission
        self._timeout = timeout
        self._phases = phases
        self._session_id = session_id
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
        if not self._gated:
            return await self._answer(call, ctx, permission, approve)
        turn = ctx.shared(_GATE, ToolGate).turn(exclusive=self.tool.exclusive)
        with nullcontext() if turn.come.is_set() else ctx.holding():  # a wait for one's turn is no work
            await turn.__aenter__()
        try:
            return await self._answer(call, ctx, permission, approve)
        finally:
            turn.leave()

    def context(self, ctx: RunContext[Any], call: ToolCall) -> ToolContext[Any]:
        """Give what the tool sees of the run."""
        return tool_context(ctx, call, self._session_id)

    async def _answer(
        self,
        call: ToolCall,
        ctx: RunContext[Any],
        permission: PermissionChecker | None,
        approve: Approve | None,
    ) -> Message:
        told = begin_call(call, ctx)
        try:
            phases = None if self._phases is None else await self._phases.of(ctx)
            if phases is not None:
                await phases.before_tool(call)
            result = await answer_call(
                self.tool,
                call,
                self.context(ctx, call),
                permission=permission,
                timeout=self._timeout,
                approve=approve,
            )
            if phases is not None:
                await phases.after_tool(call, result)
        except Exception as error:
            if told is not None:
                ctx.emit("tool.call.completed", {**told, "error": f"{type(error).__name__}: {error}"})
            raise
        return end_call(call, result, told, ctx)


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
        told = begin_call(call, ctx)
        result = await answer_call(None, call, tool_context(ctx, call), known=self._known)
        return end_call(call, result, told, ctx)
