"""How far a stored run is, read from its ledger without its graph."""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphrt.graph.durable.stored import effective, load_events
from graphrt.graph.progress import RunProgress

if TYPE_CHECKING:
    from graphrt.ledger.store import RunLedgerStore


async def progress_of(store: RunLedgerStore, run_id: str) -> RunProgress:
    """Read a run's events, and say how far it is.

    Raises:
        RunControlError: There is no such run.
        GraphTypeError: The events are not those of a graph's run.
    """
    events = await load_events(store, run_id)
    progress = RunProgress().update_all(effective(events))
    progress.events = len(events)  # those that a resume went back before are stored all the same
    return progress
