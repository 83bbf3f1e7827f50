"""Queued runs go to one worker at a time, and come back when it is gone."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any

import anyio
import pytest

from graphrt.errors import ConfigError, RunControlError
from graphrt.ledger.queue import ExecutionQueue
from graphrt.ledger.records import AgentRun, Claim, RunChange, RunFilter
from graphrt.ledger.status import TERMINAL, AgentRunStatus
from graphrt.ledger.store import RunLedgerStore
from graphrt.messages import TokenUsage
from graphrt.testing import FakeClock
from tests.ledger.queueing import queued, status_of
from tests.ledger.stores import new_run

pytestmark = pytest.mark.anyio

S = AgentRunStatus


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
async def queue(store: RunLedgerStore, clock: FakeClock) -> ExecutionQueue:
    return ExecutionQueue(store, clock=clock, max_attempts=3, dispatch_seconds=60)


async def read(store: RunLedgerStore, run_id: str = "a") -> AgentRun:
    run = await store.get_run(run_id)
    assert run is not None
    return run


async def taken(queue: ExecutionQueue, worker: str = "w", **how: Any) -> Claim:
    claim = await queue.claim_run(worker, 15, **how)
    assert claim is not None
    return claim


# --- into the queue ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [S.CREATED, S.QUEUED, S.WAITING])
async def test_a_run_that_nobody_has_at_work_is_queued(
    store: RunLedgerStore, queue: ExecutionQueue, status: AgentRunStatus
) -> None:
    await store.create_run(new_run("a", status=status))
    run = await queue.enqueue("a", 7)
    assert (run.status, run.priority) == (S.QUEUED, 7)


async def test_a_run_that_a_worker_holds_is_not_queued(store: RunLedgerStore, queue: ExecutionQueue) -> None:
    await queued(store, "a")
    await taken(queue)
    with pytest.raises(RunControlError) as caught:
        await queue.enqueue("a")
    assert caught.value.code == "conflict"
    assert (await read(store)).status is S.CLAIMED


async def test_a_run_at_work_without_a_claim_is_not_queued(store: RunLedgerStore, queue: ExecutionQueue) -> None:
    await store.create_run(new_run("a", status=S.RUNNING))
    with pytest.raises(RunControlError, match="is running") as caught:
        await queue.enqueue("a")
    assert caught.value.code == "conflict"
    assert (await read(store)).status is S.RUNNING


async def test_an_unknown_run_is_not_queued(queue: ExecutionQueue) -> None:
    with pytest.raises(RunControlError) as caught:
        await queue.enqueue("nobody")
    assert caught.value.code == "not_found"


@pytest.mark.parametrize("status", sorted(TERMINAL))
async def test_a_run_that_is_over_is_not_queued(
    store: RunLedgerStore, queue: ExecutionQueue, status: AgentRunStatus
) -> None:
    await store.create_run(new_run("a", status=status))
    with pytest.raises(RunControlError) as caught:
        await queue.enqueue("a")
    assert caught.value.code == "conflict"


@pytest.mark.parametrize("status", sorted(TERMINAL - {S.COMPLETED}))
async def test_a_run_that_ended_badly_is_queued_by_an_explicit_resume(
    store: RunLedgerStore, queue: ExecutionQueue, status: AgentRunStatus
) -> None:
    await store.create_run(new_run("a", status=status))
    assert (await queue.enqueue("a", resume=True)).status is S.QUEUED


async def test_a_completed_run_is_not_queued_again_by_a_resume(store: RunLedgerStore, queue: ExecutionQueue) -> None:
    await store.create_run(new_run("a", status=S.COMPLETED))
    with pytest.raises(RunControlError):
        await queue.enqueue("a", resume=True)


# --- out of the queue ----------------------------------------------------------------------------------------


async def test_two_workers_get_different_runs_the_more_urgent_first(
    store: RunLedgerStore, queue: ExecutionQueue
) -> None:
    """AC-L31."""
    await store.create_run(new_run("low"))
    await store.create_run(new_run("high"))
    await queue.enqueue("low", priority=1)
    await queue.enqueue("high", priority=5)
    claims: dict[str, Claim | None] = {}

    async def claim(worker: str) -> None:
        claims[worker] = await queue.claim_run(worker, 15)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(claim, "w")
        tasks.start_soon(claim, "v")
    got = [claim for claim in claims.values() if claim is not None]
    assert {claim.run.run_id for claim in got} == {"high", "low"}
    assert len({claim.token for claim in got}) == 2
    assert [claim.attempt for claim in got] == [1, 1]
    assert await queue.claim_run("u", 15) is None


async def test_runs_come_by_priority_and_then_by_age(store: RunLedgerStore, queue: ExecutionQueue) -> None:
    for run_id, priority in [("a", 0), ("b", 2), ("c", 0), ("d", 2), ("e", -1)]:
        await queued(store, run_id, priority=priority)
    got = [(await taken(queue)).run.run_id for _ in range(5)]
    assert got == ["b", "d", "a", "c", "e"]


async def test_no_token_is_seen_by_readers(store: RunLedgerStore, queue: ExecutionQueue) -> None:
    """X-29."""
    await queued(store, "a")
    claim = await taken(queue)
    assert claim.token not in repr(await read(store))
    assert claim.token not in repr(claim.run)
    assert claim.run.claimed_by == "w"


async def test_one_run_enqueued_many_times_is_claimed_once(store: RunLedgerStore, queue: ExecutionQueue) -> None:
    """B-081."""
    await store.create_run(new_run("a"))
    got: list[Claim] = []

    async def start(number: int) -> None:
        await queue.enqueue("a")
        claim = await queue.claim_run(f"w{number}", 15)
        if claim is not None:
            got.append(claim)

    async def start_if_free(number: int) -> None:
        try:
            await start(number)
        except RunControlError as error:
            assert error.code == "conflict"  # noqa: PT017 - whoever comes after the claim is told so

    async with anyio.create_task_group() as tasks:
        for number in range(50):
            tasks.start_soon(partial(start_if_free, number))
    assert len(got) == 1


# --- renewing and giving back --------------------------------------------------------------------------------


async def test_only_the_holder_renews_and_only_in_time(
    store: RunLedgerStore, queue: ExecutionQueue, clock: FakeClock
) -> None:
    """X-29."""
    await queued(store, "a")
    claim = await taken(queue)
    assert not await queue.renew("a", "wrong", 15)
    clock.advance(14)
    assert await queue.renew("a", claim.token, 15)
    clock.advance(14)
    assert await queue.recover_expired() == []
    clock.advance(1)
    assert not await queue.renew("a", claim.token, 15)
    assert not await queue.release("a", claim.token)
    assert not await queue.release("a", claim.token, failed="late")


async def test_a_run_handed_back_is_queued_again_and_no_attempt_has_failed(
    store: RunLedgerStore, queue: ExecutionQueue
) -> None:
    await queued(store, "a")
    claim = await taken(queue)
    for attempt in range(1, 10):
        assert claim.attempt == attempt
        await queue.begin("a", claim.token)
        assert await queue.release("a", claim.token)
        assert (await read(store)).status is S.QUEUED
        assert not await queue.release("a", claim.token)
        claim = await taken(queue)


async def test_a_claimed_run_is_dispatched_and_then_begun(
    store: RunLedgerStore, queue: ExecutionQueue, clock: FakeClock
) -> None:
    await queued(store, "a")
    claim = await taken(queue)
    assert (await queue.dispatch("a", claim.token)).status is S.DISPATCHING
    with pytest.raises(RunControlError):
        await queue.begin("a", "wrong")
    run = await queue.begin("a", claim.token)
    assert (run.status, run.started_at) == (S.RUNNING, clock.now())


async def test_an_attempt_that_failed_leaves_nothing_on_the_queued_run_but_its_history(
    store: RunLedgerStore, queue: ExecutionQueue, clock: FakeClock
) -> None:
    """B-089."""
    await queued(store, "a", metadata={"of": "the caller"})
    claim = await taken(queue)
    await queue.begin("a", claim.token)
    left = RunChange(
        usage=TokenUsage(input_tokens=3), metadata={"result": 7, "trace_id": "t1"}, status_reason="half way"
    )
    await store.change_run("a", left, now=clock.now(), token=claim.token)
    assert await queue.release("a", claim.token, failed="the disk was full")
    run = await read(store)
    assert (run.status, run.status_reason, run.usage, run.claimed_by) == (S.QUEUED, None, None, None)
    assert run.metadata["of"] == "the caller"
    assert {"result", "trace_id"}.isdisjoint(run.metadata)
    (attempt,) = run.metadata["graphrt.attempts"]
    assert attempt == {
        "attempt": 1,
        "worker": "w",
        "reason": "the disk was full",
        "at": clock.now().isoformat(),
        "result": 7,
        "trace_id": "t1",
    }


async def test_a_run_fails_for_good_after_its_last_attempt(
    store: RunLedgerStore, queue: ExecutionQueue, clock: FakeClock
) -> None:
    await queued(store, "a")
    for _ in range(2):
        claim = await taken(queue)
        assert await queue.release("a", claim.token, failed="no luck")
    claim = await taken(queue)
    assert await queue.release("a", claim.token, failed="no luck")
    run = await read(store)
    assert (run.status, run.finished_at) == (S.FAILED, clock.now())
    assert run.status_reason == "given up after 3 attempts: no luck"
    assert await queue.claim_run("w", 15) is None


async def test_waiting_for_people_uses_up_no_attempt(
    store: RunLedgerStore, queue: ExecutionQueue, clock: FakeClock
) -> None:
    await queued(store, "a")
    for _ in range(5):
        claim = await taken(queue)
        await queue.begin("a", claim.token)
        await store.change_run("a", RunChange(status=S.WAITING), now=clock.now(), token=claim.token)
        await queue.enqueue("a")
    await taken(queue)
    clock.advance(15)
    (run,) = await queue.recover_expired()
    assert (run.status, run.attempt) == (S.QUEUED, 6)


# --- workers that are gone -----------------------------------------------------------------------------------


@pytest.mark.parametrize("begun", [False, True])
async def test_a_run_whose_worker_is_gone_gets_another_with_a_new_token(
    store: RunLedgerStore, queue: ExecutionQueue, clock: FakeClock, *, begun: bool
) -> None:
    """X-29."""
    await queued(store, "a")
    first = await taken(queue)
    if begun:
        await queue.begin("a", first.token)
    clock.advance(14.9)
    assert await queue.claim_run("v", 15) is None
    clock.advance(0.1)
    second = await taken(queue, "v")
    assert (second.attempt, second.run.claimed_by) == (2, "v")
    assert second.token != first.token
    with pytest.raises(RunControlError):
        await queue.begin("a", first.token)


async def test_a_recovered_run_keeps_its_place_before_less_urgent_ones(
    store: RunLedgerStore, queue: ExecutionQueue, clock: FakeClock
) -> None:
    await queued(store, "urgent", priority=5)
    await taken(queue)
    await queued(store, "other")
    clock.advance(15)
    assert (await taken(queue)).run.run_id == "urgent"


async def test_a_run_that_is_not_begun_in_time_is_taken_away(
    store: RunLedgerStore, queue: ExecutionQueue, clock: FakeClock
) -> None:
    await queued(store, "a")
    await queued(store, "b")
    idle, busy = await taken(queue), await taken(queue)
    await queue.dispatch("a", idle.token)
    await queue.begin("b", busy.token)
    for _ in range(6):
        clock.advance(10)
        assert await queue.renew("a", idle.token, 15)
        assert await queue.renew("b", busy.token, 15)
    assert [run.run_id for run in await queue.recover_expired()] == ["a"]
    assert not await queue.renew("a", idle.token, 15)
    assert await queue.renew("b", busy.token, 15)
    (attempt,) = (await read(store)).metadata["graphrt.attempts"]
    assert "has not begun within 60 s" in attempt["reason"]


async def test_a_run_that_kills_its_workers_fails_in_the_end(
    store: RunLedgerStore, queue: ExecutionQueue, clock: FakeClock
) -> None:
    await queued(store, "a")
    for _ in range(3):
        await taken(queue)
        clock.advance(15)
    (run,) = await queue.recover_expired()
    assert run.status is S.FAILED
    assert run.status_reason is not None
    assert run.status_reason.startswith("given up after 3 attempts: the lease of 'w' has ended")
    assert await queue.recover_expired() == []


async def test_many_workers_recover_each_run_once(
    store: RunLedgerStore, queue: ExecutionQueue, clock: FakeClock
) -> None:
    for number in range(20):
        await queued(store, f"run-{number}")
        await taken(queue)
    clock.advance(15)
    recovered: list[str] = []

    async def recover() -> None:
        recovered.extend(run.run_id for run in await queue.recover_expired())

    async with anyio.create_task_group() as tasks:
        for _ in range(8):
            tasks.start_soon(recover)
    assert sorted(recovered) == sorted(f"run-{number}" for number in range(20))


async def test_a_completed_run_is_not_recovered(store: RunLedgerStore, queue: ExecutionQueue, clock: FakeClock) -> None:
    """B-087."""
    await queued(store, "a")
    claim = await taken(queue)
    await queue.begin("a", claim.token)
    await store.change_run("a", RunChange(status=S.COMPLETED), now=clock.now(), token=claim.token)
    clock.advance(60)
    assert not await queue.renew("a", claim.token, 15)
    assert await queue.recover_expired() == []
    assert (await read(store)).status is S.COMPLETED


# --- runs that are not begun any more ------------------------------------------------------------------------


async def test_a_run_cancelled_in_the_queue_ends_instead_of_being_handed_out(
    store: RunLedgerStore, queue: ExecutionQueue, clock: FakeClock
) -> None:
    await queued(store, "a")
    await queued(store, "b")
    change = RunChange(cancel_requested_at=clock.now(), cancel_reason="no use")
    await store.change_run("a", change, now=clock.now())
    assert (await taken(queue)).run.run_id == "b"
    run = await read(store)
    assert (run.status, run.status_reason, run.claimed_by) == (S.CANCELLED, "no use", None)


async def test_a_run_cancelled_while_its_worker_died_ends_when_it_is_recovered(
    store: RunLedgerStore, queue: ExecutionQueue, clock: FakeClock
) -> None:
    await queued(store, "a")
    await queue.begin("a", (await taken(queue)).token)
    await store.change_run("a", RunChange(cancel_requested_at=clock.now()), now=clock.now())
    clock.advance(15)
    assert await queue.claim_run("v", 15) is None
    assert (await read(store)).status is S.CANCELLED


async def test_a_run_out_of_time_in_the_queue_is_timed_out(
    store: RunLedgerStore, queue: ExecutionQueue, clock: FakeClock
) -> None:
    await queued(store, "a", deadline_at=clock.now() + timedelta(seconds=10))
    clock.advance(10)
    assert await queue.claim_run("w", 15) is None
    run = await read(store)
    assert run.status is S.TIMEOUT
    assert run.status_reason is not None
    assert "deadline" in run.status_reason


# --- graphs that a worker lacks ------------------------------------------------------------------------------


async def test_a_run_of_an_unknown_graph_stays_queued_and_says_so(store: RunLedgerStore, queue: ExecutionQueue) -> None:
    await queued(store, "a", graph_fingerprint="f1", priority=9)
    await queued(store, "b", graph_fingerprint="f2")
    await queued(store, "c")
    got = [await queue.claim_run("w", 15, fingerprints={"f2"}) for _ in range(3)]
    assert [None if claim is None else claim.run.run_id for claim in got] == ["b", "c", None]
    run = await read(store)
    assert run.status is S.QUEUED
    assert run.status_reason == "waits for a worker that has its graph f1; 'w' has not"
    claim = await taken(queue, "v", fingerprints={"f1"})
    assert (claim.run.run_id, claim.run.status_reason) == ("a", None)


async def test_every_queued_run_is_told_that_its_graph_is_lacking(store: RunLedgerStore, queue: ExecutionQueue) -> None:
    for number in range(120):
        await queued(store, f"run-{number}", graph_fingerprint="f1")
    for _ in range(3):
        assert await queue.claim_run("w", 15, fingerprints=()) is None
    assert all([(await read(store, f"run-{number}")).status_reason for number in range(120)])


async def test_a_worker_without_a_list_of_graphs_takes_everything(store: RunLedgerStore, queue: ExecutionQueue) -> None:
    await queued(store, "a", graph_fingerprint="f1")
    assert (await taken(queue)).run.run_id == "a"


# --- settings ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wrong", [{"max_attempts": 0}, {"dispatch_seconds": 0}, {"dispatch_seconds": float("nan")}])
async def test_settings_that_make_no_sense_are_refused(store: RunLedgerStore, wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        ExecutionQueue(store, **wrong)


async def test_without_a_limit_a_run_is_tried_again_and_again(store: RunLedgerStore, clock: FakeClock) -> None:
    queue = ExecutionQueue(store, clock=clock, max_attempts=None, dispatch_seconds=None)
    await queued(store, "a")
    for attempt in range(1, 8):
        assert (await taken(queue)).attempt == attempt
        clock.advance(15)
    assert [run.status for run in await queue.recover_expired()] == [S.QUEUED]
    assert await status_of(store, "a") is S.QUEUED


@pytest.mark.parametrize("priority", ["x", 1.5, True, 2**70])
async def test_priority_that_is_none_is_refused_and_the_queue_goes_on(store: RunLedgerStore, priority: Any) -> None:
    """X-46: also for a run that is created with it."""
    queue = ExecutionQueue(store)
    for run_id in ("a", "b"):
        await store.create_run(new_run(run_id))
    with pytest.raises(RunControlError) as caught:
        await queue.enqueue("a", priority)
    assert caught.value.code == "invalid_argument"
    await queue.enqueue("b", 100)
    claim = await queue.claim_run("w")
    assert claim is not None
    assert claim.run.run_id == "b"
    with pytest.raises(RunControlError) as caught:
        await store.create_run(replace(new_run("c"), priority=priority))
    assert caught.value.code == "invalid_argument"


@pytest.mark.parametrize("limit", [None, "5", 1.5, True])
async def test_limit_that_is_no_whole_number_is_refused(store: RunLedgerStore, limit: Any) -> None:
    """X-46."""
    with pytest.raises(RunControlError) as caught:
        await store.list_runs(RunFilter(), limit=limit)
    assert caught.value.code == "invalid_argument"
    wrong: Any = 5
    with pytest.raises(RunControlError) as caught:
        await store.list_runs(RunFilter(status=wrong))
    assert caught.value.code == "invalid_argument"
