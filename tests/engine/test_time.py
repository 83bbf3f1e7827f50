"""Time limits, retries and their pauses, in fake time (E15, E18)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from graphrt import END, START, ConfigError, LlmError, RetryPolicy, RunEvent, Workflow
from graphrt.graph import NodeState, Question
from tests.engine.helpers import FAKE_TIME, Asking, check_whole, line, of_node, states

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module", params=FAKE_TIME)
def anyio_backend(request: pytest.FixtureRequest) -> Any:
    """Run on both event loops, in fake time."""
    return request.param


class Clock:
    """Seconds since it was made."""

    def __init__(self) -> None:
        self.begun = anyio.current_time()

    @property
    def seconds(self) -> float:
        return round(anyio.current_time() - self.begun, 6)


async def sleeps(x: Any) -> str:
    await anyio.sleep(100)
    return "slept"


def one(fn: Callable[..., Any], **options: Any) -> Workflow:
    """Make a graph of one node with options."""
    workflow = Workflow("g")
    workflow.add(fn, name="node", **options)
    workflow.chain(START, "node", END)
    return workflow


def failing(failures: int, error: Callable[[], Exception] = ValueError) -> Callable[..., Any]:
    """Make a node function that fails so many times, and then gives the number of its calls."""
    calls: list[int] = []

    async def node(x: Any) -> int:
        calls.append(1)
        if len(calls) <= failures:
            raise error()
        return len(calls)

    return node


# --- timeout of an attempt ---------------------------------------------------------------------------------


async def test_attempt_out_of_time_is_a_timeout_error_that_names_the_node() -> None:
    clock = Clock()
    with pytest.raises(TimeoutError, match="node 'node' did not finish within timeout=2 s"):
        await one(sleeps, timeout=2).run()
    assert clock.seconds == 2


async def test_step_that_ends_out_of_time_is_timed_out() -> None:
    events: list[RunEvent] = []
    result = await one(sleeps, timeout=2).run(check=False, on_event=events.append)
    assert result.status == "failed"
    assert states(result) == {"node": NodeState.TIMED_OUT}
    assert of_node(events, "node") == ["step.started", "step.timed_out"]
    check_whole(events)


async def test_timeout_is_per_attempt() -> None:
    clock = Clock()
    result = await one(sleeps, timeout=2, retry=RetryPolicy(attempts=3, wait_initial=1)).run(check=False)
    assert result.steps[0].attempts == 3
    assert clock.seconds == 2 + 1 + 2 + 2 + 2


async def test_attempt_out_of_time_is_tried_again_and_may_succeed() -> None:
    waits = iter([100, 1])

    async def node(x: Any) -> str:
        await anyio.sleep(next(waits))
        return "done"

    result = await one(node, timeout=2, retry=RetryPolicy(wait_initial=0)).run()
    assert result.output == "done"
    assert [(s.state, s.attempts) for s in result.steps] == [("succeeded", 2)]


async def test_timeout_that_is_not_retried_ends_at_once() -> None:
    clock = Clock()
    policy = RetryPolicy(attempts=3, retry_on=ValueError)
    assert (await one(sleeps, timeout=2, retry=policy).run(check=False)).status == "failed"
    assert clock.seconds == 2


async def test_step_out_of_time_takes_its_fallback() -> None:
    result = await one(sleeps, timeout=2, fallback="instead").run()
    assert result.output == "instead"
    assert states(result) == {"node": NodeState.SUCCEEDED}


async def test_step_out_of_time_takes_its_error_edge() -> None:
    async def handler(error: TimeoutError) -> str:
        return "late"

    workflow = one(sleeps, timeout=2)
    workflow.add(handler)
    workflow.edge("node", handler, on_error=TimeoutError)
    workflow.edge(handler, END)
    result = await workflow.run()
    assert result.output == "late"
    assert states(result) == {"node": NodeState.TIMED_OUT, "handler": NodeState.SUCCEEDED}


async def test_step_out_of_time_is_skipped_by_its_policy() -> None:
    workflow = one(sleeps, timeout=2, on_error="skip")
    workflow.add(failing(0), name="other")
    workflow.chain(START, "other", END)
    result = await workflow.run()
    assert result.output == 1
    assert result.node_states["node"] is NodeState.TIMED_OUT


async def test_timeout_error_of_the_nodes_own_is_an_ordinary_failure() -> None:
    """E15: a provider's own time-out error."""

    async def node(x: Any) -> int:
        raise TimeoutError("the provider's")

    result = await one(node, timeout=2).run(check=False)
    assert states(result) == {"node": NodeState.FAILED}
    assert str(result.error) == "the provider's"


async def test_cancel_scope_inside_a_node_is_the_nodes_own() -> None:
    async def node(x: Any) -> str:
        with anyio.move_on_after(1):
            await anyio.sleep(10)
        return "moved on"

    assert (await one(node, timeout=5).run()).output == "moved on"


