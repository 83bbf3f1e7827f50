"""What a tool is, what it is given, and what it gives back."""

from __future__ import annotations

import copy
import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Set
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from pydantic import BaseModel
from pydantic_core import PydanticSerializationError, to_json

from graphrt.errors import ToolError, ToolErrorKind
from graphrt.messages import Message, clean_text
from graphrt.tools.schema import check_against

if TYPE_CHECKING:
    from datetime import datetime

if TYPE_CHECKING:
    from typing_extensions import TypeVar as TypeVarWithDefault

    Deps = TypeVarWithDefault("Deps", default=Any)
else:
    Deps = TypeVar("Deps")

NO_PARAMETERS: Final[Mapping[str, Any]] = {"type": "object", "properties": {}}
"""The JSON Schema of a tool without parameters."""


@dataclass(frozen=True, slots=True)
class ToolDescriptor:
    """What a model is told of a tool.

    Attributes:
        id: Unique in a registry; the name the model calls it by.
        description: What it does, in words for the model.
        parameters: JSON Schema of the arguments, an object; a copy is kept.
    """

    id: str
    description: str = ""
    parameters: Mapping[str, Any] = field(default_factory=lambda: NO_PARAMETERS, hash=False)

    def __post_init__(self) -> None:
        if not self.id:
            raise ToolError("a tool's id is empty", ToolErrorKind.REGISTRATION, hint="give it a name")
        object.__setattr__(self, "parameters", copy.deepcopy(dict(self.parameters)))

    @property
    def name(self) -> str:
        """The id, under the name that model interfaces use."""
        return self.id

    def to_openai(self) -> dict[str, Any]:
        """Make the function definition of the OpenAI chat interface, which most vendors read."""
        parameters = copy.deepcopy(dict(self.parameters))
        return {
            "type": "function",
            "function": {"name": self.id, "description": self.description, "parameters": parameters},
        }


ToolDefinition = ToolDescriptor
"""The same class, by the name that it has in an agent's interface."""


def _say_nothing(event_type: str, data: Mapping[str, Any]) -> None:
    """Stand in for ``ToolContext.emit`` where nobody listens."""


@dataclass(frozen=True, slots=True)
class ToolContext(Generic[Deps]):
    """Where and for whom a tool is called. A parameter annotated with this class is given it.

    Attributes:
        run_id: The run.
        session_id: The session, where the run is one of its turns.
        tool_call_id: The call that is answered.
        tool_id: The name that the model called.
        deps: What the caller of the run passed as ``deps``.
        deadline: When the run has to be done, aware and in UTC.
        idempotency_key: The same when the call is made again after a failure or a crash, and different for every
            other call.
        emit: Tell the run's readers of something: ``emit("custom.progress", {"done": 3})``; from any thread.
        budget: What the run may still use, a ``BudgetTracker``; None without a budget.
        resource: ``await resource(key, opening)`` gives what the run keeps open until it is over, as
            ``RunContext.resource`` does; None outside a run.
    """

    run_id: str | None = None
    session_id: str | None = None
    tool_call_id: str | None = None
    tool_id: str | None = None
    deps: Deps = None  # type: ignore[assignment]  # what it is, the annotation of the tool's parameter promises
    deadline: datetime | None = None
    idempotency_key: str | None = None
    emit: Callable[[str, Mapping[str, Any]], object] = _say_nothing
    budget: Any = None
    resource: Callable[..., Awaitable[Any]] | None = field(default=None, repr=False)


