"""Faults of runtimes: time limits, hooks and plugins that fail, questions, closing."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import anyio
import pytest

from graphrt import AgentConfig, ConfigError, HookEvent, HookExecutor, LimitExceededError, LlmError
from graphrt.agent import AgentCycle, AgentRuntime, AgentRuntimeBuilder, RunRequest, Session, SimpleAgent
from graphrt.config import CompactConfig, ContextPolicy
from graphrt.errors import BuildError, LlmErrorKind
from graphrt.graph import RunStatus, TerminationKind
from graphrt.hooks import HookContext
from graphrt.ledger import InMemoryRunLedgerStore
from graphrt.llm import LLMProvider, ScriptedProvider
from graphrt.memory import MemoryRetriever
from graphrt.messages import LLMResponse, Message, Role
from graphrt.plugins import HookBridgePlugin, Phase, PhaseContext, Plugin, PluginDescriptor, PluginRegistrar
from graphrt.registry import AgentSpec, ModelSpec, RemoteEndpoint
from graphrt.tools import PermissionChecker, RetrieveTool, function_tool
from tests.agent.helpers import Heard, add, asks, bundle_of, call, texts
from tests.engine.helpers import FAKE_TIME

pytestmark = pytest.mark.anyio

AGES = 1000.0
"""Seconds that nobody is to wait for."""


@pytest.fixture(scope="module", params=FAKE_TIME)
def anyio_backend(request: pytest.FixtureRequest) -> Any:
    """Run every async test on both event loops, in fake time."""
    return request.param


def builder_of(provider: Any, *specs: AgentSpec) -> AgentRuntimeBuilder:
    return (
        AgentRuntimeBuilder()
        .with_model(ModelSpec("default", "main", "gpt"))
        .with_provider("main", provider)
        .with_agent_specs(specs or [AgentSpec("helper")])
    )


async def hang(*given: Any) -> None:
    await anyio.sleep(AGES)


# --- hooks on the end of a turn ----------------------------------------------------------------------------


def limited(ctx: HookContext) -> None:
    raise LimitExceededError("no more of this", limit="quota")


SLOW = "assistant: too slow"
ENOUGH = "assistant: enough"


@pytest.mark.parametrize(
    ("on_start", "on_end", "replied", "said"),
    [
        (None, hang, "too slow", [SLOW]),
        (None, limited, "enough", ["assistant: the answer", ENOUGH]),
        (hang, hang, "too slow", [SLOW]),
        (limited, hang, "too slow", [SLOW]),
        (limited, limited, "enough", [ENOUGH]),
    ],
)
async def test_the_session_holds_what_process_has_replied_when_a_hook_on_the_turns_end_is_at_a_limit(
    on_start: Any, on_end: Any, replied: str, said: list[str]
) -> None:
    """D-45, M-017, M-018."""
    hooks = HookExecutor()
    hooks.register(HookEvent.ON_TURN_END, on_end, critical=on_end is limited)
    if on_start is not None:
        hooks.register(HookEvent.ON_TURN_START, on_start, critical=True)
    heard = Heard(hooks, [HookEvent.ON_ERROR])
    config = AgentConfig(timeout_seconds=5, timeout_reply="too slow", limit_reply="enough")
    runtime = AgentRuntime.from_provider(ScriptedProvider(["the answer"]), config=config, hook_executor=hooks)
    session = Session("s", [Message.user("old")])
    assert await runtime.process("hi", session) == replied
    assert texts(session.messages) == ["user: old", "user: hi", *said]
    assert (session.turn_index, heard) == (1, [])


async def test_a_turn_of_a_session_still_fails_when_a_hook_on_its_end_is_out_of_time() -> None:
    """D-32."""
    hooks = HookExecutor()
    hooks.register(HookEvent.ON_TURN_END, hang)
    runtime = AgentRuntime.from_provider(
        ScriptedProvider(["the answer"]), config=AgentConfig(timeout_seconds=5), hook_executor=hooks
    )
    session = runtime.open_session()
    with pytest.raises(LimitExceededError):
        await session.submit_turn("hi")
    assert (session.messages, session.turn_index) == ([], 0)


# --- compaction by the runtime's config --------------------------------------------------------------------

COMPACT = CompactConfig(threshold_tokens=20, keep_recent=1, min_savings_ratio=0.0)
LONG = [Message.user("ants " * 40), Message.assistant("ants! " * 40)]


async def compacts(runtime: AgentRuntime, provider: ScriptedProvider, how: str) -> bool:
    if how == "run":
        await runtime.run(RunRequest("helper", "and?", LONG))
    elif how == "process":
        await runtime.process("and?", Session("s", list(LONG)))
    else:
        await runtime.open_session(session=Session("s", list(LONG))).submit_turn("and?")
    return "ants ants" not in " ".join(texts(provider.calls[-1].messages))


@pytest.mark.parametrize("how", ["run", "process", "session"])
@pytest.mark.parametrize("wanted", [True, False])
async def test_the_config_of_a_built_runtime_has_old_messages_summarised(how: str, wanted: bool) -> None:
    """D-23, A-076, A-099."""
    provider = ScriptedProvider(["they spoke of ants", "go on"])
    config = AgentConfig(compact_config=COMPACT) if wanted else AgentConfig()
    runtime = builder_of(provider).with_config(config).build()
    assert await compacts(runtime, provider, how) == wanted
    assert len(provider.calls) == 1 + wanted


def test_what_an_agent_says_of_compaction_itself_is_kept() -> None:
    """D-23."""
    own = ContextPolicy(max_context_tokens=99_000)
    section = {"threshold_tokens": 7}
    remote = RemoteEndpoint(base_url="http://far")
    specs = [
        AgentSpec("none"),
        AgentSpec("policy", context_policy=own),
        AgentSpec("both", context_policy=own, sections={"compaction": section}),
        AgentSpec("far", endpoint=remote),
    ]
    config = AgentConfig(compact_config=COMPACT)
    agents = builder_of(ScriptedProvider(), *specs).with_config(config).build().registries.agents
    found = {id: agents.get(id) for id in agents.ids()}
    policies = {id: spec and spec.context_policy for id, spec in found.items()}
    sections = {id: spec and spec.sections.get("compaction") for id, spec in found.items()}
    assert policies == {"none": ContextPolicy(), "policy": own, "both": own, "far": None}
    assert sections == {"none": COMPACT.model_dump(), "policy": COMPACT.model_dump(), "both": section, "far": None}


# --- the time before a run ---------------------------------------------------------------------------------


class Slow:
    """Makes a prompt, after some seconds."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    async def build(self, config: AgentConfig, session: Any) -> str:
        await anyio.sleep(self.seconds)
        return "be brief"


