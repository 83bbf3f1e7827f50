"""Plain values that say how often, how fast and how much: retries, rate limits, budgets.

They import the standard library only and are checked when they are made.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import SupportsFloat, TypeAlias, TypeGuard

from graphrt.errors import ConfigError

RetryOn: TypeAlias = type[BaseException] | tuple[type[BaseException], ...] | Callable[[Exception], bool]
"""What is tried again: an exception class, several, or a function that says yes or no."""

WaitFor: TypeAlias = Callable[[Exception, int], float]
"""Gives the seconds to wait after an attempt (counted from 1) that ended in this exception."""

_MAX_DOUBLINGS = 60  # keeps the schedule finite whatever the number of attempts


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """When a failed attempt is made again, and after what pause.

    Cancellation, ``KeyboardInterrupt``, ``SystemExit`` and ``GeneratorExit`` are never retried, whatever
    ``retry_on`` says.

    Attributes:
        attempts: Attempts in all, the first included.
        wait_initial: Seconds before the second attempt, doubled for each one after it; 0 means no pause at all.
        wait_max: Longest pause of the schedule, in seconds; a provider's ``Retry-After`` may exceed it.
        jitter: Up to this many seconds, drawn at random, are added to each pause.
        max_elapsed: Seconds from the start of the first attempt after which no further attempt is started.
        retry_on: Which exceptions are worth another attempt.
        wait_for: Replaces the doubling schedule (``wait_initial``, ``wait_max`` and ``jitter``) by a function.
    """

    attempts: int = 3
    wait_initial: float = 0.5
    wait_max: float = 8.0
    jitter: float = 0.0
    max_elapsed: float | None = None
    retry_on: RetryOn = Exception
    wait_for: WaitFor | None = None

    def __post_init__(self) -> None:
        if isinstance(self.attempts, bool) or not isinstance(self.attempts, int) or self.attempts < 1:
            raise ConfigError(
                f"attempts is {self.attempts!r}, which is not a whole number of at least 1",
                hint="attempts=1 means no retry",
            )
        for name in ("wait_initial", "wait_max", "jitter"):
            _check_seconds(name, getattr(self, name))
        if self.max_elapsed is not None:
            _check_seconds("max_elapsed", self.max_elapsed)
        if not _is_retry_on(self.retry_on):
            raise ConfigError(
                f"retry_on is {self.retry_on!r}, which names no exceptions",
                hint="give an exception class, a tuple of them, or a function from exception to bool",
            )
        if self.wait_for is not None and not callable(self.wait_for):
            raise ConfigError(
                f"wait_for is {self.wait_for!r}, which cannot be called",
                hint="give a function from exception and attempt to seconds; for a fixed pause use wait_initial=",
            )

    def retries(self, error: BaseException) -> bool:
        """Say whether *error* is worth another attempt; what is no ``Exception`` never is."""
        if not isinstance(error, Exception):
            return False
        rule = self.retry_on
        if isinstance(rule, (type, tuple)):
            return isinstance(error, rule)
        return bool(rule(error))

    def wait_before(self, attempt: int, error: Exception, random: Callable[[], float] | None = None) -> float:
        """Give the seconds to wait after *attempt* (counted from 1) ended in *error*.

        A ``retry_after`` attribute of the error, in seconds, is honoured when it is longer than the schedule.
        *random* gives numbers from 0 to 1 for the jitter; without it there is none.

        Raises:
            ConfigError: ``wait_for`` gave no number of seconds; *error* is its cause.
        """
        if self.wait_for is not None:
            wait = max(0.0, _seconds_of(self.wait_for(error, attempt), error))
        elif self.wait_initial == 0:
            return 0.0
        else:
            wait = min(self.wait_initial * 2.0 ** min(attempt - 1, _MAX_DOUBLINGS), self.wait_max)
            if random is not None and self.jitter:
                wait += self.jitter * random()
        return max(wait, retry_after_of(error))


@dataclass(frozen=True, slots=True)
class RateLimit:
    """At most ``n`` starts within any ``per_seconds``.

    Attributes:
        n: Starts allowed in the window.
        per_seconds: Length of the window in seconds.
    """

    n: int
    per_seconds: float = 1.0

    def __post_init__(self) -> None:
        if isinstance(self.n, bool) or not isinstance(self.n, int) or self.n < 1:
            raise ConfigError(
                f"n is {self.n!r}, which is not a whole number of at least 1",
                hint="give the starts allowed in per_seconds",
            )
        _check_seconds("per_seconds", self.per_seconds)
        if self.per_seconds == 0:
            raise ConfigError("per_seconds is 0, which limits nothing", hint="leave the rate limit out")


@dataclass(frozen=True, slots=True)
class Budget:
    """What a run with all its branches and sub-graphs may spend; None means no limit.

    Attributes:
        requests: Model calls.
        tokens: Tokens in and out together.
        tool_calls: Calls of tools.
        cost: Money, in the currency of the prices on the ``ModelSpec``.
    """

    requests: int | None = None
    tokens: int | None = None
    tool_calls: int | None = None
    cost: float | None = None

    def __post_init__(self) -> None:
        for name in ("requests", "tokens", "tool_calls"):
            value = getattr(self, name)
            if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 0):
                raise ConfigError(f"budget {name} is {value!r}, which is not a whole number of at least 0")
        if self.cost is not None:
            _check_number("budget cost", self.cost)


def retry_after_of(error: BaseException) -> float:
    """Read the seconds of an error's ``retry_after``; 0.0 when it has none that makes sense."""
    value = getattr(error, "retry_after", None)
    return max(0.0, float(value)) if _is_finite(value) else 0.0


def _is_finite(value: object) -> TypeGuard[float]:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:  # a whole number too large for a float
        return False


def _seconds_of(value: object, error: Exception) -> float:
    try:
        seconds = math.nan if isinstance(value, bool) or not isinstance(value, SupportsFloat) else float(value)
    except OverflowError:
        seconds = math.inf
    if not math.isfinite(seconds):
        raise ConfigError(
            f"wait_for gave {value!r}, which is not a finite number of seconds, after {type(error).__name__}: {error}",
            cause=error,
            hint="let it return the seconds to wait before the next attempt, 0 for none",
        )
    return seconds


def _check_seconds(name: str, value: object) -> None:
    _check_number(name, value, " of seconds")


def _check_number(name: str, value: object, unit: str = "") -> None:
    if not _is_finite(value) or value < 0:
        raise ConfigError(f"{name} is {value!r}, which is not a finite number{unit} of at least 0")


def _is_retry_on(rule: object) -> bool:
    if isinstance(rule, type):
        return issubclass(rule, BaseException)
    if isinstance(rule, tuple):
        return all(isinstance(each, type) and issubclass(each, BaseException) for each in rule)
    return callable(rule)