async def test_node_that_catches_the_timeout_is_still_out_of_time() -> None:
    """A node cannot buy itself time: what it returns after its deadline counts only if it returns at once."""

    async def node(x: Any) -> str:
        with anyio.CancelScope(shield=True):
            await anyio.sleep(5)
        await anyio.lowlevel.checkpoint()
        return "late"

    result = await one(node, timeout=2).run(check=False)
    assert states(result) == {"node": NodeState.TIMED_OUT}


async def test_one_nodes_timeout_leaves_its_sibling_alone() -> None:
    clock = Clock()

    async def other(x: Any) -> str:
        await anyio.sleep(5)
        return "other"

    workflow = one(sleeps, timeout=2, fallback="instead")
    workflow.add(other)
    workflow.chain(START, other, END)
    assert (await workflow.run()).outputs == {"node": "instead", "other": "other"}
    assert clock.seconds == 5


# --- step_timeout ------------------------------------------------------------------------------------------


async def test_step_timeout_is_over_all_attempts_and_pauses() -> None:
    clock = Clock()
    policy = RetryPolicy(attempts=100, wait_initial=1, wait_max=1)
    result = await one(sleeps, timeout=2, step_timeout=7, retry=policy).run(check=False)
    assert clock.seconds == 7
    assert states(result) == {"node": NodeState.TIMED_OUT}
    assert "did not finish within step_timeout=7 s" in str(result.error)
    assert result.steps[0].attempts == 3


async def test_step_timeout_may_end_a_pause() -> None:
    clock = Clock()
    policy = RetryPolicy(wait_initial=60, wait_max=60)
    result = await one(failing(9), step_timeout=7, retry=policy).run(check=False)
    assert clock.seconds == 7
    assert states(result) == {"node": NodeState.TIMED_OUT}


async def test_step_out_of_step_timeout_takes_its_fallback() -> None:
    async def spare(error: Exception) -> str:
        return type(error).__name__

    assert (await one(sleeps, step_timeout=2, fallback=spare).run()).output == "TimeoutError"


async def test_step_timeout_is_not_retried() -> None:
    clock = Clock()
    result = await one(sleeps, step_timeout=3, retry=RetryPolicy(attempts=5, wait_initial=0)).run(check=False)
    assert clock.seconds == 3
    assert result.steps[0].attempts == 1


async def test_nearest_of_timeout_and_step_timeout_wins() -> None:
    with pytest.raises(TimeoutError, match="timeout=2 s"):
        await one(sleeps, timeout=2, step_timeout=3).run()
    with pytest.raises(TimeoutError, match="step_timeout=2 s"):
        await one(sleeps, timeout=3, step_timeout=2).run()


# --- graphs inside -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("option", ["timeout", "step_timeout"])
async def test_time_limit_of_a_node_that_holds_a_graph_ends_the_graph(option: str) -> None:
    clock = Clock()
    outer = Workflow("outer")
    outer.add(line(sleeps, sleeps_again), name="inner", **{option: 150})
    outer.chain(START, "inner", END)
    result = await outer.run(check=False)
    assert clock.seconds == 150
    assert type(result.error) is TimeoutError
    assert [(s.node, s.state) for s in result.steps] == [
        ("inner", "timed_out"),
        ("sleeps", "succeeded"),
        ("sleeps_again", "cancelled"),
    ]


async def sleeps_again(x: Any) -> str:
    await anyio.sleep(100)
    return "slept again"


async def test_own_timeout_of_a_graph_inside_is_its_steps_failure() -> None:
    """E10b."""
    clock = Clock()
    inner = Workflow("inner", timeout=3)
    inner.add(sleeps)
    inner.chain(START, sleeps, END)
    outer = Workflow("outer")
    outer.add(inner, fallback="instead")
    outer.chain(START, inner, END)
    assert (await outer.run()).output == "instead"
    assert clock.seconds == 3


async def test_own_timeout_of_a_graph_that_is_run_by_itself_is_the_runs() -> None:
    inner = Workflow("inner", timeout=3)
    inner.add(sleeps)
    inner.chain(START, sleeps, END)
    assert (await inner.run(check=False)).status == "timed_out"


# --- waiting counts in none but deadline_at ----------------------------------------------------------------


def asking(**options: Any) -> Workflow:
    """Make a graph that drafts, asks, and goes on."""

    async def draft(x: Any) -> str:
        await anyio.sleep(1)
        return "draft"

    async def publish(answer: str) -> str:
        await anyio.sleep(1)
        return f"published: {answer}"

    workflow = Workflow("asking")
    workflow.add(draft)
    workflow.add(Asking("approve"), **options)
    workflow.add(publish)
    workflow.chain(START, draft, "approve", publish, END)
    return workflow


