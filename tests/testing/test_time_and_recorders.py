"""The clock of a test moves when it is told to; recorders hold what a run has told."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import anyio
import pytest

from graphrt import END, START, RunContext, Workflow
from graphrt.clock import Clock
from graphrt.testing import EventRecorder, FakeClock, SpanRecorder, fake_time


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
