"""Notes on exceptions of the user's, which may refuse them."""

from __future__ import annotations

from contextlib import suppress


def add_note(error: BaseException, note: str) -> None:
    """Add *note* to *error*, unless it takes none."""
    with suppress(Exception):  # a class that lets nothing be set, as a frozen dataclass: the error counts, not its note
        error.add_note(note)


def set_context(error: BaseException, context: BaseException) -> None:
    """Say that *error* came up while *context* was handled, also where its class lets nothing be set."""
    BaseException.__setattr__(error, "__context__", context)
