"""Faults of kind 3: limits are exact, say what they refused, and keep what was done (E20)."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from graphrt import END, START, LimitExceededError, RetryPolicy, Workflow
from graphrt.graph import NodeState, TerminationKind
from tests.engine.helpers import GUARD, check_whole, line, ran, yield_often

pytestmark = pytest.mark.anyio


async def a(x: Any) -> int:
    return 1


async def b(x: int) -> int:
    return 2


async def c(x: int) -> int:
    return 3


async def counter(n: int) -> int:
    return n + 1


def loop(rounds: int, **options: Any) -> Workflow:
    """Make a graph whose cycle wants exactly so many rounds, from input 0."""
    workflow = Workflow("loop", **options)
    workflow.add(counter)
    workflow.edge(START, counter)
    workflow.edge(counter, counter, when=lambda n: n < rounds, label="again")
    workflow.edge(counter, END, when=lambda n: n >= rounds)
    return workflow


# --- steps -------------------------------------------------------------------------------------------------


async def test_three_nodes_need_three_steps() -> None:
    """B-024."""
    result = await line(a, b, c, max_steps=3).run()
    assert (result.status, result.output) == ("succeeded", 3)


async def test_two_steps_for_three_nodes_stop_before_the_third_and_name_it() -> None:
    """B-024."""
    with pytest.raises(LimitExceededError, match="node 'c' is refused") as caught:
        await line(a, b, c, max_steps=2).run()
    assert caught.value.limit == "max_steps"


async def test_stopped_run_keeps_what_was_done() -> None:
    """B-024."""
    events: list[Any] = []
    result = await line(a, b, c, max_steps=2).run(check=False, on_event=events.append)
    assert result.status == "stopped"
    assert (result.termination.kind, result.termination.code) == (TerminationKind.STOPPED, "max_steps")
    assert [(s.node, s.state, s.value) for s in result.steps if s.started is not None] == [
        ("a", "succeeded", 1),
        ("b", "succeeded", 2),
    ]
    assert result.node_states["c"] is NodeState.CANCELLED
    assert events[-1].type == "run.stopped"
    check_whole(events)


@pytest.mark.parametrize("limit", range(1, 9))
async def test_limit_counts_started_steps_exactly(limit: int) -> None:
    """Seven steps: source, four items, gather's target, last."""

    async def source(x: Any) -> list[int]:
        return [1, 2, 3, 4]

    async def body(item: int) -> int:
        await yield_often(item)
        return item

    async def total(parts: list[int]) -> int:
        return sum(parts)

    workflow = Workflow("g", max_steps=limit)
    for fn in (source, body, total, b):
        workflow.add(fn)
    workflow.edge(START, source)
    workflow.map(source, body)
    workflow.gather(body, total)
    workflow.chain(total, b, END)
    with anyio.fail_after(GUARD):
        result = await workflow.run(check=False)
    assert result.status == ("succeeded" if limit >= 7 else "stopped")
    assert len(ran(result)) == min(limit, 7)


async def test_attempts_are_no_steps() -> None:
    calls: list[int] = []

    async def fails(x: Any) -> int:
        calls.append(1)
        if len(calls) < 3:
            raise ValueError
        return 1

    workflow = Workflow("g", max_steps=1)
    workflow.add(fails, retry=RetryPolicy(attempts=3, wait_initial=0))
    workflow.chain(START, fails, END)
    assert (await workflow.run()).output == 1


async def test_skipped_nodes_are_no_steps() -> None:
    workflow = Workflow("g", max_steps=2)
    for fn in (a, b, c):
        workflow.add(fn)
    workflow.edge(START, a)
    workflow.branch(a, {1: b, 2: c})
    workflow.edge(b, END)
    workflow.edge(c, END)
    assert (await workflow.run()).output == 2


