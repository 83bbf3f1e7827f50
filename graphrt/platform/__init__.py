"""The platform side: events from outside, the bindings that answer them, and the runs that come of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

__all__ = [
    "AgentBinding",
    "AgentRunContext",
    "AgentRunOrchestrator",
    "AgentRunResult",
    "AgentRunner",
    "ArtifactStore",
    "EventEnvelope",
    "EventRouter",
    "GraphAgentRunner",
    "Resources",
    "ResultType",
    "Routing",
    "RunJournal",
    "StateScopeStore",
    "TranscriptStore",
]

if TYPE_CHECKING:
    from graphrt.ledger.artifacts import ArtifactStore
    from graphrt.ledger.state import StateScopeStore
    from graphrt.ledger.transcript import TranscriptStore
    from graphrt.platform.binding import AgentBinding
    from graphrt.platform.envelope import EventEnvelope
    from graphrt.platform.graph_runner import GraphAgentRunner
    from graphrt.platform.journal import RunJournal
    from graphrt.platform.orchestrator import AgentRunOrchestrator
    from graphrt.platform.resources import Resources
    from graphrt.platform.results import AgentRunResult, ResultType
    from graphrt.platform.router import EventRouter, Routing
    from graphrt.platform.runner import AgentRunContext, AgentRunner

if not TYPE_CHECKING:
    from graphrt._lazy import lazy_names

    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "graphrt.ledger.artifacts": ("ArtifactStore",),
            "graphrt.ledger.state": ("StateScopeStore",),
            "graphrt.ledger.transcript": ("TranscriptStore",),
            "graphrt.platform.binding": ("AgentBinding",),
            "graphrt.platform.envelope": ("EventEnvelope",),
            "graphrt.platform.graph_runner": ("GraphAgentRunner",),
            "graphrt.platform.journal": ("RunJournal",),
            "graphrt.platform.orchestrator": ("AgentRunOrchestrator",),
            "graphrt.platform.resources": ("Resources",),
            "graphrt.platform.results": ("AgentRunResult", "ResultType"),
            "graphrt.platform.router": ("EventRouter", "Routing"),
            "graphrt.platform.runner": ("AgentRunContext", "AgentRunner"),
        },
    )
