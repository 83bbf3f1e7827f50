"""Limits that hold work back: slots of a run and its maps, limiters and rates shared across runs, budgets (E21).

They are bound to no event loop: one limiter may serve runs of several loops in several threads at once.
"""

from __future__ import annotations

import threading
import time
from bisect import insort
from collections import deque
from typing import TYPE_CHECKING, Any, Protocol

import anyio
import anyio.lowlevel

from graphrt.errors import ConfigError, LimitExceededError
from graphrt.threads import call_soon

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from anyio.lowlevel import EventLoopToken

    from graphrt.policies import Budget, RateLimit


class _Waiter:
    __slots__ = ("event", "granted", "token")

    def __init__(self) -> None:
        self.event = anyio.Event()
        self.token: EventLoopToken = anyio.lowlevel.current_token()
        self.granted = False


class Limiter:
    """A number of slots that tasks of any event loop take in turn, first come first served.

    Give one to several nodes, or to nodes of several graphs, as `max_concurrency=`.
    """

    def __init__(self, slots: int) -> None:
        """Make *slots* slots, at least 1.

        Raises:
            ConfigError: *slots* is no whole number of at least 1.
        """
        if isinstance(slots, bool) or not isinstance(slots, int):
            raise ConfigError(f"a limiter of {slots!r} slots counts nothing", hint="give a whole number of at least 1")
        if slots < 1:
            raise ConfigError(f"a limiter of {slots!r} slots lets nothing through", hint="give at least 1")
        self.slots = slots
        self._used = 0
        self._waiting: deque[_Waiter] = deque()
        self._lock = threading.Lock()

    def acquire_nowait(self) -> bool:
        """Take a slot if one is free and nobody waits for it."""
        with self._lock:
            if self._used < self.slots and not self._waiting:
                self._used += 1
                return True
            return False

    async def acquire(self) -> None:
        """Take a slot, waiting for it in turn."""
        with self._lock:
            if self._used < self.slots and not self._waiting:
                self._used += 1
                return
            waiter = _Waiter()
            self._waiting.append(waiter)
        try:
            await waiter.event.wait()
        except BaseException:  # cancelled while waiting: pass a slot that has just been granted on, and leave
            with self._lock:
                granted = waiter.granted
                if not granted:
                    self._waiting.remove(waiter)
            if granted:
                self.release()
            raise

    def release(self) -> None:
        """Give a slot back; whoever waits longest gets it."""
        while True:
            with self._lock:
                if not self._waiting:
                    self._used -= 1
                    return
                waiter = self._waiting.popleft()
                waiter.granted = True
            if call_soon(waiter.token, waiter.event.set):
                return

    def __repr__(self) -> str:
        return f"Limiter({self.slots})"


class AsyncSlot(Protocol):
    """A slot of an `AsyncLimit` that has been taken."""

    async def keep(self) -> None:
        """Hold the slot until it is released, or this is cancelled; then give it back. Runs beside the work."""
        ...

    def release(self) -> None:
        """Let the slot go; called once, when the work has ended."""
        ...


class AsyncLimit(Protocol):
    """A limit whose slots lie outside the process, and that nodes take as `max_concurrency=` too."""

    async def acquire(self, owner: str) -> AsyncSlot:
        """Take a slot for *owner*, waiting for it; called before each attempt."""
        ...


class Borrowed:
    """The slot of an `AsyncLimit` that one step takes and gives back, in the manner of a `Limiter`."""

    __slots__ = ("_limit", "_owner", "_slot", "_start")

    def __init__(
        self, limit: AsyncLimit, owner: str, start: Callable[[Callable[[], Coroutine[Any, Any, None]]], None]
    ) -> None:
        self._limit = limit
        self._owner = owner
        self._start = start
        self._slot: AsyncSlot | None = None

    def acquire_nowait(self) -> bool:
        """Say no: such a slot is always waited for."""
        return False

    async def acquire(self) -> None:
        """Take a slot, and have it kept beside the work."""
        self._slot = slot = await self._limit.acquire(self._owner)
        self._start(slot.keep)

    def release(self) -> None:
        """Let the slot go."""
        slot, self._slot = self._slot, None
        if slot is not None:
            slot.release()


class Turn:
    """A caller's place at a `RateGate`, kept over its waits."""

    __slots__ = ("at",)

    def __init__(self) -> None:
        self.at: float | None = None
        """When it is due; None before it is booked and after it has been taken or given back."""


