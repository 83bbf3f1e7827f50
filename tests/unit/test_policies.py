from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphrt.errors import ConfigError, LlmError
from graphrt.policies import Budget, RateLimit, RetryPolicy, retry_after_of

ERROR = ValueError("no")


class SlowDownError(Exception):
    def __init__(self, retry_after: Any) -> None:
        self.retry_after = retry_after


def test_pauses_double_up_to_the_longest() -> None:
    policy = RetryPolicy(wait_initial=0.5, wait_max=3.0)
    assert [policy.wait_before(attempt, ERROR) for attempt in range(1, 6)] == [0.5, 1.0, 2.0, 3.0, 3.0]


def test_jitter_adds_what_chance_says() -> None:
    policy = RetryPolicy(wait_initial=1.0, jitter=0.5)
    assert policy.wait_before(1, ERROR, lambda: 0.5) == 1.25
    assert policy.wait_before(1, ERROR) == 1.0


def test_longer_retry_after_wins_and_may_exceed_the_longest_pause() -> None:
    policy = RetryPolicy(wait_initial=1.0, wait_max=2.0)
    assert policy.wait_before(1, SlowDownError(30)) == 30.0
    assert policy.wait_before(1, SlowDownError(0.1)) == 1.0


def test_function_replaces_the_schedule_but_not_retry_after() -> None:
    policy = RetryPolicy(wait_for=lambda error, attempt: 10.0 * attempt, wait_max=1.0, wait_initial=0)
    assert policy.wait_before(2, ERROR) == 20.0
    assert policy.wait_before(1, SlowDownError(30)) == 30.0


def test_initial_pause_of_zero_means_no_pause_at_all() -> None:
    policy = RetryPolicy(wait_initial=0, jitter=1.0)
    assert policy.wait_before(3, SlowDownError(30), lambda: 1.0) == 0.0


@pytest.mark.parametrize("value", [None, "3", True, -1, math.nan, math.inf, object()])
def test_retry_after_that_makes_no_sense_is_none(value: Any) -> None:
    assert retry_after_of(SlowDownError(value)) == 0.0
    assert retry_after_of(ERROR) == 0.0


@pytest.mark.parametrize(
    ("rule", "retried"),
    [
        (Exception, True),
        (ValueError, True),
        (KeyError, False),
        ((KeyError, ValueError), True),
        ((), False),
        (lambda error: "no" in str(error), True),
        (lambda error: False, False),
        (BaseException, True),
    ],
)
def test_rule_says_what_is_tried_again(rule: Any, retried: bool) -> None:
    assert RetryPolicy(retry_on=rule).retries(ERROR) is retried


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(), GeneratorExit(), BaseException()])
@pytest.mark.parametrize("rule", [BaseException, (BaseException,), lambda error: True])
def test_what_is_no_exception_is_never_tried_again(error: BaseException, rule: Any) -> None:
    """B-036: a rule that accepts everything does not accept these."""
    assert not RetryPolicy(retry_on=rule).retries(error)


@pytest.mark.parametrize(
    "settings",
    [
        {"attempts": 0},
        {"attempts": 1.5},
        {"attempts": True},
        {"wait_initial": -1},
        {"wait_max": math.inf},
        {"jitter": math.nan},
        {"max_elapsed": -0.1},
        {"wait_initial": "1"},
        {"retry_on": "ValueError"},
        {"retry_on": int},
        {"retry_on": (ValueError, 3)},
    ],
)
def test_policy_that_makes_no_sense_is_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(settings))):
        RetryPolicy(**settings)


@pytest.mark.parametrize(("n", "per_seconds"), [(0, 1), (-1, 1), (1, 0), (1, -1), (1.5, 1), (1, math.inf)])
def test_rate_limit_that_makes_no_sense_is_refused(n: Any, per_seconds: Any) -> None:
    with pytest.raises(ConfigError):
        RateLimit(n, per_seconds)


def test_budget_is_unlimited_until_it_is_limited() -> None:
    assert Budget() == Budget(requests=None, tokens=None, tool_calls=None, cost=None)
    assert Budget(requests=0, cost=0.5).requests == 0


@pytest.mark.parametrize("limit", [{"requests": -1}, {"tokens": 1.5}, {"tool_calls": True}, {"cost": math.nan}])
def test_budget_that_makes_no_sense_is_refused(limit: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(limit))):
        Budget(**limit)


@given(
    st.builds(RetryPolicy, wait_initial=st.floats(0, 1e6), wait_max=st.floats(0, 1e6), jitter=st.floats(0, 1e6)),
    st.integers(1, 10_000),
    st.one_of(st.none(), st.floats()),
    st.floats(0, 1),
)
def test_pause_is_finite_and_as_long_as_asked(
    policy: RetryPolicy, attempt: int, retry_after: float | None, chance: float
) -> None:
    error = LlmError("slow down", retry_after=retry_after)
    wait = policy.wait_before(attempt, error, lambda: chance)
    asked = retry_after_of(error)
    assert math.isfinite(wait)
    assert wait <= max(policy.wait_max + policy.jitter, asked)
    assert policy.wait_initial == 0 or wait >= asked