@pytest.mark.parametrize(("limit", "status"), [(5, "succeeded"), (4, "stopped")])
async def test_steps_inside_a_graph_count(limit: int, status: str) -> None:
    """E20: inner ones counted; the node that holds the graph is a step too."""
    inner = line(a, b)
    outer = Workflow("outer", max_steps=limit)
    outer.add(inner, name="inner")
    outer.add(a, name="first")
    outer.add(c)
    outer.chain(START, "first", "inner", c, END)
    assert (await outer.run(check=False)).status == status


async def test_no_policy_absorbs_the_runs_step_limit() -> None:
    async def source(x: Any) -> list[int]:
        return [1, 2, 3]

    workflow = Workflow("g", max_steps=2)
    workflow.add(source)
    workflow.add(b, on_error="skip", fallback=7)
    workflow.add(a)
    workflow.edge(START, source)
    workflow.map(source, b, on_error="collect")
    workflow.gather(b, END)
    workflow.edge(source, a)
    workflow.edge(a, END)
    with pytest.raises(LimitExceededError):
        await workflow.run()


async def test_step_limit_of_an_inner_graph_is_the_holders_failure() -> None:
    """E10b: its own limits apply inside it; its failure is the failure of that step."""
    inner = line(a, b, c, max_steps=2)
    outer = Workflow("outer")
    outer.add(inner, name="inner", fallback="instead")
    outer.chain(START, "inner", END)
    assert (await outer.run()).output == "instead"


async def test_work_done_exactly_on_the_limit_is_no_failure_of_a_parallel_branch() -> None:
    workflow = Workflow("g", max_steps=4)
    for name, fn in (("p", a), ("q", b), ("r", a), ("s", b)):
        workflow.add(fn, name=name)
    workflow.chain(START, "p", "q", END)
    workflow.chain(START, "r", "s", END)
    assert (await workflow.run(1)).status == "succeeded"


# --- rounds ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rounds", [1, 2, 3])
async def test_rounds_up_to_the_limit_are_allowed(rounds: int) -> None:
    """E20: with 3, three rounds are allowed and no fourth."""
    result = await loop(rounds, max_rounds=3).run(0)
    assert (result.status, result.output, result.rounds) == ("succeeded", rounds, rounds)


async def test_fourth_round_is_refused_and_named() -> None:
    with pytest.raises(LimitExceededError) as caught:
        await loop(4, max_rounds=3).run(0)
    assert caught.value.limit == "max_rounds"
    assert "cycle at 'counter' has had its 3 rounds: edge counter -> counter would start round 4" in str(caught.value)


async def test_run_stopped_by_rounds_keeps_everything_done_so_far() -> None:
    events: list[Any] = []
    result = await loop(4, max_rounds=3).run(0, check=False, on_event=events.append)
    assert result.status == "stopped"
    assert (result.termination.kind, result.termination.code) == (TerminationKind.STOPPED, "max_rounds")
    assert [(s.round, s.value) for s in result.steps] == [(1, 1), (2, 2), (3, 3)]
    assert result.rounds == 3
    check_whole(events)


async def test_default_limit_is_twenty_five_rounds() -> None:
    assert (await loop(25).run(0)).output == 25
    with pytest.raises(LimitExceededError):
        await loop(26).run(0)


async def test_output_that_had_reached_end_is_kept_when_the_run_is_stopped() -> None:
    workflow = loop(9, max_rounds=2)
    workflow.add(a)
    workflow.edge(START, a)
    workflow.edge(a, END)
    result = await workflow.run(0, check=False)
    assert result.status == "stopped"
    assert result.outputs == {"a": 1}


