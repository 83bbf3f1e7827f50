"""`RunControlProxy`: run control as one caller may use it."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from graphrt.errors import RunControlError
from graphrt.ledger.records import RunPage
from graphrt.ledger.requests import RunAppendResultRequest, RunCreateRequest, RunCreateResult, read_create, read_filters

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime, timedelta

    from graphrt.ledger.authorization import CallerIdentity
    from graphrt.ledger.control import RunControl
    from graphrt.ledger.records import (
        AgentRun,
        AgentRunEvent,
        Artifact,
        RunEventPage,
        RunFilter,
        StateEntry,
        TranscriptEntry,
    )
    from graphrt.ledger.status import AgentRunStatus


class Reach(StrEnum):
    """Which runs a caller reaches with a verb."""

    ALL = "all"
    CREATED = "created"
    """Those it created, and those in its workspace."""
    OWNED = "owned"
    """Those whose snapshot names its `runner_id`."""


_RUNNER: Final = dict.fromkeys(("get", "page", "append", "finalize", "start", "read", "check"), Reach.OWNED)

ACCESS: Final[Mapping[str, Mapping[str, Reach]]] = {
    "host": dict.fromkeys(
        ("create", "get", "list", "page", "cancel", "append", "finalize", "start", "read", "check", "audit", "prune"),
        Reach.ALL,
    ),
    "platform": dict.fromkeys(("create", "get", "list", "page", "cancel", "read"), Reach.CREATED),
    "runner": _RUNNER,
    "bridge": _RUNNER,
    "harness": {},
}
"""Who may call what, and for which runs; a verb that is not here is refused.

