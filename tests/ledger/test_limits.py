"""Slots that workers of many processes share."""

from __future__ import annotations

from datetime import datetime
from functools import partial
from typing import Any

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphrt.errors import ConfigError, RunControlError
from graphrt.ledger.limits import AsyncLimit, SharedLimit, _Line
from graphrt.ledger.memory import InMemoryRunLedgerStore
from graphrt.ledger.store import RunLedgerStore
from tests.engine.helpers import FAKE_TIME, Gate, yield_often
from tests.ledger.queueing import LoopClock, ShakyStore, run_in_fake_time

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module", params=FAKE_TIME)
def anyio_backend(request: pytest.FixtureRequest) -> object:
    return request.param


@pytest.fixture
async def clock() -> LoopClock:
    return LoopClock()


@pytest.fixture
async def memory() -> ShakyStore:
    return ShakyStore()


def limits(store: RunLedgerStore, clock: LoopClock, count: int, slots: int = 1) -> list[SharedLimit]:
    """The same limit, as each of some processes sees it."""
    return [SharedLimit(store, "model", slots, clock=clock) for _ in range(count)]


async def test_no_more_are_at_work_than_there_are_slots(memory: ShakyStore, clock: LoopClock) -> None:
    gate = Gate()

    async def work(limit: SharedLimit) -> None:
        async with limit.held("w"), gate:
            await anyio.sleep(40)

    async with anyio.create_task_group() as tasks:
        for limit in limits(memory, clock, 3, slots=2):
            for _ in range(3):
                tasks.start_soon(work, limit)
    assert (gate.calls, gate.most) == (9, 2)
    assert clock.monotonic() == pytest.approx(5 * 40, abs=2)


async def test_each_slot_taken_is_one_of_its_own(memory: ShakyStore, clock: LoopClock) -> None:
    (limit,) = limits(memory, clock, 1, slots=2)
    async with limit.held("w") as one, limit.held("w") as other:
        assert one.owner != other.owner
        with anyio.move_on_after(30) as waiting:
            await limit.acquire("w")
        assert waiting.cancelled_caught


async def test_limits_of_other_names_are_others(memory: ShakyStore, clock: LoopClock) -> None:
    async with SharedLimit(memory, "a", 1, clock=clock).held(), SharedLimit(memory, "b", 1, clock=clock).held():
        pass
    assert clock.monotonic() == 0


async def test_within_a_process_who_comes_first_is_served_first(memory: ShakyStore, clock: LoopClock) -> None:
    (limit,) = limits(memory, clock, 1)
    served: list[int] = []

    async def work(number: int) -> None:
        async with limit.held():
            served.append(number)
            await anyio.sleep(1)

    async with anyio.create_task_group() as tasks:
        for number in range(10):
            tasks.start_soon(work, number)
            await anyio.sleep(0.01)
    assert served == list(range(10))
    assert clock.monotonic() == pytest.approx(10, abs=0.1)


async def test_only_the_first_in_line_asks_the_ledger(memory: ShakyStore, clock: LoopClock) -> None:
    (limit,) = limits(memory, clock, 1)
    async with anyio.create_task_group() as tasks:
        await limit.acquire()
        for _ in range(50):
            tasks.start_soon(limit.acquire)
        before = memory.asked
        await anyio.sleep(10)
        assert memory.asked - before <= 41
        tasks.cancel_scope.cancel()


async def test_the_slot_of_a_holder_that_died_is_free_after_its_lease(memory: ShakyStore, clock: LoopClock) -> None:
    """B-085."""
    dead, living = limits(memory, clock, 2)
    await dead.acquire("dead")
    await living.acquire("living")
    assert clock.monotonic() == pytest.approx(15, abs=0.3)


async def test_a_slot_that_is_kept_outlives_its_lease(memory: ShakyStore, clock: LoopClock) -> None:
    one, other = limits(memory, clock, 2)
    async with one.held():
        with anyio.move_on_after(100) as waiting:
            await other.acquire()
    assert waiting.cancelled_caught


async def test_a_slot_is_kept_and_released_by_parts_as_an_engine_does(memory: ShakyStore, clock: LoopClock) -> None:
    limit: AsyncLimit = SharedLimit(memory, "model", 1, clock=clock)
    other = SharedLimit(memory, "model", 1, clock=clock)
    async with anyio.create_task_group() as tasks:
        slot = await limit.acquire("run-1/step")
        tasks.start_soon(slot.keep)
        await anyio.sleep(30)
        slot.release()
        await other.acquire()
        assert clock.monotonic() == pytest.approx(30, abs=0.3)


async def test_a_slot_released_before_anybody_keeps_it_is_given_back(memory: ShakyStore, clock: LoopClock) -> None:
    one, other = limits(memory, clock, 2)
    slot = await one.acquire()
    slot.release()
    await slot.keep()
    await other.acquire()
    assert clock.monotonic() == 0


async def test_a_cancelled_holder_gives_its_slot_back(memory: ShakyStore, clock: LoopClock) -> None:
    one, other = limits(memory, clock, 2)
    with anyio.move_on_after(3):
        async with one.held():
            await anyio.sleep_forever()
    await other.acquire()
    assert clock.monotonic() == 3


async def test_who_leaves_the_line_lets_the_others_on(memory: ShakyStore, clock: LoopClock) -> None:
    (limit,) = limits(memory, clock, 1)
    got: list[str] = []

    async def wait(name: str, seconds: float) -> None:
        with anyio.move_on_after(seconds):
            async with limit.held():
                got.append(name)

    async with anyio.create_task_group() as tasks, limit.held():
        for name, seconds in [("first", 1.0), ("second", 2.0), ("third", 50.0)]:
            tasks.start_soon(wait, name, seconds)
        await anyio.sleep(5)
    assert got == ["third"]


