"""The clock of a test moves when it is told to; recorders hold what a run has told."""

from __future__ import annotations

import threading
import time
from datetime import UTC, datetime, timedelta

import anyio
import pytest

from graphrt import END, START, RunContext, Workflow
from graphrt.clock import Clock
from graphrt.testing import EventRecorder, FakeClock, SpanRecorder, fake_time
from graphrt.threads import run_in_thread


def test_clock_moves_by_what_it_is_told() -> None:
    clock: Clock = FakeClock(datetime(2031, 5, 1, 12, tzinfo=UTC))
    fake = clock
    assert isinstance(fake, FakeClock)
    fake.advance(timedelta(minutes=2))
    fake.advance(0.5)

    assert clock.now() == datetime(2031, 5, 1, 12, 2, 0, 500_000, tzinfo=UTC)
    assert clock.monotonic() == 120.5
    with pytest.raises(ValueError, match="cannot go back"):
        fake.advance(-1)
    with pytest.raises(ValueError, match="without a zone"):
        FakeClock(datetime(2031, 5, 1))  # noqa: DTZ001 - the mistake


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_loop_of_fake_time_jumps_over_an_hour(backend: str) -> None:
    async def main() -> float:
        before = anyio.current_time()
        await anyio.sleep(3600)
        return anyio.current_time() - before

    name, options = fake_time(backend)
    assert anyio.run(main, backend=name, backend_options=options) == pytest.approx(3600, abs=1e-3)


def test_time_waits_for_a_thread_that_is_at_work() -> None:
    """On asyncio; a trio clock that jumps knows of no threads."""
    done = threading.Event()

    def work() -> str:
        done.wait(0.05)
        return "done"

    async def main() -> tuple[str, float]:
        with anyio.fail_after(300):
            text = await run_in_thread(work)
        began = anyio.current_time()
        await anyio.sleep(3600)
        return text, anyio.current_time() - began

    name, options = fake_time()
    text, slept = anyio.run(main, backend=name, backend_options=options)
    assert text == "done"
    assert slept == pytest.approx(3600, abs=1e-3)


def test_time_goes_by_while_a_thread_is_at_work_and_jumps_once_it_is_abandoned() -> None:
    release = threading.Event()

    async def main() -> float:
        began = anyio.current_time()
        with anyio.move_on_after(0.05) as limit:
            await run_in_thread(release.wait, 10)
        assert limit.cancelled_caught
        await anyio.sleep(3600)
        return anyio.current_time() - began

    name, options = fake_time()
    real = time.monotonic()
    try:
        assert anyio.run(main, backend=name, backend_options=options) == pytest.approx(3600.05, abs=0.05)
    finally:
        release.set()
    assert time.monotonic() - real >= 0.04


def test_other_back_ends_are_refused() -> None:
    with pytest.raises(ValueError, match="no back end 'curio'"):
        fake_time("curio")


@pytest.mark.anyio
async def test_recorders_hold_events_and_the_tree_of_spans() -> None:
    async def step(x: str, ctx: RunContext[None]) -> str:
        ctx.send_text("hel")
        ctx.send_text("lo")
        return x

    workflow = Workflow("line")
    workflow.chain(START, workflow.add(step), END)
    events, spans = EventRecorder(), SpanRecorder()
    await workflow.run("x", on_event=events, telemetry=spans.telemetry)

    assert events.text == "hello"
    assert events.types[0] == "run.started"
    assert next(each.type for each in events.about("step")) == "step.started"
    assert spans.tree() == [["invoke_workflow line", [["node step", []]]]]
    assert [each.name for each in spans.of_kind("run")] == ["invoke_workflow line"]
    spans.clear()
    assert spans.spans == []
