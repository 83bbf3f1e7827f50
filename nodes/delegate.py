"""Calling another agent: the node of an `AgentTool`."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from graphrt.errors import GraphError
from graphrt.graph.protocols import NodeKind
from graphrt.nodes.approval import ApprovedToolNode
from graphrt.nodes.tool import ToolNode
from graphrt.telemetry import conventions as names
from graphrt.tools.delegate import Caller, calling

if TYPE_CHECKING:
    from graphrt.graph.scheduler.context import RunContext
    from graphrt.messages import Message, TokenUsage, ToolCall
    from graphrt.nodes.phased import Phases
    from graphrt.tools.delegate import AgentTool
    from graphrt.tools.executor import Approve
    from graphrt.tools.permission import PermissionChecker

DELEGATE_RUN_ID = "graphrt.delegate.run.id"
"""Attribute of the step's span: the run that the agent worked in."""


class DelegateNode(ToolNode):
    """Answer one call of an agent with a message for the model.

    While the agent's run waits for a person, so does the step: clocks of work stand still, the node's own
    *timeout* too. What the agent's models use is added to the usage of the run.
    """

    kind = NodeKind.AGENT

    def __init__(
        self,
        tool: AgentTool,
        *,
        name: str | None = None,
        permission: PermissionChecker | None = None,
        timeout: float | None = None,
        gated: bool | None = None,
        phases: Phases | None = None,
        session_id: str | None = None,
    ) -> None:
        """Take the agent's tool; the rest is as for `ToolNode`, but that *timeout* counts work only."""
        super().__init__(tool, name=name, permission=permission, gated=gated, phases=phases, session_id=session_id)
        self._agent_id = tool.agent_id
        self._limit = timeout

    async def call(
        self,
        call: ToolCall,
        ctx: RunContext[Any],
        *,
        permission: PermissionChecker | None = None,
        approve: Approve | None = None,
    ) -> Message:
        """Answer one call; *permission* and *approve* decide whether the agent is called."""

        def started(run_id: str) -> None:
            ctx.annotate(DELEGATE_RUN_ID, run_id)

        def used(usage: TokenUsage | None) -> None:
            with suppress(GraphError):  # a step that is out of time can tell its run nothing any more
                ctx.record_usage(usage)

        if ctx.traced:
            ctx.annotate(names.AGENT_NAME, self._agent_id)
            ctx.annotate(names.AGENT_ID, self._agent_id)
        with calling(Caller(limit=self._limit, hold=ctx.holding, started=started, used=used)):
            return await super().call(call, ctx, permission=permission, approve=approve)


class ApprovedDelegateNode(DelegateNode, ApprovedToolNode):
    """Answer a call of an agent on which a person has decided."""
