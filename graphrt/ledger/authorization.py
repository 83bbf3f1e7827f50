"""Who may do what: the caller of run control, and the rights of a run as they were when it was created."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field


class AuthorizationSnapshot(BaseModel):
    """What a run may touch, frozen when the run is created: later changes of a binding or a policy do not reach it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    runner_id: str
    """Who runs it."""
    binding_id: str | None = None
    caller_plugin_id: str | None = None
    """The plugin that created the run; None for the host."""
    resource_policy: Mapping[str, Any] = Field(default_factory=dict)
    allowed_tools: tuple[str, ...] = ()
    allowed_models: tuple[str, ...] = ()
    allowed_files: tuple[str, ...] = ()
    allowed_knowledge_bases: tuple[str, ...] = ()
    storage_scopes: tuple[str, ...] = ()
    state_scopes: tuple[str, ...] = ()
    conversation_id: str | None = None
    thread_id: str | None = None
    workspace_id: str | None = None


class CallerIdentity(BaseModel):
    """Who calls run control."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["host", "platform", "runner", "bridge", "harness"]
    plugin_id: str | None = None
    runner_id: str | None = None
    workspace_id: str | None = None
