"""A run that is cancelled from outside, by scopes, by task groups, by asyncio: it ends, and says no more than that."""

from __future__ import annotations

import asyncio  # noqa: TID251 - what users' own nodes may use
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from graphrt import END, START, RunCancelledError, Workflow
from graphrt.testing import assert_no_orphans
from tests.engine.helpers import GUARD, line, yield_often

pytestmark = pytest.mark.anyio


async def two(x: Any) -> int:
    return 2


@pytest.mark.parametrize("way", ["run", "stream", "group", "stream wait"])
async def test_cancelled_outer_scope_ends_the_run_and_its_steps(way: str) -> None:
    cleaned: list[str] = []

    async def works(x: Any) -> int:
        try:
            await anyio.sleep_forever()
        finally:
            with anyio.CancelScope(shield=True):
                await yield_often()
            cleaned.append("works")
        return 1

    graph = line(works).compile()
    with anyio.fail_after(GUARD):
        if way == "group":
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(graph.run)
                await anyio.sleep(0.01)
                tasks.cancel_scope.cancel()
        else:
            with anyio.move_on_after(0.01) as scope:
                if way == "run":
                    await graph.run()
                else:
                    async with graph.stream() as run:
                        if way == "stream":
                            async for _ in run:
                                pass
                        else:
                            await run.wait()
            assert scope.cancelled_caught
    assert cleaned == ["works"]
    assert_no_orphans()


async def test_already_cancelled_scope_starts_nothing_that_lasts() -> None:
    calls: list[int] = []

    async def node(x: Any) -> int:
        await anyio.lowlevel.checkpoint()
        calls.append(1)
        return 1

    with anyio.CancelScope() as scope:
        scope.cancel()
        await line(node, two).run()
        calls.append(2)
    assert calls == []


async def test_scope_cancelled_inside_a_node_is_that_nodes_affair() -> None:
    async def node(x: Any) -> int:
        with anyio.CancelScope() as scope:
            scope.cancel()
            await anyio.lowlevel.checkpoint()
        return 1

    assert (await line(node).run()).output == 1


async def test_node_that_cancels_the_callers_scope_ends_the_run() -> None:
    with anyio.fail_after(GUARD), anyio.CancelScope() as scope:

        async def node(x: Any) -> int:
            scope.cancel()
            await anyio.sleep_forever()
            return 1

        await line(node).run()
        raise AssertionError("the scope was cancelled")
    assert scope.cancelled_caught


def test_timeouts_of_asyncio_inside_a_node_are_the_nodes_own() -> None:
    """Ordinary code of asyncio's: it cancels the task that it runs in, which works for other steps too."""

    async def waits(x: Any) -> str:
        try:
            await asyncio.wait_for(asyncio.sleep(GUARD), 0.01)
        except TimeoutError:
            return "waited"
        return "slept"

    async def limits(x: Any) -> str:
        try:
            async with asyncio.timeout(0.01):
                await asyncio.sleep(GUARD)
        except TimeoutError:
            return "limited"
        return "slept"

    async def spawns(x: Any) -> str:
        task = asyncio.ensure_future(asyncio.sleep(GUARD))
        await asyncio.sleep(0)
        task.cancel()
        try:
            await task
        except asyncio.CancelledError:
            return "spawned"
        return "slept"

    async def gathers(x: Any) -> Any:
        return await asyncio.gather(asyncio.sleep(0.01, "a"), asyncio.sleep(0.01, "b"))

    workflow = Workflow("g")
    for fn in (waits, limits, spawns, gathers):
        workflow.add(fn)
        workflow.chain(START, fn, END)
    outputs = workflow.run_sync(backend="asyncio").outputs
    assert outputs == {"waits": "waited", "limits": "limited", "spawns": "spawned", "gathers": ["a", "b"]}


def test_task_of_a_step_that_is_cancelled_by_hand_cancels_the_run() -> None:
    """A step that cancels the task it is in says what an outer cancellation says."""

    async def node(x: Any) -> int:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(0)
        return 1

    with pytest.raises((asyncio.CancelledError, RunCancelledError)):
        line(node).run_sync(backend="asyncio")
    assert_no_orphans()


async def test_run_that_never_waits_lets_others_go_on_and_can_be_cancelled() -> None:
    ticks: list[int] = []

    async def step(n: int) -> int:
        return n + 1

    workflow = Workflow("g", max_rounds=10**9)
    workflow.add(step)
    workflow.edge(START, step)
    workflow.edge(step, step, when=lambda n: True)
    workflow.edge(step, END, when=lambda n: False)

    async def tick() -> None:
        while True:
            ticks.append(1)
            await anyio.sleep(0.001)

    with anyio.fail_after(GUARD):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(tick)
            with anyio.move_on_after(0.1) as scope:
                await workflow.run(0)
            tasks.cancel_scope.cancel()
    assert scope.cancelled_caught
    assert len(ticks) > 3


async def test_timeout_ends_a_run_that_never_waits() -> None:
    async def step(n: int) -> int:
        return n + 1

    workflow = Workflow("g", max_rounds=10**9)
    workflow.add(step)
    workflow.edge(START, step)
    workflow.edge(step, step, when=lambda n: True)
    workflow.edge(step, END, when=lambda n: False)
    with anyio.fail_after(GUARD), pytest.raises(TimeoutError, match="did not finish within"):
        await workflow.run(0, timeout=0.05)
