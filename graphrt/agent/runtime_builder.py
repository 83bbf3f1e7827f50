"""`AgentRuntimeBuilder`: the usual way to make an `AgentRuntime`."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Self

from graphrt.agent.making import telemetry_of
from graphrt.agent.registered import local_ids
from graphrt.agent.runtime import AgentRuntime
from graphrt.config import AgentConfig
from graphrt.errors import BuildError, ConfigError, GraphrtError
from graphrt.hooks import HookExecutor
from graphrt.registry.recording import checked_ledger
from graphrt.registry.registries import (
    A2A,
    MapAgentSpecRegistry,
    MapModelRegistry,
    MapPluginSource,
    MapProviderRegistry,
    RegistrySet,
)
from graphrt.registry.resolution import resolve
from graphrt.tools.base import Tool
from graphrt.tools.permission import PermissionChecker
from graphrt.tools.registry import ToolRegistry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from graphrt.graph.durable.work import Ledger
    from graphrt.ledger.store import RunLedgerStore
    from graphrt.llm.executor import LLMExecutor
    from graphrt.llm.provider import LLMProvider
    from graphrt.plugins import Plugin
    from graphrt.registry import AgentSpec, ModelSpec
    from graphrt.registry.backends import BackendFactory


class AgentRuntimeBuilder:
    """Collect agents, tools, models, providers and plugins; each method gives the builder back.

    Nothing is checked before `build()`, which tells of all that is wrong at once.
    """

    def __init__(self, *, features: Iterable[str] = (A2A,)) -> None:
        """Start empty; without the feature `"a2a"` agents have no delegates."""
        self._features = {features} if isinstance(features, str) else set(features)
        self._specs: list[AgentSpec] = []
        self._tools: list[tuple[str, Tool | Callable[..., Any]]] = []
        self._models: list[ModelSpec] = []
        self._providers: list[tuple[str, LLMProvider | LLMExecutor]] = []
        self._owned: list[Any] = []
        self._plugins: list[tuple[str, Plugin]] = []
        self._backends: dict[str, BackendFactory] = {}
        self._config: AgentConfig | None = None
        self._hooks: HookExecutor | None = None
        self._checker: PermissionChecker | None = None
        self._tracer_provider: Any = None
        self._ledger: RunLedgerStore | Ledger | None = None
        self._default: str | None = None

    def with_agent_spec(self, spec: AgentSpec) -> Self:
        """Add an agent."""
        self._specs.append(spec)
        return self

    def with_agent_specs(self, specs: Iterable[AgentSpec]) -> Self:
        """Add agents."""
        self._specs.extend(specs)
        return self

    def with_tool(self, id: str, tool: Tool | Callable[..., Any]) -> Self:
        """Add a tool, or a function as one, under the name that models call it by."""
        self._tools.append((id, tool))
        return self

    def with_model(self, model: ModelSpec) -> Self:
        """Add a model."""
        self._models.append(model)
        return self

    def with_provider(self, id: str, provider: LLMProvider | LLMExecutor, *, close: bool = False) -> Self:
        """Add a provider or an executor; with *close* the runtime closes it at the end of its `async with`."""
        self._providers.append((id, provider))
        if close:
            self._owned.append(provider)
        return self

    def with_plugin(self, id: str, plugin: Plugin) -> Self:
        """Add a plugin."""
        self._plugins.append((id, plugin))
        return self

    def with_config(self, config: AgentConfig) -> Self:
        """Set limits and request parameters of all runs."""
        self._config = config
        return self

    def with_hook_executor(self, hooks: HookExecutor) -> Self:
        """Set who is told of requests, errors, and the turns of `process`; a `run` is no turn."""
        self._hooks = hooks
        return self

    def with_permission_checker(self, checker: PermissionChecker) -> Self:
        """Set who decides on each call of a tool."""
        self._checker = checker
        return self

    def with_remote_backend(self, kind: str, factory: BackendFactory) -> Self:
        """Add what talks to agents whose endpoint names this kind; it takes the place of one that is built in."""
        self._backends[kind] = factory
        return self

    def with_default_agent(self, agent_id: str) -> Self:
        """Set whom `process` asks when it is not told."""
        self._default = agent_id
        return self

    def without_feature(self, feature: str) -> Self:
        """Switch a feature off; harmless if it is."""
        self._features.discard(feature)
        return self

    def with_tracer_provider(self, tracer_provider: Any) -> Self:
        """Set where spans go: a tracer provider, or a `Telemetry`, which also says what they hold."""
        self._tracer_provider = tracer_provider
        return self

    def with_ledger(self, store: RunLedgerStore | Ledger) -> Self:
        """Set where every run is recorded, so that it can be resumed; the store stays the caller's to close."""
        self._ledger = store
        return self

    def build(self) -> AgentRuntime:
        """Give the runtime, after a trial resolution of every agent that can be run here.

        Raises:
            BuildError: Things of one kind have one id, or are of the wrong type; else, agents cannot be resolved.
                All of them are in `problems`.
        """
        runtime = self.build_unchecked()
        problems = _Problems()
        for agent_id in local_ids(runtime.registries.agents):
            with problems.noted():
                resolve(runtime.registries, agent_id)
        problems.raise_if_any("agents cannot be resolved")
        return runtime

    def build_unchecked(self) -> AgentRuntime:
        """Give the runtime without resolving anything: what an agent lacks shows when it is run.

        Raises:
            BuildError: Things of one kind have one id, or are of the wrong type.
        """
        problems = _Problems()
        registries = RegistrySet(
            agents=_filled(MapAgentSpecRegistry(), ((each,) for each in self._specs), problems),
            tools=self._tool_registry(problems),
            models=_filled(MapModelRegistry(), ((each,) for each in self._models), problems),
            providers=_filled(MapProviderRegistry(), self._providers, problems),
            plugins=_filled(MapPluginSource(), self._plugins, problems),
            features=frozenset(self._features),
            backends=dict(self._backends) or None,
        )
        telemetry = None
        with problems.noted():
            checked_ledger(self._ledger)
        with problems.noted():
            telemetry = telemetry_of(self._tracer_provider)
        self._check_types(problems)
        if self._default is not None and registries.agents.get(self._default) is None:
            problems.found.append(
                ConfigError(
                    f"the default agent {self._default!r} is not registered",
                    hint=f"agents so far: {', '.join(registries.agents.ids()) or 'none'}",
                )
            )
        problems.raise_if_any("the parts do not fit together")
        with problems.noted():
            return AgentRuntime(
                registries,
                config=self._config,
                hook_executor=self._hooks,
                telemetry=telemetry,
                default_agent=self._default,
                owned=self._owned,
                ledger=self._ledger,
            )
        raise BuildError("the parts do not fit together", problems=problems.found)

    def _tool_registry(self, problems: _Problems) -> ToolRegistry:
        registry = ToolRegistry(permission_checker=self._checker)
        for id, tool in self._tools:
            with problems.noted():
                if not isinstance(id, str) or not id:
                    raise ConfigError(f"a tool has the id {id!r}", hint="give a text that is not empty")
                if not isinstance(tool, Tool) and not callable(tool):
                    raise ConfigError(
                        f"tool {id!r} is {tool!r}, which cannot be called", hint="give a tool or a function"
                    )
                registry.register(tool, id=id, source=f"with_tool({id!r})")
        return registry

    def _check_types(self, problems: _Problems) -> None:
        wanted: Mapping[str, tuple[object, type]] = {
            "config": (self._config, AgentConfig),
            "hook_executor": (self._hooks, HookExecutor),
            "permission_checker": (self._checker, PermissionChecker),
        }
        for name, (value, kind) in wanted.items():
            if value is not None and not isinstance(value, kind):
                problems.found.append(
                    ConfigError(
                        f"with_{name}() was given a {type(value).__name__}", hint=f"give one of {kind.__name__}"
                    )
                )


class _Problems:
    """What is wrong, in the order in which it was found."""

    def __init__(self) -> None:
        self.found: list[GraphrtError] = []

    @contextmanager
    def noted(self) -> Iterator[None]:
        """Note what is raised in the block."""
        try:
            yield
        except GraphrtError as error:
            self.found.append(error)

    def raise_if_any(self, message: str) -> None:
        """Raise all that was noted.

        Raises:
            BuildError: Something was.
        """
        if self.found:
            raise BuildError(message, problems=self.found)


def _filled(registry: Any, entries: Iterable[tuple[Any, ...]], problems: _Problems) -> Any:
    for entry in entries:
        with problems.noted():
            registry.register(*entry)
    return registry
