"""What spans say of errors, cancellations, time limits and further attempts (C-10)."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import anyio
import pytest

from graphrt import END, START, GraphError, LimitExceededError, RetryPolicy, RunCancelledError, Workflow
from tests.engine.helpers import FAKE_TIME, Asking
from tests.telemetry.collecting import Collected, attributes, exceptions, logged, status, went_well

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module", params=FAKE_TIME)
def anyio_backend(request: pytest.FixtureRequest) -> Any:
    return request.param


class BrokenError(Exception):
    """A node's own error."""


NAME = f"{BrokenError.__module__}.BrokenError"


async def broken(x: int) -> int:
    raise BrokenError("no luck")


async def for_ever(x: int) -> int:
    await anyio.sleep_forever()
    return x


async def same(x: Any) -> Any:
    return x


def line(*nodes: Any, **options: Any) -> Workflow:
    workflow = Workflow("line")
    names = [workflow.add(node, **options) for node in nodes]
    workflow.chain(START, *names, END)
    return workflow


async def test_error_is_on_the_step_and_on_what_it_fails_once_each() -> None:
    inner = line(broken)
    outer = Workflow("outer")
    outer.add(inner, name="sub")
    outer.chain(START, "sub", END)
    collected = Collected()
    with pytest.raises(BrokenError):
        await outer.run(1, telemetry=collected.telemetry)
    collected.check_whole()
    assert {span.name for span in collected.spans} == {"node broken", "node sub", "invoke_workflow outer"}
    for span in collected.spans:
        assert status(span) == ("ERROR", "no luck")
        assert attributes(span)["error.type"] == NAME
        assert exceptions(span) == ["no luck"]
    (recorded,) = collected.one("node broken").events
    assert dict(recorded.attributes or {})["exception.type"] == NAME
    assert "in broken" in str(dict(recorded.attributes or {})["exception.stacktrace"])
    assert attributes(collected.one("invoke_workflow outer"))["graphrt.run.status"] == "failed"


async def test_error_that_is_handled_is_the_steps_alone() -> None:
    handled = Workflow("handled")
    handled.node(broken)
    handled.add_node("mend", same)
    handled.chain(START, broken)
    handled.edge(broken, END)
    handled.edge(broken, "mend", on_error=BrokenError)
    handled.chain("mend", END)
    collected = Collected()
    await handled.run(1, telemetry=collected.telemetry)
    collected.check_whole()
    assert status(collected.one("node broken")) == ("ERROR", "no luck")
    assert went_well(collected.one("node mend"))
    assert went_well(collected.one("invoke_workflow handled"))


async def test_condition_that_raises_fails_its_step() -> None:
    strange = Workflow("strange")
    strange.node(same)
    strange.chain(START, same)
    strange.edge(same, END, when=lambda x: x.nothing)
    collected = Collected()
    with pytest.raises(AttributeError):
        await strange.run(1, telemetry=collected.telemetry)
    collected.check_whole()
    assert attributes(collected.one("node same"))["error.type"] == "AttributeError"
    assert len(exceptions(collected.one("node same"))) == 1


async def test_what_a_failure_stops_is_cancelled() -> None:
    fork = Workflow("fork")
    fork.node(for_ever)
    fork.node(broken)
    fork.edge(START, for_ever)
    fork.edge(START, broken)
    fork.edge(for_ever, END)
    fork.edge(broken, END)
    collected = Collected()
    with pytest.raises(BrokenError):
        await fork.run(1, telemetry=collected.telemetry)
    collected.check_whole()
    stopped = collected.one("node for_ever")
    assert status(stopped) == ("ERROR", "cancelled")
    assert attributes(stopped)["error.type"] == "cancelled"
    assert exceptions(stopped) == []


