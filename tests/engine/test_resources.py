"""What a run keeps open for its steps: opened once, by a task of its own, and closed however the run ends."""

from __future__ import annotations

import contextvars
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from graphrt import END, START, GraphError, RunContext, Workflow
from graphrt.graph.scheduler.resources import RunHandle
from tests.engine.helpers import FAKE_TIME
from tests.nodeclasses.helpers import Events

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module", params=FAKE_TIME)
def anyio_backend(request: pytest.FixtureRequest) -> Any:
    """Run on both event loops, in fake time."""
    return request.param


Opening = Callable[[RunHandle], Any]


class Log(list[str]):
    """What happened to resources, in order."""

    def opening(self, name: str = "r", *, fails: Exception | None = None) -> Opening:
        @asynccontextmanager
        async def opened(run: RunHandle) -> AsyncIterator[str]:
            task = anyio.get_current_task().id
            self.append(f"open {name}")
            await anyio.lowlevel.checkpoint()
            if fails is not None:
                raise fails
            try:
                yield f"{name} of {run.run_id}"
            finally:
                await anyio.lowlevel.checkpoint()
                same = anyio.get_current_task().id == task
                self.append(f"close {name} {run.status} {'same task' if same else 'OTHER TASK'}")

        return opened


def fan_out(step: Callable[..., Any], **options: Any) -> Workflow:
    workflow = Workflow("fan", **options)
    workflow.add(step, name="one")
    workflow.add(step, name="two")
    workflow.chain(START, "one", END)
    workflow.chain(START, "two", END)
    return workflow


async def test_branches_share_what_the_first_one_opened() -> None:
    log = Log()

    async def step(x: str, ctx: RunContext[Any]) -> str:
        value: str = await ctx.resource("key", log.opening())
        log.append("use")
        return value

    result = await fan_out(step).run("x", run_id="r-1")

    assert result.outputs == {"one": "r of r-1", "two": "r of r-1"}
    assert log == ["open r", "use", "use", "close r succeeded same task"]


async def test_last_one_opened_is_closed_first() -> None:
    log = Log()

    async def step(x: str, ctx: RunContext[Any]) -> None:
        for name in ("a", "b", "c"):
            await ctx.resource(name, log.opening(name))

    workflow = Workflow("line")
    workflow.chain(START, workflow.add(step), END)
    await workflow.run("x")

    assert [each.split()[1] for each in log] == ["a", "b", "c", "c", "b", "a"]


async def test_steps_get_the_error_that_opening_raised() -> None:
    log = Log()

    async def step(x: str, ctx: RunContext[Any]) -> None:
        await ctx.resource("key", log.opening(fails=OSError("no such server")))

    with pytest.raises(OSError, match="no such server"):
        await fan_out(step).run("x")
    assert log == ["open r"]


@pytest.mark.parametrize("ending", ["fails", "timeout", "cancelled", "outside"])
async def test_resource_is_closed_by_its_own_task_in_every_ending(ending: str) -> None:
    log = Log()
    opened = anyio.Event()

    async def step(x: str, ctx: RunContext[Any]) -> None:
        await ctx.resource("key", log.opening())
        opened.set()
        if ending == "fails":
            raise ValueError("broken")
        await anyio.sleep_forever()

    workflow = Workflow("line")
    workflow.chain(START, workflow.add(step), END)
    if ending == "outside":
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(workflow.run, "x")
            await opened.wait()
            tasks.cancel_scope.cancel()
        assert [each.split()[0] for each in log] == ["open", "close"]
    else:
        async with workflow.stream("x", check=False, timeout=0.01 if ending == "timeout" else None) as run:
            await opened.wait()
            if ending == "cancelled":
                await run.cancel()
            await run.wait()
        status = {"fails": "failed", "timeout": "timed_out", "cancelled": "cancelled"}[ending]
        assert log == ["open r", f"close r {status} same task"]
    assert "OTHER TASK" not in log[-1]


async def test_opening_is_given_up_when_the_run_is_over() -> None:
    asked = anyio.Event()
    left = []

    @asynccontextmanager
    async def opening(run: RunHandle) -> AsyncIterator[None]:
        asked.set()
        try:
            await anyio.sleep_forever()
        finally:
            left.append("left")
        yield

    async def step(x: str, ctx: RunContext[Any]) -> None:
        await ctx.resource("key", opening)

    workflow = Workflow("line")
    workflow.chain(START, workflow.add(step), END)
    async with workflow.stream("x", check=False) as run:
        await asked.wait()
        answer = await run.cancel()

    assert answer.outcome == "cancelled"
    assert left == ["left"]


