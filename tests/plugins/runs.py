"""What the tests of plugins share: a run that is none, plugins made of functions, and requests."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import anyio

from graphrt.hooks import HookContext
from graphrt.llm.executor import InferenceRequest
from graphrt.messages import Message, TokenUsage
from graphrt.plugins import ExecutionEnv, PhaseRuntime, Plugin, PluginDescriptor, PluginRegistrar, StateCommand
from graphrt.tools.base import ToolDescriptor

BACKENDS = ["asyncio", "trio"]


class FakeRun:
    """A run that notes what it is told."""

    run_id = "run-1"
    deps: Any = None
    budget: Any = None
    traced = True

    def __init__(self) -> None:
        self.events: list[tuple[str, Mapping[str, Any] | None]] = []
        self.spans: list[tuple[str, str | None, str | None]] = []
        self.failed: list[BaseException] = []

    def emit(self, type: str, data: Mapping[str, Any] | None = None) -> None:
        self.events.append((type, data))

    def record_usage(self, usage: TokenUsage | None) -> None:
        raise AssertionError("no test here uses a model")

    @contextmanager
    def hook_span(
        self, name: str, *, event: str | None = None, plugin_id: str | None = None, context: HookContext | None = None
    ) -> Iterator[Callable[[BaseException], object]]:
        self.spans.append((name, event if context is None else context.event.value, plugin_id))
        yield self.failed.append


class Made(Plugin):
    """A plugin made of functions."""

    def __init__(
        self,
        id: str = "p",
        register: Callable[[PluginRegistrar], object] = lambda registrar: None,
        *,
        activate: Callable[[Any, StateCommand], Any] = lambda spec, cmd: None,
        deactivate: Callable[[StateCommand], Any] = lambda cmd: None,
    ) -> None:
        self._id = id
        self._register = register
        self._activate = activate
        self._deactivate = deactivate

    @property
    def descriptor(self) -> PluginDescriptor:
        return PluginDescriptor(self._id)

    def register(self, registrar: PluginRegistrar) -> None:
        self._register(registrar)

    def on_activate(self, spec: Any, cmd: StateCommand) -> Any:
        return self._activate(spec, cmd)

    def on_deactivate(self, cmd: StateCommand) -> Any:
        return self._deactivate(cmd)


def runtime_of(*plugins: Plugin, **options: Any) -> PhaseRuntime:
    """Make the plugins' side of a run."""
    return PhaseRuntime(ExecutionEnv.from_plugins(plugins), **options)


def request_of(*texts: str, model: str | None = "m", tools: tuple[str, ...] = (), **params: Any) -> InferenceRequest:
    """Make a request with a system message and some of the user's."""
    messages = [Message.system("be brief"), *(Message.user(text) for text in texts or ("hello",))]
    return InferenceRequest(model, messages, [ToolDescriptor(each) for each in tools], params)


async def pause(times: int) -> None:
    """Let other tasks go first, some times."""
    for _ in range(times):
        await anyio.lowlevel.checkpoint()
