"""Every error graphrt raises, under one base class.

A class exists for each thing a caller could handle differently. This module imports the standard library
only, so any layer may use it.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

RunControlCode: TypeAlias = Literal[
    "unauthorized",
    "not_found",
    "deadline_exceeded",
    "payload_too_large",
    "rate_limited",
    "invalid_argument",
    "conflict",
    "runtime_error",
]
"""Why run control refused a call."""


class GraphrtError(Exception):
    """Say what went wrong, and how to get out of it.

    ``args`` stay what the constructor was called with, so that ``copy`` and a stored form can build the error
    again.
    """

    message: str
    """What is wrong: lower case, names the thing."""
    hint: str | None
    """The way out, if there is one to name."""

    def __init__(self, message: str = "", *, hint: str | None = None) -> None:
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return self.message if self.hint is None else f"{self.message}\n  hint: {self.hint}"


def _is_recoverable(error: BaseException | None) -> bool:
    """Ask *error* for its own verdict; without one it counts as permanent."""
    verdict = getattr(error, "is_recoverable", None)
    return bool(verdict()) if callable(verdict) else False


# --- models, tools, memory --------------------------------------------------------------------------------


class LlmErrorKind(StrEnum):
    """What kind of failure a model call ended in."""

    PROVIDER = "provider"
    RATE_LIMITED = "rate_limited"
    OVERLOADED = "overloaded"
    TIMEOUT = "timeout"
    CONTEXT_OVERFLOW = "context_overflow"
    INVALID_REQUEST = "invalid_request"
    UNAUTHORIZED = "unauthorized"
    MODEL_NOT_FOUND = "model_not_found"
    CONTENT_FILTERED = "content_filtered"
    ALL_MODELS_UNAVAILABLE = "all_models_unavailable"
    CANCELLED = "cancelled"


_RECOVERABLE_KINDS = frozenset(
    {LlmErrorKind.PROVIDER, LlmErrorKind.RATE_LIMITED, LlmErrorKind.OVERLOADED, LlmErrorKind.TIMEOUT}
)


class LlmError(GraphrtError):
    """A model call failed; ``kind`` says how, and whether another try can help."""

    kind: LlmErrorKind
    retry_after: float | None
    """Seconds the provider asked to wait before the next try."""
    status: int | None
    """HTTP status of the reply, if there was one."""
    reply: Any = None
    """What the model answered, an ``LLMResponse``, where the answer itself is at fault."""

    def __init__(
        self,
        message: str = "",
        kind: str = LlmErrorKind.PROVIDER,
        *,
        retry_after: float | None = None,
        status: int | None = None,
        hint: str | None = None,
    ) -> None:
        """Take text and kind in either order: ``LlmError("slow down", kind)``, ``LlmError(kind)``.

        Raises:
            ValueError: The kind is none of ``LlmErrorKind``.
        """
        if isinstance(message, LlmErrorKind):
            message, kind = ("" if isinstance(kind, LlmErrorKind) else kind), message
        self.kind = LlmErrorKind(kind)
        self.retry_after = retry_after
        self.status = status
        super().__init__(message or f"model call failed: {self.kind}", hint=hint)

    def is_recoverable(self) -> bool:
        """Say whether the same request may succeed when it is sent again."""
        return self.kind in _RECOVERABLE_KINDS


class ToolErrorKind(StrEnum):
    """What kind of failure a tool call ended in."""

    UNKNOWN = "unknown"
    INVALID_ARGUMENTS = "invalid_arguments"
    DENIED = "denied"
    TIMEOUT = "timeout"
    EXECUTION = "execution"
    REGISTRATION = "registration"


class ToolError(GraphrtError):
    """A tool, or the machinery around it, failed."""

    kind: ToolErrorKind
    tool_name: str | None

    def __init__(
        self,
        message: str = "",
        kind: str = ToolErrorKind.EXECUTION,
        tool_name: str | None = None,
        *,
        hint: str | None = None,
    ) -> None:
        """Take ``ToolError("disk full", kind, "save")``, or kind and tool alone: ``ToolError(kind, "save")``.

        Raises:
            ValueError: The kind is none of ``ToolErrorKind``.
        """
        if isinstance(message, ToolErrorKind):
            if tool_name is None and not isinstance(kind, ToolErrorKind):
                tool_name = kind
            message, kind = "", message
        self.kind = ToolErrorKind(kind)
        self.tool_name = tool_name
        super().__init__(message or f"tool {tool_name!r} failed: {self.kind}", hint=hint)

    def is_recoverable(self) -> bool:
        """Take the verdict of the error behind this one; without one, no."""
        return _is_recoverable(self.__cause__)


class MemoryStoreError(GraphrtError):
    """A memory store could not do what it was asked; another try may help."""

    def is_recoverable(self) -> bool:
        """Say yes: a store that is out of reach may come back."""
        return True


# --- agents -----------------------------------------------------------------------------------------------


class AgentErrorKind(StrEnum):
    """The eight ways in which an agent's turn can fail."""

    LLM = "llm"
    TOOL = "tool"
    MEMORY = "memory"
    PLAN_PARSE = "plan_parse"
    HOOK_BLOCKED = "hook_blocked"
    LIMIT_EXCEEDED = "limit_exceeded"
    CONFIG = "config"
    OTHER = "other"


