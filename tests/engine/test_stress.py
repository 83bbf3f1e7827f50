"""Any graph under any limits, retries, timeouts and cancellations ends, leaves nothing behind, and tells all of it."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from trio.testing import MockClock

from graphrt import END, START, CompiledGraph, RateLimit, RetryPolicy, RunEvent, Workflow
from graphrt.graph import Question, RunStatus
from graphrt.graph.core.records import Scope
from graphrt.graph.scheduler.run import GraphScheduler
from graphrt.testing import assert_no_orphans
from graphrt.testing.time import SkippingLoop
from tests.engine.helpers import Asking, check_whole
from tests.properties.building import build
from tests.properties.graphs import VALUE, Flavour, graphs

LONG = 10_000.0
"""Seconds of fake time that no run may take: one that hangs gets there at once."""


@dataclass(frozen=True)
class Trouble:
    """What happens to a run."""

    seed: int
    concurrency: int | None
    timeout: float | None
    cancel_at: float | None
    cancel: str
    policies: bool


TROUBLES = st.builds(
    Trouble,
    st.integers(0, 2**16),
    st.sampled_from([None, 1, 2, 3]),
    st.sampled_from([None, None, 0.5, 2.0]),
    st.sampled_from([None, None, 0.0, 0.3, 1.0, 3.0]),
    st.sampled_from(["now", "after_step", "after_round", "scope"]),
    st.booleans(),
)


def troubled(graph: Any, trouble: Trouble) -> CompiledGraph:
    """Build *graph* so that its nodes sleep and now and then fail, with policies drawn from the seed."""
    chance = random.Random(trouble.seed)  # noqa: S311 - reproducible choices, not secrets

    async def pause() -> None:
        draw = chance.random()
        if draw < 0.3:
            return
        if draw < 0.5:
            await anyio.lowlevel.checkpoint()
            return
        try:
            await anyio.sleep(chance.choice([0.1, 0.2, 1.0]))
        finally:
            if draw > 0.9:
                with anyio.CancelScope(shield=True):
                    await anyio.sleep(0.1)
        if draw > 0.95 and trouble.policies:
            raise OSError("now and then")

    workflow = build(graph, pause)
    for one in _workflows(workflow):
        for edge in one._decl.edges:
            edge.max_concurrency = chance.choice([1, 2, 100])
    if trouble.policies:
        for one in _workflows(workflow):
            for decl in one._decl.nodes.values():
                if isinstance(decl.target, Workflow):
                    decl.step_timeout = chance.choice([None, None, 1.5])
                    continue
                decl.retry = chance.choice([None, None, RetryPolicy(attempts=2, wait_initial=0.2)])
                decl.timeout = chance.choice([None, None, 0.5])
                decl.step_timeout = chance.choice([None, None, None, 0.7])
                decl.max_concurrency = chance.choice([None, None, None, 1])
                decl.rate_limit = chance.choice([None, None, None, RateLimit(2, 0.3)])
                decl.fallback = chance.choice([(), (), (), (1,)])
    return workflow.compile()


def _workflows(root: Workflow) -> Iterable[Workflow]:
    yield root
    for decl in root._decl.nodes.values():
        if isinstance(decl.target, Workflow):
            yield from _workflows(decl.target)


def scopes(root: Scope) -> Iterable[Scope]:
    """Every scope that is still reachable from *root*."""
    todo = [root]
    while todo:
        scope = todo.pop()
        yield scope
        todo.extend(step.child for step in scope.live if step.child is not None)
        for run in scope.maps or ():
            todo.extend(run.children.values())


def check_settled(run: GraphScheduler) -> None:
    """Assert that an ended run holds nothing: no live step, no slot, no question."""
    core = run.core
    assert core.outcome is not None
    assert core.outcome.status is not RunStatus.RUNNING
    assert run.threads.used == 0
    assert [slots.used for slots in core.root.limits] == [0] * len(core.root.limits)
    if core.outcome.status is not RunStatus.SUCCEEDED:
        return
    assert [len(scope.live) for scope in scopes(core.root)] == [0]
    assert (core.active, core.waiting, list(core.cancels), list(core.opened)) == (0, 0, [], [])
    assert not [step for step in core.ready if step.state.value == "pending"]


async def live_through(graph: CompiledGraph, trouble: Trouble, on_ask: Any = None) -> None:
    """Run *graph* as *trouble* says, and look at it from all sides."""
    events: list[RunEvent] = []
    stream = graph.stream(
        VALUE,
        timeout=trouble.timeout,
        max_concurrency=trouble.concurrency,
        check=False,
        on_event=events.append,
        on_ask=on_ask,
    )

    async def disturb() -> None:
        if trouble.cancel_at is None:
            return
        await anyio.sleep(trouble.cancel_at)
        if trouble.cancel == "scope":
            outer.cancel()
        else:
            await stream.cancel(trouble.cancel)  # type: ignore[arg-type]  # drawn from the modes

    with anyio.fail_after(LONG):
        async with anyio.create_task_group() as tasks:
            with anyio.CancelScope() as outer:
                async with stream:
                    tasks.start_soon(disturb)
                    read = 0
                    async for _ in stream:
                        read += 1
                        if read % 7 == 0:
                            await anyio.sleep(0.05)
            tasks.cancel_scope.cancel()
    run = stream._scheduler
    check_whole(events)
    check_settled(run)
    assert_no_orphans()


def options_of(backend: str) -> dict[str, Any]:
    """Fake time for a backend."""
    return {"loop_factory": SkippingLoop} if backend == "asyncio" else {"clock": MockClock(autojump_threshold=0)}


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@settings(max_examples=50)
@given(graph=graphs(Flavour()), trouble=TROUBLES)
def test_any_run_ends_whole_and_leaves_nothing(backend: str, graph: Any, trouble: Trouble) -> None:
    compiled = troubled(graph, trouble)
    anyio.run(live_through, compiled, trouble, backend=backend, backend_options=options_of(backend))


# --- iterators, questions and races, which drawn graphs do not hold ----------------------------------------


def pipeline(trouble: Trouble) -> CompiledGraph:
    """Make maps over iterators inside maps over iterators, with a question in the body and a race around it all."""
    chance = random.Random(trouble.seed)  # noqa: S311 - reproducible choices, not secrets
    lengths: dict[Any, int] = {}

    async def pause() -> None:
        draw = chance.random()
        if draw < 0.4:
            await anyio.sleep(chance.choice([0.05, 0.3, 1.0]))
        elif draw < 0.6:
            await anyio.lowlevel.checkpoint()
        if draw > 0.95:
            raise OSError("now and then")

    async def outer(x: Any) -> AsyncIterator[int]:
        for i in range(lengths.setdefault("outer", chance.randrange(6))):
            await pause()
            yield i

    async def inner(item: int) -> AsyncIterator[int]:
        try:
            for i in range(lengths.setdefault(item, chance.randrange(5))):
                yield 10 * item + i
                await pause()
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.sleep(0.05)

    async def work(draft: int) -> int:
        await pause()
        return draft

    async def total(parts: list[Any]) -> int:
        await pause()
        return len(parts)

    async def quick(x: Any) -> int:
        await anyio.sleep(chance.choice([0.1, 1.0, 5.0]))
        return -1

    async def first(value: Any) -> Any:
        return value

    def options() -> dict[str, Any]:
        return {
            "retry": chance.choice([None, RetryPolicy(attempts=2, wait_initial=0.1)]),
            "timeout": chance.choice([None, None, 1.0]),
            "on_error": chance.choice(["fail", "skip"]),
        }

    def policy() -> Any:
        return chance.choice(["fail", "skip", "collect"])

    workflow = Workflow("pipeline")
    workflow.add(outer, **options())
    workflow.add(inner, **options())
    workflow.add(work, max_concurrency=chance.choice([None, 1, 2]), **options())
    workflow.add(Asking("ask", int))
    workflow.add(total, name="part", on_error="skip")
    workflow.add(total, name="whole")
    workflow.add(quick)
    workflow.add(first, join="any", cancel_rest=chance.random() < 0.5)
    workflow.edge(START, outer)
    workflow.map(outer, inner, on_error=policy(), max_concurrency=chance.choice([1, 3]))
    workflow.map(inner, work, on_error=policy(), max_concurrency=chance.choice([1, 2, 100]))
    workflow.edge(work, "ask", when=lambda n: n % 3 == 0)
    workflow.gather("ask", "part", into="parts")
    workflow.gather("part", "whole")
    workflow.chain("whole", first, END)
    workflow.chain(START, quick, first)
    return workflow.compile()


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@settings(max_examples=50)
@given(trouble=TROUBLES)
def test_any_run_of_iterators_and_questions_ends_whole_and_leaves_nothing(backend: str, trouble: Trouble) -> None:
    chance = random.Random(trouble.seed)  # noqa: S311 - reproducible choices, not secrets

    async def on_ask(question: Question) -> Any:
        await anyio.sleep(chance.choice([0.0, 0.5, 20.0]))
        if chance.random() < 0.1:
            raise LookupError("nobody there")
        return chance.choice([1, 2, 3, "no number"])

    graph = pipeline(trouble)
    anyio.run(live_through, graph, trouble, on_ask, backend=backend, backend_options=options_of(backend))
