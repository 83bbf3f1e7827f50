"""What run control is asked with, and how strictly: fields are checked here, before anything is stored."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from dataclasses import fields as dataclass_fields
from typing import TYPE_CHECKING, Annotated, Any, Final

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError

from graphrt.errors import RunControlError
from graphrt.ledger.authorization import AuthorizationSnapshot
from graphrt.ledger.records import RunFilter
from graphrt.ledger.status import AgentRunStatus
from graphrt.messages import TokenUsage, clean_value

if TYPE_CHECKING:
    from graphrt.ledger.records import AgentRun

_CONFIG = ConfigDict(frozen=True, extra="forbid")
Text = Annotated[str, Field(min_length=1)]


class RunCreateRequest(BaseModel):
    """A run to be written down; what the snapshot says of the run's place need not be said twice."""

    model_config = _CONFIG

    run_id: Text | None = None
    """A name for the run; made up when None. With one that exists, nothing is created."""
    event_id: str | None = None
    agent_id: str | None = None
    binding_id: str | None = None
    runner_id: Text
    authorization: AuthorizationSnapshot
    """What the run may touch; copied, and the same from now on."""
    conversation_id: str | None = None
    thread_id: str | None = None
    workspace_id: str | None = None
    bot_id: str | None = None
    deadline_at: AwareDatetime | None = None
    priority: int = 0
    graph_fingerprint: str | None = None
    input: Mapping[str, Any] | None = None
    """The message that caused the run, `{"role", "content"}`: the transcript gets it, with the sequence 0."""
    metadata: Mapping[str, Any] = Field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RunCreateResult:
    """The run, and whether it is new."""

    run: AgentRun
    created: bool


class ResultBody(BaseModel):
    """One result of a runner, as run control takes it; read from a mapping, or from an object with these attributes."""

    model_config = ConfigDict(frozen=True, from_attributes=True)

    type: Text
    data: Mapping[str, Any] = Field(default_factory=dict)
    usage: TokenUsage | None = None
    """None while it is unknown."""
    sequence: int | None = None
    metadata: Mapping[str, Any] = Field(default_factory=dict)


class RunAppendResultRequest(BaseModel):
    """A result to be appended to a run."""

    model_config = _CONFIG

    run_id: Text
    result: ResultBody
    sequence: int | None = None
    """Wins over the result's own; the next one when both are None."""
    claim_token: str | None = None
    """Needed for a run that a worker has claimed."""


# --- reading what callers hand over


def refused(error: ValidationError, what: str) -> RunControlError:
    """Make the refusal of fields that do not fit; it names each of them."""
    wrong = [(".".join(map(str, each["loc"])) or what, each["msg"]) for each in error.errors(include_url=False)]
    return RunControlError(
        "invalid_argument",
        f"{what} does not fit: " + "; ".join(f"{name}: {text}" for name, text in wrong),
        details={"fields": [name for name, _ in wrong]},
    )


def read_create(request: RunCreateRequest | Mapping[str, Any] | None, fields: Mapping[str, Any]) -> RunCreateRequest:
    """Read a request, or the fields of one.

    Raises:
        RunControlError: `invalid_argument`: a field does not fit, or contradicts the snapshot.
    """
    given: dict[str, Any] = dict(fields)
    if isinstance(request, RunCreateRequest):
        given = {name: getattr(request, name) for name in request.model_fields_set} | given
    elif request is not None:
        given = dict(request) | given
    try:
        return _placed(RunCreateRequest.model_validate(given))
    except ValidationError as error:
        raise refused(error, "the request") from error


def _placed(request: RunCreateRequest) -> RunCreateRequest:
    """Let request and snapshot say the same of who runs it and where: what one leaves open, the other fills in."""
    snapshot = request.authorization
    here: dict[str, Any] = {}
    there: dict[str, Any] = {}
    for name in ("runner_id", "binding_id", "conversation_id", "thread_id", "workspace_id"):
        mine, its = getattr(request, name), getattr(snapshot, name)
        if mine is not None and its is not None and mine != its:
            raise RunControlError(
                "invalid_argument",
                f"{name} is {mine!r}, and {its!r} in the authorization",
                hint="say it in one place, or the same in both",
                details={"fields": [name]},
            )
        here[name] = there[name] = its if mine is None else mine
    frozen = snapshot.model_copy(update=there, deep=True)
    return request.model_copy(update={**here, "authorization": frozen})


def read_result(result: Any) -> ResultBody:
    """Read a result of a runner: a mapping, a request, or an object with `type` and `data`.

    Raises:
        RunControlError: `invalid_argument`: it is none, or a field does not fit.
    """
    if isinstance(result, ResultBody):
        return result
    try:
        return ResultBody.model_validate(dict(result) if isinstance(result, Mapping) else result)
    except ValidationError as error:
        raise refused(error, "the result") from error


