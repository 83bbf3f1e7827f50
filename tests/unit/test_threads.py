"""Worker threads: what a task gets back from them, and what it leaves behind."""

from __future__ import annotations

import functools
import gc
import signal
import subprocess
import sys
import threading
import weakref
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

import anyio
import anyio.lowlevel
import pytest
from opentelemetry import trace

from graphrt import threads
from graphrt.errors import GraphrtError
from graphrt.threads import ThreadIterator, abandoned_count, call_soon, run_in_thread

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

both_backends = pytest.mark.parametrize("backend", ["asyncio", "trio"])

COLOUR: ContextVar[str] = ContextVar("COLOUR", default="none")


@pytest.fixture(autouse=True)
def pool(monkeypatch: pytest.MonkeyPatch) -> threads._Pool:
    """A pool of the test's own, so that no thread of another test is counted or reused."""
    fresh = threads._Pool()
    monkeypatch.setattr(threads, "_pool", fresh)
    return fresh


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """What the test's functions wait for; open at the latest when the test ends."""
    event = threading.Event()
    yield event
    event.set()


async def until(holds: Callable[[], bool]) -> None:
    """Wait for something that a thread does; fail after 10 seconds."""
    with anyio.fail_after(10):
        while not holds():  # noqa: ASYNC110  what is waited for is no event of this loop
            await anyio.sleep(0.001)


async def abandon(fn: Callable[[], object], *, times: int = 1, **options: Any) -> None:
    """Call *fn* in *times* threads, and cancel the calls when each is in its thread."""
    inside = threading.Semaphore(0)

    def call() -> object:
        inside.release()
        return fn()

    functools.update_wrapper(call, fn)
    async with anyio.create_task_group() as tasks:
        for _ in range(times):
            tasks.start_soon(functools.partial(run_in_thread, call, **options))
        entered = 0
        while entered < times:
            entered += inside.acquire(blocking=False)
            await anyio.lowlevel.checkpoint()
        tasks.cancel_scope.cancel()


# --- what comes back ----------------------------------------------------------------------------------------


@pytest.mark.anyio
async def test_function_runs_in_another_thread_and_its_result_comes_back() -> None:
    def work(left: int, right: int) -> tuple[int, int]:
        return left + right, threading.get_ident()

    total, thread = await run_in_thread(work, 2, 3)

    assert total == 5
    assert thread != threading.get_ident()


@pytest.mark.anyio
@pytest.mark.parametrize("kind", [ValueError, KeyboardInterrupt, SystemExit])
async def test_exception_of_the_function_reaches_the_caller_as_it_is(kind: type[BaseException]) -> None:
    error = kind("disk full")

    def work() -> None:
        raise error

    with pytest.raises(kind) as caught:
        await run_in_thread(work)

    assert caught.value is error
    assert "work" in [entry.name for entry in caught.traceback]


@pytest.mark.anyio
async def test_stop_iteration_is_wrapped_and_names_the_function() -> None:
    def work() -> None:
        raise StopIteration(3)

    with pytest.raises(RuntimeError, match=r"work' raised StopIteration") as caught:
        await run_in_thread(work)

    assert isinstance(caught.value.__cause__, StopIteration)


@pytest.mark.anyio
async def test_cancellation_raised_by_the_function_does_not_pass_for_the_callers_own() -> None:
    # trio's class cannot be made by hand, so it is caught where it is made.
    with anyio.CancelScope() as scope:
        scope.cancel()
        try:
            await anyio.lowlevel.checkpoint()
        except anyio.get_cancelled_exc_class() as error:
            cancelled = error
            raise

    def work() -> None:
        raise cancelled

    with pytest.raises(GraphrtError, match="in its thread"):
        await run_in_thread(work)


@pytest.mark.anyio
async def test_result_is_freed_when_the_caller_drops_it(pool: threads._Pool) -> None:
    class Big:
        pass

    result = await run_in_thread(Big)
    alive = weakref.ref(result)
    del result
    await until(lambda: len(pool._idle) == 1)
    await run_in_thread(gc.collect)

    assert alive() is None


