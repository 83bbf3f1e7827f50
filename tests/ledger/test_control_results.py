"""Run control: results are stored as events, and what follows from them is done once."""

from __future__ import annotations

import json
import logging
from types import SimpleNamespace
from typing import Any

import anyio
import pytest

from graphrt.errors import RunControlError
from graphrt.ledger.artifacts import ArtifactStore
from graphrt.ledger.control import RunControl
from graphrt.ledger.records import Artifact, StateEntry, TranscriptEntry
from graphrt.ledger.requests import RunAppendResultRequest
from graphrt.ledger.state import StateScopeStore
from graphrt.ledger.store import RunLedgerStore
from graphrt.ledger.transcript import TranscriptStore
from graphrt.messages import TokenUsage
from graphrt.testing import FakeClock
from tests.ledger.control_helpers import clock_of, events_of, new_run, rights, said

pytestmark = pytest.mark.anyio

MB = 1_000_000


@pytest.fixture
def control(store: RunLedgerStore) -> RunControl:
    return RunControl(store, clock=FakeClock())


def state(scope: str, key: Any = "k", value: Any = 1) -> dict[str, Any]:
    return {"type": "state.updated", "data": {"scope": scope, "key": key, "value": value}}


# --- events


async def test_a_result_appended_again_is_the_stored_event(control: RunControl) -> None:
    """AC-L03."""
    await new_run(control)
    await control.append_run_result("run", said("one"), 1)
    second = await control.append_run_result("run", said("two"), 2)
    again = await control.append_run_result("run", said("two"), 2)
    assert again == second
    assert [each.sequence for each in await events_of(control)] == [1, 2]


async def test_the_first_payload_wins(control: RunControl, caplog: pytest.LogCaptureFixture) -> None:
    """D-21."""
    await new_run(control, conversation_id="c")
    await control.append_run_result("run", said("one"), 1)
    again = await control.append_run_result("run", said("other"), 1)
    assert again.data["message"]["content"] == "one"
    assert "another payload" in caplog.text
    assert [each.content for each in await control.transcript.messages(conversation_id="c")] == ["one"]


async def test_a_gap_is_told_of_and_a_step_back_refused(control: RunControl, caplog: pytest.LogCaptureFixture) -> None:
    """D-21."""
    await new_run(control)
    await control.append_run_result("run", {"type": "custom.n"}, 5)
    assert "gap" in caplog.text
    assert (await control.append_run_result("run", {"type": "custom.n"})).sequence == 6
    for wrong in (3, 0, -1, True, 1.0, "7"):
        with pytest.raises(RunControlError) as refusal:
            await control.append_run_result("run", {"type": "custom.n"}, wrong)  # type: ignore[arg-type]  # what is refused
        assert refusal.value.code == "invalid_argument"
    assert [each.sequence for each in await events_of(control)] == [5, 6]


async def test_the_first_result_starts_the_run_and_the_last_one_tells_its_usage(control: RunControl) -> None:
    """L-029a, X-27."""
    await new_run(control)
    clock_of(control).advance(1)
    await control.append_run_result("run", said("hi"))
    run = await control.get_run("run")
    assert (run.status, run.started_at, run.usage) == ("running", control.clock.now(), None)
    await control.append_run_result("run", {**said("ho"), "usage": {"input_tokens": 1}})
    assert (await control.get_run("run")).usage is None
    event = await control.append_run_result("run", {"type": "run.completed", "usage": {"input_tokens": 9}})
    run = await control.get_run("run")
    assert (run.status, run.usage) == ("running", TokenUsage(9))
    assert event.metadata == {"usage": {"input_tokens": 9}}


@pytest.mark.parametrize(
    "result",
    [
        {"type": "custom.n", "data": {"n": 1}},
        SimpleNamespace(type="custom.n", data={"n": 1}, usage=None, sequence=None),
    ],
)
async def test_a_result_may_have_several_forms(control: RunControl, result: Any) -> None:
    await new_run(control)
    await control.append_run_result("run", result)
    await control.append_run_result(RunAppendResultRequest(run_id="run", result=result, sequence=2))
    assert [(each.type, each.data, each.source) for each in await events_of(control)] == [
        ("custom.n", {"n": 1}, "runner")
    ] * 2


async def test_an_unknown_type_is_stored_and_told_of(control: RunControl, caplog: pytest.LogCaptureFixture) -> None:
    """D-20, L-021."""
    await new_run(control, conversation_id="c")
    await control.append_run_result("run", {"type": "message.whispered", "data": said("psst")["data"]})
    await control.append_run_result("run", {"type": "custom.known", "data": {}})
    assert [each.type for each in await events_of(control)] == ["message.whispered", "custom.known"]
    assert await control.transcript.messages(conversation_id="c") == []
    assert caplog.text.count("is not known") == 1


