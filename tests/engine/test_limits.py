"""Slots, limiters, rates and budgets (E21): exact, shared as said, and held only while a function runs."""

from __future__ import annotations

import threading
import time
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from graphrt import END, START, Budget, ConfigError, LimitExceededError, RateLimit, RetryPolicy, RunContext, Workflow
from graphrt.graph import BudgetTracker, Limiter, Question
from graphrt.graph.scheduler.limits import RateGate
from tests.engine.helpers import FAKE_TIME, GUARD, Asking, Gate, line

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module", params=FAKE_TIME)
def anyio_backend(request: pytest.FixtureRequest) -> Any:
    """Run on both event loops, in fake time."""
    return request.param


def items(number: int) -> Callable[..., Any]:
    """Make a source of so many numbers."""

    async def source(x: Any) -> list[int]:
        return list(range(number))

    return source


def mapped(source: Callable[..., Any], body: Any, *, options: dict[str, Any] | None = None, **of_map: Any) -> Workflow:
    """Map *body* over *source*; *options* are the body's, the rest the map's."""
    workflow = Workflow("g")
    workflow.add(source, name="source")
    workflow.add(body, name="body", **(options or {}))
    workflow.edge(START, "source")
    workflow.map("source", "body", **of_map)
    workflow.gather("body", END)
    return workflow


class Working:
    """A node function that works for a second inside a gate."""

    def __init__(self, gate: Gate, seconds: float = 1.0) -> None:
        self.gate = gate
        self.seconds = seconds

    async def __call__(self, item: Any) -> Any:
        async with self.gate:
            await anyio.sleep(self.seconds)
        return item


# --- slots -------------------------------------------------------------------------------------------------


async def test_map_runs_a_hundred_items_at_once_by_default() -> None:
    gate = Gate()
    await mapped(items(250), Working(gate)).run()
    assert (gate.most, gate.calls) == (100, 250)


@pytest.mark.parametrize("limits", [(3, 5), (5, 3)])
async def test_smallest_of_several_limits_holds(limits: tuple[int, int]) -> None:
    gate = Gate()
    await mapped(items(20), Working(gate), max_concurrency=limits[0]).run(max_concurrency=limits[1])
    assert gate.most == 3


async def test_limit_of_a_run_counts_every_branch_map_and_graph_inside() -> None:
    gate = Gate()
    inner = mapped(items(4), Working(gate))
    workflow = Workflow("g", max_concurrency=3)
    workflow.add(inner, name="inner")
    workflow.chain(START, "inner", END)
    for i in range(4):
        workflow.add(Working(gate), name=f"n{i}")
        workflow.chain(START, f"n{i}", END)
    with anyio.fail_after(GUARD * 10):
        await workflow.run()
    assert (gate.most, gate.calls) == (3, 8)


async def test_limit_given_to_the_run_replaces_the_workflows() -> None:
    gate = Gate()
    workflow = Workflow("g", max_concurrency=1)
    for i in range(4):
        workflow.add(Working(gate), name=f"n{i}")
        workflow.chain(START, f"n{i}", END)
    await workflow.run(max_concurrency=2)
    assert gate.most == 2


async def test_nested_maps_multiply_their_own_limits_only() -> None:
    gate = Gate()

    async def row(n: int) -> list[int]:
        return [n] * 4

    async def total(parts: list[int]) -> int:
        return sum(parts)

    workflow = Workflow("g")
    for name, fn in (("source", items(4)), ("row", row), ("cell", Working(gate)), ("total", total)):
        workflow.add(fn, name=name)
    workflow.edge(START, "source")
    workflow.map("source", "row", max_concurrency=2)
    workflow.map("row", "cell", max_concurrency=1)
    workflow.gather("cell", "total")
    workflow.gather("total", END)
    assert (await workflow.run()).output == [0, 4, 8, 12]
    assert gate.most == 2


async def test_no_slot_is_held_by_an_open_map_or_a_node_that_holds_a_graph() -> None:
    """E21: with one slot, whatever holds one while others need it would hang."""
    gate = Gate()

    async def source(x: Any) -> AsyncIterator[int]:
        for i in range(3):
            yield i

    inner = mapped(source, Working(gate))
    outer = mapped(items(3), inner)
    with anyio.fail_after(GUARD * 10):
        result = await outer.run(max_concurrency=1)
    assert result.output == [[0, 1, 2]] * 3
    assert gate.most == 1