async def slow_model(messages: Any, tools: Any, kwargs: Any) -> str:
    await anyio.sleep(6)
    return "done"


@pytest.mark.parametrize(("seconds", "script"), [(AGES, ["never"]), (6, [slow_model])])
@pytest.mark.parametrize("ledger", [False, True])
async def test_the_time_that_making_the_prompt_takes_is_the_runs(seconds: float, script: Any, ledger: bool) -> None:
    """D-39, M-028."""
    provider = ScriptedProvider(script)
    config = AgentConfig(timeout_seconds=10, system_prompt=Slow(seconds))
    hooks = HookExecutor()
    heard = Heard(hooks, [HookEvent.ON_ERROR])
    runtime = AgentRuntime.from_provider(
        provider, config=config, hook_executor=hooks, ledger=InMemoryRunLedgerStore() if ledger else None
    )
    began = anyio.current_time()
    result = await runtime.run(RunRequest("default", "hi", run_id="r-1"))
    assert anyio.current_time() - began == pytest.approx(10, abs=0.5)
    assert (result.status, result.termination.kind) == (RunStatus.TIMED_OUT, TerminationKind.TIMEOUT)
    assert len(provider.calls) == (seconds == 6)
    assert len(heard) == 1


async def test_a_prompt_that_is_made_in_time_leaves_the_rest_to_the_run() -> None:
    """D-39."""
    config = AgentConfig(timeout_seconds=10, system_prompt=Slow(3))
    result = await AgentRuntime.from_provider(ScriptedProvider([slow_model]), config=config).run(
        RunRequest("default", "hi")
    )
    assert result.output == "done"


async def test_the_deadline_of_a_request_ends_the_making_of_the_prompt() -> None:
    """D-39."""
    provider = ScriptedProvider(["never"])
    runtime = AgentRuntime.from_provider(provider, config=AgentConfig(system_prompt=Slow(AGES)))
    began = anyio.current_time()
    deadline = datetime.now(UTC) + timedelta(seconds=5)
    result = await runtime.run(RunRequest("default", "hi", deadline=deadline))
    assert anyio.current_time() - began == pytest.approx(5, abs=0.5)
    assert (result.termination.kind, provider.calls) == (TerminationKind.TIMEOUT, [])
    assert "SystemPromptBuilder" in "".join(getattr(result.error, "__notes__", []))