@pytest.mark.parametrize(
    "wrong",
    [
        None,
        {},
        {"type": ""},
        {"type": "custom.n", "data": [1]},
        {"type": "custom.n", "data": {"n": object()}},
        {"type": "custom.n", "data": {"n": float("inf")}},
        {"type": "custom.n", "usage": {"input_tokens": -1}},
        {"type": "message.completed", "data": {}},
        {"type": "message.completed", "data": {"message": {"role": "assistant"}}},
        {"type": "artifact.created", "data": {"content": "x"}},
        {"type": "artifact.created", "data": {"name": "a", "content": "!", "encoding": "base64"}},
        {"type": "state.updated", "data": {"scope": "run", "value": 1}},
        {"type": "state.updated", "data": {"scope": "run", "key": "", "value": 1}},
        {"type": "message.delta", "data": {"text": "hi"}},
        {"type": "tool.call.started", "data": {"tool_name": "t"}},
        {"type": "tool.call.completed", "data": {}},
        {"type": "action.requested", "data": {"payload": {}}},
        {"type": "run.completed", "data": {"finish_reason": 1}},
        {"type": "run.failed", "data": {"error": 7}},
    ],
)
async def test_a_result_that_cannot_be_carried_out_is_refused(control: RunControl, wrong: Any) -> None:
    await new_run(control, authorization=rights(state_scopes=("run",)))
    before = await control.get_run("run")
    with pytest.raises(RunControlError) as refusal:
        await control.append_run_result("run", wrong)
    assert refusal.value.code == "invalid_argument"
    assert (await events_of(control), await control.get_run("run")) == ([], before)


async def test_text_that_cannot_be_stored_is_made_clean(control: RunControl) -> None:
    await new_run(control, conversation_id="c")
    await control.append_run_result("run", said("a\0b\ud800"))
    assert (await events_of(control))[0].data["message"]["content"] == "a\ufffdb\ufffd"
    assert [each.content for each in await control.transcript.messages(conversation_id="c")] == ["a\ufffdb\ufffd"]


# --- the end


async def test_a_run_that_is_over_takes_only_what_it_has(control: RunControl) -> None:
    """D-40, AC-L35."""
    await new_run(control)
    first = await control.append_run_result("run", said("one"), 1)
    done = await control.finalize_run("run", "completed")
    assert await control.append_run_result("run", said("one"), 1) == first
    for sequence in (None, 2):
        with pytest.raises(RunControlError) as refusal:
            await control.append_run_result("run", said("two"), sequence)
        assert refusal.value.code == "conflict"
    note = await control.record_audit_event("run", "host.reviewed", {"by": "ann"})
    assert (note.sequence, note.source, note.data) == (2, "host", {"by": "ann"})
    assert await control.get_run("run") == done
    assert [each.type for each in await events_of(control)] == ["message.completed", "host.reviewed"]


async def test_a_note_of_the_host_does_not_start_a_run(control: RunControl) -> None:
    """X-28."""
    await new_run(control)
    await control.record_audit_event("run", "host.note")
    assert (await control.get_run("run")).status == "created"
    assert (await control.append_run_result("run", said("hi"))).sequence == 2


# --- the transcript


async def test_a_message_is_in_the_transcript_once_with_its_event(control: RunControl) -> None:
    """AC-L05."""
    await new_run(control, conversation_id="c", thread_id="t")
    await control.append_run_result("run", said("hi"), 3)
    event = await control.append_run_result("run", said("hi"), 3)
    (entry,) = await control.transcript.messages(conversation_id="c")
    assert entry == TranscriptEntry(
        run_id="run",
        sequence=3,
        conversation_id="c",
        thread_id="t",
        role="assistant",
        content="hi",
        created_at=event.created_at,
    )


async def test_history_is_that_of_the_runs_own_conversation(control: RunControl) -> None:
    """L-039."""
    for run_id, place in (("a", ("c", None)), ("b", ("c", "t")), ("c", ("d", None)), ("alone", (None, None))):
        await new_run(control, run_id, conversation_id=place[0], thread_id=place[1])
        await control.append_run_result(run_id, said(run_id))
    assert [each.content for each in await control.read_history("a")] == ["a", "b"]
    assert [each.content for each in await control.read_history("a", limit=1)] == ["b"]
    assert [each.content for each in await control.read_history("b")] == ["b"]
    assert [each.content for each in await control.read_history("alone")] == ["alone"]
    with pytest.raises(RunControlError) as refusal:
        await control.read_history("a", conversation_id="d")
    assert refusal.value.code == "unauthorized"


