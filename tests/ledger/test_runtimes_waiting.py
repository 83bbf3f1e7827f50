"""A runtime that waits for work stays online, and is woken."""

from __future__ import annotations

import anyio
import pytest

from graphrt.errors import RunControlError
from graphrt.ledger.queue import ExecutionQueue
from graphrt.ledger.runtimes import RuntimeRegistry, RuntimeStatus
from tests.engine.helpers import FAKE_TIME
from tests.ledger.queueing import LoopClock, ShakyStore
from tests.ledger.stores import new_run

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


@pytest.fixture
async def registry(memory: ShakyStore, clock: LoopClock) -> RuntimeRegistry:
    return RuntimeRegistry(memory, clock=clock)


async def status_of(registry: RuntimeRegistry) -> RuntimeStatus:
    info = await registry.get("r")
    assert info is not None
    return info.status


async def test_a_runtime_that_waits_for_work_stays_online(registry: RuntimeRegistry, clock: LoopClock) -> None:
    await registry.register("r", {}, heartbeat_seconds=30)
    await registry.wait_for_work("r", 100)
    assert clock.monotonic() == pytest.approx(100)
    assert await status_of(registry) is RuntimeStatus.ONLINE


async def test_a_runtime_that_waits_is_woken_by_a_new_run(
    memory: ShakyStore, registry: RuntimeRegistry, clock: LoopClock
) -> None:
    await registry.register("r", {}, heartbeat_seconds=30)
    await memory.create_run(new_run("a"))
    woken: list[float] = []

    async def wait() -> None:
        await registry.wait_for_work("r", 1000)
        woken.append(clock.monotonic())

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(wait)
        await anyio.sleep(77)
        await ExecutionQueue(memory, clock=clock).enqueue("a")
    assert woken == [77]


async def test_a_runtime_that_is_not_registered_waits_for_nothing(registry: RuntimeRegistry) -> None:
    with pytest.raises(RunControlError) as caught:
        await registry.wait_for_work("r", 1)
    assert caught.value.code == "not_found"


async def test_a_runtime_is_online_while_it_attends_and_gone_afterwards(
    registry: RuntimeRegistry, clock: LoopClock
) -> None:
    async with registry.attending("r", {"slots": 1}, heartbeat_seconds=3):
        await anyio.sleep(100)
        assert await status_of(registry) is RuntimeStatus.ONLINE
    assert await registry.list() == []


async def test_a_runtime_forgotten_while_it_attends_comes_back(registry: RuntimeRegistry) -> None:
    async with registry.attending("r", {"slots": 1}, heartbeat_seconds=3, metadata={"v": 1}):
        await registry.deregister("r")
        await anyio.sleep(2)
        info = await registry.get("r")
        assert info is not None
        assert (info.capabilities, info.metadata) == ({"slots": 1}, {"v": 1})


async def test_a_ledger_that_is_away_makes_a_runtime_offline_for_a_while(
    memory: ShakyStore, registry: RuntimeRegistry, caplog: pytest.LogCaptureFixture
) -> None:
    async with registry.attending("r", {}, heartbeat_seconds=3):
        memory.down = True
        await anyio.sleep(10)
        memory.down = False
        assert await status_of(registry) is RuntimeStatus.OFFLINE
        await anyio.sleep(1)
        assert await status_of(registry) is RuntimeStatus.ONLINE
        memory.down = True
    assert "heartbeat of runtime 'r' failed" in caplog.text
    assert "could not be deregistered" in caplog.text


async def test_an_error_while_attending_comes_out_as_it_is(registry: RuntimeRegistry) -> None:
    async def work() -> None:
        async with registry.attending("r", {}):
            await anyio.sleep(1)
            raise LookupError("x")

    with pytest.raises(LookupError, match="x"):
        await work()
    assert await registry.list() == []
