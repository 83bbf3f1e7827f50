"""Runs with a time of their own: not claimed before it, put into the queue when it comes, made for it by a schedule."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from itertools import pairwise
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphrt.errors import ConfigError, RunControlError
from graphrt.ledger import ExecutionQueue, RunLedgerStore, Schedule
from graphrt.ledger.memory import InMemoryRunLedgerStore
from graphrt.ledger.records import AgentRun, RunChange
from graphrt.ledger.status import AgentRunStatus
from graphrt.messages import TokenUsage
from graphrt.testing import FakeClock
from tests.ledger.queueing import START, LoopClock, queued, run_in_fake_time
from tests.ledger.stores import new_run

pytestmark = pytest.mark.anyio

S = AgentRunStatus
HOUR = timedelta(hours=1)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
async def queue(store: RunLedgerStore, clock: FakeClock) -> ExecutionQueue:
    return ExecutionQueue(store, clock=clock)


async def read(store: RunLedgerStore, run_id: str = "a") -> AgentRun:
    run = await store.get_run(run_id)
    assert run is not None
    return run


async def left_waiting(
    store: RunLedgerStore, clock: FakeClock, wake_at: datetime | None, run_id: str = "a", **change: Any
) -> AgentRun:
    """Let a worker begin a run, and leave it waiting."""
    await queued(store, run_id, clock.now())
    claim = await store.claim_run("w", 15, now=clock.now(), run_id=run_id)
    assert claim is not None
    await store.change_run(run_id, RunChange(status=S.RUNNING), now=clock.now(), token=claim.token)
    waits = RunChange(status=S.WAITING, wake_at=wake_at, **change)
    return await store.change_run(run_id, waits, now=clock.now(), token=claim.token)


# --- queued runs


async def test_queued_run_is_claimed_at_its_time_and_not_before(
    store: RunLedgerStore, queue: ExecutionQueue, clock: FakeClock
) -> None:
    await store.create_run(new_run("a", now=clock.now()))
    begin = clock.now() + HOUR
    run = await queue.enqueue("a", not_before=begin.astimezone(timezone(HOUR)))
    assert (run.status, run.wake_at) == (S.QUEUED, begin)
    clock.advance(3599)
    assert await queue.claim_run("w") is None
    clock.advance(1)
    claim = await queue.claim_run("w")
    assert claim is not None
    assert (claim.run.run_id, claim.run.wake_at) == ("a", None)


async def test_run_that_is_early_holds_up_no_other_whatever_its_priority(
    store: RunLedgerStore, queue: ExecutionQueue, clock: FakeClock
) -> None:
    for run_id in ("a", "b"):
        await store.create_run(new_run(run_id, now=clock.now()))
    await queue.enqueue("a", 100, clock.now() + HOUR)
    await queue.enqueue("b")
    claim = await queue.claim_run("w")
    assert claim is not None
    assert claim.run.run_id == "b"


async def test_early_run_may_be_claimed_by_name(store: RunLedgerStore, queue: ExecutionQueue, clock: FakeClock) -> None:
    await store.create_run(new_run("a", now=clock.now()))
    await queue.enqueue("a", not_before=clock.now() + HOUR)
    assert await store.claim_run("w", 15, now=clock.now(), run_id="a") is not None


async def test_new_priority_keeps_the_time_and_a_new_time_replaces_it(
    store: RunLedgerStore, queue: ExecutionQueue, clock: FakeClock
) -> None:
    await store.create_run(new_run("a", now=clock.now()))
    await queue.enqueue("a", not_before=clock.now() + HOUR)
    assert (await queue.enqueue("a", 5)).wake_at == clock.now() + HOUR
    assert (await queue.enqueue("a", 5, clock.now())).wake_at == clock.now()
    assert await queue.claim_run("w") is not None


async def test_time_without_a_zone_is_refused_and_changes_nothing(store: RunLedgerStore, queue: ExecutionQueue) -> None:
    await store.create_run(new_run("a"))
    with pytest.raises(RunControlError) as caught:
        await queue.enqueue("a", not_before=datetime(2030, 1, 1))  # noqa: DTZ001 - what is refused
    assert caught.value.code == "invalid_argument"
    assert (await read(store)).status is S.CREATED


async def test_run_that_failed_and_goes_back_into_the_queue_has_no_time_any_more(
    store: RunLedgerStore, queue: ExecutionQueue, clock: FakeClock
) -> None:
    await store.create_run(new_run("a", now=clock.now()))
    await queue.enqueue("a", not_before=clock.now())
    claim = await queue.claim_run("w")
    assert claim is not None
    assert await queue.release("a", claim.token, failed="broken")
    assert ((await read(store)).status, (await read(store)).wake_at) == (S.QUEUED, None)


# --- waiting runs


async def test_run_that_waits_goes_into_the_queue_at_its_time_and_keeps_its_usage(
    store: RunLedgerStore, queue: ExecutionQueue, clock: FakeClock
) -> None:
    usage = TokenUsage(input_tokens=5, output_tokens=2)
    run = await left_waiting(store, clock, clock.now() + HOUR, usage=usage)
    assert (run.status, run.wake_at, run.claimed_by) == (S.WAITING, clock.now() + HOUR, None)
    clock.advance(3599)
    assert await queue.wake_due() == []
    assert await queue.claim_run("w") is None
    clock.advance(1)
    (woken,) = await queue.wake_due()
    assert (woken.run_id, woken.status, woken.wake_at, woken.usage) == ("a", S.QUEUED, None, usage)
    assert woken == await read(store)
    assert await queue.wake_due() == []
    assert await queue.claim_run("w") is not None


async def test_claiming_finds_what_has_come_by_itself(
    store: RunLedgerStore, queue: ExecutionQueue, clock: FakeClock
) -> None:
    await left_waiting(store, clock, clock.now() + HOUR)
    clock.advance(3600)
    claim = await queue.claim_run("w")
    assert claim is not None
    assert (claim.run.run_id, claim.run.status, claim.attempt) == ("a", S.CLAIMED, 2)


async def test_run_that_waits_for_people_alone_stays(
    store: RunLedgerStore, queue: ExecutionQueue, clock: FakeClock
) -> None:
    await left_waiting(store, clock, None)
    clock.advance(10**6)
    assert await queue.wake_due() == []
    assert (await read(store)).status is S.WAITING


async def test_run_that_is_being_resumed_is_not_woken_and_is_when_that_dies(
    store: RunLedgerStore, queue: ExecutionQueue, clock: FakeClock
) -> None:
    await left_waiting(store, clock, clock.now() + timedelta(seconds=10))
    assert await store.claim_run("other", 30, now=clock.now(), run_id="a") is not None
    clock.advance(20)
    assert await queue.wake_due() == []
    clock.advance(20)
    claim = await queue.claim_run("w")
    assert claim is not None
    assert claim.run.run_id == "a"


async def test_run_that_goes_on_or_ends_forgets_its_time(store: RunLedgerStore, clock: FakeClock) -> None:
    for run_id, status in (("a", S.RUNNING), ("b", S.CANCELLED), ("c", S.QUEUED)):
        await left_waiting(store, clock, clock.now() + HOUR, run_id)
        run = await store.change_run(run_id, RunChange(status=status), now=clock.now())
        assert (run.status, run.wake_at) == (status, None)
        again = await store.change_run(run_id, RunChange(wake_at=clock.now()), now=clock.now())
        assert again.wake_at == (clock.now() if status is S.QUEUED else None)


async def test_workers_that_wake_at_once_claim_each_run_once(store: RunLedgerStore, clock: FakeClock) -> None:
    for number in range(5):
        await left_waiting(store, clock, clock.now() + HOUR, f"r{number}")
    clock.advance(3600)
    taken: list[str] = []

    async def work(name: str) -> None:
        queue = ExecutionQueue(store, clock=clock)
        while (claim := await queue.claim_run(name)) is not None:
            taken.append(claim.run.run_id)

    async with anyio.create_task_group() as tasks:
        for number in range(4):
            tasks.start_soon(work, f"w{number}")
    assert sorted(taken) == [f"r{number}" for number in range(5)]


# --- schedules


class Making:
    """Makes runs in a store, and counts those that are new."""

    def __init__(self, store: RunLedgerStore) -> None:
        self.store = store
        self.queue = ExecutionQueue(store)
        self.made: list[str] = []

    async def __call__(self, run_id: str, due: datetime) -> None:
        _, created = await self.store.create_run(new_run(run_id, now=due))
        if created:
            self.made.append(run_id)
            await self.queue.enqueue(run_id, not_before=due)


async def test_each_due_time_gets_one_run_whoever_looks(store: RunLedgerStore) -> None:
    schedule = Schedule("nightly", timedelta(days=1), START)
    making = Making(store)
    for hours in (0, 1, 23, 24, 24, 30, 48):
        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(schedule.create_due, making, START + hours * HOUR)
    days = ("2030-01-01", "2030-01-02", "2030-01-03")
    assert making.made == [f"nightly@{day}T00:00:00.000000Z" for day in days]


async def test_of_the_times_that_were_missed_the_last_get_their_runs() -> None:
    made: list[datetime] = []

    async def create(run_id: str, due: datetime) -> None:
        made.append(due)

    now = START + 10.5 * HOUR
    await Schedule("s", HOUR, START).create_due(create, now)
    assert made == [START + 10 * HOUR]
    made.clear()
    await Schedule("s", HOUR, START, missed=3).create_due(create, now)
    assert made == [START + hours * HOUR for hours in (8, 9, 10)]
    made.clear()
    await Schedule("s", HOUR, now + HOUR, missed=3).create_due(create, now)
    assert made == []


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_schedule_is_kept_until_cancelled_also_while_the_ledger_is_away(
    backend: str, caplog: pytest.LogCaptureFixture
) -> None:
    made: list[tuple[str, float]] = []
    fails = iter([False, True, True])

    async def main() -> None:
        clock = LoopClock()

        async def create(run_id: str, due: datetime) -> None:
            if next(fails, False):
                raise RunControlError("runtime_error", "no connection", retryable=True)
            made.append((run_id, clock.monotonic()))

        with anyio.move_on_after(35):
            await Schedule("s", timedelta(seconds=10), START).keep(create, clock=clock)

    run_in_fake_time(backend, main)
    assert [round(at) for _, at in made] == [0, 12, 20, 30]
    assert len({run_id for run_id, _ in made}) == 4
    assert len(caplog.records) == 2


async def test_refusal_ends_a_schedule() -> None:
    async def create(run_id: str, due: datetime) -> None:
        raise RunControlError("conflict", "it is another's")

    with pytest.raises(RunControlError, match="another's"):
        await Schedule("s", HOUR).keep(create)


@given(
    st.timedeltas(timedelta(microseconds=1), timedelta(days=400)),
    st.datetimes(datetime(2000, 1, 1), datetime(2040, 1, 1), timezones=st.just(UTC)),  # noqa: DTZ001 - hypothesis's way
    st.datetimes(datetime(2000, 1, 1), datetime(2040, 1, 1), timezones=st.just(UTC)),  # noqa: DTZ001 - as above
    st.integers(1, 4),
)
def test_times_lie_at_equal_intervals_and_none_is_left_out(
    every: timedelta, start: datetime, now: datetime, missed: int
) -> None:
    schedule = Schedule("s", every, start, missed)
    due, coming = schedule.due(now), schedule.next(now)
    assert all(start <= time <= now for time in due)
    assert coming > now
    if due:
        assert coming - due[-1] == every
        assert {later - earlier for earlier, later in pairwise(due)} <= {every}
        assert len(due) == missed or due[0] == start
    else:
        assert coming == start
    assert len({schedule.run_id(time) for time in [*due, coming]}) == len(due) + 1


def test_schedule_needs_an_interval_and_a_zone() -> None:
    with pytest.raises(ConfigError, match="is due every"):
        Schedule("s", timedelta(0))
    with pytest.raises(ConfigError, match="without a zone"):
        Schedule("s", HOUR, datetime(2030, 1, 1))  # noqa: DTZ001 - what is refused
    with pytest.raises(ConfigError, match="missed"):
        Schedule("s", HOUR, missed=0)


async def test_store_that_knows_no_times_wakes_nothing() -> None:
    assert await RunLedgerStore.wake_due(InMemoryRunLedgerStore(), now=START) == []
