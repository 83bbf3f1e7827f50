"""What runs ask a person while they wait, and the answers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeAlias

import anyio
import anyio.lowlevel
from pydantic import ValidationError

from graphrt.errors import ConfigError, GraphTypeError
from graphrt.graph.protocols import Question
from graphrt.nodes.approval import Approval
from graphrt.threads import call_soon
from graphrt.tools.permission import PermissionDecision

if TYPE_CHECKING:
    from anyio.lowlevel import EventLoopToken

OnAsk: TypeAlias = Callable[[Question], Awaitable[Any]]
"""Answers a question: True, False, or an `Approval`."""


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

        Raises:
            ConfigError: No question of this id is open.
            GraphTypeError: The answer does not fit the question, which stays open.
        """
        entry = self._open.get(question_id)
        if entry is None:
            raise ConfigError(
                f"no question {question_id!r} is open",
                hint=f"open are: {', '.join(self._open) or 'none'}",
            )
        _check_answer(value, question_id)
        del self._open[question_id]
        entry.answer = value
        call_soon(entry.loop, entry.event.set)
        await anyio.lowlevel.checkpoint()


def _check_answer(value: object, question_id: str) -> None:
    """Refuse what is no word on a call of a tool, which is all that agents ask about.

    Raises:
        GraphTypeError: It is none.
    """
    if isinstance(value, (bool, Approval, PermissionDecision)):
        return
    try:
        if isinstance(value, Mapping):
            Approval.model_validate(value)
            return
    except ValidationError as error:
        cause: ValidationError | None = error
    else:
        cause = None
    raise GraphTypeError(
        f"{value!r} is no answer to {question_id!r}",
        hint="answer True, False, or {'approved': ..., 'reason': ..., 'arguments': ...}",
    ) from cause
