"""Settings of agents, as a user or a file gives them: checked, frozen, unknown keys refused."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, Protocol, runtime_checkable

from pydantic import BaseModel, ConfigDict, Field, InstanceOf, model_validator

from graphrt.errors import ConfigError, LlmError, LlmErrorKind
from graphrt.policies import RetryOn, RetryPolicy
from graphrt.positional import by_position

DEFAULT_SYSTEM_PROMPT: Final = (
    "You are a helpful assistant. Use the tools you are given when they help, and answer in plain words."
)
DEFAULT_LIMIT_REPLY: Final = (
    "I stopped before I was done: the limit on rounds for one turn (max_rounds) was reached. "
    "Ask me to go on, or narrow the task down."
)
DEFAULT_TIMEOUT_REPLY: Final = (
    "I stopped before I was done: the time for one turn (timeout_seconds) was up. "
    "Ask me to try again, or narrow the task down."
)
DEFAULT_SUMMARY_PROMPT: Final = (
    "Summarise the conversation so far for yourself. Keep facts, decisions, names, numbers, open questions "
    "and what the user wants; leave out pleasantries. If it starts with an earlier summary, carry that one "
    "forward."
)

_ROUND_ALIASES: Final = ("max_iterations", "max_tool_turns")
_MAX_DOUBLINGS: Final = 60  # keeps the schedule finite whatever the number of attempts

_CONFIG = ConfigDict(frozen=True, extra="forbid")


class CompactConfig(BaseModel):
    """When and how old messages are replaced by a summary.

    Attributes:
        threshold_tokens: Tokens above which old messages are summarised; None: what the context policy leaves for
            input.
        keep_recent: Messages at the end that are never summarised.
        summary_prompt: What the model is told when it is asked for the summary.
        min_savings_ratio: Part of the tokens that a summary must save to be worth it.
    """

    model_config = _CONFIG

    threshold_tokens: Annotated[int, Field(ge=1)] | None = None
    keep_recent: Annotated[int, Field(ge=0)] = 2
    summary_prompt: Annotated[str, Field(min_length=1)] = DEFAULT_SUMMARY_PROMPT
    min_savings_ratio: Annotated[float, Field(ge=0, le=1)] = 0.3


class ContextPolicy(BaseModel):
    """What of a conversation is sent to the model.

    Attributes:
        max_context_tokens: Tokens the model takes, question and answer together.
        max_output_tokens: Tokens of these kept free for the answer.
        min_recent_messages: Messages at the end that are sent whatever they cost.
        enable_prompt_cache: Whether the part of the request that stays the same is marked, for providers that can
            cache it.
        estimator: Gives the tokens of one ``Message``; None: a rough count by characters.
    """

    model_config = _CONFIG

    max_context_tokens: Annotated[int, Field(ge=1)] = 200_000
    max_output_tokens: Annotated[int, Field(ge=1)] = 16_384
    min_recent_messages: Annotated[int, Field(ge=0)] = 10
    enable_prompt_cache: bool = True
    estimator: Callable[[Any], int] | None = Field(default=None, exclude=True)


class RetryConfig(BaseModel):
    """How often a model is asked again, and which models stand in for it.

    Attributes:
        max_retries: Attempts after the first; each fallback model has as many.
        fallback_models: Ids in the model registry, tried in order when the model before has used up its attempts.
        backoff_base: Seconds before the second attempt, doubled for each one after; 0: no pauses at all.
        overloaded_backoff_base: The same when the provider said that it is overloaded.
        backoff_max: Longest pause in seconds; a provider's Retry-After may exceed it.
    """

    model_config = _CONFIG

    max_retries: Annotated[int, Field(ge=0)] = 2
    fallback_models: list[str] = Field(default_factory=list)
    backoff_base: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.5
    overloaded_backoff_base: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 2.0
    backoff_max: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 8.0

    if TYPE_CHECKING:

        def __init__(
            self,
            max_retries: int = ...,
            fallback_models: list[str] = ...,
            backoff_base: float = ...,
            overloaded_backoff_base: float = ...,
            backoff_max: float = ...,
        ) -> None: ...

    else:
        __init__ = by_position(
            "max_retries", "fallback_models", "backoff_base", "overloaded_backoff_base", "backoff_max"
        )

    def to_policy(self, retry_on: RetryOn | None = None) -> RetryPolicy:
        """Translate into the engine's policy, without the fallbacks.

        *retry_on* replaces the rule that a recoverable ``LlmError`` is tried again, and nothing else is.
        """
        return RetryPolicy(
            attempts=self.max_retries + 1,
            wait_initial=self.backoff_base,
            wait_max=self.backoff_max,
            retry_on=is_recoverable_llm_error if retry_on is None else retry_on,
            wait_for=_Backoff(self.backoff_base, self.overloaded_backoff_base, self.backoff_max)
            if self.backoff_base
            else None,
        )


@dataclass(frozen=True, slots=True)
class _Backoff:
    """A doubling pause that starts longer when the provider is overloaded. All in seconds."""

    base: float
    overloaded_base: float
    longest: float

    def __call__(self, error: Exception, attempt: int) -> float:
        overloaded = isinstance(error, LlmError) and error.kind is LlmErrorKind.OVERLOADED
        base = self.overloaded_base if overloaded else self.base
        return min(base * 2.0 ** min(attempt - 1, _MAX_DOUBLINGS), self.longest)


def is_recoverable_llm_error(error: Exception) -> bool:
    """Say whether *error* is a model's failure that another try may mend."""
    return isinstance(error, LlmError) and error.is_recoverable()


