"""One thread that writes: what callers want is collected, stored in one transaction, and answered together."""

from __future__ import annotations

import atexit
import contextlib
import os
import queue
import threading
import time
import weakref
from collections import deque
from typing import TYPE_CHECKING, Final, TypeVar, TypeVarTuple, cast

import anyio
import anyio.lowlevel

from graphrt.errors import GraphrtError, RunControlError
from graphrt.ledger.sql.backend import Backend, InDoubtError, Trouble, Tx
from graphrt.threads import call_soon, run_in_thread

if TYPE_CHECKING:
    from collections.abc import Callable

    from graphrt.ledger.bell import WorkBell

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

GROUP: Final = 256
"""Calls that one transaction takes at most."""
EXIT_SECONDS: Final = 5.0
"""Seconds that the end of the interpreter waits for what is not stored yet."""
_FIRST_PAUSE: Final = 0.01
_LAST_PAUSE: Final = 0.5


class _Job:
    """One call on its way through the thread: what to do, and what came of it."""

    __slots__ = ("args", "done", "error", "fn", "key", "token", "value")

    def __init__(self, key: str, fn: Callable[..., object], args: tuple[object, ...]) -> None:
        self.key = key
        self.fn = fn
        self.args = args
        self.token = anyio.lowlevel.current_token()
        self.done = anyio.Event()
        self.value: object = None
        self.error: Exception | None = None


