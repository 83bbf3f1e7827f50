"""The second stage of resolution: an agent's plugins, their settings, and the environment they make."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from graphrt.config import CompactConfig
from graphrt.errors import ResolveError
from graphrt.plugins import (
    CompactionPlugin,
    ConfigSchema,
    ContextTransformPlugin,
    ExecutionEnv,
    LoopActionHandlersPlugin,
    MaxRoundsPlugin,
    Plugin,
)
from graphrt.registry.lookup import PLUGIN, RETRY, asked, find, read_section

if TYPE_CHECKING:
    from collections.abc import Sequence

    from graphrt.registry.lookup import Found
    from graphrt.registry.registries import RegistrySet
    from graphrt.registry.specs import AgentSpec

log = logging.getLogger(__name__)

COMPACTION: Final = "compaction"
"""Key of the section of ``CompactionPlugin``, and its id."""


def build_env(registries: RegistrySet, found: Found) -> ExecutionEnv:
    """Put an agent's plugins together, check their settings, and let them register.

    No plugin registers anything before every section has been checked.

    Raises:
        ResolveError: A plugin is missing, a section does not fit, or two plugins register the same thing.
    """
    spec = found.spec
    plugins = [find(registries.plugins, PLUGIN, id) for id in spec.plugin_ids]
    claimed = {RETRY}
    compaction = CompactConfig()
    if spec.context_policy is not None:
        claimed.add(COMPACTION)
        if COMPACTION in spec.sections:
            compaction = read_section(spec, ConfigSchema(COMPACTION, CompactConfig), COMPACTION)
    for plugin in plugins:
        id = _id_of(plugin)
        for schema in _schemas(plugin, id):
            claimed.add(schema.key)
            if schema.key in spec.sections:
                read_section(spec, schema, id)
    _warn_of_unclaimed(spec, claimed)
    plugins += _built_in(found, compaction)
    _warn_of_unknown_filter(spec, plugins)
    return ExecutionEnv.from_plugins(plugins)


def _built_in(found: Found, compaction: CompactConfig) -> list[Plugin]:
    """Make the plugins that every agent has, and those that come with a context policy."""
    spec, model = found.spec, found.model
    plugins: list[Plugin] = [LoopActionHandlersPlugin(), MaxRoundsPlugin(spec.max_rounds)]
    policy = spec.context_policy
    if policy is not None:
        plugins += [
            CompactionPlugin(compaction, policy, executor=found.executor, model=model.name, cost_of=model.cost_of),
            ContextTransformPlugin(policy),
        ]
    return plugins


def _id_of(plugin: Plugin) -> str:
    return asked(f"plugin {plugin!r} cannot say who it is", lambda: plugin.descriptor.id)


def _schemas(plugin: Plugin, id: str) -> Sequence[ConfigSchema]:
    """Ask a plugin for the sections it claims.

    Raises:
        ResolveError: It cannot say, or says something else.
    """
    schemas = asked(f"plugin {id!r} cannot say what its sections look like", lambda: list(plugin.config_schemas()))
    for schema in schemas:
        if not isinstance(schema, ConfigSchema):
            raise ResolveError(
                f"plugin {id!r} describes a section by {type(schema).__name__} {schema!r}",
                hint="its config_schemas() returns a list of ConfigSchema(key, model)",
            )
        asked(f"plugin {id!r} has a schema for section {schema.key!r} that is none", schema.check)
    return schemas


def _warn_of_unclaimed(spec: AgentSpec, claimed: set[str]) -> None:
    for key in spec.sections:
        if key not in claimed:
            log.warning(
                "section %r of agent %r is read by no plugin; those that are: %s",
                key,
                spec.id,
                ", ".join(sorted(claimed)),
            )


def _warn_of_unknown_filter(spec: AgentSpec, plugins: Sequence[Plugin]) -> None:
    """Say so when the filter names a plugin that the agent has not: a misspelt id switches the others off."""
    if unknown := spec.active_hook_filter - {plugin.descriptor.id for plugin in plugins}:
        log.warning(
            "active_hook_filter of agent %r names %s, which is none of its plugins",
            spec.id,
            ", ".join(map(repr, sorted(unknown))),
        )