@runtime_checkable
class SystemPromptBuilder(Protocol):
    """Makes the system prompt of each turn, in the place of a fixed text."""

    def build(self, config: AgentConfig, session: Any) -> str | Awaitable[str]:
        """Give the prompt for one turn of *session*; called once in a turn, and awaited if it has to be."""
        ...


class AgentConfig(BaseModel):
    """Every setting of an agent.

    ``max_rounds`` may also be given as ``max_iterations`` or ``max_tool_turns``; these read as it does.

    Attributes:
        system_prompt: What the model is told first: a text, or what makes one for each turn.
        model: The provider's name of the model, or with registries the id of one.
        temperature: From 0 to 2; None: not sent, for models that do not take it.
        max_tokens: Tokens of one reply; None: not sent.
        max_rounds: Inferences of one turn; also taken as ``max_iterations`` and ``max_tool_turns``.
        on_limit: What happens at ``max_rounds``: the turn is stopped, or its last round offers no tools and its
            reply is the answer.
        timeout_seconds: Seconds one turn may take.
        max_turns: Turns of one session; None: no limit.
        session_ttl: How long a session may lie idle; None: for ever.
        compact_config: When old messages are replaced by a summary; None: never.
        tool_execution: Whether the tool calls of one round run together or one after another.
        limit_reply: What ``process`` answers, word for word, at ``max_rounds``.
        timeout_reply: What ``process`` answers, word for word, when ``timeout_seconds`` are over.
        max_delegate_depth: How deep agents may call agents.
    """

    model_config = _CONFIG

    system_prompt: str | InstanceOf[SystemPromptBuilder] = DEFAULT_SYSTEM_PROMPT
    model: Annotated[str, Field(min_length=1)] = "gpt-4o-mini"
    temperature: Annotated[float, Field(ge=0, le=2)] | None = 0.7
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    max_rounds: Annotated[int, Field(ge=1)] = 10
    on_limit: Literal["stop", "answer"] = "stop"
    timeout_seconds: Annotated[float, Field(gt=0)] = 300
    max_turns: Annotated[int, Field(ge=0)] | None = None
    session_ttl: Annotated[timedelta, Field(ge=timedelta(0))] | None = None
    compact_config: CompactConfig | None = None
    tool_execution: Literal["parallel", "sequential"] = "parallel"
    limit_reply: str = DEFAULT_LIMIT_REPLY
    timeout_reply: str = DEFAULT_TIMEOUT_REPLY
    max_delegate_depth: Annotated[int, Field(ge=0)] = 3

    if TYPE_CHECKING:  # names the aliases, which are no fields

        def __init__(
            self,
            *,
            system_prompt: str | SystemPromptBuilder = ...,
            model: str = ...,
            temperature: float | None = ...,
            max_tokens: int | None = ...,
            max_rounds: int = ...,
            max_iterations: int = ...,
            max_tool_turns: int = ...,
            on_limit: Literal["stop", "answer"] = ...,
            timeout_seconds: float = ...,
            max_turns: int | None = ...,
            session_ttl: timedelta | None = ...,
            compact_config: CompactConfig | None = ...,
            tool_execution: Literal["parallel", "sequential"] = ...,
            limit_reply: str = ...,
            timeout_reply: str = ...,
            max_delegate_depth: int = ...,
        ) -> None: ...

    @model_validator(mode="before")
    @classmethod
    def _read_aliases(cls, values: Any) -> Any:
        if not isinstance(values, Mapping):
            return values
        given = {name: values[name] for name in ("max_rounds", *_ROUND_ALIASES) if name in values}
        if len(given) <= ("max_rounds" in given):
            return values
        first, *others = given.values()
        if any(other != first for other in others):
            raise ConfigError(
                "one limit is given different values: "
                + ", ".join(f"{name}={value!r}" for name, value in given.items()),
                hint="max_iterations and max_tool_turns are other names of max_rounds: give one",
            )
        return {**{name: value for name, value in values.items() if name not in given}, "max_rounds": first}

    @property
    def max_iterations(self) -> int:
        """``max_rounds`` under another name."""
        return self.max_rounds

    @property
    def max_tool_turns(self) -> int:
        """``max_rounds`` under another name."""
        return self.max_rounds

    def with_system_prompt_suffix(self, text: str) -> AgentConfig:
        """Give a copy whose system prompt has *text* after it, set off by an empty line."""
        before = self.system_prompt
        prompt = _with_suffix(before, text) if isinstance(before, str) else _Suffixed(before, text)
        return self.model_copy(update={"system_prompt": prompt})


@dataclass(frozen=True, slots=True)
class _Suffixed:
    """What makes prompts, with a text after each."""

    builder: SystemPromptBuilder
    suffix: str

    async def build(self, config: AgentConfig, session: Any) -> str:
        prompt = self.builder.build(config, session)
        return _with_suffix(prompt if isinstance(prompt, str) else await prompt, self.suffix)


def _with_suffix(prompt: str, text: str) -> str:
    return f"{prompt}\n\n{text}" if prompt else text
