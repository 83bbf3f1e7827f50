"""Resolution as a whole: pure, anew each time, and what it gives becomes a graph."""

from __future__ import annotations

import threading
from typing import Any

import pytest

import graphrt.registry
from graphrt.config import AgentConfig, ContextPolicy
from graphrt.errors import LlmError, LlmErrorKind, ResolveError
from graphrt.graph.scheduler.limits import BudgetTracker
from graphrt.hooks import HookExecutor
from graphrt.llm import InferenceRequest, LLMProvider, ScriptedProvider
from graphrt.messages import LLMResponse, Message, Role, TokenUsage, ToolCall
from graphrt.nodes import AgentParts, compile_agent
from graphrt.plugins import Phase, PhaseContext, PhaseRuntime, PluginRegistrar, StateCommand
from graphrt.policies import Budget
from graphrt.registry import AgentSpec, ModelSpec, RegistrySet, ResolvedAgent, resolve
from graphrt.tools import PermissionChecker, PermissionDecision, ToolContext, ToolDescriptor, ToolRegistry
from tests.registry.helpers import Named, Noting, world


def rich_world(**spec: Any) -> RegistrySet:
    """Make a world whose agent has something of everything."""
    return world(
        AgentSpec(
            "boss",
            plugin_ids=["p1"],
            delegates=["worker"],
            context_policy=ContextPolicy(),
            sections={"retry": {"fallback_models": ["b"]}, "compaction": {}},
            **spec,
        ),
        AgentSpec("worker"),
        models=[ModelSpec("b", "main", "b-1")],
        tools=["a"],
        plugins=[Noting("p1", tools=["t"])],
    )


def contents(registries: RegistrySet) -> list[dict[str, Any]]:
    parts: list[Any] = [
        registries.agents,
        registries.tools,
        registries.models,
        registries.providers,
        registries.plugins,
    ]
    return [{id: registry.get(id) for id in registry.ids()} for registry in parts]


def test_each_resolution_makes_everything_anew_and_changes_no_registry() -> None:
    """W-002, W-003, W-035."""
    registries = rich_world()
    before = contents(registries)
    plugin: Any = registries.plugins.get("p1")

    first, second = resolve(registries, "boss"), resolve(registries, "boss")

    assert first is not second
    assert first.env is not second.env
    assert first.tools is not second.tools
    assert list(first.tools) == ["a", "agent_run_worker", "t"]
    assert first.tools["a"] is second.tools["a"]
    for fresh in ("agent_run_worker", "t"):
        assert first.tools[fresh] is not second.tools[fresh]
    assert first.executor is not second.executor  # the retries are this resolution's own
    assert all(one is not two for one, two in zip(first.env.plugins[1:], second.env.plugins[1:], strict=True))
    assert plugin.registered == 2
    after = contents(registries)
    assert [list(each) for each in after] == [list(each) for each in before]
    assert all(now[id] is then[id] for now, then in zip(after, before, strict=True) for id in then)


def test_changing_what_was_resolved_changes_nothing_else() -> None:
    registries = rich_world()
    first = resolve(registries, "boss")
    first.tools.clear()
    first.env.tools.clear()

    assert list(resolve(registries, "boss").tools) == ["a", "agent_run_worker", "t"]


def test_new_entry_of_a_registry_is_seen_by_the_next_resolution() -> None:
    """W-002: nothing is cached."""
    registries = world(AgentSpec("boss"))
    assert not resolve(registries, "boss").tools

    assert isinstance(registries.tools, ToolRegistry)
    registries.tools.register(Named("late"))

    assert list(resolve(registries, "boss").tools) == ["late"]


def test_agents_are_resolved_in_several_threads_at_once() -> None:
    """A-035."""
    registries = rich_world()
    start = threading.Barrier(6)
    found: list[ResolvedAgent] = []
    failed: list[ResolveError] = []

    def work() -> None:
        start.wait()
        for _ in range(20):
            try:
                found.append(resolve(registries, "boss"))
            except ResolveError as error:
                failed.append(error)

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert failed == []
    assert len({id(each.env) for each in found}) == 120
    assert all(list(each.tools) == ["a", "agent_run_worker", "t"] for each in found)


def test_error_of_a_second_resolution_is_the_same_as_of_the_first() -> None:
    """AC-W23: what a dry run at build() says is what a run would say."""
    registries = world(AgentSpec("boss", "gone"))
    said = []
    for _ in range(2):
        with pytest.raises(ResolveError) as caught:
            resolve(registries, "boss")
        said.append((type(caught.value), str(caught.value)))
    assert said[0] == said[1]


# --- parts ------------------------------------------------------------------------------------------------


