"""`run_sync`: in a script, in a callback, in threads, and interrupted by Ctrl-C (B-125)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from graphrt import END, START, Workflow
from graphrt.testing import assert_no_orphans
from tests.engine.helpers import GUARD, line, until

pytestmark = pytest.mark.anyio
ROOT = Path(__file__).parents[2]


async def one(x: Any) -> int:
    return 1


async def two(x: Any) -> int:
    return 2


class Mine(BaseException):
    """What no `except Exception` sees."""


def mapped(source: Callable[..., Any], body: Any) -> Workflow:
    """Map *body* over *source*."""
    workflow = Workflow("g")
    workflow.add(source, name="source")
    workflow.add(body, name="body")
    workflow.edge(START, "source")
    workflow.map("source", "body")
    workflow.gather("body", END)
    return workflow


async def _pair(x: int) -> list[int]:
    await anyio.lowlevel.checkpoint()
    return [x, x + 1]


async def _plus(item: int) -> int:
    await anyio.lowlevel.checkpoint()
    return item + 1


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
async def test_run_sync_works_inside_a_running_loop(backend: str) -> None:
    """B-125: as in a notebook cell."""
    assert line(one, two).run_sync(1, backend=backend).output == 2


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
async def test_run_sync_works_inside_a_node(backend: str) -> None:
    async def node(x: Any) -> Any:
        return line(two).run_sync(backend=backend).output

    def threaded(x: Any) -> Any:
        return line(two).run_sync(backend=backend).output

    assert (await line(node).run()).output == 2
    assert (await line(threaded).run()).output == 2


def test_run_sync_raises_the_nodes_own_error() -> None:
    async def fails(x: Any) -> int:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no") as caught:
        line(fails).run_sync()
    assert caught.value.__notes__


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, Mine])
@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_run_sync_raises_a_nodes_interrupt(error: type[BaseException], backend: str) -> None:
    async def node(x: Any) -> int:
        raise error

    with pytest.raises(error):
        line(node).run_sync(backend=backend)
    assert_no_orphans()


def test_run_sync_sees_the_callers_context() -> None:
    from contextvars import ContextVar

    variable: ContextVar[str] = ContextVar("variable")
    variable.set("caller's")

    async def node(x: Any) -> str:
        return variable.get()

    assert line(node).run_sync().output == "caller's"


def test_run_sync_in_many_threads_at_once() -> None:
    graph = line(one, two).compile()
    outputs: list[Any] = []
    threads = [
        threading.Thread(target=lambda backend=backend: outputs.append(graph.run_sync(backend=backend).output))
        for backend in ("asyncio", "trio") * 10
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(GUARD)
    assert outputs == [2] * 20


INTERRUPTED = """
import sys, anyio
from graphrt import END, START, Workflow

workflow = Workflow("g")

@workflow.node
async def works(x):
    try:
        print("working", flush=True)
        await anyio.sleep(60)
    finally:
        with anyio.CancelScope(shield=True):
            await anyio.sleep(0.01)
        print("cleaned", flush=True)

workflow.chain(START, works, END)
try:
    workflow.run_sync(backend=sys.argv[1])
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


BUSY = """
import sys
from graphrt import END, START, Workflow

workflow = Workflow("g", max_rounds=10**9)

@workflow.node
async def step(n):
    if n == 1000:
        print("working", flush=True)
    return n + 1

workflow.edge(START, step)
workflow.edge(step, step, when=lambda n: True)
workflow.edge(step, END, when=lambda n: False)
try:
    workflow.run_sync(0, backend=sys.argv[1])
except KeyboardInterrupt:
    print("cleaned", flush=True)
    print("interrupted", flush=True)
"""

ASYNC = INTERRUPTED.replace("workflow.run_sync(backend=sys.argv[1])", "anyio.run(workflow.run, backend=sys.argv[1])")


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@pytest.mark.parametrize("program", [INTERRUPTED, BUSY, ASYNC], ids=["waiting", "busy", "async"])
def test_ctrl_c_cancels_a_run_and_lets_it_clean_up(program: str, backend: str) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", program, backend], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "working\n"
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=GUARD)
    assert output == "cleaned\ninterrupted\n"
    assert errors == ""
    assert process.returncode == 0


def test_ctrl_c_in_this_process_leaves_run_sync_as_keyboard_interrupt() -> None:
    entered = threading.Event()
    cleaned: list[str] = []

    async def works(x: Any) -> int:
        entered.set()
        try:
            await anyio.sleep(GUARD)
        finally:
            cleaned.append("works")
        return 1

    def interrupt() -> None:
        entered.wait(GUARD)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        line(works).run_sync()
    thread.join(GUARD)
    assert cleaned == ["works"]
    assert_no_orphans()


ANY_MOMENT = """
import signal, sys, time, anyio
from graphrt import END, START, Workflow
from graphrt.testing import assert_no_orphans

workflow = Workflow("g")
inside = []

@workflow.node
async def works(x):
    inside.append(1)
    try:
        await anyio.sleep(0.002)
    finally:
        inside.pop()

workflow.chain(START, works, END)

def interrupt(*_):
    raise KeyboardInterrupt

def is_interrupted(seconds):
    try:
        signal.setitimer(signal.ITIMER_REAL, seconds)
        workflow.run_sync(backend=sys.argv[1])
        signal.setitimer(signal.ITIMER_REAL, 0)
    except KeyboardInterrupt:
        return True
    except RuntimeError as error:
        assert "lock" in str(error)  # what Thread.start() makes of an interrupt inside it
    return False

workflow.run_sync(backend=sys.argv[1])
signal.signal(signal.SIGALRM, interrupt)
outcomes = [is_interrupted(0.00002 * (i + 1)) for i in range(150)]
time.sleep(0.05)  # a thread that was given up before it began may be about to end
assert True in outcomes
assert inside == []
assert_no_orphans()
print("nothing left")
"""


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_interrupt_at_any_moment_of_run_sync_leaves_nothing_running(backend: str) -> None:
    """Before its thread has begun, while it begins, at work, at its end."""
    done = subprocess.run(
        [sys.executable, "-c", ANY_MOMENT, backend], cwd=ROOT, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.stdout == "nothing left\n", done.stderr


async def test_two_runs_of_one_graph_from_two_threads() -> None:
    graph = mapped(_pair, _plus).compile()
    outputs: list[Any] = []
    thread = threading.Thread(target=lambda: outputs.append(graph.run_sync(5, backend="trio").output))
    thread.start()
    outputs.append((await graph.run(5)).output)
    with anyio.fail_after(GUARD):
        await until(lambda: not thread.is_alive())
    assert outputs == [[6, 7], [6, 7]]