async def patient(question: Question) -> str:
    await anyio.sleep(3600)
    return "yes"


async def test_waiting_for_a_person_counts_in_no_timeout_of_the_run() -> None:
    """B-103's rule, without a ledger."""
    result = await asking().run(timeout=5, on_ask=patient)
    assert result.output == "published: yes"


async def test_work_after_the_wait_counts_again() -> None:
    clock = Clock()
    with pytest.raises(TimeoutError):
        await asking().run(timeout=1.5, on_ask=patient)
    assert clock.seconds == pytest.approx(3601.5)


async def test_waiting_for_a_person_counts_in_the_deadline() -> None:
    clock = Clock()
    result = await asking().run(deadline_at=datetime.now(UTC) + timedelta(seconds=60), on_ask=patient, check=False)
    assert result.status == "timed_out"
    assert clock.seconds == pytest.approx(60, abs=1)


async def test_waiting_of_a_graph_inside_counts_in_no_timeout_of_its_node() -> None:
    """B-103: nested."""
    outer = Workflow("outer")
    outer.add(asking(), name="inner", timeout=5)
    outer.chain(START, "inner", END)
    assert (await outer.run(on_ask=patient)).output == "published: yes"


async def test_waiting_counts_while_something_else_works() -> None:
    """Work is work: the run's timeout stands still only while all of it waits."""
    workflow = asking()
    workflow.add(sleeps)
    workflow.chain(START, sleeps, END)
    clock = Clock()
    with pytest.raises(TimeoutError):
        await workflow.run(timeout=50, on_ask=patient)
    assert clock.seconds == 50


async def test_waiting_for_a_slot_counts_in_no_timeout() -> None:
    async def source(x: Any) -> list[int]:
        return list(range(5))

    async def body(item: int) -> int:
        await anyio.sleep(2)
        return item

    workflow = Workflow("g")
    workflow.add(source)
    workflow.add(body, timeout=3, step_timeout=3, max_concurrency=1)
    workflow.edge(START, source)
    workflow.map(source, body)
    workflow.gather(body, END)
    clock = Clock()
    assert (await workflow.run()).output == list(range(5))
    assert clock.seconds == 10


async def test_waiting_for_the_maps_slot_counts_in_no_timeout() -> None:
    async def source(x: Any) -> list[int]:
        return list(range(4))

    async def body(item: int) -> int:
        await anyio.sleep(2)
        return item

    workflow = Workflow("g")
    workflow.add(source)
    workflow.add(body, timeout=3, step_timeout=3, retry=RetryPolicy(attempts=2))
    workflow.edge(START, source)
    workflow.map(source, body, max_concurrency=1)
    workflow.gather(body, END)
    assert (await workflow.run()).output == list(range(4))


@pytest.mark.parametrize("option", ["timeout", "step_timeout"])
async def test_time_in_which_a_source_is_held_back_counts_in_no_timeout(option: str) -> None:
    """A source that yields faster than its items are worked on waits for a slot of the map."""

    async def source(x: Any) -> AsyncIterator[int]:
        for i in range(10):
            await anyio.sleep(0.2)
            yield i

    async def body(item: int) -> int:
        await anyio.sleep(5)
        return item

    workflow = Workflow("g")
    workflow.add(source, **{option: 3})  # type: ignore[arg-type]  # either option
    workflow.add(body)
    workflow.edge(START, source)
    workflow.map(source, body, max_concurrency=1)
    workflow.gather(body, END)
    assert (await workflow.run()).output == list(range(10))


async def test_time_in_which_a_source_works_counts_over_all_its_items() -> None:
    async def source(x: Any) -> AsyncIterator[int]:
        for i in range(10):
            await anyio.sleep(0.5)
            yield i

    async def body(item: int) -> int:
        await anyio.sleep(5)
        return item

    workflow = Workflow("g")
    workflow.add(source, timeout=3)
    workflow.add(body)
    workflow.edge(START, source)
    workflow.map(source, body, max_concurrency=1)
    workflow.gather(body, END)
    result = await workflow.run(check=False)
    assert result.node_states["source"] is NodeState.TIMED_OUT


# --- retries -----------------------------------------------------------------------------------------------


async def pauses(policy: RetryPolicy, error: Callable[[], Exception] = ValueError) -> list[float]:
    """Run a node that always fails, and give the pauses between its attempts."""
    moments: list[float] = []

    async def node(x: Any) -> int:
        moments.append(anyio.current_time())
        raise error()

    await one(node, retry=policy).run(check=False)
    return [round(b - a, 6) for a, b in pairwise(moments)]


async def test_pauses_double_up_to_the_longest() -> None:
    """E18."""
    assert await pauses(RetryPolicy(attempts=8)) == [0.5, 1, 2, 4, 8, 8, 8]


