"""What was said in conversations, each message with the event that it belongs to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from graphrt.ledger.records import TranscriptEntry

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from graphrt.ledger.records import AgentRun
    from graphrt.ledger.store import RunLedgerStore

INPUT_SEQUENCE: Final = 0
"""Stands with the message that caused a run: it belongs to no event of the run, and comes before all of them."""


class TranscriptStore:
    """Keeps messages in the ledger's own store."""

    def __init__(self, store: RunLedgerStore) -> None:
        """Take the ledger's store."""
        self._store = store

    async def add(self, entry: TranscriptEntry) -> bool:
        """Store a message; False when the one of this run and sequence is there already."""
        return await self._store.add_transcript(entry)

    async def messages(
        self,
        *,
        conversation_id: str | None = None,
        thread_id: str | None = None,
        run_id: str | None = None,
        limit: int | None = None,
    ) -> list[TranscriptEntry]:
        """List messages, the oldest first; with *limit* the last ones."""
        return await self._store.list_transcript(
            conversation_id=conversation_id, thread_id=thread_id, run_id=run_id, limit=limit
        )


def entry_of(run: AgentRun, sequence: int, message: Mapping[str, Any], at: datetime) -> TranscriptEntry:
    """Make the entry of a message of a run."""
    return TranscriptEntry(
        run_id=run.run_id,
        sequence=sequence,
        conversation_id=run.conversation_id,
        thread_id=run.thread_id,
        role=message.get("role", "assistant"),
        content=message["content"],
        created_at=at,
    )
