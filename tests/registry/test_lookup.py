"""The first stage: an agent's spec, its model, what asks the model, and the retries around that."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphrt.config import RetryConfig
from graphrt.errors import (
    AgentNotFoundError,
    InvalidPluginConfigError,
    ModelNotFoundError,
    PluginNotFoundError,
    ProviderNotFoundError,
    RemoteAgentNotDirectlyRunnableError,
    ResolveError,
)
from graphrt.llm import ProviderExecutor, RetryingExecutor, ScriptedProvider
from graphrt.policies import RetryPolicy
from graphrt.registry import AgentSpec, MapProviderRegistry, ModelSpec, RemoteEndpoint, resolve
from tests.registry.helpers import Noting, world


def test_agent_is_found_with_its_model_its_executor_and_the_global_tools() -> None:
    """AC-W01."""
    spec = AgentSpec("boss")
    registries = world(spec, tools=["a", "b"])

    resolved = resolve(registries, "boss")

    assert resolved.spec is spec
    assert resolved.executor is registries.providers.get("main")
    assert resolved.model_name == "big-1"
    assert resolved.tools == {"a": registries.tools.get("a"), "b": registries.tools.get("b")}


@pytest.mark.parametrize(
    ("spec", "error", "missing", "known"),
    [
        (AgentSpec("other"), AgentNotFoundError, "agent 'boss'", "other"),
        (AgentSpec("boss", "huge"), ModelNotFoundError, "model 'huge'", "default, lost"),
        (AgentSpec("boss", "lost"), ProviderNotFoundError, "provider 'nowhere'", "main"),
        (AgentSpec("boss", plugin_ids=["p1", "gone"]), PluginNotFoundError, "plugin 'gone'", "p1, p2"),
    ],
)
def test_missing_part_has_an_error_of_its_own_that_lists_what_there_is(
    spec: AgentSpec, error: type[ResolveError], missing: str, known: str
) -> None:
    """AC-W03."""
    registries = world(spec, models=[ModelSpec("lost", "nowhere", "n")], plugins=[Noting("p1"), Noting("p2")])

    with pytest.raises(error, match=missing) as caught:
        resolve(registries, "boss")
    assert caught.type is error
    assert str(caught.value.hint).endswith(f": {known}")


def test_remote_agent_is_not_run_here_whatever_its_model() -> None:
    """W-007."""
    registries = world(AgentSpec("far", "no such model", endpoint=RemoteEndpoint("http://x")))

    with pytest.raises(RemoteAgentNotDirectlyRunnableError, match="agent 'far'"):
        resolve(registries, "far")


@pytest.mark.parametrize(
    ("section", "wrapped"),
    [
        ({"max_retries": 0, "fallback_models": []}, False),
        ({"max_retries": 1}, True),
        ({"max_retries": 0, "fallback_models": ["b"]}, True),
        ({}, True),
        (RetryConfig(max_retries=0), False),
    ],
)
def test_executor_is_wrapped_only_where_there_is_something_to_retry(section: Any, wrapped: bool) -> None:
    """AC-W05. An empty section asks for the defaults, which are two retries."""
    registries = world(AgentSpec("boss", sections={"retry": section}), models=[ModelSpec("b", "main", "b-1")])

    executor = resolve(registries, "boss").executor

    assert isinstance(executor, RetryingExecutor) is wrapped
    bare = executor.inner if isinstance(executor, RetryingExecutor) else executor
    assert bare is registries.providers.get("main")


def test_fallbacks_are_models_of_the_registry_on_their_own_providers() -> None:
    """D-38."""
    registries = world(
        AgentSpec("boss", sections={"retry": {"max_retries": 3, "fallback_models": ["c", "b"]}}),
        models=[ModelSpec("b", "main", "b-1"), ModelSpec("c", "spare", "c-1")],
        providers={"spare": ScriptedProvider([])},
    )

    executor = resolve(registries, "boss").executor

    assert isinstance(executor, RetryingExecutor)
    assert executor.policy.attempts == 4
    assert executor.fallbacks == ((registries.providers.get("spare"), "c-1"), (registries.providers.get("main"), "b-1"))


@pytest.mark.parametrize(
    ("fallback", "error"), [("gone", ModelNotFoundError), ("lost", ProviderNotFoundError), ("b", PluginNotFoundError)]
)
def test_fallback_that_is_missing_is_an_error_of_the_first_stage(fallback: str, error: type[ResolveError]) -> None:
    """D-38, W-005."""
    registries = world(
        AgentSpec("boss", plugin_ids=["gone"], sections={"retry": {"fallback_models": [fallback]}}),
        models=[ModelSpec("b", "main", "b-1"), ModelSpec("lost", "nowhere", "n")],
    )

    with pytest.raises(error):
        resolve(registries, "boss")


@pytest.mark.parametrize(
    ("section", "field"),
    [({"max_retries": "many"}, "max_retries"), ({"max_retry": 1}, "max_retry"), ({"max_retries": -1}, "max_retries")],
)
def test_invalid_retry_section_names_the_field(section: Mapping[str, Any], field: str) -> None:
    """W-011."""
    registries = world(AgentSpec("boss", sections={"retry": section}))

    with pytest.raises(InvalidPluginConfigError, match=field) as caught:
        resolve(registries, "boss")
    assert (caught.value.plugin_id, caught.value.key) == ("retry", "retry")
    assert caught.value.__cause__ is not None


@pytest.mark.parametrize("section", [None, "twice", []])
def test_retry_section_that_is_no_mapping_is_refused(section: Any) -> None:
    with pytest.raises(InvalidPluginConfigError):
        resolve(world(AgentSpec("boss", sections={"retry": section})), "boss")


def test_provider_that_retries_by_itself_is_not_put_into_further_retries() -> None:
    """D-08: tries never multiply."""
    own = RetryingExecutor(ProviderExecutor(ScriptedProvider([])), RetryPolicy(attempts=3))
    registries = world(
        AgentSpec("plain", "b"),
        AgentSpec("primary", "b", sections={"retry": {"max_retries": 1}}),
        AgentSpec("fallback", sections={"retry": {"max_retries": 0, "fallback_models": ["b"]}}),
        models=[ModelSpec("b", "own", "b-1")],
        providers={"own": own},
    )

    assert resolve(registries, "plain").executor is own
    for agent in ("primary", "fallback"):
        with pytest.raises(InvalidPluginConfigError, match="tries would multiply"):
            resolve(registries, agent)


class Answering:
    """A registry of an application's own: `get` does what it is told, and there is nothing to list."""

    def __init__(self, get: Any) -> None:
        self.get = get

    def ids(self) -> list[str]:
        raise OSError("no listing")


