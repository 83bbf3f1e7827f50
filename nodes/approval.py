"""Calls that a person has to approve: settled before anybody is asked, asked about, then made or not."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, ValidationError

from graphrt.errors import GraphError, GraphTypeError, ToolError
from graphrt.graph.protocols import NodeKind
from graphrt.graph.signature import NodeSignature, Param
from graphrt.messages import Message, ToolCall
from graphrt.nodes.conversation import Called
from graphrt.nodes.phased import SettledCall, settled
from graphrt.nodes.tool import CALL, ToolNode, begin_call, end_call, tool_context
from graphrt.tools.base import ToolResult
from graphrt.tools.executor import refuse_call
from graphrt.tools.permission import PermissionDecision

if TYPE_CHECKING:
    from collections.abc import Mapping

    from graphrt.graph.scheduler.context import RunContext
    from graphrt.nodes.phased import Phases
    from graphrt.tools.base import Tool, ToolContext
    from graphrt.tools.permission import PermissionChecker


class Approval(BaseModel):
    """A person's word on one call of a tool; `True` and `False` are short for one."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    approved: bool
    reason: str | None = None
    """Why not; the model reads it."""
    arguments: dict[str, Any] | None = None
    """Arguments to call the tool with, in the place of all of the model's: they are not merged. Of no account in a
    denial."""


class CallNode:
    """Take one call of a reply to its tool; one that the tool will not answer is settled before a person is asked."""

    kind = NodeKind.ROUTER
    name = "call"
    signature = NodeSignature((Param("asked", Called),), SettledCall | ToolCall)

    def __init__(
        self, tools: Mapping[str, Tool], permission: PermissionChecker | None, phases: Phases | None = None
    ) -> None:
        """Take the tools that need approval, who decides besides, and the plugins that may settle any call."""
        self._tools = tools
        self._permission = permission
        self._phases = phases

    async def run(self, inputs: Mapping[str, Any], ctx: RunContext[Any]) -> ToolCall:
        """Give the call on.

        Raises:
            HookBlockedError: A plugin's gate ends the run.
            Exception: What the permission checker or a gate raised.
        """
        asked: Called = inputs["asked"]
        call = asked.call
        if self._phases is not None and (done := await self._phases.settle(call, ctx)) is not None:
            return done
        tool = self._tools.get(call.name)
        if tool is None:
            return call
        refused = await refuse_call(tool, call, tool_context(ctx, call), permission=self._permission)
        return call if refused is None else settled(call, refused.text, refused.kind)


class SettledNode:
    """Tell the model how its call was answered without the tool."""

    kind = NodeKind.TOOL
    name = "settled"
    signature = NodeSignature((CALL,), Message)

    async def run(self, inputs: Mapping[str, Any], ctx: RunContext[Any]) -> Message:
        """Answer the call, which counts in no budget."""
        call: SettledCall = inputs["call"]
        told = begin_call(call, ctx)
        result = ToolResult.success(call.answer) if call.kind is None else ToolResult.error(call.answer, kind=call.kind)
        return end_call(call, result, told, ctx)


class ApprovalNode:
    """Ask a person about one call of a tool."""

    kind = NodeKind.ASK
    signature = NodeSignature((CALL,), Approval)

    def __init__(self, tool: Tool, tool_id: str) -> None:
        """Take the tool, and the name that the model calls it by."""
        self._tool = tool
        self._id = tool_id
        self.name = f"approve:{tool_id}"

    def question_for(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Show the call: `{"tool", "description", "arguments", "tool_call_id"}`."""
        call: ToolCall = inputs["call"]
        return {
            "tool": self._id,
            "description": self._tool.descriptor.description,
            "arguments": call.arguments,
            "tool_call_id": call.id,
        }

    def accept(self, answer: Any) -> Approval:
        """Read an `Approval`, the mapping of one, True or False.

        Raises:
            GraphTypeError: It is none of these.
        """
        if isinstance(answer, bool):
            return Approval(approved=answer)
        if isinstance(answer, PermissionDecision):
            return Approval(approved=answer.allowed, reason=answer.reason)
        try:
            return Approval.model_validate(answer)
        except ValidationError as error:
            raise GraphTypeError(
                f"{answer!r} is no answer to {self.name!r}",
                hint="answer True, False, or {'approved': ..., 'reason': ..., 'arguments': ...}",
            ) from error

    def check_answer(self, answer: Any) -> None:
        """Check an answer while the person can still give another.

        Raises:
            GraphTypeError: It is none, or its arguments do not fit the tool.
        """
        approval = self.accept(answer)
        if not approval.approved or approval.arguments is None:
            return
        try:
            self._tool.check(copy.deepcopy(approval.arguments))
        except Exception as error:  # a tool's check is the tool's code
            told = error.message if isinstance(error, ToolError) else f"{type(error).__name__}: {error}"
            raise GraphTypeError(
                f"the arguments of the answer to {self.name!r} do not fit the tool: {told}",
                hint="give all of its arguments: they take the place of the model's",
            ) from error

    async def run(self, inputs: Mapping[str, Any], ctx: RunContext[Any]) -> Approval:
        """Refuse: the engine asks, and does not call."""
        raise GraphError(f"node {self.name!r} asks a person, and is not called")


class ApprovedToolNode(ToolNode):
    """Answer a call on which a person has decided."""

    @property
    def signature(self) -> NodeSignature:
        """Takes `call` and `approval`, and gives a `Message` of role `tool`."""
        return NodeSignature((CALL, Param("approval", Approval)), Message)

    async def run(self, inputs: Mapping[str, Any], ctx: RunContext[Any]) -> Message:
        """Answer the call; arguments that the person changed are checked like the model's.

        Raises:
            LimitExceededError: The run's budget of tool calls is spent; the tool was not called.
        """
        call: ToolCall = inputs["call"]
        approval: Approval = inputs["approval"]

        async def approve(tool: Tool, call: ToolCall, ctx: ToolContext[Any]) -> PermissionDecision:
            return PermissionDecision(approval.approved, approval.reason)

        if approval.arguments is None or not approval.approved:
            return await self.call(call, ctx, approve=approve)
        edited = call.model_copy(update={"arguments": approval.arguments})
        return await self.call(edited, ctx, permission=self._permission, approve=approve)
