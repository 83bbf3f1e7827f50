"""Stepping a coroutine in a context of its own, inside the task that runs the worker.

A step needs no task of its own: its coroutine is stepped at once, in its own copy of the caller's context, and only
when it really suspends does another worker take over what else is ready. Cancel scopes, which belong to tasks, work
as ever, since the coroutine is never moved to another task.
"""

from __future__ import annotations

from types import coroutine
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator
    from contextvars import Context


@coroutine
def rest(coro: Coroutine[Any, Any, Any], context: Context, pending: Any) -> Generator[Any, Any, Any]:
    """Go on with *coro*, which has suspended on *pending*, to its end, every step of it in *context*."""
    send, throw, run = coro.send, coro.throw, context.run
    try:
        while True:
            try:
                sent = yield pending
            except BaseException as error:  # noqa: BLE001 - whatever the event loop throws is the coroutine's to handle
                pending = run(throw, error)
            else:
                pending = run(send, sent)
    except StopIteration as end:
        return end.value


async def drive(coro: Coroutine[Any, Any, Any], context: Context, suspended: Callable[[], None]) -> Any:
    """Run *coro* to its end in *context*; call *suspended* when it first really waits."""
    try:
        pending = context.run(coro.send, None)
    except StopIteration as end:
        return end.value
    suspended()
    return await rest(coro, context, pending)
