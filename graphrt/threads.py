"""Daemon worker threads for blocking functions, the same under asyncio and trio.

A task that is cancelled, or out of time, leaves at once. Its thread is then *abandoned*: it goes on until its
function returns, what that returns is dropped, and nothing waits for it, the end of the interpreter neither.
(``anyio.to_thread`` keeps the slot on trio, and the process alive on asyncio.)
"""

from __future__ import annotations

import os
import queue
import sys
import threading
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from contextvars import Context, copy_context
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Generic, Self, TypeVar, TypeVarTuple, cast

import anyio
import anyio.lowlevel

from graphrt.errors import GraphrtError

if TYPE_CHECKING:
    from types import TracebackType

    from anyio.lowlevel import EventLoopToken

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

MAX_ABANDONED: Final = 64
"""Abandoned threads that may be alive at once; while there are as many, no new function is started."""
IDLE_SECONDS: Final = 10.0
"""Seconds that a thread without work waits for some before it ends."""

_END: Final = object()


async def run_in_thread(fn: Callable[[*Ts], T], *args: *Ts, on_abandon: Callable[[], object] | None = None) -> T:
    """Call *fn* in a worker thread, in a copy of the current context, and wait for what it returns.

    There is no upper bound on threads: limits belong to the caller. A cancelled task leaves at once, and its
    thread is abandoned; *on_abandon* is then called on the event loop, and must neither block nor raise.

    Raises:
        GraphrtError: MAX_ABANDONED threads are abandoned and alive, or the system refuses a thread; *fn* was
            not called. Or *fn* raised the cancellation exception of an event loop.
        RuntimeError: *fn* raised StopIteration, which a coroutine cannot raise.
    """
    await anyio.lowlevel.checkpoint_if_cancelled()
    _pool.refuse_if_too_many_are_abandoned()
    job = _Job(fn, args, copy_for_thread(), fn)
    _pool.start(job)
    return cast("T", await _outcome(job, on_abandon))


def abandoned_count() -> int:
    """Count the abandoned threads of this process that are still alive."""
    return len(_pool.abandoned)


def awaits_thread(loop: object) -> bool:
    """Say whether a task of *loop*, an asyncio loop or a trio token, waits for a thread that is not abandoned."""
    return _pool.awaits(loop)


def call_soon(token: EventLoopToken, fn: Callable[[*Ts], object], *args: *Ts) -> bool:
    """Have *fn* called on the event loop that *token* stands for; from any thread, without waiting.

    Get the token from ``anyio.lowlevel.current_token()``. *fn* must not raise.

    Returns:
        False if that loop has ended; *fn* is then not called.
    """
    # anyio's own from_thread.run_sync waits for the answer, for ever on a loop that stops in between.
    native: Any = token.native_token
    soon = getattr(native, "call_soon_threadsafe", None) or native.run_sync_soon
    try:
        soon(fn, *args)
    except RuntimeError:  # a closed asyncio loop; trio's RunFinishedError is one too
        return False
    return True


