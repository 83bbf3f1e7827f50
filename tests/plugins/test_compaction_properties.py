"""What holds for every conversation that is summed up and cut to fit, and for the parts that it is made of."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import anyio
from hypothesis import given, settings
from hypothesis import strategies as st

from graphrt.config import CompactConfig, ContextPolicy
from graphrt.errors import LlmError
from graphrt.llm import InferenceRequest, ProviderExecutor, ScriptedProvider
from graphrt.messages import Message, ToolCall
from graphrt.plugins.checkpoint import Checkpoint, digest, transcript, with_summary
from graphrt.plugins.compaction import CompactionPlugin, plan_summary
from graphrt.plugins.context_transform import ContextTransformPlugin
from graphrt.plugins.tokens import message_tokens, total
from graphrt.plugins.units import mended, prefix_length, unit_starts
from tests.plugins.conversations import ANY_MESSAGES, MESSAGES, assert_sound, context, conversations

SUMMARIES = st.sampled_from(["ok", "so far so good", "long " * 30, "", LlmError("down")])
SYSTEMS = st.lists(st.builds(Message.system, st.just("Be brief.")), max_size=2)


async def run_both(
    compaction: CompactionPlugin, transform: ContextTransformPlugin, messages: list[Message], state: dict[str, Any]
) -> tuple[dict[str, Any], InferenceRequest]:
    """Do what happens before an inference: the new state, and the request."""
    request = InferenceRequest("m", messages)
    command = await compaction.before_inference(context(messages, state=state, request=request))
    state = state if command is None else {**state, **dict(command.updates)}
    return state, apply_both(compaction, transform, request, state)


def apply_both(
    compaction: CompactionPlugin, transform: ContextTransformPlugin, request: InferenceRequest, state: dict[str, Any]
) -> InferenceRequest:
    ctx = context(request.messages, state=state, request=request)
    return transform.transform(compaction.transform(request, ctx), ctx)


def suffix(messages: Sequence[Message], length: int) -> list[Message]:
    return list(messages[max(0, len(messages) - length) :])


@settings(max_examples=60)
@given(
    SYSTEMS,
    st.one_of(ANY_MESSAGES, conversations()),
    st.lists(SUMMARIES, min_size=4, max_size=4),
    st.integers(1, 120),
    st.integers(0, 4),
    st.integers(0, 6),
    st.integers(1, 150),
)
def test_a_growing_conversation_is_always_sent_sound_with_what_must_be_kept(
    systems: list[Message],
    history: list[Message],
    summaries: list[Any],
    threshold: int,
    keep_recent: int,
    min_recent: int,
    budget: int,
) -> None:
    policy = ContextPolicy(
        max_context_tokens=budget + 10,
        max_output_tokens=10,
        min_recent_messages=min_recent,
        enable_prompt_cache=False,
    )
    config = CompactConfig(threshold_tokens=threshold, keep_recent=keep_recent)
    compaction = CompactionPlugin(config, policy, executor=ProviderExecutor(ScriptedProvider(summaries)))
    transform = ContextTransformPlugin(policy)
    state: dict[str, Any] = {}

    for end in range(0, len(history) + 1, 4):
        messages = [*systems, *history[:end]]
        state, request = anyio.run(run_both, compaction, transform, messages, state)

        got = list(request.messages)
        start = prefix_length(messages)
        assert got[:start] == messages[:start]
        assert_sound(got)
        sound = mended(messages[start:])
        recent = suffix(sound, min(keep_recent, min_recent, len(sound)))
        assert suffix(got, len(recent)) == recent
        must = _least(sound, min_recent)
        if total([*messages[:start], *must], message_tokens) <= budget:
            assert total(got, message_tokens) <= budget
        assert messages == [*systems, *history[:end]]
        assert apply_both(compaction, transform, request, state).messages == got
        json.dumps(state)


def _least(sound: list[Message], keep: int) -> list[Message]:
    """Give the fewest units at the end that have *keep* messages, and one at least."""
    starts = [each for each in unit_starts(sound) if len(sound) - each >= keep]
    return sound[starts[-1] if starts else 0 :]


@given(ANY_MESSAGES, st.integers(0, 10), st.integers(0, 150), st.lists(st.integers(0, 8), min_size=1, max_size=2))
def test_a_plan_parts_no_unit_keeps_what_is_recent_and_saves_enough(
    messages: list[Message], covered: int, threshold: int, keep: list[int]
) -> None:
    starts = [each for each in unit_starts(messages) if 0 < each <= covered]
    earlier = Checkpoint.of(messages, starts[-1], "so far") if starts else None

    plan = plan_summary(messages, earlier, threshold=threshold, keep=keep, ratio=0.3, count=message_tokens)

    if plan is None:
        return
    assert plan.before > threshold
    assert plan.cut in unit_starts(messages)
    assert plan.cut > (0 if earlier is None else earlier.covered)
    assert len(messages) - plan.cut >= max(1, min(keep))
    assert plan.replaced >= 0.3 * plan.before
    head = 0 if earlier is None else message_tokens(earlier.message)
    assert plan.replaced == head + total(plan.new, message_tokens)


@given(ANY_MESSAGES, st.data())
def test_a_checkpoint_holds_for_what_follows_and_for_no_other_history(
    messages: list[Message], data: st.DataObject
) -> None:
    history = [Message.user("first"), *messages]
    covered = data.draw(st.integers(1, len(history)))
    checkpoint = Checkpoint.of(history, covered, "so far")
    edited = list(history)
    place = data.draw(st.integers(0, covered - 1))
    edited[place] = data.draw(MESSAGES.filter(lambda each: each != history[place]))

    assert checkpoint.holds([*history, Message.user("more")])
    assert not checkpoint.holds(edited)
    assert not checkpoint.holds(history[: covered - 1])
    assert Checkpoint.read(json.loads(json.dumps(checkpoint.plain()))) == checkpoint


@given(conversations(), SYSTEMS, st.data())
def test_the_summary_takes_the_place_of_what_it_covers_once(
    history: list[Message], systems: list[Message], data: st.DataObject
) -> None:
    covered = data.draw(st.sampled_from([*unit_starts(history)[1:], len(history)]))
    if covered == 0:
        return
    checkpoint = Checkpoint.of(history, covered, "so far")
    state = {"compaction.checkpoint": checkpoint.plain()}

    once = with_summary([*systems, *history], state)

    assert once == [*systems, checkpoint.message, *history[covered:]]
    assert with_summary(once, state) is once


def test_a_digest_tells_messages_from_one_another_where_their_texts_run_together() -> None:
    assert digest([Message.user("a"), Message.user("b")]) != digest([Message.user("ab")])
    assert digest([Message.user("a")]) != digest([Message.assistant("a")])
    assert digest([Message.tool("a", "x")]) != digest([Message.tool("b", "x")])
    call = Message.assistant("", [ToolCall("a", "search", {"q": 1})])
    assert digest([call]) != digest([Message.assistant("", [ToolCall("a", "search", {"q": 2})])])


def test_a_transcript_shortens_long_texts_in_the_middle() -> None:
    text = transcript([Message.user("a" * 50 + "b" * 50)], None, 20)
    assert text == "user: " + "a" * 10 + " [... 80 characters left out ...] " + "b" * 10
