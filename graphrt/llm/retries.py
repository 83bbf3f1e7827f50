"""Asking again, and asking another model: as an executor, and as decorators for any async function.

All of it goes through ``graphrt.retry``; a provider's own client retries nothing, so tries never multiply.
"""

from __future__ import annotations

import functools
import inspect
import logging
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ParamSpec, TypeAlias, TypeVar

import anyio

from graphrt.config import RetryConfig, is_recoverable_llm_error
from graphrt.errors import LlmError, LlmErrorKind
from graphrt.hooks import HookContext, HookEvent, HookExecutor
from graphrt.llm.provider import LLMDelta, close_stream
from graphrt.notes import add_note
from graphrt.policies import RetryOn, RetryPolicy
from graphrt.retry import Sleep, retry_call

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence

    from graphrt.llm.executor import InferenceRequest, LLMExecutor
    from graphrt.messages import LLMResponse

log = logging.getLogger(__name__)

_P = ParamSpec("_P")
_T = TypeVar("_T")

Accept: TypeAlias = "Callable[[LLMResponse], bool | Awaitable[bool]]"
"""Says whether a reply is good enough; False counts as a failure that may be retried."""


class RetryingExecutor:
    """Ask again when a model fails, and other models after it.

    The primary has its whole budget of attempts, then each fallback in order has the same. An error that
    another try cannot mend ends the chain at once; the last error is what the caller gets, with notes on the
    models that failed before.

    A stream is retried only until its first piece has been passed on; a failure after that is the caller's,
    since what was read cannot be taken back. With *accept* a stream is held back until the reply is whole and
    accepted, so that streaming and not streaming give the same answer: its pieces then come all at once.
    """

    def __init__(
        self,
        inner: LLMExecutor,
        policy: RetryConfig | RetryPolicy,
        *,
        fallbacks: Sequence[tuple[LLMExecutor, str | None]] = (),
        accept: Accept | None = None,
        hooks: HookExecutor | None = None,
        sleep: Sleep = anyio.sleep,
    ) -> None:
        """Put retries around *inner*.

        Args:
            inner: The primary.
            policy: How often and how fast; its ``fallback_models`` are only names for *fallbacks*.
            fallbacks: Executors with the model to ask of each; None leaves the model to the executor.
            accept: Judges each reply.
            hooks: Their ``ON_RETRY`` hooks are called before each pause.
            sleep: Waits for so many seconds.
        """
        self.inner = inner
        self.fallbacks = tuple(fallbacks)
        self.policy = _policy(policy, None)
        self.accept = accept
        self.hooks = hooks
        self._sleep = sleep

    async def execute(self, request: InferenceRequest) -> LLMResponse:
        """Ask until a model answers.

        Raises:
            LlmError: The last model's error, or that its reply was not accepted.
        """

        async def ask(executor: LLMExecutor, asked: InferenceRequest) -> LLMResponse:
            response = await executor.execute(asked)
            await self._check(response)
            return response

        return await self._ask_in_turn(request, ask)

    async def execute_stream(self, request: InferenceRequest) -> AsyncIterator[LLMDelta]:
        """Ask until a model answers, and give its reply in pieces.

        Raises:
            LlmError: The last model's error, or a failure in the middle of a stream.
        """
        stream = await self._ask_in_turn(request, self._open)
        try:
            for delta in stream.ready:
                yield delta
            answered = stream.ready[-1].response is not None
            async for delta in stream.rest:
                answered = answered or delta.response is not None
                yield delta
        finally:
            await close_stream(stream.rest)
        if not answered:
            raise _no_reply()

    async def _ask_in_turn(
        self, request: InferenceRequest, ask: Callable[[LLMExecutor, InferenceRequest], Awaitable[_T]]
    ) -> _T:
        """Let *ask* try one model after another, each with its whole budget."""
        models = [
            (self.inner, request),
            *((each, replace(request, model=name)) for each, name in self.fallbacks),
        ]
        notes: list[str] = []
        while True:
            executor, asked = models.pop(0)
            try:
                return await retry_call(
                    self.policy,
                    functools.partial(_numbered, ask, executor, asked),
                    sleep=self._sleep,
                    on_retry=functools.partial(self._tell, asked.model),
                )
            except Exception as error:
                for note in notes:
                    add_note(error, note)
                if not models or not self.policy.retries(error):
                    raise
                notes.append(f"before this, model {asked.model!r} failed: {error}")
                log.warning("model %r failed, falling back to %r: %s", asked.model, models[0][1].model, error)

    async def _open(self, executor: LLMExecutor, asked: InferenceRequest) -> _Opened:
        """Start a stream, and read as much of it as decides whether it is good."""
        deltas = executor.execute_stream(asked)
        try:
            ready = [delta async for delta in deltas] if self.accept else [await _first(deltas)]
            if self.accept is not None:
                if not ready or ready[-1].response is None:
                    raise _no_reply()
                await self._check(ready[-1].response)
        except BaseException:
            with anyio.CancelScope(shield=True):
                await close_stream(deltas)
            raise
        return _Opened(ready, deltas)

    async def _check(self, response: LLMResponse) -> None:
        if self.accept is None:
            return
        verdict = self.accept(response)
        if inspect.isawaitable(verdict):
            verdict = await verdict
        if not verdict:
            raise LlmError(f"the reply of {response.model!r} was not accepted", LlmErrorKind.PROVIDER)

    async def _tell(self, model: str | None, attempt: int, error: Exception, delay: float) -> None:
        if self.hooks is not None:
            data = {"attempt": attempt, "delay": delay, "error": error, "model": model}
            await self.hooks.execute(HookEvent.ON_RETRY, HookContext(HookEvent.ON_RETRY, data=data))


