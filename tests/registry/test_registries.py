"""Registries over a dictionary."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from graphrt.errors import ConfigError
from graphrt.llm import ProviderExecutor, RetryingExecutor, ScriptedProvider
from graphrt.policies import RetryPolicy
from graphrt.registry import (
    AgentSpec,
    MapAgentSpecRegistry,
    MapModelRegistry,
    MapPluginSource,
    MapProviderRegistry,
    MapToolRegistry,
    ModelSpec,
    RegistrySet,
)
from graphrt.tools import ToolRegistry
from tests.registry.helpers import Noting, world


def test_things_are_found_by_id_and_listed_in_order() -> None:
    agents = MapAgentSpecRegistry([AgentSpec("b"), AgentSpec("a")])
    models = MapModelRegistry([ModelSpec("big", "p", "n")])
    plugin = Noting("p1")
    plugins = MapPluginSource({"other": plugin})

    assert agents.ids() == ["b", "a"]
    assert agents.get("a") == AgentSpec("a")
    assert agents.get("c") is None
    assert models.get("big") == ModelSpec("big", "p", "n")
    assert plugins.get("other") is plugin
    assert MapToolRegistry is ToolRegistry
    assert repr(agents) == "MapAgentSpecRegistry(b, a)"


def test_provider_becomes_one_executor_and_an_executor_stays_itself() -> None:
    """W-009, D-07."""
    provider = ScriptedProvider([])
    retrying = RetryingExecutor(ProviderExecutor(provider), RetryPolicy())
    providers = MapProviderRegistry({"a": provider, "b": retrying})

    first = providers.get("a")
    assert isinstance(first, ProviderExecutor)
    assert first.provider is provider
    assert providers.get("a") is first
    assert providers.get("b") is retrying


@pytest.mark.parametrize(
    ("register", "what"),
    [
        (lambda: MapAgentSpecRegistry([AgentSpec("x"), AgentSpec("x")]), "agent 'x'"),
        (lambda: MapModelRegistry([ModelSpec("x", "p", "n")] * 2), "model 'x'"),
        (lambda: _twice(MapProviderRegistry(), ScriptedProvider([])), "provider 'x'"),
        (lambda: _twice(MapPluginSource(), Noting("x")), "plugin 'x'"),
    ],
)
def test_id_that_is_taken_is_refused(register: Any, what: str) -> None:
    """X-09."""
    with pytest.raises(ConfigError, match=f"{what} is registered twice"):
        register()


def _twice(registry: Any, thing: Any) -> None:
    registry.register("x", thing)
    registry.register("x", thing)


@pytest.mark.parametrize(
    ("register", "message"),
    [
        (lambda: MapAgentSpecRegistry().register({"id": "a"}), "an agent is an AgentSpec, not a dict"),  # type: ignore[arg-type]  # the mistake is what is tested
        (lambda: MapModelRegistry(["big"]), "a model is a ModelSpec, not a str"),  # type: ignore[list-item]  # as above
        (lambda: MapProviderRegistry({"p": object()}), "provider 'p' is an object"),  # type: ignore[dict-item]  # as above
        (lambda: MapProviderRegistry({"p": ScriptedProvider}), "provider 'p' is the class ScriptedProvider"),  # type: ignore[dict-item]  # as above
        (lambda: MapPluginSource({"p": Noting}), "plugin 'p' is the class Noting"),  # type: ignore[dict-item]  # as above
        (lambda: MapPluginSource({"": Noting("p")}), "a plugin has the id ''"),
    ],
)
def test_what_does_not_belong_in_a_registry_is_refused_when_it_is_added(register: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        register()


def test_id_can_be_taken_by_one_of_many_threads_only() -> None:
    """A-035."""
    registry = MapModelRegistry()
    refused: list[ConfigError] = []
    start = threading.Barrier(8)

    def add() -> None:
        start.wait()
        for number in range(50):
            try:
                registry.register(ModelSpec(f"m{number}", "p", "n"))
            except ConfigError as error:
                refused.append(error)

    threads = [threading.Thread(target=add) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(registry.ids()) == 50
    assert len(refused) == 7 * 50


def test_set_of_registries_refuses_what_cannot_be_asked() -> None:
    good = world()
    with pytest.raises(ConfigError, match=r"the models are a dict, without get\(\) and ids\(\)"):
        RegistrySet(good.agents, good.tools, {}, good.providers, good.plugins)  # type: ignore[arg-type]  # the mistake is what is tested
    with pytest.raises(ConfigError, match="features is the text 'a2a'"):
        world(features="a2a")


def test_features_may_be_any_set() -> None:
    assert world(features={"a2a"}).features == frozenset({"a2a"})
    assert world().features == frozenset({"a2a"})
