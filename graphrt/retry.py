"""Making a call again after it failed: the one place where tenacity is used.

The first attempt runs without tenacity, so a call that succeeds pays nothing for its policy.
"""

from __future__ import annotations

import inspect
import random
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

if TYPE_CHECKING:
    from tenacity import RetryCallState

    from graphrt.policies import RetryPolicy

_T = TypeVar("_T")

Sleep: TypeAlias = Callable[[float], Awaitable[object]]
"""Waits for so many seconds."""

OnRetry: TypeAlias = Callable[[int, Exception, float], object]
"""Told, before a pause: the attempt that failed (counted from 1), its error, the seconds until the next."""


async def retry_call(
    policy: RetryPolicy,
    call: Callable[[int], Awaitable[_T]],
    *,
    sleep: Sleep | None = None,
    on_retry: OnRetry | None = None,
    monotonic: Callable[[], float] = time.monotonic,
) -> _T:
    """Await ``call(1)``, ``call(2)``, ... until one returns or *policy* says that it is enough.

    *sleep* defaults to ``anyio.sleep``; a pause of 0 seconds is a checkpoint and does not call it. *on_retry*
    may be an async function. Only an ``Exception`` is caught: cancellation on either backend,
    ``KeyboardInterrupt``, ``SystemExit`` and ``GeneratorExit`` pass through at once, whatever the policy's
    ``retry_on`` accepts.

    Raises:
        Exception: The last attempt's own error, bare.
    """
    started = monotonic()
    try:
        return await call(1)
    except Exception as error:
        if policy.attempts == 1 or not policy.retries(error):
            raise
        first = error
    elapsed = partial(_since, started, monotonic)
    return await _retry_after(first, policy, call, sleep=sleep, on_retry=on_retry, elapsed=elapsed)


async def _retry_after(
    error: Exception,
    policy: RetryPolicy,
    call: Callable[[int], Awaitable[_T]],
    *,
    sleep: Sleep | None,
    on_retry: OnRetry | None,
    elapsed: Callable[[], float],
) -> _T:
    """Let tenacity go on from attempt 1, which ended in *error*.

    The calls are made here and tenacity is told of a stand-in only: it would catch cancellation, and it asks the
    errors that it keeps whether they are true, which is for their classes to say.
    """
    from tenacity import AsyncRetrying

    def is_over(state: RetryCallState) -> bool:
        if state.attempt_number >= policy.attempts:
            return True
        limit = policy.max_elapsed
        return limit is not None and elapsed() + state.upcoming_sleep >= limit

    async def tell(state: RetryCallState) -> None:
        if on_retry is not None:
            answer = on_retry(state.attempt_number, error, state.upcoming_sleep)
            if inspect.isawaitable(answer):
                await answer

    attempts = AsyncRetrying(
        retry=lambda state: state.attempt_number == 1 or policy.retries(error),
        wait=lambda state: policy.wait_before(state.attempt_number, error, random.random),
        stop=is_over,
        before_sleep=tell,
        sleep=_pause_with(sleep),
        reraise=True,
    )
    failed = _AttemptError()
    with suppress(_AttemptError):
        async for attempt in attempts:
            state = attempt.retry_state
            if state.attempt_number > 1:
                try:
                    return await call(state.attempt_number)
                except Exception as raised:  # noqa: BLE001  # tenacity decides whether to go on
                    error = raised
            state.set_exception((_AttemptError, failed, None))
    raise error


class _AttemptError(Exception):
    """Stand for the error of an attempt."""


def _since(started: float, monotonic: Callable[[], float]) -> float:
    return monotonic() - started


def _pause_with(sleep: Sleep | None) -> Callable[[int | float], Awaitable[None]]:
    import anyio
    import anyio.lowlevel

    pause: Callable[[float], Awaitable[Any]] = anyio.sleep if sleep is None else sleep

    async def wait(seconds: float) -> None:
        await (pause(seconds) if seconds > 0 else anyio.lowlevel.checkpoint())

    return wait
