"""Ctrl-C and SIGTERM, as something to be told of."""

from __future__ import annotations

import signal
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Final

import anyio

if TYPE_CHECKING:
    from collections.abc import Callable

    from anyio.abc import TaskStatus

SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


async def watch_signals(on_signal: Callable[[signal.Signals], bool], *, task_status: TaskStatus[None]) -> None:
    """Tell of each signal, until *on_signal* gives False: the next one is Python's own again.

    Where signals cannot be caught nothing is told, and Ctrl-C is an exception.
    """
    with ExitStack() as stack:
        received = None
        # Only the main thread may catch signals, and not every event loop can.
        with suppress(NotImplementedError, RuntimeError, ValueError):
            received = stack.enter_context(anyio.open_signal_receiver(*SIGNALS))
        task_status.started()
        if received is None:
            return
        async for number in received:
            if not on_signal(number):
                return
