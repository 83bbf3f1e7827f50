"""Agents that call agents of the same registries."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import anyio
import pytest

from graphrt.config import AgentConfig
from graphrt.errors import HookBlockedError, LlmError, LlmErrorKind, ResolveError
from graphrt.graph.protocols import Question
from graphrt.graph.scheduler.result import RunResult
from graphrt.graph.states import RunStatus, TerminationKind
from graphrt.llm import ScriptedProvider
from graphrt.messages import LLMResponse, Role, TokenUsage, ToolCall
from graphrt.nodes import compile_agent
from graphrt.policies import Budget
from graphrt.registry import AgentSpec, ModelSpec, RegistrySet, RemoteEndpoint, resolve
from graphrt.registry.backends import remote_delegate
from graphrt.registry.running import CalledBy, RunScope, current_scope, run_resolved, running_in
from graphrt.telemetry import conventions
from graphrt.tools import ToolContext, ToolRegistry, function_tool
from graphrt.tools.delegate import Delegate, DelegateReply
from tests.engine.helpers import FAKE_TIME
from tests.nodeclasses.helpers import Events, answers
from tests.registry.helpers import world
from tests.telemetry.collecting import Collected, attributes

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module", params=FAKE_TIME)
def anyio_backend(request: pytest.FixtureRequest) -> Any:
    return request.param


def asks(agent: str, prompt: str = "do it", id: str = "call-1") -> LLMResponse:
    """Make a reply that calls an agent."""
    return LLMResponse("", [ToolCall(id, f"agent_run_{agent}", {"prompt": prompt})], TokenUsage(10, 1))


def says(text: str) -> LLMResponse:
    return LLMResponse(text, usage=TokenUsage(100, 10))


class Team:
    """A boss that may ask a worker, each with a model of its own."""

    def __init__(
        self, boss: Sequence[Any], worker: Sequence[Any], *, tools: ToolRegistry | None = None, **spec: Any
    ) -> None:
        self.boss = ScriptedProvider(boss)
        self.worker = ScriptedProvider(worker)
        worker_spec = {"model": "small", "system_prompt": "You work.", **spec}
        self.registries = world(
            AgentSpec("boss", "big", "You lead.", delegates=["worker"], excluded_tools=["dig"]),
            AgentSpec("worker", **worker_spec),
            models=[ModelSpec("big", "boss", "big-1"), ModelSpec("small", "worker", "small-1")],
            providers={"boss": self.boss, "worker": self.worker},
        )
        if tools is not None:
            self.registries = replace(self.registries, tools=tools)

    async def run(self, prompt: str = "go", *, scope: RunScope | None = None, **options: Any) -> RunResult:
        scope = scope or self.scope()
        return await run_resolved(resolve(self.registries, "boss"), prompt, scope=scope, **options)

    def scope(self, **options: Any) -> RunScope:
        return RunScope(options.pop("config", AgentConfig()), self.registries, **options)

    def told(self) -> str:
        """Give what the boss was told by its delegate."""
        [(_, text)] = answers(self.boss.calls[1].messages)
        return text


# --- a call


async def test_the_delegate_works_by_its_own_prompt_and_its_last_words_are_the_result() -> None:
    """AC-W15."""
    team = Team([asks("worker", "dig a hole"), says("all done")], [says("a hole")])
    result = await team.run()
    assert result.output == "all done"
    assert team.told() == "a hole"
    [call] = team.worker.calls
    assert [(each.role, each.content) for each in call.messages] == [
        (Role.SYSTEM, "You work."),
        (Role.USER, "dig a hole"),
    ]
    assert call.kwargs["model"] == "small-1"


async def test_the_delegate_has_its_own_limit_on_rounds() -> None:
    """AC-W15, X-41."""

    @function_tool
    async def dig() -> str:
        """Dig."""
        return "dug"

    tools = ToolRegistry()
    tools.register(dig)
    digs = LLMResponse("", [ToolCall("d", "dig", {})])
    team = Team([asks("worker"), says("all done")], [digs, digs, digs], tools=tools, max_rounds=2)
    result = await team.run()
    assert result.status is RunStatus.SUCCEEDED
    assert team.told() == "agent 'worker' was stopped: its limit 'max_rounds' was reached"
    assert len(team.worker.calls) == 2


async def test_an_empty_prompt_is_an_error_and_no_run() -> None:
    """AC-W15."""
    team = Team([asks("worker", " "), says("all done")], [])
    result = await team.run()
    assert result.output == "all done"
    assert "prompt" in team.told()
    assert team.worker.calls == []


async def test_readers_of_events_and_spans_find_both_runs() -> None:
    """X-19."""
    team = Team([asks("worker"), says("all done")], [says("a hole")])
    collected, events = Collected(), Events()
    result = await team.run(scope=team.scope(telemetry=collected.telemetry), on_event=events, run_id="run-boss")
    started, ended = events.of("custom.delegate.started", "custom.delegate.completed")
    assert started.data == ended.data
    assert started.data["parent_run_id"] == result.run_id == "run-boss"
    assert started.data["tool_call_id"] == "call-1"
    inner = started.data["run_id"]
    assert inner not in ("run-boss", None)
    collected.check_whole()
    [step] = [span for span in collected.spans if "graphrt.delegate.run.id" in attributes(span)]
    assert attributes(step)["graphrt.delegate.run.id"] == inner
    [child] = [span for span in collected.spans if attributes(span).get(conventions.RUN_ID) == inner]
    assert collected.parent(child) is step


async def test_the_delegates_usage_is_part_of_the_runs_and_reported_once() -> None:
    team = Team([asks("worker"), says("all done")], [says("a hole")])
    reported: list[TokenUsage | None] = []
    result = await team.run(scope=team.scope(on_usage=reported.append))
    assert result.usage == TokenUsage(210, 21)
    assert reported == [TokenUsage(10, 1), TokenUsage(100, 10), TokenUsage(100, 10)]


async def test_the_delegate_spends_from_the_budget_of_the_run() -> None:
    team = Team([asks("worker"), says("all done")], [says("a hole")])
    result = await team.run(budget=Budget(requests=1))
    assert "requests" in str(result.error)
    assert team.worker.calls == []
    assert len(team.boss.calls) == 1


async def test_the_delegate_gets_the_deps_and_knows_who_called() -> None:
    found: list[Any] = []

    @function_tool
    async def dig(ctx: ToolContext[Any]) -> str:
        """Dig."""
        scope = current_scope()
        assert scope is not None
        found.append((ctx.deps, scope.depth, scope.called_by, dict(scope.params)))
        return "dug"

    tools = ToolRegistry()
    tools.register(dig)
    digs = LLMResponse("", [ToolCall("d", "dig", {})])
    team = Team([asks("worker"), says("all done")], [digs, says("a hole")], tools=tools)
    await team.run(run_id="run-boss", deps="spade", scope=team.scope(params={"temperature": 0.1}))
    assert found == [("spade", 1, CalledBy("run-boss", "call-1"), {})]
    assert team.boss.calls[0].kwargs["temperature"] == 0.1
    assert team.worker.calls[0].kwargs["temperature"] == 0.7
    assert current_scope() is None


async def test_the_delegate_is_resolved_when_it_is_called() -> None:
    """W-002."""
    team = Team([asks("worker"), says("all done")], [])
    boss = resolve(team.registries, "boss")
    changed = replace(team.registries, agents=world(AgentSpec("other")).agents)
    await run_resolved(boss, "go", scope=RunScope(AgentConfig(), changed))
    assert team.told() == "agent 'worker' could not be run: agent 'worker' is not registered"


async def test_several_delegates_work_at_once_with_a_run_each() -> None:
    calls = [ToolCall(str(n), "agent_run_worker", {"prompt": str(n)}) for n in range(3)]
    team = Team([LLMResponse("", calls), says("all done")], [says("a"), says("b"), says("c")])
    events = Events()
    await team.run(on_event=events)
    assert sorted(text for _, text in answers(team.boss.calls[1].messages)) == ["a", "b", "c"]
    assert len({event.data["run_id"] for event in events.of("custom.delegate.started")}) == 3


async def test_an_agents_graph_that_is_run_by_hand_has_delegates_too() -> None:
    team = Team([asks("worker"), says("all done")], [says("a hole")])
    result = await compile_agent(resolve(team.registries, "boss").parts()).run("go")
    assert result.output == "all done"
    assert team.told() == "a hole"


# --- how it ends


@pytest.mark.parametrize(
    ("failure", "text"),
    [
        (LlmError("no key", LlmErrorKind.UNAUTHORIZED), "agent 'worker' failed: no key"),
        (ValueError("odd"), "agent 'worker' failed: ValueError: odd"),
        (HookBlockedError("not allowed"), "agent 'worker' was blocked: blocked by a hook: not allowed"),
    ],
)
async def test_a_delegate_that_fails_is_an_error_for_the_model(failure: Exception, text: str) -> None:
    """X-19."""
    team = Team([asks("worker"), says("all done")], [failure])
    result = await team.run()
    assert result.termination.kind is TerminationKind.NATURAL_END
    assert result.output == "all done"
    assert team.told() == text


async def test_what_a_failed_delegate_has_used_counts() -> None:
    fails = [asks("nobody"), LlmError("no key", LlmErrorKind.UNAUTHORIZED)]
    team = Team([asks("worker"), says("all done")], fails)
    assert (await team.run()).usage == TokenUsage(120, 12)


async def test_who_is_cancelled_has_the_delegate_stopped_before_it_goes_on() -> None:
    seen: list[str] = []

    async def never(*_: Any) -> str:
        seen.append("begun")
        try:
            await anyio.sleep_forever()
        finally:
            seen.append("stopped")
        return ""

    team = Team([asks("worker")], [never])
    with anyio.move_on_after(5) as scope:
        await team.run()
    seen.append("over")
    assert scope.cancelled_caught
    assert seen == ["begun", "stopped", "over"]


async def test_a_run_out_of_time_has_the_delegate_stopped() -> None:
    """B-046."""

    async def never(*_: Any) -> str:
        await anyio.sleep_forever()
        return ""

    team = Team([asks("worker")], [never])
    result = await team.run(timeout=5)
    assert result.status is RunStatus.TIMED_OUT
    team = Team([asks("worker"), says("all done")], [says("a hole")])
    assert (await team.run(timeout=5)).output == "all done"


async def test_a_delegate_that_is_cut_off_by_its_tools_timeout_has_used_what_it_has_used() -> None:
    async def slow(*_: Any) -> str:
        await anyio.sleep(100)
        return ""

    team = Team([asks("worker"), says("all done")], [asks("nobody"), slow])
    parts = replace(resolve(team.registries, "boss").parts(), tool_timeout=10)
    with running_in(team.scope()):
        result = await compile_agent(parts).run("go")
    assert team.told() == "agent 'worker' was stopped: it had no answer after 10 seconds"
    assert result.usage == TokenUsage(120, 12)


# --- depth


@pytest.mark.parametrize("deepest", [0, 1, 3])
async def test_an_agent_that_asks_itself_is_stopped_at_the_limit_and_ends_naturally(deepest: int) -> None:
    """AC-C25, X-41."""
    runs: list[str] = []

    async def answer(messages: list[Any], *_: Any) -> LLMResponse:
        told = answers(messages)
        if not told:
            runs.append("run")
            return asks("me")
        return says(f"({told[-1][1]})")

    provider = ScriptedProvider([answer] * 20)
    registries = world(AgentSpec("me", "big", delegates=["me"]), **_boss(provider))
    scope = RunScope(AgentConfig(max_delegate_depth=deepest), registries)
    result = await run_resolved(resolve(registries, "me"), "go", scope=scope)
    assert result.termination.kind is TerminationKind.NATURAL_END
    assert len(runs) == 1 + deepest
    refusal = f"agent 'me' was not run: agents call agents {deepest} deep at most; answer without it"
    assert result.output == "(" * (deepest + 1) + refusal + ")" * (deepest + 1)


# --- questions


def digging() -> ToolRegistry:
    """Make a tool that needs a person's approval."""

    @function_tool(requires_approval=True)
    async def dig() -> str:
        """Dig."""
        return "dug"

    tools = ToolRegistry()
    tools.register(dig)
    return tools


