"""Artifacts as files."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphrt.errors import RunControlError
from graphrt.ledger.artifacts import FileArtifactStore, artifact_id, artifact_of
from graphrt.ledger.control import RunControl
from graphrt.ledger.memory import InMemoryRunLedgerStore
from graphrt.ledger.records import Artifact
from graphrt.testing import FakeClock
from tests.ledger.control_helpers import events_of, new_run, said

pytestmark = pytest.mark.anyio

NOW = datetime(2030, 1, 1, tzinfo=UTC)


def made(run_id: str, content: bytes, **fields: Any) -> Artifact:
    given: dict[str, Any] = {"name": "a", "mime_type": "text/plain", "created_at": NOW} | fields
    return artifact_of(run_id, content, **given)


def files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


async def test_what_was_stored_is_read_back(tmp_path: Path) -> None:
    store = FileArtifactStore(tmp_path / "artifacts")
    one, two = made("run", b"one", sequence=3, name="ä/..\\b"), made("run", b"two")
    for artifact, content in ((one, b"one"), (two, b"two")):
        assert await store.put(artifact, content) == artifact
        assert await store.get(artifact.id) == (artifact, content)
    assert await store.of_run("run") == [one, two]
    assert await store.of_run("other") == []
    assert await FileArtifactStore(tmp_path / "artifacts").get(one.id) == (one, b"one")


async def test_the_same_content_of_a_run_is_stored_once(tmp_path: Path) -> None:
    store = FileArtifactStore(tmp_path)
    first = await store.put(made("run", b"x", sequence=1), b"x")
    before = [path.stat().st_mtime_ns for path in files(tmp_path)]
    assert await store.put(made("run", b"x", sequence=2), b"x") == first
    assert [path.stat().st_mtime_ns for path in files(tmp_path)] == before


async def test_the_same_content_under_another_name_or_type_is_another_artifact(tmp_path: Path) -> None:
    """L-036."""
    store = FileArtifactStore(tmp_path)
    several = [made("run", b"x"), made("run", b"x", name="b"), made("run", b"x", mime_type="text/html")]
    for each in several:
        assert await store.put(each, b"x") == each
    assert {each.id for each in await store.of_run("run")} == {each.id for each in several}
    assert [await store.get(each.id) for each in several] == [(each, b"x") for each in several]


@pytest.mark.parametrize(
    "id",
    [
        *("", "..", "../x", "/etc/passwd", "a/b", "\0"),
        *(
            "a" * 24 + "-" + "b" * 63,
            "A" * 24 + "-" + "b" * 64,
            "." * 24 + "-" + "b" * 64,
            "a" * 24 + "-" + "b" * 64 + "\n",
        ),
    ],
)
async def test_an_id_leads_to_nothing_outside_the_folder(tmp_path: Path, id: str) -> None:
    secret = tmp_path / "x.json"
    secret.write_text("{}")
    store = FileArtifactStore(tmp_path / "artifacts")
    assert await store.get(id) is None
    with pytest.raises(RunControlError) as refusal:
        await store.put(Artifact(**{**_fields(made("run", b"x")), "id": id}), b"x")
    assert refusal.value.code == "invalid_argument"
    assert files(tmp_path) == [secret]


def _fields(artifact: Artifact) -> dict[str, Any]:
    return {name: getattr(artifact, name) for name in Artifact.__slots__}


@settings(max_examples=30)
@given(st.text(max_size=8), st.binary(max_size=20), st.text(st.characters(), max_size=8), st.text(max_size=8))
def test_ids_are_safe_names_whatever_the_run_is_called(run_id: str, content: bytes, name: str, mime_type: str) -> None:
    def id_of(run_id: str = run_id, content: bytes = content, name: str = name, mime_type: str = mime_type) -> str:
        return artifact_id(run_id, content, name=name, mime_type=mime_type)

    run, _, digest = id_of().partition("-")
    assert (len(run), len(digest)) == (24, 64)
    assert set(run + digest) <= set("0123456789abcdef")
    others = [id_of(run_id=run_id + "x"), id_of(content=content + b"x"), id_of(name=name + "x"), id_of(mime_type="x/x")]
    assert id_of() not in others
    assert id_of(name=name + "x") != id_of(mime_type="x" + mime_type)


async def test_a_write_that_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = FileArtifactStore(tmp_path)

    def full(*_: Any) -> None:
        raise OSError("no space left")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(RunControlError, match="no space left") as refusal:
        await store.put(made("run", b"x"), b"x")
    assert (refusal.value.code, refusal.value.retryable) == ("runtime_error", True)
    assert isinstance(refusal.value.__cause__, OSError)
    assert files(tmp_path) == []


async def test_a_file_that_was_changed_is_noticed(tmp_path: Path) -> None:
    store = FileArtifactStore(tmp_path)
    one, two = made("run", b"one"), made("run", b"two")
    await store.put(one, b"one")
    await store.put(two, b"two")
    next(path for path in files(tmp_path) if path.read_bytes() == b"one").write_bytes(b"three")
    next(path for path in files(tmp_path) if path.name == f"{two.id[25:]}.json").write_bytes(b"{")
    for artifact, text in ((one, "was changed"), (two, "cannot be read")):
        with pytest.raises(RunControlError, match=text):
            await store.get(artifact.id)


async def test_a_half_finished_write_is_as_good_as_none(tmp_path: Path) -> None:
    store = FileArtifactStore(tmp_path)
    one = made("run", b"one")
    await store.put(one, b"one")
    next(path for path in files(tmp_path) if path.suffix == ".json").unlink()
    assert (await store.get(one.id), await store.of_run("run")) == (None, [])
    assert await store.put(one, b"one") == one
    assert await store.get(one.id) == (one, b"one")


async def test_many_writers_of_one_artifact_leave_one(tmp_path: Path) -> None:
    store = FileArtifactStore(tmp_path)
    content = b"x" * 100_000
    async with anyio.create_task_group() as tasks:
        for _ in range(8):
            tasks.start_soon(store.put, made("run", content), content)
    assert len(files(tmp_path)) == 2
    assert await store.get(made("run", content).id) == (made("run", content), content)


async def test_files_go_with_their_runs(tmp_path: Path) -> None:
    """L-029c."""
    clock = FakeClock()
    control = RunControl(
        InMemoryRunLedgerStore(), clock=clock, artifacts=FileArtifactStore(tmp_path), max_inline_bytes=10
    )
    for run_id in ("old", "live"):
        await new_run(control, run_id)
        await control.append_run_result(run_id, said("more than ten bytes"))
    await control.finalize_run("old", "completed")
    ref = (await events_of(control, "live"))[0].artifact_refs[0]
    clock.advance(timedelta(days=1))
    assert await control.prune_runs(timedelta(hours=1)) == 1
    assert len(files(tmp_path)) == 2
    assert (await control.read_artifact(ref))[0].run_id == "live"
