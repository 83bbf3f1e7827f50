"""`RunJournal`: writes down what a runner says, and repairs what can be repaired."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from graphrt.errors import RunControlError
from graphrt.ledger.requests import TERMINAL_TYPES, as_json, check_payload
from graphrt.platform.results import AgentRunResult

if TYPE_CHECKING:
    from collections.abc import Container

    from graphrt.ledger.control import RunControl
    from graphrt.ledger.records import AgentRun

log = logging.getLogger("graphrt.platform")

MAX_SEQUENCE: Final = 2**63 - 1
"""The largest number that a ledger holds."""
_DROPPED: Final = frozenset({"invalid_argument", "unauthorized", "payload_too_large"})
"""Refusals of a single result, after which the run goes on."""


def place(sequence: Any, highest: int, stored: Container[int]) -> int | None:
    """Give a result its number: its own where that goes on from *highest*, else the next one; None for a duplicate."""
    fits = type(sequence) is int and 1 <= sequence <= MAX_SEQUENCE
    if fits and sequence > highest:
        return int(sequence)
    return None if fits and sequence in stored else highest + 1


class RunJournal:
    """Writes the results of one run into the ledger, in their order.

    It is forgiving where run control is strict: a result that cannot be stored is dropped with a warning, a number
    that does not fit is replaced, and what comes a second time is left out.
    """

    def __init__(self, control: RunControl, run: AgentRun, *, claim_token: str | None = None) -> None:
        """Take the run, and the token of its claim if it has one."""
        self._control = control
        self._run = run
        self._token = claim_token
        self._highest = 0
        self._stored: set[int] = set()

    async def open(self) -> None:
        """Find out what the run has already."""
        cursor, more = None, True
        while more:
            page = await self._control.page_run_events(self._run.run_id, cursor, 1000)
            self._stored.update(event.sequence for event in page.items)
            cursor, more = page.next_cursor, page.has_more
        self._highest = max(self._stored, default=0)

    async def record(self, result: Any, *, source: str = "runner") -> AgentRunResult | None:
        """Write a result down, and give it as it is stored; None when it was dropped.

        Raises:
            RunControlError: The ledger takes nothing of this run: it is over, claimed by another, or out of reach.
        """
        try:
            known = self._normal(result)
            sequence = self._number(known)
            if sequence is None:
                return None
            known = replace(known, sequence=sequence)
            event = await self._control.append_run_result(
                self._run.run_id, known, claim_token=self._token, source=source
            )
        except RunControlError as error:
            if error.code not in _DROPPED:
                raise
            log.warning("run %r: a result was dropped: %s", self._run.run_id, error.message)
            return None
        self._highest = event.sequence
        self._stored.add(event.sequence)
        return known

    def _normal(self, result: Any) -> AgentRunResult:
        """Give a result in its one form.

        Raises:
            RunControlError: It is none, belongs to another run, or lacks what its type has to hold.
        """
        run_id = self._run.run_id
        if isinstance(result, Mapping):
            try:
                result = AgentRunResult(**{"run_id": run_id, **result})
            except TypeError as error:
                raise RunControlError("invalid_argument", f"{result!r} is no result: {error}") from error
        if not isinstance(result, AgentRunResult) or not isinstance(result.type, str) or not result.type:
            raise RunControlError("invalid_argument", f"{type(result).__name__} is no AgentRunResult")
        if result.run_id != run_id:
            raise RunControlError("invalid_argument", f"it belongs to run {result.run_id!r}")
        known: AgentRunResult = replace(result, type=str(result.type))
        try:
            if not isinstance(known.data, Mapping):
                raise RunControlError("invalid_argument", f"the data of {known.type!r} are no mapping")
            check_payload(known.type, known.data)
            if known.type in TERMINAL_TYPES:
                as_json(known.data, "the data")
        except RunControlError as error:
            if known.type not in TERMINAL_TYPES:
                raise
            log.warning("run %r: the data of its last result were replaced: %s", run_id, error.message)
            return replace(known, data=_least(known))
        return known

    def _number(self, result: AgentRunResult) -> int | None:
        given = result.sequence
        sequence = place(given, self._highest, self._stored)
        if sequence is None:
            log.warning("run %r: sequence %s came again, and was dropped", self._run.run_id, given)
        elif given is not None and sequence != given:
            log.warning("run %r: sequence %r does not fit, and became %s", self._run.run_id, given, sequence)
        return sequence


def _least(result: AgentRunResult) -> dict[str, Any]:
    """Give what is left of the data of a last result that does not hold what it has to."""
    if result.type != "run.failed":
        return {}
    error = result.data.get("error") if isinstance(result.data, Mapping) else result.data
    return {"error": str(error or "the runner gave no reason")}