`get` stands for waiting too, `read` for artifacts, state and history.
"""
READS: Final = frozenset({"get", "list", "page", "read"})
"""Verbs for which a run out of reach is as good as none: they answer `not_found`, and not `unauthorized`."""
LOOK_AHEAD: Final = 100


class RunControlProxy:
    """Run control for one caller. What it may not do is refused as `unauthorized`, before anything else is looked at.

    A caller without identity may do nothing.
    """

    def __init__(self, control: RunControl, identity: CallerIdentity | None) -> None:
        """Take run control, and who calls it."""
        self._control = control
        self._identity = identity

    @property
    def identity(self) -> CallerIdentity | None:
        """Who calls."""
        return self._identity

    # ------------------------------------------------------------ runs

    async def create_run(
        self, request: RunCreateRequest | Mapping[str, Any] | None = None, **fields: Any
    ) -> RunCreateResult:
        """Write a run down, as `RunControl.create_run`; it belongs to the caller's plugin and workspace."""
        who = self._allowed("create")
        wanted = read_create(request, fields)
        if ACCESS[who.kind]["create"] is not Reach.ALL:
            wanted = _as_created_by(who, wanted)
        if wanted.run_id is not None and (run := await self._control.store.get_run(wanted.run_id)) is not None:
            self._check_reach("create", run)
        result = await self._control.create_run(wanted)
        self._check_reach("create", result.run)
        return result

    async def start_run(self, run_id: str, *, claim_token: str | None = None) -> AgentRun:
        """Say that a run has begun, as `RunControl.start_run`."""
        await self._reached("start", run_id)
        return await self._control.start_run(run_id, claim_token=claim_token)

    async def get_run(self, run_id: str) -> AgentRun:
        """Look a run up, as `RunControl.get_run`."""
        return await self._reached("get", run_id)

    async def wait_run(self, run_id: str, timeout: float | None = None) -> AgentRun:
        """Wait until a run is over, as `RunControl.wait_run`."""
        await self._reached("get", run_id)
        return await self._control.wait_run(run_id, timeout)

    async def list_runs(
        self,
        filters: RunFilter | Mapping[str, Any] | None = None,
        cursor: str | None = None,
        limit: int = 50,
        **fields: Any,
    ) -> RunPage:
        """List the runs within reach, as `RunControl.list_runs`."""
        who = self._allowed("list")
        wanted = read_filters(filters, fields)
        if ACCESS[who.kind]["list"] is Reach.ALL:
            return await self._control.list_runs(wanted, cursor, limit)
        if who.workspace_id is None:
            if wanted.created_by not in (None, who.plugin_id):
                return RunPage((), None, has_more=False)
            return await self._control.list_runs(wanted, cursor, limit, created_by=who.plugin_id)
        return await self._list_reached(wanted, cursor, max(1, min(limit, 100)))

    async def _list_reached(self, wanted: RunFilter, cursor: str | None, limit: int) -> RunPage:
        """List runs of the caller's and of its workspace: no more are asked for than there is room, so none is lost."""
        items: list[AgentRun] = []
        while True:
            page = await self._control.list_runs(wanted, cursor, limit - len(items))
            items += [run for run in page.items if self._reaches("list", run)]
            cursor = page.next_cursor
            if not page.has_more or len(items) == limit:
                break
        more = page.has_more and await self._any_reached(wanted, cursor)
        return RunPage(items, cursor if more else None, more)

    async def _any_reached(self, wanted: RunFilter, cursor: str | None) -> bool:
        while True:
            page = await self._control.list_runs(wanted, cursor, LOOK_AHEAD)
            if any(self._reaches("list", run) for run in page.items):
                return True
            if not page.has_more:
                return False
            cursor = page.next_cursor

    async def cancel_run(self, run_id: str, reason: str | None = None) -> AgentRun:
        """Ask that a run be cancelled, as `RunControl.cancel_run`."""
        await self._reached("cancel", run_id)
        return await self._control.cancel_run(run_id, reason)

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
        """Close a run, as `RunControl.finalize_run`."""
        await self._reached("finalize", run_id)
        return await self._control.finalize_run(
            run_id, status, error, usage=usage, metadata=metadata, claim_token=claim_token
        )

    async def prune_runs(self, older_than: datetime | timedelta, status: Any = None) -> int:
        """Remove finished runs, as `RunControl.prune_runs`."""
        self._allowed("prune")
        return await self._control.prune_runs(older_than, status)

    # ------------------------------------------------------------ events

    async def page_run_events(self, run_id: str, cursor: str | None = None, limit: int = 100) -> RunEventPage:
        """Read a run's events, as `RunControl.page_run_events`."""
        await self._reached("page", run_id)
        return await self._control.page_run_events(run_id, cursor, limit)

    async def append_run_result(
        self,
        run_id: str | RunAppendResultRequest,
        result: Any = None,
        sequence: int | None = None,
        *,
        claim_token: str | None = None,
    ) -> AgentRunEvent:
        """Store a result as an event, as `RunControl.append_run_result`."""
        name = run_id.run_id if isinstance(run_id, RunAppendResultRequest) else run_id
        await self._reached("append", name)
        return await self._control.append_run_result(run_id, result, sequence, claim_token=claim_token)

    async def record_audit_event(
        self,
        run_id: str,
        type: str,
        data: Mapping[str, Any] | None = None,
        *,
        metadata: Mapping[str, Any] | None = None,
    ) -> AgentRunEvent:
        """Write down what the host has done with a run, as `RunControl.record_audit_event`."""
        await self._reached("audit", run_id)
        return await self._control.record_audit_event(run_id, type, data, metadata=metadata)

    # ------------------------------------------------------------ what runs leave, and may use

    async def read_artifact(self, artifact_id: str) -> tuple[Artifact, bytes]:
        """Read an artifact of a run within reach, as `RunControl.read_artifact`."""
        self._allowed("read")
        artifact, content = await self._control.read_artifact(artifact_id)
        run = await self._control.store.get_run(artifact.run_id)
        if run is None or not self._reaches("read", run):
            raise RunControlError("not_found", f"there is no artifact {artifact_id!r}", details={"id": artifact_id})
        return artifact, content

    async def list_artifacts(self, run_id: str) -> list[Artifact]:
        """List a run's artifacts, as `RunControl.list_artifacts`."""
        await self._reached("read", run_id)
        return await self._control.list_artifacts(run_id)

    async def read_state(self, run_id: str, scope: str) -> Mapping[str, StateEntry]:
        """Read the values of a scope, as `RunControl.read_state`."""
        await self._reached("read", run_id)
        return await self._control.read_state(run_id, scope)

    async def read_history(
        self, run_id: str, *, conversation_id: str | None = None, limit: int | None = None
    ) -> list[TranscriptEntry]:
        """Read what was said in the run's conversation, as `RunControl.read_history`."""
        await self._reached("read", run_id)
        return await self._control.read_history(run_id, conversation_id=conversation_id, limit=limit)

    async def check_access(self, run_id: str, kind: str, name: str) -> None:
        """Refuse what the run's snapshot does not allow, as `RunControl.check_access`."""
        await self._reached("check", run_id)
        await self._control.check_access(run_id, kind, name)

    # ------------------------------------------------------------ who may what

    def _allowed(self, verb: str) -> CallerIdentity:
        who = self._identity
        if who is None:
            raise RunControlError(
                "unauthorized", f"nobody is known to ask for {verb!r}", hint="give RunControlProxy a CallerIdentity"
            )
        reach = ACCESS[who.kind].get(verb)
        if reach is None:
            raise RunControlError("unauthorized", f"a {who.kind} may not {verb} runs", details={"verb": verb})
        lacks = {
            Reach.ALL: None,
            Reach.CREATED: None if who.plugin_id or who.workspace_id else "plugin_id",
            Reach.OWNED: None if who.runner_id else "runner_id",
        }[reach]
        if lacks is not None:
            raise RunControlError(
                "unauthorized", f"a {who.kind} without {lacks} owns no runs", hint=f"CallerIdentity(..., {lacks}=...)"
            )
        return who

    def _reaches(self, verb: str, run: AgentRun) -> bool:
        who = self._allowed(verb)
        reach = ACCESS[who.kind][verb]
        if reach is Reach.ALL:
            return True
        if reach is Reach.OWNED:
            return run.authorization.runner_id == who.runner_id
        created = who.plugin_id is not None and run.authorization.caller_plugin_id == who.plugin_id
        return created or (who.workspace_id is not None and run.workspace_id == who.workspace_id)

    def _check_reach(self, verb: str, run: AgentRun) -> None:
        if self._reaches(verb, run):
            return
        who = self._allowed(verb)
        if verb in READS:
            raise RunControlError("not_found", f"there is no run {run.run_id!r}", details={"run_id": run.run_id})
        raise RunControlError(
            "unauthorized", f"run {run.run_id!r} is not this {who.kind}'s to {verb}", details={"run_id": run.run_id}
        )

    async def _reached(self, verb: str, run_id: str) -> AgentRun:
        self._allowed(verb)
        run = await self._control.get_run(run_id)
        self._check_reach(verb, run)
        return run


def _as_created_by(who: CallerIdentity, wanted: RunCreateRequest) -> RunCreateRequest:
    """Write the caller into a request.

    Raises:
        RunControlError: `unauthorized`: it names another plugin, or another workspace.
    """
    snapshot = wanted.authorization
    for name, mine, given in (
        ("plugin", who.plugin_id, snapshot.caller_plugin_id),
        ("workspace", who.workspace_id, wanted.workspace_id),
    ):
        if given is not None and given != mine and (name == "plugin" or mine is not None):
            raise RunControlError("unauthorized", f"a run of {name} {given!r} is not for {mine!r} to create")
    workspace = wanted.workspace_id or who.workspace_id
    frozen = snapshot.model_copy(update={"caller_plugin_id": who.plugin_id, "workspace_id": workspace})
    return wanted.model_copy(update={"authorization": frozen, "workspace_id": workspace})
