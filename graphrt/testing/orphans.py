"""Nothing of a run may outlive it: no task, and no thread that was not reported as abandoned."""

from __future__ import annotations

import gc
import threading
from types import CoroutineType

from graphrt.agent.watching import Watched
from graphrt.graph.scheduler.clocks import Clocks
from graphrt.graph.scheduler.resources import _Resource
from graphrt.graph.scheduler.run import GraphScheduler
from graphrt.graph.scheduler.stream import RunStream

_CODES = frozenset(
    fn.__code__
    for fn in (
        GraphScheduler.run,
        GraphScheduler._worker,
        Clocks._watch,
        Clocks._until,
        RunStream._drive,
        Watched._drive,
        _Resource.own,
    )
)


def live_tasks() -> list[str]:
    """Name what of graphrt's runs has started and not ended, in any event loop of this process."""
    found = [
        f"task in {o.cr_code.co_qualname}"
        for o in gc.get_objects()
        if type(o) is CoroutineType and o.cr_code in _CODES and o.cr_frame is not None and o.cr_suspended
    ]
    found += [f"thread {t.name}" for t in threading.enumerate() if t.name.startswith("graphrt-run-sync")]
    return found


def assert_no_orphans() -> None:
    """Assert that every run of this process has ended with all its tasks; call it after a test.

    Raises:
        AssertionError: Something of a run is left; the message names it.
    """
    left = live_tasks()
    if left:
        gc.collect()  # a coroutine that nobody can reach any more is no task
        left = live_tasks()
    assert not left, f"left over from a run: {', '.join(left)}"