async def test_every_activation_of_an_inner_cycle_has_its_own_rounds() -> None:
    seen: list[tuple[int, ...]] = []

    async def outer(n: int) -> int:
        return n + 1

    async def inner(n: int) -> int:
        return n + 100

    async def tail(n: int) -> int:
        seen.append((n % 100, n // 100))
        return n % 100

    workflow = Workflow("g", max_rounds=3)
    for fn in (outer, inner, tail):
        workflow.add(fn)
    workflow.chain(START, outer, inner)
    workflow.edge(inner, inner, when=lambda n: n < 300)
    workflow.edge(inner, tail, when=lambda n: n >= 300)
    workflow.edge(tail, outer, when=lambda n: n < 3)
    workflow.edge(tail, END, when=lambda n: n >= 3)
    assert (await workflow.run(0)).output == 3
    assert seen == [(1, 3), (2, 3), (3, 3)]


@pytest.mark.parametrize(("policy", "expected"), [("skip", [1, 2]), ("collect", [1, "max_rounds", 2])])
async def test_round_limit_inside_a_map_is_that_items_failure(policy: Any, expected: list[Any]) -> None:
    async def source(x: Any) -> list[int]:
        return [1, 9, 2]

    async def down(n: int) -> int:
        return n

    async def done(n: int) -> int:
        return n

    workflow = Workflow("g", max_rounds=2)
    for fn in (source, down, done):
        workflow.add(fn)
    workflow.edge(START, source)
    workflow.map(source, down, on_error=policy)
    workflow.edge(down, down, when=lambda n: n == 9)
    workflow.edge(down, done, when=lambda n: n != 9)
    workflow.gather(done, END)
    result = await workflow.run()
    assert [getattr(getattr(part, "error", None), "limit", part) for part in result.output] == expected


async def test_round_limit_inside_a_map_that_fails_fails_the_run() -> None:
    """E20: an item's failure; the default policy passes it on as an ordinary error of the run."""

    async def source(x: Any) -> list[int]:
        return [9]

    async def done(n: int) -> int:
        return n

    workflow = Workflow("g", max_rounds=2)
    for fn in (source, counter, done):
        workflow.add(fn)
    workflow.edge(START, source)
    workflow.map(source, counter)
    workflow.edge(counter, counter, when=lambda n: True)
    workflow.edge(counter, done, when=lambda n: False)
    workflow.gather(done, END)
    result = await workflow.run(check=False)
    assert result.status == "failed"
    assert isinstance(result.error, LimitExceededError)


async def test_round_limit_of_an_inner_graph_is_the_holders_failure() -> None:
    async def mend(error: LimitExceededError) -> str:
        return error.limit

    outer = Workflow("outer")
    outer.add(loop(9, max_rounds=2), name="inner")
    outer.add(mend)
    outer.chain(START, "inner", END)
    outer.edge("inner", mend, on_error=LimitExceededError)
    outer.edge(mend, END)
    assert (await outer.run(0)).output == "max_rounds"


async def test_inner_graph_keeps_its_own_limit_whatever_the_outer_allows() -> None:
    outer = Workflow("outer", max_rounds=2)
    outer.add(loop(5, max_rounds=5), name="inner")
    outer.chain(START, "inner", END)
    assert (await outer.run(0)).output == 5


async def test_side_node_runs_in_the_last_permitted_round() -> None:
    seen: list[int] = []

    async def note(n: int) -> None:
        await yield_often()
        seen.append(n)

    workflow = loop(3, max_rounds=3)
    workflow.add(note, side=True)
    workflow.edge(counter, note)
    await workflow.run(0)
    assert seen == [1, 2, 3]


async def test_stop_cancels_and_awaits_what_is_at_work_elsewhere() -> None:
    """Nothing of a run outlives it, however it ends."""
    cleaned: list[str] = []

    async def slow(x: Any) -> int:
        try:
            await anyio.sleep_forever()
        finally:
            cleaned.append("slow")
        return 1

    workflow = loop(9, max_rounds=2)
    workflow.add(slow)
    workflow.chain(START, slow, END)
    with anyio.fail_after(GUARD):
        result = await workflow.run(0, check=False)
    assert result.status == "stopped"
    assert cleaned == ["slow"]
    assert result.node_states["slow"] is NodeState.CANCELLED
