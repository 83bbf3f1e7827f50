"""What runs ask a person while they wait, and the answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeAlias

import anyio
import anyio.lowlevel

from graphrt.errors import ConfigError
from graphrt.graph.protocols import Question
from graphrt.threads import call_soon

if TYPE_CHECKING:
    from anyio.lowlevel import EventLoopToken

OnAsk: TypeAlias = Callable[[Question], Any]
"""Answers a question, async or not: True, False, or an `Approval`."""


@dataclass(slots=True, eq=False)
class _Open:
    question: Question
    loop: EventLoopToken = field(default_factory=anyio.lowlevel.current_token)
    event: anyio.Event = field(default_factory=anyio.Event)
    answer: Any = None


class Questions:
    """The open questions of a session's or a runtime's runs; each waits, without holding up others, for its answer."""

    def __init__(self) -> None:
        self._open: dict[str, _Open] = {}

    def open(self) -> list[Question]:
        """List the questions that wait, in the order in which they were asked."""
        return [each.question for each in self._open.values()]

    def of(self, run_id: str) -> OnAsk:
        """Give what answers the questions of one run, by waiting for `answer()`.

        Their ids begin with that of the run, and are different for all that are open.
        """

        async def ask(question: Question) -> Any:
            id = f"{run_id}:{question.id}"
            while id in self._open:
                id += "'"
            entry = self._open[id] = _Open(replace(question, id=id))
            try:
                await entry.event.wait()
            finally:
                self._open.pop(id, None)
            return entry.answer

        return ask

    async def answer(self, question_id: str, value: Any) -> None:
        """Answer an open question, from any event loop.

        Its id may be given as the events of its run have it, where only one run asks that.

        Raises:
            ConfigError: No question of this id is open.
            GraphTypeError: The answer does not fit the question, which stays open.
        """
        entry = self._entry(question_id)
        if entry.question.check is not None:
            entry.question.check(value)
        del self._open[entry.question.id]
        entry.answer = value
        call_soon(entry.loop, entry.event.set)
        await anyio.lowlevel.checkpoint()

    def _entry(self, question_id: str) -> _Open:
        """Find a question by its id, or by the one that it has in its run, if that is no other's too."""
        found = [each for id, each in self._open.items() if id == question_id]
        found = found or [each for id, each in self._open.items() if id.endswith(f":{question_id}")]
        if len(found) == 1:
            return found[0]
        which = f"no question {question_id!r} is open" if not found else f"{len(found)} runs ask {question_id!r}"
        raise ConfigError(which, hint=f"open are: {', '.join(self._open) or 'none'}")
