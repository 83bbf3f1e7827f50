"""Agents, bundles, and the builder of bundles."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest

from graphrt import AgentConfig, ConfigError, HookExecutor, ToolRegistry, function_tool
from graphrt.agent import Agent, AgentBuilder, AgentSession, RuntimeBundle, SimpleAgent
from graphrt.config import CompactConfig, ContextPolicy
from graphrt.llm import ScriptedProvider
from graphrt.memory import InMemoryStore, MemoryRetriever
from graphrt.messages import Role
from graphrt.tools import ToolDescriptor
from tests.agent.helpers import add, asks, bundle_of, call, echo, offered, registry, texts

pytestmark = pytest.mark.anyio


class Found(MemoryRetriever):
    async def retrieve(self, query: str, limit: int = 5) -> list[str]:
        return [f"about {query}"][:limit]


class Minimal(Agent):
    @property
    def name(self) -> str:
        return "minimal"

    @property
    def system_prompt(self) -> str | None:
        return None


def delete(path: str) -> str:
    """Delete a file."""
    raise AssertionError("it was not offered")


def ids(agent: Agent, bundle: RuntimeBundle) -> list[str]:
    return [each.id for each in agent.tool_definitions(bundle)]


# --- agents ------------------------------------------------------------------------------------------------


def test_an_agent_has_a_name_and_a_prompt_and_no_turns() -> None:
    """AC-A31."""
    with pytest.raises(TypeError):
        Agent()  # type: ignore[abstract]  # that is what is tested
    assert not hasattr(Agent, "submit_turn")
    assert ids(Minimal(), bundle_of(ScriptedProvider(), add, echo)) == ["add", "echo"]


@pytest.mark.parametrize(
    ("tools", "offered"),
    [
        (None, ["add", "echo"]),
        ([], []),
        (["echo"], ["echo"]),
        (["echo", "add"], ["echo", "add"]),
        ([add], ["add"]),
        ([ToolDescriptor("add", "Sum up.")], ["add"]),
        ([delete, "add"], ["delete", "add"]),
        (["zzz", "add"], ["add"]),
    ],
)
def test_a_white_list_is_read_by_id_definition_tool_or_function(tools: Any, offered: list[str]) -> None:
    bundle = bundle_of(ScriptedProvider(), add, echo)
    agent = SimpleAgent("a", tools=tools)
    assert ids(agent, bundle) == offered
    spec = bundle.to_registry_set(agent).agents.get("a")
    assert spec is not None
    assert spec.allowed_tools == offered
    assert bundle.tool_registry.ids() == ["add", "echo"]


@pytest.mark.parametrize("tools", ["add", add, [3], ["add", "add"], [add, "add"], {"add": add}, b"add", 3])
def test_what_is_no_white_list_is_refused(tools: Any) -> None:
    with pytest.raises(ConfigError, match="agent 'a'"):
        SimpleAgent("a", tools=tools)


@pytest.mark.parametrize(("name", "prompt"), [("", None), (None, None), ("a", 3)])
def test_name_and_prompt_are_texts(name: Any, prompt: Any) -> None:
    with pytest.raises(ConfigError):
        SimpleAgent(name, prompt)


async def test_a_tool_that_is_not_offered_is_unknown() -> None:
    """AC-A09."""

    class Careful(Minimal):
        def tool_definitions(self, bundle: RuntimeBundle) -> list[ToolDescriptor]:
            return [each for each in super().tool_definitions(bundle) if each.id == "add"]

    provider = ScriptedProvider([asks(call("1", "delete", path="/")), "I cannot"])
    session = AgentSession("s", Careful(), bundle_of(provider, add, delete))
    await session.submit_turn("delete all")
    assert [offered(asked) for asked in provider.calls] == [["add"], ["add"]]
    (told,) = [each for each in provider.calls[1].messages if each.role is Role.TOOL]
    assert "unknown tool 'delete'" in told.content


async def test_a_changed_definition_is_what_the_model_is_offered() -> None:
    told = ToolDescriptor("add", "Sum up.", {"type": "object", "properties": {"a": {"maximum": 9}, "b": {}}})
    provider = ScriptedProvider([asks(call("1", a=1, b=2), call("2", a=10, b=2)), "done"])
    session = AgentSession("s", SimpleAgent("a", tools=[told]), bundle_of(provider, add))
    await session.submit_turn("add")
    assert [(each.name, each.description) for each in provider.calls[0].tools or ()] == [("add", "Sum up.")]  # type: ignore[union-attr]  # descriptors
    answers = [each.content for each in session.messages if each.role is Role.TOOL]
    assert answers[0] == "3"
    assert "9" in answers[1]


async def test_an_agents_own_tool_is_added_for_its_turns_only() -> None:
    provider = ScriptedProvider([asks(call("1", "echo", text="hi")), "done", "bye"])
    bundle = bundle_of(provider, add)
    session = AgentSession("s", SimpleAgent("a", tools=[echo]), bundle)
    await session.submit_turn("echo")
    assert texts(session.messages)[2] == "tool: hi"
    session.agent = SimpleAgent("b")
    await session.submit_turn("more")
    assert offered(provider.calls[2]) == ["add"]


async def test_an_own_tool_with_the_id_of_another_is_refused() -> None:
    @function_tool(id="add")
    def other(text: str) -> str:
        """Add a text."""
        return text

    session = AgentSession("s", SimpleAgent("a", tools=[other]), bundle_of(ScriptedProvider(), add))
    with pytest.raises(ConfigError, match="'add'"):
        await session.submit_turn("add")
    same = AgentSession("s", SimpleAgent("a", tools=[add]), bundle_of(ScriptedProvider(["ok"]), add))
    assert (await same.submit_turn("add")).content == "ok"


# --- bundles -----------------------------------------------------------------------------------------------


def test_a_bundle_of_the_three_required_parts_has_seven_fields() -> None:
    """AC-A01."""
    provider, hooks = ScriptedProvider(), HookExecutor()
    bundle = AgentBuilder().provider(provider).tool_registry(ToolRegistry()).hook_executor(hooks).build()
    assert [each.name for each in fields(bundle)] == [
        "provider",
        "tool_registry",
        "hook_executor",
        "memory_store",
        "retriever",
        "session_memory_backend",
        "config",
    ]
    assert (bundle.provider, bundle.hook_executor, bundle.config) == (provider, hooks, AgentConfig())
    assert (bundle.memory_store, bundle.retriever, bundle.session_memory_backend) == (None, None, None)


def test_a_retriever_is_a_tool() -> None:
    """AC-A03."""
    retriever = Found()
    with_one = bundle_of(ScriptedProvider(), add, retriever=retriever)
    assert with_one.retriever is retriever
    assert ids(SimpleAgent("a"), with_one) == ["add", "retrieve"]
    assert ids(SimpleAgent("a"), bundle_of(ScriptedProvider(), add)) == ["add"]


async def test_the_model_looks_things_up_by_itself() -> None:
    provider = ScriptedProvider([asks(call("1", "retrieve", query="ants")), "done"])
    session = AgentSession("s", SimpleAgent("a"), bundle_of(provider, retriever=Found()))
    await session.submit_turn("ants?")
    assert "about ants" in texts(session.messages)[2]


def test_a_tool_called_retrieve_and_a_retriever_do_not_go_together() -> None:
    """AC-A05."""

    @function_tool
    def retrieve(query: str) -> str:
        """Look up."""
        return query

    tools = registry(retrieve)
    builder = AgentBuilder().provider(ScriptedProvider()).tool_registry(tools).hook_executor(HookExecutor())
    with pytest.raises(ConfigError, match="'retrieve'") as caught:
        builder.retriever(Found()).build()
    assert caught.value.hint
    assert tools.ids() == ["retrieve"]
    assert tools.get("retrieve") is retrieve


def test_two_bundles_share_a_registry_and_leave_it_as_it_is() -> None:
    tools = registry(add)
    builder = AgentBuilder().provider(ScriptedProvider()).tool_registry(tools).hook_executor(HookExecutor())
    bundles = [builder.retriever(Found()).build() for _ in range(2)]
    assert [each.tool_registry.ids() for each in bundles] == [["add", "retrieve"]] * 2
    assert tools.ids() == ["add"]
    tools.register(echo)
    assert bundles[0].tool_registry.ids() == ["add", "echo", "retrieve"]


def test_setters_give_the_builder_back() -> None:
    builder = AgentBuilder()
    parts = {
        "provider": ScriptedProvider(),
        "tool_registry": ToolRegistry(),
        "hook_executor": HookExecutor(),
        "memory_store": InMemoryStore(),
        "retriever": Found(),
        "session_memory_backend": InMemoryStore(),
        "config": AgentConfig(max_rounds=3),
    }
    for name, value in parts.items():
        assert getattr(builder, name)(value) is builder
    bundle = builder.build()
    assert {name: getattr(bundle, name) for name in parts if name != "tool_registry"} == {
        name: value for name, value in parts.items() if name != "tool_registry"
    }


@pytest.mark.parametrize("given", [(), ("provider",), ("tool_registry", "hook_executor"), ("hook_executor",)])
def test_all_that_is_missing_is_named(given: tuple[str, ...]) -> None:
    parts = {"provider": ScriptedProvider(), "tool_registry": ToolRegistry(), "hook_executor": HookExecutor()}
    builder = AgentBuilder()
    for name in given:
        getattr(builder, name)(parts[name])
    with pytest.raises(ConfigError) as caught:
        builder.build()
    for name in parts:
        assert (name in caught.value.message) == (name not in given)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("provider", object()),
        ("provider", ScriptedProvider),
        ("tool_registry", [add]),
        ("hook_executor", lambda ctx: None),
        ("memory_store", {}),
        ("retriever", "memory"),
        ("session_memory_backend", InMemoryStore),
        ("config", {"max_rounds": 3}),
    ],
)
def test_a_part_of_the_wrong_type_is_refused(name: str, value: Any) -> None:
    builder = AgentBuilder().provider(ScriptedProvider()).tool_registry(ToolRegistry()).hook_executor(HookExecutor())
    with pytest.raises(ConfigError, match=name) as caught:
        getattr(builder, name)(value).build()
    assert caught.value.hint


def test_a_bundle_is_a_world_of_one_agent() -> None:
    compact = CompactConfig(keep_recent=4)
    bundle = bundle_of(ScriptedProvider(), add, config=AgentConfig(max_rounds=3, compact_config=compact, model="m"))
    world = bundle.to_registry_set(SimpleAgent("helper", "be brief"))
    (spec,) = [world.agents.get(id) for id in world.agents.ids()]
    model = world.models.get("default")
    assert spec is not None
    assert model is not None
    assert (spec.id, spec.model, spec.system_prompt, spec.max_rounds) == ("helper", "default", "be brief", 3)
    assert (model.provider, model.name) == ("bundle", "m")
    assert [type(world.plugins.get(id)).__name__ for id in spec.plugin_ids] == ["HookBridgePlugin"]
    assert spec.context_policy == ContextPolicy()
    assert CompactConfig(**spec.sections["compaction"]) == compact
    plain = bundle_of(ScriptedProvider()).to_registry_set(SimpleAgent("a")).agents.get("a")
    assert plain is not None
    assert (plain.context_policy, plain.sections) == (None, {})


@pytest.mark.parametrize(
    ("config", "own", "asked"),
    [({}, None, "gpt-4o-mini"), ({}, "qwen", "qwen"), ({"model": "m"}, "qwen", "m"), ({"model": "m"}, None, "m")],
)
async def test_the_configs_model_wins_over_the_providers_own(config: Any, own: str | None, asked: str) -> None:
    provider = ScriptedProvider(["ok"])
    if own is not None:
        provider.model = own  # type: ignore[attr-defined]  # as providers with a model of their own have it
    session = AgentSession("s", SimpleAgent("a"), bundle_of(provider, config=AgentConfig(**config)))
    await session.submit_turn("hi")
    assert provider.calls[0].kwargs["model"] == asked


@pytest.mark.parametrize("name", ["max_rounds", "max_iterations", "max_tool_turns"])
def test_rounds_have_three_names_and_turns_another(name: str) -> None:
    """AC-A35."""
    given: dict[str, Any] = {name: 4}
    config = AgentConfig(**given)
    assert (config.max_rounds, config.max_iterations, config.max_tool_turns, config.max_turns) == (4, 4, 4, None)
