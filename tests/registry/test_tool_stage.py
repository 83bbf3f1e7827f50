"""The third stage: tools of every source, and which of them an agent gets."""

from __future__ import annotations

import dataclasses
import logging
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphrt.errors import AgentNotFoundError, ResolveError, ToolIdConflictError
from graphrt.registry import AgentSpec, RemoteEndpoint, ResolvedAgent, resolve
from graphrt.registry.tool_stage import merge
from graphrt.tools.delegate import AgentTool
from tests.registry.helpers import Named, Noting, world


@pytest.mark.parametrize(
    ("allowed", "excluded", "left"),
    [
        (None, [], ["a", "b", "c"]),
        (["a", "b", "zzz"], ["b"], ["a"]),
        ([], [], []),
        (None, ["c", "zzz"], ["a", "b"]),
        (["c", "a"], [], ["a", "c"]),
    ],
)
def test_lists_say_which_tools_are_left(allowed: list[str] | None, excluded: list[str], left: list[str]) -> None:
    """AC-W13."""
    registries = world(AgentSpec("boss", allowed_tools=allowed, excluded_tools=excluded), tools=["a", "b", "c"])
    assert list(resolve(registries, "boss").tools) == left


IDS = ["a", "b", "c", "d", "e", "f"]
SOME = st.lists(st.sampled_from(IDS), unique=True)


@given(SOME, SOME, SOME, st.none() | SOME, SOME, st.frozensets(st.sampled_from(["p1", "p2"])))
def test_agent_has_each_tool_that_a_source_gives_and_no_list_leaves_out(
    at_large: list[str],
    first: list[str],
    second: list[str],
    allowed: list[str] | None,
    excluded: list[str],
    active: frozenset[str],
) -> None:
    """W-026, W-033, W-034, X-08."""
    first = [f"1{id}" for id in first]
    second = [f"2{id}" for id in second]
    spec = AgentSpec(
        "boss",
        plugin_ids=["p1", "p2"],
        delegates=["worker"],
        allowed_tools=None if allowed is None else [f"{source}{id}" for id in allowed for source in ("", "1", "2")],
        excluded_tools=[f"{source}{id}" for id in excluded for source in ("", "2")],
        active_hook_filter=active,
    )
    registries = world(
        spec,
        AgentSpec("worker"),
        tools=at_large,
        plugins=[Noting("p1", tools=first), Noting("p2", tools=second)],
    )

    tools = resolve(registries, "boss").tools

    offered = [*at_large, "agent_run_worker"]
    offered += first if "p1" in active or not active else []
    offered += second if "p2" in active or not active else []
    assert list(tools) == [
        id
        for id in offered
        if id not in spec.excluded_tools and (spec.allowed_tools is None or id in spec.allowed_tools)
    ]
    assert all(tool.descriptor.id == id for id, tool in tools.items())


@given(st.lists(st.tuples(st.sampled_from("abcdef"), st.sampled_from(["x", "y", "z"])), max_size=5))
def test_merging_keeps_every_tool_or_names_the_first_id_that_comes_twice(offered: list[tuple[str, str]]) -> None:
    """D-17."""
    offers = [(id, source, Named(id)) for id, source in offered]
    ids = [id for id, _ in offered]
    twice = next((place for place, id in enumerate(ids) if id in ids[:place]), None)

    if twice is None:
        assert list(merge(offers).items()) == [(id, tool) for id, _, tool in offers]
        return
    with pytest.raises(ToolIdConflictError) as caught:
        merge(offers)
    error = caught.value
    assert error.tool_id == ids[twice]
    assert (error.source_a, error.source_b) == (offered[ids.index(ids[twice])][1], offered[twice][1])


def test_tool_of_a_plugin_and_a_global_one_are_a_conflict_though_neither_is_wanted() -> None:
    """W-032."""
    registries = world(
        AgentSpec("boss", plugin_ids=["p1"], allowed_tools=[], excluded_tools=["t"], active_hook_filter={"max_rounds"}),
        tools=["t"],
        plugins=[Noting("p1", tools=["t"])],
    )

    with pytest.raises(ToolIdConflictError, match="tool 't' comes from both") as caught:
        resolve(registries, "boss")
    assert caught.value.tool_id == "t"
    assert caught.value.source_a == "global tools (tests.registry.helpers.Named)"
    assert caught.value.source_b == "plugin p1"