async def test_a_slot_granted_to_who_has_just_given_up_is_given_back(clock: LoopClock) -> None:
    class SlowStore(InMemoryRunLedgerStore):
        async def take_slot(self, name: str, slots: int, owner: str, lease_seconds: float, *, now: datetime) -> bool:
            taken = await super().take_slot(name, slots, owner, lease_seconds, now=now)
            await anyio.sleep(1)
            return taken

    one, other = limits(SlowStore(), clock, 2)
    with anyio.move_on_after(0.5) as scope:
        await one.acquire()
    assert scope.cancelled_caught
    await other.acquire()
    assert clock.monotonic() == pytest.approx(1.5)


async def test_a_turn_that_comes_to_who_has_just_left_goes_to_the_next() -> None:
    line = _Line()
    entered: list[str] = []

    async def enter(name: str, scope: anyio.CancelScope) -> None:
        with scope:
            await line.enter()
            entered.append(name)

    scopes = [anyio.CancelScope() for _ in range(2)]
    await line.enter()
    async with anyio.create_task_group() as tasks:
        for name, scope in zip(["first", "second"], scopes, strict=True):
            tasks.start_soon(enter, name, scope)
            await yield_often()
        line.leave()
        scopes[0].cancel()
    assert entered == ["second"]


async def test_an_error_of_the_work_comes_out_as_it_is(memory: ShakyStore, clock: LoopClock) -> None:
    (limit,) = limits(memory, clock, 1)

    async def work() -> None:
        async with limit.held():
            await anyio.sleep(1)
            raise LookupError("x")

    with pytest.raises(LookupError, match="x"):
        await work()


# --- a ledger that is away -----------------------------------------------------------------------------------


async def test_no_slot_is_had_from_a_ledger_that_is_away(memory: ShakyStore, clock: LoopClock) -> None:
    (limit,) = limits(memory, clock, 1)
    memory.down = True
    with pytest.raises(RunControlError, match="no connection"):
        await limit.acquire()
    memory.down = False
    await limit.acquire()


async def test_work_goes_on_while_its_slot_cannot_be_renewed(
    memory: ShakyStore, clock: LoopClock, caplog: pytest.LogCaptureFixture
) -> None:
    one, other = limits(memory, clock, 2)
    async with one.held():
        memory.down = True
        await anyio.sleep(16)
        memory.down = False
        with anyio.fail_after(1):
            await other.acquire()
        await anyio.sleep(20)
    assert "could not be renewed yet" in caplog.text
    assert caplog.text.count("another has it") == 1


async def test_a_slot_that_cannot_be_given_back_ends_with_its_lease(
    memory: ShakyStore, clock: LoopClock, caplog: pytest.LogCaptureFixture
) -> None:
    one, other = limits(memory, clock, 2)
    async with one.held():
        await anyio.sleep(1)
        memory.down = True
    memory.down = False
    assert "was not given back" in caplog.text
    await other.acquire()
    assert clock.monotonic() == pytest.approx(15, abs=0.3)


# --- a rule --------------------------------------------------------------------------------------------------

WORK = st.tuples(st.integers(0, 300), st.integers(0, 400), st.sampled_from(["end", "die", "raise", "give up"]))


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@given(jobs=st.lists(st.tuples(st.integers(0, 2), WORK), max_size=12), slots=st.integers(1, 3))
@settings(max_examples=25)
def test_however_work_ends_slots_are_never_exceeded_and_never_lost(
    backend: str, jobs: list[tuple[int, tuple[int, int, str]]], slots: int
) -> None:
    """B-085."""

    async def play() -> None:
        clock, store, gate = LoopClock(), InMemoryRunLedgerStore(), Gate()
        shared = limits(store, clock, 3, slots)

        async def work(limit: SharedLimit, begin: int, length: int, end: str) -> None:
            await anyio.sleep(begin / 10)
            if end == "die":
                await limit.acquire()
                async with gate:
                    await anyio.sleep(min(length / 10, 14.9))
                return
            with anyio.move_on_after(7 if end == "give up" else 10_000):
                try:
                    async with limit.held(), gate:
                        await anyio.sleep(length / 10)
                        if end == "raise":
                            raise LookupError
                except LookupError:
                    pass

        async with anyio.create_task_group() as tasks:
            for which, how in jobs:
                tasks.start_soon(partial(work, shared[which], *how))
        assert gate.most <= slots
        await anyio.sleep(15)
        for _ in range(slots):
            await shared[0].acquire()  # each is free again

    run_in_fake_time(backend, play)


# --- settings ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "wrong",
    [
        {"name": ""},
        {"slots": 0},
        {"slots": True},
        {"slots": 1.5},
        {"lease_seconds": 5},
        {"renew_seconds": 0},
        {"poll_seconds": 0},
    ],
)
def test_settings_that_make_no_sense_are_refused(wrong: dict[str, Any]) -> None:
    given: dict[str, Any] = {"store": InMemoryRunLedgerStore(), "name": "model", "slots": 1, **wrong}
    with pytest.raises(ConfigError):
        SharedLimit(**given)


def test_a_limit_says_what_it_is() -> None:
    assert repr(SharedLimit(InMemoryRunLedgerStore(), "model", 3)) == "SharedLimit('model', 3)"
