"""Sessions, plans, delegates and approvals on a real model: shape and order are asserted, never wording."""

from __future__ import annotations

import anyio
import pytest
from pydantic import BaseModel, Field

from graphrt import (
    AgentBuilder,
    AgentConfig,
    AgentRuntimeBuilder,
    AgentSession,
    AgentSpec,
    HookEvent,
    HookExecutor,
    JsonPlanParser,
    LLMProvider,
    ModelSpec,
    OpenAIProvider,
    SessionTaskAgent,
    SimpleAgent,
    ToolRegistry,
)
from graphrt.agent import RunRequest, StepState
from graphrt.graph import TerminationKind
from graphrt.hooks import HookContext
from graphrt.llm import InferenceRequest
from graphrt.messages import Role
from graphrt.plugins import Plugin, PluginDescriptor, PluginRegistrar
from graphrt.testing import EventRecorder, SpanRecorder
from graphrt.tools import function_tool

pytestmark = [pytest.mark.model, pytest.mark.anyio]

SHORT = AgentConfig(model="local", temperature=0, max_tokens=80, max_rounds=3, on_limit="answer", timeout_seconds=600)


class WrittenStep(BaseModel):
    description: str


class WrittenPlan(BaseModel):
    """The form of the planner's answer."""

    steps: list[WrittenStep] = Field(min_length=1, max_length=3)


class CallFirst(Plugin):
    """Has the model call one tool in its first round: a small model is free to answer without it otherwise."""

    def __init__(self, tool: str) -> None:
        self._tool = tool

    @property
    def descriptor(self) -> PluginDescriptor:
        return PluginDescriptor("call_first")

    def register(self, registrar: PluginRegistrar) -> None:
        def choose(request: InferenceRequest) -> InferenceRequest:
            if request.messages[-1].role is not Role.USER:
                return request
            choice = {"type": "function", "function": {"name": self._tool}}
            return request.replace(params={**request.params, "tool_choice": choice})

        registrar.request_transform(choose)


def session_with(provider: LLMProvider, hooks: HookExecutor, tools: ToolRegistry, **options: object) -> AgentSession:
    config = SHORT.model_copy(update={"model": getattr(provider, "model", "local"), **options})
    bundle = AgentBuilder().provider(provider).tool_registry(tools).hook_executor(hooks).config(config).build()
    return AgentSession("s-1", SimpleAgent("helper", "Answer in one short sentence."), bundle)


async def test_session_of_several_turns_keeps_its_history_and_counts_what_it_costs(provider: OpenAIProvider) -> None:
    told: list[tuple[str, int | None]] = []

    def note(ctx: HookContext) -> None:
        told.append((str(ctx.event), ctx.turn_index))

    hooks = HookExecutor()
    hooks.register(HookEvent.ON_TURN_START, note)
    hooks.register(HookEvent.ON_TURN_END, note)
    session = session_with(provider, hooks, ToolRegistry())
    replies = [await session.submit_turn(text) for text in ("My name is Ada.", "What is my name?", "Say goodbye.")]

    assert all(reply.content for reply in replies)
    assert told == [(event, turn) for turn in range(3) for event in ("on_turn_start", "on_turn_end")]
    assert [each.role for each in session.messages] == [Role.USER, Role.ASSISTANT] * 3
    assert session.turn_index == session.cost_so_far.calls == 3
    total = session.cost_so_far.total
    assert total.output_tokens == sum(reply.usage.output_tokens or 0 for reply in replies if reply.usage)


async def test_turn_is_streamed_and_can_be_left(provider: OpenAIProvider) -> None:
    session = session_with(provider, HookExecutor(), ToolRegistry())
    async with session.stream_turn("Count from one to a hundred in words.") as turn:
        async for event in turn:
            if event.type == "message.delta" and event.data["index"] == 2:
                break
    assert session.messages == []
    assert (await session.submit_turn("Say yes.")).content
    assert session.turn_index == 1


async def test_plan_that_the_model_wrote_is_carried_out_step_by_step(provider: OpenAIProvider) -> None:
    session = session_with(provider, HookExecutor(), ToolRegistry(), max_tokens=200)
    planner = SessionTaskAgent(session, JsonPlanParser(), planning_params={"response_format": WrittenPlan})
    plan = await planner.run("Explain in two short steps how to boil an egg.")

    assert plan.steps
    assert {step.status.state for step in plan.steps} == {StepState.COMPLETED}
    assert session.turn_index == len(plan.steps)
    assert len(session.messages) >= 2 * len(plan.steps)


async def test_delegate_runs_as_a_run_of_its_own_inside_the_callers(provider: OpenAIProvider) -> None:
    spans, events = SpanRecorder(), EventRecorder()
    runtime = (
        AgentRuntimeBuilder()
        .with_provider("local", provider)
        .with_model(ModelSpec("default", "local", provider.model))
        .with_agent_spec(AgentSpec("host", delegates=["poet"], plugin_ids=["call_first"], max_rounds=3))
        .with_agent_spec(AgentSpec("poet", system_prompt="Write one line of verse."))
        .with_plugin("call_first", CallFirst("agent_run_poet"))
        .with_config(SHORT)
        .with_tracer_provider(spans.tracer_provider)
        .build()
    )
    result = await runtime.run(RunRequest("host", "Ask the poet for a line about rain."), on_event=events)

    assert result.termination.kind in (TerminationKind.NATURAL_END, TerminationKind.STOPPED)
    started = events.of("custom.delegate.started")
    assert started
    assert started[0].data["parent_run_id"] == result.run_id != started[0].data["run_id"]
    assert len(spans.roots()) == 1
    assert len(spans.of_kind("run")) == 1 + len(started)


async def test_tool_waits_for_a_person_and_is_called_with_what_the_person_says(provider: OpenAIProvider) -> None:
    sent: list[str] = []

    @function_tool(requires_approval=True)
    async def send(text: str) -> str:
        """Send a text to the customer."""
        sent.append(text)
        return "sent"

    tools = ToolRegistry()
    tools.register(send)
    runtime = (
        AgentRuntimeBuilder()
        .with_provider("local", provider)
        .with_model(ModelSpec("default", "local", provider.model))
        .with_tool("send", send)
        .with_agent_spec(AgentSpec("clerk", plugin_ids=["call_first"], max_rounds=2))
        .with_plugin("call_first", CallFirst("send"))
        .with_config(SHORT)
        .build()
    )
    asked = []

    async def approve(question: object) -> dict[str, object]:
        asked.append(question)
        await anyio.lowlevel.checkpoint()
        return {"approved": True, "arguments": {"text": "edited by a person"}}

    result = await runtime.run(RunRequest("clerk", "Send the customer a greeting."), on_ask=approve)

    assert len(asked) == len(sent) >= 1
    assert set(sent) == {"edited by a person"}
    assert result.error is None
