"""Many runs, long chains, many rounds and items, deep graphs: bounded by what is live, not by what there is."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Annotated, Any

import anyio
import anyio.lowlevel
import pytest
from pydantic import BaseModel

from graphrt import END, START, Reduce, Update, Workflow
from graphrt.graph import NodeState
from tests.engine.helpers import Gate, line, ran, yield_often

pytestmark = pytest.mark.anyio


async def one(x: Any) -> int:
    return 1


def mapped(source: Callable[..., Any], body: Any) -> Workflow:
    """Map *body* over *source*."""
    workflow = Workflow("g")
    workflow.add(source, name="source")
    workflow.add(body, name="body")
    workflow.edge(START, "source")
    workflow.map("source", "body")
    workflow.gather("body", END)
    return workflow


async def _pair(x: int) -> list[int]:
    await anyio.lowlevel.checkpoint()
    return [x, x + 1]


async def _plus(item: int) -> int:
    await anyio.lowlevel.checkpoint()
    return item + 1


async def test_thousand_runs_at_once() -> None:
    """E24."""
    graph = mapped(_pair, _plus).compile()
    outputs: dict[int, Any] = {}

    async def run(x: int) -> None:
        outputs[x] = (await graph.run(x)).output

    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            for x in range(1000):
                tasks.start_soon(run, x)
    assert outputs == {x: [x + 1, x + 2] for x in range(1000)}


async def plus_one(x: int) -> int:
    return x + 1


def long_chain(length: int) -> Workflow:
    """A chain of so many nodes."""
    workflow = Workflow("chain")
    for i in range(length):
        workflow.add(plus_one, name=f"n{i}")
    workflow.chain(START, *(f"n{i}" for i in range(length)), END)
    return workflow


@pytest.fixture(scope="module")
def chain_of_ten_thousand() -> Any:
    """Compile a long chain once."""
    return long_chain(10_000).compile()


async def test_chain_of_ten_thousand_nodes(chain_of_ten_thousand: Any) -> None:
    result = await chain_of_ten_thousand.run(0)
    assert result.output == 10_000
    assert len(result.steps) == 10_000


async def test_chain_of_ten_thousand_nodes_of_which_the_first_is_skipped() -> None:
    """A long chain of skips does not nest."""
    chain = Workflow("skips")
    chain.add(one, name="gate")
    for i in range(10_000):
        chain.add(plus_one, name=f"n{i}")
    chain.edge(START, "gate")
    chain.edge("gate", "n0", when=lambda x: False)
    chain.chain(*(f"n{i}" for i in range(10_000)), END)
    chain.edge("gate", END)
    result = await chain.run(0)
    assert result.output == 1
    assert ran(result) == ["gate"]
    assert sum(s.state is NodeState.SKIPPED for s in result.steps) == 10_000


async def test_three_thousand_failures_that_are_skipped() -> None:
    """Failure, policy and skip, again and again."""

    async def fails(x: Any) -> int:
        raise ValueError

    workflow = Workflow("g")
    workflow.add(one)
    workflow.chain(START, one, END)
    for i in range(3000):
        workflow.add(fails, name=f"f{i}", on_error="skip")
        workflow.add(plus_one, name=f"a{i}")
        workflow.edge(one, f"f{i}")
        workflow.chain(f"f{i}", f"a{i}", END)
    assert (await workflow.run()).output == 1


async def test_ten_thousand_rounds() -> None:
    workflow = Workflow("g", max_rounds=10_000)
    workflow.add(plus_one)
    workflow.edge(START, plus_one)
    workflow.edge(plus_one, plus_one, when=lambda n: n < 10_000)
    workflow.edge(plus_one, END, when=lambda n: n >= 10_000)
    result = await workflow.run(0)
    assert (result.output, result.rounds) == (10_000, 10_000)


async def test_ten_thousand_rounds_that_write_and_read_state() -> None:
    """E23: linear for loops."""

    class State(BaseModel):
        total: Annotated[int, Reduce(lambda a, b: a + b)] = 0
        last: int = 0

    async def step(n: int, state: State) -> Update[int]:
        assert state.total == state.last == n
        return Update(n + 1, total=1, last=n + 1)

    workflow = Workflow("g", max_rounds=10_000, state=State)
    workflow.add(step)
    workflow.edge(START, step)
    workflow.edge(step, step, when=lambda n: n < 10_000)
    workflow.edge(step, END, when=lambda n: n >= 10_000)
    result = await workflow.run(0)
    assert result.state == State(total=10_000, last=10_000)


async def test_map_over_a_hundred_thousand_items_holds_a_hundred_at_a_time() -> None:
    """E21: tasks, and scopes, are bounded; the number of items is not."""
    gate = Gate()
    tasks: list[int] = []

    async def source(x: Any) -> list[int]:
        return list(range(100_000))

    async def body(item: int) -> int:
        async with gate:
            if item % 5000 == 0:
                tasks.append(len(anyio.get_running_tasks()))
                await yield_often(3)
        return item

    with anyio.fail_after(120):
        result = await mapped(source, body).run()
    assert result.output == list(range(100_000))
    assert gate.calls == 100_000
    assert gate.most <= 100
    assert max(tasks) < 120


async def test_tasks_of_a_map_that_waits_are_bounded_by_its_limit() -> None:
    gate = Gate()
    tasks: list[int] = []

    async def source(x: Any) -> AsyncIterator[int]:
        for i in range(3000):
            yield i

    async def body(item: int) -> int:
        async with gate:
            await anyio.lowlevel.checkpoint()
            if item % 100 == 0:
                tasks.append(len(anyio.get_running_tasks()))
        return item

    workflow = Workflow("g")
    workflow.add(source)
    workflow.add(body)
    workflow.edge(START, source)
    workflow.map(source, body, max_concurrency=20)
    workflow.gather(body, END)
    with anyio.fail_after(60):
        result = await workflow.run()
    assert result.output == list(range(3000))
    assert gate.most <= 20
    assert max(tasks) <= 20 + 10


async def test_fan_out_of_two_thousand_and_join() -> None:
    workflow = Workflow("g")
    scope: dict[str, Any] = {}
    names = [f"n{i}" for i in range(2000)]
    exec(f"async def join({', '.join(names)}):\n    return {' + '.join(names)}", scope)  # noqa: S102 - many parameters
    workflow.add(scope["join"])
    for name in names:
        workflow.add(one, name=name)
        workflow.edge(START, name)
        workflow.edge(name, "join")
    workflow.edge("join", END)
    assert (await workflow.run()).output == 2000


async def test_graphs_nested_fifty_deep() -> None:
    workflow: Any = line(plus_one)
    for i in range(50):
        outer = Workflow(f"level{i}")
        outer.add(workflow, name="inner")
        outer.add(plus_one)
        outer.chain(START, "inner", plus_one, END)
        workflow = outer
    result = await workflow.run(0)
    assert result.output == 51


async def test_failure_fifty_graphs_deep_is_raised_bare_with_its_path() -> None:
    async def fails(x: Any) -> int:
        await yield_often()
        raise ValueError("deep")

    workflow: Any = line(fails)
    for i in range(50):
        outer = Workflow(f"level{i}")
        outer.add(workflow, name="inner")
        outer.chain(START, "inner", END)
        workflow = outer
    with pytest.raises(ValueError, match="deep") as caught:
        await workflow.run(0)
    assert caught.value.__notes__[0].startswith(f"node 'fails' in '{'/'.join(['inner'] * 50)}', round 1, attempt 1")


async def test_failure_of_an_item_inside_a_graph_names_the_innermost_step_and_its_item() -> None:
    async def fails(n: int) -> int:
        raise ValueError("deep")

    inner = line(fails)
    workflow = mapped(_pair, inner)
    result = await workflow.run(0, check=False)
    (failure,) = [f for f in result.failures if f.error is result.error]
    assert (failure.node, failure.scope, failure.index) == ("fails", "source[0]/body", 0)


async def test_events_of_a_run_that_is_given_no_reader_cost_nothing_to_keep() -> None:
    """A run without a reader keeps steps and no events."""
    result = await long_chain(50).run(0)
    assert len(result.steps) == 50