async def test_a_delegates_question_goes_to_whoever_answers_the_run_and_is_no_work() -> None:
    """B-103."""
    digs = LLMResponse("", [ToolCall("d", "dig", {})])
    team = Team([asks("worker"), says("all done")], [digs, says("a hole")], tools=digging())
    asked: list[Any] = []

    async def answer(question: Question) -> bool:
        asked.append(question.question["tool"])
        await anyio.sleep(60)
        return True

    result = await team.run(scope=team.scope(on_ask=answer), timeout=10)
    assert result.output == "all done"
    assert asked == ["dig"]
    assert answers(team.worker.calls[1].messages) == [("d", "dug")]


async def test_who_answers_for_a_delegate_need_not_be_async() -> None:
    digs = LLMResponse("", [ToolCall("d", "dig", {})])
    team = Team([asks("worker"), says("all done")], [digs, says("a hole")], tools=digging())
    result = await team.run(scope=team.scope(on_ask=lambda question: True), timeout=10)
    assert result.output == "all done"
    assert answers(team.worker.calls[1].messages) == [("d", "dug")]


async def test_every_agent_above_waits_while_the_lowest_asks() -> None:
    """B-103."""
    digs = LLMResponse("", [ToolCall("d", "dig", {})])
    boss = ScriptedProvider([asks("lead"), says("all done")])
    lead = ScriptedProvider([asks("worker"), says("led")])
    worker = ScriptedProvider([digs, says("a hole")])
    registries = world(
        AgentSpec("boss", "big", delegates=["lead"], excluded_tools=["dig"]),
        AgentSpec("lead", "middle", delegates=["worker"], excluded_tools=["dig"]),
        AgentSpec("worker", "small"),
        models=[ModelSpec("big", "boss", "b"), ModelSpec("middle", "lead", "l"), ModelSpec("small", "worker", "w")],
        providers={"boss": boss, "lead": lead, "worker": worker},
    )
    registries = replace(registries, tools=digging())

    async def answer(question: Question) -> bool:
        await anyio.sleep(60)
        return True

    parts = replace(resolve(registries, "boss").parts(), tool_timeout=5)
    with running_in(RunScope(AgentConfig(), registries, on_ask=answer)):
        result = await compile_agent(parts).run("go", timeout=10)
    assert result.output == "all done"
    assert answers(boss.calls[1].messages) == [("call-1", "led")]


