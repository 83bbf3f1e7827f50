"""The run ledger: what runs were and did, and who may act on them."""

from __future__ import annotations

from typing import TYPE_CHECKING

__all__ = [
    "LEGAL_MOVES",
    "TERMINAL",
    "AgentRun",
    "AgentRunEvent",
    "AgentRunStatus",
    "Appended",
    "Artifact",
    "AuthorizationSnapshot",
    "CallerIdentity",
    "Claim",
    "ExecutionQueue",
    "InMemoryRunLedgerStore",
    "NewEvent",
    "PostgresRunLedgerStore",
    "RunAppendResultRequest",
    "RunChange",
    "RunControl",
    "RunControlProxy",
    "RunCreateRequest",
    "RunCreateResult",
    "RunEventPage",
    "RunFilter",
    "RunLedgerStore",
    "RunPage",
    "RuntimeRecord",
    "RuntimeRegistry",
    "Schedule",
    "SharedLimit",
    "SqlRunLedgerStore",
    "SqliteRunLedgerStore",
    "StateEntry",
    "TranscriptEntry",
]

if TYPE_CHECKING:
    from graphrt.ledger.authorization import AuthorizationSnapshot, CallerIdentity
    from graphrt.ledger.control import RunControl
    from graphrt.ledger.limits import SharedLimit
    from graphrt.ledger.memory import InMemoryRunLedgerStore
    from graphrt.ledger.proxy import RunControlProxy
    from graphrt.ledger.queue import ExecutionQueue
    from graphrt.ledger.records import (
        AgentRun,
        AgentRunEvent,
        Appended,
        Artifact,
        Claim,
        NewEvent,
        RunChange,
        RunEventPage,
        RunFilter,
        RunPage,
        RuntimeRecord,
        StateEntry,
        TranscriptEntry,
    )
    from graphrt.ledger.requests import RunAppendResultRequest, RunCreateRequest, RunCreateResult
    from graphrt.ledger.runtimes import RuntimeRegistry
    from graphrt.ledger.schedule import Schedule
    from graphrt.ledger.sql.store import PostgresRunLedgerStore, SqliteRunLedgerStore, SqlRunLedgerStore
    from graphrt.ledger.status import LEGAL_MOVES, TERMINAL, AgentRunStatus
    from graphrt.ledger.store import RunLedgerStore

if not TYPE_CHECKING:
    from graphrt._lazy import lazy_names

    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "graphrt.ledger.authorization": ("AuthorizationSnapshot", "CallerIdentity"),
            "graphrt.ledger.control": ("RunControl",),
            "graphrt.ledger.limits": ("SharedLimit",),
            "graphrt.ledger.memory": ("InMemoryRunLedgerStore",),
            "graphrt.ledger.proxy": ("RunControlProxy",),
            "graphrt.ledger.queue": ("ExecutionQueue",),
            "graphrt.ledger.records": (
                "AgentRun",
                "AgentRunEvent",
                "Appended",
                "Artifact",
                "Claim",
                "NewEvent",
                "RunChange",
                "RunEventPage",
                "RunFilter",
                "RunPage",
                "RuntimeRecord",
                "StateEntry",
                "TranscriptEntry",
            ),
            "graphrt.ledger.requests": ("RunAppendResultRequest", "RunCreateRequest", "RunCreateResult"),
            "graphrt.ledger.runtimes": ("RuntimeRegistry",),
            "graphrt.ledger.schedule": ("Schedule",),
            "graphrt.ledger.sql.store": ("PostgresRunLedgerStore", "SqlRunLedgerStore", "SqliteRunLedgerStore"),
            "graphrt.ledger.status": ("LEGAL_MOVES", "TERMINAL", "AgentRunStatus"),
            "graphrt.ledger.store": ("RunLedgerStore",),
        },
    )