@dataclass(frozen=True, slots=True)
class _Opened:
    """A stream that has begun well."""

    ready: list[LLMDelta]
    """What has been read of it."""
    rest: AsyncIterator[LLMDelta]


async def _numbered(
    ask: Callable[[LLMExecutor, InferenceRequest], Awaitable[_T]],
    executor: LLMExecutor,
    asked: InferenceRequest,
    attempt: int,
) -> _T:
    del attempt  # every try sends the same
    return await ask(executor, asked)


async def _first(deltas: AsyncIterator[LLMDelta]) -> LLMDelta:
    try:
        return await anext(deltas)
    except StopAsyncIteration:
        raise _no_reply() from None


def _no_reply() -> LlmError:
    return LlmError("the stream ended without a reply", LlmErrorKind.PROVIDER)


def retrying(
    policy: RetryConfig | RetryPolicy, *, retry_on: RetryOn | None = None, sleep: Sleep = anyio.sleep
) -> Callable[[Callable[_P, Awaitable[_T]]], Callable[_P, Coroutine[Any, Any, _T]]]:
    """Decorate an async function so that a call is made again when it fails.

    What is tried again: what *retry_on* says, else what a ``RetryPolicy`` says unless that is its default,
    else an ``LlmError`` that is recoverable. ``fallback_models`` of the policy plays no part.
    Cancellation is never caught.

    Raises:
        TypeError: What is decorated is no async function.
    """
    rule = _policy(policy, retry_on)

    def decorate(fn: Callable[_P, Awaitable[_T]]) -> Callable[_P, Coroutine[Any, Any, _T]]:
        _check_async(fn)

        @functools.wraps(fn)
        async def call(*args: _P.args, **kwargs: _P.kwargs) -> _T:
            return await retry_call(rule, lambda attempt: fn(*args, **kwargs), sleep=sleep)

        return call

    return decorate


def with_fallback(
    *alternatives: Callable[_P, Awaitable[_T]], retry_on: RetryOn | None = None
) -> Callable[[Callable[_P, Awaitable[_T]]], Callable[_P, Coroutine[Any, Any, _T]]]:
    """Decorate an async function so that *alternatives* are called in order when it fails.

    Each gets the same arguments. An error moves on to the next only if *retry_on* accepts it (by default: a
    recoverable ``LlmError``); any other is raised at once, and so is the last one.

    Raises:
        TypeError: What is decorated, or an alternative, is no async function.
    """
    rule = RetryPolicy(attempts=1, retry_on=is_recoverable_llm_error if retry_on is None else retry_on)
    for alternative in alternatives:
        _check_async(alternative)

    def decorate(fn: Callable[_P, Awaitable[_T]]) -> Callable[_P, Coroutine[Any, Any, _T]]:
        _check_async(fn)

        @functools.wraps(fn)
        async def call(*args: _P.args, **kwargs: _P.kwargs) -> _T:
            current = fn
            for following in alternatives:
                try:
                    return await current(*args, **kwargs)
                except Exception as error:
                    if not rule.retries(error):
                        raise
                    log.warning("%r failed, falling back to %r: %s", current, following, error)
                current = following
            return await current(*args, **kwargs)

        return call

    return decorate


def _policy(policy: RetryConfig | RetryPolicy, retry_on: RetryOn | None) -> RetryPolicy:
    if isinstance(policy, RetryConfig):
        return policy.to_policy(retry_on)
    if retry_on is not None:
        return replace(policy, retry_on=retry_on)
    return replace(policy, retry_on=is_recoverable_llm_error) if policy.retry_on is Exception else policy


def _check_async(fn: object) -> None:
    if not callable(fn) or (inspect.isfunction(fn) and not inspect.iscoroutinefunction(fn)):
        raise TypeError(f"{fn!r} is no async function")
