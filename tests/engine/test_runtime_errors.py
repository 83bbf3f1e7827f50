"""Bad input: whatever a node, a condition, a reducer, an iterator or a caller does wrong has a defined ending."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from typing import Annotated, Any

import anyio
import anyio.lowlevel
import pytest
from pydantic import BaseModel

from graphrt import (
    END,
    START,
    ConfigError,
    GraphError,
    GraphTypeError,
    Reduce,
    RetryPolicy,
    RunContext,
    RunEvent,
    Update,
    Workflow,
)
from graphrt.graph import NodeState
from tests.engine.helpers import GUARD, Asking, check_whole, line, states, yield_often

pytestmark = pytest.mark.anyio


async def one(x: Any) -> int:
    return 1


async def two(x: Any) -> int:
    return 2


# --- conditions, keys, reducers ----------------------------------------------------------------------------


def boom(*_: Any) -> Any:
    """Raise, as a condition or a key does that is wrong."""
    raise LookupError("boom")


def with_condition(where: str, **options: Any) -> Workflow:
    """A graph in which the condition, key or map condition of node `source` raises."""

    async def source(x: Any) -> list[int]:
        return [1]

    workflow = Workflow("g")
    workflow.add(source, **options)
    workflow.add(one)
    workflow.edge(START, source)
    if where == "when":
        workflow.edge(source, one, when=boom)
    elif where == "key":
        workflow.branch(source, {1: one}, key=boom)
    elif where == "map":
        workflow.map(source, one, when=boom)
        workflow.gather(one, END)
    elif where == "no match":
        workflow.branch(source, {"other": one}, key=len)
    elif where == "unhashable":
        workflow.branch(source, {"other": one})
    elif where == "truth":
        workflow.edge(source, one, when=lambda x: Untrue())
    if where != "map":
        workflow.edge(one, END)
    return workflow


class Untrue:
    """Neither true nor false."""

    def __bool__(self) -> bool:
        raise LookupError("boom")


WRONG = ["when", "key", "map", "no match", "unhashable", "truth"]


@pytest.mark.parametrize("where", WRONG)
async def test_exception_in_a_condition_is_a_failure_of_its_source(where: str) -> None:
    """E13."""
    events: list[RunEvent] = []
    result = await with_condition(where).run(check=False, on_event=events.append)
    assert states(result) == {"source": NodeState.FAILED, "one": NodeState.PENDING}
    expected = GraphError if where in ("no match", "unhashable") else LookupError
    assert type(result.error) is expected
    assert "step.completed" not in [event.type for event in events]
    check_whole(events)


@pytest.mark.parametrize("where", WRONG)
async def test_exception_in_a_condition_is_not_retried(where: str) -> None:
    """E13."""
    result = await with_condition(where, retry=RetryPolicy(attempts=3, wait_initial=0)).run(check=False)
    assert result.steps[0].attempts == 1


@pytest.mark.parametrize("where", WRONG)
async def test_exception_in_a_condition_takes_the_error_edge(where: str) -> None:
    async def handler(error: Exception) -> str:
        return type(error).__name__

    workflow = with_condition(where)
    workflow.add(handler)
    workflow.edge("source", handler, on_error=True)
    workflow.edge(handler, END)
    assert (await workflow.run()).output in ("LookupError", "GraphError")


async def test_branch_without_a_match_names_its_cases() -> None:
    with pytest.raises(GraphError, match="branch of 'source' has no case for 1; its cases are 'other'"):
        await with_condition("no match").run()


async def test_exception_in_the_condition_of_an_error_edge_is_the_steps_failure() -> None:
    async def fails(x: Any) -> int:
        raise ValueError("no")

    workflow = line(fails)
    workflow.add(one)
    workflow.edge(fails, one, on_error=True, when=boom)
    workflow.edge(one, END)
    with pytest.raises(LookupError, match="boom") as caught:
        await workflow.run()
    assert isinstance(caught.value.__context__, ValueError)


@pytest.mark.parametrize("where", ["when", "key", "map"])
async def test_exception_in_a_condition_on_the_input_fails_the_run(where: str) -> None:
    workflow = Workflow("g")
    workflow.add(one)
    if where == "when":
        workflow.edge(START, one, when=boom)
    elif where == "key":
        workflow.branch(START, {1: one}, key=boom)
    else:
        workflow.map(START, one, when=boom)
        workflow.gather(one, END)
    if where != "map":
        workflow.edge(one, END)
    with pytest.raises(LookupError, match="boom"):
        await workflow.run([1])


async def test_condition_that_changes_its_value_does_not_change_what_travels() -> None:
    """Conditions are pure; one that is not spoils nothing of the next reader's with copies on."""

    async def source(x: Any) -> list[int]:
        return [1]

    async def reader(value: list[int]) -> list[int]:
        return value

    workflow = Workflow("g")
    workflow.add(source)
    workflow.add(reader)
    workflow.edge(START, source)
    workflow.edge(source, reader, when=lambda value: value == [1])
    workflow.edge(source, END, when=lambda value: value != [1])
    workflow.edge(reader, END)
    assert (await workflow.run()).output == [1]


