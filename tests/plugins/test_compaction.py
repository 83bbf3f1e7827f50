"""Old messages give way to a summary in what is sent."""

from __future__ import annotations

import logging
from typing import Any

import anyio
import pytest

from graphrt.config import CompactConfig, ContextPolicy
from graphrt.errors import ConfigError, LlmError, LlmErrorKind
from graphrt.llm import InferenceRequest, ProviderExecutor, ScriptedProvider
from graphrt.messages import LLMResponse, Message, TokenUsage, ToolCall
from graphrt.plugins.checkpoint import Checkpoint
from graphrt.plugins.compaction import CompactionPlugin
from graphrt.plugins.state import StateCommand
from graphrt.plugins.tokens import tool_tokens
from graphrt.policies import Budget
from graphrt.tools import ToolDescriptor
from tests.plugins.conversations import FakeRun, assert_sound, context, talk

pytestmark = pytest.mark.anyio

SYSTEM = Message.system("Be brief.")
SMALL = CompactConfig(threshold_tokens=100, keep_recent=2)
FEW = ContextPolicy(min_recent_messages=0)
USAGE = TokenUsage(30, 5, 35)


def plugin_of(
    *script: Any, config: CompactConfig = SMALL, policy: ContextPolicy = FEW, **options: Any
) -> tuple[CompactionPlugin, ScriptedProvider]:
    provider = ScriptedProvider(script)
    return CompactionPlugin(config, policy, executor=ProviderExecutor(provider), **options), provider


def updates(command: StateCommand | None) -> dict[str, Any]:
    return {} if command is None else dict(command.updates)


async def compacted(
    plugin: CompactionPlugin, messages: list[Message], run: FakeRun | None = None, **state: Any
) -> tuple[dict[str, Any], list[Message]]:
    """Go through the phase and the transform, as before an inference: the new state, and what is sent."""
    request = InferenceRequest("m", messages)
    before = {f"compaction.{name}": value for name, value in state.items()}
    changed = updates(await plugin.before_inference(context(messages, state=before, run=run, request=request)))
    after = {**before, **changed}
    return after, list(plugin.transform(request, context(messages, state=after, run=run)).messages)


async def test_old_messages_are_sent_as_a_summary() -> None:
    plugin, provider = plugin_of("They spoke of words.", model="small")
    messages = [SYSTEM, *talk(4)]
    run = FakeRun()

    state, sent = await compacted(plugin, messages, run)

    assert sent == [SYSTEM, Message.user("<summary>\nThey spoke of words.\n</summary>"), *messages[-2:]]
    assert state["compaction.checkpoint"]["covered"] == 7
    (call,) = provider.calls
    assert call.tools is None
    assert call.kwargs == {"model": "small"}
    assert call.messages[0] == Message.system(SMALL.summary_prompt)
    assert "user: question 0" in call.messages[1].content
    assert "assistant: answer 2" in call.messages[1].content
    assert "answer 3" not in call.messages[1].content


async def test_a_small_conversation_is_left_alone() -> None:
    plugin, provider = plugin_of()
    messages = [SYSTEM, *talk(1)]
    assert await compacted(plugin, messages) == ({}, messages)
    assert provider.calls == []


async def test_without_a_threshold_it_is_what_the_policy_leaves_for_the_conversation() -> None:
    policy = ContextPolicy(
        max_context_tokens=150, max_output_tokens=50, min_recent_messages=0, estimator=lambda message: 10
    )
    plugin, provider = plugin_of("short", config=CompactConfig(), policy=policy)

    assert await compacted(plugin, [SYSTEM, *talk(4)]) == ({}, [SYSTEM, *talk(4)])  # ten messages of 10
    state, _ = await compacted(plugin, [SYSTEM, SYSTEM, *talk(4)])

    assert state["compaction.checkpoint"]["covered"] == 7
    assert len(provider.calls) == 1


async def test_the_definitions_of_tools_leave_less_for_the_conversation() -> None:
    search = ToolDescriptor("search", "Look something up.")
    policy = ContextPolicy(
        max_context_tokens=149 + tool_tokens([search]),
        max_output_tokens=50,
        min_recent_messages=0,
        estimator=lambda message: 10,
    )
    plugin, _ = plugin_of("short", config=CompactConfig(), policy=policy)
    messages = [SYSTEM, *talk(4)]  # ten messages of 10

    command = await plugin.before_inference(context(messages, request=InferenceRequest("m", messages)))
    assert command is None
    command = await plugin.before_inference(context(messages, request=InferenceRequest("m", messages, [search])))
    assert command is not None


