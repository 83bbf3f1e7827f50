"""What holds for a run whatever is asked of it, and in whatever order."""

from __future__ import annotations

import tempfile
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphrt.errors import RunControlError
from graphrt.ledger.control import RunControl
from graphrt.ledger.memory import InMemoryRunLedgerStore
from graphrt.ledger.requests import as_json
from graphrt.ledger.sql import SqliteRunLedgerStore
from graphrt.ledger.status import LEGAL_MOVES, TERMINAL, AgentRunStatus
from graphrt.ledger.store import RunLedgerStore
from graphrt.testing import FakeClock
from tests.ledger.control_helpers import clock_of, events_of, new_run, rights, said

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

ENDS = sorted(TERMINAL)
CALLS = st.one_of(
    st.tuples(st.just("append"), st.none() | st.integers(-1, 8), st.integers(0, 2)),
    st.tuples(st.just("state"), st.integers(1, 8), st.integers(0, 2)),
    st.tuples(st.just("audit")),
    st.tuples(st.just("start")),
    st.tuples(st.just("cancel")),
    st.tuples(st.just("finalize"), st.sampled_from([*ENDS, AgentRunStatus.RUNNING])),
)


@asynccontextmanager
async def opened(kind: str) -> AsyncIterator[RunControl]:
    with tempfile.TemporaryDirectory() as folder:
        memory = kind == "memory"
        store: RunLedgerStore = InMemoryRunLedgerStore() if memory else SqliteRunLedgerStore(Path(folder) / "l.db")
        async with store:
            yield RunControl(store, clock=FakeClock())


async def ask(control: RunControl, call: tuple[Any, ...]) -> Any:
    match call:
        case ("append", number, text):
            return await control.append_run_result("run", said(f"{text}"), number)
        case ("state", number, value):
            data = {"scope": "run", "key": "k", "value": value}
            return await control.append_run_result("run", {"type": "state.updated", "data": data}, number)
        case ("audit",):
            return await control.record_audit_event("run", "host.note")
        case ("start",):
            return await control.start_run("run")
        case ("cancel",):
            return await control.cancel_run("run")
        case ("finalize", status):
            return await control.finalize_run("run", status)
    raise AssertionError(call)


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
@settings(max_examples=20)
@given(st.lists(CALLS, max_size=15))
def test_whatever_is_asked_events_only_grow_and_ends_are_final(kind: str, calls: list[tuple[Any, ...]]) -> None:
    """D-21, D-40."""

    async def check() -> None:
        async with opened(kind) as control:
            await new_run(control, conversation_id="c", authorization=rights(state_scopes=("run",)))
            for call in calls:
                clock_of(control).advance(1)
                before, events = await control.get_run("run"), await events_of(control)
                try:
                    await ask(control, call)
                    code = None
                except RunControlError as error:
                    code = error.code
                assert code in (None, "invalid_argument", "conflict")
                after, now = await control.get_run("run"), await events_of(control)
                if code is not None:
                    assert (after, now) == (before, events)
                assert now[: len(events)] == events
                assert [each.sequence for each in now] == sorted({each.sequence for each in now})
                assert after.status in LEGAL_MOVES[before.status] | {before.status}
                if before.is_terminal:
                    assert after == before
                    assert {each.source for each in now[len(events) :]} <= {"host"}
                assert (after.finished_at is None) == (not after.is_terminal)
            await _effects_match(control)

    anyio.run(check)


async def _effects_match(control: RunControl) -> None:
    """Assert that what follows from the events is there, once, and nothing else."""
    events = await events_of(control)
    messages = [(each.sequence, each.data["message"]["content"]) for each in events if each.type == "message.completed"]
    entries = await control.transcript.messages(conversation_id="c")
    assert [(each.sequence, each.content) for each in entries] == messages
    values = [(each.sequence, each.data["value"]) for each in events if each.type == "state.updated"]
    found = (await control.read_state("run", "run")).values()
    assert [(each.sequence, each.value) for each in found] == values[-1:]


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=60)
@given(JSON)
def test_json_is_given_back_as_a_copy_that_can_be_stored_anywhere(value: Any) -> None:
    copy, text = as_json(value, "it")
    assert as_json(copy, "it") == (copy, text)
    assert b"\\u0000" not in text
    if isinstance(value, (list, dict)) and value:
        assert copy is not value


@settings(max_examples=25)
@given(
    st.dictionaries(st.text("ab", min_size=1, max_size=2), st.text("xyz", max_size=60), max_size=5),
    st.integers(20, 200),
)
def test_an_event_is_never_larger_than_allowed_and_nothing_is_lost(data: dict[str, str], limit: int) -> None:
    """L-022."""

    async def check() -> None:
        control = RunControl(InMemoryRunLedgerStore(), max_inline_bytes=limit)
        await new_run(control)
        await control.append_run_result("run", {"type": "custom.n", "data": data})
        (event,) = await events_of(control)
        if not event.artifact_refs:
            assert event.data == data
            assert len(as_json(data, "it")[1]) <= limit
            return
        content = (await control.read_artifact(event.artifact_refs[0]))[1]
        assert content == as_json(data, "it")[1]
        assert len(content) > limit

    anyio.run(check)