def explode(current: list[int], written: list[int]) -> list[int]:
    """Raise, as a reducer does that is wrong."""
    raise LookupError("reducer")


class Exploding(BaseModel):
    seen: Annotated[list[int], Reduce(explode)] = []


class Strict(BaseModel):
    n: int = 0


async def test_exception_in_a_reducer_is_a_failure_of_the_writer() -> None:
    """E13."""

    async def write(x: Any) -> Update[int]:
        return Update(1, seen=[1])

    result = await line(write, two, state=Exploding).run(check=False)
    assert type(result.error) is LookupError
    assert states(result) == {"write": NodeState.FAILED, "two": NodeState.PENDING}
    assert any("reducer of state field 'seen'" in note for note in result.error.__notes__)


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"m": 1}, "node 'write' wrote 'm', which is not a field of state 'Strict'"),
        ({"n": "many"}, "state field 'n' does not take what 'write' wrote"),
        ({"output": 1}, "the node's own value comes first"),
    ],
)
async def test_update_that_does_not_fit_is_the_writers_failure(fields: dict[str, Any], says: str) -> None:
    async def write(x: Any) -> Update[int]:
        return Update(1, **fields)

    result = await line(write, state=Strict).run(check=False)
    assert says in str(result.error)
    assert states(result) == {"write": NodeState.FAILED}


# --- iterators ---------------------------------------------------------------------------------------------


class Breaking:
    """An iterable that breaks after so many items."""

    def __init__(self, items: int, where: str) -> None:
        self.items = items
        self.where = where

    def __iter__(self) -> Iterator[int]:
        if self.where == "iter":
            raise LookupError("boom")
        yield from range(self.items)
        raise LookupError("boom")


def iterating(kind: str, items: int) -> Callable[..., Any]:
    """Make a source of a kind that breaks after so many items."""

    async def async_generator(x: Any) -> AsyncIterator[int]:
        for i in range(items):
            yield i
        raise LookupError("boom")

    def generator(x: Any) -> Iterator[int]:
        yield from range(items)
        raise LookupError("boom")

    async def returned(x: Any) -> Any:
        return Breaking(items, kind)

    async def declared(x: Any) -> Iterator[int]:
        return iter(Breaking(items, kind))

    async def iterator_class(x: Any) -> AsyncIterator[int]:
        return Spelt(items)

    made: dict[str, Callable[..., Any]] = {
        "async generator": async_generator,
        "generator": generator,
        "next": returned,
        "iter": returned,
        "declared": declared,
        "class": iterator_class,
    }
    return made[kind]


class Spelt:
    """An async iterator that is no generator."""

    def __init__(self, items: int) -> None:
        self.left = items

    def __aiter__(self) -> Spelt:
        return self

    async def __anext__(self) -> int:
        if not self.left:
            raise LookupError("boom")
        self.left -= 1
        await anyio.lowlevel.checkpoint()
        return self.left


KINDS = ["async generator", "generator", "next", "iter", "declared", "class"]


def mapped(source: Callable[..., Any], body: Any = one, **options: Any) -> Workflow:
    """Map *body* over *source*; *options* are the source's."""
    workflow = Workflow("g")
    workflow.add(source, name="source", **options)
    workflow.add(body, name="body")
    workflow.edge(START, "source")
    workflow.map("source", "body")
    workflow.gather("body", END)
    return workflow


@pytest.mark.parametrize("items", [0, 1, 150])
@pytest.mark.parametrize("kind", KINDS)
async def test_exception_in_an_iterator_is_the_sources_failure(kind: str, items: int) -> None:
    """E9."""
    events: list[RunEvent] = []
    with anyio.fail_after(GUARD):
        result = await mapped(iterating(kind, items)).run(check=False, on_event=events.append)
    assert type(result.error) is LookupError
    assert result.node_states["source"] is NodeState.FAILED
    assert result.status == "failed"
    check_whole(events)


@pytest.mark.parametrize("kind", KINDS)
async def test_exception_in_an_iterator_may_be_handled(kind: str) -> None:
    async def handler(error: LookupError) -> str:
        return "handled"

    workflow = mapped(iterating(kind, 3))
    workflow.add(handler)
    workflow.edge("source", handler, on_error=True)
    workflow.edge(handler, END)
    with anyio.fail_after(GUARD):
        assert (await workflow.run()).output == "handled"


