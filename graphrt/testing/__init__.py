"""Helpers for tests of workflows and agents: yours and graphrt's own."""

from __future__ import annotations

from typing import TYPE_CHECKING

__all__ = [
    "Cut",
    "EventRecorder",
    "FakeClock",
    "Fault",
    "Faults",
    "Faulty",
    "FaultyProvider",
    "RecordedCall",
    "ScriptedProvider",
    "SpanRecorder",
    "assert_no_orphans",
    "cut",
    "delay",
    "fail",
    "fake_time",
    "live_tasks",
    "with_faults",
]

if TYPE_CHECKING:
    from graphrt.llm.scripted import RecordedCall, ScriptedProvider
    from graphrt.testing.faults import Cut, Fault, Faults, Faulty, FaultyProvider, cut, delay, fail, with_faults
    from graphrt.testing.orphans import assert_no_orphans, live_tasks
    from graphrt.testing.recording import EventRecorder, SpanRecorder
    from graphrt.testing.time import FakeClock, fake_time

if not TYPE_CHECKING:
    from graphrt._lazy import lazy_names

    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "graphrt.llm.scripted": ("RecordedCall", "ScriptedProvider"),
            "graphrt.testing.faults": (
                "Cut",
                "Fault",
                "Faults",
                "Faulty",
                "FaultyProvider",
                "cut",
                "delay",
                "fail",
                "with_faults",
            ),
            "graphrt.testing.orphans": ("assert_no_orphans", "live_tasks"),
            "graphrt.testing.recording": ("EventRecorder", "SpanRecorder"),
            "graphrt.testing.time": ("FakeClock", "fake_time"),
        },
    )
