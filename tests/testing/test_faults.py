"""Faults happen at the calls they are meant for, and nowhere else."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphrt import END, START, AgentNode, ConfigError, LlmError, RetryPolicy, Workflow
from graphrt.memory import InMemoryStore
from graphrt.messages import LLMResponse
from graphrt.testing import (
    Cut,
    EventRecorder,
    FakeClock,
    Faults,
    Faulty,
    FaultyProvider,
    ScriptedProvider,
    cut,
    delay,
    fail,
    with_faults,
)

pytestmark = pytest.mark.anyio


async def double(x: int) -> int:
    return 2 * x


@given(st.sets(st.integers(1, 12)), st.integers(0, 12))
def test_exactly_the_named_calls_fail(named: set[int], total: int) -> None:
    faults = Faults(fail(named, ValueError("now")))
    failed = set()
    for number in range(1, total + 1):
        try:
            faults.meet_now()
        except ValueError:
            failed.add(number)
    assert failed == {number for number in named if number <= total}
    assert faults.calls == total


async def test_failing_call_is_retried_by_the_node() -> None:
    workflow = Workflow("line", input=int, output=int)
    faulty: Any = with_faults(double, fail(1, OSError("once")))
    workflow.chain(START, workflow.add(faulty, retry=RetryPolicy(attempts=2, wait_initial=0)), END)

    assert (await workflow.run(4)).output == 8
    assert faulty.faults.calls == 2


async def test_function_keeps_its_name_and_its_types() -> None:
    workflow = Workflow("line", input=int, output=int)

    assert workflow.add(with_faults(double, fail(9, OSError()))) == "double"
    workflow.chain(START, "double", END)
    assert (await workflow.run(1)).output == 2


async def test_function_that_is_not_async_fails_too_and_cannot_be_delayed() -> None:
    def plain(x: int) -> int:
        return x

    assert with_faults(plain, fail(2, OSError()))(1) == 1
    with pytest.raises(ConfigError, match="cannot be delayed"):
        with_faults(plain, delay(1, 3))(1)


async def test_delay_sleeps_on_the_clock_of_the_test() -> None:
    clock = FakeClock()
    slow = with_faults(double, delay(None, 2.5), sleep=clock.sleep)

    assert [await slow(1), await slow(2)] == [2, 4]
    assert clock.sleeps == [2.5, 2.5]
    assert clock.monotonic() == 5.0


async def test_cut_passes_every_handler_and_leaves_the_run_bare() -> None:
    workflow = Workflow("line", input=int, output=int)

    async def careful(x: int) -> int:
        try:
            return await with_faults(double, cut(1))(x)
        except Exception:  # noqa: BLE001 - what the test is about: it is not caught here
            return -1

    workflow.chain(START, workflow.add(careful), END)
    with pytest.raises(Cut):
        await workflow.run(1)


async def test_provider_fails_at_its_second_call_streaming_or_not() -> None:
    for watched in (False, True):
        provider = FaultyProvider(ScriptedProvider(["one", "two"]), fail(2, LlmError("down", "overloaded")))
        agent = AgentNode("agent", model=provider)
        events = EventRecorder()

        assert (await agent.graph.run("hi", on_event=events if watched else None)).output == "one"
        with pytest.raises(LlmError, match="down"):
            await agent.graph.run("hi")
        assert provider.faults.calls == 2
        assert events.text == ("one" if watched else "")


async def test_store_fails_where_it_is_told_and_works_elsewhere() -> None:
    store: Any = Faulty(InMemoryStore(), save=[fail(2, OSError("full"))])
    await store.save("n", "a", "1")
    with pytest.raises(OSError, match="full"):
        await store.save("n", "b", "2")

    assert await store.load("n", "a") == "1"
    assert await store.load("n", "b") is None


def test_mistakes_are_named() -> None:
    with pytest.raises(ConfigError, match="no method 'sav'"):
        Faulty(InMemoryStore(), sav=[])
    with pytest.raises(ConfigError, match="is no fault"):
        Faults("fail")  # type: ignore[arg-type]  # the mistake


async def test_scripted_provider_is_here_too() -> None:
    provider = ScriptedProvider([LLMResponse("hello")])

    assert (await provider.chat([])).content == "hello"