async def test_cancelled_run_and_its_rounds_and_steps_say_so() -> None:
    loop = Workflow("loop")
    loop.node(for_ever)
    loop.chain(START, for_ever)
    loop.edge(for_ever, for_ever, when=lambda x: x < 0)
    loop.edge(for_ever, END, when=lambda x: x >= 0)
    collected = Collected()
    async with loop.stream(1, telemetry=collected.telemetry) as run:
        await anyio.sleep(1)
        await run.cancel()
        with pytest.raises(RunCancelledError):
            _ = run.result
    collected.check_whole()
    for name in ("node for_ever", "round for_ever", "invoke_workflow loop"):
        assert status(collected.one(name)) == ("ERROR", "cancelled")
        assert exceptions(collected.one(name)) == []
    assert attributes(collected.one("invoke_workflow loop"))["graphrt.run.status"] == "cancelled"


async def test_run_whose_caller_is_cancelled_ends_every_span() -> None:
    inner = line(for_ever)
    outer = Workflow("outer")
    outer.add(inner, name="sub")
    outer.add_node("beside", for_ever, timeout=100, retry=RetryPolicy(attempts=2))
    outer.chain(START, "sub", END)
    outer.chain(START, "beside", END)
    collected = Collected()
    with anyio.move_on_after(1):
        await outer.run(1, telemetry=collected.telemetry)
    collected.check_whole()
    assert {span.name for span in collected.spans} == {
        "node for_ever",
        "node sub",
        "node beside",
        "invoke_workflow outer",
    }
    assert {status(span) for span in collected.spans} == {("ERROR", "cancelled")}


async def test_interrupt_leaves_a_cancelled_trace() -> None:
    async def interrupted(x: int) -> int:
        raise KeyboardInterrupt

    collected = Collected()
    with pytest.raises(KeyboardInterrupt):
        await line(interrupted).run(1, telemetry=collected.telemetry)
    collected.check_whole()
    assert {status(span) for span in collected.spans} == {("ERROR", "cancelled")}


@pytest.mark.parametrize("options", [{"timeout": 2}, {"step_timeout": 2}])
async def test_step_out_of_time_says_so(options: dict[str, Any]) -> None:
    collected = Collected()
    with pytest.raises(TimeoutError):
        await line(for_ever, **options).run(1, telemetry=collected.telemetry)
    collected.check_whole()
    span = collected.one("node for_ever")
    assert status(span) == ("ERROR", "timed out")
    assert attributes(span)["error.type"] == "TimeoutError"
    assert len(exceptions(span)) == 1
    # The run as such was in time: it has failed.
    assert attributes(collected.one("invoke_workflow line"))["graphrt.run.status"] == "failed"


async def test_run_out_of_time_says_so() -> None:
    collected = Collected()
    with pytest.raises(TimeoutError):
        await line(for_ever).run(1, timeout=2, telemetry=collected.telemetry)
    collected.check_whole()
    root = collected.one("invoke_workflow line")
    assert status(root) == ("ERROR", "timed out")
    assert attributes(root)["graphrt.run.status"] == "timed_out"
    assert status(collected.one("node for_ever")) == ("ERROR", "cancelled")


async def test_graph_in_a_node_out_of_time_says_so() -> None:
    outer = Workflow("outer")
    outer.add(line(for_ever), name="sub", timeout=2)
    outer.chain(START, "sub", END)
    collected = Collected()
    with pytest.raises(TimeoutError):
        await outer.run(1, telemetry=collected.telemetry)
    collected.check_whole()
    assert status(collected.one("node sub")) == ("ERROR", "timed out")
    assert status(collected.one("node for_ever")) == ("ERROR", "cancelled")


async def test_limit_that_stops_a_run_is_its_error() -> None:
    loop = Workflow("loop", max_rounds=2)
    loop.node(same)
    loop.chain(START, same)
    loop.edge(same, same, when=lambda x: x > 0)
    loop.edge(same, END, when=lambda x: x <= 0)
    collected = Collected()
    with pytest.raises(LimitExceededError):
        await loop.run(1, telemetry=collected.telemetry)
    collected.check_whole()
    root = collected.one("invoke_workflow loop")
    assert attributes(root)["graphrt.run.status"] == "stopped"
    assert attributes(root)["error.type"] == "graphrt.errors.LimitExceededError"
    assert len(collected.named("round same")) == 2
    assert went_well(collected.named("node same")[1])


