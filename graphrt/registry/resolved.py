"""An agent as resolution leaves it: live, and ready to become a graph."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from graphrt.nodes.agent_graph import AgentParts
from graphrt.plugins import PhaseRuntime

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from graphrt.config import AgentConfig
    from graphrt.hooks import HookExecutor
    from graphrt.llm.executor import LLMExecutor
    from graphrt.messages import TokenUsage
    from graphrt.plugins import ExecutionEnv
    from graphrt.registry.specs import AgentSpec, ModelSpec
    from graphrt.tools.base import Tool
    from graphrt.tools.permission import PermissionChecker


@dataclass(frozen=True)
class ResolvedAgent:
    """Everything one resolution has found for an agent."""

    spec: AgentSpec
    executor: LLMExecutor
    """Asks the model; a ``RetryingExecutor`` when the spec has retries or fallbacks."""
    model_name: str
    """The provider's own name of the model."""
    tools: dict[str, Tool]
    """What the model is offered, by the name that it calls a tool by."""
    env: ExecutionEnv
    """What the agent's plugins have registered."""
    model: ModelSpec
    permission: PermissionChecker | None = None
    """Decides on each call of a tool."""

    def parts(
        self,
        config: AgentConfig | None = None,
        *,
        system_prompt: str | None = None,
        params: Mapping[str, Any] | None = None,
        phases: Callable[[], PhaseRuntime] | None = None,
        on_usage: Callable[[TokenUsage | None], None] | None = None,
        session_id: str | None = None,
        hooks: HookExecutor | None = None,
    ) -> AgentParts:
        """Give the parts that ``compile_agent`` makes a graph of.

        Args:
            config: Gives request parameters, how tools run, and a limit on rounds; the smaller limit wins.
            system_prompt: Takes the place of the spec's; an empty text sends no system message.
            params: Request parameters of this call; they win over the config's, and None is not sent.
            phases: Makes what the plugins do in one run; None: the plugins that the spec has active.
            on_usage: Is told of each reply's usage.
            session_id: The session that the run belongs to.
            hooks: Their ``ON_RETRY`` hooks are called.
        """
        spec = self.spec
        prompt = spec.system_prompt if system_prompt is None else system_prompt
        settings: dict[str, Any] = {}
        if config is not None:
            settings = {"tool_execution": config.tool_execution, "on_limit": config.on_limit}
        return AgentParts(
            name=spec.id,
            executor=self.executor,
            model_name=self.model_name,
            tools=dict(self.tools),
            system_prompt=prompt or None,
            max_rounds=self._max_rounds(config),
            params=_params(config, params),
            permission=self.permission,
            cost_of=self.model.cost_of,
            phases=phases or (lambda: self._phases(session_id, on_usage)),
            on_usage=on_usage,
            session_id=session_id,
            hooks=hooks,
            **settings,
        )

    def _max_rounds(self, config: AgentConfig | None) -> int:
        limits = [self.spec.max_rounds, self.env.round_limit, None if config is None else config.max_rounds]
        return min(limit for limit in limits if limit is not None)

    def _phases(self, session_id: str | None, on_usage: Callable[[TokenUsage | None], None] | None) -> PhaseRuntime:
        spec = self.spec
        return PhaseRuntime(
            self.env,
            spec=spec,
            agent_id=spec.id,
            session_id=session_id,
            active=spec.active_hook_filter,
            on_usage=on_usage,
        )


def _params(config: AgentConfig | None, params: Mapping[str, Any] | None) -> dict[str, Any]:
    settings = {} if config is None else {"temperature": config.temperature, "max_tokens": config.max_tokens}
    return {name: value for name, value in {**settings, **(params or {})}.items() if value is not None}
