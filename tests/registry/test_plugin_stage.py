"""The second stage: an agent's plugins, their settings, and the environment that they make."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from graphrt.config import CompactConfig, ContextPolicy
from graphrt.errors import EnvBuildError, InvalidPluginConfigError, ResolveError
from graphrt.plugins import CompactionPlugin, ConfigSchema, PluginRegistrar
from graphrt.registry import AgentSpec, resolve
from tests.registry.helpers import Named, Noting, world


class Limits(BaseModel):
    most: int = Field(default=3, ge=1)


LIMITS = ConfigSchema("limits", Limits)


def plugin_ids(spec: AgentSpec, *plugins: Noting) -> list[str]:
    return [plugin.descriptor.id for plugin in resolve(world(spec, plugins=plugins), spec.id).env.plugins]


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


def test_users_plugins_come_first_in_their_order_and_the_built_in_ones_after() -> None:
    """AC-W07."""
    spec = AgentSpec("boss", plugin_ids=["p1", "p2"])
    assert plugin_ids(spec, Noting("p2"), Noting("p1"), Noting("p3")) == ["p1", "p2", "loop_actions", "max_rounds"]


def test_context_policy_brings_compaction_and_then_the_transform() -> None:
    """W-016."""
    spec = AgentSpec("boss", plugin_ids=["p1"], context_policy=ContextPolicy())
    assert plugin_ids(spec, Noting("p1")) == ["p1", "loop_actions", "max_rounds", "compaction", "context_transform"]


def test_limit_on_rounds_is_the_specs() -> None:
    """W-013."""
    assert resolve(world(AgentSpec("boss", max_rounds=4)), "boss").env.round_limit == 4


def test_section_that_does_not_fit_names_plugin_key_and_field() -> None:
    """AC-W09."""
    registries = world(
        AgentSpec("boss", plugin_ids=["p1"], sections={"limits": {"most": "a lot"}}),
        plugins=[Noting("p1", schemas=[LIMITS])],
    )

    with pytest.raises(InvalidPluginConfigError, match="most") as caught:
        resolve(registries, "boss")
    assert (caught.value.plugin_id, caught.value.key) == ("p1", "limits")


@pytest.mark.parametrize("sections", [{}, {"limits": {}}, {"limits": {"most": 1}}])
def test_section_may_be_absent_and_one_that_fits_is_no_news(
    sections: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    """W-022, W-023."""
    spec = AgentSpec("boss", plugin_ids=["p1"], sections=sections)
    plugin = Noting("p1", schemas=[LIMITS])

    resolve(world(spec, plugins=[plugin]), "boss")

    assert plugin.registered == 1
    assert warnings(caplog) == []


def test_nothing_registers_before_every_section_is_checked() -> None:
    """W-025."""
    first, second = Noting("p1"), Noting("p2", schemas=[LIMITS])
    registries = world(
        AgentSpec("boss", plugin_ids=["p1", "p2"], sections={"limits": {"most": 0}}), plugins=[first, second]
    )

    with pytest.raises(InvalidPluginConfigError):
        resolve(registries, "boss")
    assert (first.registered, second.registered) == (0, 0)


def test_two_plugins_may_read_one_section_and_each_has_its_say() -> None:
    class Strict(BaseModel):
        most: int = Field(ge=5)

    registries = world(
        AgentSpec("boss", plugin_ids=["p1", "p2"], sections={"limits": {"most": 3}}),
        plugins=[Noting("p1", schemas=[LIMITS]), Noting("p2", schemas=[ConfigSchema("limits", Strict)])],
    )

    with pytest.raises(InvalidPluginConfigError) as caught:
        resolve(registries, "boss")
    assert caught.value.plugin_id == "p2"


def test_section_that_nobody_reads_is_warned_of_once(caplog: pytest.LogCaptureFixture) -> None:
    """AC-W11."""
    registries = world(
        AgentSpec("boss", sections={"compcation": {}, "retry": {"max_retries": 1}, "compaction": {"keep_recent": 4}})
    )
    registries.agents.register(AgentSpec("quiet", sections={"retry": {"max_retries": 1}}))  # type: ignore[attr-defined]  # it is a map

    resolve(registries, "boss")

    said = warnings(caplog)
    assert len(said) == 2  # one for each section: without a context policy nobody reads `compaction` either
    assert [text for text in said if "'compcation'" in text and "'boss'" in text] == said[:1]
    assert "'compaction'" in said[1]
    caplog.clear()
    resolve(registries, "quiet")
    assert warnings(caplog) == []


def test_compaction_section_belongs_to_the_context_policy(caplog: pytest.LogCaptureFixture) -> None:
    """W-017, W-024."""
    policy = ContextPolicy()
    registries = world(
        AgentSpec("good", context_policy=policy, sections={"compaction": {"keep_recent": 4}}),
        AgentSpec("bad", context_policy=policy, sections={"compaction": {"keep_recent": -1}}),
        AgentSpec("object", context_policy=policy, sections={"compaction": CompactConfig()}),
    )

    (compaction,) = [
        plugin for plugin in resolve(registries, "good").env.plugins if isinstance(plugin, CompactionPlugin)
    ]
    resolve(registries, "object")
    assert compaction.config == CompactConfig(keep_recent=4)
    assert compaction.policy is policy
    assert warnings(caplog) == []
    with pytest.raises(InvalidPluginConfigError, match="keep_recent") as caught:
        resolve(registries, "bad")
    assert (caught.value.plugin_id, caught.value.key) == ("compaction", "compaction")


RAW = {"type": "object", "properties": {"most": {"type": "integer"}}, "required": ["most"]}


@pytest.mark.parametrize("section", [{"most": "many"}, {}, 3])
def test_raw_schema_is_held_against_the_section(section: Any) -> None:
    """AC-W29, D-26."""
    registries = world(
        AgentSpec("good", plugin_ids=["p1"], sections={"limits": {"most": 3}}),
        AgentSpec("bad", plugin_ids=["p1"], sections={"limits": section}),
        plugins=[Noting("p1", schemas=[ConfigSchema("limits", schema=RAW)])],
    )

    resolve(registries, "good")
    with pytest.raises(InvalidPluginConfigError) as caught:
        resolve(registries, "bad")
    assert (caught.value.plugin_id, caught.value.key) == ("p1", "limits")


class Saying(Noting):
    """A plugin that makes its schemas when it is asked for them."""

    def __init__(self, id: str, say: Callable[[], Any]) -> None:
        super().__init__(id)
        self.say = say

    def config_schemas(self) -> list[ConfigSchema]:
        schemas: list[ConfigSchema] = self.say()
        return schemas


@pytest.mark.parametrize("sections", [{}, {"limits": {"most": 3}}])
@pytest.mark.parametrize(
    "say",
    [
        lambda: [ConfigSchema("limits", schema={"type": "no such type"})],
        lambda: [RAW],
        lambda: None,
        lambda: 1 / 0,
    ],
)
def test_schema_that_is_none_is_an_error_whether_or_not_there_is_a_section(
    say: Callable[[], Any], sections: dict[str, Any]
) -> None:
    """AC-W29."""
    plugin = Saying("p1", say)
    registries = world(AgentSpec("boss", plugin_ids=["p1"], sections=sections), plugins=[plugin])

    with pytest.raises(ResolveError, match="p1"):
        resolve(registries, "boss")
    assert plugin.registered == 0


def test_error_in_register_is_one_of_resolution() -> None:
    """W-005."""

    def fail(registrar: PluginRegistrar) -> None:
        raise OSError("no disk")

    registries = world(AgentSpec("boss", plugin_ids=["p1"]), plugins=[Noting("p1", registers=fail)])

    with pytest.raises(EnvBuildError, match="no disk"):
        resolve(registries, "boss")


def test_two_plugins_with_one_tool_are_an_error_of_the_environment() -> None:
    """D-17, W-040."""
    registries = world(
        AgentSpec("boss", plugin_ids=["p1", "p2"], excluded_tools=["t"]),
        plugins=[Noting("p1", tools=["t"]), Noting("p2", tools=["t"])],
    )

    with pytest.raises(EnvBuildError, match="'t'"):
        resolve(registries, "boss")


def test_filter_that_names_no_plugin_of_the_agent_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    registries = world(
        AgentSpec("boss", plugin_ids=["p1"], active_hook_filter={"p1", "p11", "max_rounds"}), plugins=[Noting("p1")]
    )

    resolve(registries, "boss")

    assert warnings(caplog) == ["active_hook_filter of agent 'boss' names 'p11', which is none of its plugins"]


KEYS = ["retry", "compaction", "limits", "limit", "other"]


@given(st.sets(st.sampled_from(KEYS)), st.sets(st.sampled_from(KEYS)), st.booleans())
def test_each_section_is_read_by_somebody_or_warned_of(there: set[str], claimed: set[str], policy: bool) -> None:
    """W-024."""
    spec = AgentSpec(
        "boss",
        plugin_ids=["p1"],
        sections={key: {} for key in there},
        context_policy=ContextPolicy() if policy else None,
    )
    plugin = Noting("p1", schemas=[ConfigSchema(key, schema={"type": "object"}) for key in sorted(claimed)])
    said: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: said.append(record.getMessage())  # type: ignore[method-assign]  # it only notes
    logger = logging.getLogger("graphrt.registry")
    logger.addHandler(handler)
    try:
        resolve(world(spec, plugins=[plugin]), "boss")
    finally:
        logger.removeHandler(handler)

    read = claimed | {"retry"} | ({"compaction"} if policy else set())
    assert sorted(text.split("'")[1] for text in said) == sorted(there - read)
    assert plugin.registered == 1


def test_plugin_is_asked_anew_each_time_and_given_the_same_registrar_never_twice() -> None:
    """W-002, W-035."""
    registrars: list[PluginRegistrar] = []

    def note(registrar: PluginRegistrar) -> None:
        registrars.append(registrar)
        registrar.tool(Named("t"))

    registries = world(AgentSpec("boss", plugin_ids=["p1"]), plugins=[Noting("p1", registers=note)])

    first, second = resolve(registries, "boss"), resolve(registries, "boss")

    assert len({id(each) for each in registrars}) == 2
    assert first.env is not second.env
    assert first.env.tools["t"] is not second.env.tools["t"]
