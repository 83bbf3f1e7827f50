"""The protocol between host and runner: a context goes in, a stream of results comes out."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from graphrt.platform.resources import Resources

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping
    from datetime import datetime

    from graphrt.platform.envelope import EventEnvelope
    from graphrt.platform.results import AgentRunResult


def _not_requested() -> bool:
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentRunContext:
    """What a runner is told of its run. It begins with the event; what was said before is not in it.

    Where the run takes place, and how it got there, is no part of it.
    """

    run_id: str
    trigger: Mapping[str, Any]
    """What set it off: `{type, source, event_id}`."""
    event: EventEnvelope
    conversation: Mapping[str, Any] = field(default_factory=dict)
    """Where: `{conversation_id, thread_id, workspace_id, bot_id, has_history}`."""
    actor: Mapping[str, Any] | str | None = None
    subject: Mapping[str, Any] | str | None = None
    input: Mapping[str, Any] = field(default_factory=dict)
    delivery: Mapping[str, Any] = field(default_factory=dict)
    resources: Resources = field(default_factory=Resources)
    """What the run may use, as its snapshot says."""
    state: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Values by key, by scope; only scopes that the run may use."""
    config: Mapping[str, Any] = field(default_factory=dict)
    """The binding's settings."""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    trace_id: str | None = None
    """Id of the trace that the run belongs to, 32 hex digits; None when nothing is traced."""
    deadline_at: datetime | None = None
    asks_to_cancel: Callable[[], bool] = field(default=_not_requested, repr=False, compare=False)
    """What `cancel_requested` asks; the host's to set."""

    @property
    def cancel_requested(self) -> bool:
        """Whether the run is to be cancelled. A runner that sees it may end by itself; else it is stopped."""
        return self.asks_to_cancel()


class AgentRunner(Protocol):
    """What answers events. It needs nothing of the ledger: the host writes down what it yields.

    A runner with an attribute `declares`, a `Resources`, is given no more than that.
    """

    def run(self, ctx: AgentRunContext) -> AsyncIterator[AgentRunResult]:
        """Do the work of one run, and yield what there is to say; the host asks for one result at a time."""
        ...