async def test_one_result_sent_by_many_at_once_is_stored_once(control: RunControl) -> None:
    """L-020."""
    await new_run(control, conversation_id="c")
    async with anyio.create_task_group() as tasks:
        for _ in range(8):
            tasks.start_soon(control.append_run_result, "run", said("hi"), 1)
    assert [each.sequence for each in await events_of(control)] == [1]
    assert [each.content for each in await control.transcript.messages(conversation_id="c")] == ["hi"]


# --- artifacts


async def test_large_data_become_an_artifact(control: RunControl) -> None:
    """AC-L07."""
    await new_run(control)
    data = {"tool_call_id": "1", "tool_name": "read", "result": "x" * MB, "step": {"node": "n"}}
    event = await control.append_run_result("run", {"type": "tool.call.completed", "data": data})
    (stored,) = await events_of(control)
    assert event == stored
    assert len(json.dumps(stored.data)) < 1000
    assert (stored.data["tool_name"], stored.data["step"], "result" in stored.data) == ("read", {"node": "n"}, False)
    (ref,) = stored.artifact_refs
    artifact, content = await control.read_artifact(ref)
    assert json.loads(content) == data
    assert (artifact.run_id, artifact.sequence, artifact.mime_type) == ("run", 1, "application/json")


async def test_what_is_just_small_enough_stays(store: RunLedgerStore) -> None:
    control = RunControl(store, clock=FakeClock(), max_inline_bytes=100)
    await new_run(control)
    for size in (100, 101):
        data = {"n": "x" * (size - len('{"n":""}'))}
        assert len(json.dumps(data, separators=(",", ":"))) == size
        await control.append_run_result("run", {"type": "custom.n", "data": data})
    small, large = await events_of(control)
    assert (small.artifact_refs, "n" in small.data) == ((), True)
    assert (len(large.artifact_refs), large.data["offloaded"]["size"]) == (1, 101)


@pytest.mark.parametrize(
    ("content", "more", "kept"),
    [
        ("hello", {}, b"hello"),
        (b"\0\xff", {}, b"\0\xff"),
        ("AP8=", {"encoding": "base64"}, b"\0\xff"),
        ("x" * MB, {}, b"x" * MB),
    ],
)
async def test_an_artifact_is_kept_with_its_event(control: RunControl, content: Any, more: Any, kept: bytes) -> None:
    """AC-L29."""
    await new_run(control)
    data = {"name": "a.bin", "mime_type": "image/png", "content": content, **more}
    await control.append_run_result("run", {"type": "artifact.created", "data": data}, 4)
    (event,) = await events_of(control)
    assert len(json.dumps(dict(event.data))) < 1000
    artifact, read = await control.read_artifact(event.artifact_refs[0])
    assert (artifact.run_id, artifact.sequence, artifact.name, artifact.mime_type) == ("run", 4, "a.bin", "image/png")
    assert (read, artifact.size) == (kept, len(kept))
    assert await control.list_artifacts("run") == [artifact]


async def test_two_artifacts_with_the_same_content_are_two(control: RunControl) -> None:
    """L-010, L-036, AC-L29."""
    await new_run(control)
    for number, (name, mime_type) in enumerate((("f", "text/plain"), ("g", "text/plain"), ("f", "text/html")), 1):
        result = {"type": "artifact.created", "data": {"name": name, "mime_type": mime_type, "content": "same"}}
        event = await control.append_run_result("run", result, number)
        assert await control.append_run_result("run", result, number) == event
        artifact, content = await control.read_artifact(event.artifact_refs[0])
        found = (artifact.name, artifact.mime_type, artifact.sequence, content)
        assert found == (name, mime_type, event.sequence, b"same")
    assert [(each.name, each.sequence) for each in await control.list_artifacts("run")] == [
        ("f", 1),
        ("g", 2),
        ("f", 3),
    ]


# --- state


async def test_a_value_of_state_is_set_with_its_event(control: RunControl) -> None:
    """L-036, X-32."""
    await new_run(
        control, authorization=rights(state_scopes=("conversation", "project:p1", "notes")), conversation_id="c"
    )
    for scope in ("conversation", "project", "notes"):
        await control.append_run_result("run", state(scope, value=[scope]))
    found = {
        (scope, id): (await control.state.get(scope, id))["k"]
        for scope, id in (("conversation", "c"), ("project", "p1"), ("notes", ""))
    }
    assert [(each.value, each.run_id, each.sequence) for each in found.values()] == [
        (["conversation"], "run", 1),
        (["project"], "run", 2),
        (["notes"], "run", 3),
    ]
    assert (await control.read_state("run", "project"))["k"].value == ["project"]


async def test_a_scope_without_an_id_is_the_runs_own(control: RunControl) -> None:
    for run_id in ("one", "two"):
        await new_run(control, run_id, authorization=rights(state_scopes=("conversation",)))
        await control.append_run_result(run_id, state("conversation", value=run_id))
    assert (await control.read_state("one", "conversation"))["k"].value == "one"


