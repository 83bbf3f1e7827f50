"""Places of execution: who is there, what it can, and what becomes of one that falls silent."""

from __future__ import annotations

from typing import Any

import pytest

from graphrt.errors import RunControlError
from graphrt.ledger.runtimes import RuntimeRegistry, RuntimeStatus
from graphrt.ledger.store import RunLedgerStore
from graphrt.testing import FakeClock

pytestmark = pytest.mark.anyio


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def registry(store: RunLedgerStore, clock: FakeClock) -> RuntimeRegistry:
    return RuntimeRegistry(store, clock=clock)


async def test_a_silent_runtime_is_offline_until_its_next_heartbeat(
    registry: RuntimeRegistry, clock: FakeClock
) -> None:
    """AC-L33, X-30."""
    await registry.register("r", {"slots": 4}, heartbeat_seconds=30, metadata={"version": 1, "host": "h"})
    clock.advance(30)
    (info,) = await registry.list()
    assert info.status is RuntimeStatus.ONLINE
    clock.advance(1)
    (info,) = await registry.list()
    assert info.status == "offline"
    back = await registry.heartbeat("r", {"version": 2})
    assert (back.status, back.metadata) == ("online", {"version": 2, "host": "h"})
    (info,) = await registry.list()
    assert info == back
    assert (info.capabilities, info.heartbeat_at) == ({"slots": 4}, clock.now())


async def test_runtimes_are_listed_by_id_and_by_status(registry: RuntimeRegistry, clock: FakeClock) -> None:
    await registry.register("b", {}, heartbeat_seconds=10)
    await registry.register("a", {}, heartbeat_seconds=100)
    clock.advance(50)
    assert [info.runtime_id for info in await registry.list()] == ["a", "b"]
    assert [info.runtime_id for info in await registry.list("online")] == ["a"]
    assert [info.runtime_id for info in await registry.list(RuntimeStatus.OFFLINE)] == ["b"]


async def test_registering_again_replaces_what_it_can_and_keeps_since_when(
    registry: RuntimeRegistry, clock: FakeClock
) -> None:
    first = await registry.register("r", {"gpu": True}, heartbeat_seconds=30, metadata={"x": 1})
    clock.advance(60)
    info = await registry.register("r", {"cpu": True}, heartbeat_seconds=5, metadata={"y": 2})
    assert (info.capabilities, info.metadata) == ({"cpu": True}, {"x": 1, "y": 2})
    assert (info.registered_at, info.heartbeat_seconds) == (first.registered_at, 5)
    assert info.status is RuntimeStatus.ONLINE


async def test_a_runtime_that_left_is_forgotten(registry: RuntimeRegistry) -> None:
    await registry.register("r", {})
    assert await registry.deregister("r")
    assert not await registry.deregister("r")
    assert await registry.list() == []
    assert await registry.get("r") is None
    with pytest.raises(RunControlError, match="no runtime 'r'") as caught:
        await registry.heartbeat("r")
    assert caught.value.code == "not_found"


async def test_a_heartbeat_of_an_earlier_moment_makes_no_runtime_older(
    store: RunLedgerStore, registry: RuntimeRegistry, clock: FakeClock
) -> None:
    await registry.register("r", {})
    late = RuntimeRegistry(store, clock=FakeClock(clock.now()))
    clock.advance(20)
    await registry.heartbeat("r")
    assert (await late.heartbeat("r")).heartbeat_at == clock.now()


async def test_one_runtime_is_looked_up(registry: RuntimeRegistry, clock: FakeClock) -> None:
    await registry.register("r", {}, heartbeat_seconds=1)
    clock.advance(2)
    info = await registry.get("r")
    assert info is not None
    assert (info.runtime_id, info.status) == ("r", RuntimeStatus.OFFLINE)


@pytest.mark.parametrize("wrong", [{"runtime_id": ""}, {"heartbeat_seconds": 0}, {"heartbeat_seconds": float("inf")}])
async def test_what_makes_no_sense_is_refused(registry: RuntimeRegistry, wrong: dict[str, Any]) -> None:
    given: dict[str, Any] = {"runtime_id": "r", "capabilities": {}, **wrong}
    with pytest.raises(RunControlError) as caught:
        await registry.register(**given)
    assert caught.value.code == "invalid_argument"
    assert await registry.list() == []


async def test_there_are_two_statuses(registry: RuntimeRegistry) -> None:
    with pytest.raises(RunControlError, match="'asleep' is no status") as caught:
        await registry.list("asleep")
    assert caught.value.code == "invalid_argument"