async def test_a_question_that_nobody_can_answer_is_an_error_for_the_model() -> None:
    team = Team([asks("worker"), says("all done")], [], tools=digging())
    result = await team.run()
    assert result.output == "all done"
    assert team.told().startswith("agent 'worker' could not be run:")
    assert "nobody can answer" in team.told()


# --- elsewhere


class Far:
    """A back end that says what it was made of."""

    def __init__(self, agent_id: str, endpoint: RemoteEndpoint) -> None:
        if "broken" in endpoint.options:
            raise KeyError("broken")
        self.text = f"{agent_id} at {endpoint.base_url}"

    async def run(self, prompt: str, ctx: ToolContext[Any]) -> DelegateReply:
        return DelegateReply(f"{self.text}: {prompt}", "task-1", TokenUsage(1, 1))


def far(**options: Any) -> AgentSpec:
    return AgentSpec("worker", endpoint=RemoteEndpoint("http://far", "mine", options))


def boss_of(spec: AgentSpec, script: Sequence[Any], **rest: Any) -> tuple[RegistrySet, ScriptedProvider]:
    provider = ScriptedProvider(script)
    return world(AgentSpec("boss", "big", delegates=["worker"]), spec, **_boss(provider), **rest), provider


def _boss(provider: ScriptedProvider) -> dict[str, Any]:
    return {"models": [ModelSpec("big", "boss", "big-1")], "providers": {"boss": provider}}