async def test_default_is_three_attempts() -> None:
    assert len(await pauses(RetryPolicy())) == 2


async def test_no_policy_is_one_attempt() -> None:
    result = await one(failing(1)).run(check=False)
    assert (result.status, result.steps[0].attempts) == ("failed", 1)


async def test_jitter_adds_at_most_so_much() -> None:
    first, second = await pauses(RetryPolicy(wait_initial=1, jitter=0.25))
    assert 1 <= first <= 1.25
    assert 2 <= second <= 2.25


async def test_retry_after_is_honoured_when_it_is_longer_and_may_exceed_the_longest_pause() -> None:
    def limited() -> Exception:
        return LlmError("slow down", "rate_limited", retry_after=30)

    assert await pauses(RetryPolicy(), limited) == [30, 30]


async def test_retry_after_that_is_shorter_changes_nothing() -> None:
    def limited() -> Exception:
        return LlmError("slow down", "rate_limited", retry_after=0.1)

    assert await pauses(RetryPolicy(), limited) == [0.5, 1]


async def test_wait_for_replaces_the_schedule() -> None:
    def wait(error: Exception, attempt: int) -> float:
        return 10.0 * attempt

    assert await pauses(RetryPolicy(attempts=4, wait_for=wait)) == [10, 20, 30]


async def test_total_time_is_capped() -> None:
    assert await pauses(RetryPolicy(attempts=20, wait_initial=1, wait_max=1, max_elapsed=3.5)) == [1, 1, 1]


@pytest.mark.parametrize(
    ("rule", "attempts"),
    [
        (ValueError, 3),
        (KeyError, 1),
        ((KeyError, ValueError), 3),
        (lambda error: "yes" in str(error), 1),
        (lambda error: isinstance(error, ValueError), 3),
    ],
)
async def test_rule_says_what_is_tried_again(rule: Any, attempts: int) -> None:
    result = await one(failing(9), retry=RetryPolicy(retry_on=rule)).run(check=False)
    assert result.steps[0].attempts == attempts


async def test_every_failed_attempt_but_the_last_is_an_event_with_its_pause() -> None:
    events: list[RunEvent] = []
    result = await one(failing(2), retry=RetryPolicy(attempts=3)).run(on_event=events.append)
    assert result.output == 3
    assert of_node(events, "node") == ["step.started", "attempt.failed", "attempt.failed", "step.completed"]
    failed = [event for event in events if event.type == "attempt.failed"]
    assert [(e.data["attempt"], e.data["delay"], type(e.data["error"])) for e in failed] == [
        (1, 0.5, ValueError),
        (2, 1.0, ValueError),
    ]
    check_whole(events)


async def test_attempt_is_known_to_the_node_and_its_key_stays() -> None:
    """E19."""
    from graphrt import RunContext

    seen: list[tuple[int, str]] = []

    async def node(x: Any, ctx: RunContext[Any]) -> int:
        seen.append((ctx.step.attempt, ctx.idempotency_key))
        if len(seen) < 3:
            raise ValueError
        return 1

    await one(node, retry=RetryPolicy()).run()
    assert [attempt for attempt, _ in seen] == [1, 2, 3]
    assert len({key for _, key in seen}) == 1


async def test_keys_of_all_steps_of_a_run_differ() -> None:
    """E19."""
    from graphrt import RunContext

    keys: list[str] = []

    async def source(x: Any, ctx: RunContext[Any]) -> list[int]:
        keys.append(ctx.idempotency_key)
        return [1, 2, 3]

    async def step(n: int, ctx: RunContext[Any]) -> int:
        keys.append(ctx.idempotency_key)
        return n + 10

    async def last(n: Any, ctx: RunContext[Any]) -> Any:
        keys.append(ctx.idempotency_key)
        return n

    inner = Workflow("inner")
    inner.add(step)
    inner.add(last)
    inner.edge(START, step)
    inner.edge(step, step, when=lambda n: n < 40)
    inner.edge(step, last, when=lambda n: n >= 40)
    inner.edge(last, END)
    workflow = Workflow("g")
    workflow.add(source)
    workflow.add(inner)
    workflow.add(last)
    workflow.edge(START, source)
    workflow.map(source, inner)
    workflow.gather(inner, last)
    workflow.edge(last, END)
    await workflow.run(run_id="one")
    first = list(keys)
    keys.clear()
    assert len(set(first)) == len(first) == 1 + 3 * 5 + 1
    await workflow.run(run_id="one")
    assert sorted(keys) == sorted(first)
    keys.clear()
    await workflow.run(run_id="other")
    assert not set(keys) & set(first)


@pytest.mark.parametrize(
    "options", [{"attempts": 0}, {"wait_initial": -1}, {"wait_max": float("nan")}, {"max_elapsed": -1}]
)
def test_policy_that_makes_no_sense_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        RetryPolicy(**options)
