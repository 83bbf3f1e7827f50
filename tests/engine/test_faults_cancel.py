"""Faults of kind 5: cancellation and run limits. A cancel is awaited, and says what it did (E14, E15, E17)."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from graphrt import END, START, GraphError, RetryPolicy, RunCancelledError, RunEvent, Workflow
from graphrt.graph import NodeState, RunStatus, TerminationKind
from graphrt.testing import assert_no_orphans
from tests.engine.helpers import FAKE_TIME, check_whole, line, ran, states, watch

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module", params=FAKE_TIME)
def anyio_backend(request: pytest.FixtureRequest) -> Any:
    """Run on both event loops, in fake time."""
    return request.param


class Sleeper:
    """A node function that sleeps, and notes when it was left and how."""

    def __init__(self, seconds: float = 120.0, cleanup: float = 0.0) -> None:
        self.seconds = seconds
        self.cleanup = cleanup
        self.starts = 0
        self.finished = 0
        self.cleaned: list[float] = []

    async def __call__(self, x: Any = None) -> str:
        self.starts += 1
        try:
            await anyio.sleep(self.seconds)
            self.finished += 1
        finally:
            with anyio.CancelScope(shield=True):
                if self.cleanup:
                    await anyio.sleep(self.cleanup)
                self.cleaned.append(anyio.current_time())
        return "slept"


def sleeping(sleeper: Sleeper, **options: Any) -> Workflow:
    """Make a graph of one sleeper."""
    workflow = Workflow("g", **options)
    workflow.add(sleeper, name="sleeper")
    workflow.chain(START, "sleeper", END)
    return workflow


# --- B-037: only the cancellation may surface --------------------------------------------------------------


def busy() -> Workflow:
    """A graph with a fork, a map, a cycle and a graph inside, all of which sleep a little."""

    async def nap(x: Any) -> int:
        await anyio.sleep(0.01)
        return 1

    async def source(x: Any) -> list[int]:
        await anyio.sleep(0.01)
        return [1, 2]

    async def stream(x: Any) -> AsyncIterator[int]:
        for i in range(3):
            await anyio.sleep(0.01)
            yield i

    inner = line(nap)
    workflow = Workflow("busy")
    for name, fn in (("a", nap), ("b", nap), ("body", nap), ("body2", nap), ("loop", _count)):
        workflow.add(fn, name=name)
    workflow.add(source)
    workflow.add(stream)
    workflow.add(inner, name="inner")
    workflow.chain(START, "a", "inner", END)
    workflow.chain(START, "b", source)
    workflow.map(source, "body")
    workflow.gather("body", END)
    workflow.edge(START, stream)
    workflow.map(stream, "body2", max_concurrency=1)
    workflow.gather("body2", END)
    workflow.edge(START, "loop")
    workflow.edge("loop", "loop", when=lambda n: n < 4)
    workflow.edge("loop", END, when=lambda n: n >= 4)
    return workflow


async def _count(n: Any) -> int:
    await anyio.sleep(0.01)
    return (n or 0) + 1


@pytest.mark.parametrize("way", ["run", "stream"])
async def test_runs_cancelled_at_random_moments_show_nothing_but_the_cancellation(way: str) -> None:
    """B-037."""
    graph = busy().compile()
    chance = random.Random(37)  # noqa: S311 - reproducible moments, not secrets
    seen: Counter[bool] = Counter()
    for _ in range(1000):
        with anyio.move_on_after(chance.uniform(0.0, 0.07)) as scope:
            if way == "run":
                await graph.run()
            else:
                async with graph.stream() as run:
                    async for _event in run:
                        await anyio.lowlevel.checkpoint()
                assert run.result.status == "succeeded"
        seen[scope.cancelled_caught] += 1
    assert seen[True] > 300
    assert seen[False] > 100
    assert_no_orphans()


async def test_runs_out_of_time_at_random_moments_show_nothing_but_the_timeout() -> None:
    """B-037."""
    graph = busy().compile()
    chance = random.Random(38)  # noqa: S311 - reproducible moments, not secrets
    seen: Counter[str] = Counter()
    for _ in range(500):
        result = await graph.run(timeout=chance.uniform(0.001, 0.07), check=False)
        assert result.error is None or type(result.error) is TimeoutError
        seen[result.status] += 1
    assert set(seen) == {"succeeded", "timed_out"}


# --- B-039: nothing is alive when the await returns --------------------------------------------------------


async def test_cancelled_consumer_of_a_stream_returns_after_the_cleanup() -> None:
    """B-039."""
    sleeper = Sleeper(cleanup=3)
    events: list[RunEvent] = []

    begun = anyio.current_time()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(watch, sleeping(sleeper).stream(), events)
        await anyio.sleep(1)
        tasks.cancel_scope.cancel()
    assert sleeper.cleaned == [pytest.approx(begun + 4)]
    assert sleeper.finished == 0
    assert_no_orphans()


async def test_cancelled_run_returns_after_the_cleanup_of_what_is_nested_deep() -> None:
    sleeper = Sleeper(cleanup=2)

    async def source(x: Any) -> list[int]:
        return [1, 2, 3]

    inner = sleeping(sleeper)
    middle = Workflow("middle")
    middle.add(source)
    middle.add(inner, name="inner")
    middle.edge(START, source)
    middle.map(source, "inner")
    middle.gather("inner", END)
    outer = line(middle)
    begun = anyio.current_time()
    with anyio.move_on_after(1) as scope:
        await outer.run()
    assert scope.cancelled_caught
    assert sleeper.cleaned == [pytest.approx(begun + 3)] * 3
    assert_no_orphans()


async def test_finalisers_of_a_cancelled_generator_run() -> None:
    """E17: before the run returns."""
    closed: list[str] = []

    async def source(x: Any) -> AsyncIterator[int]:
        try:
            yield 1
            await anyio.sleep(100)
            yield 2
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.sleep(1)
            closed.append("source")

    async def body(item: int) -> int:
        return item

    workflow = Workflow("g")
    workflow.add(source)
    workflow.add(body)
    workflow.edge(START, source)
    workflow.map(source, body)
    workflow.gather(body, END)
    with anyio.move_on_after(1):
        await workflow.run()
    assert closed == ["source"]


async def test_generator_is_closed_when_its_map_is_not_read_to_the_end() -> None:
    closed: list[str] = []

    async def source(x: Any) -> AsyncIterator[int]:
        try:
            for i in range(1000):
                yield i
        finally:
            closed.append("source")

    async def body(item: int) -> int:
        raise ValueError("no")

    workflow = Workflow("g")
    workflow.add(source)
    workflow.add(body)
    workflow.edge(START, source)
    workflow.map(source, body, max_concurrency=1)
    workflow.gather(body, END)
    with pytest.raises(ValueError, match="no"):
        await workflow.run()
    assert closed == ["source"]


# --- B-040: a deadline on the next event -------------------------------------------------------------------


async def test_deadline_on_the_next_event_ends_the_wait_and_leaving_the_stream_cancels() -> None:
    """B-040."""
    sleeper = Sleeper()
    begun = anyio.current_time()
    async with sleeping(sleeper).stream() as run:
        assert (await anext(run)).type == "run.started"
        assert (await anext(run)).type == "step.started"
        with anyio.move_on_after(5) as scope:
            await anext(run)
        assert scope.cancelled_caught
        assert anyio.current_time() == pytest.approx(begun + 5)
        assert sleeper.cleaned == []
    assert sleeper.cleaned == [pytest.approx(begun + 5)]


async def test_reading_goes_on_after_a_wait_for_an_event_was_given_up() -> None:
    """The deadline is the reader's own, not the run's."""
    seen: list[str] = []
    async with sleeping(Sleeper(10)).stream() as run:
        while True:
            with anyio.move_on_after(3) as scope:
                try:
                    seen.append((await anext(run)).type)
                except StopAsyncIteration:
                    break
            seen.extend(["-"] * scope.cancelled_caught)
    assert seen == ["run.started", "step.started", "-", "-", "-", "step.completed", "run.completed"]
    assert run.result.output == "slept"


# --- B-052: parallel steps are parallel --------------------------------------------------------------------


async def test_ten_steps_that_wait_half_a_second_take_half_a_second() -> None:
    """B-052."""

    async def source(x: Any) -> list[int]:
        return list(range(10))

    workflow = Workflow("g")
    workflow.add(source)
    workflow.add(Sleeper(0.5), name="body")
    workflow.edge(START, source)
    workflow.map(source, "body", max_concurrency=10)
    workflow.gather("body", END)
    begun = anyio.current_time()
    await workflow.run()
    assert anyio.current_time() - begun == pytest.approx(0.5)


async def test_branches_that_wait_run_at_the_same_time() -> None:
    workflow = Workflow("g")
    for i in range(20):
        workflow.add(Sleeper(1 + i / 10), name=f"n{i}")
        workflow.chain(START, f"n{i}", END)
    begun = anyio.current_time()
    await workflow.run()
    assert anyio.current_time() - begun == pytest.approx(2.9)


# --- B-053: a limit for the whole run ----------------------------------------------------------------------


def several_turns(sleeper: Sleeper) -> Workflow:
    """A graph of three quick steps and a graph inside that sleeps."""

    async def turn(n: int) -> int:
        await anyio.sleep(0.3)
        return n + 1

    inner = sleeping(sleeper)
    workflow = Workflow("g")
    workflow.add(turn)
    workflow.add(inner, name="inner")
    workflow.edge(START, turn)
    workflow.edge(turn, turn, when=lambda n: n < 3)
    workflow.edge(turn, "inner", when=lambda n: n >= 3)
    workflow.edge("inner", END)
    return workflow


@pytest.mark.parametrize("limit", ["timeout", "deadline_at"])
async def test_limit_of_a_run_holds_over_several_steps_and_graphs_inside(limit: str) -> None:
    """B-053: with the work so far."""
    sleeper = Sleeper()
    events: list[RunEvent] = []
    begun = anyio.current_time()
    options: dict[str, Any] = {"timeout": 1.0}
    if limit == "deadline_at":
        options = {"deadline_at": datetime.now(UTC) + timedelta(seconds=1)}
    result = await several_turns(sleeper).run(0, check=False, on_event=events.append, **options)
    assert result.status == "timed_out"
    assert result.termination.kind is TerminationKind.TIMEOUT
    assert type(result.error) is TimeoutError
    assert sleeper.cleaned == [pytest.approx(begun + 1, abs=0.05)]
    assert [(s.node, s.scope, s.state) for s in result.steps] == [
        ("turn", "", "succeeded"),
        ("turn", "", "succeeded"),
        ("turn", "", "succeeded"),
        ("inner", "", "cancelled"),
        ("sleeper", "inner", "cancelled"),
    ]
    assert events[-1].type == "run.timed_out"
    check_whole(events)


async def test_run_past_its_deadline_raises_timeout_error() -> None:
    """E14."""
    with pytest.raises(TimeoutError, match="run 'r' did not finish within 1 s"):
        await sleeping(Sleeper()).run(timeout=1, run_id="r")


async def test_deadline_of_a_run_is_never_retried_nor_handled() -> None:
    """E15."""
    sleeper = Sleeper()
    workflow = Workflow("g", timeout=1)
    workflow.add(
        sleeper,
        name="sleeper",
        retry=RetryPolicy(attempts=3, wait_initial=0, retry_on=BaseException),
        fallback="instead",
        on_error="skip",
    )
    workflow.add(Sleeper(0), name="handler")
    workflow.chain(START, "sleeper", END)
    workflow.edge("sleeper", "handler", on_error=True)
    workflow.edge("handler", END)
    with pytest.raises(TimeoutError):
        await workflow.run()
    assert sleeper.starts == 1


async def test_deadline_in_the_past_starts_nothing() -> None:
    sleeper = Sleeper()
    result = await sleeping(sleeper).run(check=False, deadline_at=datetime.now(UTC) - timedelta(seconds=1))
    assert result.status == "timed_out"
    assert sleeper.finished == 0


async def test_nearest_of_several_limits_wins() -> None:
    begun = anyio.current_time()
    with pytest.raises(TimeoutError, match="within 2 s"):
        await sleeping(Sleeper(), timeout=5).run(timeout=2, deadline_at=datetime.now(UTC) + timedelta(seconds=4))
    assert anyio.current_time() - begun == pytest.approx(2)


async def test_deadline_is_seen_by_nodes() -> None:
    from graphrt import RunContext

    async def node(x: Any, ctx: RunContext[Any]) -> datetime | None:
        return ctx.deadline

    at = datetime.now(UTC) + timedelta(seconds=60)
    assert (await line(node).run(deadline_at=at)).output == at
    assert (await line(node).run()).output is None


# --- E17: cancel and what it answers -----------------------------------------------------------------------


async def test_cancel_now_answers_cancelled() -> None:
    sleeper = Sleeper()
    async with sleeping(sleeper).stream(check=False) as run:
        await anyio.sleep(1)
        answer = await run.cancel()
        assert (answer.outcome, answer.status) == ("cancelled", RunStatus.CANCELLED)
    assert len(sleeper.cleaned) == 1
    assert run.result.status == "cancelled"
    assert run.result.termination.kind is TerminationKind.CANCELLED


async def test_cancel_of_a_finished_run_answers_so_with_its_status() -> None:
    async with sleeping(Sleeper(1)).stream() as run:
        await run.wait()
        answer = await run.cancel()
    assert (answer.outcome, answer.status) == ("already_finished", RunStatus.SUCCEEDED)
    assert run.result.output == "slept"


async def test_cancel_that_takes_longer_names_what_still_cleans_up() -> None:
    sleeper = Sleeper(cleanup=60)
    async with sleeping(sleeper).stream(check=False) as run:
        await anyio.sleep(1)
        begun = anyio.current_time()
        answer = await run.cancel(wait=5)
        assert anyio.current_time() - begun == pytest.approx(5)
        assert answer.outcome == "stopping"
        assert [step.node for step in answer.steps] == ["sleeper"]
        assert sleeper.cleaned == []
    assert len(sleeper.cleaned) == 1
    assert run.result.status == "cancelled"


async def test_cancelled_run_raises_run_cancelled_error() -> None:
    with pytest.raises(RunCancelledError):
        async with sleeping(Sleeper()).stream() as run:
            await run.cancel()


async def test_cancel_twice_is_harmless() -> None:
    async with sleeping(Sleeper(cleanup=1)).stream(check=False) as run:
        await anyio.lowlevel.checkpoint()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run.cancel)
            tasks.start_soon(run.cancel)
        assert (await run.cancel()).outcome == "already_finished"
    assert run.result.status == "cancelled"


@pytest.mark.parametrize("mode", ["now", "after_step", "after_round"])
async def test_no_ending_by_cancel_leaves_a_reader_waiting(mode: Any) -> None:
    """E17."""
    seen: list[str] = []
    workflow = Workflow("g")
    workflow.add(Sleeper(1), name="step")
    workflow.edge(START, "step")
    workflow.edge("step", "step", when=lambda x: True)
    workflow.edge("step", END, when=lambda x: False)

    with anyio.fail_after(60):
        async with workflow.stream(check=False) as run:

            async def read() -> None:
                seen.extend([event.type async for event in run])

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(read)
                await anyio.sleep(2.5)
                assert (await run.cancel(mode)).outcome == "cancelled"
    assert seen[-1] == "run.cancelled"


async def test_cancel_after_step_lets_what_works_end_and_starts_no_more() -> None:
    first, second = Sleeper(3), Sleeper(1)
    workflow = Workflow("g")
    workflow.add(first, name="first")
    workflow.add(second, name="second")
    workflow.chain(START, "first", "second", END)
    async with workflow.stream(check=False) as run:
        await anyio.sleep(1)
        answer = await run.cancel("after_step")
    assert answer.outcome == "cancelled"
    assert (first.finished, second.starts) == (1, 0)
    result = run.result
    assert states(result) == {"first": NodeState.SUCCEEDED, "second": NodeState.CANCELLED}


async def test_cancel_after_step_waits_for_all_that_works() -> None:
    sleepers = {name: Sleeper(seconds) for name, seconds in (("a", 2), ("b", 4))}
    workflow = Workflow("g")
    for name, sleeper in sleepers.items():
        workflow.add(sleeper, name=name)
        workflow.add(Sleeper(1), name=f"after_{name}")
        workflow.chain(START, name, f"after_{name}", END)
    async with workflow.stream(check=False) as run:
        await anyio.sleep(1)
        await run.cancel("after_step")
    assert ran(run.result) == ["a", "b"]
    assert [s.finished for s in sleepers.values()] == [1, 1]


async def test_cancel_after_step_ends_a_source_whose_items_start_no_more() -> None:
    started: list[int] = []

    async def source(x: Any) -> AsyncIterator[int]:
        for i in range(1000):
            await anyio.sleep(0.1)
            yield i

    async def body(item: int) -> int:
        started.append(item)
        await anyio.sleep(1)
        return item

    workflow = Workflow("g")
    workflow.add(source)
    workflow.add(body)
    workflow.edge(START, source)
    workflow.map(source, body, max_concurrency=3)
    workflow.gather(body, END)
    with anyio.fail_after(60):
        async with workflow.stream(check=False) as run:
            await anyio.sleep(0.55)
            answer = await run.cancel("after_step", wait=30)
    assert answer.outcome == "cancelled"
    assert started == [0, 1, 2]
    assert [s.state for s in run.result.steps if s.node == "body" and s.started is not None] == ["succeeded"] * 3


async def test_cancel_after_step_in_the_last_step_finds_the_run_finished() -> None:
    async with sleeping(Sleeper(2)).stream() as run:
        await anyio.sleep(1)
        answer = await run.cancel("after_step")
    assert (answer.outcome, answer.status) == ("already_finished", RunStatus.SUCCEEDED)
    assert run.result.output == "slept"


async def test_cancel_after_round_lets_the_round_end_and_starts_no_other() -> None:
    a, b = Sleeper(1), Sleeper(1)
    workflow = Workflow("g")
    workflow.add(a, name="a")
    workflow.add(b, name="b")
    workflow.chain(START, "a", "b")
    workflow.edge("b", "a", when=lambda x: True)
    workflow.edge("b", END, when=lambda x: False)
    async with workflow.stream(check=False) as run:
        await anyio.sleep(2.5)
        answer = await run.cancel("after_round")
    assert answer.outcome == "cancelled"
    assert (a.finished, b.finished) == (2, 2)
    assert run.result.rounds == 2


async def test_cancel_after_round_of_a_run_without_cycles_lets_it_end() -> None:
    """Silent in the contract: there is no round to stop at, so the run ends by itself."""
    async with sleeping(Sleeper(2)).stream() as run:
        await anyio.sleep(1)
        answer = await run.cancel("after_round")
    assert answer.outcome in ("cancelled", "already_finished")


async def test_unknown_mode_is_refused() -> None:
    with pytest.raises(GraphError, match="no cancel mode 'softly'"):
        async with sleeping(Sleeper(1)).stream() as run:
            await run.cancel("softly")  # type: ignore[arg-type]  # what is refused


async def test_cancellation_is_never_handled() -> None:
    """E11."""
    sleeper = Sleeper()
    workflow = Workflow("g")
    workflow.add(sleeper, name="sleeper", on_error="skip", fallback="instead")
    workflow.add(Sleeper(0), name="handler")
    workflow.chain(START, "sleeper", END)
    workflow.edge("sleeper", "handler", on_error=True)
    workflow.edge("handler", END)
    async with workflow.stream(check=False) as run:
        await anyio.sleep(1)
        await run.cancel()
    assert states(run.result) == {"sleeper": NodeState.CANCELLED, "handler": NodeState.PENDING}


async def test_node_that_swallows_the_cancellation_does_not_bring_the_run_back() -> None:
    async def stubborn(x: Any) -> str:
        try:
            await anyio.sleep(100)
        except anyio.get_cancelled_exc_class():
            return "still here"
        return "slept"

    after = Sleeper(0)
    workflow = Workflow("g")
    workflow.add(stubborn)
    workflow.add(after, name="after")
    workflow.chain(START, stubborn, "after", END)
    async with workflow.stream(check=False) as run:
        await anyio.sleep(1)
        assert (await run.cancel()).outcome == "cancelled"
    assert run.result.status == "cancelled"
    assert after.starts == 0


async def test_cancel_requested_is_seen_while_cleaning_up() -> None:
    from graphrt import RunContext

    seen: list[bool] = []

    async def node(x: Any, ctx: RunContext[Any]) -> int:
        seen.append(ctx.cancel_requested)
        try:
            await anyio.sleep(100)
        finally:
            seen.append(ctx.cancel_requested)
        return 1

    async with line(node).stream(check=False) as run:
        await anyio.sleep(1)
        await run.cancel()
    assert seen == [False, True]


async def test_outer_cancellation_leaves_run_as_a_cancellation() -> None:
    """A caller's own scope sees its own cancellation, and nothing of the engine."""
    sleeper = Sleeper()
    reached: list[str] = []
    async with anyio.create_task_group() as tasks:

        async def caller() -> None:
            try:
                await sleeping(sleeper).run()
            except anyio.get_cancelled_exc_class():
                reached.append("cancelled")
                raise
            except Exception as error:  # noqa: BLE001 - must not happen
                reached.append(repr(error))

        tasks.start_soon(caller)
        await anyio.sleep(1)
        tasks.cancel_scope.cancel()
    assert reached == ["cancelled"]


async def test_events_of_a_run_cancelled_from_outside_are_whole() -> None:
    events: list[RunEvent] = []
    with anyio.move_on_after(0.02):
        await busy().run(on_event=events.append)
    check_whole(events)
    assert events[-1].type == "run.cancelled"


async def test_run_inside_a_shielded_scope_is_not_cancelled() -> None:
    with anyio.CancelScope() as outer:
        outer.cancel()
        with anyio.CancelScope(shield=True):
            assert (await sleeping(Sleeper(1)).run()).output == "slept"


async def test_fail_after_around_a_run_is_the_callers_timeout() -> None:
    with pytest.raises(TimeoutError) as caught:
        with anyio.fail_after(1):
            await sleeping(Sleeper()).run()
    assert "run" not in str(caught.value)