async def test_failure_to_close_is_logged_and_leaves_the_result_alone(caplog: pytest.LogCaptureFixture) -> None:
    @asynccontextmanager
    async def opening(run: RunHandle) -> AsyncIterator[int]:
        yield 1
        raise OSError("cannot close")

    async def step(x: str, ctx: RunContext[Any]) -> int:
        return await ctx.resource("key", opening)

    workflow = Workflow("line")
    workflow.chain(START, workflow.add(step), END)

    assert (await workflow.run("x")).output == 1
    assert "cannot close" in caplog.text


async def test_each_activation_of_a_graph_has_its_own() -> None:
    log = Log()

    async def step(x: int, ctx: RunContext[Any]) -> str:
        value: str = await ctx.resource("key", log.opening())
        return value

    inner = Workflow("inner")
    inner.chain(START, inner.add(step), END)
    outer = Workflow("outer")

    async def numbers(x: str) -> list[int]:
        return [1, 2, 3]

    async def together(found: list[str]) -> int:
        return len(found)

    outer.add(numbers)
    outer.add(inner)
    outer.add(together)
    outer.chain(START, numbers)
    outer.map(numbers, "inner")
    outer.gather("inner", together)
    outer.chain(together, END)

    assert (await outer.run("x")).output == 3
    assert [each.split()[0] for each in log] == ["open"] * 3 + ["close"] * 3


VARIABLE: contextvars.ContextVar[str] = contextvars.ContextVar("VARIABLE", default="none")


async def test_resource_is_opened_in_the_context_of_the_run() -> None:
    seen = []

    @asynccontextmanager
    async def opening(run: RunHandle) -> AsyncIterator[None]:
        seen.append(VARIABLE.get())
        yield

    async def step(x: str, ctx: RunContext[Any]) -> None:
        VARIABLE.set("step")
        await ctx.resource("key", opening)

    workflow = Workflow("line")
    workflow.chain(START, workflow.add(step), END)
    VARIABLE.set("caller")
    await workflow.run("x")

    assert seen == ["caller"]


async def test_events_of_a_resource_come_before_the_last_one() -> None:
    events = Events()

    @asynccontextmanager
    async def opening(run: RunHandle) -> AsyncIterator[None]:
        run.emit("custom.opened", {"n": 1})
        yield
        run.emit("custom.closed")

    async def step(x: str, ctx: RunContext[Any]) -> None:
        await ctx.resource("key", opening)

    workflow = Workflow("line")
    workflow.chain(START, workflow.add(step), END)
    await workflow.run("x", on_event=events)

    assert [each.data for each in events.of("custom.opened")] == [{"n": 1}]
    assert not events.of("custom.closed")
    assert events[-1].type == "run.completed"


async def test_only_events_of_its_own_may_be_told() -> None:
    @asynccontextmanager
    async def opening(run: RunHandle) -> AsyncIterator[None]:
        run.emit("step.started")
        yield

    async def step(x: str, ctx: RunContext[Any]) -> None:
        await ctx.resource("key", opening)

    workflow = Workflow("line")
    workflow.chain(START, workflow.add(step), END)
    with pytest.raises(GraphError, match=r"step\.started"):
        await workflow.run("x")


async def test_run_without_events_can_be_answered_and_has_nothing_to_read() -> None:
    from graphrt import Ask

    workflow = Workflow("asks")
    workflow.chain(START, workflow.add(Ask("sure", question="sure?", answer=bool)), END)
    async with workflow.stream("x", events=False) as run:
        while not run.questions:
            await anyio.lowlevel.checkpoint()
        with pytest.raises(GraphError, match="without events"):
            aiter(run)
        await run.answer(run.questions[0].id, True)
        result = await run.wait()

    assert result.output is True


async def test_resource_that_does_not_close_is_cancelled_in_the_end(caplog: pytest.LogCaptureFixture) -> None:
    @asynccontextmanager
    async def opening(run: RunHandle) -> AsyncIterator[None]:
        yield
        await anyio.sleep_forever()

    async def step(x: str, ctx: RunContext[Any]) -> int:
        await ctx.resource("key", opening)
        return 1

    workflow = Workflow("line")
    workflow.chain(START, workflow.add(step), END)

    assert (await workflow.run("x")).output == 1
    assert "did not close within 30 s" in caplog.text


async def test_clock_of_work_stands_still_while_a_step_is_held() -> None:
    async def step(x: str, ctx: RunContext[Any]) -> str:
        with ctx.holding():
            await anyio.sleep(20)
        return "done"

    workflow = Workflow("line")
    workflow.chain(START, workflow.add(step), END)

    assert (await workflow.run("x", timeout=10)).output == "done"
