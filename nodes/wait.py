"""A node that waits for a time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, cast

import anyio

from graphrt.errors import ConfigError, GraphTypeError
from graphrt.graph.protocols import NodeKind
from graphrt.graph.signature import MISSING, NodeSignature, Param
from graphrt.nodes.given import is_function, parameters_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from graphrt.graph.scheduler.context import RunContext

_VALUE: Final = Param("value", Any, None)
_LONGEST: Final = 3e10
"""Seconds; about a thousand years, which the calendar still holds."""
_LENGTH: Final = "give a number of seconds, or until="
_TIME: Final = "give a time with a zone, such as datetime.now(UTC) + timedelta(hours=1)"


class Wait:
    """Wait for a time, and give on the value that came in. The run waits meanwhile, and holds no slot.

    The time is `seconds` after the step's start, or `until` it is: a value, or a function that makes it of the node's
    inputs, which are then the function's parameters; the first is what the node gives on. A time that has passed has
    come. The waiting counts in no time limit but `deadline_at`. A run with a ledger keeps the time: taken up again, it
    waits no longer than it would have, and while it waits for long no process need be at work on it.
    """

    kind = NodeKind.TIMER

    def __init__(
        self,
        name: str,
        *,
        seconds: float | Callable[..., float] | None = None,
        until: datetime | Callable[..., datetime] | None = None,
        type: Any = MISSING,
    ) -> None:
        """Take the time.

        Args:
            name: Name of the node.
            seconds: How long to wait from the start of the step; from a function, less than 0 is 0.
            until: The time, with a zone.
            type: The declared type of the value; that of the function's first parameter when left out.

        Raises:
            ConfigError: There is not exactly one of *seconds* and *until*, or it is no such thing.
            GraphError: It is a function that is async, yields, or takes the run's context.
        """
        if (seconds is None) == (until is None):
            raise ConfigError(f"node {name!r} waits for one time", hint="give it seconds= or until=")
        self._name = name
        self._by_seconds = seconds is not None
        self._time = cast("Any", seconds if self._by_seconds else until)
        self._params: tuple[Param, ...] = (_VALUE,)
        self._of_inputs = False
        self._type = type
        if is_function(self._time):
            found = parameters_of(self._time, name=name, what="seconds" if self._by_seconds else "time")
            self._of_inputs = bool(found)
            if found:
                self._params = found
                self._type = found[0].annotation if type is MISSING else type
        elif not self._fits(self._time) or (self._by_seconds and self._time < 0):
            raise ConfigError(self._odd(self._time), hint=_LENGTH if self._by_seconds else _TIME)

    @property
    def name(self) -> str:
        """Name of the node."""
        return self._name

    @property
    def signature(self) -> NodeSignature:
        """Takes what the time is made of, else `value`, which may be missing; gives the first of it."""
        return NodeSignature(self._params, self._type)

    def due(self, inputs: Mapping[str, Any], now: datetime) -> datetime:
        """Give the time, in UTC; raises what its function raises.

        Raises:
            GraphTypeError: The function gave no time.
        """
        given = self._time
        if is_function(given):
            given = given(**inputs) if self._of_inputs else given()
        if not self._fits(given):
            raise GraphTypeError(self._odd(given), hint=_LENGTH if self._by_seconds else _TIME)
        until: datetime = now + timedelta(seconds=max(0.0, given)) if self._by_seconds else given
        return until.astimezone(UTC)

    def passed_on(self, inputs: Mapping[str, Any]) -> Any:
        """Give the first input."""
        return inputs[self._params[0].name]

    async def run(self, inputs: Mapping[str, Any], ctx: RunContext[Any]) -> Any:
        """Wait here and now; in a graph the engine waits instead."""
        now = datetime.now(UTC)
        await anyio.sleep(max(0.0, (self.due(inputs, now) - now).total_seconds()))
        return self.passed_on(inputs)

    def _odd(self, given: Any) -> str:
        if self._by_seconds:
            return f"node {self._name!r} waits {given!r} seconds, which is no length of time"
        return f"node {self._name!r} waits until {given!r}, which is no time with a zone"

    def _fits(self, given: Any) -> bool:
        if self._by_seconds:
            return isinstance(given, (int, float)) and not isinstance(given, bool) and given < _LONGEST
        return isinstance(given, datetime) and given.utcoffset() is not None
