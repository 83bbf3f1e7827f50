"""Sources that yield their items one by one: read only so far ahead, and the same again when retried (E10a)."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, Any

import anyio

from graphrt.errors import GraphError, GraphTypeError
from graphrt.graph.core.maps import run_of
from graphrt.graph.scheduler.drive import drive
from graphrt.graph.states import NodeState
from graphrt.threads import ThreadIterator

if TYPE_CHECKING:
    from collections.abc import Callable

    from graphrt.graph.core.records import MapRun, Step
    from graphrt.graph.scheduler.work import Work

_RUNNING = NodeState.RUNNING


async def iterate(work: Work) -> None:
    """Read the source's items one by one, at most the map's `max_concurrency` ahead of what has settled (E10a)."""
    run, step = work.run, work.step
    map_ = next(e.map for e in step.node.out if e.map is not None)
    if work.map_run is None:
        work.map_run = run_of(step, map_)
    stored = len(work.map_run.items or ()) if work.map_run is not None else 0
    if work.map_run is None:
        remember = work.runner.retry is not None or run.core.sink is not None
        work.map_run = run.core.map_started(step, map_, remember=remember, now=time.time())
    target = work.map_run
    source = run.call(step)
    if hasattr(source, "__await__"):
        source = await drive(awaited(source), work.context, run.suspended)
    reader = _reader(source, step, work.context, work.abandoned)
    index = 0
    try:
        while True:
            if index >= stored:
                await _room(work, target)
            try:
                value = await drive(reader.__anext__(), work.context, run.suspended)
            except StopAsyncIteration:
                break
            if target.aborted or target.closed or target.frame.scope.dead:
                return  # nobody wants its items any more
            if index < stored:
                _same_item(step, target, index, value)
            else:
                if run.durable is not None and (problem := run.durable.check_item(step, value)) is not None:
                    raise problem
                run.core.item_arrived(target, value, time.time())
                run.settle()
                run.suspended()
            index += 1
    finally:
        close = getattr(reader, "aclose", None)
        if close is not None:
            with anyio.CancelScope(shield=True):
                await drive(awaited(close()), work.context, run.suspended)
    if index < stored:
        raise GraphError(
            f"node {step.node.name!r} yielded {stored} items before and only {index} when called again",
            hint="an iterator that is retried or resumed yields the same items again, and then goes on",
        )


async def _room(work: Work, target: MapRun) -> None:
    run = work.run
    if len(target.children) < target.map.max_concurrency:
        await work.take_slots()
        return
    with work.clock_stopped():
        while len(target.children) >= target.map.max_concurrency and not target.aborted:
            event = anyio.Event()
            entry = (target, event)
            run.sources.append(entry)
            work.give_slots()
            if run.graceful:
                run.settle()
            run.suspended()
            try:
                await event.wait()
            finally:
                run.sources.remove(entry)
        await work.take_slots()


def _same_item(step: Step, target: MapRun, index: int, value: Any) -> None:
    assert target.items is not None
    if not _equal(target.items[index], value):
        raise GraphError(
            f"item {index} of node {step.node.name!r} was {target.items[index]!r} and is {value!r} when called again",
            hint="an iterator that is retried or resumed yields the same items again, and then goes on",
        )


def _equal(one: Any, other: Any) -> bool:
    """Whether two items are the same; what is not equal to itself, or compares to no yes or no, is told by its text."""
    try:
        return bool(one == other) or bool(one != one and other != other)  # noqa: PLR0124 - a NaN
    except Exception:  # noqa: BLE001 - comparing is user code, as for arrays
        return repr(one) == repr(other)


def _reader(source: Any, step: Step, context: Any, abandoned: Callable[[], None]) -> Any:
    if isinstance(source, AsyncIterator):
        return source
    if hasattr(source, "__aiter__"):
        return source.__aiter__()
    if isinstance(source, Iterator) or hasattr(source, "__iter__"):
        return context.run(ThreadIterator, iter(source), on_abandon=abandoned)
    raise GraphTypeError(
        f"node {step.node.name!r} declares an iterator and returned {type(source).__name__}",
        hint="yield the items, or return an iterator",
    )


async def awaited(value: Any) -> Any:
    """Make a coroutine of any awaitable."""
    return await value
