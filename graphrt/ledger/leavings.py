"""How what runs leave is kept, and what is known of workers; the same in every store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from graphrt.ledger.records import Artifact, RuntimeRecord, StateEntry, TranscriptEntry
from graphrt.ledger.rows import check_text, micros, moment, pack, pack_mapping, unpack, unpack_mapping

if TYPE_CHECKING:
    from collections.abc import Sequence


def artifact_row(artifact: Artifact) -> tuple[Any, ...]:
    """Give the columns of an artifact, without its run and its content."""
    check_text("artifact id", artifact.id)
    check_text("artifact name", artifact.name)
    check_text("mime type", artifact.mime_type)
    return (
        artifact.id,
        artifact.sequence,
        artifact.name,
        artifact.mime_type,
        artifact.size,
        micros(artifact.created_at),
        pack_mapping(artifact.metadata, f"the metadata of artifact {artifact.name!r}"),
    )


def read_artifact(run_id: str, row: Sequence[Any]) -> Artifact:
    """Read an artifact from its columns."""
    artifact_id, sequence, name, mime_type, size, created_at, metadata = row
    return Artifact(
        id=artifact_id,
        run_id=run_id,
        sequence=sequence,
        name=name,
        mime_type=mime_type,
        size=size,
        created_at=moment(created_at),
        metadata=unpack_mapping(metadata),
    )


def transcript_row(entry: TranscriptEntry) -> tuple[Any, ...]:
    """Give the columns of a message, without its run."""
    check_text("conversation", entry.conversation_id)
    check_text("thread", entry.thread_id)
    check_text("role", entry.role)
    return (
        entry.sequence,
        entry.conversation_id,
        entry.thread_id,
        entry.role,
        pack(entry.content, "the content of a message"),
        micros(entry.created_at),
    )


def read_transcript(run_id: str, row: Sequence[Any]) -> TranscriptEntry:
    """Read a message from its columns."""
    sequence, conversation_id, thread_id, role, content, created_at = row
    return TranscriptEntry(
        run_id=run_id,
        sequence=sequence,
        conversation_id=conversation_id,
        thread_id=thread_id,
        role=role,
        content=unpack(content),
        created_at=moment(created_at),
    )


def state_row(entry: StateEntry) -> tuple[Any, ...]:
    """Give the columns of a value of a state scope."""
    for what in ("scope", "scope_id", "key", "run_id"):
        check_text(what, getattr(entry, what))
    value = pack(entry.value, f"the value of {entry.key!r}")
    return (entry.scope, entry.scope_id, entry.key, value, entry.run_id, entry.sequence, micros(entry.updated_at))


def read_state(row: Sequence[Any]) -> StateEntry:
    """Read a value of a state scope from its columns."""
    scope, scope_id, key, value, run_id, sequence, updated_at = row
    return StateEntry(
        scope=scope,
        scope_id=scope_id,
        key=key,
        value=unpack(value),
        run_id=run_id,
        sequence=sequence,
        updated_at=moment(updated_at),
    )


def runtime_row(record: RuntimeRecord) -> tuple[Any, ...]:
    """Give the columns of a runtime."""
    check_text("runtime", record.runtime_id)
    return (
        record.runtime_id,
        pack(dict(record.capabilities), f"the capabilities of {record.runtime_id!r}"),
        micros(record.registered_at),
        micros(record.heartbeat_at),
        float(record.heartbeat_seconds),
        pack_mapping(record.metadata, f"the metadata of {record.runtime_id!r}"),
    )


def read_runtime(row: Sequence[Any]) -> RuntimeRecord:
    """Read a runtime from its columns."""
    runtime_id, capabilities, registered_at, heartbeat_at, seconds, metadata = row
    return RuntimeRecord(
        runtime_id=runtime_id,
        capabilities=unpack(capabilities),
        registered_at=moment(registered_at),
        heartbeat_at=moment(heartbeat_at),
        heartbeat_seconds=seconds,
        metadata=unpack_mapping(metadata),
    )
