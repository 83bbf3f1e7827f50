"""A claim is kept alive while work is done, noticed when it is lost, and given back at the end."""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta
from functools import partial

import anyio
import pytest

from graphrt.errors import ConfigError, RunControlError
from graphrt.ledger.leases import Lease, held
from graphrt.ledger.records import Claim, NewEvent, RunChange
from graphrt.ledger.status import AgentRunStatus
from tests.engine.helpers import FAKE_TIME
from tests.ledger.queueing import LoopClock, ShakyStore, claimed, status_of

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module", params=FAKE_TIME)
def anyio_backend(request: pytest.FixtureRequest) -> object:
    return request.param


@pytest.fixture
async def clock() -> LoopClock:
    return LoopClock()


@pytest.fixture
async def store() -> ShakyStore:
    return ShakyStore()


@pytest.fixture
async def claim(store: ShakyStore, clock: LoopClock) -> Claim:
    return await claimed(store, clock)


async def finish(store: ShakyStore, clock: LoopClock, claim: Claim, status: AgentRunStatus) -> None:
    change = RunChange(status=AgentRunStatus.RUNNING)
    await store.change_run("a", change, now=clock.now(), token=claim.token)
    await store.change_run("a", RunChange(status=status), now=clock.now(), token=claim.token)


async def expire(store: ShakyStore, clock: LoopClock, after: float) -> None:
    """Have the claim end as another worker sees it, whose clock goes ahead."""
    await store.expire_claims(now=clock.now() + timedelta(seconds=after))


# --- kept alive ----------------------------------------------------------------------------------------------


async def test_a_claim_outlives_its_lease_while_work_is_done(store: ShakyStore, clock: LoopClock, claim: Claim) -> None:
    async with held(store, claim, clock=clock) as lease:
        await anyio.sleep(100)
        assert await store.expire_claims(now=clock.now()) == []
        assert lease.until > clock.now()
    assert 19 <= store.renewals <= 20


async def test_a_claim_that_is_old_already_is_renewed_at_once(
    store: ShakyStore, clock: LoopClock, claim: Claim
) -> None:
    await anyio.sleep(14.5)
    async with held(store, claim, clock=clock):
        await anyio.sleep(4)
        assert await store.expire_claims(now=clock.now()) == []


async def test_what_is_inside_gets_the_run_and_the_proof(store: ShakyStore, clock: LoopClock, claim: Claim) -> None:
    async with held(store, claim, clock=clock) as lease:
        assert (lease.run_id, lease.token) == ("a", claim.token)
        await store.append_events("a", [NewEvent("x.y", {})], now=clock.now(), token=lease.token)


async def test_a_ledger_that_is_away_for_a_while_costs_no_claim(
    store: ShakyStore, clock: LoopClock, claim: Claim, caplog: pytest.LogCaptureFixture
) -> None:
    """B-083."""
    async with held(store, claim, clock=clock):
        await anyio.sleep(4.5)
        store.down = True
        await anyio.sleep(9)
        store.down = False
        await anyio.sleep(30)
        assert await store.expire_claims(now=clock.now()) == []
    assert "could not be looked after" in caplog.text


async def test_a_ledger_that_is_away_for_too_long_costs_the_claim_when_the_lease_ends(
    store: ShakyStore, clock: LoopClock, claim: Claim
) -> None:
    async def work() -> None:
        async with held(store, claim, clock=clock):
            await anyio.sleep(6)
            store.down = True
            await anyio.sleep_forever()

    began = clock.monotonic()
    with pytest.raises(RunControlError, match="is lost") as caught:
        await work()
    assert isinstance(caught.value.__cause__, RunControlError)
    assert clock.monotonic() - began == pytest.approx(20, abs=0.1)


async def test_a_ledger_that_hangs_costs_the_claim_when_the_lease_ends(
    store: ShakyStore, clock: LoopClock, claim: Claim
) -> None:
    began = clock.monotonic()

    async def work() -> None:
        async with held(store, claim, clock=clock):
            await anyio.sleep(1.5)
            store.hangs = True
            await anyio.sleep_forever()

    with pytest.raises(RunControlError, match="is lost") as caught:
        await work()
    assert caught.value.code == "conflict"
    assert isinstance(caught.value.__cause__, TimeoutError)
    assert clock.monotonic() - began == pytest.approx(15, abs=1)


