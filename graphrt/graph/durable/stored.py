"""What is stored of a run, read back: its events in order, without what a resume has left behind."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from graphrt.errors import GraphTypeError, RunControlError
from graphrt.graph.durable.events import stored_event

if TYPE_CHECKING:
    from collections.abc import Sequence

    from graphrt.graph.protocols import RunEvent
    from graphrt.ledger.records import AgentRunEvent
    from graphrt.ledger.store import RunLedgerStore

PAGE: Final = 1000


async def load_events(store: RunLedgerStore, run_id: str) -> list[AgentRunEvent]:
    """Read every stored event of a run, in order; data that was moved to an artifact is read from there.

    Raises:
        RunControlError: There is no such run, or an artifact is missing.
    """
    events: list[AgentRunEvent] = []
    cursor = None
    while True:
        page = await store.page_events(run_id, cursor=cursor, limit=PAGE)
        events.extend([await _whole(store, event) if event.artifact_refs else event for event in page.items])
        if not page.has_more:
            return events
        cursor = page.next_cursor


async def _whole(store: RunLedgerStore, event: AgentRunEvent) -> AgentRunEvent:
    artifact_id = event.data.get("artifact")
    if event.source != "graph" or artifact_id is None:
        return event
    found = await store.get_artifact(artifact_id)
    if found is None:
        raise RunControlError(
            "runtime_error",
            f"event {event.sequence} of run {event.run_id!r} needs artifact {artifact_id!r}, which is missing",
            hint="restore the artifacts that belong to the ledger",
        )
    return replace(event, data=json.loads(found[1]))


def effective(events: Sequence[AgentRunEvent]) -> list[RunEvent]:
    """Give the engine's events of a run as they count: what a resume went back behind is left out.

    Raises:
        GraphTypeError: They are not a run's events from the first one on.
    """
    found: list[RunEvent] = []
    asked: list[int] = []
    for event in events:
        if event.source != "graph":
            continue
        if event.type == "run.resumed":
            if (after := event.data.get("after")) is not None:
                while found and found[-1].sequence > after:
                    found.pop()
            void_requests(found, asked)
        made = stored_event(event.run_id, event.sequence, event.type, event.data, event.created_at.timestamp())
        if is_request(made):
            asked.append(len(found))
        found.append(made)
    if found and (found[0].sequence != 1 or found[0].type != "run.started"):
        raise GraphTypeError(
            f"the stored events of run {events[0].run_id!r} begin with {found[0].type!r}, number {found[0].sequence}",
            hint="only a run of a graph can be gone on with",
        )
    return found


def is_request(event: RunEvent) -> bool:
    """Say whether an event asks to end the run with its round; a resume makes that void."""
    return event.type == "action.requested" and event.data.get("request") == "cancel_after_round"


def void_requests(events: list[RunEvent], places: list[int]) -> None:
    """Make void what was asked for at these places, and forget them."""
    for place in places:
        if place < len(events) and is_request(event := events[place]):
            events[place] = replace(event, data={**event.data, "void": True})
    places.clear()
