"""Reading runs, and what they leave."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import anyio

from graphrt.errors import RunControlError
from graphrt.ledger.access import check_access
from graphrt.ledger.artifacts import ArtifactStore
from graphrt.ledger.requests import read_filters
from graphrt.ledger.state import StateScopeStore, scope_id
from graphrt.ledger.transcript import TranscriptStore

if TYPE_CHECKING:
    from collections.abc import Mapping

    from graphrt.ledger.records import AgentRun, Artifact, RunEventPage, RunFilter, RunPage, StateEntry, TranscriptEntry
    from graphrt.ledger.store import RunLedgerStore

WAIT_FIRST: Final = 0.02
"""Seconds after which `wait_run` looks again; then twice as long each time, up to WAIT_MOST."""
WAIT_MOST: Final = 0.5


class RunReader:
    """Reads runs, their events, and what they have left; changes nothing."""

    def __init__(
        self,
        store: RunLedgerStore,
        *,
        artifacts: ArtifactStore | None = None,
        transcript: TranscriptStore | None = None,
        state: StateScopeStore | None = None,
    ) -> None:
        """Take the ledger's store, and what keeps the rest; the ledger's store where None."""
        self.store = store
        self.artifacts = ArtifactStore(store) if artifacts is None else artifacts
        self.transcript = TranscriptStore(store) if transcript is None else transcript
        self.state = StateScopeStore(store) if state is None else state

    # ------------------------------------------------------------ runs

    async def get_run(self, run_id: str) -> AgentRun:
        """Look a run up.

        Raises:
            RunControlError: `not_found`.
        """
        run = await self.store.get_run(run_id)
        if run is None:
            raise RunControlError("not_found", f"there is no run {run_id!r}", details={"run_id": run_id})
        return run

    async def list_runs(
        self,
        filters: RunFilter | Mapping[str, Any] | None = None,
        cursor: str | None = None,
        limit: int = 50,
        **fields: Any,
    ) -> RunPage:
        """List runs, the newest first: `list_runs(conversation_id="c", status="running")`.

        Args:
            filters: Which runs; the fields of `RunFilter` may also be given one by one.
            cursor: The `next_cursor` of the page before.
            limit: Runs on a page, clamped to 1..100.

        Raises:
            RunControlError: `invalid_argument`: no such filter or status, or a cursor of another list.
        """
        return await self.store.list_runs(read_filters(filters, fields), cursor=cursor, limit=limit)

    async def wait_run(self, run_id: str, timeout: float | None = None) -> AgentRun:
        """Wait until a run is over. The run goes on, whatever becomes of the waiting.

        Args:
            run_id: The run.
            timeout: Seconds to wait at most.

        Raises:
            RunControlError: `not_found`; `deadline_exceeded`, `retryable`: it is not over yet.
        """
        pause = WAIT_FIRST
        run = await self.get_run(run_id)
        with anyio.move_on_after(timeout):
            while not run.is_terminal:
                await anyio.sleep(pause)
                pause = min(2 * pause, WAIT_MOST)
                run = await self.get_run(run_id)
        if not run.is_terminal:
            raise RunControlError(
                "deadline_exceeded",
                f"run {run_id!r} is {run.status.value} after {timeout:g} s of waiting",
                retryable=True,
                details={"run_id": run_id, "status": run.status.value},
            )
        return run

    # ------------------------------------------------------------ events

    async def page_run_events(self, run_id: str, cursor: str | None = None, limit: int = 100) -> RunEventPage:
        """Read a run's events, ascending; *limit* is clamped to 1..1000.

        Raises:
            RunControlError: `not_found`; `invalid_argument`: a cursor of another list.
        """
        return await self.store.page_events(run_id, cursor=cursor, limit=limit)

    # ------------------------------------------------------------ what runs leave, and may use

    async def read_artifact(self, artifact_id: str) -> tuple[Artifact, bytes]:
        """Read an artifact and its content.

        Raises:
            RunControlError: `not_found`.
        """
        found = await self.artifacts.get(artifact_id)
        if found is None:
            raise RunControlError("not_found", f"there is no artifact {artifact_id!r}", details={"id": artifact_id})
        return found

    async def list_artifacts(self, run_id: str) -> list[Artifact]:
        """List a run's artifacts, in the order in which they were stored.

        Raises:
            RunControlError: `not_found`.
        """
        await self.get_run(run_id)
        return await self.artifacts.of_run(run_id)

    async def read_state(self, run_id: str, scope: str) -> Mapping[str, StateEntry]:
        """Read the values of a scope, as the run may see it.

        Raises:
            RunControlError: `not_found`; `unauthorized`: the run's snapshot does not allow the scope.
        """
        return await self.state.get(scope, scope_id(await self.get_run(run_id), scope))

    async def read_history(
        self, run_id: str, *, conversation_id: str | None = None, limit: int | None = None
    ) -> list[TranscriptEntry]:
        """Read what was said in the run's conversation, and in its thread if it has one; the last *limit* messages.

        Raises:
            RunControlError: `not_found`; `unauthorized`: *conversation_id* is not the run's.
        """
        run = await self.get_run(run_id)
        here = run.authorization.conversation_id
        check_access(run, "history", here if conversation_id is None else conversation_id)
        if here is None:
            return await self.transcript.messages(run_id=run_id, limit=limit)
        thread = run.authorization.thread_id
        return await self.transcript.messages(conversation_id=here, thread_id=thread, limit=limit)

    async def check_access(self, run_id: str, kind: str, name: str) -> None:
        """Refuse what the run's snapshot does not allow.

        Args:
            run_id: The run.
            kind: `tool`, `model`, `file`, `knowledge_base`, `storage`, `state` or `history`.
            name: Which one; for `history` the id of a conversation.

        Raises:
            RunControlError: `unauthorized`; `not_found`; `invalid_argument`: there is no such kind.
        """
        check_access(await self.get_run(run_id), kind, name)

    async def _exists(self, run_id: str) -> bool:
        return await self.store.get_run(run_id) is not None