@pytest.mark.anyio
async def test_failed_call_leaves_no_cycle_for_the_collector() -> None:
    class OddError(Exception):
        pass

    def work() -> None:
        raise OddError

    gc.disable()
    try:
        with pytest.raises(OddError) as caught:
            await run_in_thread(work)
        alive = weakref.ref(caught.value)
        del caught
        await run_in_thread(int)
        assert alive() is None
    finally:
        gc.enable()


# --- context ------------------------------------------------------------------------------------------------


@pytest.mark.anyio
async def test_context_variables_and_span_are_seen_in_the_thread_and_changes_stay_there() -> None:
    """B-109."""
    span = trace.NonRecordingSpan(trace.SpanContext(trace_id=7, span_id=8, is_remote=False))
    COLOUR.set("red")

    def work() -> tuple[str, int]:
        seen = COLOUR.get()
        COLOUR.set("blue")
        return seen, trace.get_current_span().get_span_context().span_id

    with trace.use_span(span):
        assert await run_in_thread(work) == ("red", 8)
        assert await run_in_thread(work) == ("red", 8)
    assert COLOUR.get() == "red"


@pytest.mark.anyio
@both_backends
async def test_function_may_run_an_event_loop_of_its_own(backend: str) -> None:
    async def inner() -> str:
        await anyio.lowlevel.checkpoint()
        return await run_in_thread(str.upper, "deep")

    assert await run_in_thread(lambda: anyio.run(inner, backend=backend)) == "DEEP"


# --- many at once -------------------------------------------------------------------------------------------


@pytest.mark.anyio
async def test_ten_blocking_calls_run_at_once() -> None:
    """B-052: each waits in its thread for the other nine."""
    everyone = threading.Barrier(10, timeout=10)

    async with anyio.create_task_group() as tasks:
        for _ in range(10):
            tasks.start_soon(functools.partial(run_in_thread, everyone.wait))


@pytest.mark.anyio
async def test_idle_thread_takes_the_next_call() -> None:
    first = await run_in_thread(threading.get_ident)
    second = await run_in_thread(threading.get_ident)

    assert first == second


@pytest.mark.anyio
async def test_idle_thread_ends_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "IDLE_SECONDS", 0.001)

    thread = await run_in_thread(threading.current_thread)

    await until(lambda: not thread.is_alive())
    assert await run_in_thread(lambda: "again") == "again"


@pytest.mark.anyio
async def test_thread_that_was_given_a_job_does_not_retire(pool: threads._Pool) -> None:
    await run_in_thread(int)
    worker = pool._idle.pop()  # what start() does before it hands over the job

    assert not pool.retire(worker)


def test_two_loops_in_two_threads_share_the_pool() -> None:
    everyone = threading.Barrier(4, timeout=10)
    answers: list[str] = []

    async def main(name: str) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(functools.partial(run_in_thread, everyone.wait))
            tasks.start_soon(functools.partial(run_in_thread, everyone.wait))
        answers.append(await run_in_thread(str.upper, name))

    loops = [
        threading.Thread(target=functools.partial(anyio.run, main, name, backend=name)) for name in ("asyncio", "trio")
    ]
    for loop in loops:
        loop.start()
    for loop in loops:
        loop.join(10)

    assert sorted(answers) == ["ASYNCIO", "TRIO"]