async def test_a_claim_still_lives_while_cancelled_work_cleans_up(
    store: ShakyStore, clock: LoopClock, claim: Claim
) -> None:
    with anyio.move_on_after(3) as outer:
        async with held(store, claim, clock=clock):
            try:
                await anyio.sleep_forever()
            finally:
                with anyio.CancelScope(shield=True):
                    await anyio.sleep(40)
                    assert await store.expire_claims(now=clock.now()) == []
    assert outer.cancelled_caught
    assert await status_of(store, "a") is AgentRunStatus.QUEUED


# --- lost ----------------------------------------------------------------------------------------------------


async def test_work_is_cancelled_within_a_second_when_another_worker_has_the_run(
    store: ShakyStore, clock: LoopClock, claim: Claim
) -> None:
    noticed: list[float] = []

    async def work() -> None:
        async with held(store, claim, clock=clock) as lease:
            await anyio.sleep(2.5)
            await expire(store, clock, 60)
            assert await store.claim_run("v", 15, now=clock.now()) is not None
            began = clock.monotonic()
            try:
                await anyio.sleep_forever()
            finally:
                noticed.append(clock.monotonic() - began)
                assert lease.lost

    with pytest.raises(RunControlError, match="claim on run 'a' is lost") as caught:
        await work()
    assert caught.value.code == "conflict"
    assert noticed[0] <= 1
    run = await store.get_run("a")
    assert run is not None
    assert (run.status, run.claimed_by, run.attempt) == (AgentRunStatus.CLAIMED, "v", 2)


async def test_the_same_worker_with_a_new_claim_takes_the_old_one_away(
    store: ShakyStore, clock: LoopClock, claim: Claim
) -> None:
    async def work() -> None:
        async with held(store, claim, clock=clock):
            await expire(store, clock, 60)
            assert await store.claim_run("w", 15, now=clock.now()) is not None
            await anyio.sleep_forever()

    with pytest.raises(RunControlError, match="is lost"):
        await work()


async def test_a_run_put_back_since_it_was_not_begun_in_time_is_lost(
    store: ShakyStore, clock: LoopClock, claim: Claim
) -> None:
    async def work() -> None:
        async with held(store, claim, clock=clock):
            await anyio.sleep(10)
            await store.expire_claims(now=clock.now(), dispatch_seconds=8)
            await anyio.sleep_forever()

    with pytest.raises(RunControlError, match="is lost"):
        await work()
    assert await status_of(store, "a") is AgentRunStatus.QUEUED


async def test_a_worker_that_is_given_up_for_good_stops_its_work(
    store: ShakyStore, clock: LoopClock, claim: Claim
) -> None:
    async def work() -> None:
        async with held(store, claim, clock=clock):
            await store.expire_claims(now=clock.now() + timedelta(seconds=60), max_attempts=1)
            await anyio.sleep_forever()

    with pytest.raises(RunControlError, match="is lost"):
        await work()
    assert await status_of(store, "a") is AgentRunStatus.FAILED


async def test_what_the_work_raised_is_the_cause_of_the_conflict(
    store: ShakyStore, clock: LoopClock, claim: Claim
) -> None:
    async def work() -> None:
        async with held(store, claim, clock=clock):
            await expire(store, clock, 60)
            try:
                await anyio.sleep_forever()
            finally:
                raise LookupError("while cleaning up")

    with pytest.raises(RunControlError, match="is lost") as caught:
        await work()
    assert isinstance(caught.value.__cause__, LookupError)


async def test_a_lost_claim_is_not_given_back(store: ShakyStore, clock: LoopClock, claim: Claim) -> None:
    others: list[Claim | None] = []

    async def work() -> None:
        async with held(store, claim, clock=clock, release_to=AgentRunStatus.QUEUED):
            await expire(store, clock, 60)
            others.append(await store.claim_run("v", 15, now=clock.now()))
            await anyio.sleep_forever()

    with pytest.raises(RunControlError):
        await work()
    assert others[0] is not None
    assert await store.renew_claim("a", others[0].token, 15, now=clock.now())