class ThreadIterator(Generic[T]):
    """Read a synchronous iterator from a task: one ``next`` at a time, in threads, in one context.

    Use it as an async context manager around ``async for``: leaving the block closes a generator, so that its
    ``finally`` blocks run. A reader that is cancelled leaves at once, and there is nothing more to read; the
    abandoned thread closes the generator as soon as the ``next`` in progress returns.
    """

    def __init__(self, iterator: Iterator[T], *, on_abandon: Callable[[], object] | None = None) -> None:
        """Take a copy of the current context; *on_abandon* is that of run_in_thread."""
        self._iterator = iterator
        self._on_abandon = on_abandon
        self._context = copy_for_thread()
        self._lock = threading.Lock()
        self._busy = False
        self._over = False
        self._closed = False

    def __aiter__(self) -> Self:
        """Return the iterator itself."""
        return self

    async def __anext__(self) -> T:
        """Read one item.

        Raises:
            GraphrtError: Another task is reading, or no thread is to be had (see run_in_thread).
        """
        await anyio.lowlevel.checkpoint_if_cancelled()
        _pool.refuse_if_too_many_are_abandoned()
        with self._lock:
            if self._over:
                raise StopAsyncIteration
            if self._busy:
                raise GraphrtError(
                    f"two tasks read {self._iterator!r} at once",
                    hint="give each reader an iterator of its own",
                )
            self._busy = True
        job = _Job(self._advance, (), Context(), self._iterator)
        try:
            _pool.start(job)
        except GraphrtError:
            self._busy = False
            raise
        item = await _outcome(job, self._leave)
        if item is _END:
            self._over = self._closed = True
            raise StopAsyncIteration
        return cast("T", item)

    async def aclose(self) -> None:
        """Close the generator, in a thread; harmless the second time, and after the end.

        Does not wait for a ``next`` in progress: the thread that runs it closes the generator afterwards.
        """
        with self._lock:
            self._over = True
            if self._busy or self._closed:
                return
        job = _Job(self._close, (), Context(), self._iterator)
        _pool.start(job)
        await _outcome(job, self._on_abandon)

    async def __aenter__(self) -> Self:
        """Return the iterator itself."""
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close the generator."""
        await self.aclose()

    def _leave(self) -> None:
        self._over = True
        if self._on_abandon is not None:
            self._on_abandon()

    def _advance(self) -> object:
        """Take one item, in the thread, and close what its reader has left meanwhile."""
        try:
            return self._context.run(next, self._iterator, _END)
        finally:
            with self._lock:
                self._busy = False
                left = self._over
            if left:
                self._close()

    def _close(self) -> None:
        self._closed = True
        if isinstance(self._iterator, Generator):
            self._context.run(self._iterator.close)


class _Job:
    """One call on its way through a thread: what to call, how to wake the waiting task, what came of it."""

    __slots__ = ("args", "context", "done", "ended", "error", "fn", "named_after", "token", "value")

    def __init__(
        self, fn: Callable[..., object], args: tuple[object, ...], context: Context, named_after: object
    ) -> None:
        self.fn = fn
        self.args = args
        self.context = context
        self.named_after = named_after
        self.token = anyio.lowlevel.current_token()
        self.done = anyio.Event()
        self.ended = False
        self.value: object = None
        self.error: BaseException | None = None

    def call(self) -> None:
        try:
            self.value = self.context.run(self.fn, *self.args)
        except BaseException as error:  # noqa: BLE001  not caught for good: the waiting task raises it
            self.error = error

    @property
    def name(self) -> str:
        """What the user knows the function by."""
        named = self.named_after
        while isinstance(named, partial):
            named = named.func
        return str(getattr(named, "__qualname__", None) or type(named).__qualname__)


class _Worker:
    """One daemon thread, which takes one job after the other."""

    __slots__ = ("jobs", "pool")

    def __init__(self, pool: _Pool, number: int) -> None:
        self.pool = pool
        self.jobs: queue.SimpleQueue[_Job] = queue.SimpleQueue()
        threading.Thread(target=self._work, name=f"graphrt-worker-{number}", daemon=True).start()

    def _work(self) -> None:
        while True:
            try:
                job = self.jobs.get(timeout=IDLE_SECONDS)
            except queue.Empty:
                if self.pool.retire(self):
                    return
                continue  # a job is on its way
            job.call()
            if not self.pool.end(job, self):
                return
            call_soon(job.token, job.done.set)
            del job  # an idle thread keeps no result alive


class _Pool:
    """The threads of this process: the idle ones, last in first out, and the jobs that nobody waits for."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget every thread: a forked child has none of them."""
        self.abandoned: set[_Job] = set()
        self._awaited: Counter[object] = Counter()
        """How many tasks of each event loop wait for a job."""
        # Re-entrant: the collector may close a forgotten coroutine, and so abandon its job, anywhere.
        self._lock = threading.RLock()
        self._idle: list[_Worker] = []
        self._started = 0

    def start(self, job: _Job) -> None:
        """Hand *job* to an idle thread, or to a new one."""
        with self._lock:
            worker = self._idle.pop() if self._idle else None
            self._started += worker is None
            number = self._started
        if worker is None:
            try:
                worker = _Worker(self, number)
            except RuntimeError as error:
                raise GraphrtError(
                    f"cannot start a thread for {job.name!r}: {error}",
                    hint="bound how many synchronous functions run at once, as with max_concurrency=",
                ) from error
        worker.jobs.put(job)

    def awaits(self, loop: object) -> bool:
        """Say whether a task of *loop* waits for a job."""
        return loop in self._awaited

    def wait_begins(self, job: _Job) -> None:
        """Note that a task waits for *job*."""
        with self._lock:
            self._awaited[job.token.native_token] += 1

    def wait_ends(self, job: _Job) -> None:
        """Note that the task does not wait any more; nothing is kept of its loop."""
        loop = job.token.native_token
        with self._lock:
            self._awaited[loop] -= 1
            if self._awaited[loop] <= 0:
                del self._awaited[loop]

    def end(self, job: _Job, worker: _Worker) -> bool:
        """Note that *job*'s function has ended; false if nobody waits for it: its thread ends as well."""
        with self._lock:
            job.ended = True
            if job in self.abandoned:
                self.abandoned.remove(job)
                job.value = job.error = None
                return False
            self._idle.append(worker)
            return True

    def abandon(self, job: _Job) -> bool:
        """Note that nobody waits for *job*; false if its function has ended before."""
        with self._lock:
            if not job.ended:
                self.abandoned.add(job)
            return not job.ended

    def retire(self, worker: _Worker) -> bool:
        """Strike *worker* off the idle threads; false if it has just been given a job."""
        with self._lock:
            if worker not in self._idle:
                return False
            self._idle.remove(worker)
            return True

    def refuse_if_too_many_are_abandoned(self) -> None:
        """Raise GraphrtError, naming the functions that hang, if MAX_ABANDONED threads are abandoned."""
        with self._lock:
            if len(self.abandoned) < MAX_ABANDONED:
                return
            names = Counter(job.name for job in self.abandoned.copy())
        busy = ", ".join(f"{count} in {name!r}" for name, count in names.most_common(3))
        raise GraphrtError(
            f"{names.total()} abandoned threads are still busy ({busy}), the most that may be",
            hint="a thread cannot be interrupted: give the calls it waits in a time-out of their own, "
            "or write the function with async def",
        )


async def _outcome(job: _Job, on_abandon: Callable[[], object] | None) -> object:
    """Wait for the end of *job*, and return or raise what came of it."""
    _pool.wait_begins(job)
    try:
        await job.done.wait()
    finally:
        _pool.wait_ends(job)
        if not job.ended and _pool.abandon(job) and on_abandon is not None:
            on_abandon()
    error, job.error = job.error, None  # its traceback holds the job
    if error is None:
        return job.value
    try:
        if isinstance(error, StopIteration):
            raise RuntimeError(f"{job.name!r} raised StopIteration") from error
        if isinstance(error, anyio.get_cancelled_exc_class()):
            # Raised here it would pass for the cancellation of the waiting task.
            raise GraphrtError(
                f"{job.name!r} raised {type(error).__name__} in its thread",
                hint="an event loop that it runs was cancelled: handle that inside the function",
            ) from error
        raise error
    finally:
        del error  # its traceback holds this frame


def copy_for_thread() -> Context:
    """Copy the current context, less the mark that an event loop runs here: the function may run its own."""
    context = copy_context()
    sniffio = sys.modules.get("sniffio")
    if sniffio is not None:
        context.run(sniffio.current_async_library_cvar.set, None)
    return context


_pool: Final = _Pool()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.reset)
