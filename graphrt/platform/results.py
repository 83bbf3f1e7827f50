"""What runners say: a stream of results of a few known types."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from graphrt.messages import TokenUsage


class ResultType(StrEnum):
    """The known types of results. Others may be used: they are stored, and nothing follows from them."""

    MESSAGE_DELTA = "message.delta"
    """`{chunk: {role, content}}`"""
    MESSAGE_COMPLETED = "message.completed"
    """`{message: {role, content}}`; it goes into the transcript."""
    TOOL_CALL_STARTED = "tool.call.started"
    """`{tool_call_id, tool_name, parameters}`"""
    TOOL_CALL_COMPLETED = "tool.call.completed"
    """`{tool_call_id, tool_name, result | error}`"""
    ARTIFACT_CREATED = "artifact.created"
    """`{name, mime_type, content}`; it is kept as an artifact."""
    STATE_UPDATED = "state.updated"
    """`{scope, key, value}`; the value is set, if the run may."""
    ACTION_REQUESTED = "action.requested"
    """`{action, target, payload}`; it is written down, and not carried out."""
    RUN_COMPLETED = "run.completed"
    """`{finish_reason, message?}`; the last one."""
    RUN_FAILED = "run.failed"
    """`{error, code, retryable}`; the last one."""


@dataclass(frozen=True, slots=True)
class AgentRunResult:
    """One thing that a runner says of its run."""

    run_id: str
    type: str
    data: Mapping[str, Any] = field(default_factory=dict)
    usage: TokenUsage | None = None
    """With the last one: what the whole run used; None while it is unknown."""
    sequence: int | None = None
    """Its number in the run; the host gives it one when None."""
