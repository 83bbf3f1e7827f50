"""How states are told where nothing can be drawn: a character before the name, as well as a colour."""

from __future__ import annotations

from typing import Final

CHARACTERS: Final = {
    "pending": "·",
    "running": "▶",
    "waiting": "‖",
    "succeeded": "✓",
    "failed": "✗",
    "skipped": "»",
    "cancelled": "⊘",
    "timed_out": "◷",
}
ASCII: Final = {
    "pending": ".",
    "running": ">",
    "waiting": "=",
    "succeeded": "+",
    "failed": "x",
    "skipped": "~",
    "cancelled": "/",
    "timed_out": "@",
}
