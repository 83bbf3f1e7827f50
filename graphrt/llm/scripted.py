"""A provider that plays a script: it stands in for a model in tests and examples."""

from __future__ import annotations

import inspect
import re
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import anyio
import anyio.lowlevel

from graphrt.errors import ConfigError
from graphrt.llm.provider import LLMDelta, LLMProvider, ToolCallPart, Tools
from graphrt.llm.wire import dump_arguments
from graphrt.messages import LLMResponse, Message

Answer: TypeAlias = LLMResponse | str | Exception
Piece: TypeAlias = LLMDelta | str | Exception
ScriptEntry: TypeAlias = (
    Answer | Sequence[Piece] | Callable[[list[Message], Tools, dict[str, Any]], Answer | Awaitable[Answer]]
)
"""One reply: a response (a text is short for one), an exception to raise, a function of the request that
gives either, or the very pieces that a stream consists of, where an exception breaks it off."""


@dataclass(frozen=True, slots=True)
class RecordedCall:
    """What the provider was asked; the messages are copies, so later changes do not show.

    Attributes:
        messages: The conversation as it was sent.
        tools: What the model was told of its tools; None for none.
        kwargs: The model and the request's parameters.
    """

    messages: list[Message]
    tools: Tools
    kwargs: dict[str, Any]


class ScriptedProvider(LLMProvider):
    """Answer each call with the next entry of a script, after *delay* seconds.

    An entry is a text or an `LLMResponse` (the reply), an exception (raised), a function of the messages, the
    tools and the request parameters that gives one of these, async or not, or a list of pieces (texts,
    `LLMDelta`, exceptions) that a stream consists of.

    A stream takes one entry too and gives its text word by word.

    A call that finds the script at its end raises ``AssertionError``. Within a session or a runtime that is an error
    of the model like any other: a turn raises it as an ``AgentError`` whose ``__cause__`` it is, and a run has it as
    its ``error``.

    Attributes:
        calls: What was asked, in order: a `RecordedCall` for each call.
    """

    takes_cache_key = True  # it plays any provider
    calls: list[RecordedCall]

    def __init__(self, script: Iterable[ScriptEntry] = (), *, delay: float = 0.0) -> None:
        """Take the script.

        Raises:
            ConfigError: It is no list, or an entry is none of the kinds above.
        """
        self.calls = []
        self._script = deque(_checked(script))
        self._delay = delay

    @property
    def remaining(self) -> int:
        """Entries that no call has used yet."""
        return len(self._script)

    async def chat(self, messages: Sequence[Message], tools: Tools = None, **kwargs: Any) -> LLMResponse:
        """Give the next entry of the script.

        Raises:
            AssertionError: The script is used up.
            Exception: The entry itself, if it is one.
        """
        entry = await self._next(messages, tools, kwargs)
        return entry if isinstance(entry, LLMResponse) else _whole(entry)

    async def stream(self, messages: Sequence[Message], tools: Tools = None, **kwargs: Any) -> AsyncIterator[LLMDelta]:
        """Give the next entry of the script piece by piece.

        Raises:
            AssertionError: The script is used up.
            Exception: The entry itself, or a piece of it, if it is one.
        """
        entry = await self._next(messages, tools, kwargs)
        pieces: Iterable[Piece] = _pieces(entry) if isinstance(entry, LLMResponse) else entry
        done = False
        for piece in pieces:
            await anyio.lowlevel.checkpoint()
            if isinstance(piece, Exception):
                raise piece
            delta = LLMDelta(text=piece) if isinstance(piece, str) else piece
            done = done or delta.response is not None
            yield delta
        if not done:
            yield LLMDelta(response=_whole(pieces))

    async def _next(
        self, messages: Sequence[Message], tools: Tools, kwargs: dict[str, Any]
    ) -> LLMResponse | Sequence[Piece]:
        copies = [message.model_copy(deep=True) for message in messages]
        self.calls.append(RecordedCall(copies, None if tools is None else list(tools), dict(kwargs)))
        if not self._script:
            raise AssertionError(f"call {len(self.calls)} finds the script at its end")
        entry = self._script.popleft()
        if self._delay:
            await anyio.sleep(self._delay)
        if callable(entry):
            answer = entry(list(messages), tools, dict(kwargs))
            entry = await answer if inspect.isawaitable(answer) else answer
        if isinstance(entry, Exception):
            raise entry
        return LLMResponse(entry) if isinstance(entry, str) else entry


def _checked(script: Iterable[ScriptEntry]) -> list[ScriptEntry]:
    """Give the entries of a script.

    Raises:
        ConfigError: It is no list, or an entry cannot be played.
    """
    if isinstance(script, (str, bytes, Mapping, LLMResponse)) or not isinstance(script, Iterable):
        raise ConfigError(
            f"a script is a list of entries, not {_a(script)}",
            hint="give ScriptedProvider([entry]), with an entry a call",
        )
    entries = list(script)
    for number, entry in enumerate(entries, 1):
        if problem := _problem(entry):
            raise ConfigError(
                f"entry {number} of the script {problem}",
                hint="give a text, an LLMResponse, an exception, a function of (messages, tools, params) that gives "
                "one, or a list of pieces",
            )
    return entries


def _problem(entry: object) -> str:
    """Say what is wrong with an entry; nothing if it can be played."""
    if isinstance(entry, type):
        return f"is the class {entry.__name__}, not an instance of it"
    if isinstance(entry, (LLMResponse, str, Exception)):
        return ""
    if callable(entry):
        return "" if _takes_a_request(entry) else "is a function that cannot be called with messages, tools and params"
    if isinstance(entry, (bytes, bytearray)) or not isinstance(entry, Sequence):
        return f"is {_a(entry)}, which cannot be played"
    for piece in entry:
        if not isinstance(piece, (LLMDelta, str, Exception)):
            return f"has {_a(piece)} among its pieces, which are texts, LLMDelta and exceptions"
    return ""


def _takes_a_request(entry: Callable[..., object]) -> bool:
    try:
        inspect.signature(entry).bind([], None, {})
    except TypeError:
        return False
    except ValueError:  # a function that does not tell
        return True
    return True


def _a(value: object) -> str:
    name = "text" if isinstance(value, str) else type(value).__name__
    return f"{'an' if name[0] in 'AEIOUaeiou' else 'a'} {name}"


def _pieces(response: LLMResponse) -> list[Piece]:
    """Cut a reply into words, tool calls, and the whole."""
    pieces: list[Piece] = re.findall(r"\S+\s*|\s+", response.content)
    for index, call in enumerate(response.tool_calls):
        raw = call.raw_arguments
        if raw is None:
            raw = dump_arguments(call.arguments)
        pieces.append(LLMDelta(tool_call=ToolCallPart(index, call.id, call.name, raw)))
    if response.usage is not None:
        pieces.append(LLMDelta(usage=response.usage))
    pieces.append(LLMDelta(response=response))
    return pieces


def _whole(pieces: Iterable[Piece]) -> LLMResponse:
    """Put the pieces of a stream together, or raise the one that breaks it off."""
    text, usage = "", None
    for piece in pieces:
        if isinstance(piece, Exception):
            raise piece
        if isinstance(piece, str):
            text += piece
        elif piece.response is not None:
            return piece.response
        else:
            text, usage = text + piece.text, piece.usage or usage
    return LLMResponse(text, usage=usage)