@pytest.mark.parametrize(("seconds", "script"), [(AGES, ["never"]), (6, [slow_model])])
async def test_the_time_that_making_the_prompt_takes_is_a_cycles(seconds: float, script: Any) -> None:
    """D-39."""
    config = AgentConfig(timeout_seconds=10, system_prompt=Slow(seconds))
    cycle = AgentCycle(SimpleAgent("a"), bundle_of(ScriptedProvider(script), config=config))
    began = anyio.current_time()
    with pytest.raises(LimitExceededError) as caught:
        await cycle.submit_with_tools([Message.user("hi")])
    assert caught.value.limit == "timeout"
    assert anyio.current_time() - began == pytest.approx(10, abs=0.5)


async def test_a_run_that_is_resumed_counts_the_time_of_its_prompt_too() -> None:
    """D-39."""

    @function_tool(requires_approval=True)
    async def order(item: str) -> str:
        return item

    builder = Slow(0)
    provider = ScriptedProvider([asks(call("1", "order", item="x")), "done"])
    config = AgentConfig(timeout_seconds=10, system_prompt=builder)
    runtime = AgentRuntime.from_provider(provider, config=config, tools=[order], ledger=InMemoryRunLedgerStore())
    assert (await runtime.run(RunRequest("default", "hi", run_id="r-1"))).status is RunStatus.WAITING
    builder.seconds = AGES
    began = anyio.current_time()
    late = await runtime.resume("r-1", answers=True)
    assert anyio.current_time() - began == pytest.approx(10, abs=0.5)
    assert (late.status, len(provider.calls)) == (RunStatus.TIMED_OUT, 1)
    builder.seconds = 0
    assert (await runtime.resume("r-1")).output == "done"


# --- closing -----------------------------------------------------------------------------------------------


class Closing(ScriptedProvider):
    """A provider that takes a while to close, or cannot be closed."""

    def __init__(self, name: str, closed: list[str], *, seconds: float = 1, error: Exception | None = None) -> None:
        super().__init__()
        self.name, self.closed, self.seconds, self.error = name, closed, seconds, error

    async def aclose(self) -> None:
        await anyio.sleep(self.seconds)
        if self.error is not None:
            raise self.error
        self.closed.append(self.name)


def owner_of(*providers: Closing) -> AgentRuntime:
    builder = AgentRuntimeBuilder()
    for each in providers:
        builder.with_provider(each.name, each, close=True)
    return builder.build()


async def test_every_provider_is_closed_though_one_fails() -> None:
    """C-08."""
    closed: list[str] = []
    error = OSError("broken")
    with pytest.raises(OSError, match="broken"):
        async with owner_of(Closing("bad", closed, error=error), Closing("good", closed)):
            pass
    assert closed == ["good"]
    closed.clear()
    several = owner_of(*(Closing(name, closed, error=OSError(name)) for name in "ab"), Closing("good", closed))
    with pytest.raises(ExceptionGroup) as caught:
        await several.aclose()
    assert [str(each) for each in caught.value.exceptions] == ["a", "b"]
    assert closed == ["good"]


async def test_every_provider_is_closed_though_the_block_is_cancelled() -> None:
    """C-04, C-08."""
    closed: list[str] = []
    with anyio.move_on_after(1) as scope:
        async with owner_of(Closing("a", closed), Closing("bad", closed, error=OSError("x")), Closing("b", closed)):
            await anyio.sleep_forever()
    assert scope.cancelled_caught
    assert closed == ["a", "b"]


async def test_a_provider_that_does_not_close_holds_up_nobody_for_long(caplog: pytest.LogCaptureFixture) -> None:
    closed: list[str] = []
    began = anyio.current_time()
    with anyio.CancelScope() as scope:
        scope.cancel()
        await owner_of(Closing("stuck", closed, seconds=AGES), Closing("good", closed)).aclose()
    assert closed == ["good"]
    assert anyio.current_time() - began == pytest.approx(11, abs=0.5)
    assert "was not closed" in caplog.text