def with_models(get: Any) -> Any:
    return dataclasses.replace(world(AgentSpec("boss")), models=Answering(get))


def test_registry_of_another_make_is_asked_by_the_protocol_alone() -> None:
    provider = ScriptedProvider([])
    registries = dataclasses.replace(
        with_models(lambda id: ModelSpec(id, "any", f"{id}-1")), providers=Answering(lambda id: provider)
    )

    resolved = resolve(registries, "boss")

    assert resolved.model_name == "default-1"
    assert isinstance(resolved.executor, ProviderExecutor)
    assert resolved.executor.provider is provider


def test_missing_thing_is_missing_also_where_nothing_can_be_listed() -> None:
    with pytest.raises(ModelNotFoundError, match="model 'default' is not registered"):
        resolve(with_models(lambda id: None), "boss")


@pytest.mark.parametrize("nonsense", [{"id": "default"}, "gpt", 0, False, ModelSpec, ScriptedProvider([])])
def test_registry_that_gives_nonsense_is_named(nonsense: Any) -> None:
    with pytest.raises(ResolveError, match=r"the registry of models gave .* for 'default'") as caught:
        resolve(with_models(lambda id: nonsense), "boss")
    assert "returns a ModelSpec, or None" in str(caught.value)


def test_registry_that_has_to_be_awaited_is_refused_and_leaves_nothing_unawaited() -> None:
    async def get(id: str) -> ModelSpec:
        raise NotImplementedError

    with pytest.raises(ResolveError, match="the registry of models gave coroutine"):
        resolve(with_models(get), "boss")


def test_error_of_a_registry_becomes_one_of_resolution_and_stays_its_cause() -> None:
    """W-005."""

    def get(id: str) -> None:
        raise KeyError(id)

    with pytest.raises(ResolveError, match="the registry of models failed on 'default': KeyError") as caught:
        resolve(with_models(get), "boss")
    assert isinstance(caught.value.__cause__, KeyError)


@given(st.sampled_from(["gone", "boss"]), st.booleans(), st.booleans(), st.booleans(), st.booleans())
def test_what_fails_first_is_what_is_raised(agent: str, model: bool, provider: bool, retry: bool, plugin: bool) -> None:
    """W-004, W-005."""
    registries = world(
        AgentSpec(
            "boss",
            "default" if model else "gone",
            sections={"retry": {"max_retries": 1 if retry else -1}},
            plugin_ids=[] if plugin else ["gone"],
            delegates=["gone"],
        )
    )
    if not provider:
        registries = dataclasses.replace(registries, providers=MapProviderRegistry())
    stages: list[tuple[bool, type[ResolveError]]] = [
        (agent == "boss", AgentNotFoundError),
        (model, ModelNotFoundError),
        (provider, ProviderNotFoundError),
        (retry, InvalidPluginConfigError),
        (plugin, PluginNotFoundError),
        (False, AgentNotFoundError),
    ]

    with pytest.raises(ResolveError) as caught:
        resolve(registries, agent)
    assert caught.type is next(error for good, error in stages if not good)
