"""`AgentBuilder`: the way to make a `RuntimeBundle`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Self

from graphrt.agent.bundle import RuntimeBundle
from graphrt.errors import ConfigError

if TYPE_CHECKING:
    from graphrt.config import AgentConfig
    from graphrt.hooks import HookExecutor
    from graphrt.llm.executor import LLMExecutor
    from graphrt.llm.provider import LLMProvider
    from graphrt.memory.retriever import MemoryRetriever
    from graphrt.memory.store import MemoryStore
    from graphrt.tools.registry import ToolRegistry

_REQUIRED: Final = ("provider", "tool_registry", "hook_executor")


class AgentBuilder:
    """Collect what an agent's sessions run with, setter by setter; each gives the builder back."""

    def __init__(self) -> None:
        self._given: dict[str, Any] = {}

    def provider(self, provider: LLMProvider | LLMExecutor) -> Self:
        """Set whom the agent's models are asked of; required."""
        return self._set("provider", provider)

    def tool_registry(self, registry: ToolRegistry) -> Self:
        """Set the tools there are; required. The bundle lays its own over it, and leaves it as it is."""
        return self._set("tool_registry", registry)

    def hook_executor(self, hooks: HookExecutor) -> Self:
        """Set who is told of turns and requests; required."""
        return self._set("hook_executor", hooks)

    def memory_store(self, store: MemoryStore) -> Self:
        """Set the persistent memory, for the application's own use."""
        return self._set("memory_store", store)

    def retriever(self, retriever: MemoryRetriever) -> Self:
        """Set what the model can look things up with: it is offered as the tool `retrieve`."""
        return self._set("retriever", retriever)

    def session_memory_backend(self, store: MemoryStore) -> Self:
        """Set where the memory of sessions is kept; without it each session keeps its own."""
        return self._set("session_memory_backend", store)

    def config(self, config: AgentConfig) -> Self:
        """Set limits, the model and what else can be chosen."""
        return self._set("config", config)

    def build(self) -> RuntimeBundle:
        """Give the bundle; the builder may be used further.

        Raises:
            ConfigError: Required parts are missing, all of which the message names; a part is of the wrong type; or
                there is a retriever, and a tool called `retrieve` as well.
        """
        missing = [name for name in _REQUIRED if self._given.get(name) is None]
        if missing:
            raise ConfigError(
                f"the bundle lacks {', '.join(missing)}",
                hint=f"set {' and '.join(f'.{name}(...)' for name in missing)} before build()",
            )
        return RuntimeBundle.new(**self._given)

    def _set(self, name: str, value: object) -> Self:
        self._given[name] = value
        return self
