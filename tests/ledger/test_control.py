"""Run control: runs are written down, read, cancelled and closed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import anyio
import pytest

from graphrt.errors import RunControlError
from graphrt.ledger.control import RunControl
from graphrt.ledger.records import RunFilter
from graphrt.ledger.requests import RunCreateRequest
from graphrt.ledger.status import TERMINAL, AgentRunStatus
from graphrt.ledger.store import RunLedgerStore
from graphrt.messages import TokenUsage
from graphrt.testing import FakeClock
from tests.ledger.control_helpers import clock_of, events_of, new_run, rights, said

pytestmark = pytest.mark.anyio


@pytest.fixture
def control(store: RunLedgerStore) -> RunControl:
    return RunControl(store, clock=FakeClock())


# --- creating


async def test_a_new_run_is_written_down_with_all_that_is_said_of_it(control: RunControl) -> None:
    """AC-L01."""
    fields: dict[str, Any] = {
        "event_id": "e",
        "agent_id": "a",
        "binding_id": "b",
        "runner_id": "r",
        "conversation_id": "c",
        "thread_id": "t",
        "workspace_id": "w",
        "bot_id": "bot",
        "priority": 3,
        "graph_fingerprint": "f",
        "metadata": {"delivery_target": {"to": "ann"}},
    }
    zone = timezone(timedelta(hours=2))
    made = await control.create_run(
        RunCreateRequest(
            run_id="run", authorization=rights(), deadline_at=datetime(2031, 1, 1, 2, tzinfo=zone), **fields
        )
    )
    run = await control.get_run("run")
    assert (made.created, made.run, run.status) == (True, run, "created")
    assert {name: getattr(run, name) for name in fields} == fields
    assert (run.deadline_at, run.created_at, run.updated_at) == (
        datetime(2031, 1, 1, tzinfo=UTC),
        control.clock.now(),
        control.clock.now(),
    )
    unset = (run.started_at, run.finished_at, run.cancel_requested_at, run.status_reason, run.usage, run.cancel_reason)
    assert unset == (None,) * 6
    assert run.attempt == 0


async def test_a_run_of_the_same_id_is_not_written_down_twice(control: RunControl) -> None:
    """X-22."""
    await new_run(control, agent_id="one")
    again = await control.create_run(run_id="run", runner_id="r", authorization=rights(), agent_id="two")
    assert (again.created, again.run.agent_id) == (False, "one")


async def test_a_run_without_a_name_is_given_one(control: RunControl) -> None:
    names = {(await control.create_run(runner_id="r", authorization=rights())).run.run_id for _ in range(3)}
    assert len(names) == 3


async def test_what_a_run_may_touch_is_frozen_with_it(control: RunControl) -> None:
    """L-038, L-039."""
    policy = {"tools": ["a"]}
    snapshot = rights(allowed_tools=("a",), resource_policy=policy)
    await new_run(control, authorization=snapshot, conversation_id="c")
    policy["tools"].append("b")
    (await control.get_run("run")).authorization.resource_policy["tools"].append("b")
    kept = (await control.get_run("run")).authorization
    assert (kept.resource_policy, kept.allowed_tools, kept.conversation_id) == ({"tools": ["a"]}, ("a",), "c")


async def test_what_the_snapshot_says_of_the_place_holds_for_the_run(control: RunControl) -> None:
    await new_run(control, authorization=rights(conversation_id="c", workspace_id="w", binding_id="b"))
    run = await control.get_run("run")
    assert (run.conversation_id, run.workspace_id, run.binding_id) == ("c", "w", "b")


@pytest.mark.parametrize(
    "wrong",
    [
        {"runner_id": "other"},
        {"conversation_id": "c", "authorization": rights(conversation_id="d")},
        {"runner_id": ""},
        {"run_id": ""},
        {"unknown": 1},
        {"authorization": None},
        {"deadline_at": datetime(2030, 1, 1)},  # noqa: DTZ001 - what is refused
        {"metadata": {"a": object()}},
        {"metadata": {"a": float("nan")}},
        {"input": {"role": "user"}},
    ],
)
async def test_a_request_that_does_not_fit_is_refused(control: RunControl, wrong: dict[str, Any]) -> None:
    given: dict[str, Any] = {"run_id": "run", "runner_id": "r", "authorization": rights()} | wrong
    with pytest.raises(RunControlError) as refusal:
        await control.create_run(given)
    assert (refusal.value.code, refusal.value.retryable) == ("invalid_argument", False)
    assert (await control.list_runs()).items == []


# --- reading


async def test_a_run_that_is_not_there_is_not_found(control: RunControl) -> None:
    calls = [
        control.get_run("no"),
        control.start_run("no"),
        control.cancel_run("no"),
        control.finalize_run("no", "failed"),
        control.page_run_events("no"),
        control.append_run_result("no", said("hi")),
        control.record_audit_event("no", "host.note"),
        control.check_access("no", "tool", "t"),
        control.read_history("no"),
        control.list_artifacts("no"),
        control.wait_run("no", 0.0),
        control.read_artifact("no"),
    ]
    for call in calls:
        with pytest.raises(RunControlError) as refusal:
            await call
        assert refusal.value.code == "not_found"


async def test_runs_are_listed_by_what_they_are_newest_first(control: RunControl) -> None:
    """AC-L11."""
    for index in range(120):
        clock_of(control).advance(1)
        await new_run(control, f"run-{index:03}", conversation_id=f"c{index % 2}")
    for index in (1, 5, 6):
        await control.start_run(f"run-{index:03}")
    found, cursor, pages = [], None, 0
    while True:
        page = await control.list_runs(conversation_id="c1", status="running", cursor=cursor, limit=1)
        found += [run.run_id for run in page.items]
        pages += 1
        if not page.has_more:
            break
        cursor = page.next_cursor
    assert (found, pages) == (["run-005", "run-001"], 2)
    assert len((await control.list_runs(limit=1000)).items) == 100
    assert len((await control.list_runs(limit=0)).items) == 1
    assert len((await control.list_runs()).items) == 50
    both = await control.list_runs(RunFilter(status=["running", "failed"]), conversation_id="c0")  # type: ignore[list-item]  # names are read as statuses
    assert [run.run_id for run in both.items] == ["run-006"]


@pytest.mark.parametrize(
    "wrong", [{"status": "bogus"}, {"status": ["running", "bogus"]}, {"colour": "red"}, {"cursor": "xx"}]
)
async def test_a_list_that_makes_no_sense_is_refused(control: RunControl, wrong: dict[str, Any]) -> None:
    with pytest.raises(RunControlError) as refusal:
        await control.list_runs(**wrong)
    assert refusal.value.code == "invalid_argument"


async def test_paging_through_a_growing_run_loses_and_repeats_nothing(control: RunControl) -> None:
    """L-026."""
    await new_run(control)
    for index in range(5):
        await control.append_run_result("run", {"type": "custom.n", "data": {"n": index}})
    seen: list[int] = []
    cursor = None
    for turn in range(8):
        page = await control.page_run_events("run", cursor, 2)
        seen += [each.data["n"] for each in page.items]
        cursor = page.next_cursor
        if turn in (1, 2, 5):
            await control.append_run_result("run", {"type": "custom.n", "data": {"n": len(await events_of(control))}})
    assert seen == list(range(8))


async def test_waiting_has_a_time_of_its_own(control: RunControl) -> None:
    """X-40."""
    await new_run(control)
    with pytest.raises(RunControlError) as refusal:
        await control.wait_run("run", 0.0)
    assert (refusal.value.code, refusal.value.retryable) == ("deadline_exceeded", True)
    assert (await control.get_run("run")).status == "created"
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(control.finalize_run, "run", "completed")
        assert (await control.wait_run("run", 10)).status == "completed"
    assert (await control.wait_run("run")).status == "completed"


# --- moving


async def test_a_run_is_started_once(control: RunControl) -> None:
    """L-029a, L-017."""
    await new_run(control)
    clock_of(control).advance(2)
    run = await control.start_run("run")
    assert (run.status, run.started_at, run.updated_at) == ("running", control.clock.now(), control.clock.now())
    clock_of(control).advance(2)
    assert await control.start_run("run") == run


async def test_a_cancel_only_says_what_is_wanted(control: RunControl) -> None:
    """AC-L13."""
    await new_run(control)
    await control.start_run("run")
    run = await control.cancel_run("run", "enough")
    assert (run.status, run.cancel_reason, run.cancel_requested_at) == ("running", "enough", control.clock.now())
    clock_of(control).advance(1)
    assert await control.cancel_run("run", "really") == run
    done = await control.finalize_run("run", "completed")
    assert await control.cancel_run("run", "late") == done


async def test_a_cancel_after_the_end_changes_nothing(control: RunControl) -> None:
    await new_run(control)
    done = await control.finalize_run("run", "completed")
    assert await control.cancel_run("run", "late") == done
    assert done.cancel_requested_at is None


async def test_who_watches_hears_of_a_cancel_once(control: RunControl) -> None:
    heard: list[str] = []
    await new_run(control)
    end = control.watch_cancel("run", lambda: heard.append("a"))
    other = control.watch_cancel("run", lambda: heard.append("b"))
    other()
    other()
    await control.using().cancel_run("run")
    await control.cancel_run("run")
    assert heard == ["a"]
    end()


@pytest.mark.parametrize("status", ["running", "bogus", "waiting", "created"])
async def test_a_run_is_not_closed_as_what_is_no_end(control: RunControl, status: str) -> None:
    """AC-L09."""
    await new_run(control)
    before = await control.start_run("run")
    with pytest.raises(RunControlError) as refusal:
        await control.finalize_run("run", status)
    assert refusal.value.code == "invalid_argument"
    assert await control.get_run("run") == before


async def test_a_run_is_closed_with_its_reason(control: RunControl) -> None:
    """AC-L09, D-41."""
    await new_run(control, metadata={"a": 1, "b": 1})
    await control.start_run("run")
    clock_of(control).advance(3)
    run = await control.finalize_run("run", "failed", "no luck", usage=TokenUsage(1, 2), metadata={"b": 2})
    assert (run.status, run.status_reason, run.finished_at) == ("failed", "no luck", control.clock.now())
    assert (run.usage, run.metadata) == (TokenUsage(1, 2), {"a": 1, "b": 2})


async def test_an_exception_may_be_the_reason(control: RunControl) -> None:
    await new_run(control)
    assert (await control.finalize_run("run", "failed", ValueError("x"))).status_reason == "ValueError: x"


@pytest.mark.parametrize("first", sorted(TERMINAL))
async def test_an_end_is_final(control: RunControl, first: AgentRunStatus) -> None:
    """D-40."""
    await new_run(control)
    done = await control.finalize_run("run", first, "why")
    for again in sorted(TERMINAL):
        if again is first:
            assert await control.finalize_run("run", again, "other", metadata={"x": 1}) == done
            continue
        with pytest.raises(RunControlError) as refusal:
            await control.finalize_run("run", again)
        assert refusal.value.code == "conflict"
    with pytest.raises(RunControlError) as refusal:
        await control.start_run("run")
    assert refusal.value.code == "conflict"
    assert await control.get_run("run") == done


async def test_finished_runs_are_removed_with_all_they_left(control: RunControl) -> None:
    """L-029c."""
    for run_id, status in (("old", "completed"), ("bad", "failed"), ("live", None)):
        await new_run(control, run_id, conversation_id="c")
        await control.append_run_result(run_id, said("hi"))
        await control.append_run_result(run_id, {"type": "artifact.created", "data": {"name": "a", "content": run_id}})
        if status is not None:
            await control.finalize_run(run_id, status)
    artifact = (await events_of(control, "old"))[1].artifact_refs[0]
    clock_of(control).advance(timedelta(days=3))
    assert await control.prune_runs(timedelta(days=5)) == 0
    assert await control.prune_runs(control.clock.now(), status="completed") == 1
    assert [run.run_id for run in (await control.list_runs()).items] == ["live", "bad"]
    assert {each.run_id for each in await control.transcript.messages(conversation_id="c")} == {"live", "bad"}
    with pytest.raises(RunControlError):
        await control.read_artifact(artifact)
    assert await control.prune_runs(timedelta(days=1)) == 1


@pytest.mark.parametrize("wrong", [(datetime(2030, 1, 1), None), (timedelta(1), "running"), (timedelta(1), ["x"])])  # noqa: DTZ001 - what is refused
async def test_what_is_not_over_is_not_removed(control: RunControl, wrong: Any) -> None:
    with pytest.raises(RunControlError) as refusal:
        await control.prune_runs(*wrong)
    assert refusal.value.code == "invalid_argument"


# --- claims


async def test_a_claimed_run_is_changed_only_with_its_token(control: RunControl) -> None:
    """X-29, D-43."""
    await new_run(control)
    claim = await control.store.claim_run("w", 30, now=control.clock.now(), run_id="run")
    assert claim is not None
    calls: list[Any] = [
        control.append_run_result("run", said("hi")),
        control.append_run_result("run", said("hi"), claim_token="wrong"),  # noqa: S106 - a wrong token
        control.finalize_run("run", "completed"),
        control.start_run("run"),
        control.record_audit_event("run", "host.note"),
    ]
    for call in calls:
        with pytest.raises(RunControlError) as refusal:
            await call
        assert refusal.value.code == "conflict"
    assert (await control.cancel_run("run")).cancel_requested_at is not None
    await control.append_run_result("run", said("hi"), claim_token=claim.token)
    assert (await control.finalize_run("run", "completed", claim_token=claim.token)).status == "completed"
