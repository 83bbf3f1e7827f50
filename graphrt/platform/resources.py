"""What a run may use: what its runner declares, its binding allows, and its event permits, all at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pydantic import BaseModel, ConfigDict

if TYPE_CHECKING:
    from collections.abc import Mapping

    from graphrt.ledger.authorization import AuthorizationSnapshot

FIELDS: Final[Mapping[str, str]] = {
    "tools": "allowed_tools",
    "models": "allowed_models",
    "files": "allowed_files",
    "knowledge_bases": "allowed_knowledge_bases",
    "storage_scopes": "storage_scopes",
    "state_scopes": "state_scopes",
}
"""Fields of `Resources`, and those of the snapshot that say the same."""


class Resources(BaseModel):
    """Names of what may be used, by kind; None where it does not matter."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    tools: tuple[str, ...] | None = None
    models: tuple[str, ...] | None = None
    files: tuple[str, ...] | None = None
    knowledge_bases: tuple[str, ...] | None = None
    storage_scopes: tuple[str, ...] | None = None
    state_scopes: tuple[str, ...] | None = None


def narrowed(snapshot: AuthorizationSnapshot, *limits: Resources | None) -> AuthorizationSnapshot:
    """Give the snapshot with only what each of *limits* has too; rights only ever become fewer."""
    update: dict[str, tuple[str, ...]] = {}
    for name, field in FIELDS.items():
        kept: tuple[str, ...] = getattr(snapshot, field)
        for limit in limits:
            among: tuple[str, ...] | None = None if limit is None else getattr(limit, name)
            if among is not None:
                kept = tuple(each for each in kept if each in among or each.partition(":")[0] in among)
        update[field] = kept
    return snapshot.model_copy(update=update)


def resources_of(snapshot: AuthorizationSnapshot) -> Resources:
    """Give what a snapshot allows, as a runner is told of it."""
    return Resources(**{name: getattr(snapshot, field) for name, field in FIELDS.items()})