# --- over ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("end", [AgentRunStatus.COMPLETED, AgentRunStatus.FAILED, AgentRunStatus.WAITING])
async def test_work_goes_on_undisturbed_after_it_has_ended_its_run(
    store: ShakyStore, clock: LoopClock, claim: Claim, end: AgentRunStatus
) -> None:
    async with held(store, claim, clock=clock, release_to=AgentRunStatus.QUEUED) as lease:
        await finish(store, clock, claim, end)
        await anyio.sleep(60)
    assert not lease.lost
    assert await status_of(store, "a") is end


async def test_a_late_renewal_changes_nothing_of_a_completed_run(
    store: ShakyStore, clock: LoopClock, claim: Claim
) -> None:
    """B-087."""
    async with held(store, claim, clock=clock):
        await finish(store, clock, claim, AgentRunStatus.COMPLETED)
    before = await store.get_run("a")
    await anyio.sleep(20)
    assert not await store.renew_claim("a", claim.token, 15, now=clock.now())
    assert await store.expire_claims(now=clock.now()) == []
    assert await store.get_run("a") == before


async def test_nobody_looks_after_a_run_that_is_over(store: ShakyStore, clock: LoopClock, claim: Claim) -> None:
    async with held(store, claim, clock=clock):
        await finish(store, clock, claim, AgentRunStatus.COMPLETED)
        await anyio.sleep(6)
        asked = store.asked
        await anyio.sleep(60)
        assert store.asked == asked


async def test_a_run_removed_after_its_end_disturbs_nobody(store: ShakyStore, clock: LoopClock, claim: Claim) -> None:
    async with held(store, claim, clock=clock) as lease:
        await finish(store, clock, claim, AgentRunStatus.COMPLETED)
        assert await store.prune_runs(clock.now() + timedelta(seconds=1)) == 1
        await anyio.sleep(60)
    assert not lease.lost


# --- given back ----------------------------------------------------------------------------------------------


async def test_a_run_that_was_not_begun_goes_back_into_the_queue(
    store: ShakyStore, clock: LoopClock, claim: Claim
) -> None:
    async with held(store, claim, clock=clock):
        pass
    assert await status_of(store, "a") is AgentRunStatus.QUEUED


async def test_a_run_at_work_becomes_what_was_asked_for(store: ShakyStore, clock: LoopClock, claim: Claim) -> None:
    async with held(store, claim, clock=clock, release_to=AgentRunStatus.QUEUED):
        await store.change_run("a", RunChange(status=AgentRunStatus.RUNNING), now=clock.now(), token=claim.token)
    run = await store.get_run("a")
    assert run is not None
    assert (run.status, run.claimed_by) == (AgentRunStatus.QUEUED, None)


class StopWork(BaseException):
    """What no `except Exception` catches."""


@pytest.mark.parametrize("kind", [LookupError, StopWork])
async def test_an_error_of_the_work_comes_out_as_it_is_and_the_claim_goes_back(
    store: ShakyStore, clock: LoopClock, claim: Claim, kind: type[BaseException]
) -> None:
    error = kind("x")

    async def work() -> None:
        async with held(store, claim, clock=clock):
            await anyio.sleep(7)
            raise error

    with pytest.raises(kind) as caught:
        await work()
    assert caught.value is error
    assert await status_of(store, "a") is AgentRunStatus.QUEUED


async def test_cancelled_work_gives_its_claim_back(store: ShakyStore, clock: LoopClock, claim: Claim) -> None:
    with anyio.move_on_after(7) as outer:
        async with held(store, claim, clock=clock):
            await anyio.sleep_forever()
    assert outer.cancelled_caught
    assert await status_of(store, "a") is AgentRunStatus.QUEUED


