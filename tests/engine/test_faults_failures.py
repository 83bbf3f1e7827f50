"""Faults of kind 4: failure in parallel, retries, error handling. Handled is handled, the rest is raised bare, once."""

from __future__ import annotations

import gc
import logging
from collections import Counter
from collections.abc import AsyncIterator, Callable
from typing import Any

import anyio
import pytest

from graphrt import END, START, Failure, RetryPolicy, RunEvent, Workflow
from graphrt.graph import NodeState, TerminationKind
from tests.engine.helpers import FAKE_TIME, GUARD, check_whole, of_node, states, watch, yield_often

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


# --- B-028: siblings of a failure --------------------------------------------------------------------------


async def test_no_sibling_goes_on_once_the_error_has_reached_the_caller(caplog: pytest.LogCaptureFixture) -> None:
    """B-028."""
    markers: list[str] = []

    async def marks(x: Any) -> int:
        await anyio.sleep(0.2)
        markers.append("mark")
        return 1

    workflow = fork(fails)
    for name in ("one", "two"):
        workflow.add(marks, name=name)
        workflow.chain(START, name, END)
    with caplog.at_level(logging.DEBUG), pytest.raises(ValueError, match="no"):
        await workflow.run()
    await anyio.sleep(1)
    gc.collect()
    assert markers == []
    assert [r for r in caplog.records if r.levelno >= logging.WARNING] == []


async def test_finally_of_a_sibling_has_run_when_run_returns() -> None:
    """AC-C07."""
    cleaned: list[float] = []

    async def sleeps(x: Any) -> int:
        try:
            await anyio.sleep_forever()
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.sleep(3)
            cleaned.append(anyio.current_time())
        return 1

    begun = anyio.current_time()
    result = await fork(sleeps, fails).run(check=False)
    assert result.termination.kind is TerminationKind.ERROR
    assert cleaned == [pytest.approx(begun + 3)]
    assert states(result) == {"fails": "failed", "sleeps": "cancelled"}


async def test_error_edge_lets_the_run_end_naturally() -> None:
    """AC-C07."""

    async def handler(error: ValueError) -> str:
        return f"handled {error}"

    workflow = fork(fails, fine)
    workflow.add(handler)
    workflow.edge(fails, handler, on_error=True)
    workflow.edge(handler, END)
    result = await workflow.run()
    assert result.termination.kind is TerminationKind.NATURAL_END
    assert result.outputs == {"fine": "fine", "handler": "handled no"}


@pytest.mark.parametrize("siblings", ["map", "graph", "cycle"])
async def test_failure_ends_siblings_of_every_kind(siblings: str) -> None:
    running: Counter[str] = Counter()

    async def endless(x: Any) -> int:
        running["in"] += 1
        try:
            await anyio.sleep(100)
        finally:
            running["out"] += 1
        return 1

    async def late_failure(x: Any) -> int:
        await anyio.sleep(1)
        raise ValueError("no")

    async def source(x: Any) -> list[int]:
        return list(range(5))

    workflow = fork(late_failure)
    if siblings == "map":
        workflow.add(source)
        workflow.add(endless)
        workflow.edge(START, source)
        workflow.map(source, endless)
        workflow.gather(endless, END)
    elif siblings == "graph":
        inner = fork(endless)
        workflow.add(inner, name="inner")
        workflow.chain(START, "inner", END)
    else:
        workflow.add(endless)
        workflow.edge(START, endless)
        workflow.edge(endless, endless, when=bool)
        workflow.edge(endless, END, when=bool)
    begun = anyio.current_time()
    with pytest.raises(ValueError, match="no"):
        await workflow.run()
    assert anyio.current_time() - begun == pytest.approx(1)
    assert running["in"] == running["out"] > 0


async def test_sibling_that_fails_while_it_is_cancelled_is_named_in_a_note() -> None:
    """E14: further failures are listed in notes and on the result."""

    async def breaks_in_cleanup(x: Any) -> int:
        try:
            await anyio.sleep_forever()
        finally:
            raise KeyError("cleanup")

    result = await fork(breaks_in_cleanup, fails).run(check=False)
    assert isinstance(result.error, ValueError)
    assert [type(f.error) for f in result.failures] == [ValueError, KeyError]
    assert any("breaks_in_cleanup" in note and "cleanup" in note for note in result.error.__notes__)


