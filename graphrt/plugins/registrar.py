"""Where a plugin says what it brings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from graphrt.errors import EnvBuildError, ResolveError
from graphrt.plugins.phases import ActionHandler, EffectHandler, Phase, PhaseHook, ToolGateHook
from graphrt.plugins.state import RESERVED, StateKey
from graphrt.plugins.tagged import TaggedHandler, TaggedPhaseHook, TaggedRequestTransform, takes_context

if TYPE_CHECKING:
    from collections.abc import Callable

    from graphrt.plugins.env import ExecutionEnv
    from graphrt.plugins.plugin import Plugin
    from graphrt.tools.base import Tool


class PluginRegistrar:
    """Takes what one plugin brings, while its `register` runs.

    Structure (state keys, handlers of actions and effects) is there for every plugin of the agent; hooks, gates,
    transforms and tools are in force only where the agent's `active_hook_filter` lets their plugin act.
    """

    def __init__(self, env: ExecutionEnv, plugin: Plugin, owners: dict[tuple[str, str], str]) -> None:
        """Take the environment to fill, the plugin that fills it, and who has brought what there can be one of."""
        self._env = env
        self._plugin_id = plugin.descriptor.id
        self._built_in = plugin.always_active
        self._owners = owners
        self._open = True

    def phase_hook(self, phase: Phase, hook: PhaseHook) -> None:
        """Have *hook* called at *phase*. At `Phase.TOOL_GATE` it is a gate, as with `tool_gate`.

        Raises:
            EnvBuildError: There is no such phase, or the hook cannot be called.
        """
        self._add_hook(self._phase(phase), hook)

    def tool_gate(self, hook: ToolGateHook) -> None:
        """Have *hook* decide on each call of a tool before it is carried out.

        It returns None to let the call through. `GateDecision.block(reason)` ends the whole run; to refuse one call and
        go on, return `GateDecision.set_result(ToolResult(error_message=...))`, which the model reads.

        Raises:
            EnvBuildError: It cannot be called.
        """
        self._add_hook(Phase.TOOL_GATE, hook)

    def scheduled_action(
        self, key: str, phase: Phase, handler: ActionHandler, *, check: Callable[[Any], object] | None = None
    ) -> None:
        """Have *handler* carry out the actions scheduled under *key*, each when *phase* is next run.

        Args:
            key: What `StateCommand.schedule` names.
            phase: When such actions are carried out.
            handler: Called with the context and the payload. What it raises is its own affair: the action goes on the
                list of those that failed.
            check: Called with the payload of a command that schedules the action, before anything of it is done. What
                it raises is the error of the hook whose command it is.

        Raises:
            EnvBuildError: The key is taken, there is no such phase, or the handler or the check cannot be called.
        """
        phase = self._phase(phase)
        self._claim("action", key)
        check = None if check is None else self._callable(check)
        self._env.scheduled_action_handlers[key] = TaggedHandler(
            self._plugin_id, self._callable(handler), phase, self._built_in, check
        )

    def effect(self, key: str, handler: EffectHandler) -> None:
        """Have *handler* carry out the effects emitted under *key*.

        Raises:
            EnvBuildError: The key is taken, or the handler cannot be called.
        """
        self._claim("effect", key)
        self._env.effect_handlers[key] = TaggedHandler(
            self._plugin_id, self._callable(handler), always_active=self._built_in
        )

    def request_transform(self, transform: Callable[..., Any]) -> None:
        """Have *transform* change each request before it is sent; sync or async.

        It is called with the request, and with the `PhaseContext` where it has a second parameter for it, and
        gives a request. What the conversation keeps is not affected.

        Raises:
            EnvBuildError: It cannot be called.
        """
        transform = self._callable(transform)
        self._env.request_transforms.append(
            TaggedRequestTransform(self._plugin_id, transform, self._built_in, takes_context(transform))
        )

    def state_key(self, key: StateKey) -> None:
        """Add a key to the state of each run. Two plugins share a key by declaring the same one.

        Raises:
            EnvBuildError: Another key has its name, or the name is the runtime's.
        """
        self._still_open()
        if not isinstance(key, StateKey):
            raise EnvBuildError(f"plugin {self._plugin_id!r} declares {key!r}, which is no StateKey")
        if key.name.startswith(RESERVED) and not self._built_in:
            raise EnvBuildError(
                f"plugin {self._plugin_id!r} declares state key {key.name!r}, a name of the runtime's",
                hint=f"choose a name that does not start with {RESERVED!r}",
            )
        owner = self._owners.setdefault(("state key", key.name), self._plugin_id)
        for other in self._env.key_registrations:
            if other is not key and other.name == key.name and other != key:
                raise EnvBuildError(
                    f"state key {key.name!r} is declared by plugin {owner!r} and, differently, by {self._plugin_id!r}",
                    hint="share one StateKey object, or give one of them another name",
                )
        if all(other.name != key.name for other in self._env.key_registrations):
            self._env.key_registrations.append(key)

    def tool(self, tool: Tool | Callable[..., Any]) -> None:
        """Offer a tool, or a function as one, to the agent's model.

        Raises:
            EnvBuildError: Another plugin offers a tool of that id.
        """
        from graphrt.tools.base import Tool
        from graphrt.tools.function import FunctionTool

        self._still_open()
        if not isinstance(tool, Tool):
            tool = FunctionTool(self._callable(tool))
        tool_id = tool.descriptor.id
        self._claim("tool", tool_id)
        self._env.tools[tool_id] = tool

    def close(self) -> None:
        """Take nothing more: what a run is made of is settled before it starts."""
        self._open = False

    def _add_hook(self, phase: Phase, hook: Any) -> None:
        tagged = TaggedPhaseHook(self._plugin_id, self._callable(hook), self._built_in)
        self._env.phase_hooks.setdefault(phase, []).append(tagged)

    def _phase(self, phase: Phase) -> Phase:
        try:
            return Phase(phase)
        except ValueError as error:
            raise EnvBuildError(
                f"plugin {self._plugin_id!r} names phase {phase!r}, which there is not",
                hint=f"phases are {', '.join(Phase)}",
            ) from error

    def _callable(self, what: Any) -> Any:
        self._still_open()
        if not callable(what):
            raise EnvBuildError(f"plugin {self._plugin_id!r} registers {what!r}, which cannot be called")
        return what

    def _claim(self, what: str, key: str) -> None:
        self._still_open()
        if not isinstance(key, str) or not key:
            raise EnvBuildError(f"plugin {self._plugin_id!r} registers {what} {key!r}, which is no name")
        if (what, key) in self._owners:
            raise EnvBuildError(
                f"{what} {key!r} comes from plugin {self._owners[what, key]!r} and again from {self._plugin_id!r}",
                hint="give one of them another key" if what != "tool" else "give one of them another id",
            )
        self._owners[what, key] = self._plugin_id

    def _still_open(self) -> None:
        if not self._open:
            raise EnvBuildError(
                f"plugin {self._plugin_id!r} registers something after its register() has returned",
                hint="register everything there",
            )


def ask(plugin: Plugin, registrar: PluginRegistrar) -> None:
    """Let a plugin say what it brings.

    Raises:
        ResolveError: It could not.
    """
    try:
        plugin.register(registrar)
    except ResolveError:
        raise
    except Exception as error:
        raise EnvBuildError(
            f"plugin {plugin.descriptor.id!r} failed to register: {type(error).__name__}: {error}"
        ) from error
    finally:
        registrar.close()
