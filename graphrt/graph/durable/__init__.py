"""Durable runs: what a run has done is stored as it is done, and a run that was left is taken up again (E25, E26)."""

from __future__ import annotations

from typing import TYPE_CHECKING

__all__ = ["Ledger", "WorkReport", "Worker", "enqueue"]

if TYPE_CHECKING:
    from graphrt.graph.durable.queued import enqueue
    from graphrt.graph.durable.work import Ledger
    from graphrt.graph.durable.worker import Worker, WorkReport

if not TYPE_CHECKING:
    from graphrt._lazy import lazy_names

    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "graphrt.graph.durable.queued": ("enqueue",),
            "graphrt.graph.durable.work": ("Ledger",),
            "graphrt.graph.durable.worker": ("WorkReport", "Worker"),
        },
    )