async def test_iterator_that_is_retried_goes_on_where_it_was() -> None:
    """E10a: its first items are compared with those there are, and dropped."""
    bodies: list[int] = []
    tries: list[int] = []

    async def source(x: Any) -> AsyncIterator[int]:
        tries.append(1)
        for i in range(4):
            if i == 2 and len(tries) == 1:
                raise LookupError("boom")
            yield i

    async def body(item: int) -> int:
        bodies.append(item)
        return item

    workflow = mapped(source, body, retry=RetryPolicy(attempts=2, wait_initial=0))
    assert (await workflow.run()).output == [0, 1, 2, 3]
    assert sorted(bodies) == [0, 1, 2, 3]


@pytest.mark.parametrize(("second", "says"), [([0, 9, 2], "item 1 of node 'source' was 1 and is 9"), ([0], "only 1")])
async def test_iterator_that_yields_something_else_when_retried_is_refused(second: list[int], says: str) -> None:
    """E10a."""
    tries: list[int] = []

    async def source(x: Any) -> AsyncIterator[int]:
        tries.append(1)
        if len(tries) == 1:
            yield 0
            yield 1
            raise LookupError("boom")
        for i in second:
            yield i

    result = await mapped(source, retry=RetryPolicy(attempts=2, wait_initial=0)).run(check=False)
    assert type(result.error) is GraphError
    assert says in str(result.error)


async def test_node_that_declares_an_iterator_and_returns_none_fails() -> None:
    async def source(x: Any) -> Iterator[int]:
        return None  # type: ignore[return-value]  # what is caught

    result = await mapped(source).run(check=False)
    assert "node 'source' declares an iterator and returned NoneType" in str(result.error)


@pytest.mark.parametrize("error", [StopIteration, StopAsyncIteration, GeneratorExit, RuntimeError])
async def test_exception_that_means_something_to_iteration_is_an_error_like_any_other(
    error: type[BaseException],
) -> None:
    """A node may raise anything; only what is no `Exception` leaves `run()` unhandled."""

    async def node(x: Any) -> int:
        raise error("boom")

    with anyio.fail_after(GUARD), pytest.raises((error, RuntimeError)):
        await line(node).run()


@pytest.mark.parametrize("error", [StopIteration, StopAsyncIteration, RuntimeError, GeneratorExit])
async def test_exception_that_means_something_to_iteration_is_no_end_of_a_sync_node(
    error: type[BaseException],
) -> None:
    def node(x: Any) -> int:
        raise error("boom")

    with anyio.fail_after(GUARD), pytest.raises((error, RuntimeError)):
        await line(node).run()


# --- exceptions of all kinds -------------------------------------------------------------------------------


class Mine(BaseException):
    """What no `except Exception` sees."""


@pytest.mark.parametrize("kind", ["async", "sync", "generator", "object"])
@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, Mine, GeneratorExit])
async def test_base_exception_of_a_node_cancels_the_run_and_leaves_it_bare(
    kind: str, error: type[BaseException]
) -> None:
    """E14: recorded as cancelled, caught by no policy."""
    cleaned: list[str] = []
    events: list[RunEvent] = []

    async def is_async(x: Any) -> int:
        await yield_often()
        raise error

    def is_sync(x: Any) -> int:
        raise error

    async def generator(x: Any) -> AsyncIterator[int]:
        yield 1
        await yield_often()
        raise error

    class CallableObject:
        async def __call__(self, x: Any) -> int:
            raise error

    async def sibling(x: Any) -> int:
        try:
            await anyio.sleep_forever()
        finally:
            cleaned.append("sibling")
        return 1

    made: dict[str, Any] = {"async": is_async, "sync": is_sync, "object": CallableObject()}
    workflow = Workflow("g")
    workflow.add(sibling)
    workflow.chain(START, sibling, END)
    if kind == "generator":
        workflow.add(generator, name="node", on_error="skip")
        workflow.add(one)
        workflow.edge(START, "node")
        workflow.map("node", one, on_error="skip")
        workflow.gather(one, END)
    else:
        workflow.add(made[kind], name="node", on_error="skip", fallback=7, retry=RetryPolicy(wait_initial=0))
        workflow.chain(START, "node", END)
    with anyio.fail_after(GUARD), pytest.raises(error) as caught:
        await workflow.run(check=False, on_event=events.append)
    assert type(caught.value) is error
    assert cleaned == ["sibling"]
    assert events[-1].type == "run.cancelled"
    cancelled = {e.step.node for e in events if e.type == "step.cancelled" and e.step is not None}
    assert {"node", "sibling"} <= cancelled
    check_whole(events)


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
async def test_interrupt_leaves_a_stream_bare(error: type[BaseException]) -> None:
    async def node(x: Any) -> int:
        raise error

    with anyio.fail_after(GUARD), pytest.raises(error):
        async with line(node).stream(check=False) as run:
            await run.wait()