async def test_state_that_may_not_be_set_is_refused(control: RunControl) -> None:
    """X-32."""
    await new_run(control, authorization=rights(state_scopes=("conversation",)))
    for wrong, code in (
        (state("workspace"), "unauthorized"),
        (state("conversation", value={1, 2}), "invalid_argument"),
        (state("conversation", value="x" * 70_000), "payload_too_large"),
    ):
        with pytest.raises(RunControlError) as refusal:
            await control.append_run_result("run", wrong)
        assert refusal.value.code == code
    assert await events_of(control) == []
    with pytest.raises(RunControlError) as refusal:
        await control.read_state("run", "workspace")
    assert refusal.value.code == "unauthorized"


# --- rights


@pytest.mark.parametrize(
    ("kind", "name", "allowed"),
    [
        ("tool", "t", True),
        ("tool", "other", False),
        ("model", "m", True),
        ("file", "f", True),
        ("file", "../f", False),
        ("knowledge_base", "k", True),
        ("storage", "s", True),
        ("state", "st", True),
        ("state", "run", False),
        ("history", "c", True),
        ("history", "d", False),
    ],
)
async def test_a_run_may_use_what_its_snapshot_lists(control: RunControl, kind: str, name: str, allowed: bool) -> None:
    """AC-L21, L-039."""
    await new_run(
        control,
        conversation_id="c",
        authorization=rights(
            allowed_tools=("t",),
            allowed_models=("m",),
            allowed_files=("f",),
            allowed_knowledge_bases=("k",),
            storage_scopes=("s",),
            state_scopes=("st",),
        ),
    )
    if allowed:
        await control.check_access("run", kind, name)
        return
    with pytest.raises(RunControlError) as refusal:
        await control.check_access("run", kind, name)
    assert (refusal.value.code, refusal.value.details["name"]) == ("unauthorized", name)


async def test_there_is_no_other_kind_of_access(control: RunControl) -> None:
    await new_run(control)
    with pytest.raises(RunControlError, match="no access of kind 'moon'"):
        await control.check_access("run", "moon", "x")


# --- what fails in between


class Failing:
    """Fails as often as it is told to, and counts what went through."""

    def __init__(self, times: int) -> None:
        self.times = times
        self.done = 0

    def act(self) -> None:
        if self.times:
            self.times -= 1
            raise OSError("gone for a while")
        self.done += 1


async def test_what_failed_after_the_event_was_stored_is_made_good_and_nothing_is_done_twice(
    store: RunLedgerStore,
) -> None:
    """L-020."""
    failing = Failing(0)

    class Transcript(TranscriptStore):
        async def add(self, entry: TranscriptEntry) -> bool:
            failing.act()
            return await super().add(entry)

    class Artifacts(ArtifactStore):
        async def put(self, artifact: Artifact, content: bytes) -> Artifact:
            failing.act()
            return await super().put(artifact, content)

    class State(StateScopeStore):
        async def set(self, entry: StateEntry) -> bool:
            failing.act()
            return await super().set(entry)

    control = RunControl(
        store, clock=FakeClock(), transcript=Transcript(store), artifacts=Artifacts(store), state=State(store)
    )
    await new_run(control, authorization=rights(state_scopes=("run",)))
    artifact = {"type": "artifact.created", "data": {"name": "a", "content": "x"}}
    for sequence, result in enumerate((said("hi"), artifact, state("run")), start=1):
        failing.times, failing.done = 1, 0
        with pytest.raises(OSError, match="gone for a while"):
            await control.append_run_result("run", result, sequence)
        for _ in range(3):
            await control.append_run_result("run", result, sequence)
        assert failing.done == 1
    assert [each.content for each in await control.transcript.messages(run_id="run")] == ["hi"]
    assert len(await control.list_artifacts("run")) == 1
    assert (await control.read_state("run", "run"))["k"].value == 1


async def test_a_value_that_another_run_has_set_since_stays(control: RunControl) -> None:
    for run_id in ("one", "two"):
        await new_run(control, run_id, conversation_id="c", authorization=rights(state_scopes=("conversation",)))
        await control.append_run_result(run_id, state("conversation", value=run_id), 1)
        clock_of(control).advance(1)
    await control.append_run_result("one", state("conversation", value="one"), 1)
    assert (await control.read_state("one", "conversation"))["k"].value == "two"


async def test_warnings_are_the_ledgers(control: RunControl, caplog: pytest.LogCaptureFixture) -> None:
    await new_run(control)
    await control.append_run_result("run", {"type": "odd"}, 2)
    assert {(each.name, each.levelno) for each in caplog.records} == {("graphrt.ledger", logging.WARNING)}