async def test_the_error_of_the_block_is_not_hidden_by_one_of_closing(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(ValueError, match="mine"):
        async with owner_of(Closing("bad", [], error=OSError("broken"))):
            raise ValueError("mine")
    assert "broken" in caplog.text


# --- names that are taken ----------------------------------------------------------------------------------


@pytest.mark.parametrize("wrong", [{"tools": []}, {"messages": []}, {"stream": True, "seed": 3}, {"on_event": print}])
async def test_what_is_no_request_parameter_is_refused_by_name(wrong: dict[str, Any]) -> None:
    provider = ScriptedProvider(["never"])
    session = Session("s")
    with pytest.raises(ConfigError, match=repr(next(iter(wrong)))) as caught:
        await AgentRuntime.from_provider(provider).process("hi", session, **wrong)
    assert "seed" not in str(caught.value)
    assert caught.value.hint
    assert (provider.calls, session.messages) == ([], [])


class Own(Plugin):
    """A plugin that notes the requests it is shown."""

    def __init__(self, id: str) -> None:
        self.id = id
        self.seen: list[str] = []

    @property
    def descriptor(self) -> PluginDescriptor:
        return PluginDescriptor(self.id)

    def register(self, registrar: PluginRegistrar) -> None:
        registrar.phase_hook(Phase.BEFORE_INFERENCE, lambda ctx: self.seen.append("request"))


async def test_a_plugin_with_the_id_of_the_one_that_calls_hooks_is_refused_beside_hooks() -> None:
    plugin = Own("hook_bridge")
    provider = ScriptedProvider(["one"])
    builder = builder_of(provider, AgentSpec("helper", plugin_ids=["hook_bridge"])).with_plugin("hook_bridge", plugin)
    runtime = builder.build()
    await runtime.run(RunRequest("helper", "hi"))
    assert plugin.seen == ["request"]
    with pytest.raises(ConfigError, match="'hook_bridge'"):
        runtime.open_session()
    with pytest.raises(BuildError, match="'hook_bridge'") as caught:
        builder.with_hook_executor(HookExecutor()).build()
    assert len(caught.value.problems) == 1


async def test_hooks_that_are_given_as_a_plugin_are_those_of_a_session() -> None:
    hooks = HookExecutor()
    heard = Heard(hooks, [HookEvent.PRE_REQUEST])
    builder = builder_of(ScriptedProvider(["one", "two"]), AgentSpec("helper", plugin_ids=["hook_bridge"]))
    builder.with_plugin("hook_bridge", HookBridgePlugin(hooks))
    session = builder.build().open_session()
    assert session.bundle.hook_executor is hooks
    await session.submit_turn("hi")
    await builder.with_hook_executor(hooks).build().open_session().submit_turn("hi")
    assert len(heard) == 2


# --- a plugin's own errors ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "where",
    [Phase.BEFORE_INFERENCE, Phase.AFTER_INFERENCE, "transform", HookEvent.PRE_REQUEST, HookEvent.POST_REQUEST],
)
async def test_a_models_error_in_a_plugin_does_not_have_the_model_asked_again(where: Any) -> None:
    """D-08, D-37."""
    called: list[str] = []

    def moderate(*given: Any) -> None:
        called.append("moderate")
        raise LlmError("the moderation model is down", LlmErrorKind.PROVIDER)

    class Moderation(Plugin):
        @property
        def descriptor(self) -> PluginDescriptor:
            return PluginDescriptor("moderation")

        def register(self, registrar: PluginRegistrar) -> None:
            if where == "transform":
                registrar.request_transform(moderate)
            elif isinstance(where, Phase):
                registrar.phase_hook(where, moderate)

    provider, stand_in = ScriptedProvider(["a1", "a2"]), ScriptedProvider(["b"])
    retry = {"max_retries": 1, "backoff_base": 0, "fallback_models": ["other"]}
    spec = AgentSpec("helper", plugin_ids=["moderation"], sections={"retry": retry})
    builder = builder_of(provider, spec).with_plugin("moderation", Moderation())
    builder.with_model(ModelSpec("other", "other", "x")).with_provider("other", stand_in)
    hooks = HookExecutor()
    heard = Heard(hooks, [HookEvent.ON_RETRY])
    if isinstance(where, HookEvent):
        hooks.register(where, moderate, critical=True)
    result = await builder.with_hook_executor(hooks).build().run(RunRequest("helper", "hi"))
    assert (result.status, result.termination.kind) == (RunStatus.FAILED, TerminationKind.ERROR)
    late = where in (Phase.AFTER_INFERENCE, HookEvent.POST_REQUEST)
    assert (len(provider.calls), stand_in.calls, called, heard) == (int(late), [], ["moderate"], [])


# --- a person, and those who wait behind -------------------------------------------------------------------


