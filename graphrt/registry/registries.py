"""Where agents, models, providers, tools and plugins are found by their ids.

Each registry is a small Protocol with one implementation over a dictionary. An application may bring its own,
over a file or a table that it has read: resolution asks, and never waits.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeAlias, TypeVar

from graphrt.errors import ConfigError
from graphrt.llm.executor import LLMExecutor, ProviderExecutor
from graphrt.llm.provider import LLMProvider
from graphrt.plugins import Plugin
from graphrt.registry.specs import AgentSpec, ModelSpec
from graphrt.tools.base import Tool
from graphrt.tools.registry import ToolRegistry

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from graphrt.registry.backends import BackendFactory

_T = TypeVar("_T")
_T_co = TypeVar("_T_co", covariant=True)

A2A = "a2a"
"""The feature without which agents have no delegates."""


class Registry(Protocol[_T_co]):
    """Things by id. Resolution reads it, from the thread it runs in, and keeps nothing of it."""

    def get(self, id: str, /) -> _T_co | None:
        """Look one thing up; None if there is none. Each resolution asks for every id that a spec names."""
        ...

    def ids(self) -> list[str]:
        """List the ids there are. An error shows them; of tools, each resolution takes all."""
        ...


class AgentSpecRegistry(Registry[AgentSpec], Protocol):
    """Agents by id."""


class ModelRegistry(Registry[ModelSpec], Protocol):
    """Models, by the id that agents ask for them by."""


class ProviderRegistry(Registry[LLMExecutor], Protocol):
    """What asks the models, by the id that a model names. The same id gives the same object each time."""


class PluginSource(Registry[Plugin], Protocol):
    """Plugins by the id that agents list."""


class ToolSource(Registry[Tool], Protocol):
    """Global tools by id. Who decides on their calls is its ``permission_checker``, if it has one."""


MapToolRegistry: TypeAlias = ToolRegistry
"""Global tools over a dictionary."""


class _Map(Generic[_T]):
    """Things by id, in the order of their registration; may be used from several threads at once."""

    _what = "thing"

    def __init__(self) -> None:
        self._things: dict[str, _T] = {}
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(self.ids())})"

    def get(self, id: str, /) -> _T | None:
        """Look one up; None if there is none."""
        return self._things.get(id)

    def ids(self) -> list[str]:
        """List the ids, in the order of registration."""
        with self._lock:
            return list(self._things)

    def _add(self, id: str, thing: _T) -> None:
        if not isinstance(id, str) or not id:
            raise ConfigError(f"a {self._what} has the id {id!r}", hint="give a text that is not empty")
        with self._lock:
            if id in self._things:
                raise ConfigError(f"{self._what} {id!r} is registered twice", hint="give one of them another id")
            self._things[id] = thing


class MapAgentSpecRegistry(_Map[AgentSpec]):
    """Agents over a dictionary."""

    _what = "agent"

    def __init__(self, specs: Iterable[AgentSpec] = ()) -> None:
        super().__init__()
        for spec in specs:
            self.register(spec)

    def register(self, spec: AgentSpec) -> AgentSpec:
        """Add an agent under its own id, and return it.

        Raises:
            ConfigError: The id is taken, or it is no ``AgentSpec``.
        """
        if not isinstance(spec, AgentSpec):
            raise ConfigError(f"an agent is an AgentSpec, not {_a(spec)}", hint="give AgentSpec(id, model)")
        self._add(spec.id, spec)
        return spec


class MapModelRegistry(_Map[ModelSpec]):
    """Models over a dictionary."""

    _what = "model"

    def __init__(self, models: Iterable[ModelSpec] = ()) -> None:
        super().__init__()
        for model in models:
            self.register(model)

    def register(self, model: ModelSpec) -> ModelSpec:
        """Add a model under its own id, and return it.

        Raises:
            ConfigError: The id is taken, or it is no ``ModelSpec``.
        """
        if not isinstance(model, ModelSpec):
            raise ConfigError(f"a model is a ModelSpec, not {_a(model)}", hint="give ModelSpec(id, provider, name)")
        self._add(model.id, model)
        return model


class MapProviderRegistry(_Map[LLMExecutor]):
    """Executors over a dictionary. A provider is made one when it is added, once."""

    _what = "provider"

    def __init__(self, providers: Mapping[str, LLMProvider | LLMExecutor] | None = None) -> None:
        super().__init__()
        for id, provider in (providers or {}).items():
            self.register(id, provider)

    def register(self, id: str, provider: LLMProvider | LLMExecutor) -> LLMExecutor:
        """Add a provider or an executor, and return what ``get(id)`` gives from now on.

        Raises:
            ConfigError: The id is taken, or it is neither.
        """
        executor = executor_of(provider)
        if executor is None:
            raise ConfigError(
                f"provider {id!r} is {_a(provider)}", hint="give an object of an LLMProvider, or of an LLMExecutor"
            )
        self._add(id, executor)
        return executor


class MapPluginSource(_Map[Plugin]):
    """Plugins over a dictionary."""

    _what = "plugin"

    def __init__(self, plugins: Mapping[str, Plugin] | None = None) -> None:
        super().__init__()
        for id, plugin in (plugins or {}).items():
            self.register(id, plugin)

    def register(self, id: str, plugin: Plugin) -> Plugin:
        """Add a plugin, and return it.

        Raises:
            ConfigError: The id is taken, or it is no ``Plugin``.
        """
        if not isinstance(plugin, Plugin):
            raise ConfigError(f"plugin {id!r} is {_a(plugin)}", hint="give an object of a class derived from Plugin")
        self._add(id, plugin)
        return plugin


@dataclass(frozen=True)
class RegistrySet:
    """The world that agents are resolved in."""

    agents: AgentSpecRegistry
    tools: ToolSource
    models: ModelRegistry
    providers: ProviderRegistry
    plugins: PluginSource
    features: frozenset[str] = frozenset({A2A})
    """Without ``"a2a"`` agents have no delegates."""
    backends: Mapping[str, BackendFactory] | None = None
    """What talks to remote agents, by the kind that an endpoint names, besides those that are built in."""

    def __post_init__(self) -> None:
        for what, how in _HOW.items():
            registry = getattr(self, what)
            if not (callable(getattr(registry, "get", None)) and callable(getattr(registry, "ids", None))):
                raise ConfigError(f"the {what} are {_a(registry)}, without get() and ids()", hint=f"give {how}")
        if isinstance(self.features, (str, bytes)):
            raise ConfigError(f"features is the text {self.features!r}", hint=f"give {{{self.features!r}}}")
        object.__setattr__(self, "features", frozenset(self.features))


_HOW: Mapping[str, str] = {
    "agents": "MapAgentSpecRegistry([spec, ...])",
    "tools": "a ToolRegistry",
    "models": "MapModelRegistry([model, ...])",
    "providers": "MapProviderRegistry({id: provider, ...})",
    "plugins": "MapPluginSource({id: plugin, ...})",
}


def executor_of(provider: Any) -> LLMExecutor | None:
    """Give what carries out requests with *provider*, itself if it does; None if it is neither kind."""
    if isinstance(provider, type):
        return None
    if isinstance(provider, LLMExecutor):
        return provider
    return ProviderExecutor(provider) if isinstance(provider, LLMProvider) else None


def _a(value: object) -> str:
    if isinstance(value, type):
        return f"the class {value.__name__}"
    name = type(value).__name__
    return f"{'an' if name[0] in 'AEIOUaeiou' else 'a'} {name}"
