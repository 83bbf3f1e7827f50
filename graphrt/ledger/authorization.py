"""Who may do what: the caller of run control, and the rights of a run as they were when it was created."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from graphrt.positional import by_position


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

    if TYPE_CHECKING:

        def __init__(  # noqa: PLR0917 - the fields of the public signature, in its order
            self,
            runner_id: str,
            binding_id: str | None = ...,
            caller_plugin_id: str | None = ...,
            resource_policy: Mapping[str, Any] = ...,
            allowed_tools: Sequence[str] = ...,
            allowed_models: Sequence[str] = ...,
            allowed_files: Sequence[str] = ...,
            allowed_knowledge_bases: Sequence[str] = ...,
            storage_scopes: Sequence[str] = ...,
            state_scopes: Sequence[str] = ...,
            conversation_id: str | None = ...,
            thread_id: str | None = ...,
            workspace_id: str | None = ...,
        ) -> None: ...

    else:
        __init__ = by_position(
            "runner_id",
            "binding_id",
            "caller_plugin_id",
            "resource_policy",
            "allowed_tools",
            "allowed_models",
            "allowed_files",
            "allowed_knowledge_bases",
            "storage_scopes",
            "state_scopes",
            "conversation_id",
            "thread_id",
            "workspace_id",
        )


class CallerIdentity(BaseModel):
    """Who calls run control."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["host", "platform", "runner", "bridge", "harness"]
    plugin_id: str | None = None
    runner_id: str | None = None
    workspace_id: str | None = None

    if TYPE_CHECKING:

        def __init__(
            self,
            kind: Literal["host", "platform", "runner", "bridge", "harness"],
            plugin_id: str | None = ...,
            runner_id: str | None = ...,
            workspace_id: str | None = ...,
        ) -> None: ...

    else:
        __init__ = by_position("kind", "plugin_id", "runner_id", "workspace_id")
