"""What the ledger holds: runs, their events, and the pages they are read in."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from graphrt.ledger.status import AgentRunStatus

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from datetime import datetime

    from graphrt.ledger.authorization import AuthorizationSnapshot
    from graphrt.messages import TokenUsage


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentRun:
    """One execution, as the ledger knows it. All times are aware and in UTC."""

    run_id: str
    runner_id: str
    """Who runs it."""
    authorization: AuthorizationSnapshot
    """What the run may touch, as it was when the run was created."""
    created_at: datetime
    updated_at: datetime
    id: int = 0
    """The store's own number, in order of creation."""
    event_id: str | None = None
    """The event that caused it."""
    agent_id: str | None = None
    binding_id: str | None = None
    conversation_id: str | None = None
    thread_id: str | None = None
    workspace_id: str | None = None
    bot_id: str | None = None
    status: AgentRunStatus = AgentRunStatus.CREATED
    status_reason: str | None = None
    """Why it failed, was cancelled, stopped by a limit, or stays queued."""
    started_at: datetime | None = None
    finished_at: datetime | None = None
    deadline_at: datetime | None = None
    """When it is out of time whatever it does; a run that has ended so loses it when it is reopened."""
    cancel_requested_at: datetime | None = None
    cancel_reason: str | None = None
    usage: TokenUsage | None = None
    """None while it is unknown, which is not 0."""
    priority: int = 0
    """Higher is claimed sooner."""
    attempt: int = 0
    """Claims and resumes so far."""
    graph_fingerprint: str | None = None
    claimed_by: str | None = None
    """The worker that holds a claim; its token is never shown."""
    lease_until: datetime | None = None
    wake_at: datetime | None = None
    """Of a queued run: not to be claimed before. Of one that waits: when the queue looks at it.

    That is the time that it waits for, its deadline, or when its cancel was requested, whichever comes first.
    """
    metadata: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_terminal(self) -> bool:
        """Whether it is over."""
        from graphrt.ledger.status import TERMINAL

        return self.status in TERMINAL


@dataclass(frozen=True, slots=True)
class AgentRunEvent:
    """One thing that happened in a run."""

    run_id: str
    sequence: int
    """Counts from 1 within the run."""
    type: str
    data: Mapping[str, Any]
    """JSON; an event of a step has `data["step"]`, with `node`, `scope`, `round`, `attempt`."""
    created_at: datetime
    source: str = "runner"
    """Who wrote it: `runner`, `graph`, or `host`."""
    artifact_refs: Sequence[str] = ()
    """Artifacts that hold what was too large to be kept here."""
    metadata: Mapping[str, Any] = field(default_factory=dict)

    @property
    def id(self) -> str:
        """A name for the event, unique in the ledger."""
        return f"{self.run_id}:{self.sequence}"


class JsonText(str):
    """Data of an event that is written as JSON already, an object; stores take it as it is."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class NewEvent:
    """An event to be appended; without a sequence the store gives it the next one."""

    type: str
    data: Mapping[str, Any] | JsonText
    sequence: int | None = None
    source: str = "runner"
    artifact_refs: Sequence[str] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)
    created_at: datetime | None = None
    """When it happened; the time of the append when None."""


@dataclass(frozen=True, slots=True)
class Appended:
    """What became of one event that was appended."""

    event: AgentRunEvent
    """The stored row: the first payload wins."""
    created: bool
    """False for a sequence that was stored before."""
    differs: bool = False
    """Whether what was given is not what is stored."""
    gap: bool = False
    """Whether sequences before it are missing."""


@dataclass(frozen=True, slots=True)
class RunEventPage:
    """Events of a run, ascending by sequence."""

    items: Sequence[AgentRunEvent]
    next_cursor: str | None
    """Goes on after the last item, also when there is none yet."""
    has_more: bool


@dataclass(frozen=True, slots=True)
class RunPage:
    """Runs, the newest first."""

    items: Sequence[AgentRun]
    next_cursor: str | None
    has_more: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFilter:
    """Which runs to list; what is None does not matter."""

    status: AgentRunStatus | Sequence[AgentRunStatus] | None = None
    agent_id: str | None = None
    binding_id: str | None = None
    runner_id: str | None = None
    event_id: str | None = None
    conversation_id: str | None = None
    thread_id: str | None = None
    workspace_id: str | None = None
    bot_id: str | None = None
    created_by: str | None = None
    """Plugin that created it: `authorization.caller_plugin_id`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunChange:
    """What to change of a run, in one transaction; what is None stays as it is."""

    status: AgentRunStatus | None = None
    resume: bool = False
    """Whether the move is an explicit resume, which may reopen a run that failed."""
    status_reason: str | None = None
    clear_reason: bool = False
    usage: TokenUsage | None = None
    cancel_requested_at: datetime | None = None
    cancel_reason: str | None = None
    priority: int | None = None
    graph_fingerprint: str | None = None
    wake_at: datetime | None = None
    """Counts for a run that is queued or waits then; any move to another status forgets the time before."""
    add_attempt: bool = False
    release: bool = False
    """Whether the claim ends with the change; a move to a terminal status or to waiting ends it anyway."""
    expects: Collection[AgentRunStatus] | None = None
    """Statuses of which the run must have one; with any other the change is a conflict."""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """Merged into what is there."""


@dataclass(frozen=True, slots=True)
class Claim:
    """A run that one worker holds until its lease ends, and the token that proves it."""

    run: AgentRun
    token: str
    attempt: int
    lease_until: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Artifact:
    """A stored piece of content, with the event that it belongs to."""

    id: str
    """Hash of run, name, type and content: the same content of one run is stored once under a name and type."""
    run_id: str
    sequence: int | None = None
    name: str
    mime_type: str
    size: int
    created_at: datetime
    metadata: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class TranscriptEntry:
    """One message of a conversation, with the event that it belongs to."""

    run_id: str
    sequence: int
    conversation_id: str | None
    thread_id: str | None = None
    role: str
    content: Any
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class StateEntry:
    """One value of a state scope, with the event that wrote it."""

    scope: str
    scope_id: str
    key: str
    value: Any
    run_id: str
    sequence: int
    updated_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeRecord:
    """A place of execution: a worker, a daemon."""

    runtime_id: str
    capabilities: Mapping[str, Any]
    registered_at: datetime
    heartbeat_at: datetime
    heartbeat_seconds: float
    """Silence after which it counts as offline."""
    metadata: Mapping[str, Any] = field(default_factory=dict)
