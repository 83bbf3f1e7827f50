"""`AgentRuntime.run`, its builder, and conversations with registered agents."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import anyio
import pytest

from graphrt import AgentConfig, Budget, ConfigError, HookEvent, HookExecutor, LimitExceededError, LlmError
from graphrt.agent import AgentRuntime, AgentRuntimeBuilder, RunRequest, Session, SimpleAgent
from graphrt.errors import (
    AgentLlmError,
    AgentNotFoundError,
    BuildError,
    HookBlockedError,
    LlmErrorKind,
    ModelNotFoundError,
    RemoteAgentNotDirectlyRunnableError,
    ResolveError,
    ToolError,
)
from graphrt.graph import RunEvent, RunStatus, TerminationKind
from graphrt.llm import LLMProvider, ScriptedProvider
from graphrt.messages import LLMResponse, Message, Role
from graphrt.plugins import Plugin, PluginDescriptor, PluginRegistrar
from graphrt.registry import AgentSpec, ModelSpec, RemoteEndpoint, resolve
from graphrt.tools import PermissionChecker, PermissionDecision, ToolContext
from tests.agent.helpers import Heard, add, asks, block, call, echo, is_paired, offered, texts
from tests.engine.helpers import GUARD, check_whole

pytestmark = pytest.mark.anyio


def builder_of(provider: LLMProvider, *specs: AgentSpec) -> AgentRuntimeBuilder:
    """Make a builder with a model `default` and the specs; one agent `helper` without any."""
    return (
        AgentRuntimeBuilder()
        .with_model(ModelSpec("default", "main", "gpt"))
        .with_provider("main", provider)
        .with_agent_specs(specs or [AgentSpec("helper", system_prompt="be brief")])
    )


# --- runs --------------------------------------------------------------------------------------------------


async def test_an_agent_is_run_with_what_was_said_before() -> None:
    provider = ScriptedProvider(["fine"])
    runtime = builder_of(provider).build()
    before = [Message.user("hi"), Message.assistant("hello"), Message.assistant("", [call("1")])]
    result = await runtime.run(RunRequest("helper", "how are you", before, run_id="r-1"))
    assert (result.run_id, result.output, result.status) == ("r-1", "fine", RunStatus.SUCCEEDED)
    assert result.termination.kind is TerminationKind.NATURAL_END
    assert texts(provider.calls[0].messages) == [
        "system: be brief",
        "user: hi",
        "assistant: hello",
        "user: how are you",
    ]
    assert result.response is not None
    assert result.response.content == "fine"


@pytest.mark.parametrize(
    ("input", "messages", "sent"),
    [
        ("hi", [], ["user: hi"]),
        ([Message.user("a"), Message.user("b")], [], ["user: a", "user: b"]),
        ("", [Message.user("a")], ["user: a"]),
        ([], [Message.user("a")], ["user: a"]),
        ("", [], ["user: "]),
    ],
)
async def test_the_input_is_a_text_or_messages(input: Any, messages: list[Message], sent: list[str]) -> None:
    provider = ScriptedProvider(["fine"])
    await builder_of(provider, AgentSpec("helper")).build().run(RunRequest("helper", input, messages))
    assert texts(provider.calls[0].messages) == sent


@pytest.mark.parametrize(
    "request_of",
    [
        lambda: RunRequest(None, "hi"),  # type: ignore[arg-type]  # wrong on purpose, like those below
        lambda: RunRequest("a", 3),  # type: ignore[arg-type]
        lambda: RunRequest("a", ["hi"]),  # type: ignore[list-item]
        lambda: RunRequest("a", "hi", "before"),  # type: ignore[arg-type]
        lambda: RunRequest("a", "hi", [{"role": "user"}]),  # type: ignore[list-item]
    ],
)
def test_a_request_of_the_wrong_kind_is_refused(request_of: Any) -> None:
    with pytest.raises(ConfigError, match="RunRequest"):
        request_of()


async def test_the_limit_on_rounds_is_a_termination() -> None:
    """AC-W25."""
    ran: list[int] = []

    async def count(n: int) -> int:
        """Count."""
        ran.append(n)
        return n

    provider = ScriptedProvider([asks(call(str(n), "count", n=n)) for n in range(3)])
    runtime = builder_of(provider, AgentSpec("helper", max_rounds=2)).with_tool("count", count).build()
    result = await runtime.run(RunRequest("helper", "count"))
    assert (result.termination.kind, result.termination.code) == (TerminationKind.STOPPED, "max_rounds")
    assert (len(provider.calls), ran) == (2, [0, 1])
    assert is_paired(result.messages)
    assert len([each for each in result.messages if each.role is Role.TOOL]) == 2


@pytest.mark.parametrize(("of_spec", "of_config", "rounds"), [(2, 5, 2), (5, 2, 2)])
async def test_the_smaller_limit_on_rounds_wins(of_spec: int, of_config: int, rounds: int) -> None:
    provider = ScriptedProvider([asks(call(str(n), "add", a=n, b=n)) for n in range(9)])
    builder = builder_of(provider, AgentSpec("helper", max_rounds=of_spec)).with_tool("add", add)
    runtime = builder.with_config(AgentConfig(max_rounds=of_config)).build()
    assert (await runtime.run(RunRequest("helper", "add"))).termination.code == "max_rounds"
    assert len(provider.calls) == rounds


async def test_every_ending_is_a_result() -> None:
    async def slow(messages: Any, tools: Any, kwargs: Any) -> str:
        await anyio.sleep_forever()
        return ""

    hooks = HookExecutor()
    heard = Heard(hooks, [HookEvent.ON_ERROR, HookEvent.ON_TURN_START, HookEvent.ON_TURN_END])
    script: list[Any] = [
        LlmError("no", LlmErrorKind.UNAUTHORIZED),
        slow,
        slow,
        asks(call("1", "add", a=1, b=1)),
        "never",
    ]
    runtime = builder_of(ScriptedProvider(script)).with_tool("add", add).with_hook_executor(hooks)
    short = runtime.with_config(AgentConfig(timeout_seconds=0.05)).build()
    failed = await short.run(RunRequest("helper", "a"))
    assert failed.termination.kind is TerminationKind.ERROR
    assert isinstance(failed.error, LlmError)
    assert (await short.run(RunRequest("helper", "b"))).termination.kind is TerminationKind.TIMEOUT
    long = runtime.with_config(AgentConfig()).build()
    soon = datetime.now(UTC) + timedelta(seconds=0.05)
    assert (await long.run(RunRequest("helper", "c", deadline=soon))).termination.kind is TerminationKind.TIMEOUT
    spent = await long.run(RunRequest("helper", "d"), budget=Budget(tool_calls=0))
    assert isinstance(spent.error, LimitExceededError)
    hooks.register(HookEvent.PRE_REQUEST, block)
    blocked = await long.run(RunRequest("helper", "e"))
    assert blocked.termination.kind is TerminationKind.BLOCKED
    assert isinstance(blocked.error, HookBlockedError)
    assert heard.events() == ["on_error"] * 5
    assert isinstance(heard[0].data["error"], AgentLlmError)
    assert heard[0].run_id == failed.run_id


async def test_what_comes_before_a_run_is_raised() -> None:
    remote = AgentSpec("far", endpoint=RemoteEndpoint("http://far.example"))
    runtime = builder_of(ScriptedProvider(), AgentSpec("helper"), remote).build()
    with pytest.raises(AgentNotFoundError, match="'nobody'"):
        await runtime.run(RunRequest("nobody", "hi"))
    with pytest.raises(RemoteAgentNotDirectlyRunnableError):
        await runtime.run(RunRequest("far", "hi"))
    with pytest.raises(ConfigError, match="deadline"):
        await runtime.run(RunRequest("helper", "hi", deadline=datetime(2030, 1, 1)))  # noqa: DTZ001 - that is refused

    class Broken:
        def build(self, config: AgentConfig, session: Any) -> str:
            raise RuntimeError("no template")

    runtime = AgentRuntime.from_provider(ScriptedProvider(), system_prompt_builder=Broken())
    with pytest.raises(ConfigError, match="no template"):
        await runtime.run(RunRequest("default", "hi"))


async def test_events_deps_and_budget_reach_the_run() -> None:
    seen: list[Any] = []

    async def look(ctx: ToolContext[str]) -> str:
        """Look."""
        seen.append(ctx.deps)
        return "seen"

    events: list[RunEvent] = []
    provider = ScriptedProvider([asks(call("1", "look")), "done"])
    runtime = builder_of(provider).with_tool("look", look).build()
    await runtime.run(RunRequest("helper", "look"), deps="mine", on_event=events.append, budget=Budget(tool_calls=3))
    assert seen == ["mine"]
    check_whole(events)


async def test_a_hook_on_errors_that_fails_does_not_hide_the_result() -> None:
    hooks = HookExecutor()

    def fail(ctx: Any) -> None:
        raise RuntimeError("oops")

    hooks.register(HookEvent.ON_ERROR, fail, critical=True)
    provider = ScriptedProvider([LlmError("no", LlmErrorKind.UNAUTHORIZED)])
    result = await builder_of(provider).with_hook_executor(hooks).build().run(RunRequest("helper", "a"))
    assert result.status is RunStatus.FAILED


class Counting(Plugin):
    def __init__(self) -> None:
        self.activated = 0
        self.deactivated = 0
        self.registered = 0

    @property
    def descriptor(self) -> PluginDescriptor:
        return PluginDescriptor("counting")

    def register(self, registrar: PluginRegistrar) -> None:
        self.registered += 1

    def on_activate(self, spec: Any, cmd: Any) -> None:
        self.activated += 1

    def on_deactivate(self, cmd: Any) -> None:
        self.deactivated += 1


async def test_plugins_are_activated_and_deactivated_around_every_run() -> None:
    """AC-W21."""
    plugin = Counting()
    provider = ScriptedProvider(["fine", LlmError("no", LlmErrorKind.UNAUTHORIZED)])
    runtime = builder_of(provider, AgentSpec("helper", plugin_ids=["c"])).with_plugin("c", plugin).build()
    for expected in (RunStatus.SUCCEEDED, RunStatus.FAILED):
        assert (await runtime.run(RunRequest("helper", "hi"))).status is expected
    assert (plugin.activated, plugin.deactivated) == (2, 2)


async def test_a_call_that_is_not_permitted_is_told_to_the_model() -> None:
    """AC-W33."""

    class Never(PermissionChecker):
        async def check(self, tool_id: str, arguments: Any, ctx: ToolContext[Any]) -> PermissionDecision:
            return PermissionDecision.deny("not on Sundays")

    ran: list[str] = []

    async def delete(path: str) -> str:
        """Delete a file."""
        ran.append(path)
        return path

    provider = ScriptedProvider([asks(call("1", "delete", path="/")), "I may not"])
    runtime = builder_of(provider).with_tool("delete", delete).with_permission_checker(Never()).build()
    result = await runtime.run(RunRequest("helper", "delete"))
    assert (result.output, ran) == ("I may not", [])
    assert "not on Sundays" in provider.calls[1].messages[-1].content


async def test_an_agent_asks_another_one() -> None:
    provider = ScriptedProvider([asks(call("1", "agent_run_worker", prompt="dig")), "dug", "the worker dug"])
    specs = AgentSpec("boss", delegates=["worker"]), AgentSpec("worker", system_prompt="be a worker")
    hooks = HookExecutor()
    heard = Heard(hooks, [HookEvent.PRE_REQUEST])
    result = await builder_of(provider, *specs).with_hook_executor(hooks).build().run(RunRequest("boss", "dig"))
    assert result.output == "the worker dug"
    assert texts(provider.calls[1].messages) == ["system: be a worker", "user: dig"]
    assert len(heard) == 3
    assert result.messages[2].content == "dug"


# --- the builder -------------------------------------------------------------------------------------------


async def test_duplicates_come_first_then_what_cannot_be_resolved_and_unchecked_it_shows_at_the_run() -> None:
    """AC-W23."""
    bad = AgentSpec("helper", model="nowhere")
    builder = builder_of(ScriptedProvider(), bad).with_tool("add", add).with_tool("add", echo)
    with pytest.raises(BuildError, match="'add'") as caught:
        builder.build()
    assert [type(each) for each in caught.value.problems] == [ToolError]
    with pytest.raises(BuildError, match="'add'"):
        builder.build_unchecked()
    builder = builder_of(ScriptedProvider(), bad).with_tool("add", add)
    with pytest.raises(BuildError, match="'nowhere'") as caught:
        builder.build()
    assert [type(each) for each in caught.value.problems] == [ModelNotFoundError]
    runtime = builder.build_unchecked()
    with pytest.raises(ModelNotFoundError):
        await runtime.run(RunRequest("helper", "hi"))


def test_all_problems_are_told_at_once() -> None:
    provider = ScriptedProvider()
    model = ModelSpec("default", "main", "gpt")
    builder = builder_of(provider, AgentSpec("a"), AgentSpec("a")).with_model(model).with_provider("main", provider)
    builder.with_plugin("p", Counting()).with_plugin("p", Counting()).with_tool("t", 3)  # type: ignore[arg-type]  # wrong
    builder.with_ledger(object()).with_default_agent("nobody").with_hook_executor(print)  # type: ignore[arg-type]  # wrong
    builder.with_config({"max_rounds": 3}).with_tracer_provider("otel")  # type: ignore[arg-type]  # wrong
    with pytest.raises(BuildError) as caught:
        builder.build()
    told = str(caught.value)
    for part in ("'a'", "'default'", "'main'", "'p'", "ledger", "'nobody'", "hook_executor", "config", "tracer"):
        assert part in told
    assert len(caught.value.problems) == 10


def test_every_agent_is_tried_but_those_that_live_elsewhere() -> None:
    specs = [
        AgentSpec("a", model="m1"),
        AgentSpec("b", plugin_ids=["p1"]),
        AgentSpec("far", model="m2", endpoint=RemoteEndpoint("http://far.example")),
        AgentSpec("ok", delegates=["far"]),
    ]
    with pytest.raises(BuildError) as caught:
        builder_of(ScriptedProvider(), *specs).build()
    assert len(caught.value.problems) == 2
    assert "'m1'" in str(caught.value)
    assert "'p1'" in str(caught.value)


def test_each_method_gives_the_builder_back_and_building_is_repeatable() -> None:
    plugin = Counting()
    builder = AgentRuntimeBuilder()
    for step in (
        builder.with_model(ModelSpec("default", "main", "gpt")),
        builder.with_provider("main", ScriptedProvider()),
        builder.with_agent_spec(AgentSpec("helper", plugin_ids=["c"])),
        builder.with_plugin("c", plugin),
        builder.with_tool("plus", add),
        builder.with_config(AgentConfig()),
        builder.without_feature("a2a"),
    ):
        assert step is builder
    first, second = builder.build(), builder.build()
    assert first.registries.tools.ids() == second.registries.tools.ids() == ["plus"]
    assert first.registries.tools is not second.registries.tools
    assert first.registries.features == frozenset()
    assert plugin.registered == 2
    builder.with_tool("echo", echo)
    assert first.registries.tools.ids() == ["plus"]


def test_hooks_reach_every_agent_before_its_plugins() -> None:
    hooks = HookExecutor()
    spec = AgentSpec("helper", plugin_ids=["c"], active_hook_filter=frozenset({"counting"}))
    runtime = builder_of(ScriptedProvider(), spec).with_plugin("c", Counting()).with_hook_executor(hooks).build()
    ids = [each.descriptor.id for each in resolve(runtime.registries, "helper").env.plugins]
    assert ids[:2] == ["hook_bridge", "counting"]


async def test_hooks_are_called_whatever_the_filter() -> None:
    hooks = HookExecutor()
    heard = Heard(hooks, [HookEvent.PRE_REQUEST])
    spec = AgentSpec("helper", plugin_ids=["c"], active_hook_filter=frozenset({"counting"}))
    builder = builder_of(ScriptedProvider(["ok"]), spec).with_plugin("c", Counting()).with_hook_executor(hooks)
    await builder.build().run(RunRequest("helper", "hi"))
    assert len(heard) == 1


# --- closing -----------------------------------------------------------------------------------------------


class Closing(ScriptedProvider):
    closed = 0

    async def aclose(self) -> None:
        self.closed += 1


async def test_only_providers_that_it_owns_are_closed() -> None:
    own, borrowed = Closing(["ok"]), Closing()
    builder = builder_of(own).with_provider("other", borrowed).with_provider("third", own, close=True)
    async with builder.build() as runtime:
        assert (await runtime.run(RunRequest("helper", "hi"))).output == "ok"
    assert (own.closed, borrowed.closed) == (1, 0)
    async with AgentRuntime.from_provider(borrowed):
        pass
    assert borrowed.closed == 0


# --- conversations -----------------------------------------------------------------------------------------


async def test_a_conversation_with_a_registered_agent() -> None:
    plugin = Counting()
    hooks = HookExecutor()
    heard = Heard(hooks, [HookEvent.ON_TURN_END, HookEvent.PRE_REQUEST])
    provider = ScriptedProvider([asks(call("1", "add", a=1, b=2)), "three", "bye"])
    spec = AgentSpec("helper", system_prompt="be brief", plugin_ids=["c"], allowed_tools=["add"])
    builder = builder_of(provider, spec).with_tool("add", add).with_tool("echo", echo).with_plugin("c", plugin)
    session = builder.with_hook_executor(hooks).build().open_session("helper", "s-9")
    assert session.session_id == "s-9"
    assert (await session.submit_turn("add")).content == "three"
    assert provider.calls[0].messages[0] == Message.system("be brief")
    assert offered(provider.calls[0]) == ["add"]
    assert provider.calls[0].kwargs["model"] == "gpt"
    assert plugin.activated == 1
    assert heard.events() == ["pre_request", "pre_request", "on_turn_end"]
    assert [each.id for each in session.agent.tool_definitions(session.bundle)] == ["add"]
    session.agent = SimpleAgent("other", "be other")
    await session.submit_turn("bye")
    assert provider.calls[2].messages[0] == Message.system("be other")
    assert provider.calls[2].kwargs["model"] == "gpt"
    assert len(provider.calls[2].messages) == 6


async def test_hooks_of_a_conversation_alone_hear_its_requests() -> None:
    runtime = builder_of(ScriptedProvider(["one", "two"])).build()
    session = runtime.open_session()
    heard = Heard(session.bundle.hook_executor)
    await session.submit_turn("a")
    await runtime.process("b", Session("s"))
    assert heard.events() == ["on_turn_start", "pre_request", "post_request", "on_turn_end"]


async def test_a_conversation_may_have_tools_for_its_memory() -> None:
    note = asks(call("1", "session_memory_set", key="k", value="v"))
    provider = ScriptedProvider([note, "noted"])
    runtime = builder_of(provider, AgentSpec("helper", allowed_tools=["add"])).with_tool("add", add).build()
    session = runtime.open_session(memory_tools=True)
    await session.submit_turn("remember")
    assert await session.session_memory.get("k") == "v"
    assert runtime.registries.tools.ids() == ["add"]
    assert session.session_id != runtime.open_session().session_id


async def test_a_conversation_can_be_gone_on_with() -> None:
    provider = ScriptedProvider(["one", "two"])
    runtime = builder_of(provider).build()
    session = Session("s")
    await runtime.process("a", session)
    await runtime.open_session(session=session).submit_turn("b")
    assert texts(session.messages) == ["user: a", "assistant: one", "user: b", "assistant: two"]
    assert session.turn_index == 2


def test_a_conversation_needs_an_agent_that_can_be_resolved() -> None:
    runtime = builder_of(ScriptedProvider(), AgentSpec("a"), AgentSpec("b")).build()
    with pytest.raises(ConfigError, match="2 agents"):
        runtime.open_session()
    with pytest.raises(ResolveError):
        runtime.open_session("nobody")


async def test_a_prompt_of_the_config_is_for_agents_without_one() -> None:
    specs = AgentSpec("a", system_prompt="be a"), AgentSpec("b")
    provider = ScriptedProvider(["one"] * 6)
    for config in (AgentConfig(), AgentConfig(system_prompt="be any")):
        runtime = builder_of(provider, *specs).with_config(config).build()
        for id in "ab":
            await runtime.run(RunRequest(id, "hi"))
    sent = [[each.content for each in asked.messages if each.role is Role.SYSTEM] for asked in provider.calls]
    assert sent == [["be a"], [], ["be a"], ["be any"]]


async def test_two_runs_at_once_do_not_meet() -> None:
    async def answer(messages: list[Message], tools: Any, kwargs: Any) -> LLMResponse:
        await anyio.sleep(0.01)
        return LLMResponse(messages[-1].content)

    runtime = builder_of(ScriptedProvider([answer] * 2)).build()
    outputs: dict[str, Any] = {}

    async def run(text: str) -> None:
        outputs[text] = (await runtime.run(RunRequest("helper", text))).output

    with anyio.fail_after(GUARD):
        async with anyio.create_task_group() as tasks:
            for text in "ab":
                tasks.start_soon(run, text)
    assert outputs == {"a": "a", "b": "b"}
