"""State that outlives runs: values by scope and key, each with the event that wrote it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from graphrt.errors import RunControlError
from graphrt.ledger.records import StateEntry
from graphrt.ledger.requests import as_json

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from graphrt.ledger.records import AgentRun
    from graphrt.ledger.store import RunLedgerStore

SCOPES: Final[Mapping[str, str]] = {
    "run": "run_id",
    "conversation": "conversation_id",
    "thread": "thread_id",
    "workspace": "workspace_id",
    "bot": "bot_id",
    "agent": "agent_id",
    "binding": "binding_id",
    "runner": "runner_id",
}
"""Scopes that are shared by the runs with the same id there. A run without one shares the scope with nobody."""


class StateScopeStore:
    """Keeps state in the ledger's own store."""

    def __init__(self, store: RunLedgerStore, *, max_value_bytes: int = 65_536) -> None:
        """Take the ledger's store, and how large a value may be as JSON."""
        self._store = store
        self.max_value_bytes = max_value_bytes

    async def set(self, entry: StateEntry) -> bool:
        """Store a value; False when a later event of the same run has written the key already."""
        return await self._store.set_state(entry)

    async def get(self, scope: str, scope_id: str) -> Mapping[str, StateEntry]:
        """Read the values of a scope."""
        return await self._store.get_state(scope, scope_id)


def scope_id(run: AgentRun, scope: str) -> str:
    """Give the id that *scope* has for a run.

    An id is never the runner's to choose. A scope of another name is one for all who may use it; where the snapshot
    allows `"name:id"`, it is the one of that id.

    Raises:
        RunControlError: `unauthorized`: the snapshot does not allow the scope.
    """
    for allowed in run.authorization.state_scopes:
        name, colon, id = allowed.partition(":")
        if allowed == scope or (colon and name == scope):
            if colon and allowed != scope:
                return id
            field = SCOPES.get(scope)
            return "" if field is None else getattr(run, field) or run.run_id
    raise RunControlError(
        "unauthorized",
        f"run {run.run_id!r} may not use state scope {scope!r}",
        details={"run_id": run.run_id, "kind": "state", "name": scope},
        hint="a run's rights are those of its snapshot, from when it was created",
    )


def check_update(run: AgentRun, scope: str, key: str, value: Any, *, max_bytes: int) -> str:
    """Give the id of the scope that an update of state goes to.

    Raises:
        RunControlError: `unauthorized`: the scope is not allowed; `invalid_argument`: the value is no JSON;
            `payload_too_large`: it is larger than *max_bytes*.
    """
    id = scope_id(run, scope)
    size = len(as_json(value, f"the value of {key!r}")[1])
    if size > max_bytes:
        raise RunControlError(
            "payload_too_large",
            f"the value of {key!r} has {size} bytes, and {max_bytes} are allowed",
            details={"run_id": run.run_id, "size": size, "limit": max_bytes},
            hint="keep it as an artifact, and its id as the value",
        )
    return id


def state_entry(run: AgentRun, scope: str, id: str, data: Mapping[str, Any], sequence: int, at: datetime) -> StateEntry:
    """Make the entry of an update."""
    return StateEntry(
        scope=scope,
        scope_id=id,
        key=data["key"],
        value=data["value"],
        run_id=run.run_id,
        sequence=sequence,
        updated_at=at,
    )
