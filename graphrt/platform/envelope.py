"""`EventEnvelope`: what happened outside."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from graphrt.platform.resources import Resources
from graphrt.positional import by_position

if TYPE_CHECKING:
    from datetime import datetime

Text = Annotated[str, Field(min_length=1)]


class EventEnvelope(BaseModel):
    """Something that happened: `message.received`, `github.issue.opened`. It is no run, and waits in no queue."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    event_id: Text
    event_type: Text
    """A dotted name; there is no list of them."""
    source: Text
    """Where it comes from."""
    conversation_id: str | None = None
    thread_id: str | None = None
    workspace_id: str | None = None
    bot_id: str | None = None
    actor: Mapping[str, Any] | str | None = None
    """Who did it."""
    subject: Mapping[str, Any] | str | None = None
    """What it was done to."""
    input: Mapping[str, Any] = Field(default_factory=dict)
    """What the runner is given. Its `message`, `{"role", "content"}`, goes into the transcript as well."""
    delivery: Mapping[str, Any] = Field(default_factory=dict)
    """Where answers go."""
    permits: Resources = Resources()
    """What may be used in answering it."""
    occurred_at: AwareDatetime | None = None
    metadata: Mapping[str, Any] = Field(default_factory=dict)

    if TYPE_CHECKING:

        def __init__(  # noqa: PLR0917 - the fields of the public signature, in its order
            self,
            event_id: str,
            event_type: str,
            source: str,
            conversation_id: str | None = ...,
            thread_id: str | None = ...,
            workspace_id: str | None = ...,
            bot_id: str | None = ...,
            actor: Mapping[str, Any] | str | None = ...,
            subject: Mapping[str, Any] | str | None = ...,
            input: Mapping[str, Any] = ...,
            delivery: Mapping[str, Any] = ...,
            permits: Resources = ...,
            occurred_at: datetime | None = ...,
            metadata: Mapping[str, Any] = ...,
        ) -> None: ...

    else:
        __init__ = by_position(
            "event_id",
            "event_type",
            "source",
            "conversation_id",
            "thread_id",
            "workspace_id",
            "bot_id",
            "actor",
            "subject",
            "input",
            "delivery",
            "permits",
            "occurred_at",
            "metadata",
        )
