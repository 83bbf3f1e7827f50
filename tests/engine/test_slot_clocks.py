"""Waiting for a slot counts in no timeout of a graph, in fake time (E15)."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from graphrt import END, START, Workflow
from tests.engine.helpers import FAKE_TIME, line

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module", params=FAKE_TIME)
def anyio_backend(request: pytest.FixtureRequest) -> Any:
    """Run on both event loops, in fake time."""
    return request.param


async def numbers(x: Any) -> list[int]:
    return [1, 2, 3]


def twice(inner: Workflow, seconds: float | None, **options: Any) -> Workflow:
    """Put a graph beside itself."""
    workflow = Workflow("w", **options)
    for name in ("a", "b"):
        workflow.add(inner, name=name, **({} if seconds is None else {"step_timeout": seconds}))
        workflow.chain(START, name, END)
    return workflow


async def sleeps(x: Any) -> int:
    await anyio.sleep(0.3)
    return 1


async def test_wait_for_a_slot_counts_in_no_step_timeout_of_a_graph() -> None:
    result = await twice(line(sleeps), 0.45, max_concurrency=1).run()
    assert result.outputs == {"a": 1, "b": 1}


async def test_wait_for_a_slot_counts_in_no_timeout_of_the_graph_itself() -> None:
    result = await twice(line(sleeps, timeout=0.45), None, max_concurrency=1).run()
    assert result.outputs == {"a": 1, "b": 1}


async def test_wait_of_a_maps_items_for_a_slot_counts_in_no_step_timeout() -> None:
    inner = Workflow("inner")
    inner.chain(START, inner.add(numbers))
    inner.map("numbers", inner.add(sleeps))
    inner.gather("sleeps", END)
    result = await twice(inner, 1.2, max_concurrency=1).run()
    assert result.outputs == {"a": [1, 1, 1], "b": [1, 1, 1]}


async def test_work_with_a_slot_still_counts() -> None:
    with pytest.raises(TimeoutError):
        await twice(line(sleeps), 0.2, max_concurrency=1).run()