@dataclass(frozen=True)
class ToolResult:
    """How a call ended: with data, or with an error that the model is told of.

    Attributes:
        data: What the tool gave; None for an error.
        error_message: What went wrong, written for the model; None for data.
        kind: What kind of error; None for data.
        cause: The exception behind an error, for spans and logs; the model sees ``error_message`` only.
    """

    data: Any = None
    error_message: str | None = None
    kind: ToolErrorKind | None = None
    cause: BaseException | None = field(default=None, repr=False, compare=False)

    @classmethod
    def success(cls, data: Any = None, *, text: str | None = None) -> ToolResult:
        """Make the result of a call that worked; *text* is what the model reads in the place of the data's own."""
        result = cls(data=data)
        if text is not None:
            result.__dict__["_text"] = clean_text(text)
        return result

    @classmethod
    def error(
        cls, message: str, *, kind: str = ToolErrorKind.EXECUTION, cause: BaseException | None = None
    ) -> ToolResult:
        """Make the result of a call that did not work; *message* is written for the model."""
        return cls(error_message=message, kind=ToolErrorKind(kind), cause=cause)

    @property
    def is_error(self) -> bool:
        """Whether the call did not work."""
        return self.error_message is not None

    @property
    def text(self) -> str:
        """What the model reads: a string as it is; models, mappings, sequences as JSON; else ``str(data)``.

        What cannot be sent (a NUL, a lone surrogate, bytes that do not decode) is replaced by U+FFFD. It is
        made once: data that is changed later does not show.
        """
        text: str | None = self.__dict__.get("_text")
        if text is None:
            text = clean_text(self.error_message) if self.error_message is not None else _as_text(self.data)
            self.__dict__["_text"] = text
        return text

    def to_message(self, call_id: str) -> Message:
        """Make the entry in the conversation that answers the call *call_id*."""
        return Message.tool(call_id, self.text)


class Tool(ABC):
    """Something a model can call.

    Most tools are functions: see ``function_tool``. Derive a class for one that brings its own JSON Schema.
    """

    timeout: float | None = None
    """Seconds that a call may take; None for no limit of its own."""
    requires_approval: bool = False
    """Whether a person has to say yes to each call."""
    exclusive: bool = False
    """Whether no other tool of the same round may run meanwhile."""

    @property
    @abstractmethod
    def descriptor(self) -> ToolDescriptor:
        """What the model is told of the tool."""

    @abstractmethod
    async def execute(self, arguments: dict[str, Any], ctx: ToolContext[Any]) -> ToolResult | Any:
        """Do the work once, with arguments that ``check`` has let through; they are the tool's own copy.

        Whatever is returned is shown to the model, an exception's message too: the run goes on.
        """

    def check(self, arguments: Mapping[str, Any]) -> None:
        """Check arguments against the JSON Schema of the descriptor.

        Raises:
            ToolError: They do not fit; the message has one line for each field, for the model to read.
        """
        descriptor = self.descriptor
        check_against(descriptor.parameters, arguments, tool_id=descriptor.id)


_NUMBERS: Final = frozenset({int, float, bool})


def _as_text(data: object) -> str:
    if isinstance(data, (str, bytes)):
        return clean_text(data)
    if type(data) in _NUMBERS or not _is_structured(data):
        return clean_text(str(data))
    try:
        text = to_json(data, fallback=str).decode()
    except (PydanticSerializationError, UnicodeError):
        text = ""
    if text and "\\u0000" not in text:
        return text
    return to_json(_cleaned(data), fallback=str).decode()


def _is_structured(data: object) -> bool:
    if isinstance(data, type):
        return False
    return isinstance(data, (BaseModel, Mapping, list, tuple, Set)) or dataclasses.is_dataclass(data)


def _cleaned(data: object) -> object:
    """Copy *data* with every text in it made clean, at any depth."""
    if isinstance(data, (str, bytes)):
        return clean_text(data)
    if isinstance(data, BaseModel):
        return _cleaned(data.model_dump())
    if dataclasses.is_dataclass(data) and not isinstance(data, type):
        return {each.name: _cleaned(getattr(data, each.name)) for each in dataclasses.fields(data)}
    if isinstance(data, Mapping):
        return {clean_text(key if isinstance(key, bytes) else str(key)): _cleaned(data[key]) for key in data}
    if isinstance(data, (list, tuple, Set)):
        return [_cleaned(item) for item in data]
    return data
