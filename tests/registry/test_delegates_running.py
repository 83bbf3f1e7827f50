"""A run of a resolved agent: what it is given, and what its callers find."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from graphrt.config import AgentConfig
from graphrt.errors import GraphError, LlmError
from graphrt.graph.states import RunStatus
from graphrt.llm import ScriptedProvider
from graphrt.messages import LLMResponse, Message
from graphrt.plugins import Phase, PhaseContext, PhaseRuntime, PluginRegistrar, StateKey
from graphrt.registry import AgentSpec, ModelSpec, RegistrySet, resolve
from graphrt.registry.running import RunScope, compile_resolved, current_scope, run_resolved, running_in
from graphrt.tools import ToolRegistry, function_tool
from tests.engine.helpers import FAKE_TIME
from tests.nodeclasses.helpers import Events
from tests.registry.helpers import Noting, world

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module", params=FAKE_TIME)
def anyio_backend(request: pytest.FixtureRequest) -> Any:
    return request.param


def solo(script: list[Any], *plugins: Noting) -> tuple[RegistrySet, ScriptedProvider]:
    """Make registries with one agent."""
    provider = ScriptedProvider(script)
    spec = AgentSpec("solo", "own", "You work.", plugin_ids=[plugin.id for plugin in plugins])
    models = [ModelSpec("own", "own", "own-1")]
    return world(spec, plugins=plugins, models=models, providers={"own": provider}), provider


def scope_of(registries: RegistrySet, **options: Any) -> RunScope:
    return RunScope(options.pop("config", AgentConfig()), registries, **options)


async def test_a_text_or_a_conversation_is_what_the_agent_is_given() -> None:
    registries, provider = solo(["one", "two"])
    agent, scope = resolve(registries, "solo"), scope_of(registries)
    assert (await run_resolved(agent, "hello", scope=scope)).output == "one"
    said = (Message.user("hello"), Message.assistant("one"), Message.user("again"))
    assert (await run_resolved(agent, said, scope=scope, system_prompt="You rest.")).output == "two"
    assert [each.content for each in provider.calls[0].messages] == ["You work.", "hello"]
    assert [each.content for each in provider.calls[1].messages] == ["You rest.", "hello", "one", "again"]


async def test_the_scopes_config_and_parameters_go_into_the_requests() -> None:
    registries, provider = solo(["one"])
    scope = scope_of(registries, config=AgentConfig(temperature=0.2, max_tokens=50), params={"temperature": 0.9})
    await run_resolved(resolve(registries, "solo"), "hello", scope=scope)
    assert (provider.calls[0].kwargs["temperature"], provider.calls[0].kwargs["max_tokens"]) == (0.9, 50)


async def test_what_ended_the_run_is_in_the_result_and_not_raised() -> None:
    registries, _ = solo([LlmError("no")])
    result = await run_resolved(resolve(registries, "solo"), "hello", scope=scope_of(registries), run_id="run-9")
    assert (result.run_id, result.status) == ("run-9", RunStatus.FAILED)
    assert isinstance(result.error, LlmError)


async def test_events_are_told() -> None:
    registries, _ = solo(["one"])
    events = Events()
    await run_resolved(resolve(registries, "solo"), "hello", scope=scope_of(registries), on_event=events)
    assert events.types()[0] == "run.started"
    assert events.types()[-1] == "run.completed"


async def test_a_run_that_cannot_be_started_says_so() -> None:
    @function_tool(requires_approval=True)
    async def dig() -> str:
        """Dig."""
        return "dug"

    tools = ToolRegistry()
    tools.register(dig)
    registries, _ = solo(["one"])
    registries = replace(registries, tools=tools)
    with pytest.raises(GraphError, match="nobody can answer"):
        await run_resolved(resolve(registries, "solo"), "hello", scope=scope_of(registries))


def watching(seen: list[PhaseContext]) -> Noting:
    """Make a plugin that notes the context of the run's start."""

    async def note(ctx: PhaseContext) -> None:
        seen.append(ctx)

    def register(registrar: PluginRegistrar) -> None:
        registrar.state_key(StateKey("watch.count", 0, keep=True))
        registrar.phase_hook(Phase.RUN_START, note)

    return Noting("watch", registers=register)


async def test_plugins_know_session_turn_and_what_the_session_has_kept() -> None:
    seen: list[PhaseContext] = []
    registries, _ = solo(["one"], watching(seen))
    scope = scope_of(registries, session_id="s-1")
    await run_resolved(
        resolve(registries, "solo"), "hello", scope=scope, state={"watch.count": 4}, turn_index=2, run_id="run-9"
    )
    [ctx] = seen
    assert (ctx.agent_id, ctx.session_id, ctx.turn_index, ctx.run_id) == ("solo", "s-1", 2, "run-9")
    assert ctx.state["watch.count"] == 4


async def test_plugins_of_a_run_without_a_turn_know_its_session_too() -> None:
    seen: list[PhaseContext] = []
    registries, _ = solo(["one"], watching(seen))
    await run_resolved(resolve(registries, "solo"), "hello", scope=scope_of(registries, session_id="s-1"))
    assert (seen[0].session_id, seen[0].turn_index, seen[0].state["watch.count"]) == ("s-1", None, 0)


async def test_phases_of_the_callers_own_take_the_place_of_the_usual_ones() -> None:
    seen: list[PhaseContext] = []
    registries, _ = solo(["one"], watching(seen))
    agent = resolve(registries, "solo")
    made: list[PhaseRuntime] = []

    def make() -> PhaseRuntime:
        made.append(PhaseRuntime(agent.env, agent_id="mine"))
        return made[-1]

    await run_resolved(agent, "hello", scope=scope_of(registries), phases=make, turn_index=2)
    assert len(made) == 1
    assert (seen[0].agent_id, seen[0].turn_index) == ("mine", None)


async def test_the_scope_is_found_by_what_starts_in_its_block() -> None:
    found: list[RunScope | None] = []

    def look(*_: Any) -> LLMResponse:
        found.append(current_scope())
        return LLMResponse("one")

    registries, _ = solo([look, look])
    agent, scope = resolve(registries, "solo"), scope_of(registries)
    await run_resolved(agent, "hello", scope=scope)
    stream = compile_resolved(agent, scope=scope).stream("hello")
    with running_in(scope):
        await stream.__aenter__()
    assert current_scope() is None
    assert (await stream.wait()).output == "one"
    await stream.__aexit__(None, None, None)
    assert found == [scope, scope]
