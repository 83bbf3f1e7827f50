"""The application's hooks on requests, called from the phases of an agent's run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from graphrt.hooks import HookContext, HookEvent
from graphrt.plugins.phases import Phase, PhaseContext
from graphrt.plugins.plugin import Plugin, PluginDescriptor

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from graphrt.hooks import HookExecutor, HookResult
    from graphrt.plugins.registrar import PluginRegistrar


class HookBridgePlugin(Plugin):
    """Call the hooks of a `HookExecutor` before a model is asked and after it has answered.

    They come before the hooks of other plugins, and once in a round: a retry is not asked about again.
    """

    always_active: ClassVar[bool] = True
    runs_first: ClassVar[bool] = True

    def __init__(self, hooks: HookExecutor) -> None:
        self.hooks = hooks

    @property
    def descriptor(self) -> PluginDescriptor:
        """Who the plugin is: `hook_bridge`."""
        return PluginDescriptor("hook_bridge", "Calls the application's hooks on requests.")

    def register(self, registrar: PluginRegistrar) -> None:
        """Bring a hook for each of the two events."""
        registrar.phase_hook(Phase.BEFORE_INFERENCE, self._before)
        registrar.phase_hook(Phase.AFTER_INFERENCE, self._after)

    async def _before(self, ctx: PhaseContext) -> None:
        """Call the `PRE_REQUEST` hooks.

        Raises:
            HookBlockedError: One refused the request.
        """
        result = await self._fire(HookEvent.PRE_REQUEST, ctx, _request_data(ctx))
        result.raise_if_blocked(HookEvent.PRE_REQUEST)

    async def _after(self, ctx: PhaseContext) -> None:
        """Call the `POST_REQUEST` hooks."""
        await self._fire(HookEvent.POST_REQUEST, ctx, {**_request_data(ctx), "response": ctx.response})

    async def _fire(self, event: HookEvent, ctx: PhaseContext, data: dict[str, Any]) -> HookResult:
        told = HookContext(event, session_id=ctx.session_id, run_id=ctx.run_id, turn_index=ctx.turn_index, data=data)

        def span(name: str, context: HookContext) -> AbstractContextManager[Callable[[BaseException], object]]:
            return ctx.run.hook_span(name, context=context)

        traced = getattr(ctx.run, "traced", True)  # else the executor's own spans are all there is
        return await self.hooks.execute(event, told, span=span if traced else None)


def _request_data(ctx: PhaseContext) -> dict[str, Any]:
    request = ctx.request
    if request is None:
        return {}
    return {"request": request, "model": request.model, "messages": list(request.messages)}
