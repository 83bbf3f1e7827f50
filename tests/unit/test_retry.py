from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import anyio
import pytest

from graphrt.policies import RetryPolicy
from graphrt.retry import retry_call

pytestmark = pytest.mark.anyio


class FakeTime:
    """A clock that runs only while somebody sleeps on it."""

    def __init__(self) -> None:
        self.now = 100.0
        self.slept: list[float] = []

    def monotonic(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


class Flaky:
    """Fails so many times, then answers with the number of the attempt."""

    def __init__(self, failures: int, error: Callable[[int], BaseException] = ValueError) -> None:
        self.attempts: list[int] = []
        self._failures = failures
        self._error = error

    async def __call__(self, attempt: int) -> int:
        self.attempts.append(attempt)
        await anyio.lowlevel.checkpoint()
        if attempt <= self._failures:
            raise self._error(attempt)
        return attempt


async def test_call_is_made_again_after_growing_pauses() -> None:
    time, call = FakeTime(), Flaky(2)
    assert await retry_call(RetryPolicy(attempts=3), call, sleep=time.sleep) == 3
    assert call.attempts == [1, 2, 3]
    assert time.slept == [0.5, 1.0]


async def test_last_error_surfaces_bare_when_attempts_are_used_up() -> None:
    time, call = FakeTime(), Flaky(9)
    with pytest.raises(ValueError, match="3") as caught:
        await retry_call(RetryPolicy(attempts=3), call, sleep=time.sleep)
    assert type(caught.value) is ValueError
    assert call.attempts == [1, 2, 3]


async def test_single_attempt_makes_no_retry() -> None:
    call = Flaky(1)
    with pytest.raises(ValueError, match="1"):
        await retry_call(RetryPolicy(attempts=1), call)
    assert call.attempts == [1]


@pytest.mark.parametrize("failures", [1, 2])
async def test_error_that_the_rule_refuses_ends_it_at_once(failures: int) -> None:
    time = FakeTime()
    call = Flaky(9, lambda n: KeyError(n) if n >= failures else ValueError(n))
    with pytest.raises(KeyError):
        await retry_call(RetryPolicy(attempts=5, retry_on=ValueError), call, sleep=time.sleep)
    assert len(call.attempts) == failures


async def test_rule_is_asked_once_for_each_failure() -> None:
    time, seen = FakeTime(), []

    def rule(error: Exception) -> bool:
        seen.append(str(error))
        return True

    await retry_call(RetryPolicy(attempts=3, retry_on=rule), Flaky(2), sleep=time.sleep)
    assert seen == ["1", "2"]


async def test_no_attempt_starts_after_the_time_is_up() -> None:
    time, call = FakeTime(), Flaky(9)
    policy = RetryPolicy(attempts=9, wait_initial=1.0, max_elapsed=3.5)
    with pytest.raises(ValueError, match="3"):
        await retry_call(policy, call, sleep=time.sleep, monotonic=time.monotonic)
    assert time.slept == [1.0, 2.0]


async def test_observer_hears_of_each_pause_before_it() -> None:
    time, heard = FakeTime(), []

    async def note(attempt: int, error: Exception, delay: float) -> None:
        await anyio.lowlevel.checkpoint()
        heard.append((attempt, str(error), delay, len(time.slept)))

    await retry_call(RetryPolicy(attempts=3), Flaky(2), sleep=time.sleep, on_retry=note)
    assert heard == [(1, "1", 0.5, 0), (2, "2", 1.0, 1)]


async def test_observer_may_be_a_plain_function() -> None:
    time, heard = FakeTime(), []
    await retry_call(RetryPolicy(attempts=2), Flaky(1), sleep=time.sleep, on_retry=lambda *args: heard.append(args[0]))
    assert heard == [1]


async def test_pause_of_zero_does_not_sleep() -> None:
    time = FakeTime()
    await retry_call(RetryPolicy(attempts=3, wait_initial=0), Flaky(2), sleep=time.sleep)
    assert time.slept == []


@pytest.mark.parametrize("swallow_all", [BaseException, lambda error: True])
async def test_cancellation_ends_it_after_one_attempt(swallow_all: Any) -> None:
    """B-036: a rule that accepts everything does not swallow cancellation, on either backend."""
    attempts: list[int] = []

    async def hang(attempt: int) -> None:
        attempts.append(attempt)
        scope.cancel()
        await anyio.sleep_forever()

    with anyio.CancelScope() as scope:
        await retry_call(RetryPolicy(attempts=5, retry_on=swallow_all), hang)
    assert scope.cancelled_caught
    assert attempts == [1]


async def test_cancellation_of_a_later_attempt_ends_it_there() -> None:
    """B-036: what tenacity retries is not cancellation either."""
    attempts: list[int] = []

    async def fail_then_hang(attempt: int) -> None:
        attempts.append(attempt)
        if attempt == 1:
            raise ValueError(attempt)
        scope.cancel()
        await anyio.sleep_forever()

    with anyio.CancelScope() as scope:
        await retry_call(RetryPolicy(attempts=5, wait_initial=0, retry_on=BaseException), fail_then_hang)
    assert scope.cancelled_caught
    assert attempts == [1, 2]


async def test_cancellation_ends_a_pause() -> None:
    """B-036: no attempt follows a pause that was cancelled."""
    call = Flaky(9)
    with anyio.CancelScope() as scope:
        await retry_call(
            RetryPolicy(attempts=5, wait_initial=60, wait_max=60), call, on_retry=lambda *_: scope.cancel()
        )
    assert scope.cancelled_caught
    assert call.attempts == [1]


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, GeneratorExit])
@pytest.mark.parametrize("at", [1, 2])
async def test_interrupts_pass_through_at_once(error: type[BaseException], at: int) -> None:
    """B-036: the same for keyboard interrupt and generator exit."""

    async def call(attempt: int) -> None:
        attempts.append(attempt)
        raise error if attempt == at else ValueError(attempt)

    attempts: list[int] = []
    caught: BaseException | None = None
    try:
        await retry_call(RetryPolicy(attempts=5, wait_initial=0, retry_on=BaseException), call)
    except BaseException as raised:  # noqa: BLE001  # an interrupt must not reach the test runner
        caught = raised
    assert isinstance(caught, error)
    assert attempts == list(range(1, at + 1))


async def test_tenacity_is_loaded_only_after_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tenacity", None)
    assert await retry_call(RetryPolicy(), Flaky(0)) == 1
    with pytest.raises(ImportError):
        await retry_call(RetryPolicy(), Flaky(1))
