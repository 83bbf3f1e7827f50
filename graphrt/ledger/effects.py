"""What follows from an event: the message in the transcript, the artifact, the value of state."""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from graphrt.errors import RunControlError
from graphrt.ledger.artifacts import artifact_id, artifact_of
from graphrt.ledger.requests import ArtifactCreated, MessageCompleted, StateUpdated, as_json, check_payload
from graphrt.ledger.state import check_update, state_entry
from graphrt.ledger.transcript import entry_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from graphrt.ledger.artifacts import ArtifactStore
    from graphrt.ledger.records import AgentRun, AgentRunEvent
    from graphrt.ledger.requests import ResultBody
    from graphrt.ledger.state import StateScopeStore
    from graphrt.ledger.transcript import TranscriptStore

KEPT_IN_STUB: Final = 256
"""Bytes of JSON up to which a field stays in the stub of an event whose data became an artifact."""
STUB_FIELDS: Final = 8
"""How many such fields stay."""


@dataclass(frozen=True, slots=True)
class Message:
    """A message goes into the transcript."""

    message: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Content:
    """Content becomes an artifact."""

    name: str
    mime_type: str
    content: bytes

    def id_in(self, run_id: str) -> str:
        """Give the id of the artifact in a run."""
        return artifact_id(run_id, self.content, name=self.name, mime_type=self.mime_type)


@dataclass(frozen=True, slots=True)
class State:
    """A value of state is set."""

    scope: str
    scope_id: str
    data: Mapping[str, Any]


Effect: TypeAlias = Message | Content | State


@dataclass(frozen=True, slots=True)
class StoredForm:
    """How the data of a result are stored."""

    data: Mapping[str, Any]
    refs: tuple[str, ...]
    metadata: Mapping[str, Any]
    content: Content | None
    """What becomes an artifact, with the id in `refs`."""


def checked(run: AgentRun, body: ResultBody, *, max_state_bytes: int) -> Effect | None:
    """Say what will follow from a result; None for nothing.

    Raises:
        RunControlError: `invalid_argument`: it is of a known type, and lacks what that has to hold; or the run's
            snapshot does not allow it.
    """
    payload = check_payload(body.type, body.data)
    if isinstance(payload, MessageCompleted):
        message = dict(body.data["message"])
        return Message(as_json({"role": payload.message.role, **message}, "the message")[0])
    if isinstance(payload, ArtifactCreated):
        return Content(payload.name, payload.mime_type, _content_of(payload))
    if not isinstance(payload, StateUpdated):
        return None
    id = check_update(run, payload.scope, payload.key, payload.value, max_bytes=max_state_bytes)
    return State(payload.scope, id, as_json(dict(body.data), "the data")[0])


def _content_of(payload: ArtifactCreated) -> bytes:
    content = payload.content
    if isinstance(content, bytes):
        return content
    if payload.encoding == "utf-8":
        return content.encode("utf-8", "replace")
    try:
        return base64.b64decode(content, validate=True)
    except (binascii.Error, ValueError) as error:
        raise RunControlError("invalid_argument", f"content of artifact {payload.name!r} is no base64") from error


def stored_form(run_id: str, body: ResultBody, effect: Effect | None, *, max_bytes: int) -> StoredForm:
    """Give a result as it is stored: what is larger than *max_bytes* as JSON is replaced by a stub.

    Raises:
        RunControlError: `invalid_argument`: it is no JSON.
    """
    what = f"the data of {body.type!r}"
    metadata = as_json(dict(body.metadata), "the metadata")[0]
    if body.usage is not None:
        metadata["usage"] = body.usage.model_dump(exclude_none=True)
    if isinstance(effect, Content):
        refs = (effect.id_in(run_id),)
        given = dict(body.data)
        if isinstance(given["content"], bytes) or len(effect.content) > max_bytes:
            del given["content"]
            given["size"] = len(effect.content)
        data, text = as_json(given, what)
        if len(text) > max_bytes:
            raise RunControlError("payload_too_large", f"{what} has {len(text)} bytes beside the content")
        return StoredForm(data, refs, metadata, effect)
    data, text = as_json(dict(body.data), what)
    if len(text) <= max_bytes:
        return StoredForm(data, (), metadata, None)
    stub = {"offloaded": {"size": len(text), "fields": sorted(data)[:STUB_FIELDS]}}
    small = [name for name in data if len(as_json({name: data[name]}, what)[1]) <= KEPT_IN_STUB]
    stub = {**{name: data[name] for name in small[:STUB_FIELDS]}, **stub}
    content = Content(f"{body.type}.json", "application/json", text)
    return StoredForm(stub, (content.id_in(run_id),), metadata, content)


@dataclass(frozen=True, slots=True)
class Effects:
    """Carries out what follows from events that are stored."""

    transcript: TranscriptStore
    artifacts: ArtifactStore
    state: StateScopeStore

    async def carry_out(
        self, run: AgentRun, event: AgentRunEvent, effect: Effect | None, content: Content | None
    ) -> None:
        """Do what follows from an event, each part with a link back to it."""
        if content is not None:
            await self._keep(run, event, content)
        if isinstance(effect, Message):
            await self.transcript.add(entry_of(run, event.sequence, effect.message, event.created_at))
        elif isinstance(effect, State):
            await self.state.set(
                state_entry(run, effect.scope, effect.scope_id, effect.data, event.sequence, event.created_at)
            )

    async def make_good(
        self, run: AgentRun, event: AgentRunEvent, effect: Effect | None, content: Content | None
    ) -> None:
        """Do what is missing of what follows from an event that was stored before."""
        if content is not None and await self.artifacts.get(event.artifact_refs[0]) is None:
            await self._keep(run, event, content)
        missing = False
        if isinstance(effect, Message):
            said = await self.transcript.messages(run_id=run.run_id)
            missing = all(entry.sequence != event.sequence for entry in said)
        elif isinstance(effect, State):
            before = (await self.state.get(effect.scope, effect.scope_id)).get(effect.data["key"])
            # What another run, or a later event, has written since then stays.
            missing = before is None or before.updated_at < event.created_at
        if missing:
            await self.carry_out(run, event, effect, None)

    async def _keep(self, run: AgentRun, event: AgentRunEvent, content: Content) -> None:
        artifact = artifact_of(
            run.run_id,
            content.content,
            name=content.name,
            mime_type=content.mime_type,
            created_at=event.created_at,
            sequence=event.sequence,
        )
        await self.artifacts.put(artifact, content.content)