async def test_loser_of_a_race_is_cancelled_and_the_run_is_well() -> None:
    race = Workflow("race")
    race.add_node("slow", for_ever)
    race.add_node("fast", same)
    race.add_node("first", same, join="any", cancel_rest=True)
    for node in ("slow", "fast"):
        race.chain(START, node, "first")
    race.chain("first", END)
    collected = Collected()
    await race.run(1, telemetry=collected.telemetry)
    collected.check_whole()
    assert status(collected.one("node slow")) == ("ERROR", "cancelled")
    assert went_well(collected.one("invoke_workflow race"))


async def test_first_attempt_alone_has_no_span() -> None:
    collected = Collected()
    await line(same, retry=RetryPolicy(attempts=3)).run(1, telemetry=collected.telemetry)
    assert collected.of_kind("attempt") == []


async def test_every_attempt_has_a_span_from_the_second_on_with_its_own_times() -> None:
    tried = 0

    async def shaky(x: int) -> int:
        nonlocal tried
        tried += 1
        if tried < 3:
            raise BrokenError(f"no luck {tried}")
        return x

    retry = RetryPolicy(attempts=3, wait_initial=1)
    collected = Collected()
    await line(shaky, retry=retry).run(1, telemetry=collected.telemetry)
    collected.check_whole()
    step = collected.one("node shaky")
    assert collected.children(step) == ["attempt shaky"] * 3
    attempts = collected.of_kind("attempt")
    assert [attributes(span)["graphrt.attempt"] for span in attempts] == [1, 2, 3]
    assert [status(span) for span in attempts] == [
        ("ERROR", "no luck 1"),
        ("ERROR", "no luck 2"),
        ("UNSET", None),
    ]
    assert [exceptions(span) for span in attempts] == [["no luck 1"], ["no luck 2"], []]
    assert attributes(attempts[0]) == {
        "graphrt.kind": "attempt",
        "graphrt.node.id": "shaky",
        "graphrt.attempt": 1,
        "error.type": NAME,
    }
    assert went_well(step)
    times = [(span.start_time or 0, span.end_time or 0) for span in attempts]
    assert all(start <= end for start, end in times)
    assert all(first[1] <= second[0] for first, second in pairwise(times))


async def test_step_fails_with_its_last_attempt() -> None:
    collected = Collected()
    with pytest.raises(BrokenError):
        await line(broken, retry=RetryPolicy(attempts=2)).run(1, telemetry=collected.telemetry)
    collected.check_whole()
    assert [exceptions(span) for span in collected.of_kind("attempt")] == [["no luck"]] * 2
    assert exceptions(collected.one("node broken")) == ["no luck"]


async def test_attempt_out_of_time_says_so_and_one_that_is_cut_off_is_cancelled() -> None:
    retry = RetryPolicy(attempts=5, wait_initial=1)
    collected = Collected()
    with pytest.raises(TimeoutError):
        await line(for_ever, retry=retry, timeout=2, step_timeout=4).run(1, telemetry=collected.telemetry)
    collected.check_whole()
    assert [status(span) for span in collected.of_kind("attempt")] == [
        ("ERROR", "timed out"),
        ("ERROR", "cancelled"),
    ]
    assert status(collected.one("node for_ever")) == ("ERROR", "timed out")


async def test_fallback_is_seen_with_the_error_it_stands_in_for() -> None:
    async def worse(x: int) -> int:
        raise ValueError("worse")

    collected = Collected()
    await line(broken, fallback=[worse, 7]).run(1, telemetry=collected.telemetry)
    collected.check_whole()
    step = collected.one("node broken")
    names = [event.name for event in step.events]
    assert names == ["exception", "graphrt.fallback", "exception", "graphrt.fallback"]
    assert exceptions(step) == ["no luck", "worse"]
    assert status(step) == ("UNSET", None)


