"""Compaction and the context transform together, as the phases of a run call them."""

from __future__ import annotations

import json
from typing import Any

import anyio
import pytest

from graphrt.config import CompactConfig, ContextPolicy
from graphrt.errors import LlmError
from graphrt.llm import InferenceRequest, ProviderExecutor, ScriptedProvider
from graphrt.messages import Message
from graphrt.plugins import (
    CompactionPlugin,
    ContextTransformPlugin,
    ExecutionEnv,
    LoopActionHandlersPlugin,
    Phase,
    PhaseRuntime,
    Plugin,
    PluginDescriptor,
    PluginRegistrar,
    StateCommand,
)
from graphrt.plugins.loop_actions import ADD_CONTEXT_MESSAGE
from tests.plugins.conversations import FakeRun, assert_sound, talk

pytestmark = pytest.mark.anyio

SYSTEM = Message.system("Be brief.")
POLICY = ContextPolicy(max_context_tokens=250, max_output_tokens=50, min_recent_messages=2, enable_prompt_cache=False)


def env_of(provider: ScriptedProvider, *more: Plugin, policy: ContextPolicy = POLICY) -> ExecutionEnv:
    compaction = CompactionPlugin(CompactConfig(), policy, executor=ProviderExecutor(provider), model="m")
    return ExecutionEnv.from_plugins([*more, compaction, ContextTransformPlugin(policy)])


def ask(messages: list[Message]) -> InferenceRequest:
    return InferenceRequest("m", messages)


class Reminder(Plugin):
    """Adds a message to every inference that the conversation does not keep."""

    @property
    def descriptor(self) -> PluginDescriptor:
        return PluginDescriptor("reminder")

    def register(self, registrar: PluginRegistrar) -> None:
        registrar.phase_hook(Phase.BEFORE_INFERENCE, self._remind)

    def _remind(self, ctx: Any) -> StateCommand:
        return StateCommand().schedule(ADD_CONTEXT_MESSAGE, Message.system(f"Round {ctx.round}."))


async def test_the_summary_of_one_turn_serves_the_next() -> None:
    provider = ScriptedProvider(["They spoke of words."])
    env = env_of(provider)
    history = [SYSTEM, *talk(6)]
    summary = Message.user("<summary>\nThey spoke of words.\n</summary>")

    first = PhaseRuntime(env)
    async with first.opened(FakeRun()):
        assert (await first.prepare(ask(history), round=1)).messages == [SYSTEM, summary, *history[-2:]]
        longer = [*history, Message.assistant("This.")]
        assert (await first.prepare(ask(longer), round=2)).messages == [SYSTEM, summary, *longer[-3:]]
    stored = json.loads(json.dumps(first.kept_state()))

    second = PhaseRuntime(env_of(provider), state=stored)
    async with second.opened(FakeRun()):
        longer = [*longer, Message.user("and then?")]
        assert (await second.prepare(ask(longer), round=1)).messages == [SYSTEM, summary, *longer[-4:]]
    assert len(provider.calls) == 1


async def test_without_a_summary_the_request_is_cut_to_fit() -> None:
    """B-117."""
    provider = ScriptedProvider([LlmError("down")])
    history = [SYSTEM, *talk(6)]
    run = FakeRun()
    runtime = PhaseRuntime(env_of(provider))

    async with runtime.opened(run):
        prepared = await runtime.prepare(ask(history), round=1)

    assert prepared.messages[0] == SYSTEM
    assert 3 < len(prepared.messages) < len(history)
    assert prepared.messages[1:] == history[len(history) - len(prepared.messages) + 1 :]
    assert [type_ for type_, _ in run.events] == ["custom.compaction.failed"]
    assert runtime.kept_state()["compaction.checkpoint"] is None
    assert len(history) == 14


async def test_inferences_at_once_on_one_runtime_ask_for_one_summary() -> None:
    async def slow(messages: list[Message], tools: Any, params: dict[str, Any]) -> str:
        await anyio.lowlevel.checkpoint()
        return "They spoke of words."

    provider = ScriptedProvider([slow])
    history = [SYSTEM, *talk(6)]
    runtime = PhaseRuntime(env_of(provider))

    async def prepare() -> None:
        assert_sound((await runtime.prepare(ask(history), round=1)).messages)

    async with runtime.opened(FakeRun()), anyio.create_task_group() as tasks:
        for _ in range(3):
            tasks.start_soon(prepare)

    assert len(provider.calls) == 1
    assert runtime.kept_state()["compaction.checkpoint"]["covered"] == 11


async def test_messages_for_one_inference_are_never_summed_up() -> None:
    provider = ScriptedProvider(["They spoke of words."])
    history = [SYSTEM, *talk(6)]
    runtime = PhaseRuntime(env_of(provider, LoopActionHandlersPlugin(), Reminder()))

    async with runtime.opened(FakeRun()):
        first = await runtime.prepare(ask(history), round=1)
        second = await runtime.prepare(ask([*history, Message.assistant("This.")]), round=2)

    assert [each.content for each in first.messages[:2]] == ["Be brief.", "Round 1."]
    assert [each.content for each in second.messages[:2]] == ["Be brief.", "Round 2."]
    assert second.messages[2].content.startswith("<summary>")
    assert "Round" not in provider.calls[0].messages[1].content


async def test_the_cache_key_stays_the_same_from_round_to_round() -> None:
    """W-018."""
    policy = POLICY.model_copy(update={"enable_prompt_cache": True})
    provider = ScriptedProvider(["They spoke of words."])
    runtime = PhaseRuntime(env_of(provider, policy=policy))
    async with runtime.opened(FakeRun()):
        keys = [
            (await runtime.prepare(ask([SYSTEM, *talk(turns)]), round=turns)).params["prompt_cache_key"]
            for turns in (1, 2, 6)
        ]
    assert len(provider.calls) == 1
    assert len(set(keys)) == 1