@pytest.mark.parametrize("limit", [1, 2])
@pytest.mark.parametrize("depth", [1, 2])
async def test_map_without_a_free_slot_holds_nothing_up_when_a_branch_beside_it_ends(limit: int, depth: int) -> None:
    """What ran the branch has nothing to do then; it waits, and does not keep the event loop busy."""
    gate = Gate()

    async def branch(x: Any) -> str:
        await anyio.sleep(0.5)
        return "branch"

    inner: Any = Working(gate)
    for _ in range(depth):
        inner = mapped(items(3), inner, max_concurrency=limit)
    workflow = Workflow("g")
    workflow.add(inner, name="inner")
    workflow.add(branch)
    for name in ("inner", "branch"):
        workflow.chain(START, name, END)
    with anyio.fail_after(1000):
        result = await workflow.run()
    assert result.outputs["branch"] == "branch"
    assert gate.calls == 3**depth
    assert gate.most == limit


async def test_no_slot_is_held_during_a_retrys_pause() -> None:
    moments: dict[str, float] = {}

    async def flaky(x: Any) -> int:
        if "flaky" not in moments:
            moments["flaky"] = anyio.current_time()
            raise ValueError
        return 1

    async def other(x: Any) -> int:
        moments["other"] = anyio.current_time()
        return 2

    workflow = Workflow("g", max_concurrency=1)
    workflow.add(flaky, retry=RetryPolicy(wait_initial=5, wait_max=60))
    workflow.add(other)
    for fn in (flaky, other):
        workflow.chain(START, fn, END)
    await workflow.run()
    assert moments["other"] == moments["flaky"]


async def test_retrys_pause_keeps_nothing_else_from_starting() -> None:
    """With no limit at all: the pause belongs to one step."""
    moments: dict[str, float] = {}
    begun = anyio.current_time()

    def node(name: str, failures: int) -> Callable[..., Any]:
        left = [failures]

        async def work(x: Any) -> int:
            moments.setdefault(name, anyio.current_time() - begun)
            if left[0]:
                left[0] -= 1
                raise ValueError
            return 1

        return work

    workflow = Workflow("g")
    for name, failures in (("a", 1), ("b", 2), ("c", 0), ("d", 1)):
        workflow.add(node(name, failures), name=name, retry=RetryPolicy(wait_initial=5, wait_max=60))
        workflow.chain(START, name, END)
    workflow.add(node("e", 0), name="e")
    workflow.chain("c", "e", END)
    await workflow.run()
    assert moments == dict.fromkeys("abcde", 0)


async def test_no_slot_is_held_while_a_person_is_asked() -> None:
    moments: dict[str, float] = {}
    begun = anyio.current_time()

    async def other(draft: Any) -> int:
        moments["other"] = anyio.current_time() - begun
        return 2

    async def patient(question: Question) -> str:
        await anyio.sleep(60)
        return "yes"

    workflow = Workflow("g", max_concurrency=1)
    workflow.add(Asking("ask"))
    workflow.add(other)
    for node in ("ask", "other"):
        workflow.chain(START, node, END)
    await workflow.run(on_ask=patient)
    assert moments == {"other": 0}


@pytest.mark.parametrize("held_back_by", ["rate", "limiter", "both"])
async def test_no_slot_of_the_run_is_held_while_a_rate_or_a_limiter_is_waited_for(held_back_by: str) -> None:
    """E21: a slot is held only while a node's own function runs."""
    begun = anyio.current_time()
    moments: list[float] = []

    async def slow(item: int) -> int:
        await anyio.sleep(30)
        return item

    async def other(x: Any, ctx: RunContext[Any]) -> int:
        if ctx.step.attempt == 1:
            raise ValueError  # a pause comes, in which others may take the slot
        moments.append(anyio.current_time() - begun)
        return 1

    options: dict[str, dict[str, Any]] = {
        "rate": {"rate_limit": RateLimit(1, 60)},
        "limiter": {"max_concurrency": 1},
        "both": {"rate_limit": RateLimit(1, 60), "max_concurrency": 1},
    }
    workflow = mapped(items(5), slow, options=options[held_back_by])
    for i in range(10):
        workflow.add(other, name=f"n{i}", retry=RetryPolicy(wait_initial=1))
    workflow.chain(START, *(f"n{i}" for i in range(10)), END)
    result = await workflow.run(max_concurrency=2)
    assert result.outputs["body"] == list(range(5))
    assert moments == pytest.approx([i + 1 for i in range(10)])


