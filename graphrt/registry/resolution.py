"""Resolution: from an agent's id to everything it consists of, in three stages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphrt.registry.lookup import look_up
from graphrt.registry.plugin_stage import build_env
from graphrt.registry.resolved import ResolvedAgent
from graphrt.registry.tool_stage import gather_tools

if TYPE_CHECKING:
    from graphrt.registry.registries import RegistrySet


def resolve(registries: RegistrySet, agent_id: str) -> ResolvedAgent:
    """Put an agent together from the registries, anew each time; nothing in them is changed, nothing is kept.

    Lookup comes first, then the plugins, then the tools: what fails first is what is raised. A section that no
    plugin claims, and delegates without the feature ``a2a``, are only warned of.

    Raises:
        ResolveError: The agent cannot be put together; the class says which part is at fault.
    """
    found = look_up(registries, agent_id)
    env = build_env(registries, found)
    tools = gather_tools(registries, found.spec, env)
    return ResolvedAgent(
        spec=found.spec,
        executor=found.executor,
        model_name=found.model.name,
        tools=tools,
        env=env,
        model=found.model,
        permission=getattr(registries.tools, "permission_checker", None),
    )
