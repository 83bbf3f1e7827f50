"""What a run may touch: only what its snapshot lists."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from graphrt.errors import RunControlError
from graphrt.ledger.state import scope_id

if TYPE_CHECKING:
    from collections.abc import Mapping

    from graphrt.ledger.records import AgentRun

LISTS: Final[Mapping[str, str]] = {
    "tool": "allowed_tools",
    "model": "allowed_models",
    "file": "allowed_files",
    "knowledge_base": "allowed_knowledge_bases",
    "storage": "storage_scopes",
}
"""Kinds of access, and the list of the snapshot that says what is allowed. What it does not list is not."""
KINDS: Final = (*LISTS, "state", "history")


def check_access(run: AgentRun, kind: str, name: str | None) -> None:
    """Refuse what the run's snapshot does not allow; *kind* is one of KINDS.

    Raises:
        RunControlError: `unauthorized`; `invalid_argument`: there is no such kind.
    """
    if kind == "state":
        scope_id(run, str(name))
        return
    if kind == "history":
        allowed = name == run.authorization.conversation_id
    elif kind in LISTS:
        allowed = name in getattr(run.authorization, LISTS[kind])
    else:
        raise RunControlError("invalid_argument", f"there is no access of kind {kind!r}", hint=f"one of {KINDS}")
    if not allowed:
        raise RunControlError(
            "unauthorized",
            f"run {run.run_id!r} may not use {kind} {name!r}",
            details={"run_id": run.run_id, "kind": kind, "name": name},
            hint="a run's rights are those of its snapshot, from when it was created",
        )
