"""`Patience`: bears with a ledger that is out of reach for a while."""

from __future__ import annotations

import logging
import math
from typing import TYPE_CHECKING, Final, TypeVar

import anyio

from graphrt.errors import RunControlError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

_T = TypeVar("_T")

log = logging.getLogger("graphrt.platform")

GIVE_UP_SECONDS: Final = 30.0
"""How long a retryable error of the ledger is borne, by a call or by the polls of a run; then it is raised."""
FIRST_PAUSE: Final = 0.05
"""Seconds before the second try; each further pause is twice as long, up to `LONGEST_PAUSE`."""
LONGEST_PAUSE: Final = 2.0


class Patience:
    """Makes the calls that one run makes to its ledger again, while their errors are retryable.

    Once it has given up, a call has one try only: what is left of a run is not to wait as long a second time.
    """

    def __init__(self, run_id: str) -> None:
        """Take the run, which warnings name."""
        self._run_id = run_id
        self._given_up = False
        self._failing_since = math.inf

    async def call(self, make: Callable[[], Awaitable[_T]]) -> _T:
        """Make a call until it succeeds; it must be one that may be made again when it was carried out unnoticed.

        Raises:
            RunControlError: Its error is not retryable, or is still there when patience ends.
        """
        pause, until = FIRST_PAUSE, anyio.current_time() + GIVE_UP_SECONDS
        while True:
            try:
                return await make()
            except RunControlError as error:
                if not self._bears(error, until):
                    raise
                if pause == FIRST_PAUSE:
                    log.warning("run %r: the ledger is out of reach, and asked again: %s", self._run_id, error.message)
            await anyio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)

    async def poll(self, make: Callable[[], Awaitable[_T]]) -> _T | None:
        """Make a call once, which will be made again in any case; None for an error that may be over by then.

        Raises:
            RunControlError: Its error is not retryable, or patience with the calls made so far ends.
        """
        try:
            found = await make()
        except RunControlError as error:
            self._failing_since = min(self._failing_since, anyio.current_time())
            if not self._bears(error, self._failing_since + GIVE_UP_SECONDS):
                raise
            log.debug("run %r: the ledger is out of reach: %s", self._run_id, error.message)
            return None
        self._failing_since = math.inf
        return found

    def _bears(self, error: RunControlError, until: float) -> bool:
        if not error.retryable:
            return False
        self._given_up = self._given_up or anyio.current_time() >= until
        return not self._given_up