async def test_exception_group_of_a_node_is_raised_as_it_is() -> None:
    async def node(x: Any) -> int:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_raise, ValueError("one"))
            tasks.start_soon(_raise, KeyError("two"))
        return 1

    with pytest.raises(ExceptionGroup) as caught:
        await line(node).run()
    assert {type(e) for e in caught.value.exceptions} <= {ValueError, KeyError}


async def _raise(error: Exception) -> None:
    raise error


async def test_exception_whose_text_cannot_be_made_does_not_break_the_run() -> None:
    class MuteError(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no text")

        __repr__ = __str__

    async def node(x: Any) -> int:
        raise MuteError

    async def other(x: Any) -> int:
        try:
            await anyio.sleep_forever()
        finally:
            raise MuteError

    workflow = line(other)
    workflow.add(node)
    workflow.chain(START, node, END)
    with anyio.fail_after(GUARD), pytest.raises(MuteError):
        await workflow.run()
    result = await workflow.run(check=False)
    assert result.status == "failed"
    assert len(result.failures) == 2


async def test_same_exception_object_may_fail_several_runs() -> None:
    known = ValueError("known")

    async def node(x: Any) -> int:
        raise known

    for _ in range(3):
        with pytest.raises(ValueError, match="known") as caught:
            await line(node).run()
        assert caught.value is known


async def test_error_of_a_run_inside_a_node_is_the_nodes_error() -> None:
    """A node may run another graph by hand."""

    async def fails(x: Any) -> int:
        raise ValueError("inner")

    async def node(x: Any) -> Any:
        return (await line(fails).run()).output

    with pytest.raises(ValueError, match="inner"):
        await line(node).run()


async def test_wrong_arguments_of_a_nodes_own_calls_are_its_failure() -> None:
    async def node(x: Any) -> int:
        return len(5)  # type: ignore[arg-type]  # what is caught

    result = await line(node).run(check=False)
    assert type(result.error) is TypeError
    assert states(result) == {"node": NodeState.FAILED}


async def test_coroutine_that_is_returned_and_not_awaited_is_found_by_its_type() -> None:
    async def inner() -> int:
        return 1

    async def node(x: Any) -> int:
        made = inner()
        made.close()
        return made  # type: ignore[return-value]  # what is caught

    with pytest.raises(GraphTypeError, match="node 'node' declares int and returned coroutine"):
        await line(node).run()


# --- wrong use ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [0, -1])
async def test_run_that_may_do_nothing_at_once_is_refused(limit: int) -> None:
    with pytest.raises(ConfigError, match="max_concurrency"):
        await line(one).run(max_concurrency=limit)


async def test_deadline_without_a_zone_is_refused() -> None:
    from datetime import datetime

    with pytest.raises(ConfigError, match="a time without a zone"):
        await line(one).run(deadline_at=datetime(2030, 1, 1))  # noqa: DTZ001 - what is refused


@pytest.mark.parametrize("timeout", [float("nan"), "5"])
async def test_timeout_that_is_no_number_is_refused(timeout: Any) -> None:
    with pytest.raises((ConfigError, TypeError)):
        await line(one).run(timeout=timeout)


@pytest.mark.parametrize("timeout", [0, -1, 0.0])
async def test_timeout_that_has_passed_is_a_timeout(timeout: float) -> None:
    """What is left of somebody's deadline may be nothing."""

    async def node(x: Any) -> int:
        await anyio.sleep(GUARD)
        return 1

    result = await line(node).run(timeout=timeout, check=False)
    assert result.status == "timed_out"


async def test_timeout_without_end_is_none() -> None:
    assert (await line(one).run(timeout=float("inf"))).output == 1


async def test_on_ask_need_not_be_async() -> None:
    workflow = Workflow("g")
    workflow.add(Asking("ask"))
    workflow.chain(START, "ask", END)
    with anyio.fail_after(GUARD):
        assert (await workflow.run("draft", on_ask=lambda question: "yes")).output == "yes"


async def test_result_of_a_run_that_failed_shows_its_error() -> None:
    async def fails(x: int) -> int:
        raise OSError("no network")

    result = await line(fails).run(1, run_id="r", check=False)
    assert repr(result) == "RunResult(run_id='r', status='failed', error=OSError('no network'))"
    assert repr(await line(one).run(1, run_id="r")) == "RunResult(run_id='r', status='succeeded', output=1)"


async def test_unknown_argument_is_a_type_error() -> None:
    with pytest.raises(TypeError, match="retires"):
        await line(one).run(1, retires=3)


async def test_context_outlives_its_step_and_refuses() -> None:
    kept: list[RunContext[Any]] = []

    async def node(x: Any, ctx: RunContext[Any]) -> int:
        kept.append(ctx)
        return 1

    await line(node).run()
    with pytest.raises(GraphError, match="comes after its end"):
        kept[0].emit("custom.late")