@pytest.mark.anyio
async def test_refused_thread_is_an_error_that_names_the_function(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    with pytest.raises(GraphrtError, match=r"a thread for .str\.upper."):
        await run_in_thread(functools.partial(str.upper, "text"))
    reader = ThreadIterator(iter([1]))
    with pytest.raises(GraphrtError, match="cannot start a thread"):
        await anext(reader)

    monkeypatch.undo()
    assert await anext(reader) == 1


# --- leaving a thread behind --------------------------------------------------------------------------------


@pytest.mark.anyio
async def test_cancelled_call_returns_while_its_thread_is_still_busy(gate: threading.Event) -> None:
    """B-049."""
    reports: list[str] = []

    await abandon(gate.wait, on_abandon=lambda: reports.append("left"))

    assert not gate.is_set()
    assert abandoned_count() == 1
    assert reports == ["left"]
    gate.set()
    await until(lambda: abandoned_count() == 0)
    assert reports == ["left"]


@pytest.mark.anyio
async def test_call_out_of_time_is_a_timeout_and_its_late_result_changes_nothing(
    gate: threading.Event,
) -> None:
    """B-049."""
    outcome: list[object] = []

    with pytest.raises(TimeoutError):
        with anyio.fail_after(0.01):
            outcome.append(await run_in_thread(gate.wait))
    gate.set()
    await until(lambda: abandoned_count() == 0)

    assert outcome == []


@pytest.mark.anyio
async def test_abandoned_thread_takes_no_other_call_and_ends_with_its_function(gate: threading.Event) -> None:
    seen: list[threading.Thread] = []

    def work() -> None:
        seen.append(threading.current_thread())
        gate.wait()

    await abandon(work)
    other = await run_in_thread(threading.current_thread)
    gate.set()
    await until(lambda: not seen[0].is_alive())

    assert other is not seen[0]


@pytest.mark.anyio
async def test_late_exception_of_an_abandoned_thread_is_dropped(gate: threading.Event) -> None:
    def work() -> None:
        gate.wait()
        raise KeyboardInterrupt

    await abandon(work)
    gate.set()

    await until(lambda: abandoned_count() == 0)


@pytest.mark.anyio
async def test_call_in_a_cancelled_scope_does_not_start() -> None:
    calls: list[int] = []

    with anyio.CancelScope() as scope:
        scope.cancel()
        await run_in_thread(calls.append, 1)

    assert calls == []
    assert abandoned_count() == 0


@pytest.mark.anyio
async def test_finished_call_is_not_reported_as_abandoned() -> None:
    reports: list[str] = []

    await run_in_thread(int, on_abandon=lambda: reports.append("left"))

    assert reports == []


@pytest.mark.anyio
async def test_too_many_abandoned_threads_are_an_error_that_names_them(gate: threading.Event) -> None:
    def fetch() -> None:
        gate.wait()

    await abandon(fetch, times=threads.MAX_ABANDONED)

    assert abandoned_count() == 64
    with pytest.raises(GraphrtError, match=r"64 abandoned threads .*64 in .*fetch") as caught:
        await run_in_thread(int)
    assert "async def" in str(caught.value)
    with pytest.raises(GraphrtError, match="64 abandoned"):
        await anext(ThreadIterator(iter([1])))
    gate.set()
    await until(lambda: abandoned_count() == 0)
    assert await run_in_thread(int) == 0


@both_backends
def test_loop_may_end_before_the_thread_does(backend: str, gate: threading.Event) -> None:
    ended = threading.Event()

    def work() -> None:
        gate.wait()
        ended.set()

    anyio.run(abandon, work, backend=backend)
    assert abandoned_count() == 1
    gate.set()

    assert ended.wait(10)


@both_backends
def test_call_on_a_loop_that_has_ended_is_dropped(backend: str) -> None:
    async def token() -> anyio.lowlevel.EventLoopToken:
        return anyio.lowlevel.current_token()

    calls: list[int] = []

    assert not call_soon(anyio.run(token, backend=backend), calls.append, 1)
    assert calls == []


@pytest.mark.anyio
async def test_thread_can_have_a_function_called_on_the_loop() -> None:
    called = anyio.Event()
    here = threading.get_ident()
    where: list[int] = []
    token = anyio.lowlevel.current_token()

    def on_loop() -> None:
        where.append(threading.get_ident())
        called.set()

    assert await run_in_thread(call_soon, token, on_loop)
    with anyio.fail_after(10):
        await called.wait()

    assert where == [here]


# --- the process around -------------------------------------------------------------------------------------

BUSY = """
import sys, threading, anyio
from graphrt.threads import abandoned_count, run_in_thread

def work():
    print("inside", flush=True)
    threading.Event().wait()

async def main():
    with anyio.move_on_after({seconds}):
        await run_in_thread(work)
    print("abandoned", abandoned_count(), flush=True)

anyio.run(main, backend={backend!r})
"""


@both_backends
def test_busy_thread_does_not_hold_up_the_end_of_the_process(backend: str) -> None:
    script = BUSY.format(seconds=0.05, backend=backend)

    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)

    assert (done.returncode, done.stdout.split()) == (0, ["inside", "abandoned", "1"]), done.stderr


@both_backends
def test_interrupt_ends_a_process_that_waits_for_a_thread(backend: str) -> None:
    script = BUSY.format(seconds="float('inf')", backend=backend)

    with subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "inside\n"
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)

    assert "KeyboardInterrupt" in errors
    assert process.returncode != 0