@pytest.mark.parametrize(
    ("tools", "plugin_tools", "sources"),
    [
        (["agent_run_worker"], [], ("global tools", "delegate worker")),
        ([], ["agent_run_worker"], ("delegate worker", "plugin p1")),
    ],
)
def test_delegate_and_any_other_source_with_one_id_are_a_conflict(
    tools: list[str], plugin_tools: list[str], sources: tuple[str, str]
) -> None:
    """D-17."""
    registries = world(
        AgentSpec("boss", plugin_ids=["p1"], delegates=["worker"]),
        AgentSpec("worker"),
        tools=tools,
        plugins=[Noting("p1", tools=plugin_tools)],
    )

    with pytest.raises(ToolIdConflictError) as caught:
        resolve(registries, "boss")
    assert caught.value.source_a.startswith(sources[0])
    assert caught.value.source_b == sources[1]


def test_tool_of_a_plugin_that_is_switched_off_is_not_offered() -> None:
    """AC-W31, as far as resolution goes."""
    registries = world(
        AgentSpec("boss", plugin_ids=["p1", "p2"], active_hook_filter={"p1"}),
        plugins=[Noting("p1", tools=["one"]), Noting("p2", tools=["two"])],
    )

    resolved = resolve(registries, "boss")

    assert list(resolved.tools) == ["one"]
    assert list(resolved.env.tools) == ["one", "two"]


@pytest.mark.parametrize("endpoint", [None, RemoteEndpoint("http://far.example")])
def test_delegate_is_a_tool_for_its_id(endpoint: RemoteEndpoint | None) -> None:
    """W-028."""
    registries = world(AgentSpec("boss", delegates=["worker"]), AgentSpec("worker", "nowhere", endpoint=endpoint))

    tool = resolve(registries, "boss").tools["agent_run_worker"]

    assert isinstance(tool, AgentTool)
    assert tool.descriptor.parameters["required"] == ["prompt"]


def test_agent_may_be_a_delegate_of_itself() -> None:
    assert list(resolve(world(AgentSpec("boss", delegates=["boss"])), "boss").tools) == ["agent_run_boss"]


def test_unknown_delegate_is_an_unknown_agent() -> None:
    """W-028."""
    with pytest.raises(AgentNotFoundError, match="agent 'worker'"):
        resolve(world(AgentSpec("boss", delegates=["worker"], excluded_tools=["agent_run_worker"])), "boss")


def test_remote_delegate_of_a_kind_that_nobody_speaks_is_an_error() -> None:
    """W-029, X-43."""
    registries = world(
        AgentSpec("boss", delegates=["far"]), AgentSpec("far", endpoint=RemoteEndpoint("http://x", "pigeon"))
    )

    with pytest.raises(ResolveError, match="'pigeon'"):
        resolve(registries, "boss")


def test_without_the_feature_delegates_are_ignored_with_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    """W-030, D-35."""
    registries = world(
        AgentSpec("boss", delegates=["worker", "gone"]), AgentSpec("worker"), tools=["a"], features=frozenset()
    )

    assert list(resolve(registries, "boss").tools) == ["a"]
    assert list(resolve(registries, "worker").tools) == ["a"]

    (record,) = [each for each in caplog.records if each.levelno >= logging.WARNING]
    assert record.getMessage() == "agent 'boss' is resolved without its delegates (worker, gone): feature 'a2a' is off"


class OwnTools:
    """Tools of an application's own making."""

    def __init__(self, tools: dict[str, Any]) -> None:
        self.things = tools

    def get(self, id: str) -> Any:
        return self.things[id]

    def ids(self) -> list[str]:
        return list(self.things)


def with_tools(**tools: Any) -> ResolvedAgent:
    return resolve(dataclasses.replace(world(AgentSpec("boss")), tools=OwnTools(tools)), "boss")


def test_tools_may_come_from_a_registry_of_another_make() -> None:
    tool = Named("a")
    resolved = with_tools(a=tool)
    assert resolved.tools == {"a": tool}
    assert resolved.permission is None


@pytest.mark.parametrize("nonsense", ["tool", Named])
def test_registry_that_gives_something_else_for_a_tool_is_named(nonsense: Any) -> None:
    with pytest.raises(ResolveError, match=r"the registry of tools gave .* for 'b'"):
        with_tools(a=Named("a"), b=nonsense)


def test_registry_that_lists_a_tool_and_does_not_have_it_is_named() -> None:
    with pytest.raises(ResolveError, match="the registry of tools lists 'b', and has none"):
        with_tools(b=None)


@pytest.mark.parametrize("ids", [lambda: None, lambda: 1 / 0])
def test_registry_that_cannot_list_its_tools_is_named(ids: Any) -> None:
    tools = OwnTools({})
    tools.ids = ids  # type: ignore[method-assign]  # one that does not do as it should
    with pytest.raises(ResolveError, match="the registry of tools failed to list its ids"):
        resolve(dataclasses.replace(world(AgentSpec("boss")), tools=tools), "boss")
