"""`RunControl`: the verbs by which runs are written down, read, cancelled and closed."""

from __future__ import annotations

import logging
import os
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from graphrt.clock import SystemClock
from graphrt.errors import RunControlError
from graphrt.ledger.effects import Effects, checked, stored_form
from graphrt.ledger.reading import RunReader
from graphrt.ledger.records import AgentRun, NewEvent, RunChange
from graphrt.ledger.requests import (
    PAYLOADS,
    TERMINAL_TYPES,
    ResultBody,
    RunAppendResultRequest,
    RunCreateRequest,
    RunCreateResult,
    as_json,
    check_payload,
    check_sequence,
    read_create,
    read_result,
    read_status,
)
from graphrt.ledger.status import TERMINAL, AgentRunStatus
from graphrt.ledger.transcript import INPUT_SEQUENCE, entry_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from graphrt.clock import Clock
    from graphrt.ledger.artifacts import ArtifactStore
    from graphrt.ledger.records import AgentRunEvent, Appended
    from graphrt.ledger.state import StateScopeStore
    from graphrt.ledger.store import RunLedgerStore
    from graphrt.ledger.transcript import TranscriptStore

log = logging.getLogger("graphrt.ledger")

_S = AgentRunStatus
_NOT_BEGUN: Final = frozenset({_S.CREATED, _S.QUEUED, _S.CLAIMED, _S.DISPATCHING})