@pytest.mark.parametrize("trouble", ["down", "hangs"])
async def test_a_claim_that_cannot_be_given_back_is_left_to_its_lease(
    store: ShakyStore, clock: LoopClock, claim: Claim, trouble: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with held(store, claim, clock=clock):
        setattr(store, trouble, True)
    setattr(store, trouble, False)
    assert "was not released" in caplog.text
    await anyio.sleep(15)
    assert [run.run_id for run in await store.expire_claims(now=clock.now())] == ["a"]


# --- cancel --------------------------------------------------------------------------------------------------


async def request_cancel(store: ShakyStore, clock: LoopClock) -> None:
    change = RunChange(cancel_requested_at=clock.now(), cancel_reason="no use")
    await store.change_run("a", change, now=clock.now())


async def watched(
    store: ShakyStore, clock: LoopClock, claim: Claim, told: list[tuple[float, str | None]], *, slow: bool
) -> Lease:
    def tell(reason: str | None) -> None:
        told.append((clock.monotonic(), reason))

    async def tell_slowly(reason: str | None) -> None:
        tell(reason)
        await anyio.sleep(50)

    async with held(store, claim, clock=clock, on_cancel=tell_slowly if slow else tell) as lease:
        await anyio.sleep(12.5)
        await request_cancel(store, clock)
        await anyio.sleep(40)
        assert await store.expire_claims(now=clock.now()) == []
    return lease


@pytest.mark.parametrize("slow", [False, True])
async def test_a_request_to_cancel_reaches_the_worker_within_a_second_and_once(
    store: ShakyStore, clock: LoopClock, claim: Claim, *, slow: bool
) -> None:
    told: list[tuple[float, str | None]] = []
    lease = await watched(store, clock, claim, told, slow=slow)
    assert [reason for _, reason in told] == ["no use"]
    assert 12.5 <= told[0][0] <= 13.5
    assert (lease.cancel_requested, lease.cancel_reason) == (True, "no use")


async def test_work_can_be_stopped_by_the_callback(store: ShakyStore, clock: LoopClock, claim: Claim) -> None:
    with anyio.CancelScope() as scope:
        async with held(store, claim, clock=clock, on_cancel=lambda _: scope.cancel()):
            await request_cancel(store, clock)
            await anyio.sleep_forever()
    assert scope.cancelled_caught
    assert clock.monotonic() <= 2


async def test_a_callback_that_fails_disturbs_nothing(
    store: ShakyStore, clock: LoopClock, claim: Claim, caplog: pytest.LogCaptureFixture
) -> None:
    def tell(reason: str | None) -> None:
        raise LookupError(reason)

    async with held(store, claim, clock=clock, on_cancel=tell) as lease:
        await request_cancel(store, clock)
        await anyio.sleep(30)
    assert lease.cancel_requested
    assert "what cancels run 'a' failed" in caplog.text


# --- settings ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lease", "renew", "watch"), [(15, 15, 1), (15, 0, 1), (-1, 5, 1), (15, 5, 0), (float("inf"), 5, 1)]
)
async def test_a_lease_that_cannot_be_kept_is_refused(
    store: ShakyStore, clock: LoopClock, claim: Claim, lease: float, renew: float, watch: float
) -> None:
    with pytest.raises(ConfigError):
        held(store, claim, lease, renew, watch_seconds=watch, clock=clock)


async def test_both_times_can_be_set(store: ShakyStore, clock: LoopClock) -> None:
    claim = await claimed(store, clock, seconds=0.3)
    async with held(store, claim, 0.3, 0.1, clock=clock):
        await anyio.sleep(3)
        assert await store.expire_claims(now=clock.now()) == []
    assert store.renewals >= 29


async def test_many_claims_are_held_at_once(store: ShakyStore, clock: LoopClock) -> None:
    async def work(number: int) -> None:
        claim = await claimed(store, clock, f"run-{number}")
        with suppress(LookupError):
            async with held(store, claim, clock=clock):
                await anyio.sleep(20 + number)
                raise LookupError

    async with anyio.create_task_group() as tasks:
        for number in range(50):
            tasks.start_soon(partial(work, number))
        await anyio.sleep(19)
        assert await store.expire_claims(now=clock.now()) == []
    assert {await status_of(store, f"run-{number}") for number in range(50)} == {AgentRunStatus.QUEUED}