def read_status(status: AgentRunStatus | str) -> AgentRunStatus:
    """Read a status.

    Raises:
        RunControlError: `invalid_argument`: there is none of that name.
    """
    try:
        return AgentRunStatus(status)
    except ValueError as error:
        raise RunControlError(
            "invalid_argument", f"{status!r} is no status of a run", hint=f"there are {', '.join(AgentRunStatus)}"
        ) from error


def read_filters(filters: RunFilter | Mapping[str, Any] | None, fields: Mapping[str, Any]) -> RunFilter:
    """Read which runs are meant; *fields* win.

    Raises:
        RunControlError: `invalid_argument`: there is no such filter, or no such status.
    """
    known = [each.name for each in dataclass_fields(RunFilter)]
    if isinstance(filters, RunFilter):
        filters = {name: getattr(filters, name) for name in known}
    given = {**(filters or {}), **fields}
    if unknown := sorted(given.keys() - set(known)):
        raise RunControlError(
            "invalid_argument",
            f"runs cannot be listed by {', '.join(map(repr, unknown))}",
            details={"fields": unknown},
            hint=f"list them by {', '.join(known)}",
        )
    status = given.get("status")
    if status is not None:
        given["status"] = read_status(status) if isinstance(status, str) else [read_status(each) for each in status]
    return RunFilter(**given)


def check_sequence(sequence: Any) -> int | None:
    """Give a sequence, or None for the next one.

    Raises:
        RunControlError: `invalid_argument`: it is no whole number from 1 on.
    """
    if sequence is not None and (type(sequence) is not int or sequence < 1):
        raise RunControlError("invalid_argument", f"sequence {sequence!r} is no whole number from 1 on")
    return sequence


# --- JSON


def as_json(value: Any, what: str) -> tuple[Any, bytes]:
    """Give *value* as JSON holds it, which nobody else has, and its text.

    Raises:
        RunControlError: `invalid_argument`: JSON cannot hold it.
    """
    try:
        clean = clean_value(value)
        text = json.dumps(clean, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        return json.loads(text), text.encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise RunControlError("invalid_argument", f"{what} is no JSON: {error}") from error


# --- payloads of the known types


class _Payload(BaseModel):
    """What a known type has to hold; more is let through."""

    model_config = ConfigDict(frozen=True, extra="allow", strict=True)


class Said(BaseModel):
    """A message, or a piece of one."""

    model_config = ConfigDict(frozen=True, extra="allow", strict=True)

    role: Text = "assistant"
    content: str | list[Any]


class MessageDelta(_Payload):
    """A piece of a message."""

    chunk: Said


class MessageCompleted(_Payload):
    """A whole message."""

    message: Said


class ToolCallStarted(_Payload):
    """A call of a tool begins."""

    tool_call_id: Text
    tool_name: Text
    parameters: dict[str, Any] = Field(default_factory=dict)


class ToolCallCompleted(_Payload):
    """A call of a tool is over; it has a result, or an error."""

    tool_call_id: Text
    tool_name: Text
    result: Any = None
    error: Any = None


class ArtifactCreated(_Payload):
    """Something was made that is worth keeping."""

    name: Text
    mime_type: Text = "application/octet-stream"
    content: str | bytes
    encoding: Annotated[str, Field(pattern="^(utf-8|base64)$")] = "utf-8"
    """How a text stands for the bytes."""


class StateUpdated(_Payload):
    """A value of a state scope is set."""

    scope: Text
    key: Text
    value: Any


class ActionRequested(_Payload):
    """The runner would like something done; it is written down, and left to the host."""

    action: Text
    target: Any = None
    payload: Any = None


class RunCompleted(_Payload):
    """The runner has done its work."""

    finish_reason: str | None = None
    message: Said | None = None


class RunFailed(_Payload):
    """The runner gives up."""

    error: str | None = None
    code: str | None = None
    retryable: bool = False


PAYLOADS: Final[Mapping[str, type[BaseModel]]] = {
    "message.delta": MessageDelta,
    "message.completed": MessageCompleted,
    "tool.call.started": ToolCallStarted,
    "tool.call.completed": ToolCallCompleted,
    "artifact.created": ArtifactCreated,
    "state.updated": StateUpdated,
    "action.requested": ActionRequested,
    "run.completed": RunCompleted,
    "run.failed": RunFailed,
}
"""The known types of results, and what each has to hold."""

TERMINAL_TYPES: Final = frozenset({"run.completed", "run.failed"})
"""Types after which a runner says no more."""


def check_payload(type: str, data: Mapping[str, Any]) -> BaseModel | None:
    """Read the payload of a known type; None for a type that is not known.

    Raises:
        RunControlError: `invalid_argument`: it lacks something, or has it in another form.
    """
    model = PAYLOADS.get(type)
    if model is None:
        return None
    try:
        return model.model_validate(dict(data))
    except ValidationError as error:
        raise refused(error, f"the data of {type!r}") from error
