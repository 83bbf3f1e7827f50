"""Numbers of results, as the journal repairs them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphrt.errors import RunControlError
from graphrt.ledger.control import RunControl
from graphrt.ledger.memory import InMemoryRunLedgerStore
from graphrt.ledger.requests import PAYLOADS, TERMINAL_TYPES, check_payload
from graphrt.platform import AgentRunResult, ResultType, RunJournal
from graphrt.platform.journal import place
from tests.platform.helpers import events_of, rights

GIVEN = st.none() | st.integers(-2, 12) | st.sampled_from(["1", 2.0, True, 2**64])


@given(st.lists(GIVEN, max_size=30))
def test_numbers_only_go_up_and_only_duplicates_are_dropped(given_numbers: list[Any]) -> None:
    """X-23."""
    stored: list[int] = []
    for number in given_numbers:
        placed = place(number, stored[-1] if stored else 0, stored)
        if placed is None:
            assert number in stored
            continue
        assert placed > (stored[-1] if stored else 0)
        if type(number) is int and number == placed:
            assert number not in stored
        stored.append(placed)
    kept = [each for each in given_numbers if not (type(each) is int and 1 <= each <= 12)]
    assert len(stored) >= len(kept)


@pytest.mark.anyio
async def test_a_journal_goes_on_after_what_the_run_has() -> None:
    control = RunControl(InMemoryRunLedgerStore())
    run = (await control.create_run(run_id="run", runner_id="r", authorization=rights())).run
    await control.append_run_result("run", {"type": "custom.n"}, 2)
    journal = RunJournal(control, run)
    await journal.open()
    for number in (2, 1, None):
        await journal.record(AgentRunResult("run", "custom.n", sequence=number))
    assert [each.sequence for each in await events_of(control)] == [2, 3, 4]


@pytest.mark.anyio
async def test_a_result_may_be_a_mapping() -> None:
    control = RunControl(InMemoryRunLedgerStore())
    run = (await control.create_run(run_id="run", runner_id="r", authorization=rights())).run
    journal = RunJournal(control, run)
    assert await journal.record({"type": "custom.n", "data": {"n": 1}}) == AgentRunResult(
        "run", "custom.n", {"n": 1}, sequence=1
    )
    assert await journal.record({"kind": "custom.n"}) is None
    assert await journal.record(None) is None


NEEDED: dict[str, dict[str, Any]] = {
    "message.delta": {"chunk": {"role": "assistant", "content": "x"}},
    "message.completed": {"message": {"role": "assistant", "content": "x"}},
    "tool.call.started": {"tool_call_id": "1", "tool_name": "t"},
    "tool.call.completed": {"tool_call_id": "1", "tool_name": "t"},
    "artifact.created": {"name": "a", "content": "x"},
    "state.updated": {"scope": "run", "key": "k", "value": None},
    "action.requested": {"action": "a"},
    "run.completed": {},
    "run.failed": {},
}


def test_every_known_type_says_what_it_has_to_hold() -> None:
    assert set(ResultType) == set(PAYLOADS) == set(NEEDED)
    assert {each for each in ResultType if each.startswith("run.")} == TERMINAL_TYPES


@pytest.mark.parametrize("type", NEEDED)
def test_a_payload_is_let_through_with_more_and_refused_with_less(type: str) -> None:
    """X-24."""
    needed = NEEDED[type]
    assert check_payload(type, {**needed, "more": 1}) is not None
    for name in needed:
        with pytest.raises(RunControlError) as refusal:
            check_payload(type, {key: value for key, value in needed.items() if key != name})
        assert (refusal.value.code, refusal.value.details["fields"]) == ("invalid_argument", [name])


def test_a_type_that_is_not_known_may_hold_anything() -> None:
    assert check_payload("custom.n", {"any": "thing"}) is None