async def test_map_whose_items_wait_for_a_limiter_opens_no_more_than_its_limit() -> None:
    """E21: the items that wait are tasks too, and there are only so many of them."""
    most: list[int] = []

    async def body(item: int) -> int:
        most.append(len(anyio.get_running_tasks()))
        await anyio.sleep(1)
        return item

    workflow = mapped(items(300), body, options={"max_concurrency": 2}, max_concurrency=10)
    assert (await workflow.run()).output == list(range(300))
    assert max(most) < 20


async def test_rate_and_slots_that_are_both_scarce_let_everything_through() -> None:
    """A start that comes late for its turn takes a new one, and gets there in the end."""
    gate = Gate()

    async def busy(x: Any) -> int:
        await anyio.sleep(25)
        return 1

    workflow = mapped(items(4), Working(gate), options={"rate_limit": RateLimit(1, 10), "max_concurrency": 1})
    workflow.add(busy)
    workflow.chain(START, busy, END)
    with anyio.fail_after(10_000):
        result = await workflow.run(max_concurrency=1)
    assert result.outputs["body"] == [0, 1, 2, 3]
    assert (gate.most, gate.calls) == (1, 4)


async def test_limiter_and_slots_that_are_both_scarce_do_not_lock() -> None:
    gate = Gate()
    limiter = Limiter(2)
    graphs = [
        mapped(items(8), Working(gate), options={"max_concurrency": limiter}, max_concurrency=3).compile()
        for _ in range(3)
    ]
    with anyio.fail_after(1000):
        async with anyio.create_task_group() as tasks:
            for graph in graphs:
                tasks.start_soon(partial(graph.run, max_concurrency=1))
    assert (gate.most, gate.calls) == (2, 24)


async def test_source_between_two_yields_holds_no_slot() -> None:
    order: list[str] = []

    async def source(x: Any) -> AsyncIterator[int]:
        for i in range(3):
            order.append(f"yield {i}")
            yield i

    async def body(item: int) -> int:
        order.append(f"body {item}")
        await anyio.sleep(1)
        return item

    with anyio.fail_after(GUARD * 10):
        await mapped(source, body, max_concurrency=1).run(max_concurrency=1)
    assert order == ["yield 0", "body 0", "yield 1", "body 1", "yield 2", "body 2"]


async def test_slots_of_cancelled_steps_are_free_again() -> None:
    gate = Gate()
    workflow = Workflow("g", max_concurrency=1)
    workflow.add(Working(gate, 100), name="slow", timeout=2, on_error="skip")
    workflow.add(Working(gate), name="next")
    for name in ("slow", "next"):
        workflow.chain(START, name, END)
    with anyio.fail_after(GUARD * 10):
        result = await workflow.run(1)
    assert result.outputs == {"next": 1}
    assert gate.calls == 2


async def test_slots_of_an_aborted_map_are_free_again() -> None:
    """A losing map that is cancelled while items wait for slots."""
    gate = Gate()

    async def quick(x: Any) -> str:
        await anyio.sleep(1.5)
        return "quick"

    async def first(value: Any) -> Any:
        return value

    workflow = Workflow("g", max_concurrency=3)
    workflow.add(quick)
    workflow.add(items(50), name="source")
    workflow.add(Working(gate, 1), name="body")
    workflow.add(first, join="any", cancel_rest=True)
    workflow.add(Working(gate, 1), name="after")
    workflow.chain(START, quick, first, "after", END)
    workflow.edge(START, "source")
    workflow.map("source", "body")
    workflow.gather("body", first)
    with anyio.fail_after(GUARD * 10):
        result = await workflow.run()
    assert result.output == "quick"
    assert gate.calls < 10


# --- limiters of nodes -------------------------------------------------------------------------------------


async def test_nodes_limit_counts_in_all_runs_of_the_graph() -> None:
    gate = Gate()
    graph = mapped(items(5), Working(gate), options={"max_concurrency": 3}).compile()
    async with anyio.create_task_group() as tasks:
        for _ in range(4):
            tasks.start_soon(graph.run)
    assert (gate.most, gate.calls) == (3, 20)