class RateGate:
    """Lets *n* calls through in any window of *per_seconds* seconds; the rest wait for their turn.

    Turns are planned ahead, and a window is reckoned from when calls really went through: a task may wake up late.
    """

    def __init__(self, rate: RateLimit, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate = rate
        self._clock = clock
        self._passed: list[float] = []
        """When the last *n* calls went through, in order."""
        self._booked: list[float] = []
        """Turns that are still waited for, in order."""
        self._free: list[float] = []
        """Turns between those that were given back, in order."""
        self._lock = threading.Lock()

    def reserve(self, turn: Turn | None = None) -> float:
        """Go through, or book the next turn and give the seconds to wait until it comes.

        Whoever has waited asks again with the same *turn*: it goes through, or waits on because a call before it
        was late. Whoever does not come back gives the turn back.
        """
        turn = Turn() if turn is None else turn
        with self._lock:
            now = self._clock()
            if turn.at is None:
                at = self._next(now)
            else:
                now = max(now, turn.at)  # it has been waited for, by whatever clock the loop has
                self._booked.remove(turn.at)
                at = self._after(self._passed, now)
            if at > now:
                turn.at = at
                insort(self._booked, at)
            else:
                turn.at = None
                insort(self._passed, now)
                del self._passed[: -self._rate.n]
            return at - now

    def give_back(self, turn: Turn) -> None:
        """Let somebody else have a booked turn."""
        with self._lock:
            if turn.at is not None:
                self._booked.remove(turn.at)
                insort(self._free, turn.at)
                turn.at = None

    def _next(self, now: float) -> float:
        if self._free:
            last = self._booked[-1] if self._booked else now
            self._free = [at for at in self._free if now < at < last]  # past the last, turns are planned anew
            if self._free:
                return self._free.pop(0)
        taken = sorted([*self._passed, *self._booked[-self._rate.n :]]) if self._booked else self._passed
        return self._after(taken, now)

    def _after(self, taken: list[float], now: float) -> float:
        n = self._rate.n
        return now if len(taken) < n else max(now, taken[-n] + self._rate.per_seconds)


class BudgetTracker:
    """What the calls of one run may still use; shared by its branches and the graphs inside (E21).

    Requests and tool calls are counted exactly, before they are made. A model call reserves tokens before it and
    settles after it, so that parallel calls together never exceed the limit they were promised.
    """

    def __init__(self, budget: Budget) -> None:
        self.budget = budget
        self.requests = 0
        self.tool_calls = 0
        self.tokens = 0
        """Tokens used and reserved."""
        self.cost = 0.0
        """Cost used and reserved, in the unit of the model's prices."""
        self._lock = threading.Lock()

    def take_request(self, max_tokens: int | None = None) -> int | None:
        """Count one model request and reserve its tokens.

        Returns:
            The tokens reserved, to be given to the model as its `max_tokens`: *max_tokens*, or what is left when
            that is less or *max_tokens* is None. None when the budget has no token limit and none was asked for.

        Raises:
            LimitExceededError: No request or no token is left.
        """
        with self._lock:
            limit = self.budget.requests
            if limit is not None and self.requests >= limit:
                raise _spent("requests", limit)
            tokens = self.budget.tokens
            if tokens is None:
                self.requests += 1
                return max_tokens
            left = tokens - self.tokens
            if left <= 0:
                raise _spent("tokens", tokens)
            self.requests += 1
            reserved = left if max_tokens is None else min(max_tokens, left)
            self.tokens += reserved
            return reserved

    def settle_tokens(self, reserved: int | None, used: int | None) -> None:
        """Replace a reservation by what the call really used; unknown usage settles at the reservation."""
        if used is None or self.budget.tokens is None:
            return
        with self._lock:
            self.tokens += used - (reserved or 0)

    def count_tokens(self, counted: int | None, used: int) -> int | None:
        """Count what a call reports on its way, as far as that is more than was *counted* for it before.

        Returns:
            What is counted for it now, to be given here or to `settle_tokens` the next time.

        Raises:
            LimitExceededError: The limit has been passed: the call is to be stopped. Its tokens are counted.
        """
        limit = self.budget.tokens
        if limit is None or used <= (counted or 0):
            return counted
        with self._lock:
            self.tokens += used - (counted or 0)
            passed = self.tokens > limit
        if passed:
            raise _spent("tokens", limit)
        return used

    def release_request(self, reserved: int | None) -> None:
        """Take back the tokens of a call that never reached a model."""
        if reserved is not None and self.budget.tokens is not None:
            with self._lock:
                self.tokens -= reserved

    def take_tool_call(self) -> None:
        """Count one tool call.

        Raises:
            LimitExceededError: No tool call is left.
        """
        with self._lock:
            limit = self.budget.tool_calls
            if limit is not None and self.tool_calls >= limit:
                raise _spent("tool_calls", limit)
            self.tool_calls += 1

    def add_cost(self, amount: float) -> None:
        """Count the cost of a call that has ended.

        Raises:
            LimitExceededError: The cost limit was passed before this call; its own cost is counted all the same.
        """
        with self._lock:
            before = self.cost
            self.cost += amount
        limit = self.budget.cost
        if limit is not None and before >= limit:
            raise _spent("cost", limit)

    @property
    def tokens_left(self) -> int | None:
        """Tokens neither used nor reserved; None without a limit."""
        return None if self.budget.tokens is None else max(0, self.budget.tokens - self.tokens)


def _spent(what: str, limit: float) -> LimitExceededError:
    return LimitExceededError(
        f"the run's budget of {limit} {what} is spent",
        limit=what,
        hint=f"raise Budget({what}=...), or let the run do less",
    )
