"""What the orchestrator makes of what runners do."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from graphrt.errors import RunCancelledError, RunControlError
from graphrt.ledger.artifacts import ArtifactStore
from graphrt.ledger.authorization import CallerIdentity
from graphrt.ledger.control import RunControl
from graphrt.ledger.memory import InMemoryRunLedgerStore
from graphrt.ledger.proxy import RunControlProxy
from graphrt.ledger.sql import SqliteRunLedgerStore
from graphrt.ledger.transcript import TranscriptStore
from graphrt.messages import TokenUsage
from graphrt.platform import AgentRunContext, AgentRunOrchestrator, AgentRunResult, EventRouter, Resources
from graphrt.testing import SpanRecorder
from tests.platform.helpers import (
    DONE,
    GUARD,
    Scripted,
    binding,
    event,
    events_of,
    message,
    orchestrate,
    result,
    rights,
)

pytestmark = pytest.mark.anyio


@pytest.fixture
def control() -> RunControl:
    return RunControl(InMemoryRunLedgerStore())


async def forever(ctx: AgentRunContext) -> None:
    await anyio.sleep_forever()


# --- endings


async def test_each_result_is_an_event_and_the_last_one_closes_the_run(control: RunControl) -> None:
    """AC-L15, AC-L37."""
    usage = TokenUsage(7, 3)

    async def done(ctx: AgentRunContext) -> AgentRunResult:
        return result(ctx, *DONE, usage=usage)

    run, results = await orchestrate(control, Scripted(message("hi"), done))
    assert (run.status, run.usage, run.status_reason) == ("completed", usage, None)
    assert [(each.sequence, each.type) for each in await events_of(control)] == [
        (1, "message.completed"),
        (2, "run.completed"),
    ]
    assert [each.sequence for each in results] == [1, 2]


async def test_a_runner_that_just_ends_has_completed(control: RunControl) -> None:
    """AC-L17."""
    run, _ = await orchestrate(control, Scripted(message("hi")))
    assert (run.status, run.status_reason, run.usage) == ("completed", None, None)


async def test_a_runner_that_gives_up_has_failed_for_its_reason(control: RunControl) -> None:
    """AC-L17."""
    run, _ = await orchestrate(control, Scripted(("run.failed", {"error": "no key", "code": "auth"})))
    assert (run.status, run.status_reason) == ("failed", "no key")


async def test_a_runner_that_raises_has_failed_and_the_host_tells_so(control: RunControl) -> None:
    """AC-L17."""
    runner = Scripted(message("hi"), ValueError("no luck"))
    run, results = await orchestrate(control, runner)
    assert (run.status, run.status_reason) == ("failed", "ValueError: no luck")
    assert results[-1].data == {"error": "ValueError: no luck", "code": "runtime_error", "retryable": False}
    assert [(each.type, each.source) for each in await events_of(control)][1:] == [("run.failed", "host")]


async def test_what_comes_after_the_last_result_is_not_read(control: RunControl) -> None:
    """AC-L19: nor is it run."""
    ran: list[str] = []

    async def late(ctx: AgentRunContext) -> AgentRunResult:
        ran.append("late")
        return result(ctx, *message("late"))

    runner = Scripted(DONE, late)
    run, _ = await orchestrate(control, runner)
    assert (run.status, ran, runner.cleaned) == ("completed", [], True)
    assert [each.type for each in await events_of(control)] == ["run.completed"]


async def test_a_runner_may_clean_up_in_peace_after_its_last_result(control: RunControl) -> None:
    cleaned: list[str] = []

    class Cleans:
        async def run(self, ctx: AgentRunContext) -> AsyncIterator[AgentRunResult]:
            try:
                yield result(ctx, *DONE)
            finally:
                await anyio.lowlevel.checkpoint()
                cleaned.append("all of it")

    await orchestrate(control, Cleans())
    assert cleaned == ["all of it"]


async def test_a_limit_that_stopped_the_runner_is_the_reason_of_its_completion(control: RunControl) -> None:
    run, _ = await orchestrate(control, Scripted(("run.completed", {"finish_reason": "stopped:max_rounds"})))
    assert (run.status, run.status_reason) == ("completed", "stopped:max_rounds")


async def test_the_deadline_holds_while_the_next_result_is_waited_for(control: RunControl) -> None:
    runner = Scripted(message("hi"), forever)
    with anyio.fail_after(GUARD):
        run, results = await orchestrate(control, runner, deadline=0.05)
    assert (run.status, runner.cleaned) == ("timeout", True)
    assert run.status_reason is not None
    assert run.status_reason.startswith("the deadline")
    assert [each.type for each in results] == ["message.completed", "run.failed"]
    assert results[-1].data["code"] == "deadline_exceeded"


async def test_a_run_whose_time_is_over_before_it_begins_asks_its_runner_for_nothing(control: RunControl) -> None:
    runner = Scripted(message("hi"))
    run, _ = await orchestrate(control, runner, deadline=datetime.now(UTC) - timedelta(seconds=1))
    assert (run.status, runner.contexts) == ("timeout", [])


async def test_the_deadline_is_the_nearest_of_all(control: RunControl) -> None:
    runner = Scripted(DONE)
    run, _ = await orchestrate(control, runner, by=binding(timeout_seconds=5), deadline=60.0)
    assert run.deadline_at == runner.contexts[0].deadline_at
    assert run.deadline_at is not None
    assert run.deadline_at - run.created_at < timedelta(seconds=6)


async def test_a_deadline_without_a_zone_is_refused(control: RunControl) -> None:
    with pytest.raises(RunControlError, match="no zone"):
        await orchestrate(control, Scripted(), deadline=datetime(2030, 1, 1))  # noqa: DTZ001 - what is refused


async def test_a_runner_that_cannot_even_begin_has_failed(control: RunControl) -> None:
    class Refuses:
        def run(self, ctx: AgentRunContext) -> AsyncIterator[AgentRunResult]:
            raise LookupError("no model")

    class Lists:
        def run(self, ctx: AgentRunContext) -> Any:
            return [result(ctx, *DONE)]

    run, _ = await orchestrate(control, Refuses())
    assert (run.status, run.status_reason) == ("failed", "LookupError: no model")
    orchestrator = AgentRunOrchestrator({"r": Lists()}, control)
    [each async for each in orchestrator.run(event(), binding(), run_id="other")]
    assert (await control.get_run("other")).status == "failed"


async def test_a_runner_that_says_nothing_is_asked_again(control: RunControl, caplog: pytest.LogCaptureFixture) -> None:
    class Mute:
        async def run(self, ctx: AgentRunContext) -> AsyncIterator[Any]:
            yield None
            yield result(ctx, *DONE)

    with anyio.fail_after(GUARD):
        run, results = await orchestrate(control, Mute())
    assert (run.status, len(results)) == ("completed", 1)
    assert "NoneType is no AgentRunResult" in caplog.text


async def test_an_interrupt_in_a_runner_reaches_the_reader(control: RunControl) -> None:
    orchestrator = AgentRunOrchestrator({"r": Scripted(KeyboardInterrupt())}, control)
    with pytest.raises(KeyboardInterrupt):
        [each async for each in orchestrator.run(event(), binding(), run_id="run")]
    assert ((await control.get_run("run")).status, orchestrator.active) == ("cancelled", {})


async def test_a_run_in_a_database_is_there_afterwards(tmp_path: Path) -> None:
    """L-008."""
    async with SqliteRunLedgerStore(tmp_path / "ledger.db") as store:
        await orchestrate(RunControl(store), Scripted(message("hi"), DONE), on=event(conversation_id="c"))
    async with SqliteRunLedgerStore(tmp_path / "ledger.db") as store:
        control = RunControl(store)
        assert ((await control.get_run("run")).status, len(await events_of(control))) == ("completed", 2)
        assert [each.content for each in await control.transcript.messages(conversation_id="c")] == ["hi"]


# --- cancelling


async def test_a_cancel_is_seen_between_results(control: RunControl) -> None:
    """X-25."""
    runner = Scripted(message("one"), message("two"))
    orchestrator = AgentRunOrchestrator({"r": runner}, control)
    said = []
    async for each in orchestrator.run(event(), binding(), run_id="run"):
        said.append(each)
        await control.cancel_run("run", "enough")
    run = await control.get_run("run")
    assert (len(said), run.status, run.status_reason, runner.cleaned) == (1, "cancelled", "enough", True)
    assert not orchestrator.active


async def test_a_cancel_reaches_a_runner_at_work(control: RunControl) -> None:
    runner = Scripted(message("hi"), forever)
    orchestrator = AgentRunOrchestrator({"r": runner}, control, poll_seconds=GUARD)
    with anyio.fail_after(GUARD):
        async with anyio.create_task_group() as tasks:
            async for _ in orchestrator.run(event(), binding(), run_id="run"):
                tasks.start_soon(control.cancel_run, "run")
    assert ((await control.get_run("run")).status, runner.cleaned) == ("cancelled", True)


async def test_a_cancel_by_another_process_is_seen_while_waiting(control: RunControl) -> None:
    runner = Scripted(message("hi"), forever)
    orchestrator = AgentRunOrchestrator({"r": runner}, control, poll_seconds=0.01)
    elsewhere = RunControl(control.store)
    with anyio.fail_after(GUARD):
        async for _ in orchestrator.run(event(), binding(), run_id="run"):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(elsewhere.cancel_run, "run")
    assert (await control.get_run("run")).status == "cancelled"


async def test_a_runner_sees_that_it_is_to_be_cancelled(control: RunControl) -> None:
    """D-22."""
    seen: list[bool] = []

    async def ask(ctx: AgentRunContext) -> None:
        seen.append(ctx.cancel_requested)
        await control.cancel_run(ctx.run_id)
        seen.append(ctx.cancel_requested)

    await orchestrate(control, Scripted(ask))
    assert seen == [False, True]


async def test_a_runner_that_leaves_when_it_is_to_be_cancelled_was_cancelled(control: RunControl) -> None:
    """D-22."""

    class Obeys:
        def __init__(self, *, error: Exception | None) -> None:
            self.error = error

        async def run(self, ctx: AgentRunContext) -> AsyncIterator[AgentRunResult]:
            await control.cancel_run(ctx.run_id, "enough")
            if self.error is not None:
                raise self.error
            if not ctx.cancel_requested:
                yield result(ctx, *DONE)

    for number, error in enumerate((None, RunCancelledError("stopped"))):
        orchestrator = AgentRunOrchestrator({"r": Obeys(error=error)}, control)
        assert [each async for each in orchestrator.run(event(), binding(), run_id=f"run-{number}")] == []
        run = await control.get_run(f"run-{number}")
        assert (run.status, run.status_reason) == ("cancelled", "enough")


async def test_a_run_that_was_cancelled_before_it_began_asks_its_runner_for_nothing(control: RunControl) -> None:
    await control.create_run(run_id="run", runner_id="r", authorization=rights())
    await control.cancel_run("run")
    runner = Scripted(DONE)
    run, results = await orchestrate(control, runner)
    assert (run.status, results, runner.contexts) == ("cancelled", [], [])


async def test_a_reader_that_leaves_cancels_the_run(control: RunControl) -> None:
    runner = Scripted(message("hi"), forever)
    orchestrator = AgentRunOrchestrator({"r": runner}, control)
    results: Any = orchestrator.run(event(), binding(), run_id="run")
    await anext(results)
    assert orchestrator.active == {"run": "r"}
    await results.aclose()
    run = await control.get_run("run")
    assert (run.status, runner.cleaned, orchestrator.active) == ("cancelled", True, {})


async def test_a_reader_may_break_off_inside_a_task_group(control: RunControl, anyio_backend_name: str) -> None:
    if anyio_backend_name == "trio":
        pytest.skip("trio warns of every async generator that is left open")
    runner = Scripted(message("hi"), forever)
    with anyio.fail_after(GUARD):
        async with anyio.create_task_group():
            async for _ in AgentRunOrchestrator({"r": runner}, control).run(event(), binding(), run_id="run"):
                break
        await control.wait_run("run")
    assert (runner.cleaned, (await control.get_run("run")).status) == (True, "cancelled")


async def test_a_reader_that_is_cancelled_cancels_the_run_and_waits_for_it(control: RunControl) -> None:
    runner = Scripted(forever)
    orchestrator = AgentRunOrchestrator({"r": runner}, control)
    with anyio.move_on_after(0.05):
        [each async for each in orchestrator.run(event(), binding(), run_id="run")]
    assert ((await control.get_run("run")).status, runner.cleaned, orchestrator.active) == ("cancelled", True, {})


async def test_a_reader_may_put_a_time_limit_around_each_result(control: RunControl) -> None:
    """B-040: also where the runner holds scopes of its own open while it yields."""

    class HoldsScopes:
        async def run(self, ctx: AgentRunContext) -> AsyncIterator[AgentRunResult]:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(anyio.sleep_forever)
                yield result(ctx, *message("hi"))
                with anyio.fail_after(GUARD):
                    yield result(ctx, *message("ho"))
                    await anyio.sleep_forever()

    orchestrator = AgentRunOrchestrator({"r": HoldsScopes()}, control)
    results: Any = orchestrator.run(event(), binding(), run_id="run")
    for _ in range(2):
        with anyio.fail_after(GUARD):
            await anext(results)
    with anyio.move_on_after(0.02) as limit:
        await anext(results)
    assert limit.cancelled_caught
    assert (await control.get_run("run")).status == "cancelled"
    assert not orchestrator.active


async def test_a_run_that_somebody_else_closes_is_over(control: RunControl) -> None:
    runner = Scripted(message("hi"), message("ho"))
    orchestrator = AgentRunOrchestrator({"r": runner}, control)
    said = []
    async for each in orchestrator.run(event(), binding(), run_id="run"):
        said.append(each)
        await control.finalize_run("run", "failed", "by hand")
    run = await control.get_run("run")
    assert (len(said), run.status, run.status_reason) == (1, "failed", "by hand")


async def test_a_runner_that_will_not_end_is_left_alone(control: RunControl, caplog: pytest.LogCaptureFixture) -> None:
    release = anyio.Event()

    async def stubborn(ctx: AgentRunContext) -> None:
        await control.cancel_run(ctx.run_id)
        with anyio.CancelScope(shield=True):
            await release.wait()

    orchestrator = AgentRunOrchestrator({"r": Scripted(stubborn)}, control, close_seconds=0.01)
    with anyio.fail_after(GUARD):
        [each async for each in orchestrator.run(event(), binding(), run_id="run")]
    assert (await control.get_run("run")).status == "cancelled"
    assert "left alone" in caplog.text
    release.set()
    await anyio.lowlevel.checkpoint()
    await anyio.lowlevel.checkpoint()


async def test_a_runner_that_will_not_end_is_waited_for_once(
    control: RunControl, caplog: pytest.LogCaptureFixture
) -> None:
    """D-39: also when it has yielded, and is in no hurry to clean up."""
    release = anyio.Event()

    class Lingers:
        def __init__(self, *, yields: bool) -> None:
            self.yields = yields

        async def run(self, ctx: AgentRunContext) -> AsyncIterator[AgentRunResult]:
            try:
                if self.yields:
                    yield result(ctx, *DONE)
                await anyio.sleep_forever()
            finally:
                with anyio.CancelScope(shield=True):
                    await release.wait()

    runners = {"r": Lingers(yields=False), "yields": Lingers(yields=True)}
    orchestrator = AgentRunOrchestrator(runners, control, close_seconds=0.8)
    for runner_id in runners:
        caplog.clear()
        began = anyio.current_time()
        by = binding(runner_id=runner_id, timeout_seconds=0.1 if runner_id == "r" else None)
        [each async for each in orchestrator.run(event(), by, run_id=runner_id)]
        assert 0.75 < anyio.current_time() - began < 1.5
        assert caplog.text.count("left alone") == 1
    assert [(await control.get_run(each)).status for each in runners] == ["timeout", "completed"]
    release.set()
    await anyio.wait_all_tasks_blocked()


# --- a ledger that is out of reach for a while


class Flaky(RunControl):
    """Fails at one of its verbs: so many times, from the call on that it is told."""

    def __init__(self, verb: str, times: float, *, after: int = 0, retryable: bool = True, late: bool = False) -> None:
        super().__init__(InMemoryRunLedgerStore())
        self.calls = 0
        self.over = anyio.Event()
        real = getattr(self, verb)

        async def flaky(*given: Any, **options: Any) -> Any:
            self.calls += 1
            fails = after < self.calls <= after + times
            done = await real(*given, **options) if late or not fails else None
            if fails:
                raise RunControlError("runtime_error", "the database restarts", retryable=retryable)
            if self.calls > after:
                self.over.set()
            return done

        setattr(self, verb, flaky)

    def using(self, **_: Any) -> RunControl:
        return self


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("verb", ["create_run", "start_run", "append_run_result", "finalize_run"])
async def test_a_call_of_the_ledger_that_failed_is_made_again(verb: str, *, late: bool) -> None:
    """L-034, L-037: whether the ledger has carried it out or not."""
    control = Flaky(verb, 2, late=late)
    with anyio.fail_after(GUARD):
        run, results = await orchestrate(
            control, Scripted(message("hi"), DONE), on=event(conversation_id="c", input={"message": {"content": "ho"}})
        )
    assert (run.status, [each.type for each in results]) == ("completed", ["message.completed", "run.completed"])
    assert [each.sequence for each in await events_of(control)] == [1, 2]
    assert [each.content for each in await control.transcript.messages(conversation_id="c")] == ["ho", "hi"]


async def test_a_run_that_could_not_be_closed_is_closed_by_the_next_try(monkeypatch: pytest.MonkeyPatch) -> None:
    """L-034, AC-L17: what had begun is failed, and not left running."""
    monkeypatch.setattr("graphrt.platform.patience.GIVE_UP_SECONDS", 0.0)
    for control in (Flaky("finalize_run", 1), Flaky("finalize_run", 1, retryable=False)):
        with pytest.raises(RunControlError, match="the database restarts"):
            await orchestrate(control, Scripted(DONE))
        run = await control.get_run("run")
        assert (run.status, run.status_reason) == ("failed", "RunControlError: runtime_error: the database restarts")


async def test_a_ledger_that_stays_out_of_reach_is_given_up_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("graphrt.platform.patience.GIVE_UP_SECONDS", 0.2)
    control = Flaky("finalize_run", 1e9)
    with pytest.raises(RunControlError, match="the database restarts"), anyio.fail_after(GUARD):
        await orchestrate(control, Scripted(DONE))
    assert 3 <= control.calls <= 5  # at most at 0, 0.05, 0.15 and 0.35 s, and once by the clean-up


async def test_a_poll_that_fails_does_not_fail_a_healthy_run() -> None:
    """L-035."""
    control = Flaky("get_run", 3, after=4)

    async def slow(ctx: AgentRunContext) -> None:
        await control.over.wait()

    orchestrator = AgentRunOrchestrator({"r": Scripted(slow, DONE)}, control, poll_seconds=0.01)
    with anyio.fail_after(GUARD):
        assert len([each async for each in orchestrator.run(event(), binding(), run_id="run")]) == 1
    assert (await control.get_run("run")).status == "completed"


async def test_a_poll_that_fails_in_another_way_or_for_too_long_fails_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("graphrt.platform.patience.GIVE_UP_SECONDS", 0.05)
    for control in (Flaky("get_run", 100, after=4), Flaky("get_run", 1, after=4, retryable=False)):
        runner = Scripted(forever)
        orchestrator = AgentRunOrchestrator({"r": runner}, control, poll_seconds=0.01)
        with pytest.raises(RunControlError, match="the database restarts"), anyio.fail_after(GUARD):
            [each async for each in orchestrator.run(event(), binding(), run_id="run")]
        assert (runner.cleaned, orchestrator.active) == (True, {})


async def test_the_deadline_holds_while_the_ledger_cannot_be_polled() -> None:
    control = Flaky("get_run", 8, after=4)
    orchestrator = AgentRunOrchestrator({"r": Scripted(forever)}, control, poll_seconds=0.02)
    with anyio.fail_after(GUARD):
        results = [each async for each in orchestrator.run(event(), binding(timeout_seconds=0.1), run_id="run")]
    assert [each.data["code"] for each in results] == ["deadline_exceeded"]
    assert (await control.get_run("run")).status == "timeout"


# --- what cannot be begun


class BrokenTranscript(TranscriptStore):
    async def messages(self, **_: Any) -> Any:
        raise OSError("disk gone")


async def test_a_failure_before_the_runner_surfaces_and_leaves_a_failed_run(control: RunControl) -> None:
    """AC-L27."""
    runner = Scripted(DONE)
    orchestrator = AgentRunOrchestrator({"r": runner}, control, transcript=BrokenTranscript(control.store))
    with pytest.raises(OSError, match="disk gone"):
        [each async for each in orchestrator.run(event(), binding(), run_id="run")]
    run = await control.get_run("run")
    assert (run.status, run.status_reason) == ("failed", "OSError: disk gone")
    assert (runner.contexts, orchestrator.active) == ([], {})


async def test_a_store_that_fails_in_the_middle_fails_the_run(control: RunControl) -> None:
    class NoArtifacts(ArtifactStore):
        async def put(self, artifact: Any, content: bytes) -> Any:
            raise OSError("disk full")

    runner = Scripted(("artifact.created", {"name": "a", "content": "x"}), DONE)
    orchestrator = AgentRunOrchestrator({"r": runner}, control, artifacts=NoArtifacts(control.store))
    with pytest.raises(OSError, match="disk full"):
        [each async for each in orchestrator.run(event(), binding(), run_id="run")]
    run = await control.get_run("run")
    assert (run.status, run.status_reason, runner.cleaned) == ("failed", "OSError: disk full", True)
    assert not orchestrator.active


async def test_a_runner_that_is_not_there_leaves_a_failed_run(control: RunControl) -> None:
    orchestrator = AgentRunOrchestrator({"other": Scripted()}, control)
    with pytest.raises(RunControlError, match="there is no runner 'r'") as refusal:
        [each async for each in orchestrator.run(event(), binding(), run_id="run")]
    assert (refusal.value.code, (await control.get_run("run")).status) == ("not_found", "failed")


async def test_a_run_that_is_over_is_not_taken_up_again(control: RunControl) -> None:
    await orchestrate(control, Scripted(DONE))
    with pytest.raises(RunControlError) as refusal:
        await orchestrate(control, Scripted(DONE))
    assert refusal.value.code == "conflict"
    assert (await control.get_run("run")).status == "completed"


async def test_a_run_in_progress_is_not_begun_twice(control: RunControl) -> None:
    orchestrator = AgentRunOrchestrator({"r": Scripted(message("hi"), DONE)}, control)
    first: Any = orchestrator.run(event(), binding(), run_id="run")
    await anext(first)
    for other in (orchestrator, AgentRunOrchestrator({"r": Scripted(DONE)}, control)):
        with pytest.raises(RunControlError) as refusal:
            [each async for each in other.run(event(), binding(), run_id="run")]
        assert refusal.value.code == "conflict"
    assert [each.type async for each in first] == ["run.completed"]
    assert (await control.get_run("run")).status == "completed"


async def test_an_event_from_elsewhere_is_not_answered(control: RunControl) -> None:
    by = binding(authorization=rights(conversation_id="mine"))
    with pytest.raises(RunControlError) as refusal:
        await orchestrate(control, Scripted(DONE), by=by, on=event(conversation_id="yours"))
    assert refusal.value.code == "unauthorized"


# --- what is dropped, and what is kept


async def test_what_lacks_something_is_dropped_with_a_warning(
    control: RunControl, caplog: pytest.LogCaptureFixture
) -> None:
    """AC-L19."""
    script = [
        ("state.updated", {"scope": "run", "value": 1}),
        ("message.completed", {}),
        ("tool.call.started", {"tool_name": "t"}),
        ("message.delta", {"chunk": {"content": 1}}),
        ("custom.note", {"at": object()}),
        ("custom.note", "no mapping"),
        ("", {}),
        DONE,
    ]
    with caplog.at_level(logging.WARNING):
        run, results = await orchestrate(control, Scripted(*script))
    assert (run.status, [each.type for each in results]) == ("completed", ["run.completed"])
    assert caplog.text.count("was dropped") == len(script) - 1
    assert "'key'" in caplog.text or "key:" in caplog.text


async def test_what_the_snapshot_does_not_allow_is_dropped(control: RunControl) -> None:
    script = [("state.updated", {"scope": scope, "key": "k", "value": 1}) for scope in ("run", "workspace")]
    by = binding(authorization=rights(state_scopes=("run",)))
    run, results = await orchestrate(control, Scripted(*script), by=by)
    assert (run.status, [each.data["scope"] for each in results]) == ("completed", ["run"])
    assert (await control.read_state("run", "run"))["k"].sequence == 1


async def test_a_result_of_another_run_goes_nowhere(control: RunControl) -> None:
    other = await control.create_run(run_id="other", runner_id="r", authorization=rights())
    _, results = await orchestrate(control, Scripted(AgentRunResult("other", *message("hi"))))
    assert results == []
    assert await events_of(control, other.run.run_id) == []


async def test_a_last_result_that_lacks_something_still_ends_the_run(control: RunControl) -> None:
    run, _ = await orchestrate(control, Scripted(("run.failed", {"error": 7}), message("late")))
    assert (run.status, run.status_reason) == ("failed", "7")


async def test_an_artifact_is_kept_and_an_action_only_written_down(control: RunControl) -> None:
    """AC-L29."""
    script = [
        ("artifact.created", {"name": "a.txt", "mime_type": "text/plain", "content": "hello"}),
        ("action.requested", {"action": "deploy", "target": "prod", "payload": {}}),
    ]
    await orchestrate(control, Scripted(*script, DONE))
    first, second, _ = await events_of(control)
    artifact, content = await control.read_artifact(first.artifact_refs[0])
    assert (artifact.run_id, artifact.sequence, artifact.name, content) == ("run", 1, "a.txt", b"hello")
    assert (second.type, second.data["action"]) == ("action.requested", "deploy")


async def test_numbers_of_a_runner_are_repaired(control: RunControl, caplog: pytest.LogCaptureFixture) -> None:
    """X-23."""
    numbers = [3, 3, 0, None, 1, "x", 2**70]

    def numbered(index: int, number: Any) -> Any:
        async def say(ctx: AgentRunContext) -> AgentRunResult:
            return result(ctx, "custom.n", {"index": index}, sequence=number)

        return say

    await orchestrate(control, Scripted(*(numbered(*each) for each in enumerate(numbers))))
    stored = [(each.sequence, each.data["index"]) for each in await events_of(control)]
    assert stored == [(3, 0), (4, 2), (5, 3), (6, 4), (7, 5), (8, 6)]
    assert "came again" in caplog.text
    assert "does not fit" in caplog.text
    assert "gap" in caplog.text


# --- what a runner is told


async def test_a_runner_is_told_of_the_event_and_of_nothing_else(control: RunControl) -> None:
    """X-44, L-050."""
    await control.create_run(
        run_id="before", runner_id="r", authorization=rights(state_scopes=("conversation",)), conversation_id="c"
    )
    await control.append_run_result("before", {"type": "message.completed", "data": message("earlier")[1]})
    await control.append_run_result(
        "before", {"type": "state.updated", "data": {"scope": "conversation", "key": "k", "value": [1]}}
    )
    runner = Scripted(DONE)
    on = event(
        conversation_id="c", actor={"id": "ann"}, input={"text": "hi"}, delivery={"to": "ann"}, metadata={"m": 1}
    )
    by = binding(config={"depth": 2}, authorization=rights(allowed_tools=("t",), state_scopes=("conversation",)))
    run, _ = await orchestrate(control, runner, by=by, on=on)
    (ctx,) = runner.contexts
    assert (ctx.run_id, ctx.event, ctx.actor, ctx.input) == ("run", on, {"id": "ann"}, {"text": "hi"})
    assert ctx.trigger == {"type": "message.received", "source": "test", "event_id": "e-1"}
    assert (ctx.conversation["conversation_id"], ctx.conversation["has_history"]) == ("c", True)
    assert (ctx.resources.tools, ctx.state, ctx.config) == (("t",), {"conversation": {"k": [1]}}, {"depth": 2})
    assert (ctx.delivery, ctx.metadata, ctx.trace_id) == ({"to": "ann"}, {"m": 1}, None)
    assert run.metadata["delivery_target"] == {"to": "ann"}
    names = {name for name in dir(ctx) if not name.startswith("_")}
    assert not {name for name in names if any(word in name for word in ("daemon", "worker", "queue", "pod", "lease"))}


async def test_the_settings_of_a_binding_are_each_runs_own(control: RunControl) -> None:
    config: dict[str, Any] = {"list": []}

    async def spoil(ctx: AgentRunContext) -> None:
        ctx.config["list"].append(1)

    by = binding(config=config)
    await orchestrate(control, Scripted(spoil), by=by)
    assert (config, by.config) == ({"list": []}, {"list": []})


async def test_a_message_that_causes_a_run_comes_first_in_the_transcript(control: RunControl) -> None:
    on = event(conversation_id="c", input={"message": {"content": "hello"}})
    await orchestrate(control, Scripted(message("hi")), on=on)
    said = await control.transcript.messages(conversation_id="c")
    assert [(each.role, each.content, each.sequence) for each in said] == [("user", "hello", 0), ("assistant", "hi", 1)]


async def test_rights_are_what_runner_binding_and_event_have_in_common(control: RunControl) -> None:
    """X-45, AC-L21."""
    runner: Any = Scripted(DONE)
    runner.declares = Resources(tools=("a", "b"))
    by = binding(authorization=rights(allowed_tools=("b", "c", "a"), allowed_models=("m",)))
    await orchestrate(control, runner, by=by, on=event(permits=Resources(tools=("b", "c"), models=())))
    snapshot = (await control.get_run("run")).authorization
    assert (snapshot.allowed_tools, snapshot.allowed_models, snapshot.binding_id) == (("b",), (), "b")
    await control.check_access("run", "tool", "b")
    with pytest.raises(RunControlError) as refusal:
        await control.check_access("run", "tool", "a")
    assert refusal.value.code == "unauthorized"


# --- both ways


async def test_both_ways_to_a_run_leave_the_same_facts() -> None:
    """AC-L25."""
    on = event(conversation_id="c", input={"message": {"role": "user", "content": "hello"}})
    script = (message("hi"), ("custom.note", {"n": 1}), DONE)

    direct = RunControl(InMemoryRunLedgerStore())
    by = EventRouter([binding()]).resolve(on)
    assert by is not None
    await orchestrate(direct, Scripted(*script), by=by, on=on)

    other = RunControl(InMemoryRunLedgerStore())
    platform = RunControlProxy(other, CallerIdentity(kind="platform", plugin_id="p"))
    runner = RunControlProxy(other, CallerIdentity(kind="runner", runner_id="r"))
    await platform.create_run(by.run_request(on, run_id="run"))
    ctx = AgentRunContext(run_id="run", trigger={}, event=on)
    async for each in Scripted(*script).run(ctx):
        await runner.append_run_result("run", each)
    await runner.finalize_run("run", "completed")

    facts = []
    for control in (direct, other):
        run = await control.get_run("run")
        said = [(each.role, each.content) for each in await control.transcript.messages(conversation_id="c")]
        facts.append((run.status, [each.type for each in await events_of(control)], said))
    assert facts[0] == facts[1]
    assert facts[0][2] == [("user", "hello"), ("assistant", "hi")]


# --- spans


async def test_a_run_is_one_span_that_says_how_it_ended(control: RunControl) -> None:
    spans = SpanRecorder()
    runners = {"r": Scripted(DONE), "bad": Scripted(ValueError("no"))}
    orchestrator = AgentRunOrchestrator(runners, control, telemetry=spans.telemetry)
    for by in (binding(), binding(binding_id="x", runner_id="bad")):
        [each async for each in orchestrator.run(event(conversation_id="c"), by, run_id=f"run-{by.runner_id}")]
    good, bad = spans.spans
    assert good.attributes is not None
    assert bad.attributes is not None
    assert (good.name, good.attributes["graphrt.kind"], good.attributes["graphrt.run.id"]) == (
        "invoke_agent r",
        "turn",
        "run-r",
    )
    assert (good.attributes["graphrt.run.status"], good.status.is_ok) == ("completed", True)
    assert (bad.attributes["graphrt.run.status"], bad.attributes["error.type"]) == ("failed", "ValueError")
    assert runners["r"].contexts[0].trace_id == f"{good.context.trace_id:032x}"
