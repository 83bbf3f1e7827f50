"""Where artifacts are kept: in the ledger's database, or as files in a folder beside it."""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Awaitable, Callable
from datetime import datetime
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from graphrt.errors import RunControlError
from graphrt.ledger.records import Artifact
from graphrt.threads import run_in_thread

if TYPE_CHECKING:
    from graphrt.ledger.store import RunLedgerStore

_ID: Final = re.compile(r"[0-9a-f]{24}-[0-9a-f]{64}")

Exists = Callable[[str], Awaitable[bool]]
"""Whether the ledger has a run of this id."""


def run_key(run_id: str) -> str:
    """Give what the ids of a run's artifacts begin with; safe as the name of a folder."""
    return sha256(run_id.encode("utf-8", "surrogatepass")).hexdigest()[:24]


def artifact_id(run_id: str, content: bytes, *, name: str, mime_type: str) -> str:
    """Give the id that *content* has in a run, under its name and type: under others it is another artifact."""
    described = sha256(json.dumps([name, mime_type]).encode())
    described.update(b"\0" + content)
    return f"{run_key(run_id)}-{described.hexdigest()}"


def _id_of(artifact: Artifact, content: bytes) -> str:
    return artifact_id(artifact.run_id, content, name=artifact.name, mime_type=artifact.mime_type)


class ArtifactStore:
    """Keeps artifacts in the ledger's own store. The same content of one run is kept once under a name and type."""

    def __init__(self, store: RunLedgerStore) -> None:
        """Take the ledger's store."""
        self._store = store

    async def put(self, artifact: Artifact, content: bytes) -> Artifact:
        """Store *content* under the artifact's id; give the artifact as it is stored, which may be an earlier one."""
        return await self._store.put_artifact(artifact, content)

    async def get(self, id: str) -> tuple[Artifact, bytes] | None:
        """Read an artifact and its content."""
        return await self._store.get_artifact(id)

    async def of_run(self, run_id: str) -> list[Artifact]:
        """List the artifacts of a run, in the order in which they were stored."""
        return await self._store.list_artifacts(run_id)

    async def sweep(self, exists: Exists) -> int:
        """Remove what belongs to runs that are gone, and give their number; the database has done that already."""
        return 0


class FileArtifactStore(ArtifactStore):
    """Keeps artifacts as files, under the hash of name, type and content; one folder belongs to one ledger.

    A file is written whole under another name and then moved to its own, so that a crash leaves no half of one.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        """Take the folder; it is made when something is stored."""
        self._folder = Path(folder)

    async def put(self, artifact: Artifact, content: bytes) -> Artifact:
        """Store *content* under the artifact's id; give the artifact as it is stored, which may be an earlier one.

        Raises:
            RunControlError: `invalid_argument`: the id is not that of the run and the content; `runtime_error`: the
                folder cannot be written.
        """
        if artifact.id != _id_of(artifact, content):
            raise RunControlError("invalid_argument", f"{artifact.id!r} is not the id of this content in its run")
        return await run_in_thread(self._put, artifact, content)

    async def get(self, id: str) -> tuple[Artifact, bytes] | None:
        """Read an artifact and its content.

        Raises:
            RunControlError: `runtime_error`: a file cannot be read, or is not what was stored.
        """
        return await run_in_thread(self._get, id) if _ID.fullmatch(id) else None

    async def of_run(self, run_id: str) -> list[Artifact]:
        """List the artifacts of a run, in the order in which they were stored."""
        return await run_in_thread(self._list, self._folder / run_key(run_id))

    async def sweep(self, exists: Exists) -> int:
        """Remove what belongs to runs that are gone, and give their number."""
        gone = 0
        for folder in await run_in_thread(self._folders):
            owner = await run_in_thread(self._owner, folder)
            if owner is not None and not await exists(owner):
                await run_in_thread(_remove, folder)
                gone += 1
        return gone

    def _put(self, artifact: Artifact, content: bytes) -> Artifact:
        place = self._place(artifact.id)
        try:
            before = self._read_record(place)
            if before is not None:
                return before
            place.parent.mkdir(parents=True, exist_ok=True)
            _write(place.with_suffix(".bin"), content)
            _write(place.with_suffix(".json"), json.dumps(_record(artifact)).encode())
        except OSError as error:
            raise _unwritable(self._folder, error) from error
        return artifact

    def _get(self, id: str) -> tuple[Artifact, bytes] | None:
        place = self._place(id)
        record = self._read_record(place)
        if record is None:
            return None
        try:
            content = place.with_suffix(".bin").read_bytes()
        except OSError as error:
            raise _unreadable(place, error) from error
        if _id_of(record, content) != id:
            raise RunControlError("runtime_error", f"artifact {id!r} is not what was stored: its file was changed")
        return record, content

    def _list(self, folder: Path) -> list[Artifact]:
        try:
            found = [(path.stat().st_mtime_ns, path) for path in folder.glob("*.json")]
        except FileNotFoundError:  # removed meanwhile
            return []
        records = [(stamp, self._read_record(path.with_suffix(""))) for stamp, path in found]
        kept = [(stamp, record) for stamp, record in records if record is not None]
        return [record for _, record in sorted(kept, key=lambda each: (each[0], each[1].sequence or 0, each[1].id))]

    def _place(self, id: str) -> Path:
        run, _, content = id.partition("-")
        return self._folder / run / content

    def _folders(self) -> list[Path]:
        return sorted(path for path in self._folder.glob("*") if re.fullmatch(r"[0-9a-f]{24}", path.name))

    def _owner(self, folder: Path) -> str | None:
        """Name the run that a folder belongs to; None for one that holds nothing yet."""
        return next((record.run_id for record in self._list(folder)), None)

    def _read_record(self, place: Path) -> Artifact | None:
        try:
            got: dict[str, Any] = json.loads(place.with_suffix(".json").read_bytes())
            return Artifact(**{**got, "created_at": datetime.fromisoformat(got["created_at"])})
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise _unreadable(place, error) from error


def _record(artifact: Artifact) -> dict[str, Any]:
    names = ("id", "run_id", "sequence", "name", "mime_type", "size")
    record = {name: getattr(artifact, name) for name in names}
    return {**record, "created_at": artifact.created_at.isoformat(), "metadata": dict(artifact.metadata)}


def _write(path: Path, content: bytes) -> None:
    """Write a file whole, or not at all."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=".new-")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _remove(folder: Path) -> None:
    try:
        for path in folder.iterdir():
            path.unlink(missing_ok=True)
        folder.rmdir()
    except OSError as error:
        raise _unwritable(folder, error) from error


def _unwritable(folder: Path, error: OSError) -> RunControlError:
    return RunControlError(
        "runtime_error",
        f"artifacts cannot be written to {str(folder)!r}: {error}",
        retryable=True,
        hint="see that the folder can be written and the disk has room",
    )


def _unreadable(place: Path, error: Exception) -> RunControlError:
    return RunControlError("runtime_error", f"artifact file {str(place)!r} cannot be read: {error}")


def artifact_of(
    run_id: str, content: bytes, *, name: str, mime_type: str, created_at: datetime, sequence: int | None = None
) -> Artifact:
    """Make the record of *content* in a run."""
    return Artifact(
        id=artifact_id(run_id, content, name=name, mime_type=mime_type),
        run_id=run_id,
        sequence=sequence,
        name=name,
        mime_type=mime_type,
        size=len(content),
        created_at=created_at,
    )
