"""The first stage of resolution: an agent's spec, its model, and what asks the model."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from graphrt.config import RetryConfig
from graphrt.errors import (
    AgentNotFoundError,
    InvalidPluginConfigError,
    ModelNotFoundError,
    PluginNotFoundError,
    ProviderNotFoundError,
    RemoteAgentNotDirectlyRunnableError,
    ResolveError,
)
from graphrt.llm.retries import RetryingExecutor
from graphrt.plugins import ConfigSchema, Plugin
from graphrt.registry.registries import executor_of
from graphrt.registry.specs import AgentSpec, ModelSpec
from graphrt.tools.base import Tool

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from graphrt.llm.executor import LLMExecutor
    from graphrt.registry.registries import Registry, RegistrySet

_T = TypeVar("_T")

RETRY: Final = "retry"
"""Key of the section that the first stage reads, and the name it has in errors in place of a plugin."""


@dataclass(frozen=True, slots=True)
class _Kind(Generic[_T]):
    """What a registry holds, and how it is asked."""

    what: str
    expected: str
    read: Callable[[Any], _T | None]
    """Gives the thing; None if it is none of the kind."""
    missing: Callable[[str, Sequence[str]], ResolveError]


def _only(kind: type[_T]) -> Callable[[Any], _T | None]:
    return lambda thing: thing if isinstance(thing, kind) else None


AGENT: Final = _Kind("agents", "an AgentSpec", _only(AgentSpec), AgentNotFoundError)
MODEL: Final = _Kind("models", "a ModelSpec", _only(ModelSpec), ModelNotFoundError)
PROVIDER: Final = _Kind("providers", "an LLMExecutor", executor_of, ProviderNotFoundError)
PLUGIN: Final = _Kind("plugins", "a Plugin", _only(Plugin), PluginNotFoundError)
TOOL: Final = _Kind(
    "tools",
    "a Tool",
    _only(Tool),
    lambda id, known: ResolveError(
        f"the registry of tools lists {id!r}, and has none", hint="make ids() and get() agree"
    ),
)


def find(registry: Registry[Any], kind: _Kind[_T], id: str) -> _T:
    """Get a thing out of a registry, which may be of an application's own.

    Raises:
        ResolveError: There is none, the registry failed, or it gave something else; each in its own words.
    """
    thing = asked(f"the registry of {kind.what} failed on {id!r}", registry.get, id)
    if thing is None:
        raise kind.missing(id, known_ids(registry))
    found = kind.read(thing)
    if found is None:
        if inspect.iscoroutine(thing):
            thing.close()
        raise ResolveError(
            f"the registry of {kind.what} gave {type(thing).__name__} {thing!r} for {id!r}",
            hint=f"its get() is a plain function that returns {kind.expected}, or None",
        )
    return found


def asked(failed: str, question: Callable[..., _T], *args: Any) -> _T:
    """Ask what an application has written; its errors become those of resolution.

    Raises:
        ResolveError: It raised something; *failed* says in which case.
    """
    try:
        return question(*args)
    except ResolveError:
        raise
    except Exception as error:  # whatever it is, it is why the agent cannot be resolved
        raise ResolveError(f"{failed}: {type(error).__name__}: {error}") from error


def known_ids(registry: Registry[Any]) -> list[str]:
    """List a registry's ids for the message of an error, which must not give way to another one."""
    try:
        return [str(id) for id in registry.ids()]
    except Exception:  # noqa: BLE001  # the error that is being written says more
        return []


def read_section(spec: AgentSpec, schema: ConfigSchema, plugin_id: str) -> Any:
    """Read the section that *schema* is for.

    Raises:
        InvalidPluginConfigError: It does not fit.
    """
    try:
        return schema.validate(spec.sections[schema.key])
    except Exception as error:  # a validator of the plugin's own may raise anything
        raise InvalidPluginConfigError(plugin_id, schema.key, str(error)) from error


@dataclass(frozen=True, slots=True)
class Found:
    """What the first stage gives."""

    spec: AgentSpec
    model: ModelSpec
    executor: LLMExecutor


def look_up(registries: RegistrySet, agent_id: str) -> Found:
    """Find an agent, its model, and what asks it; with retries around that, if the agent has a section for them.

    Raises:
        ResolveError: Something is missing, or the agent lives elsewhere, or its retry section is wrong.
    """
    spec = find(registries.agents, AGENT, agent_id)
    if spec.endpoint is not None:
        raise RemoteAgentNotDirectlyRunnableError(agent_id)
    model, executor = _find_model(registries, spec.model)
    if RETRY in spec.sections:
        executor = _with_retries(registries, spec, executor)
    return Found(spec, model, executor)


def _find_model(registries: RegistrySet, model_id: str) -> tuple[ModelSpec, LLMExecutor]:
    model = find(registries.models, MODEL, model_id)
    return model, find(registries.providers, PROVIDER, model.provider)


def _with_retries(registries: RegistrySet, spec: AgentSpec, executor: LLMExecutor) -> LLMExecutor:
    config: RetryConfig = read_section(spec, ConfigSchema(RETRY, RetryConfig), RETRY)
    if not config.max_retries and not config.fallback_models:
        return executor
    fallbacks = [_find_model(registries, model_id) for model_id in config.fallback_models]
    for each in (executor, *(found for _, found in fallbacks)):
        if isinstance(each, RetryingExecutor):
            raise InvalidPluginConfigError(
                RETRY,
                RETRY,
                f"a provider of agent {spec.id!r} is a RetryingExecutor, and tries would multiply",
                hint="register the executor inside it, or leave the section out",
            )
    return RetryingExecutor(executor, config, fallbacks=[(found, model.name) for model, found in fallbacks])