async def break_in_cleanup() -> None:
    """Raise when cancelled."""
    try:
        await anyio.sleep_forever()
    finally:
        raise KeyError("cleanup")


async def grouped(x: Any) -> int:
    """Work in a task group, one task of which breaks when it is cancelled."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(break_in_cleanup)
        tasks.start_soon(anyio.sleep_forever)
        await anyio.sleep_forever()
    return 1


async def test_loser_whose_task_group_breaks_when_cancelled_does_not_end_the_run() -> None:
    """On trio the group holds the cancellations beside the error."""

    async def quick(x: Any) -> str:
        await anyio.sleep(1)
        return "quick"

    async def first(value: Any) -> Any:
        return value

    workflow = Workflow("g")
    workflow.add(grouped)
    workflow.add(quick)
    workflow.add(first, join="any", cancel_rest=True)
    workflow.add(fine)
    for fn in (grouped, quick):
        workflow.chain(START, fn, first)
    workflow.chain(first, fine, END)
    result = await workflow.run()
    assert result.output == "fine"
    assert result.node_states["grouped"] is NodeState.FAILED


async def test_sibling_whose_task_group_breaks_when_cancelled_is_a_further_failure() -> None:
    async def late(x: Any) -> int:
        await anyio.sleep(1)
        raise ValueError("no")

    result = await fork(grouped, late).run(check=False)
    assert isinstance(result.error, ValueError)
    further = result.failures[1].error
    assert isinstance(further, ExceptionGroup)
    assert [type(error) for error in further.exceptions] == [KeyError]


async def test_cancelled_run_whose_task_groups_break_is_still_cancelled() -> None:
    with anyio.move_on_after(1) as scope:
        await fork(grouped, fine_for_long).run()
    assert scope.cancelled_caught


async def test_step_out_of_time_whose_task_group_breaks_is_retried_and_handled() -> None:
    workflow = fork(grouped, grouped={"timeout": 1, "retry": RetryPolicy(attempts=2), "fallback": 7})
    result = await workflow.run()
    assert (result.output, result.steps[0].attempts) == (7, 2)


async def fine_for_long(x: Any) -> str:
    await anyio.sleep(100)
    return "fine"


async def test_two_failures_at_once_raise_one_bare_exception() -> None:
    async def other(x: Any) -> int:
        raise KeyError("other")

    with pytest.raises((ValueError, KeyError)) as caught:
        await fork(fails, other).run()
    assert not isinstance(caught.value, BaseExceptionGroup)


async def test_error_says_where_it_comes_from() -> None:
    """E14: a note naming node, scope, round, attempt and run."""

    async def source(x: Any) -> list[int]:
        return [0, 1]

    async def body(n: int) -> int:
        if n:
            raise ValueError("no")
        return n

    workflow = Workflow("g")
    workflow.add(source)
    workflow.add(body, retry=RetryPolicy(attempts=2, wait_initial=1))
    workflow.edge(START, source)
    workflow.map(source, body)
    workflow.gather(body, END)
    with pytest.raises(ValueError, match="no") as caught:
        await workflow.run(run_id="r-7")
    assert caught.value.__notes__ == ["node 'body' in 'source[1]', round 1, attempt 2, run 'r-7'"]


# --- B-030: handled is handled -----------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["run", "unchecked", "stream", "wait", "sync"])
async def test_handled_error_is_not_raised_beside_a_healthy_sibling(way: str) -> None:
    """B-030: in every call style."""

    async def handler(error: Exception) -> str:
        return "handled"

    async def healthy(x: Any) -> str:
        await yield_often(20)
        return "healthy"

    workflow = fork(fails, healthy)
    workflow.add(handler)
    workflow.edge(fails, handler, on_error=True)
    workflow.edge(handler, END)
    if way == "run":
        result = await workflow.run()
    elif way == "unchecked":
        result = await workflow.run(check=False)
    elif way == "sync":
        result = workflow.run_sync()
    else:
        async with workflow.stream() as run:
            if way == "stream":
                check_whole([event async for event in run])
            result = await run.wait()
    assert result.status == "succeeded"
    assert result.outputs == {"healthy": "healthy", "handler": "handled"}
    assert result.error is None
    assert list(result.failures) == []


async def test_failure_that_is_skipped_stays_failed_and_is_not_raised() -> None:
    workflow = fork(fails, fine, fails={"on_error": "skip"})
    result = await workflow.run()
    assert result.outputs == {"fine": "fine"}
    assert states(result) == {"fails": "failed", "fine": "succeeded"}


async def test_first_declared_error_edge_that_matches_is_taken_alone() -> None:
    """E11."""
    workflow = fork(fails)
    for name in ("keys", "picky", "values", "anything"):
        workflow.add_node(name, _returns(name))
        workflow.edge(name, END)
    workflow.edge(fails, "keys", on_error=KeyError)
    workflow.edge(fails, "picky", on_error=ValueError, when=lambda error: "yes" in str(error))
    workflow.edge(fails, "values", on_error=(KeyError, ValueError))
    workflow.edge(fails, "anything", on_error=True)
    result = await workflow.run()
    assert result.outputs == {"values": "values"}
    assert {n for n, s in states(result).items() if s == "skipped"} == {"keys", "picky", "anything"}


def _returns(name: str) -> Callable[..., Any]:
    async def handler(error: Any) -> str:
        return name

    return handler


async def test_error_edges_are_skipped_when_the_node_succeeds() -> None:
    workflow = fork(fine)
    workflow.add_node("handler", _returns("handler"))
    workflow.edge(fine, "handler", on_error=True)
    workflow.edge("handler", END)
    result = await workflow.run()
    assert result.outputs == {"fine": "fine"}
    assert result.node_states["handler"] is NodeState.SKIPPED


async def test_exception_that_no_error_edge_takes_fails_the_run() -> None:
    workflow = fork(fails)
    workflow.add_node("handler", _returns("handler"))
    workflow.edge(fails, "handler", on_error=KeyError)
    workflow.edge("handler", END)
    with pytest.raises(ValueError, match="no"):
        await workflow.run()


async def test_handler_may_fail_and_be_handled_itself() -> None:
    async def broken(error: Exception) -> int:
        raise KeyError("handler")

    async def last(error: KeyError) -> str:
        return repr(error)

    workflow = fork(fails)
    workflow.add(broken)
    workflow.add(last)
    workflow.edge(fails, broken, on_error=True)
    workflow.edge(broken, END)
    workflow.edge(broken, last, on_error=True)
    workflow.edge(last, END)
    assert (await workflow.run()).output == "KeyError('handler')"


async def test_error_edge_may_lead_back_and_be_a_retry_loop() -> None:
    calls: list[Any] = []

    async def work(x: Any) -> str:
        calls.append(x)
        if len(calls) < 3:
            raise ValueError(len(calls))
        return "done"

    workflow = fork(work)
    workflow.edge(work, work, on_error=ValueError)
    result = await workflow.run("first")
    assert result.output == "done"
    assert [type(x) for x in calls] == [str, ValueError, ValueError]
    assert [(s.round, s.state) for s in result.steps] == [(1, "failed"), (2, "failed"), (3, "succeeded")]


async def test_order_is_attempts_fallbacks_error_edge_policy() -> None:
    """E11."""
    order: list[str] = []

    async def work(x: Any) -> int:
        order.append("attempt")
        raise ValueError("work")

    async def first(error: Exception) -> int:
        order.append(f"first after {error}")
        raise ValueError("first")

    def second(error: Exception) -> int:
        order.append(f"second after {error}")
        raise ValueError("second")

    async def handler(error: ValueError) -> str:
        order.append(f"handler after {error}")
        return "handled"

    workflow = Workflow("g")
    workflow.add(
        work, retry=RetryPolicy(attempts=2, wait_initial=0), fallback=[first, _threadless(second)], on_error="skip"
    )
    workflow.add(handler)
    workflow.chain(START, work, END)
    workflow.edge(work, handler, on_error=True)
    workflow.edge(handler, END)
    assert (await workflow.run()).output == "handled"
    assert order == ["attempt", "attempt", "first after work", "second after first", "handler after second"]


def _threadless(fn: Callable[..., Any]) -> Callable[..., Any]:
    async def call(error: Exception) -> Any:
        return fn(error)

    return call


async def test_fallback_is_the_same_step() -> None:
    events: list[RunEvent] = []
    workflow = fork(fails, fails={"fallback": 7})
    result = await workflow.run(on_event=events.append)
    assert result.output == 7
    assert [(s.node, s.state) for s in result.steps] == [("fails", "succeeded")]
    assert of_node(events, "fails") == ["step.started", "attempt.failed", "step.completed"]


async def test_fallback_that_is_false_is_a_value() -> None:
    values: list[Any] = [0, "", False, []]
    for value in values:
        workflow = fork(_declared_any, _declared_any={"fallback": [value]})
        assert (await workflow.run()).output == value


async def _declared_any(x: Any) -> Any:
    raise ValueError


# --- B-033: an error in a streaming node -------------------------------------------------------------------


@pytest.mark.parametrize("first", ["before", "after"])
async def test_error_of_a_node_that_streams_text_is_that_error(first: str) -> None:
    """B-033."""
    from graphrt import RunContext

    async def speaks(x: Any, ctx: RunContext[Any]) -> str:
        if first == "after":
            ctx.send_text("half a ")
            await yield_often()
        raise ValueError("no")

    seen: list[RunEvent] = []
    with pytest.raises(ValueError, match="no"):
        await watch(fork(speaks).stream(), seen)
    assert seen[-1].type == "run.failed"
    (failed,) = [event for event in seen if event.type == "step.failed"]
    assert failed.data.get("partial") == ("half a " if first == "after" else None)
    check_whole(seen)


@pytest.mark.parametrize("items", [0, 1, 3])
async def test_error_of_an_async_generator_is_that_steps_failure(items: int) -> None:
    """B-033, E9: before and after its first item."""

    async def source(x: Any) -> AsyncIterator[int]:
        for i in range(items):
            yield i
            await yield_often()
        raise ValueError("no")

    async def body(item: int) -> int:
        return item

    workflow = Workflow("g")
    workflow.add(source)
    workflow.add(body)
    workflow.edge(START, source)
    workflow.map(source, body)
    workflow.gather(body, END)
    seen: list[RunEvent] = []
    with anyio.fail_after(GUARD), pytest.raises(ValueError, match="no"):
        await watch(workflow.stream(), seen)
    assert seen[-1].type == "run.failed"
    assert "step.failed" in of_node(seen, "source")
    check_whole(seen)


async def test_failed_generator_cancels_its_items_and_takes_its_error_edge() -> None:
    ended: list[str] = []

    async def source(x: Any) -> AsyncIterator[int]:
        yield 1
        await anyio.sleep(1)
        raise ValueError("no")

    async def body(item: int) -> int:
        try:
            await anyio.sleep_forever()
        finally:
            ended.append("body")
        return item

    async def handler(error: ValueError) -> str:
        return "handled"

    workflow = Workflow("g")
    for fn in (source, body, handler):
        workflow.add(fn)
    workflow.edge(START, source)
    workflow.map(source, body)
    workflow.gather(body, END)
    workflow.edge(source, handler, on_error=True)
    workflow.edge(handler, END)
    with anyio.fail_after(GUARD):
        result = await workflow.run()
    assert result.output == "handled"
    assert ended == ["body"]


# --- B-035: retries of a fan-out ---------------------------------------------------------------------------


async def test_retries_of_one_item_do_not_multiply() -> None:
    """B-035."""
    calls: Counter[int] = Counter()

    async def source(x: Any) -> list[int]:
        return [1, 2, 3]

    async def body(item: int) -> int:
        calls[item] += 1
        if item == 2:
            raise ValueError("no")
        return item

    workflow = Workflow("g")
    workflow.add(source, retry=RetryPolicy(attempts=3, wait_initial=1))
    workflow.add(body, retry=RetryPolicy(attempts=3, wait_initial=1))
    workflow.edge(START, source)
    workflow.map(source, body, on_error="collect")
    workflow.gather(body, END)
    result = await workflow.run()
    assert calls == {1: 1, 2: 3, 3: 1}
    first, failed, third = result.output
    assert (first, third) == (1, 3)
    assert isinstance(failed, Failure)
    assert (failed.index, failed.node, str(failed.error)) == (1, "body", "no")


async def test_finished_siblings_are_not_run_again_when_a_step_is_retried() -> None:
    """E18."""
    calls: Counter[str] = Counter()

    def node(name: str, failures: int = 0) -> Callable[..., Any]:
        async def work(x: Any = None) -> str:
            calls[name] += 1
            if calls[name] <= failures:
                raise ValueError
            return name

        return work

    workflow = Workflow("g")
    policy = RetryPolicy(attempts=4, wait_initial=1)
    for name, failures in (("before", 0), ("sibling", 0), ("flaky", 3), ("after", 0)):
        workflow.add(node(name, failures), name=name, retry=policy)
    workflow.chain(START, "before", "sibling", END)
    workflow.chain("before", "flaky", "after", END)
    await workflow.run()
    assert calls == {"before": 1, "sibling": 1, "flaky": 4, "after": 1}


async def test_retries_inside_a_graph_inside_a_map_do_not_multiply() -> None:
    calls: Counter[int] = Counter()

    async def source(x: Any) -> list[int]:
        return [1, 2]

    async def flaky(n: int) -> int:
        calls[n] += 1
        raise ValueError("no")

    inner = Workflow("inner")
    inner.add(flaky, retry=RetryPolicy(attempts=3, wait_initial=0))
    inner.chain(START, flaky, END)
    workflow = Workflow("g")
    workflow.add(source)
    workflow.add(inner, fallback=-1)
    workflow.edge(START, source)
    workflow.map(source, inner)
    workflow.gather(inner, END)
    assert (await workflow.run()).output == [-1, -1]
    assert calls == {1: 3, 2: 3}


# --- B-036: what is never retried --------------------------------------------------------------------------


@pytest.mark.parametrize("rule", [BaseException, lambda error: not isinstance(error, KeyError)])
async def test_cancelled_call_ends_at_once_after_one_attempt_whatever_is_retried(rule: Any) -> None:
    """B-036."""
    calls: list[int] = []

    async def slow(x: Any) -> int:
        calls.append(1)
        await anyio.sleep(100)
        return 1

    workflow = Workflow("g")
    workflow.add(slow, retry=RetryPolicy(attempts=5, retry_on=rule), fallback=2, on_error="skip")
    workflow.chain(START, slow, END)
    begun = anyio.current_time()
    with anyio.move_on_after(1) as scope:
        await workflow.run()
    assert scope.cancelled_caught
    assert anyio.current_time() - begun == pytest.approx(1)
    assert calls == [1]


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, GeneratorExit])
async def test_interrupt_is_neither_retried_nor_handled(error: type[BaseException]) -> None:
    """B-036, E14."""
    calls: list[int] = []

    async def interrupted(x: Any) -> int:
        calls.append(1)
        raise error

    workflow = Workflow("g")
    workflow.add(interrupted, retry=RetryPolicy(attempts=5, retry_on=BaseException), fallback=2, on_error="skip")
    workflow.add_node("handler", _returns("handler"))
    workflow.chain(START, interrupted, END)
    workflow.edge(interrupted, "handler", on_error=True)
    workflow.edge("handler", END)
    with pytest.raises(error):
        await workflow.run(check=False)
    assert calls == [1]


async def test_cancel_during_a_retrys_pause_ends_at_once() -> None:
    calls: list[int] = []

    async def flaky(x: Any) -> int:
        calls.append(1)
        raise ValueError

    workflow = Workflow("g")
    workflow.add(flaky, retry=RetryPolicy(attempts=5, wait_initial=60, wait_max=60))
    workflow.chain(START, flaky, END)
    begun = anyio.current_time()
    async with workflow.stream(check=False) as run:
        async for event in run:
            if event.type == "attempt.failed":
                assert (await run.cancel()).outcome == "cancelled"
    assert anyio.current_time() == begun
    assert calls == [1]
