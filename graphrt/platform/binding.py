"""`AgentBinding`: which runner answers which events, how it is set up, and what it may touch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from graphrt.errors import RunControlError
from graphrt.ledger.authorization import AuthorizationSnapshot
from graphrt.ledger.requests import RunCreateRequest
from graphrt.platform.resources import Resources, narrowed
from graphrt.positional import by_position

if TYPE_CHECKING:
    from datetime import datetime

    from graphrt.platform.envelope import EventEnvelope

Text = Annotated[str, Field(min_length=1)]


class AgentBinding(BaseModel):
    """A runner, the events that it answers, its settings and its rights. Where bindings are kept is up to the host."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    binding_id: Text
    runner_id: Text
    event_types: tuple[Text, ...] = ()
    """Types of events, or patterns of them; see `EventRouter`."""
    agent_id: str | None = None
    config: Mapping[str, Any] = Field(default_factory=dict)
    """Handed down to the runner, a copy for each run."""
    authorization: AuthorizationSnapshot = None  # type: ignore[assignment]  # made below, where the runner is known
    """What its runs may touch; nothing when it is left out."""
    delivery: Mapping[str, Any] = Field(default_factory=dict)
    """Where answers go, when the event does not say."""
    timeout_seconds: Annotated[float, Field(gt=0)] | None = None
    """What a run may take."""
    enabled: bool = True
    metadata: Mapping[str, Any] = Field(default_factory=dict)

    if TYPE_CHECKING:

        def __init__(  # noqa: PLR0917 - the fields of the public signature, in its order
            self,
            binding_id: str,
            runner_id: str,
            event_types: Sequence[str] = ...,
            agent_id: str | None = ...,
            config: Mapping[str, Any] = ...,
            authorization: AuthorizationSnapshot | Mapping[str, Any] | None = ...,
            delivery: Mapping[str, Any] = ...,
            timeout_seconds: float | None = ...,
            enabled: bool = ...,
            metadata: Mapping[str, Any] = ...,
        ) -> None: ...

    else:
        __init__ = by_position(
            "binding_id",
            "runner_id",
            "event_types",
            "agent_id",
            "config",
            "authorization",
            "delivery",
            "timeout_seconds",
            "enabled",
            "metadata",
        )

    @model_validator(mode="before")
    @classmethod
    def _with_rights(cls, given: Any) -> Any:
        if isinstance(given, Mapping) and given.get("authorization") is None and "runner_id" in given:
            return {**given, "authorization": {"runner_id": given["runner_id"], "binding_id": given.get("binding_id")}}
        return given

    @model_validator(mode="after")
    def _of_one_runner(self) -> Self:
        for name in ("runner_id", "binding_id"):
            there = getattr(self.authorization, name)
            if there not in (None, getattr(self, name)):
                raise ValueError(f"{name} is {getattr(self, name)!r}, and {there!r} in the authorization")
        return self

    def run_request(
        self,
        event: EventEnvelope,
        *,
        declares: Resources | None = None,
        run_id: str | None = None,
        deadline_at: datetime | None = None,
    ) -> RunCreateRequest:
        """Give the request for a run that answers *event*, whoever makes it: the ledger holds the same then.

        Its rights are what the runner *declares*, and the binding allows, and the event permits.

        Raises:
            RunControlError: `unauthorized`: the binding is for another conversation, thread or workspace.
        """
        place = {name: getattr(event, name) for name in ("conversation_id", "thread_id", "workspace_id")}
        for name, there in place.items():
            bound = getattr(self.authorization, name)
            if bound is not None and there is not None and bound != there:
                raise RunControlError(
                    "unauthorized",
                    f"binding {self.binding_id!r} is for {name} {bound!r}, and the event is from {there!r}",
                    details={"binding_id": self.binding_id, "event_id": event.event_id},
                )
            place[name] = there if bound is None else bound
        rights = narrowed(self.authorization, declares, event.permits)
        return RunCreateRequest(
            run_id=run_id,
            event_id=event.event_id,
            agent_id=self.agent_id,
            binding_id=self.binding_id,
            runner_id=self.runner_id,
            authorization=rights.model_copy(update={"binding_id": self.binding_id, **place}, deep=True),
            bot_id=event.bot_id,
            deadline_at=deadline_at,
            input=_said(event),
            metadata={"delivery_target": dict(event.delivery or self.delivery)}
            if event.delivery or self.delivery
            else {},
            **place,
        )


def _said(event: EventEnvelope) -> Mapping[str, Any] | None:
    """Give the message that an event brings, if it brings one."""
    message = event.input.get("message")
    if isinstance(message, Mapping) and isinstance(message.get("content"), (str, list)):
        return {"role": "user", **message}
    return None