class RunControl(RunReader):
    """Writes runs down and reads them back, for the host; what others may call is in `RunControlProxy`.

    Every refusal is a `RunControlError` with its code, and has changed nothing. What follows from an event (the
    message in the transcript, the artifact, the value of state) is done once it is stored, and not a second time
    when it is appended again: then only what is missing, because something failed in between, is made good.
    """

    def __init__(
        self,
        store: RunLedgerStore,
        *,
        artifacts: ArtifactStore | None = None,
        transcript: TranscriptStore | None = None,
        state: StateScopeStore | None = None,
        clock: Clock | None = None,
        max_inline_bytes: int = 65_536,
    ) -> None:
        """Take the ledger's store.

        Args:
            store: Keeps the runs and their events.
            artifacts: Keeps large content; the ledger's store when None.
            transcript: Keeps what was said; the ledger's store when None.
            state: Keeps state; the ledger's store when None.
            clock: Tells the time of everything that is stored.
            max_inline_bytes: Bytes of JSON that an event holds at most; what is larger becomes an artifact.
        """
        super().__init__(store, artifacts=artifacts, transcript=transcript, state=state)
        self.clock: Clock = SystemClock() if clock is None else clock
        self.max_inline_bytes = max_inline_bytes
        self._watching: dict[str, list[Callable[[], object]]] = {}

    def using(
        self,
        *,
        artifacts: ArtifactStore | None = None,
        transcript: TranscriptStore | None = None,
        state: StateScopeStore | None = None,
    ) -> RunControl:
        """Give a control of the same runs that keeps some of what they leave elsewhere."""
        other = RunControl(
            self.store,
            artifacts=self.artifacts if artifacts is None else artifacts,
            transcript=self.transcript if transcript is None else transcript,
            state=self.state if state is None else state,
            clock=self.clock,
            max_inline_bytes=self.max_inline_bytes,
        )
        other._watching = self._watching
        return other

    # ------------------------------------------------------------ runs

    async def create_run(
        self, request: RunCreateRequest | Mapping[str, Any] | None = None, **fields: Any
    ) -> RunCreateResult:
        """Write a run down, with its rights as they are now.

        Raises:
            RunControlError: `invalid_argument`: a field does not fit, or contradicts the snapshot.
        """
        wanted = read_create(request, fields)
        said = None if wanted.input is None else dict(wanted.input)
        if said is not None:
            check_payload("message.completed", {"message": said})
        now = self.clock.now()
        deadline = wanted.deadline_at
        run, created = await self.store.create_run(
            AgentRun(
                **{
                    name: getattr(wanted, name)
                    for name in RunCreateRequest.model_fields
                    if name not in {"run_id", "input", "metadata", "deadline_at"}
                },
                run_id=wanted.run_id or f"run-{os.urandom(8).hex()}",
                deadline_at=None if deadline is None else deadline.astimezone(UTC),
                metadata=as_json(wanted.metadata, "the metadata")[0],
                created_at=now,
                updated_at=now,
            )
        )
        if said is not None and (created or run.status is _S.CREATED):
            await self.transcript.add(entry_of(run, INPUT_SEQUENCE, said, run.created_at))
        return RunCreateResult(run, created)

    async def start_run(self, run_id: str, *, claim_token: str | None = None) -> AgentRun:
        """Say that a run has begun; one that runs already stays as it is.

        Raises:
            RunControlError: `not_found`; `conflict`: it is over, or claimed by another.
        """
        return await self._change(run_id, RunChange(status=_S.RUNNING), claim_token)

    async def cancel_run(self, run_id: str, reason: str | None = None) -> AgentRun:
        """Ask that a run be cancelled; who runs it is to notice. One that is over, or asked already, stays as it is.

        Raises:
            RunControlError: `not_found`.
        """
        run = await self.get_run(run_id)
        if run.is_terminal or run.cancel_requested_at is not None:
            return run
        now = self.clock.now()
        run = await self.store.change_run(run_id, RunChange(cancel_requested_at=now, cancel_reason=reason), now=now)
        if run.cancel_requested_at is not None:
            for tell in list(self._watching.get(run_id, ())):
                tell()
        return run

    def watch_cancel(self, run_id: str, tell: Callable[[], object]) -> Callable[[], None]:
        """Have *tell* called when this process asks that the run be cancelled; give what ends that.

        It is called in the thread that asks, and must neither block nor raise.
        """
        self._watching.setdefault(run_id, []).append(tell)

        def end() -> None:
            watching = self._watching.get(run_id, [])
            if tell in watching:
                watching.remove(tell)
            if not watching:
                self._watching.pop(run_id, None)

        return end

    async def finalize_run(
        self,
        run_id: str,
        status: AgentRunStatus | str,
        error: str | BaseException | None = None,
        *,
        usage: Any = None,
        metadata: Mapping[str, Any] | None = None,
        claim_token: str | None = None,
    ) -> AgentRun:
        """Close a run with a terminal status; with the one it has already, nothing changes.

        Args:
            run_id: The run.
            status: How it ended.
            error: Why; kept as `status_reason`.
            usage: What it used, when that is not known from its last result.
            metadata: Merged into the run's.
            claim_token: Needed for a run that a worker has claimed.

        Raises:
            RunControlError: `invalid_argument`: the status is not terminal; `not_found`; `conflict`: it is over with
                another status, or claimed by another.
        """
        end = read_status(status)
        if end not in TERMINAL:
            raise RunControlError(
                "invalid_argument",
                f"a run cannot be closed as {end.value!r}",
                details={"run_id": run_id},
                hint=f"close it as one of {', '.join(sorted(TERMINAL))}",
            )
        run = await self.get_run(run_id)
        if run.status is end:
            return run
        reason = error if error is None or isinstance(error, str) else f"{type(error).__name__}: {error}"
        extra = as_json(dict(metadata or {}), "the metadata")[0]
        change = RunChange(status=end, status_reason=reason, usage=usage, metadata=extra)
        return await self._change(run_id, change, claim_token)

    async def prune_runs(
        self,
        older_than: datetime | timedelta,
        status: AgentRunStatus | str | Collection[AgentRunStatus | str] | None = None,
    ) -> int:
        """Remove finished runs, with their events, artifacts and messages; give their number.

        Args:
            older_than: An aware time, or how long ago: runs that finished before are removed.
            status: Only runs that ended so.

        Raises:
            RunControlError: `invalid_argument`: a status is not terminal, or the time has no zone.
        """
        before = self.clock.now() - older_than if isinstance(older_than, timedelta) else older_than
        if not isinstance(before, datetime) or before.utcoffset() is None:
            raise RunControlError(
                "invalid_argument", f"{before!r} is no time with a zone", hint="use datetime.now(UTC)"
            )
        given = [status] if isinstance(status, str) else status
        wanted = None if given is None else frozenset(map(read_status, given))
        if wanted is not None and wanted - TERMINAL:
            raise RunControlError("invalid_argument", f"runs that are {min(wanted - TERMINAL)} are not over")
        gone = await self.store.prune_runs(before.astimezone(UTC), wanted)
        await self.artifacts.sweep(self._exists)
        return gone

    # ------------------------------------------------------------ events

    async def append_run_result(
        self,
        run_id: str | RunAppendResultRequest,
        result: Any = None,
        sequence: int | None = None,
        *,
        claim_token: str | None = None,
        source: str = "runner",
    ) -> AgentRunEvent:
        """Store a result as an event, and do what follows from it; a sequence that is stored gives the stored event.

        Args:
            run_id: The run, or a whole request.
            result: A mapping, or an object, with `type`, `data`, and perhaps `usage` and `sequence`.
            sequence: Its number in the run; the result's own, or the next one, when None.
            claim_token: Needed for a run that a worker has claimed.
            source: Who says it.

        Raises:
            RunControlError: `invalid_argument`: it lacks what it is stored for, is no JSON, or its sequence goes back;
                `unauthorized`: its scope of state is not allowed; `payload_too_large`: its value of state;
                `not_found`; `conflict`: the run is over, or claimed by another.
        """
        if isinstance(run_id, RunAppendResultRequest):
            request, run_id = run_id, run_id.run_id
            result, sequence, claim_token = request.result, request.sequence, request.claim_token
        body = read_result(result)
        number = check_sequence(body.sequence if sequence is None else sequence)
        run = await self.get_run(run_id)
        effect = checked(run, body, max_state_bytes=self.state.max_value_bytes)
        form = stored_form(run_id, body, effect, max_bytes=self.max_inline_bytes)
        event = NewEvent(body.type, form.data, number, source, form.refs, form.metadata)
        now = self.clock.now()
        appended = (
            await self.store.append_events(run_id, [event], now=now, token=claim_token, change=_change_by(run, body))
        )[0]
        _tell_of(appended, number)
        effects = Effects(self.transcript, self.artifacts, self.state)
        if appended.created:
            await effects.carry_out(run, appended.event, effect, form.content)
        elif not appended.differs:
            await effects.make_good(run, appended.event, effect, form.content)
        return appended.event

    async def record_audit_event(
        self,
        run_id: str,
        type: str,
        data: Mapping[str, Any] | None = None,
        *,
        metadata: Mapping[str, Any] | None = None,
    ) -> AgentRunEvent:
        """Write down what the host has done with a run, also when it is over; it changes nothing else.

        Raises:
            RunControlError: `not_found`; `conflict`: a worker holds the run, and numbers its events alone.
        """
        kept, extra = as_json(dict(data or {}), "the data")[0], as_json(dict(metadata or {}), "the metadata")[0]
        event = NewEvent(type, kept, source="host", metadata=extra)
        return (await self.store.append_events(run_id, [event], now=self.clock.now(), audit=True))[0].event

    async def _change(self, run_id: str, change: RunChange, token: str | None) -> AgentRun:
        return await self.store.change_run(run_id, change, now=self.clock.now(), token=token)


def _change_by(run: AgentRun, body: ResultBody) -> RunChange | None:
    """Say what a result changes of its run: it has begun, and the last one tells what it used."""
    begins = run.status in _NOT_BEGUN
    usage = body.usage if body.type in TERMINAL_TYPES and not run.is_terminal else None
    return RunChange(status=_S.RUNNING if begins else None, usage=usage) if begins or usage is not None else None


def _tell_of(appended: Appended, asked: int | None) -> None:
    """Warn of what is stored, and is not as it should be."""
    event = appended.event
    if appended.differs:
        log.warning("run %r: another payload for sequence %s; the first is kept", event.run_id, event.sequence)
    elif appended.gap:
        log.warning("run %r: sequence %s leaves a gap before it", event.run_id, asked)
    if appended.created and event.type not in PAYLOADS and not event.type.startswith("custom."):
        log.warning("run %r: type %r is not known; it is stored, and nothing else", event.run_id, event.type)