def resolved_of(
    spec: AgentSpec, *, model: ModelSpec | None = None, provider: LLMProvider | None = None
) -> ResolvedAgent:
    return resolve(
        world(
            spec,
            models=[model] if model else [],
            providers={"main": provider} if provider else None,
            tools=["a"],
        ),
        spec.id,
    )


def test_parts_without_a_config_are_the_specs_own() -> None:
    resolved = resolved_of(AgentSpec("boss", system_prompt="Be brief.", max_rounds=7))

    parts = resolved.parts()

    assert isinstance(parts, AgentParts)
    assert (parts.name, parts.model_name, parts.system_prompt, parts.max_rounds) == ("boss", "big-1", "Be brief.", 7)
    assert parts.executor is resolved.executor
    assert parts.tools == resolved.tools
    assert parts.params == {}
    assert (parts.on_limit, parts.tool_execution) == ("stop", "parallel")
    assert (parts.cost_of, parts.on_usage, parts.session_id, parts.hooks) == (None, None, None, None)


def test_empty_prompt_sends_no_system_message_and_one_of_the_call_wins() -> None:
    """A-047."""
    assert resolved_of(AgentSpec("boss")).parts().system_prompt is None
    resolved = resolved_of(AgentSpec("boss", system_prompt="Be brief."))
    assert resolved.parts(system_prompt="Be long.").system_prompt == "Be long."
    assert resolved.parts(system_prompt="").system_prompt is None


@pytest.mark.parametrize(("of_spec", "of_config", "limit"), [(3, 5, 3), (5, 3, 3), (20, 10, 10), (4, 4, 4)])
def test_smaller_limit_on_rounds_wins(of_spec: int, of_config: int, limit: int) -> None:
    """D-03."""
    resolved = resolved_of(AgentSpec("boss", max_rounds=of_spec))
    assert resolved.parts(AgentConfig(max_rounds=of_config)).max_rounds == limit


def test_config_says_how_tools_run_and_what_happens_at_the_limit() -> None:
    """D-30."""
    config = AgentConfig(tool_execution="sequential", on_limit="answer")
    parts = resolved_of(AgentSpec("boss")).parts(config)
    assert (parts.tool_execution, parts.on_limit) == ("sequential", "answer")


@pytest.mark.parametrize(
    ("config", "params", "sent"),
    [
        (None, None, {}),
        (None, {"seed": 1}, {"seed": 1}),
        (AgentConfig(), None, {"temperature": 0.7}),
        (AgentConfig(temperature=None, max_tokens=9), {"seed": 1}, {"max_tokens": 9, "seed": 1}),
        (AgentConfig(temperature=0.2, max_tokens=9), {"temperature": 0.0}, {"temperature": 0.0, "max_tokens": 9}),
        (AgentConfig(), {"temperature": None}, {}),
    ],
)
def test_parameters_of_the_call_win_over_the_configs(
    config: AgentConfig | None, params: dict[str, Any] | None, sent: dict[str, Any]
) -> None:
    """M-003, M-004, M-019."""
    assert resolved_of(AgentSpec("boss")).parts(config, params=params).params == sent


def test_what_the_caller_brings_is_passed_on() -> None:
    hooks = HookExecutor()
    told: list[TokenUsage | None] = []
    resolved = resolved_of(AgentSpec("boss"))

    def phases() -> PhaseRuntime:
        raise NotImplementedError

    parts = resolved.parts(phases=phases, on_usage=told.append, session_id="s1", hooks=hooks)

    assert (parts.phases, parts.session_id, parts.hooks) == (phases, "s1", hooks)
    assert parts.on_usage is not None
    parts.on_usage(TokenUsage(1))
    assert told == [TokenUsage(1)]


def test_plugins_have_a_runtime_of_their_own_for_each_run() -> None:
    parts = resolved_of(AgentSpec("boss")).parts()
    assert parts.phases is not None
    first, second = parts.phases(), parts.phases()
    assert isinstance(first, PhaseRuntime)
    assert first is not second


def test_prices_of_the_model_say_what_a_call_costs() -> None:
    spec = AgentSpec("boss", "priced")
    cost_of = resolved_of(spec, model=ModelSpec("priced", "main", "n", 2, 4)).parts().cost_of
    assert cost_of is not None
    assert cost_of(TokenUsage(500_000, 250_000)) == pytest.approx(2.0)


def test_parts_of_one_resolution_do_not_share_their_tools() -> None:
    resolved = resolved_of(AgentSpec("boss"))
    parts = resolved.parts()
    assert isinstance(parts.tools, dict)
    parts.tools.clear()
    assert list(resolved.tools) == ["a"]


class Never(PermissionChecker):
    async def check(self, tool_id: str, arguments: Any, ctx: ToolContext[Any]) -> PermissionDecision:
        return PermissionDecision.deny("not on a Sunday")


