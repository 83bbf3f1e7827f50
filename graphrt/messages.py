"""What travels between a person, a model and its tools.

Text is made clean when it enters a model of this module: what cannot be stored and sent everywhere (a lone
surrogate, a NUL, bytes that do not decode) is replaced by U+FFFD, so that nothing after it has to care.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

REPLACEMENT = "\ufffd"
"""Stands where a character was that cannot be sent."""


def clean_text(text: str | bytes) -> str:
    """Give *text* as it can be stored and sent: lone surrogates, NUL and undecodable bytes become U+FFFD.

    Two surrogates that form a pair become the character they mean.
    """
    if isinstance(text, bytes):
        text = text.decode("utf-8", "replace")
    elif not text.isascii():
        try:
            text.encode("utf-8")
        except UnicodeEncodeError:
            text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text.replace("\0", REPLACEMENT) if "\0" in text else text


def clean_value(value: Any) -> Any:
    """Give *value* with every text in its mappings, lists and tuples made clean; the rest stays as it is."""
    if isinstance(value, StrEnum):
        return value
    if isinstance(value, (str, bytes)):
        return clean_text(value)
    if isinstance(value, Mapping):
        return {clean_value(key): clean_value(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(clean_value(item) for item in value) if type(value) in (list, tuple) else value
    return value


def _clean_if_text(value: Any) -> Any:
    return clean_text(value) if isinstance(value, (str, bytes)) else value


CleanText = Annotated[str, BeforeValidator(_clean_if_text)]
"""A text field that cleans what it is given."""

CleanDict = Annotated[dict[str, Any], BeforeValidator(clean_value)]
"""A mapping field that cleans the texts in it, at any depth."""


_Init = TypeVar("_Init", bound=Callable[..., None])


def _only_for_callers(init: _Init) -> _Init:
    """Mark a constructor that only adds positional arguments: what is read from data goes past it.

    Without the mark pydantic calls it with the keys of the data, and an unknown key is a ``TypeError``.
    """
    init.__pydantic_base_init__ = True  # type: ignore[attr-defined]  # the mark pydantic's own RootModel uses
    return init


class Role(StrEnum):
    """Who speaks.

    Attributes:
        SYSTEM: Whoever runs the model: instructions.
        USER: A person.
        ASSISTANT: The model.
        TOOL: A tool that was called: its answer.
    """

    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"


class ToolCall(BaseModel):
    """A model's wish to call a tool.

    Attributes:
        id: Pairs the call with its answer.
        name: Id of the tool.
        arguments: What the tool is called with; empty when ``error`` is set.
        error: Why the arguments could not be read; such a call must be answered, not executed.
        raw_arguments: The arguments as the model wrote them, kept when they could not be read.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: CleanText
    name: CleanText
    arguments: CleanDict = Field(default_factory=dict)
    error: CleanText | None = None
    raw_arguments: CleanText | None = None

    @_only_for_callers
    def __init__(
        self,
        id: str,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        error: str | None = None,
        raw_arguments: str | None = None,
    ) -> None:
        super().__init__(id=id, name=name, arguments=arguments or {}, error=error, raw_arguments=raw_arguments)


