"""How records are kept: times as whole microseconds, values as compact JSON; the same in every store."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from graphrt.errors import RunControlError
from graphrt.ledger.records import (
    AgentRun,
    AgentRunEvent,
    JsonText,
)
from graphrt.ledger.status import AgentRunStatus

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from graphrt.ledger.records import NewEvent

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
_compact: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
_ascii: Final = json.JSONEncoder(separators=(",", ":")).encode

MAX_NUMBER: Final = 2**63 - 1
"""The largest whole number that a database takes."""

MAX_PRIORITY: Final = 2**31 - 1

TEXT_COLUMNS: Final = (
    "run_id",
    "runner_id",
    "event_id",
    "agent_id",
    "binding_id",
    "conversation_id",
    "thread_id",
    "workspace_id",
    "bot_id",
)
"""Names that a run is made with, and keeps."""
CHANGING: Final = (
    "deadline_at",
    "status",
    "status_reason",
    "started_at",
    "finished_at",
    "updated_at",
    "cancel_requested_at",
    "cancel_reason",
    "usage",
    "priority",
    "attempt",
    "graph_fingerprint",
    "claimed_by",
    "claim_token",
    "claimed_at",
    "lease_until",
    "wake_at",
    "metadata",
)
"""What may change of a run."""
RUN_COLUMNS: Final = ("id", *TEXT_COLUMNS, "created_by", "authorization", "created_at", *CHANGING)
"""Columns of a run, in the order of a row."""


class EventRow(NamedTuple):
    """An event as it is kept, without its run; a sequence of 0 is still to be given."""

    sequence: int
    type: str
    data: str
    created_at: int
    source: str
    artifact_refs: str | None
    metadata: str | None


@dataclass(frozen=True, slots=True)
class StoredRun:
    """A run, and what no reader sees of it."""

    run: AgentRun
    token: str | None = None
    """Proof of the claim."""
    claimed_at: datetime | None = None


# --- single values


def micros(moment: datetime) -> int:
    """Give microseconds since 1970.

    Raises:
        RunControlError: `invalid_argument`: the time is not aware.
    """
    try:
        return (moment - _EPOCH) // _MICROSECOND
    except TypeError as error:
        raise RunControlError(
            "invalid_argument", f"{moment!r} is no aware time", hint="use a time with a zone, as datetime.now(UTC)"
        ) from error


def moment(number: int) -> datetime:
    """Read microseconds since 1970."""
    return _EPOCH + timedelta(microseconds=number)


def maybe_micros(moment: datetime | None) -> int | None:
    """Give microseconds since 1970, or None."""
    return None if moment is None else micros(moment)


def maybe_moment(number: int | None) -> datetime | None:
    """Read microseconds since 1970, or None."""
    return None if number is None else moment(number)


def pack(value: Any, what: str) -> str:
    """Write *value* as compact JSON; *what* is for the message of an error.

    Raises:
        RunControlError: `invalid_argument`: JSON cannot hold it.
    """
    try:
        text = _compact(value)
        if not text.isascii() and not _encodable(text):
            text = _ascii(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise RunControlError("invalid_argument", f"{what} cannot be written as JSON: {error}") from error
    return text


def pack_mapping(value: Mapping[str, Any], what: str) -> str | None:
    """Write a mapping as compact JSON; None for an empty one.

    Raises:
        RunControlError: `invalid_argument`: JSON cannot hold it.
    """
    if not value:
        return None
    return pack(value if isinstance(value, dict) else dict(value), what)


def unpack(text: str) -> Any:
    """Read what `pack` wrote.

    Raises:
        RunControlError: `runtime_error`: it is no JSON.
    """
    try:
        return json.loads(text)
    except (TypeError, ValueError, RecursionError) as error:
        raise RunControlError(
            "runtime_error", f"what the ledger holds is no JSON: {error}", hint="bring back a copy of the database"
        ) from error


def unpack_mapping(text: str | None) -> dict[str, Any]:
    """Read what `pack_mapping` wrote."""
    return {} if text is None else cast("dict[str, Any]", unpack(text))


class WrittenData(Mapping[str, Any]):
    """Data of an event that came as JSON: most writers never look at it again, so it is read when somebody does."""

    __slots__ = ("_read", "_text")

    def __init__(self, text: str) -> None:
        self._text = text
        self._read: dict[str, Any] | None = None

    def _data(self) -> dict[str, Any]:
        if self._read is None:
            self._read = unpack_mapping(self._text)
        return self._read

    def __getitem__(self, key: str) -> Any:
        return self._data()[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._data())

    def __len__(self) -> int:
        return len(self._data())

    def __repr__(self) -> str:
        return repr(self._data())


def check_text(what: str, text: str | None) -> None:
    """Refuse a name that a database cannot hold.

    Raises:
        RunControlError: `invalid_argument`: the name holds the character NUL, or half a character.
    """
    if text is not None and ("\0" in text or not (text.isascii() or _encodable(text))):
        raise RunControlError("invalid_argument", f"{what} {text!r} holds characters that cannot be stored")


def storable(text: str | None) -> str | None:
    """Give a message with what a database cannot hold replaced."""
    if text is None or (text.isascii() and "\0" not in text):
        return text
    return text.encode("utf-8", "replace").decode().replace("\0", "\N{REPLACEMENT CHARACTER}")


def _plain(text: JsonText) -> str:
    """Give written JSON as drivers take it fastest; half characters are escaped."""
    plain = str(text)
    return plain if plain.isascii() or _encodable(plain) else _ascii(unpack(plain))


def _encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


# --- runs


def run_row(stored: StoredRun) -> dict[str, Any]:
    """Give the columns of a run.

    Raises:
        RunControlError: `invalid_argument`: something of it cannot be stored.
    """
    run = stored.run
    row: dict[str, Any] = {name: getattr(run, name) for name in TEXT_COLUMNS}
    for name, text in row.items():
        check_text(name, text)
    authorization = run.authorization
    check_text("plugin", authorization.caller_plugin_id)
    try:
        row["authorization"] = authorization.model_dump_json(exclude_defaults=True)
    except ValueError as error:  # pydantic's errors are ValueErrors
        raise RunControlError(
            "invalid_argument", f"the authorization of {run.run_id!r} cannot be written as JSON: {error}"
        ) from error
    row.update(id=run.id, created_by=authorization.caller_plugin_id, created_at=micros(run.created_at))
    row.update(zip(CHANGING, changing_row(stored), strict=True))
    return row


def check_priority(priority: object) -> None:
    """Refuse a priority that is no whole number, or too large for a store.

    Raises:
        RunControlError: `invalid_argument`.
    """
    if not isinstance(priority, int) or isinstance(priority, bool) or abs(priority) > MAX_PRIORITY:
        raise RunControlError(
            "invalid_argument", f"priority {priority!r} is none", hint=f"give a whole number up to {MAX_PRIORITY}"
        )


def changing_row(stored: StoredRun) -> tuple[Any, ...]:
    """Give the columns that may change of a run, in their order."""
    run = stored.run
    check_text("graph_fingerprint", run.graph_fingerprint)
    check_priority(run.priority)
    usage = run.usage
    return (
        maybe_micros(run.deadline_at),
        run.status.value,
        storable(run.status_reason),
        maybe_micros(run.started_at),
        maybe_micros(run.finished_at),
        micros(run.updated_at),
        maybe_micros(run.cancel_requested_at),
        storable(run.cancel_reason),
        None if usage is None else usage.model_dump_json(exclude_none=True),
        run.priority,
        run.attempt,
        run.graph_fingerprint,
        run.claimed_by,
        stored.token,
        maybe_micros(stored.claimed_at),
        maybe_micros(run.lease_until),
        maybe_micros(run.wake_at),
        pack_mapping(run.metadata, f"the metadata of run {run.run_id!r}"),
    )


def read_run(row: Sequence[Any]) -> StoredRun:
    """Read a run from its columns, in the order of RUN_COLUMNS."""
    from graphrt.ledger.authorization import AuthorizationSnapshot
    from graphrt.messages import TokenUsage

    got = dict(zip(RUN_COLUMNS, row, strict=True))
    usage = got["usage"]
    run = AgentRun(
        authorization=AuthorizationSnapshot.model_validate_json(got["authorization"]),
        created_at=moment(got["created_at"]),
        updated_at=moment(got["updated_at"]),
        id=got["id"],
        status=AgentRunStatus(got["status"]),
        status_reason=got["status_reason"],
        started_at=maybe_moment(got["started_at"]),
        finished_at=maybe_moment(got["finished_at"]),
        deadline_at=maybe_moment(got["deadline_at"]),
        cancel_requested_at=maybe_moment(got["cancel_requested_at"]),
        cancel_reason=got["cancel_reason"],
        usage=None if usage is None else TokenUsage.model_validate_json(usage),
        priority=got["priority"],
        attempt=got["attempt"],
        graph_fingerprint=got["graph_fingerprint"],
        claimed_by=got["claimed_by"],
        lease_until=maybe_moment(got["lease_until"]),
        wake_at=maybe_moment(got["wake_at"]),
        metadata=unpack_mapping(got["metadata"]),
        **{name: got[name] for name in TEXT_COLUMNS},
    )
    return StoredRun(run, got["claim_token"], maybe_moment(got["claimed_at"]))


# --- events


def event_row(event: NewEvent, now: int) -> EventRow:
    """Give an event as it is kept; *now* is when it is appended.

    Raises:
        RunControlError: `invalid_argument`: it cannot be stored, or its sequence is below 1.
    """
    kind, source, sequence = event.type, event.source, event.sequence
    check_text("event type", kind)
    check_text("event source", source)
    if sequence is None:
        sequence = 0
    elif not 1 <= sequence <= MAX_NUMBER:
        raise RunControlError(
            "invalid_argument", f"sequence {sequence} of {kind!r} is below 1, or too large", hint="count from 1"
        )
    data = event.data
    what = f"the data of {kind!r}"
    return EventRow(
        sequence,
        kind,
        _plain(data) if isinstance(data, JsonText) else pack(data if isinstance(data, dict) else dict(data), what),
        now if event.created_at is None else micros(event.created_at),
        source,
        pack(list(event.artifact_refs), what) if event.artifact_refs else None,
        pack_mapping(event.metadata, what),
    )


def read_event(run_id: str, row: Sequence[Any]) -> AgentRunEvent:
    """Read an event of a run from its columns, in the order of EventRow."""
    sequence, kind, data, created_at, source, refs, metadata = row
    return AgentRunEvent(
        run_id,
        sequence,
        kind,
        unpack(data),
        moment(created_at),
        source,
        () if refs is None else tuple(unpack(refs)),
        {} if metadata is None else unpack(metadata),
    )


def same_event(one: EventRow, other: EventRow) -> bool:
    """Whether two rows say the same, but for when."""
    if (one.type, one.source) != (other.type, other.source):
        return False
    pairs = ((one.data, other.data), (one.artifact_refs, other.artifact_refs), (one.metadata, other.metadata))
    return all(a == b or (a is not None and b is not None and unpack(a) == unpack(b)) for a, b in pairs)