async def test_a_summary_as_long_as_what_it_replaces_is_of_no_use_whatever_the_ratio() -> None:
    config = CompactConfig(threshold_tokens=50, keep_recent=1, min_savings_ratio=0)
    policy = ContextPolicy(
        min_recent_messages=0, estimator=lambda message: 100 if "<summary>" in message.content else 10
    )
    plugin, provider = plugin_of("long", config=config, policy=policy)

    _, sent = await compacted(plugin, talk(5))

    assert sent == talk(5)
    assert len(provider.calls) == 1


async def test_the_next_summary_carries_the_one_before_on() -> None:
    plugin, provider = plugin_of("First part.", "Both parts.")
    messages = [SYSTEM, *talk(4)]
    state, _ = await compacted(plugin, messages)
    messages = [SYSTEM, *talk(8)]

    state, sent = await compacted(plugin, messages, checkpoint=state["compaction.checkpoint"])

    assert sent == [SYSTEM, Message.user("<summary>\nBoth parts.\n</summary>"), *messages[-2:]]
    assert state["compaction.checkpoint"]["covered"] == 15
    asked = provider.calls[1].messages[1].content
    assert asked.startswith("<summary>\nFirst part.\n</summary>")
    assert "question 0" not in asked
    assert "answer 3" in asked


async def test_what_is_summed_up_already_counts_as_its_summary() -> None:
    plugin, provider = plugin_of()
    history = talk(4)
    checkpoint = Checkpoint.of(history, 7, "They spoke of words.").plain()

    state, sent = await compacted(plugin, [SYSTEM, *history], checkpoint=checkpoint)

    assert len(sent) == 4
    assert provider.calls == []
    assert state == {"compaction.checkpoint": checkpoint}


async def test_an_edited_history_is_sent_whole_and_summed_up_anew() -> None:
    plugin, provider = plugin_of("The new story.")
    history = talk(4)
    checkpoint = Checkpoint.of(history, 7, "The old story.").plain()
    edited = [Message.user("another beginning " + "word " * 12), *history[1:]]
    ctx = context(edited, state={"compaction.checkpoint": checkpoint})

    assert plugin.transform(InferenceRequest("m", edited), ctx).messages == edited
    state, sent = await compacted(plugin, edited, checkpoint=checkpoint)

    assert sent[0].content == "<summary>\nThe new story.\n</summary>"
    assert "old story" not in provider.calls[0].messages[1].content
    assert state["compaction.checkpoint"] == Checkpoint.of(edited, 7, "The new story.").plain()


async def test_a_round_of_tools_is_never_parted() -> None:
    plugin, provider = plugin_of("Tools were used.")
    calls = [ToolCall("c1", "search", {"q": "x"}), ToolCall("c2", "search", {"q": "y"})]
    pair = [Message.assistant("", calls), Message.tool("c1", "one", name="search"), Message.tool("c2", "two")]

    _, sent = await compacted(plugin, [SYSTEM, *talk(4), *pair])
    assert sent[2:] == pair
    assert_sound(sent)

    plugin, provider = plugin_of("Tools were used.")
    _, sent = await compacted(plugin, [SYSTEM, *talk(4), *pair, *talk(1)[:2]])
    assert_sound(sent)
    assert 'assistant calls search (c1): {"q": "x"}' in provider.calls[0].messages[1].content
    assert "result of search (c1): one" in provider.calls[0].messages[1].content


async def test_nothing_is_summed_up_while_a_call_waits_for_its_answer() -> None:
    plugin, provider = plugin_of()
    messages = [SYSTEM, *talk(4), Message.assistant("", [ToolCall("c1", "search")])]
    assert await compacted(plugin, messages) == ({}, messages)
    assert provider.calls == []


async def test_what_the_policy_calls_recent_stays_where_that_is_enough() -> None:
    policy = ContextPolicy(min_recent_messages=5)
    plugin, _ = plugin_of("ok", config=CompactConfig(threshold_tokens=200, keep_recent=2), policy=policy)
    _, sent = await compacted(plugin, talk(6))
    assert sent[1:] == talk(6)[-5:]

    plugin, _ = plugin_of("ok", config=CompactConfig(threshold_tokens=60, keep_recent=2), policy=policy)
    _, sent = await compacted(plugin, talk(6))
    assert sent[1:] == talk(6)[-2:]


async def test_the_last_message_is_never_summed_up() -> None:
    plugin, _ = plugin_of("ok", config=CompactConfig(threshold_tokens=50, keep_recent=0))
    _, sent = await compacted(plugin, talk(4))
    assert sent == [Message.user("<summary>\nok\n</summary>"), Message.user("what now?")]


async def test_no_summary_is_asked_for_where_it_could_not_save_enough() -> None:
    plugin, provider = plugin_of(config=CompactConfig(threshold_tokens=100, keep_recent=2, min_savings_ratio=0.5))
    messages = [*talk(1, question=False), Message.user("x" * 400), Message.assistant("y" * 400)]
    assert await compacted(plugin, messages) == ({}, messages)
    assert provider.calls == []