async def test_graph_that_fails_falls_back_in_its_own_span() -> None:
    outer = Workflow("outer")
    outer.add(line(broken), name="sub", fallback=5)
    outer.chain(START, "sub", END)
    collected = Collected()
    result = await outer.run(1, telemetry=collected.telemetry)
    collected.check_whole()
    assert result.output == 5
    assert exceptions(collected.one("node sub")) == ["no luck"]
    assert status(collected.one("node sub")) == ("UNSET", None)


async def test_failing_items_have_their_errors_and_the_map_decides() -> None:
    fan = Workflow("fan")

    @fan.node
    async def split(n: int) -> list[int]:
        return list(range(n))

    @fan.node
    async def odd(i: int) -> int:
        if i % 2 == 0:
            raise BrokenError(f"item {i}")
        return i

    @fan.node
    async def total(odds: list[int]) -> int:
        return sum(odds)

    fan.chain(START, split)
    fan.map(split, odd, on_error="skip")
    fan.gather(odd, total, into="odds")
    fan.chain(total, END)
    collected = Collected()
    await fan.run(4, telemetry=collected.telemetry)
    collected.check_whole()
    assert sorted(message for span in collected.named("node odd") for message in exceptions(span)) == [
        "item 0",
        "item 2",
    ]
    assert went_well(collected.one("invoke_workflow fan"))


async def test_step_that_waits_for_a_person_is_one_span_until_the_answer() -> None:
    asking = Workflow("asking")
    asking.add(Asking("approve"))
    asking.chain(START, "approve", END)
    collected = Collected()
    seen: list[str] = []

    async def on_ask(question: Any) -> str:
        await anyio.sleep(5)
        seen.extend(span.name for span in collected.spans)
        return "yes"

    await asking.run("draft", on_ask=on_ask, telemetry=collected.telemetry)
    collected.check_whole()
    assert seen == []
    span = collected.one("node approve")
    (event,) = span.events
    assert event.name == "graphrt.waiting"
    assert dict(event.attributes or {}) == {"graphrt.question.id": "approve"}
    assert went_well(span)


async def test_waiting_step_that_is_cancelled_says_so() -> None:
    asking = Workflow("asking")
    asking.add(Asking("approve"))
    asking.chain(START, "approve", END)
    collected = Collected()
    async with asking.stream("draft", telemetry=collected.telemetry) as run:
        await anyio.sleep(1)
        await run.cancel()
        with pytest.raises(RunCancelledError):
            _ = run.result
    collected.check_whole()
    assert status(collected.one("node approve")) == ("ERROR", "cancelled")


async def test_error_without_a_text_and_one_that_cannot_be_sent_are_recorded() -> None:
    class MuteError(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    async def mute(x: int) -> int:
        raise MuteError

    async def odd(x: int) -> int:
        raise ValueError("half a \ud83d pair and a \0")

    collected = Collected()
    with logged() as texts:
        for node in (mute, odd):
            await line(node).run(1, check=False, telemetry=collected.telemetry)
    assert texts == []
    assert exceptions(collected.one("node mute")) == ["<MuteError without a text>"]
    assert exceptions(collected.one("node odd")) == ["half a \ufffd pair and a \ufffd"]
    assert status(collected.one("node odd")) == ("ERROR", "half a \ufffd pair and a \ufffd")
    for span in collected.spans:
        for event in span.events:
            str(dict(event.attributes or {})).encode()


async def test_bad_input_starts_no_span() -> None:
    typed = Workflow("typed", input=int)
    typed.node(same)
    typed.chain(START, same, END)
    collected = Collected()
    with pytest.raises(GraphError):
        await typed.run("text", telemetry=collected.telemetry)
    assert collected.spans == []
