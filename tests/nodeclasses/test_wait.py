"""Waiting for a time, with clocks that jump."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import anyio
import pytest

from graphrt import END, START, Ask, RunResult, Workflow
from graphrt.errors import ConfigError, GraphError, GraphTypeError, RunCancelledError
from graphrt.graph import NodeKind, NodeState, RunContext
from graphrt.nodes import Wait
from tests.engine.helpers import FAKE_TIME, check_whole
from tests.nodeclasses.helpers import Events, alone

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module", params=FAKE_TIME)
def anyio_backend(request: pytest.FixtureRequest) -> Any:
    """Run every test on both event loops, with fake time."""
    return request.param


async def timed(workflow: Workflow, value: Any = None, **options: Any) -> tuple[RunResult, float]:
    """Run a workflow, and give the seconds that it took, as a whole number."""
    began = anyio.current_time()
    result = await workflow.run(value, **options)
    return result, round(anyio.current_time() - began)


async def test_value_goes_on_after_so_many_seconds() -> None:
    assert (await timed(alone(Wait("w", seconds=3600)), "x"))[1] == 3600
    result, _ = await timed(alone(Wait("w", seconds=3600)), "x")
    assert result.output == "x"


async def test_seconds_may_be_made_of_the_inputs_and_the_first_is_given_on() -> None:
    workflow = Workflow("w", input={"order": str, "days": int}, output=str)

    def pause(order: str, days: int) -> float:
        return days * 86400.0

    workflow.add(Wait("rest", seconds=pause))
    workflow.chain(START, "rest", END)
    result, seconds = await timed(workflow, {"order": "o-1", "days": 3})
    assert (result.output, seconds) == ("o-1", 3 * 86400)


async def test_waits_until_a_time_of_any_zone() -> None:
    there = timezone(timedelta(hours=5))
    time = datetime.now(UTC) + timedelta(hours=2)
    for given in (time, time.astimezone(there), lambda: time.astimezone(there)):
        result, seconds = await timed(alone(Wait("w", until=given)), 1)
        assert result.output == 1
        assert abs(seconds - 7200) <= 5


@pytest.mark.parametrize("past", [{"seconds": 0}, {"until": datetime(2001, 1, 1, tzinfo=UTC)}, {"seconds": lambda: -5}])
async def test_time_that_has_passed_has_come(past: dict[str, Any]) -> None:
    events = Events()
    result, seconds = await timed(alone(Wait("w", **past)), "x", on_event=events)
    assert (result.output, seconds) == ("x", 0)
    assert events.types()[1:4] == ["step.started", "step.waiting", "step.completed"]


async def test_event_tells_until_when() -> None:
    events = Events()
    before = datetime.now(UTC)
    await alone(Wait("w", seconds=60)).run("x", on_event=events)
    until = datetime.fromisoformat(events.of("step.waiting")[0].data["until"])
    assert timedelta(0) <= until - before - timedelta(seconds=60) < timedelta(seconds=5)
    assert until.utcoffset() == timedelta(0)
    check_whole(events)


async def test_many_wait_side_by_side_and_hold_no_slot() -> None:
    workflow = Workflow("many", input=list[int], output=list[int])

    def long(item: int) -> float:
        return float(item)

    async def give(items: list[int]) -> list[int]:
        return items

    async def gather(items: list[int]) -> list[int]:
        return items

    workflow.add_node("items", give)
    workflow.add(Wait("w", seconds=long))
    workflow.add_node("all", gather)
    workflow.chain(START, "items")
    workflow.map("items", "w", max_concurrency=50)
    workflow.gather("w", "all", into="items")
    workflow.chain("all", END)
    result, seconds = await timed(workflow, [30, 10, 20, 10, 5], max_concurrency=1)
    assert result.output == [30, 10, 20, 10, 5]
    assert seconds == 30


async def test_other_work_goes_on_meanwhile_and_the_nearest_time_comes_first() -> None:
    order: list[str] = []
    workflow = Workflow("w")

    def note(name: str) -> Any:
        async def write(value: Any) -> None:
            order.append(name)

        return write

    for name, after in (("late", 50), ("soon", 5), ("middle", 20)):
        workflow.add(Wait(f"wait {name}", seconds=after))
        workflow.add_node(name, note(name))
        workflow.chain(START, f"wait {name}", name, END)
    workflow.add_node("now", note("now"))
    workflow.chain(START, "now", END)
    _, seconds = await timed(workflow, 1)
    assert (order, seconds) == (["now", "soon", "middle", "late"], 50)


async def test_waiting_counts_in_no_time_limit_of_work_but_in_the_deadline() -> None:
    workflow = alone(Wait("w", seconds=100))
    assert (await timed(workflow, 1, timeout=3))[1] == 100
    with pytest.raises(TimeoutError, match="deadline"):
        await workflow.run(1, deadline_at=datetime.now(UTC) + timedelta(seconds=50))


async def test_step_that_waits_is_cancelled_with_its_run() -> None:
    graph = alone(Wait("w", seconds=10**6)).compile()
    began = anyio.current_time()
    async with graph.stream("x", check=False) as run:
        await anyio.sleep(5)
        answer = await run.cancel()
    assert answer.outcome == "cancelled"
    assert isinstance(run.result.error, RunCancelledError)
    assert run.result.node_states["w"] is NodeState.CANCELLED
    assert anyio.current_time() - began < 10


async def test_join_that_has_fired_ends_the_wait() -> None:
    workflow = Workflow("race", output=str)

    async def quick() -> str:
        await anyio.sleep(2)
        return "quick"

    async def first(value: Any) -> str:
        return str(value)

    workflow.add_node("quick", quick)
    workflow.add(Wait("slow", seconds=1000))
    workflow.add_node("first", first, join="any", cancel_rest=True)
    workflow.chain(START, "quick", "first", END)
    workflow.chain(START, "slow", "first")
    result, seconds = await timed(workflow, "x")
    assert (result.output, seconds) == ("quick", 2)
    assert result.node_states["slow"] is NodeState.CANCELLED


async def test_cycle_waits_anew_in_each_round() -> None:
    workflow = Workflow("poll", input=int, output=int)

    async def look(number: int) -> int:
        return number + 1

    workflow.add_node("look", look)
    workflow.add(Wait("rest", seconds=10, type=int))
    workflow.edge(START, "look")
    workflow.edge("look", "rest", when=lambda number: number < 4)
    workflow.edge("rest", "look")
    workflow.edge("look", END, when=lambda number: number >= 4)
    result, seconds = await timed(workflow, 0)
    assert (result.output, seconds, result.rounds) == (4, 30, 4)


async def test_question_and_time_wait_beside_each_other() -> None:
    workflow = Workflow("both", output=str)
    workflow.add(Ask("ask", question="Go?", answer=str))
    workflow.add(Wait("rest", seconds=10))

    async def meet(ask: str, rest: Any) -> str:
        return ask

    workflow.add_node("meet", meet)
    workflow.chain(START, "ask", "meet", END)
    workflow.chain(START, "rest", "meet")
    async with workflow.compile().stream("x") as run:
        await anyio.sleep(1)
        assert [question.node for question in run.questions] == ["ask"]
        await run.answer("rest", "no question has this id")
        await run.answer("ask", "yes")
        assert (await run.wait()).output == "yes"


# --- what goes wrong


async def test_function_that_raises_fails_the_step() -> None:
    def broken(value: Any) -> float:
        raise LookupError("no calendar")

    with pytest.raises(LookupError, match="no calendar"):
        await alone(Wait("w", seconds=broken)).run(1)


@pytest.mark.parametrize(
    ("what", "given"),
    [("seconds", "soon"), ("seconds", float("nan")), ("seconds", 1e300), ("until", datetime(2030, 1, 1)), ("until", 5)],  # noqa: DTZ001 - what is refused
)
async def test_what_is_no_time_is_refused_at_once_or_fails_the_step(what: str, given: Any) -> None:
    with pytest.raises(ConfigError, match="'w' waits"):
        Wait("w", **{what: given})
    events = Events()
    with pytest.raises(GraphTypeError, match="'w' waits"):
        await alone(Wait("w", **{what: lambda: given})).run(1, on_event=events)
    assert "step.failed" in events.types()


def test_needs_exactly_one_time() -> None:
    with pytest.raises(ConfigError, match="waits for one time"):
        Wait("w")
    with pytest.raises(ConfigError, match="waits for one time"):
        Wait("w", seconds=1, until=datetime.now(UTC))
    with pytest.raises(ConfigError, match="-1"):
        Wait("w", seconds=-1)


def test_time_is_made_of_values_alone() -> None:
    async def late(value: Any) -> float:
        return 1.0

    def curious(value: Any, ctx: RunContext[Any]) -> float:
        return 1.0

    for fn in (late, curious):
        with pytest.raises(GraphError, match="seconds of 'w'"):
            Wait("w", seconds=fn)  # type: ignore[arg-type]  # as said


def test_declares_what_it_gives_on() -> None:
    def long(order: list[str]) -> float:
        return 1.0

    assert Wait("w", seconds=long).signature.returns == list[str]
    assert Wait("w", seconds=1, type=int).signature.returns is int
    workflow = Workflow("w", input=list[str], output=int)
    workflow.add(Wait("w", seconds=long))
    workflow.chain(START, "w", END)
    with pytest.raises(GraphTypeError, match="w"):
        workflow.compile()


async def test_own_node_waits_by_nothing_but_the_protocol() -> None:
    from dataclasses import dataclass

    from graphrt.graph.signature import NodeSignature, Param

    @dataclass(frozen=True)
    class Tomorrow:
        name: str = "tomorrow"
        kind: NodeKind = NodeKind.TIMER
        zone: Any = UTC

        @property
        def signature(self) -> NodeSignature:
            return NodeSignature((Param("value"),))

        def due(self, inputs: Any, now: datetime) -> datetime:
            return (now + timedelta(days=1)).replace(tzinfo=self.zone)

        def passed_on(self, inputs: Any) -> Any:
            return f"{inputs['value']}, a day later"

        async def run(self, inputs: Any, ctx: Any) -> Any:
            raise AssertionError("the engine waits and does not call")

    result, seconds = await timed(alone(Tomorrow()), "x")
    assert (result.output, seconds) == ("x, a day later", 86400)
    with pytest.raises(GraphTypeError, match="no time with a zone"):
        await alone(Tomorrow(zone=None)).run("x")


async def test_outside_a_graph_it_waits_itself() -> None:
    began = anyio.current_time()
    assert await Wait("w", seconds=30).run({"value": "x"}, None) == "x"  # type: ignore[arg-type]  # no run around it
    assert round(anyio.current_time() - began) == 30