async def test_one_message_is_not_replaced_by_another() -> None:
    plugin, provider = plugin_of(config=CompactConfig(threshold_tokens=100, keep_recent=2))
    messages = [Message.user("x" * 1000), Message.assistant("yes"), Message.user("and?")]
    assert await compacted(plugin, messages) == ({}, messages)
    assert provider.calls == []


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (LlmError("overloaded", LlmErrorKind.OVERLOADED), "overloaded"),
        (ValueError("a mistake"), "ValueError: a mistake"),
        ("", "empty"),
        (" <summary>\n</summary> ", "empty"),
        (LLMResponse("half of a", finish_reason="length"), "not whole"),
        (LLMResponse("I cannot do that", finish_reason="refusal"), "not whole"),
        ("far too long " * 200, "too little"),
    ],
)
async def test_a_failed_summary_leaves_everything_as_it_is(
    reply: Any, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    """B-117."""
    plugin, provider = plugin_of(reply, "Later it works.")
    messages = [SYSTEM, *talk(4)]
    history = list(messages)
    run = FakeRun()

    with caplog.at_level(logging.WARNING):
        state, sent = await compacted(plugin, messages, run)

    assert sent == messages == history
    assert "compaction.checkpoint" not in state
    ((type_, data),) = run.events
    assert type_ == "custom.compaction.failed"
    assert reason in data["error"]
    assert "without a summary" in caplog.text
    assert len(provider.calls) == 1


async def test_a_failed_second_summary_leaves_the_first() -> None:
    """B-117."""
    plugin, _ = plugin_of(LlmError("down"))
    messages = [SYSTEM, *talk(8)]
    checkpoint = Checkpoint.of(talk(8), 7, "First part.").plain()

    state, sent = await compacted(plugin, messages, checkpoint=checkpoint)

    assert state["compaction.checkpoint"] == checkpoint
    assert sent == [SYSTEM, Message.user("<summary>\nFirst part.\n</summary>"), *messages[8:]]


async def test_after_a_failure_the_next_try_waits_until_the_conversation_has_grown() -> None:
    plugin, provider = plugin_of(LlmError("down"), LlmError("still down"), "At last.")
    tries = []
    state: dict[str, Any] = {"failure": None}
    for length in range(8, 20):
        after, _ = await compacted(plugin, talk(10)[:length], **state)
        state = {name.removeprefix("compaction."): value for name, value in after.items()}
        tries.append(len(provider.calls))
        if "checkpoint" in state:
            break

    assert tries == [1, 1, 2, 2, 2, 2, 3]  # two messages more, then four
    assert state["failure"] is None


async def test_a_history_that_was_cut_back_is_tried_again() -> None:
    plugin, _ = plugin_of("It works.")
    state, _ = await compacted(plugin, talk(4), failure={"messages": 20, "failures": 3})
    assert state["compaction.checkpoint"]["covered"] == 7


@pytest.mark.parametrize("value", [3, {}, {"covered": "7"}, {"covered": 7, "digest": "x", "summary": " "}, [1]])
async def test_a_stored_value_of_another_form_counts_as_none(value: Any) -> None:
    plugin, _ = plugin_of("It works.")
    state, sent = await compacted(plugin, talk(4), checkpoint=value, failure=value)
    assert state["compaction.checkpoint"]["covered"] == 7
    assert len(sent) == 3


async def test_success_is_told_with_the_tokens_before_and_after() -> None:
    plugin, _ = plugin_of(LLMResponse("Short.", usage=USAGE))
    run = FakeRun()

    await compacted(plugin, talk(4), run)

    ((type_, data),) = run.events
    assert type_ == "custom.compaction.done"
    assert data["messages"] == data["covered"] == 7
    assert data["tokens_after"] < 0.7 * data["tokens_before"]
    assert data["usage"] == {"input_tokens": 30, "output_tokens": 5, "total_tokens": 35}
    assert run.usage == USAGE


async def test_two_inferences_at_once_do_not_both_sum_up() -> None:
    entered, go_on = anyio.Event(), anyio.Event()

    async def slow(messages: list[Message], tools: Any, params: dict[str, Any]) -> str:
        entered.set()
        await go_on.wait()
        return "They spoke of words."

    plugin, provider = plugin_of(slow)
    messages = talk(4)
    commands: list[StateCommand | None] = []

    async def first() -> None:
        commands.append(await plugin.before_inference(context(messages)))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(first)
        await entered.wait()
        assert await plugin.before_inference(context(messages)) is None
        go_on.set()

    late = await plugin.before_inference(context(messages))  # made, and perhaps not committed yet
    assert updates(late) == updates(commands[0])
    assert updates(late)["compaction.checkpoint"]["covered"] == 7
    assert len(provider.calls) == 1


async def test_runs_that_share_the_plugin_each_have_a_summary() -> None:
    plugin, provider = plugin_of("One.", "Two.")
    other = FakeRun()
    other.run_id = "r2"
    await compacted(plugin, talk(4))
    await compacted(plugin, talk(4), other)
    assert len(provider.calls) == 2


async def test_a_cancelled_summary_does_not_stand_in_the_way_of_the_next() -> None:
    async def never(messages: list[Message], tools: Any, params: dict[str, Any]) -> str:
        await anyio.sleep_forever()
        return ""

    plugin, _ = plugin_of(never, "It works.")
    run = FakeRun()
    with anyio.move_on_after(0.01):
        await plugin.before_inference(context(talk(4), run=run))

    assert run.events == []
    assert updates(await plugin.before_inference(context(talk(4), run=run)))["compaction.checkpoint"]


async def test_the_end_of_a_run_leaves_nothing_behind() -> None:
    plugin, provider = plugin_of("One.", "Two.")
    await compacted(plugin, talk(4))
    plugin.run_end(context())
    await compacted(plugin, talk(4))
    assert len(provider.calls) == 2


async def test_a_summary_counts_for_the_runs_budget() -> None:
    plugin, provider = plugin_of(LLMResponse("Short.", usage=USAGE))
    run = FakeRun(Budget(requests=5, tokens=1000))
    assert run.budget is not None

    await compacted(plugin, talk(4), run)

    assert (run.budget.requests, run.budget.tokens) == (1, 35)
    assert 0 < provider.calls[0].kwargs["max_tokens"] < 300  # the whole conversation has fewer


async def test_the_reservation_of_a_failed_summary_is_given_back() -> None:
    plugin, _ = plugin_of(LlmError("down"))
    run = FakeRun(Budget(tokens=1000))
    assert run.budget is not None
    await compacted(plugin, talk(4), run)
    assert run.budget.tokens == 0


async def test_without_a_limit_on_tokens_the_request_names_none() -> None:
    plugin, provider = plugin_of("Short.")
    await compacted(plugin, talk(4), FakeRun(Budget(requests=5)))
    assert provider.calls[0].kwargs == {}


@pytest.mark.parametrize("budget", [Budget(requests=1), Budget(tokens=50)])
async def test_what_is_left_of_a_budget_is_the_answers(budget: Budget) -> None:
    plugin, provider = plugin_of()
    run = FakeRun(budget)
    assert await compacted(plugin, talk(4), run) == ({}, talk(4))
    assert provider.calls == []
    assert run.events == []


async def test_cost_counts_where_the_budget_limits_it() -> None:
    plugin, _ = plugin_of(LLMResponse("Short.", usage=USAGE), cost_of=lambda usage: 0.25)
    run = FakeRun(Budget(cost=1.0))
    assert run.budget is not None
    await compacted(plugin, talk(4), run)
    assert run.budget.cost == 0.25


async def test_a_cost_that_nobody_can_tell_is_not_run_up() -> None:
    plugin, provider = plugin_of()
    run = FakeRun(Budget(cost=1.0))
    _, sent = await compacted(plugin, talk(4), run)
    assert sent == talk(4)
    assert provider.calls == []
    assert ConfigError.__name__ in run.events[0][1]["error"]


async def test_a_refused_reply_still_counts_its_usage() -> None:
    error = LlmError("refused", LlmErrorKind.CONTENT_FILTERED)
    error.reply = LLMResponse("no", usage=USAGE)
    plugin, _ = plugin_of(error)
    run = FakeRun(Budget(tokens=1000))
    assert run.budget is not None
    await compacted(plugin, talk(4), run)
    assert run.usage == USAGE
    assert run.budget.tokens == 35


async def test_long_messages_are_shortened_for_a_model_that_could_not_take_them() -> None:
    policy = ContextPolicy(max_context_tokens=1500, max_output_tokens=500, min_recent_messages=0)
    plugin, provider = plugin_of("Short.", config=CompactConfig(keep_recent=1), policy=policy)
    messages = [Message.user("start " + "x" * 9000 + " end"), *talk(3)]

    await compacted(plugin, messages)

    asked = provider.calls[0].messages[1].content
    assert len(asked) < 4000
    assert "characters left out" in asked
    assert "user: start" in asked
    assert "end\n" in asked
    assert "question 1: word" in asked


async def test_a_summary_that_the_model_put_in_tags_is_tagged_once() -> None:
    plugin, _ = plugin_of("<summary>Short.</summary>")
    _, sent = await compacted(plugin, talk(4))
    assert sent[0].content == "<summary>\nShort.\n</summary>"