class TokenUsage(BaseModel):
    """How many tokens a call took. None is unknown, which is not 0.

    Attributes:
        input_tokens: Tokens sent.
        output_tokens: Tokens received.
        total_tokens: Both together, as the provider counts.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    input_tokens: Annotated[int, Field(ge=0)] | None = None
    output_tokens: Annotated[int, Field(ge=0)] | None = None
    total_tokens: Annotated[int, Field(ge=0)] | None = None

    @_only_for_callers
    def __init__(
        self,
        input_tokens: int | None = None,
        output_tokens: int | None = None,
        total_tokens: int | None = None,
    ) -> None:
        super().__init__(input_tokens=input_tokens, output_tokens=output_tokens, total_tokens=total_tokens)

    def __add__(self, other: TokenUsage) -> TokenUsage:
        """Add field by field; a sum is unknown only if both parts are."""
        return TokenUsage(
            _add(self.input_tokens, other.input_tokens),
            _add(self.output_tokens, other.output_tokens),
            _add(self.total_tokens, other.total_tokens),
        )

    @property
    def known_total(self) -> int | None:
        """``total_tokens``, or the sum of the two parts when only they are known."""
        if self.total_tokens is not None:
            return self.total_tokens
        return (
            None if self.input_tokens is None or self.output_tokens is None else self.input_tokens + self.output_tokens
        )


class Message(BaseModel):
    """One entry of a conversation.

    Attributes:
        role: Who speaks.
        content: What is said.
        tool_calls: Calls the assistant asked for; each is answered by one message of role ``tool``.
        tool_call_id: On a message of role ``tool``: the call it answers.
        name: A name of the speaker or of the tool, for providers that take one.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    role: Role
    content: CleanText = ""
    tool_calls: list[ToolCall] = Field(default_factory=list)
    tool_call_id: CleanText | None = None
    name: CleanText | None = None

    @_only_for_callers
    def __init__(
        self,
        role: Role | str,
        content: str = "",
        tool_calls: Sequence[ToolCall | Mapping[str, Any]] = (),
        tool_call_id: str | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__(role=role, content=content, tool_calls=list(tool_calls), tool_call_id=tool_call_id, name=name)

    @classmethod
    def system(cls, text: str) -> Message:
        """Make an instruction for the model."""
        return cls(Role.SYSTEM, text)

    @classmethod
    def user(cls, text: str) -> Message:
        """Make what a person says."""
        return cls(Role.USER, text)

    @classmethod
    def assistant(cls, text: str = "", tool_calls: Sequence[ToolCall] = ()) -> Message:
        """Make what the model says, with the calls it asks for."""
        return cls(Role.ASSISTANT, text, tool_calls)

    @classmethod
    def tool(cls, call_id: str, text: str, *, name: str | None = None) -> Message:
        """Make the answer to the tool call *call_id*."""
        return cls(Role.TOOL, text, tool_call_id=call_id, name=name)


class LLMResponse(BaseModel):
    """One reply of a provider.

    Attributes:
        content: What the model says.
        tool_calls: Calls that it asks for.
        usage: Tokens of the call; None when the provider said nothing about it.
        finish_reason: Why the model stopped, in the provider's word.
        model: The model that answered, as the provider names it.
        parsed: The validated value, when structured output was asked for.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    content: CleanText = ""
    tool_calls: list[ToolCall] = Field(default_factory=list)
    usage: TokenUsage | None = None
    finish_reason: CleanText | None = None
    model: CleanText | None = None
    parsed: Any = None

    @_only_for_callers
    def __init__(
        self,
        content: str = "",
        tool_calls: Sequence[ToolCall | Mapping[str, Any]] = (),
        usage: TokenUsage | Mapping[str, Any] | None = None,
        finish_reason: str | None = None,
        model: str | None = None,
        *,
        parsed: Any = None,
    ) -> None:
        super().__init__(
            content=content,
            tool_calls=list(tool_calls),
            usage=usage,
            finish_reason=finish_reason,
            model=model,
            parsed=parsed,
        )

    def to_message(self) -> Message:
        """Give the reply as the assistant's entry in the conversation."""
        return Message.assistant(self.content, self.tool_calls)


class ChatResponse(BaseModel):
    """One finished turn.

    Attributes:
        content: The reply.
        usage: Sum over the turn's model calls; None when no call reported any.
        rounds: Inferences the turn took.
        termination: Why the turn ended: a ``Termination``.
        tool_calls: Every call of the turn, in order.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    content: CleanText = ""
    usage: TokenUsage | None = None
    rounds: Annotated[int, Field(ge=0)] = 0
    termination: Any = None
    tool_calls: list[ToolCall] = Field(default_factory=list)

    @_only_for_callers
    def __init__(
        self,
        content: str = "",
        usage: TokenUsage | Mapping[str, Any] | None = None,
        rounds: int = 0,
        termination: Any = None,
        tool_calls: Sequence[ToolCall | Mapping[str, Any]] = (),
    ) -> None:
        super().__init__(
            content=content, usage=usage, rounds=rounds, termination=termination, tool_calls=list(tool_calls)
        )


def _add(left: int | None, right: int | None) -> int | None:
    if left is None or right is None:
        return right if left is None else left
    return left + right