async def test_limiter_is_shared_by_nodes_and_graphs() -> None:
    gate = Gate()
    limiter = Limiter(2)
    graphs = [mapped(items(5), Working(gate), options={"max_concurrency": limiter}).compile() for _ in range(3)]
    async with anyio.create_task_group() as tasks:
        for graph in graphs:
            tasks.start_soon(graph.run)
    assert (gate.most, gate.calls) == (2, 15)


async def test_limiter_serves_in_turn() -> None:
    order: list[int] = []

    async def body(item: int) -> int:
        order.append(item)
        await anyio.sleep(1)
        return item

    await mapped(items(6), body, options={"max_concurrency": Limiter(1)}).run()
    assert order == list(range(6))


async def test_limiter_is_free_again_after_cancelled_and_failed_steps() -> None:
    limiter = Limiter(1)

    async def slow(x: Any) -> int:
        await anyio.sleep(100)
        return 1

    async def fails(x: Any) -> int:
        raise ValueError("no")

    for body in (slow, fails):
        with anyio.move_on_after(1):
            await mapped(items(3), body, options={"max_concurrency": limiter}).run(check=False)
    with anyio.fail_after(GUARD):
        result = await mapped(items(2), Working(Gate()), options={"max_concurrency": limiter}).run()
    assert result.output == [0, 1]


async def test_step_cancelled_while_it_waits_for_a_limiter_leaves_the_queue() -> None:
    gate = Gate()
    limiter = Limiter(1)
    graph = mapped(items(1), Working(gate, 10), options={"max_concurrency": limiter}).compile()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(graph.run)
        await anyio.sleep(1)
        with anyio.move_on_after(2):
            await graph.run()
        tasks.start_soon(graph.run)
    assert (gate.most, gate.calls) == (1, 2)


@pytest.mark.parametrize("slots", [0, -1])
def test_limiter_without_slots_is_refused(slots: int) -> None:
    with pytest.raises(ConfigError, match="lets nothing through"):
        Limiter(slots)