@pytest.mark.anyio
async def test_resolved_agent_runs_as_a_graph() -> None:
    provider = ScriptedProvider([LLMResponse("", [ToolCall("1", "a", {})]), "Done."])
    resolved = resolved_of(AgentSpec("boss", system_prompt="Be brief."), provider=provider)

    result = await compile_agent(resolved).run("Go.")

    assert result.output == "Done."
    first, second = provider.calls
    assert [each.role for each in first.messages] == [Role.SYSTEM, Role.USER]
    assert first.kwargs["model"] == "big-1"
    assert second.messages[-1] == Message.tool("1", "a")


@pytest.mark.anyio
async def test_who_permits_calls_of_the_global_tools_is_asked() -> None:
    """AC-W33."""
    provider = ScriptedProvider([LLMResponse("", [ToolCall("1", "a", {})]), "I may not."])
    good = world(AgentSpec("boss"), providers={"main": provider})
    tools = ToolRegistry(permission_checker=Never())
    tools.register(Named("a"))
    registries = RegistrySet(good.agents, tools, good.models, good.providers, good.plugins)

    result = await compile_agent(resolve(registries, "boss")).run("Go.")

    assert result.output == "I may not."
    assert "not on a Sunday" in provider.calls[1].messages[-1].content


@pytest.mark.anyio
async def test_model_that_stands_in_is_asked_on_its_own_provider() -> None:
    """D-38."""
    broken = ScriptedProvider([LlmError("down", LlmErrorKind.PROVIDER)] * 2)
    spare = ScriptedProvider(["I stand in."])
    registries = world(
        AgentSpec("boss", sections={"retry": {"max_retries": 1, "backoff_base": 0, "fallback_models": ["b"]}}),
        models=[ModelSpec("b", "spare", "b-1")],
        providers={"main": broken, "spare": spare},
    )

    result = await compile_agent(resolve(registries, "boss")).run("Go.")

    assert result.output == "I stand in."
    assert [each.kwargs["model"] for each in (*broken.calls, *spare.calls)] == ["big-1", "big-1", "b-1"]


@pytest.mark.anyio
async def test_summary_is_asked_of_the_agents_model_and_costs_what_that_costs() -> None:
    """W-017."""
    provider = ScriptedProvider([LLMResponse("They talked.", usage=TokenUsage(1_000_000, 0)), "Done."])
    spec = AgentSpec(
        "boss",
        "priced",
        context_policy=ContextPolicy(min_recent_messages=1),
        sections={"compaction": {"threshold_tokens": 1, "keep_recent": 1}},
    )
    resolved = resolved_of(spec, model=ModelSpec("priced", "main", "big-2", 2, 4), provider=provider)
    history = [Message.user("word " * 500), Message.assistant("word " * 500), Message.user("Go on.")]

    budget = BudgetTracker(Budget(cost=10))

    result = await compile_agent(resolved).run(history, budget=budget)

    assert result.output == "Done."
    assert [each.kwargs["model"] for each in provider.calls] == ["big-2", "big-2"]
    assert "They talked." in provider.calls[1].messages[0].content
    assert budget.cost == pytest.approx(2.0)


@pytest.mark.anyio
async def test_only_the_plugins_that_the_filter_names_act_in_a_run() -> None:
    """AC-W31."""
    acted: list[str] = []

    def marking(id: str) -> Noting:
        def transform(request: InferenceRequest) -> InferenceRequest:
            acted.append(f"transform of {id}")
            return request

        def hook(ctx: PhaseContext) -> StateCommand:
            acted.append(f"hook of {id} in {ctx.session_id}")
            return StateCommand().emit("p2.effect", id)

        def effect(ctx: PhaseContext, payload: str) -> None:
            acted.append(f"effect of {id} for {payload}")

        def register(registrar: PluginRegistrar) -> None:
            registrar.phase_hook(Phase.RUN_START, hook)
            registrar.request_transform(transform)
            registrar.effect(f"{id}.effect", effect)

        return Noting(id, tools=[f"tool_{id}"], registers=register)

    provider = ScriptedProvider(["Done."])
    registries = world(
        AgentSpec("boss", plugin_ids=["p1", "p2"], active_hook_filter={"p1"}),
        plugins=[marking("p1"), marking("p2")],
        providers={"main": provider},
    )

    await compile_agent(resolve(registries, "boss").parts(session_id="s1")).run("Go.")

    assert acted == ["hook of p1 in s1", "effect of p2 for p1", "transform of p1"]
    (call,) = provider.calls
    assert call.tools is not None
    assert [tool.name for tool in call.tools if isinstance(tool, ToolDescriptor)] == ["tool_p1"]


def test_every_name_of_the_package_can_be_imported() -> None:
    assert all(getattr(graphrt.registry, name) is not None for name in graphrt.registry.__all__)
    assert {*graphrt.registry.__all__} <= {*dir(graphrt.registry)}
