"""Faults on purpose: a call that fails, one that takes its time, one at which everything is cut off."""

from __future__ import annotations

import functools
import inspect
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, cast

import anyio

from graphrt.errors import ConfigError
from graphrt.llm.provider import LLMDelta, LLMProvider, Tools, close_stream

if TYPE_CHECKING:
    from graphrt.messages import LLMResponse, Message

_F = TypeVar("_F", bound=Callable[..., Any])

Calls: TypeAlias = int | Collection[int] | None
"""Which calls, counted from 1: one, several, or None for every one."""
Sleep: TypeAlias = Callable[[float], Awaitable[None]]


class Cut(BaseException):
    """Everything ends here, as when a process dies: no `except Exception` stops it, and `run()` raises it bare."""


@dataclass(frozen=True)
class Fault:
    """What happens at which calls."""

    calls: Calls
    error: BaseException | type[BaseException] | None = None
    """What the call raises, in the place of being made."""
    seconds: float = 0.0
    """How long it waits before that."""

    def hits(self, number: int) -> bool:
        """Say whether it is about the call with this number."""
        return self.calls is None or number == self.calls or (not isinstance(self.calls, int) and number in self.calls)


def fail(calls: Calls, error: BaseException | type[BaseException]) -> Fault:
    """Let these calls raise *error*, without being made."""
    return Fault(calls, error)


def delay(calls: Calls, seconds: float) -> Fault:
    """Let these calls wait first."""
    return Fault(calls, None, seconds)


def cut(calls: Calls) -> Fault:
    """Let everything end at these calls, as if the process had died there."""
    return Fault(calls, Cut)


class Faults:
    """Counts calls, and lets happen what belongs to each; one object may stand behind several functions."""

    def __init__(self, *faults: Fault, sleep: Sleep = anyio.sleep) -> None:
        """Take the faults, of which all that hit a call happen in order, and what waits.

        Raises:
            ConfigError: One of them is no fault.
        """
        for fault in faults:
            if not isinstance(fault, Fault):
                raise ConfigError(f"{fault!r} is no fault", hint="make one by fail(), delay() or cut()")
        self._faults = faults
        self._sleep = sleep
        self._numbers = itertools.count(1)
        self.calls = 0
        """Calls so far, those that failed included."""

    async def meet(self) -> None:
        """Count one call, and let its faults happen.

        Raises:
            BaseException: What the faults say.
        """
        for fault in self._of_next():
            if fault.seconds:
                await self._sleep(fault.seconds)
            if fault.error is not None:
                raise fault.error

    def meet_now(self) -> None:
        """Count one call of a function that is not async; it cannot wait.

        Raises:
            ConfigError: A fault says to wait.
            BaseException: What the faults say.
        """
        for fault in self._of_next():
            if fault.seconds:
                raise ConfigError("a function that is not async cannot be delayed", hint="delay an async one")
            if fault.error is not None:
                raise fault.error

    def _of_next(self) -> list[Fault]:
        number = self.calls = next(self._numbers)
        return [fault for fault in self._faults if fault.hits(number)]


def with_faults(fn: _F, *faults: Fault, sleep: Sleep = anyio.sleep) -> _F:
    """Give *fn*, async or not, with faults before its calls; as a node or a tool it is what it was.

    `.faults.calls` of what comes back counts the calls.
    """
    counted = Faults(*faults, sleep=sleep)

    @functools.wraps(fn)
    async def call(*args: Any, **kwargs: Any) -> Any:
        await counted.meet()
        return await fn(*args, **kwargs)

    @functools.wraps(fn)
    def call_now(*args: Any, **kwargs: Any) -> Any:
        counted.meet_now()
        return fn(*args, **kwargs)

    made: Any = call if inspect.iscoroutinefunction(fn) else call_now
    made.faults = counted
    return cast("_F", made)


class FaultyProvider(LLMProvider):
    """A provider with faults before its calls, streams included."""

    def __init__(self, provider: LLMProvider, *faults: Fault, sleep: Sleep = anyio.sleep) -> None:
        """Put faults before *provider*; `faults.calls` counts the calls."""
        self.provider = provider
        self.faults = Faults(*faults, sleep=sleep)

    async def chat(self, messages: Sequence[Message], tools: Tools = None, **kwargs: Any) -> LLMResponse:
        """Ask the provider, unless a fault comes first.

        Raises:
            BaseException: What a fault says, or the provider.
        """
        await self.faults.meet()
        return await self.provider.chat(messages, tools, **kwargs)

    async def stream(self, messages: Sequence[Message], tools: Tools = None, **kwargs: Any) -> AsyncIterator[LLMDelta]:
        """Ask the provider, and give its reply in pieces, unless a fault comes first.

        Raises:
            BaseException: What a fault says, or the provider.
        """
        await self.faults.meet()
        deltas = self.provider.stream(messages, tools, **kwargs)
        try:
            async for delta in deltas:
                yield delta
        finally:
            await close_stream(deltas)


class Faulty:
    """An object, such as a store, with faults before the calls of some of its methods.

    `Faulty(store, save=[fail(2, OSError("full"))])`; what is not named goes through untouched.
    """

    def __init__(self, target: Any, *, sleep: Sleep = anyio.sleep, **faults: Sequence[Fault]) -> None:
        """Take the object, and faults by the name of the method.

        Raises:
            ConfigError: It has no such method.
        """
        self._target = target
        for name, of_method in faults.items():
            method = getattr(target, name, None)
            if not callable(method):
                raise ConfigError(f"{target!r} has no method {name!r}", hint="name one that it has")
            setattr(self, name, with_faults(method, *of_method, sleep=sleep))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._target, name)
