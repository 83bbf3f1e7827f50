"""Failures of items, and the graph's own errors: who handles them, and what comes of them (E12, E13)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio
import pytest

from graphrt import END, START, GraphError, Update, Workflow
from graphrt.graph import NodeState
from tests.engine.helpers import FAKE_TIME, ran, states

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module", params=FAKE_TIME)
def anyio_backend(request: pytest.FixtureRequest) -> Any:
    """Run on both event loops, in fake time."""
    return request.param


async def fails(x: Any) -> int:
    raise ValueError("no")


async def fine(x: Any) -> str:
    await anyio.sleep(1)
    return "fine"


def fork(*functions: Callable[..., Any], **options: dict[str, Any]) -> Workflow:
    """Make a graph whose nodes all come from START and lead to END."""
    workflow = Workflow("fork")
    for fn in functions:
        workflow.add(fn, **options.get(fn.__name__, {}))
        workflow.chain(START, fn, END)
    return workflow


# --- items of a map ----------------------------------------------------------------------------------------


def mapped(body: Callable[..., Any], items: list[Any], **options: Any) -> Workflow:
    """Map *body* over *items* with options of the map."""

    async def source(x: Any) -> list[Any]:
        return items

    workflow = Workflow("g")
    workflow.add(source)
    workflow.add(body)
    workflow.edge(START, source)
    workflow.map(source, body, **options)
    workflow.gather(body, END)
    return workflow


async def odd(n: int) -> int:
    await anyio.sleep(1 / (n + 1))
    if n % 2:
        raise ValueError(n)
    return n


async def test_failed_items_are_left_out() -> None:
    """E12."""
    result = await mapped(odd, list(range(6)), on_error="skip").run()
    assert result.output == [0, 2, 4]
    assert [s.state for s in result.steps if s.node == "odd"].count(NodeState.FAILED) == 3


async def test_failed_items_are_collected_in_their_places() -> None:
    """E12."""
    result = await mapped(odd, list(range(4)), on_error="collect").run()
    assert [p if isinstance(p, int) else (p.index, p.error.args) for p in result.output] == [
        0,
        (1, (1,)),
        2,
        (3, (3,)),
    ]


async def test_failed_item_fails_the_run_by_default_and_cancels_the_others() -> None:
    result = await mapped(odd, list(range(6))).run(check=False)
    assert isinstance(result.error, ValueError)
    assert result.error.args == (5,)
    assert {s.state for s in result.steps if s.node == "odd"} == {NodeState.FAILED, NodeState.CANCELLED}


@pytest.mark.parametrize(("least", "status"), [(3, "succeeded"), (4, "failed")])
async def test_min_success_counts_delivered_values(least: int, status: str) -> None:
    result = await mapped(odd, list(range(6)), on_error="skip", min_success=least).run(check=False)
    assert result.status == status
    assert (result.error is None) == (status == "succeeded")


async def test_too_few_raises_the_first_failed_items_exception() -> None:
    """E12: first by index, not by time."""
    with pytest.raises(ValueError, match="1") as caught:
        await mapped(odd, list(range(6)), on_error="skip", min_success=4).run()
    assert caught.value.args == (1,)


async def test_min_success_holds_for_an_empty_map() -> None:
    with pytest.raises(GraphError, match="map source -> odd delivered 0 values and needs min_success=1"):
        await mapped(odd, [], on_error="skip", min_success=1).run()


async def test_collected_failures_do_not_count_as_success() -> None:
    with pytest.raises(ValueError, match="1"):
        await mapped(odd, [1, 3, 5], on_error="collect", min_success=1).run()


async def test_nearest_map_handles_an_items_failure() -> None:
    """E12: an inner "fail" fails the outer's item, which the outer skips."""

    async def rows(x: Any) -> list[list[int]]:
        return [[0, 2], [0, 1], [4]]

    async def cells(row: list[int]) -> list[int]:
        return row

    async def row(parts: list[int]) -> list[int]:
        return parts

    workflow = Workflow("g")
    for fn in (rows, cells, odd, row):
        workflow.add(fn)
    workflow.edge(START, rows)
    workflow.map(rows, cells, on_error="skip")
    workflow.map(cells, odd)
    workflow.gather(odd, row)
    workflow.gather(row, END)
    assert (await workflow.run()).output == [[0, 2], [4]]