class AgentError(GraphrtError):
    """An agent's turn failed; the error behind it is kept as ``cause``."""

    kind: ClassVar[AgentErrorKind] = AgentErrorKind.OTHER

    def __init__(self, message: str = "", *, cause: BaseException | None = None, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        if cause is not None:
            self.__cause__ = cause

    @property
    def cause(self) -> BaseException | None:
        """The error behind this one: given as ``cause=`` or by ``raise ... from``."""
        return self.__cause__

    def is_recoverable(self) -> bool:
        """Say whether the same call may succeed when it is made again: the cause's verdict, else no."""
        return _is_recoverable(self.cause)

    @staticmethod
    def wrap(error: Exception) -> AgentError:
        """Give the ``AgentError`` for *error*, its cause; an ``AgentError`` comes back as it is."""
        if isinstance(error, AgentError):
            return error
        fitting = (wrapper for kind, wrapper in _WRAPPERS if isinstance(error, kind))
        wrapper = next(fitting, OtherAgentError)
        if isinstance(error, GraphrtError):
            return wrapper(error.message, cause=error, hint=error.hint)
        return wrapper(f"{type(error).__name__}: {error}", cause=error)


class AgentLlmError(AgentError):
    """The model could not be asked; the ``LlmError`` is the cause and decides whether to try again."""

    kind = AgentErrorKind.LLM


class AgentToolError(AgentError):
    """The tool machinery failed. What a tool itself raises is told to the model instead."""

    kind = AgentErrorKind.TOOL


class AgentMemoryError(AgentError):
    """A memory back end failed."""

    kind = AgentErrorKind.MEMORY

    def is_recoverable(self) -> bool:
        """Say yes: a store that is out of reach may come back."""
        return True


class PlanParseError(AgentError):
    """What the planner wrote is not a plan."""

    kind = AgentErrorKind.PLAN_PARSE

    def is_recoverable(self) -> bool:
        """Say no: the same text parses the same way."""
        return False


class HookBlockedError(AgentError):
    """A hook refused the turn or the request; nothing was sent."""

    kind = AgentErrorKind.HOOK_BLOCKED
    reason: str

    def __init__(
        self,
        reason: str = "",
        *,
        event: str | None = None,
        hook: str | None = None,
        cause: BaseException | None = None,
        hint: str | None = None,
    ) -> None:
        by = "a hook" if hook is None else f"hook {hook!r}"
        where = "" if event is None else f" on {event!s}"
        super().__init__(f"blocked by {by}{where}: {reason or 'no reason given'}", cause=cause, hint=hint)
        self.reason = reason
        self.event = event
        self.hook = hook


class LimitExceededError(AgentError):
    """A limit was reached; ``limit`` names it (``"max_rounds"``, ``"timeout"``, ``"max_turns"``, ...)."""

    kind = AgentErrorKind.LIMIT_EXCEEDED
    limit: str

    def __init__(
        self,
        message: str = "",
        *,
        limit: str = "unknown",
        cause: BaseException | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(message or f"limit {limit!r} was reached", cause=cause, hint=hint)
        self.limit = limit


class ConfigError(AgentError):
    """A setting is missing or contradicts another."""

    kind = AgentErrorKind.CONFIG

    def is_recoverable(self) -> bool:
        """Say no: a person has to change the setting."""
        return False


class OtherAgentError(AgentError):
    """A turn failed for a reason that has no class of its own."""

    kind = AgentErrorKind.OTHER


_WRAPPERS: tuple[tuple[type[Exception], type[AgentError]], ...] = (
    (LlmError, AgentLlmError),
    (ToolError, AgentToolError),
    (MemoryStoreError, AgentMemoryError),
)


# --- resolution -------------------------------------------------------------------------------------------


def _known(known: Sequence[str], what: str, add: str) -> str:
    return f"{add}; {what} so far: {', '.join(known) or 'none'}"


class ResolveError(GraphrtError):
    """An agent cannot be put together from the registries."""


class AgentNotFoundError(ResolveError):
    """No agent has this id."""

    def __init__(self, agent_id: str, known: Sequence[str] = ()) -> None:
        super().__init__(
            f"agent {agent_id!r} is not registered",
            hint=_known(known, "agents", "add it with with_agent_spec()"),
        )
        self.agent_id = agent_id


class ModelNotFoundError(ResolveError):
    """No model has this id."""

    def __init__(self, model_id: str, known: Sequence[str] = ()) -> None:
        super().__init__(
            f"model {model_id!r} is not registered", hint=_known(known, "models", "add it with with_model()")
        )
        self.model_id = model_id


class ProviderNotFoundError(ResolveError):
    """No provider has this id."""

    def __init__(self, provider_id: str, known: Sequence[str] = ()) -> None:
        super().__init__(
            f"provider {provider_id!r} is not registered",
            hint=_known(known, "providers", "add it with with_provider()"),
        )
        self.provider_id = provider_id


class PluginNotFoundError(ResolveError):
    """No plugin has this id."""

    def __init__(self, plugin_id: str, known: Sequence[str] = ()) -> None:
        super().__init__(
            f"plugin {plugin_id!r} is not registered",
            hint=_known(known, "plugins", "add it with with_plugin()"),
        )
        self.plugin_id = plugin_id


class InvalidPluginConfigError(ResolveError):
    """A section of an agent's spec does not fit what the plugin declares."""

    def __init__(self, plugin_id: str, key: str, message: str, *, hint: str | None = None) -> None:
        super().__init__(f"section {key!r} does not suit plugin {plugin_id!r}: {message}", hint=hint)
        self.plugin_id = plugin_id
        self.key = key


class ToolIdConflictError(ResolveError):
    """Two sources give a tool with the same id."""

    def __init__(self, tool_id: str, source_a: str, source_b: str) -> None:
        super().__init__(
            f"tool {tool_id!r} comes from both {source_a!r} and {source_b!r}",
            hint="give one of them another id",
        )
        self.tool_id = tool_id
        self.source_a = source_a
        self.source_b = source_b


class RemoteAgentNotDirectlyRunnableError(ResolveError):
    """The agent lives behind an endpoint; it can only be delegated to."""

    def __init__(self, agent_id: str) -> None:
        super().__init__(
            f"agent {agent_id!r} has an endpoint and cannot be run here",
            hint="name it in the delegates of a local agent",
        )
        self.agent_id = agent_id


class EnvBuildError(ResolveError):
    """Two plugins register the same thing."""


class BuildError(GraphrtError):
    """A builder was given things that do not fit together; ``problems`` has one entry for each."""

    def __init__(self, message: str = "", *, problems: Sequence[BaseException] = (), hint: str | None = None) -> None:
        text = "; ".join([message] * bool(message) + [getattr(each, "message", str(each)) for each in problems])
        super().__init__(text, hint=hint)
        self.problems = tuple(problems)


# --- graphs and runs --------------------------------------------------------------------------------------


class GraphError(GraphrtError):
    """A graph breaks a rule, when it is compiled or while it runs."""


class GraphTypeError(GraphError):
    """A value, or a declared type, does not fit where an edge takes it."""


class StateConflictError(GraphError):
    """Two steps wrote one field of the state, and neither is downstream of the other."""


class GraphChangedError(GraphError):
    """The graph is not the one the run was started with."""


class InvalidTransitionError(GraphrtError):
    """A state machine was asked for a move its table lacks; nothing changed."""

    def __init__(self, entity: object, from_: object, to: object) -> None:
        super().__init__(f"{str(entity)!r} is {from_!s}, from where it cannot go to {str(to)!r}")
        self.entity = entity
        self.from_ = from_
        self.to = to


class RunCancelledError(GraphrtError):
    """The run was cancelled before it ended."""

    def __init__(
        self, message: str = "run was cancelled", *, reason: str | None = None, hint: str | None = None
    ) -> None:
        super().__init__(message if reason is None else f"{message}: {reason}", hint=hint)
        self.reason = reason


class RecordedError(GraphrtError):
    """Stand for an error that was stored, and whose class is not known here."""

    def __init__(self, type_name: str, message: str = "", arguments: Sequence[Any] = ()) -> None:
        super().__init__(f"{type_name}: {message}" if message else type_name)
        self.type_name = type_name
        self.recorded_message = message
        self.arguments = tuple(arguments)


class StateError(GraphrtError):
    """A plugin asked the state store for something it cannot do; nothing was written."""


class RunControlError(GraphrtError):
    """Run control refused a call; ``code`` says why, and nothing changed."""

    def __init__(
        self,
        code: RunControlCode,
        message: str = "",
        *,
        retryable: bool = False,
        details: Mapping[str, Any] | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(f"{code}: {message}" if message else code, hint=hint)
        self.code: RunControlCode = code
        self.retryable = retryable
        self.details = dict(details or {})