class Writer:
    """Owns the connection that writes, and the thread that uses it; started with the first call."""

    def __init__(self, backend: Backend, bell: WorkBell, *, places: int, patience: float) -> None:
        """Take how many calls may wait to be stored, and for how many seconds trouble is borne."""
        self._backend = backend
        self._bell = bell
        self._patience = patience
        self._lock = threading.Lock()
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._free = places
        self._waiting: deque[_Job] = deque()
        self._thread: threading.Thread | None = None
        self._pid: int | None = None
        self._closed = False
        self._tx: Tx | None = None
        self._prepared = False

    @property
    def prepared(self) -> bool:
        """Whether the tables are there, so that readers find them."""
        return self._prepared

    def check_usable(self) -> None:
        """Refuse calls of a store that is closed, or of another process.

        Raises:
            RunControlError: `runtime_error`.
        """
        if self._closed:
            raise RunControlError("runtime_error", f"{self._backend.name} is closed", hint="make a new store")
        if self._pid not in {None, os.getpid()}:
            raise RunControlError(
                "runtime_error",
                f"{self._backend.name} was opened before this process was forked",
                hint="make a store of its own in the child",
            )

    async def call(self, key: str, fn: Callable[[Tx, *Ts], T], *args: *Ts) -> T:
        """Have *fn* called with a transaction, and wait until it is stored; *key* names what is locked first.

        *fn* may be called several times, and decides before it writes: refusing by `RunControlError` leaves its
        neighbours in the transaction alone. A caller that is cancelled leaves at once; what it wanted may still be
        stored, and then all of it.
        """
        await anyio.lowlevel.checkpoint_if_cancelled()
        self.check_usable()
        job = _Job(key, fn, args)
        self._put(job)
        try:
            await job.done.wait()
        except BaseException:
            self._forget(job)
            raise
        if job.error is not None:
            error, job.error = job.error, None
            try:
                raise error
            finally:
                del error  # its traceback holds this frame
        return cast("T", job.value)

    # --- the queue

    def _put(self, job: _Job) -> None:
        """Give a job a place in the queue, or have it wait for one: first come, first served."""
        with self._lock:
            if not self._closed:
                if self._thread is None:
                    self._start()
                if self._free > 0 and not self._waiting:
                    self._free -= 1
                    self._jobs.put(job)
                else:
                    self._waiting.append(job)
                return
        self.check_usable()

    def _leave(self, places: int) -> None:
        """Give places to those that wait, and keep the rest."""
        with self._lock:
            while places > 0 and self._waiting:
                self._jobs.put(self._waiting.popleft())
                places -= 1
            self._free += places

    def _forget(self, job: _Job) -> None:
        """Drop a job that nobody waits for, if it has no place yet: the queue stays as small as it is meant to be."""
        with self._lock, contextlib.suppress(ValueError):
            self._waiting.remove(job)

    def _start(self) -> None:
        self._pid = os.getpid()
        # The thread must not keep the store alive: a store that is forgotten tells it to end.
        self._thread = threading.Thread(target=self._work, name="graphrt-ledger-writer", daemon=True)
        try:
            self._thread.start()
        except RuntimeError as error:
            self._thread = None
            raise GraphrtError(f"cannot start the thread of {self._backend.name}: {error}") from error
        atexit.register(_at_exit, weakref.ref(self))

    def end(self) -> None:
        """Have the thread end once what was accepted is stored; from any thread, without waiting."""
        with self._lock:
            if not self._closed:
                self._closed = True
                for job in self._waiting:
                    self._jobs.put(job)
                self._waiting.clear()
                self._jobs.put(None)

    def join(self, seconds: float | None = None) -> None:
        """Wait for the thread's end."""
        if self._thread is not None and self._pid == os.getpid():
            self._thread.join(seconds)

    async def aclose(self) -> None:
        """Store what was accepted, end the thread, and close the connection; harmless the second time."""
        self.end()
        if self._thread is not None and self._pid == os.getpid():
            with anyio.CancelScope(shield=True):
                await run_in_thread(self.join)

    # --- in the thread

    def _work(self) -> None:
        try:
            while True:
                group, over = self._collect()
                if group:
                    self._leave(len(group))
                    self._store(group)
                    _answer(group)
                del group  # an idle thread keeps no result alive
                if over:
                    return
        finally:
            self._drop()
            self._backend.engine.dispose()

    def _collect(self) -> tuple[list[_Job], bool]:
        """Wait for a job, and take what else is there."""
        group: list[_Job] = []
        job = self._jobs.get()
        with contextlib.suppress(queue.Empty):
            while job is not None:
                group.append(job)
                if len(group) == GROUP:
                    return group, False
                job = self._jobs.get_nowait()
            return group, True
        return group, False

    def _store(self, group: list[_Job]) -> None:
        """Do what a group wants, in one transaction; each alone if that fails, so that only the culprit suffers."""
        if len(group) > 1 and self._backend.order_matters:
            group = sorted(group, key=lambda job: job.key)
        end = time.monotonic() + self._patience
        pause = _FIRST_PAUSE
        while True:
            known = self._prepared
            try:
                self._transact(group)
            except Exception as error:  # noqa: BLE001  not lost: the callers get it
                trouble = self._backend.judge(error)
                if trouble is Trouble.LOST:
                    self._drop()
                again = trouble is Trouble.BUSY or (trouble is Trouble.LOST and known)
                if again and time.monotonic() < end:
                    time.sleep(pause)
                    pause = min(pause * 2, _LAST_PAUSE)
                    continue
                self._fail(group, error, alone=again or not self._prepared)
            return

    def _fail(self, group: list[_Job], error: Exception, *, alone: bool) -> None:
        """Answer with an error; or try each by itself, unless that would fail alike."""
        if len(group) > 1 and not alone:
            for job in group:
                self._store([job])
            return
        ours = isinstance(error, RunControlError) or self._backend.judge(error) is None
        for job in group:
            job.error = error if ours else self._backend.error(error)

    def _transact(self, group: list[_Job]) -> None:
        tx = self._opened()
        tx.queued = False
        self._backend.begin(tx)
        try:
            for job in group:
                try:
                    job.value, job.error = job.fn(tx, *job.args), None
                except RunControlError as refusal:
                    job.error = refusal
            self._backend.commit(tx)
        except InDoubtError as doubt:
            self._drop()
            if not self._settled(doubt):
                raise (doubt.__cause__ or doubt) from None
        except BaseException:
            try:
                self._backend.rollback(tx)
            except Exception:  # noqa: BLE001  the first error says more; a new connection is as good as a rollback
                self._drop()
            raise
        if tx.queued:
            self._bell.ring()

    def _settled(self, doubt: InDoubtError) -> bool:
        """Ask, on a new connection, whether a transaction was stored; wait for the database if need be."""
        end = time.monotonic() + self._patience
        while True:
            try:
                return self._backend.was_stored(self._opened(), doubt.mark)
            except Exception as error:
                self._drop()
                if self._backend.judge(error) is None or time.monotonic() > end:
                    raise
                time.sleep(_LAST_PAUSE / 5)

    def _opened(self) -> Tx:
        if self._tx is None:
            tx = self._backend.connect()
            try:
                if not self._prepared:
                    self._backend.prepare(tx)
            except BaseException:
                with contextlib.suppress(Exception):
                    tx.drop()
                raise
            self._prepared = True
            self._tx = tx
        return self._tx

    def _drop(self) -> None:
        tx, self._tx = self._tx, None
        if tx is not None:
            with contextlib.suppress(Exception):  # it may be broken already, which is why it is dropped
                tx.drop()


def _answer(group: list[_Job]) -> None:
    """Wake the callers: each event loop is told once."""
    by_loop: dict[object, list[_Job]] = {}
    for job in group:
        by_loop.setdefault(job.token.native_token, []).append(job)
    for jobs in by_loop.values():
        call_soon(jobs[0].token, _set_all, [job.done for job in jobs])


def _set_all(events: list[anyio.Event]) -> None:
    for event in events:
        event.set()


def _at_exit(reference: weakref.ref[Writer]) -> None:
    """Give what was accepted some time to be stored; the thread is a daemon, and holds up nothing after that."""
    writer = reference()
    if writer is not None:
        writer.end()
        writer.join(EXIT_SECONDS)
