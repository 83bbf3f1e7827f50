"""What plugins bring, with the plugin that each thing is of."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from graphrt.errors import ConfigError
from graphrt.plugins.phases import ActionHandler, EffectHandler, Phase, PhaseHook, ToolGateHook, name_of, settle

if TYPE_CHECKING:
    from collections.abc import Callable

    from graphrt.llm.executor import InferenceRequest
    from graphrt.plugins.phases import PhaseContext


@dataclass(frozen=True, slots=True)
class TaggedPhaseHook:
    """A hook, or a gate, and whose it is.

    Attributes:
        plugin_id: Id of the plugin that brought it.
        hook: What is called.
        always_active: Whether it is a built-in's: no filter leaves it out, and its calls make no spans.
    """

    plugin_id: str
    hook: PhaseHook | ToolGateHook
    always_active: bool = False

    @property
    def name(self) -> str:
        """Name of the hook, for spans and logs."""
        return name_of(self.hook)


@dataclass(frozen=True, slots=True)
class TaggedHandler:
    """The handler of an action or of an effect, and whose it is.

    Attributes:
        plugin_id: Id of the plugin that brought it.
        handler: What is called.
        phase: When an action is carried out; None for an effect.
        always_active: Whether it is a built-in's: it may write the runtime's keys.
        check: Called with the payload of an action when it is scheduled; raises where it does not fit.
    """

    plugin_id: str
    handler: ActionHandler | EffectHandler
    phase: Phase | None = None
    always_active: bool = False
    check: Callable[[Any], object] | None = None


@dataclass(frozen=True, slots=True)
class TaggedRequestTransform:
    """A function that changes a request before it is sent, and whose it is.

    Attributes:
        plugin_id: Id of the plugin that brought it.
        transform: What is called.
        always_active: Whether it is a built-in's: no filter leaves it out.
        takes_context: Whether it is called with the `PhaseContext` too.
    """

    plugin_id: str
    transform: Callable[..., Any]
    always_active: bool = False
    takes_context: bool = False

    async def apply(self, request: InferenceRequest, ctx: PhaseContext) -> InferenceRequest:
        """Give the request as the plugin wants it.

        Raises:
            ConfigError: The transform gave something else.
        """
        from graphrt.llm.executor import InferenceRequest

        changed = await settle(self.transform(request, ctx) if self.takes_context else self.transform(request))
        if not isinstance(changed, InferenceRequest):
            raise ConfigError(
                f"request transform {name_of(self.transform)!r} of plugin {self.plugin_id!r} gave "
                f"{type(changed).__name__}, which is no InferenceRequest",
                hint="return request.replace(...), or the request itself",
            )
        return changed


_CONTEXT_NAMES: Final = frozenset({"ctx", "context"})
_POSITIONAL: Final = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def takes_context(transform: Callable[..., Any]) -> bool:
    """Say whether a transform has a second parameter for the context: one without a default, or of that name."""
    try:
        parameters = list(inspect.signature(transform).parameters.values())
    except (TypeError, ValueError):
        return False  # a function that does not tell
    positional = [each for each in parameters if each.kind in _POSITIONAL]
    if len(positional) > 1:
        second = positional[1]
        return second.default is inspect.Parameter.empty or second.name in _CONTEXT_NAMES
    return any(each.kind is inspect.Parameter.VAR_POSITIONAL for each in parameters)