@pytest.mark.parametrize("exclusive", [False, True])
async def test_a_call_that_queues_behind_one_that_waits_for_a_person_takes_no_time(exclusive: bool) -> None:
    """B-103, D-39."""

    @function_tool(requires_approval=True)
    async def danger() -> str:
        return "D"

    @function_tool(exclusive=exclusive)
    async def alone() -> str:
        return "E"

    def play(messages: list[Message], tools: Any, kwargs: Any) -> Any:
        if messages[-1].role is Role.TOOL:
            return LLMResponse("|".join(each.content for each in messages if each.role is Role.TOOL))
        if messages[0].content == "boss":
            return asks(call("1", "agent_run_worker", prompt="p"), call("2", "alone"))
        return asks(call("9", "danger"))

    async def person(question: Any) -> bool:
        await anyio.sleep(60)
        return True

    boss = AgentSpec("boss", system_prompt="boss", delegates=["worker"], excluded_tools=["danger"])
    worker = AgentSpec("worker", system_prompt="worker", excluded_tools=["alone"])
    builder = builder_of(ScriptedProvider([play] * 4), boss, worker).with_config(AgentConfig(timeout_seconds=5))
    runtime = builder.with_tool("danger", danger).with_tool("alone", alone).build()
    result = await runtime.run(RunRequest("boss", "q"), on_ask=person)
    assert (result.status, result.output) == (RunStatus.SUCCEEDED, "D|E")


@pytest.mark.parametrize("exclusive", [False, True])
async def test_a_call_that_queues_behind_one_at_work_is_still_out_of_time(exclusive: bool) -> None:
    @function_tool(exclusive=True)
    async def slow() -> str:
        await anyio.sleep(60)
        return "S"

    @function_tool(exclusive=exclusive)
    async def quick() -> str:
        return "Q"

    provider = ScriptedProvider([asks(call("1", "slow"), call("2", "quick")), "done"])
    builder = builder_of(provider).with_config(AgentConfig(timeout_seconds=5))
    result = await builder.with_tool("slow", slow).with_tool("quick", quick).build().run(RunRequest("helper", "q"))
    assert result.status is RunStatus.TIMED_OUT


# --- mistakes that are easily made -------------------------------------------------------------------------


async def test_on_event_is_a_plain_function() -> None:
    async def tell(event: Any) -> None:
        raise AssertionError("it would never be awaited")

    with pytest.raises(ConfigError, match="on_event"):
        await AgentRuntime.from_provider(ScriptedProvider(["one"])).run(RunRequest("default", "hi"), on_event=tell)


class Text(LLMProvider):
    """A provider whose author forgot what `chat` returns."""

    async def chat(self, messages: Any, tools: Any = None, **kwargs: Any) -> Any:
        return "hello"


class Forgetful(PermissionChecker):
    """A checker whose author forgot to return something."""

    async def check(self, tool_id: str, arguments: Any, ctx: Any) -> Any:
        return None


async def test_what_a_part_gives_that_is_of_the_wrong_kind_is_named() -> None:
    result = await builder_of(Text()).build().run(RunRequest("helper", "hi"))
    assert "LLMResponse" in str(result.error)
    builder = builder_of(ScriptedProvider([asks(call("1", a=1, b=2)), "never"])).with_tool("add", add)
    result = await builder.with_permission_checker(Forgetful()).build().run(RunRequest("helper", "hi"))
    assert "PermissionDecision" in str(result.error)


async def test_a_retriever_that_gives_one_text_is_not_read_letter_by_letter() -> None:
    class One(MemoryRetriever):
        async def retrieve(self, query: str, limit: int = 5) -> Any:
            return "one string"

    provider = ScriptedProvider([asks(call("1", "retrieve", query="x")), "sorry"])
    builder = builder_of(provider).with_tool("retrieve", RetrieveTool(One()))
    assert (await builder.build().run(RunRequest("helper", "hi"))).output == "sorry"
    assert "no list of texts" in provider.calls[1].messages[-1].content


async def test_a_request_that_is_refused_has_a_span_of_its_model() -> None:
    """C-10."""
    from graphrt.testing import SpanRecorder

    def refuse(ctx: PhaseContext) -> None:
        raise ValueError("not this one")

    class Refusing(Plugin):
        @property
        def descriptor(self) -> PluginDescriptor:
            return PluginDescriptor("refusing")

        def register(self, registrar: PluginRegistrar) -> None:
            registrar.phase_hook(Phase.BEFORE_INFERENCE, refuse)

    spans = SpanRecorder()
    builder = builder_of(ScriptedProvider(), AgentSpec("helper", plugin_ids=["r"])).with_plugin("r", Refusing())
    await builder.with_tool("add", add).with_tracer_provider(spans.telemetry).build().run(RunRequest("helper", "hi"))
    (span,) = spans.of_kind("inference")
    assert span.name == "chat gpt"
