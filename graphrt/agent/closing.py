"""Closing what a runtime owns: all of it, whatever happens on the way."""

from __future__ import annotations

import inspect
import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import anyio

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

log = logging.getLogger(__name__)

CLOSE_SECONDS: Final = 10.0
"""What one of them may take; then it is given up, and the next one closed."""


@contextmanager
def second_to(failure: BaseException | None) -> Iterator[None]:
    """Let what the block raises be logged only, where there is a *failure* that it would hide."""
    try:
        yield
    except Exception:
        if failure is None:
            raise
        log.exception("closing failed after %s", type(failure).__name__)


async def close_all(owned: Iterable[Any]) -> None:
    """Call `aclose` of each, if it has one, also while the caller is being cancelled.

    Raises:
        Exception: What one of them raised; an `ExceptionGroup` when several did. All have been tried.
    """
    errors: list[Exception] = []
    for each in owned:
        close = getattr(each, "aclose", None)
        if close is None:
            continue
        with anyio.move_on_after(CLOSE_SECONDS, shield=True) as scope:
            try:
                closing = close()
                if inspect.isawaitable(closing):
                    await closing
            except Exception as error:  # noqa: BLE001 - raised when the others have been closed
                errors.append(error)
        if scope.cancelled_caught:
            log.error("%r was not closed within %g s", each, CLOSE_SECONDS)
    if len(errors) == 1:
        raise errors[0]
    if errors:
        raise ExceptionGroup("some of what the runtime owns could not be closed", errors)
