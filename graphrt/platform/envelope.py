"""`EventEnvelope`: what happened outside."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from graphrt.platform.resources import Resources

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