async def test_policy_of_a_node_inside_comes_before_the_maps() -> None:
    async def source(x: Any) -> list[int]:
        return [0, 1]

    async def last(n: int) -> int:
        return n

    workflow = Workflow("g")
    workflow.add(source)
    workflow.add(odd, on_error="skip")
    workflow.add(last)
    workflow.edge(START, source)
    workflow.map(source, odd)
    workflow.edge(odd, last)
    workflow.gather(last, END)
    assert (await workflow.run()).output == [0]


async def test_items_left_out_bring_no_state() -> None:
    """E23."""
    import operator
    from typing import Annotated

    from pydantic import BaseModel

    from graphrt import Reduce

    class State(BaseModel):
        seen: Annotated[list[int], Reduce(operator.add)] = []

    async def source(x: Any) -> list[int]:
        return [0, 1, 2]

    async def body(n: int) -> Update[int]:
        return Update(n, seen=[n])

    workflow = Workflow("g", state=State)
    workflow.add(source)
    workflow.add(body)
    workflow.add(odd)
    workflow.edge(START, source)
    workflow.map(source, body, on_error="skip")
    workflow.edge(body, odd)
    workflow.gather(odd, END)
    assert (await workflow.run()).state.seen == [0, 2]


# --- the graph's own errors (E13) --------------------------------------------------------------------------


async def test_exit_taken_twice_is_caught_by_no_node_policy() -> None:
    async def step(n: int) -> int:
        return n + 1

    async def out(n: int) -> int:
        return n

    workflow = Workflow("g")
    workflow.add(step, on_error="skip")
    workflow.add(out)
    workflow.edge(START, step)
    workflow.edge(step, step, when=lambda n: n < 3)
    workflow.edge(step, out)
    workflow.edge(out, END)
    with pytest.raises(GraphError, match="edge step -> out leaves its cycle in round 1 and again in round 2"):
        await workflow.run(0)


async def test_two_entries_of_one_item_are_that_items_failure() -> None:
    """E10: a map's policy catches it."""

    async def source(x: Any) -> list[int]:
        return [1, 2]

    async def one(n: int) -> int:
        return n

    async def other(n: int) -> int:
        return -n

    workflow = Workflow("g")
    for fn in (source, one, other):
        workflow.add(fn)
    workflow.edge(START, source)
    workflow.map(source, one, on_error="collect")
    workflow.edge(one, other, when=lambda n: n == 2)
    workflow.gather(one, END)
    workflow.gather(other, END)
    first, second = (await workflow.run()).output
    assert first == 1
    assert isinstance(second.error, GraphError)
    assert "gives two entries to one gather" in str(second.error)


async def test_error_inside_a_graph_that_never_reaches_end_is_the_holders_failure() -> None:
    inner = Workflow("inner")
    inner.add(fine)
    inner.edge(START, fine)
    inner.edge(fine, END, when=lambda x: False)
    outer = Workflow("outer")
    outer.add(inner, fallback="instead")
    outer.chain(START, inner, END)
    assert (await outer.run()).output == "instead"


async def test_unhandled_failure_in_a_side_node_fails_the_run() -> None:
    workflow = fork(fine)
    workflow.add(fails, side=True)
    workflow.edge(fine, fails)
    with pytest.raises(ValueError, match="no"):
        await workflow.run()


async def test_update_from_a_side_node_is_an_error() -> None:
    """E6."""
    from pydantic import BaseModel

    class State(BaseModel):
        n: int = 0

    async def note(x: Any) -> Any:
        return Update(1, n=2)

    workflow = Workflow("g", state=State)
    workflow.add(fine)
    workflow.add(note, side=True)
    workflow.chain(START, fine, END)
    workflow.edge(fine, note)
    with pytest.raises(GraphError, match="side node 'note' returned an Update"):
        await workflow.run()


async def test_steps_of_a_failed_run_are_all_there() -> None:
    async def after(x: Any) -> int:
        return 1

    workflow = fork(fine, fails)
    workflow.add(after)
    workflow.edge(fine, after)
    workflow.edge(after, END)
    result = await workflow.run(check=False)
    assert ran(result) == ["fine", "fails"]
    assert states(result) == {"fails": "failed", "fine": "cancelled", "after": "pending"}