async def test_an_agent_with_an_endpoint_is_run_by_the_back_end_of_its_kind() -> None:
    """W-029, X-43."""
    registries, provider = boss_of(far(), [asks("worker", "dig"), says("all done")], backends={"mine": Far})
    result = await run_resolved(resolve(registries, "boss"), "go", scope=RunScope(AgentConfig(), registries))
    assert answers(provider.calls[1].messages) == [("call-1", "worker at http://far: dig")]
    assert result.usage == TokenUsage(111, 12)


def test_a_kind_of_back_end_that_is_not_known_is_refused_when_the_agent_is_resolved() -> None:
    """W-029, X-43."""
    registries, _ = boss_of(far(), [])
    with pytest.raises(ResolveError, match=r"(?s)of kind 'mine'.*kinds so far: a2a"):
        resolve(registries, "boss")
    registries, _ = boss_of(AgentSpec("worker", endpoint=RemoteEndpoint("http://far", "x")), [], backends={"mine": Far})
    with pytest.raises(ResolveError, match="kinds so far: a2a, mine"):
        resolve(registries, "boss")


def test_an_endpoint_with_wrong_settings_is_refused_when_the_agent_is_resolved() -> None:
    """X-43."""
    registries, _ = boss_of(far(broken=True), [], backends={"mine": Far})
    with pytest.raises(ResolveError, match="the endpoint of agent 'worker' is of no use: KeyError: 'broken'") as caught:
        resolve(registries, "boss")
    assert isinstance(caught.value.__cause__, KeyError)
    spec = AgentSpec("worker", endpoint=RemoteEndpoint("http://far", options={"retries": 1}))
    registries, _ = boss_of(spec, [])
    with pytest.raises(ResolveError, match=r"(?s)option 'retries'.*options are: headers, timeout, protocol"):
        resolve(registries, "boss")


def test_the_built_in_back_end_is_made_without_being_named() -> None:
    spec = AgentSpec("worker", endpoint=RemoteEndpoint("http://far"))
    registries, _ = boss_of(spec, [])
    delegate: Delegate = remote_delegate(registries, spec)
    assert type(delegate).__name__ == "A2ABackend"
    assert list(resolve(registries, "boss").tools) == ["agent_run_worker"]


def test_an_agent_without_an_endpoint_has_no_back_end() -> None:
    registries, _ = boss_of(AgentSpec("worker"), [])
    with pytest.raises(ResolveError, match="has no endpoint"):
        remote_delegate(registries, AgentSpec("worker"))


async def test_without_the_feature_delegates_are_left_out(caplog: pytest.LogCaptureFixture) -> None:
    """W-030, D-35."""
    registries, provider = boss_of(far(), [asks("worker"), says("all done")], features=frozenset())
    with caplog.at_level(logging.WARNING):
        result = await run_resolved(resolve(registries, "boss"), "go", scope=RunScope(AgentConfig(), registries))
    assert result.output == "all done"
    assert "unknown tool 'agent_run_worker'" in answers(provider.calls[1].messages)[0][1]
    assert len([each for each in caplog.records if "a2a" in each.getMessage()]) == 1