def test_forked_child_starts_threads_of_its_own() -> None:
    script = """
import os, warnings, anyio
from graphrt.threads import run_in_thread

async def main():
    return await run_in_thread(lambda: 7)

assert anyio.run(main) == 7
warnings.simplefilter("ignore")  # newer Pythons warn of a fork beside threads
child = os.fork()
if child == 0:
    os._exit(anyio.run(main))
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)

    assert done.stdout == "7\n", done.stderr


# --- iterators ----------------------------------------------------------------------------------------------


@pytest.mark.anyio
async def test_generator_is_read_one_item_at_a_time_off_the_loop() -> None:
    steps: list[str] = []

    def numbers() -> Iterator[int]:
        for number in range(3):
            steps.append(f"made {number}")
            assert threading.current_thread() is not threading.main_thread()
            yield number

    async with ThreadIterator(numbers()) as reader:
        async for number in reader:
            steps += [f"read {number}"]

    assert steps == ["made 0", "read 0", "made 1", "read 1", "made 2", "read 2"]


@pytest.mark.anyio
async def test_generator_keeps_one_context_from_item_to_item() -> None:
    COLOUR.set("red")

    def colours() -> Iterator[str]:
        yield COLOUR.get()
        COLOUR.set("blue")
        yield COLOUR.get()
        yield COLOUR.get()

    reader = ThreadIterator(colours())
    COLOUR.set("green")

    assert [colour async for colour in reader] == ["red", "blue", "blue"]
    assert COLOUR.get() == "green"


@pytest.mark.anyio
async def test_leaving_early_closes_the_generator() -> None:
    steps: list[str] = []

    def numbers() -> Iterator[int]:
        try:
            yield 1
            yield 2
        finally:
            steps.append("closed")

    reader = ThreadIterator(numbers())
    async with reader:
        assert await anext(reader) == 1
    await reader.aclose()

    assert steps == ["closed"]
    assert [item async for item in reader] == []


@pytest.mark.anyio
async def test_generator_left_while_it_computes_is_closed_by_its_thread(gate: threading.Event) -> None:
    steps: list[str] = []
    inside = threading.Event()

    def numbers() -> Iterator[int]:
        try:
            inside.set()
            gate.wait()
            yield 1
        finally:
            steps.append("closed")

    async def read(reader: ThreadIterator[int]) -> None:
        async with reader:
            await anext(reader)

    reader = ThreadIterator(numbers(), on_abandon=lambda: steps.append("left"))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(read, reader)
        await until(inside.is_set)
        tasks.cancel_scope.cancel()
    assert steps == ["left"]
    gate.set()
    await until(lambda: abandoned_count() == 0)

    assert steps == ["left", "closed"]


@pytest.mark.anyio
async def test_close_of_a_cancelled_reader_happens_all_the_same() -> None:
    closed = threading.Event()

    def numbers() -> Iterator[int]:
        try:
            yield 1
        finally:
            closed.set()

    with anyio.CancelScope() as scope:
        async with ThreadIterator(numbers()) as reader:
            await anext(reader)
            scope.cancel()

    await until(closed.is_set)


@pytest.mark.anyio
async def test_error_of_the_generator_reaches_the_reader_and_ends_it() -> None:
    def numbers() -> Iterator[int]:
        yield 1
        raise ValueError("bad row")

    async with ThreadIterator(numbers()) as reader:
        assert await anext(reader) == 1
        with pytest.raises(ValueError, match="bad row"):
            await anext(reader)
        with pytest.raises(StopAsyncIteration):
            await anext(reader)


@pytest.mark.anyio
async def test_second_reader_is_refused(gate: threading.Event) -> None:
    inside = threading.Event()

    def numbers() -> Iterator[int]:
        inside.set()
        gate.wait()
        yield 1

    reader = ThreadIterator(numbers())
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(anext, reader)
        await until(inside.is_set)
        with pytest.raises(GraphrtError, match="two tasks read"):
            await anext(reader)
        gate.set()


@pytest.mark.anyio
async def test_iterator_that_is_no_generator_stays_open() -> None:
    rest = iter([1, 2, 3])

    async with ThreadIterator(rest) as reader:
        assert await anext(reader) == 1

    assert list(rest) == [2, 3]