def test_limiter_is_shared_by_two_loops_in_two_threads() -> None:
    """E21: bound to no event loop (a limiter of anyio's hangs here)."""
    limiter = Limiter(1)
    inside: list[str] = []
    overlaps: list[str] = []
    results: dict[str, Any] = {}

    async def body(item: int) -> int:
        overlaps.extend(inside)
        inside.append("in")
        await anyio.lowlevel.checkpoint()
        await anyio.sleep(0.001)
        inside.pop()
        return item

    graph = mapped(items(10), body, options={"max_concurrency": limiter}).compile()

    def run(backend: str) -> None:
        results[backend] = graph.run_sync(backend=backend).output

    threads = [threading.Thread(target=run, args=(backend,)) for backend in ("asyncio", "trio")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(GUARD)
    assert results == {"asyncio": list(range(10)), "trio": list(range(10))}
    assert overlaps == []


# --- rates -------------------------------------------------------------------------------------------------


async def test_rate_lets_so_many_through_in_any_window() -> None:
    moments: list[float] = []
    begun = anyio.current_time()

    async def body(item: int) -> int:
        moments.append(anyio.current_time() - begun)
        return item

    await mapped(items(7), body, options={"rate_limit": RateLimit(3, 10)}).run()
    assert moments == pytest.approx([0, 0, 0, 10, 10, 10, 20], abs=1)


def test_rate_counts_attempts() -> None:
    """In real time, which a rate shared by several event loops goes by."""
    moments: list[float] = []

    async def flaky(x: Any) -> int:
        moments.append(time.monotonic())
        if len(moments) < 3:
            raise ValueError
        return 1

    workflow = Workflow("g")
    workflow.add(flaky, retry=RetryPolicy(wait_initial=0), rate_limit=RateLimit(1, 0.02))
    workflow.chain(START, flaky, END)
    workflow.run_sync()
    assert moments[1] - moments[0] > 0.01
    assert moments[2] - moments[0] > 0.03


def test_rate_is_kept_over_every_window_however_calls_come() -> None:
    moments = (0.0, 1.0, 9.0, 9.5, 9.5, 30.0, 30.0, 30.0, 30.0)
    clock = iter(moments)
    gate = RateGate(RateLimit(3, 10), clock=lambda: next(clock))
    turns = [moment + gate.reserve() for moment in moments]
    assert turns == [0, 1, 9, 10, 11, 30, 30, 30, 40]
    assert all(b - a >= 10 for a, b in zip(turns, turns[3:], strict=False))


async def test_waiting_for_a_rate_counts_in_no_timeout() -> None:
    async def body(item: int) -> int:
        await anyio.sleep(1)
        return item

    options = {"rate_limit": RateLimit(1, 30), "timeout": 2, "step_timeout": 2}
    assert (await mapped(items(3), body, options=options).run(timeout=10)).output == [0, 1, 2]


@pytest.mark.parametrize("rate", [(0, 1), (1, 0), (1, -1), (1, float("inf"))])
def test_rate_that_makes_no_sense_is_refused(rate: tuple[int, float]) -> None:
    with pytest.raises(ConfigError):
        RateLimit(*rate)


# --- budgets -----------------------------------------------------------------------------------------------


async def test_budget_is_shared_by_all_branches_and_graphs_of_a_run() -> None:
    async def call(item: Any, ctx: RunContext[Any]) -> int:
        assert ctx.budget is not None
        ctx.budget.take_request()
        return 1

    inner = mapped(items(3), call)
    workflow = Workflow("g")
    workflow.add(inner, name="inner")
    workflow.add(call, name="own")
    for name in ("inner", "own"):
        workflow.chain(START, name, END)
    assert (await workflow.run(budget=Budget(requests=4))).status == "succeeded"
    with pytest.raises(LimitExceededError) as caught:
        await workflow.run(budget=Budget(requests=3))
    assert caught.value.limit == "requests"


async def test_budget_is_new_in_every_run() -> None:
    async def call(item: Any, ctx: RunContext[Any]) -> int:
        assert ctx.budget is not None
        ctx.budget.take_tool_call()
        return 1

    workflow = line(call)
    for _ in range(3):
        await workflow.run(budget=Budget(tool_calls=1))


async def test_budget_given_as_a_tracker_is_shared_by_runs() -> None:
    async def call(item: Any, ctx: RunContext[Any]) -> int:
        assert ctx.budget is not None
        ctx.budget.take_request()
        return 1

    tracker = BudgetTracker(Budget(requests=2))
    statuses = [(await line(call).run(budget=tracker, check=False)).status for _ in range(3)]
    assert statuses == ["succeeded", "succeeded", "failed"]


async def test_no_budget_is_none() -> None:
    async def node(x: Any, ctx: RunContext[Any]) -> Any:
        return ctx.budget

    assert (await line(node).run()).output is None


def test_tokens_are_reserved_before_a_call_and_settled_after_it() -> None:
    """E21, B-116: parallel calls together never exceed what they were promised."""
    tracker = BudgetTracker(Budget(tokens=100))
    first = tracker.take_request(60)
    second = tracker.take_request(60)
    assert (first, second) == (60, 40)
    with pytest.raises(LimitExceededError, match="budget of 100 tokens is spent"):
        tracker.take_request()
    tracker.settle_tokens(first, 10)
    assert tracker.take_request() == 50


def test_unknown_usage_settles_at_the_reservation() -> None:
    tracker = BudgetTracker(Budget(tokens=100))
    tracker.settle_tokens(tracker.take_request(70), None)
    assert tracker.tokens_left == 30


def test_call_without_max_tokens_is_given_what_is_left() -> None:
    tracker = BudgetTracker(Budget(tokens=100))
    tracker.settle_tokens(tracker.take_request(70), 70)
    assert tracker.take_request() == 30


def test_call_that_never_reached_a_model_gives_its_tokens_back() -> None:
    tracker = BudgetTracker(Budget(tokens=100))
    tracker.release_request(tracker.take_request(70))
    assert tracker.tokens_left == 100


def test_budget_counts_exactly_from_many_threads() -> None:
    tracker = BudgetTracker(Budget(requests=500, tool_calls=500))
    refused: list[str] = []

    def take() -> None:
        for _ in range(100):
            for name, call in (("requests", tracker.take_request), ("tools", tracker.take_tool_call)):
                try:
                    call()
                except LimitExceededError:
                    refused.append(name)

    threads = [threading.Thread(target=take) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(GUARD)
    assert (tracker.requests, tracker.tool_calls) == (500, 500)
    assert (refused.count("requests"), refused.count("tools")) == (100, 100)


@pytest.mark.parametrize("limit", [{"requests": -1}, {"tokens": 1.5}, {"tool_calls": True}, {"cost": float("nan")}])
def test_budget_that_makes_no_sense_is_refused(limit: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        Budget(**limit)
