"""Helpers for tests of workflows: yours and graphrt's own."""

from __future__ import annotations

from typing import TYPE_CHECKING

__all__ = ["assert_no_orphans", "live_tasks"]

if TYPE_CHECKING:
    from graphrt.testing.orphans import assert_no_orphans, live_tasks

if not TYPE_CHECKING:
    from graphrt._lazy import lazy_names

    __getattr__, __dir__ = lazy_names(__name__, {"graphrt.testing.orphans": ("assert_no_orphans", "live_tasks")})
