"""Notes on exceptions of the user's, which may refuse them."""

from __future__ import annotations


def add_note(error: BaseException, note: str) -> None:
    """Add *note* to *error*, unless it takes none."""
    try:
        error.add_note(note)
    except Exception:  # noqa: BLE001, S110 - a class that lets nothing be set, as a frozen dataclass: the error counts
        pass


def set_context(error: BaseException, context: BaseException) -> None:
    """Say that *error* came up while *context* was handled, also where its class lets nothing be set."""
    BaseException.__setattr__(error, "__context__", context)
