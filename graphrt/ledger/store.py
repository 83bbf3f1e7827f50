"""`RunLedgerStore`: what every ledger store does, each method in one transaction, all of it or nothing."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from datetime import datetime

    from graphrt.ledger.records import (
        AgentRun,
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
    from graphrt.ledger.status import AgentRunStatus


class RunLedgerStore(ABC):
    """Keeps runs and their events. Safe to share between tasks, event loops and threads.

    A method that refuses raises `RunControlError`, and has changed nothing. A store that cannot be reached, or is
    full, raises `RunControlError` with the code `runtime_error`, `retryable`, and the cause behind it. Times are
    aware and in UTC, and come from the caller.
    """

    # ------------------------------------------------------------ runs

    @abstractmethod
    async def create_run(self, run: AgentRun) -> tuple[AgentRun, bool]:
        """Store a run; give the stored one, and whether it is new: a run of the same id is left as it is."""

    @abstractmethod
    async def get_run(self, run_id: str) -> AgentRun | None:
        """Look a run up."""

    @abstractmethod
    async def list_runs(self, filters: RunFilter, *, cursor: str | None = None, limit: int = 50) -> RunPage:
        """List runs, the newest first; *limit* is clamped to 1..100.

        Raises:
            RunControlError: `invalid_argument`: the cursor is none of this store's.
        """

    @abstractmethod
    async def change_run(self, run_id: str, change: RunChange, *, now: datetime, token: str | None = None) -> AgentRun:
        """Change a run. Entering running sets `started_at` once; a terminal status sets `finished_at`.

        A run with a live claim is changed only with its *token*, but for the request to cancel. A status that the run
        has already changes no status.

        Raises:
            RunControlError: `not_found`; `conflict`: the move is not legal, or the claim is not the caller's.
        """

    @abstractmethod
    async def prune_runs(self, older_than: datetime, status: Collection[AgentRunStatus] | None = None) -> int:
        """Remove runs that finished before *older_than*, with all that belongs to them; give their number."""

    # ------------------------------------------------------------ events

    @abstractmethod
    async def append_events(
        self,
        run_id: str,
        events: Sequence[NewEvent],
        *,
        now: datetime,
        token: str | None = None,
        change: RunChange | None = None,
        audit: bool = False,
    ) -> list[Appended]:
        """Append events, and change the run with them, in one transaction.

        A sequence that is stored already gives the stored row; one below the highest stored that is not stored is
        refused; None is the next one. A terminal run takes only what it has already, and what is an *audit*.

        Raises:
            RunControlError: `not_found`; `invalid_argument`: a sequence goes back, or is below 1; `conflict`: the run
                is over, or the claim is not the caller's.
        """

    @abstractmethod
    async def page_events(self, run_id: str, *, cursor: str | None = None, limit: int = 100) -> RunEventPage:
        """Read events, ascending; *limit* is clamped to 1..1000.

        Raises:
            RunControlError: `not_found`; `invalid_argument`: the cursor is none of this store's.
        """

    # ------------------------------------------------------------ claims

    @abstractmethod
    async def claim_run(
        self,
        worker_id: str,
        lease_seconds: float,
        *,
        now: datetime,
        run_id: str | None = None,
        fingerprints: Collection[str] | None = None,
    ) -> Claim | None:
        """Claim the queued run of the highest priority, the oldest first; or the one named, if it can be claimed.

        A run is not claimed before its `wake_at`, unless it is named. With *run_id* a run that is created, running or
        waiting may be claimed too, when no live lease holds it. With *fingerprints* only runs of those graphs, and
        runs without a graph, are taken. The claim has a new token, and counts as an attempt.
        """

    @abstractmethod
    async def renew_claim(self, run_id: str, token: str, lease_seconds: float, *, now: datetime) -> bool:
        """Prolong a lease; False when it is not the caller's any more, whatever the run has become."""

    @abstractmethod
    async def release_claim(
        self, run_id: str, token: str, *, now: datetime, status: AgentRunStatus | None = None
    ) -> bool:
        """Give a claim back, and move the run to *status*; False when it is not the caller's any more."""

    async def break_claim(self, run_id: str, worker_id: str, *, now: datetime) -> bool:
        """End the lease of a worker that is known to be no more; False when it does not hold the run any more.

        A store that leaves this out waits until the lease has ended.
        """
        return False

    @abstractmethod
    async def expire_claims(
        self, *, now: datetime, max_attempts: int | None = None, dispatch_seconds: float | None = None
    ) -> list[AgentRun]:
        """Put runs back into the queue whose lease has ended, or that were claimed and not begun in time.

        One that has used up *max_attempts* fails, with a reason. Gives the runs it has changed.
        """

    async def wake_due(self, *, now: datetime) -> list[AgentRun]:
        """Put runs into the queue that wait for a time which has come; give them.

        One whose cancel was requested, or whose deadline has passed, ends instead. What `rules.wake` says is done.

        With a store that leaves this out, only `resume` goes on with such a run, or ends it.
        """
        return []

    # ------------------------------------------------------------ what runs leave

    @abstractmethod
    async def put_artifact(self, artifact: Artifact, content: bytes) -> Artifact:
        """Store content; the same id again is the same artifact."""

    @abstractmethod
    async def get_artifact(self, artifact_id: str) -> tuple[Artifact, bytes] | None:
        """Read content back."""

    @abstractmethod
    async def list_artifacts(self, run_id: str) -> list[Artifact]:
        """List a run's artifacts, in the order in which they were stored."""

    @abstractmethod
    async def add_transcript(self, entry: TranscriptEntry) -> bool:
        """Store a message; False when the one of this run and sequence is there already."""

    @abstractmethod
    async def list_transcript(
        self,
        *,
        conversation_id: str | None = None,
        thread_id: str | None = None,
        run_id: str | None = None,
        limit: int | None = None,
    ) -> list[TranscriptEntry]:
        """List messages, the oldest first; with *limit* the last ones."""

    @abstractmethod
    async def set_state(self, entry: StateEntry) -> bool:
        """Store a value; False when a later event of the same run has written the key already."""

    @abstractmethod
    async def get_state(self, scope: str, scope_id: str) -> Mapping[str, StateEntry]:
        """Read the values of a scope."""

    # ------------------------------------------------------------ workers

    @abstractmethod
    async def take_slot(self, name: str, slots: int, owner: str, lease_seconds: float, *, now: datetime) -> bool:
        """Take or prolong one of the *slots* of a limit that all workers share; False when all are taken."""

    @abstractmethod
    async def free_slot(self, name: str, owner: str) -> None:
        """Give a slot back."""

    @abstractmethod
    async def put_runtime(self, record: RuntimeRecord) -> RuntimeRecord:
        """Store a runtime, or what is new about it: capabilities replaced, metadata merged."""

    @abstractmethod
    async def drop_runtime(self, runtime_id: str) -> bool:
        """Forget a runtime."""

    @abstractmethod
    async def list_runtimes(self) -> list[RuntimeRecord]:
        """List runtimes, by id."""

    # ------------------------------------------------------------ life

    async def wait_for_work(self, seconds: float) -> None:
        """Wait until a run may have become claimable, at most so long; a store that is told sooner returns sooner."""
        import anyio

        await anyio.sleep(seconds)

    async def aclose(self) -> None:  # noqa: B027  # not every store holds something
        """Give back what the store holds; what was accepted is stored first."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.aclose()
