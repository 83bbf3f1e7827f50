"""What an agent's graph passes on and remembers: the conversation, and what becomes of a reply."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Literal, TypeAlias, cast, overload

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import core_schema

from graphrt.errors import GraphTypeError
from graphrt.graph.statemodel import Reduce
from graphrt.messages import ChatResponse, Message, Role, ToolCall

if TYPE_CHECKING:
    from pydantic import GetCoreSchemaHandler

    from graphrt.graph.states import Termination
    from graphrt.messages import TokenUsage

Prompt: TypeAlias = str | list[Message]
"""What an agent or a model is given: a text, which a user said, or the messages so far."""

MAX_ROUNDS: Final = "max_rounds"
"""Name of the limit on rounds."""


def as_messages(value: Any) -> tuple[Message, ...]:
    """Read a text, a message, or messages; a mapping with the fields of a message counts as one.

    Raises:
        GraphTypeError: It is nothing of the kind.
    """
    if isinstance(value, str):
        return (Message.user(value),)
    if isinstance(value, Message):
        return (value,)
    if isinstance(value, Sequence) and not isinstance(value, (bytes, bytearray)):
        return tuple(each if isinstance(each, Message) else _message(each) for each in value)
    raise _no_messages(value)


def _message(value: Any) -> Message:
    if not isinstance(value, Mapping):
        raise _no_messages(value)
    try:
        return Message.model_validate(value)
    except ValidationError as error:
        raise GraphTypeError(f"{value!r} is no message: {error}") from error


def _no_messages(value: object) -> GraphTypeError:
    return GraphTypeError(
        f"a model is asked with a {type(value).__name__}, which is neither a text nor a message",
        hint="give a text or a list of Message; put a node before that makes one of the value",
    )


class Transcript(Sequence[Message]):
    """A conversation, which never changes: adding to it gives a longer one that shares its messages."""

    __slots__ = ("_messages",)
    __graphrt_immutable__: ClassVar = True

    def __init__(self, messages: Iterable[Message] = ()) -> None:
        """Take the messages, which nobody may change any more."""
        self._messages = tuple(messages)

    def __len__(self) -> int:
        return len(self._messages)

    @overload
    def __getitem__(self, index: int) -> Message: ...
    @overload
    def __getitem__(self, index: slice) -> Transcript: ...
    def __getitem__(self, index: int | slice) -> Message | Transcript:
        found = self._messages[index]
        return Transcript(found) if isinstance(found, tuple) else found

    def __iter__(self) -> Iterator[Message]:
        return iter(self._messages)

    def __add__(self, more: Iterable[Message]) -> Transcript:
        return Transcript(self._messages + (more._messages if isinstance(more, Transcript) else tuple(more)))

    def __copy__(self) -> Transcript:
        return self

    def __deepcopy__(self, memo: object) -> Transcript:
        return self

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Transcript) and self._messages == other._messages

    __hash__ = None  # type: ignore[assignment]  # messages have none: they hold lists

    def __repr__(self) -> str:
        return f"Transcript({list(self._messages)!r})"

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        """Let it be a field of a state, and be stored as the list of its messages."""
        items = handler.generate_schema(list[Message])

        def read(value: Any, validate: Any) -> Transcript:
            return value if isinstance(value, cls) else cls(validate(value))

        return core_schema.no_info_wrap_validator_function(
            read,
            items,
            serialization=core_schema.plain_serializer_function_ser_schema(list, return_schema=items),
        )


class AgentState(BaseModel):
    """What an agent's graph remembers from round to round: each step writes only what is new.

    Every compiled agent has a class of its own: graphs that hold one another share state of the same class.
    """

    model_config = ConfigDict(frozen=True)

    messages: Annotated[Transcript, Reduce(operator.add)] = Transcript()
    """The conversation: what the agent was given, and all that followed."""
    given: int = 0
    """How many of the messages the agent was given."""
    cut_short: bool = False
    """Whether the answer was given in the last permitted round, without tools."""

    def conversation(self) -> list[Message]:
        """List the messages, less calls at the end that have no answer: no model takes those."""
        messages = list(self.messages)
        end = len(messages)
        while end and messages[end - 1].role is Role.TOOL:
            end -= 1
        answered = {each.tool_call_id for each in messages[end:]}
        if end and not answered.issuperset(call.id for call in messages[end - 1].tool_calls):
            return messages[: end - 1]
        return messages

    def cut_short_by(self) -> str | None:
        """Name the limit at which the answer was given; None when none was reached."""
        return MAX_ROUNDS if self.cut_short else None

    def chat_response(self, *, usage: TokenUsage | None, rounds: int, termination: Termination) -> ChatResponse:
        """Sum the turn up."""
        new = self.messages[self.given :]
        calls = [call for each in new for call in each.tool_calls]
        replies = [each.content for each in new if each.role is Role.ASSISTANT]
        return ChatResponse(replies[-1] if replies else "", usage, rounds, termination, calls)


def new_state_class() -> type[AgentState]:
    """Make the state class of one compiled agent."""
    return cast("type[AgentState]", type("AgentState", (AgentState,), {"__module__": __name__}))


@dataclass(frozen=True, slots=True)
class Called:
    """One call on its way to its tool. The call belongs to the conversation: a tool gets arguments of its own."""

    __graphrt_immutable__: ClassVar = True

    call: ToolCall


@dataclass(frozen=True, slots=True)
class ToolCalls:
    """A reply that asks for tools; reading it gives the calls."""

    calls: tuple[ToolCall, ...]
    kind: Literal["tool_calls"] = "tool_calls"

    def __iter__(self) -> Iterator[Called]:
        return map(Called, self.calls)


@dataclass(frozen=True, slots=True)
class Misfit:
    """A reply that is not of the output type asked for."""

    complaint: str
    """What the model is told."""
    kind: Literal["misfit"] = "misfit"
