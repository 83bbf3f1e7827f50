"""Questions of a run, put to the person at the terminal."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import anyio

from graphrt.cli import UsageError
from graphrt.threads import run_in_thread

if TYPE_CHECKING:
    from graphrt.graph import Question


class TerminalAsker:
    """Asks one question at a time on standard error, and reads its answer as a line of standard input."""

    def __init__(self) -> None:
        self._turn = anyio.Lock()

    async def __call__(self, question: Question) -> Any:
        """Ask, and give the answer: JSON as its value, anything else as a text.

        Raises:
            UsageError: Standard input has come to its end.
        """
        async with self._turn:
            print(f"{question.node} asks: {question.question}", file=sys.stderr, flush=True)
            line = await run_in_thread(sys.stdin.readline)
        if not line:
            raise UsageError(
                f"nobody answers {question.node!r}", hint="answer on standard input, with a line for each question"
            )
        try:
            return json.loads(line)
        except ValueError:
            return line.strip()
