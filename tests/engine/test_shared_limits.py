"""Nodes take slots of a limit that lies outside the process (E21)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import anyio
import pytest

from graphrt import END, START, ConfigError, Workflow
from graphrt.ledger import InMemoryRunLedgerStore, SharedLimit
from tests.engine.helpers import FAKE_TIME, Gate

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module", params=FAKE_TIME)
def anyio_backend(request: pytest.FixtureRequest) -> object:
    return request.param


class LoopClock:
    """A clock that goes as the event loop's time does."""

    def __init__(self) -> None:
        self._began = anyio.current_time()

    def now(self) -> datetime:
        return datetime(2030, 1, 1, tzinfo=UTC) + timedelta(seconds=self.monotonic())

    def monotonic(self) -> float:
        return anyio.current_time() - self._began


def graph_of(limit: Any, gate: Gate, seconds: float = 20, **how: Any) -> Any:
    async def work(x: int) -> int:
        async with gate:
            await anyio.sleep(seconds)
        return x

    wf = Workflow("w")
    wf.add(work, max_concurrency=limit, **how)
    wf.edge(START, "work")
    wf.edge("work", END)
    return wf.compile()


async def test_runs_of_several_workers_share_slots() -> None:
    store, gate, clock = InMemoryRunLedgerStore(), Gate(), LoopClock()
    graphs = [graph_of(SharedLimit(store, "m", 2, clock=clock), gate) for _ in range(3)]

    async with anyio.create_task_group() as tasks:
        for graph in graphs:
            for _ in range(2):
                tasks.start_soon(graph.run, 1)
    assert (gate.calls, gate.most) == (6, 2)
    assert clock.monotonic() == pytest.approx(60, abs=1)


async def test_waiting_for_a_slot_counts_in_no_timeout() -> None:
    store, gate, clock = InMemoryRunLedgerStore(), Gate(), LoopClock()
    limit = SharedLimit(store, "m", 1, clock=clock)
    graph = graph_of(limit, gate, 20, timeout=21.0)
    async with anyio.create_task_group() as tasks:
        for _ in range(4):
            tasks.start_soon(graph.run, 1)
    assert (gate.calls, gate.most) == (4, 1)


async def test_a_cancelled_run_gives_its_slot_back() -> None:
    store, gate, clock = InMemoryRunLedgerStore(), Gate(), LoopClock()
    limit = SharedLimit(store, "m", 1, clock=clock)
    with anyio.move_on_after(3):
        await graph_of(limit, gate).run(1)
    await graph_of(limit, gate, 0).run(1)
    assert clock.monotonic() == pytest.approx(3)


async def test_a_failed_attempt_gives_its_slot_back() -> None:
    store, gate, clock = InMemoryRunLedgerStore(), Gate(), LoopClock()
    limit = SharedLimit(store, "m", 1, clock=clock)
    with pytest.raises(TimeoutError):
        await graph_of(limit, gate, 50, timeout=2.0).run(1)
    await graph_of(limit, gate, 0).run(1)
    assert clock.monotonic() == pytest.approx(2)


def test_what_only_looks_like_a_limit_is_refused() -> None:
    class Half:
        def acquire(self) -> None: ...
        def release(self) -> None: ...

    with pytest.raises(ConfigError):
        graph_of(Half(), Gate())
