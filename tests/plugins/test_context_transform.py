"""What of a conversation is sent."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphrt.config import ContextPolicy
from graphrt.llm import InferenceRequest
from graphrt.messages import Message, ToolCall
from graphrt.plugins.checkpoint import Checkpoint
from graphrt.plugins.context_transform import ContextTransformPlugin, cache_key, fit
from graphrt.plugins.tokens import message_tokens, tool_tokens, total
from graphrt.plugins.units import mended, prefix_length, unit_starts
from graphrt.tools import ToolDescriptor
from tests.plugins.conversations import ANY_MESSAGES, assert_sound, context, talk

SYSTEM = Message.system("Be brief.")
SEARCH = ToolDescriptor("search", "Look something up.")


def ten(message: Message) -> int:
    return 10


def policy(budget: int, *, keep: int = 0, cache: bool = False) -> ContextPolicy:
    return ContextPolicy(
        max_context_tokens=budget + 50,
        max_output_tokens=50,
        min_recent_messages=keep,
        enable_prompt_cache=cache,
        estimator=ten,
    )


def sent(messages: list[Message], given_policy: ContextPolicy) -> list[Message]:
    request = InferenceRequest("m", messages)
    return list(ContextTransformPlugin(given_policy).transform(request, context()).messages)


def test_a_long_history_is_cut_to_the_system_message_and_the_recent_messages() -> None:
    """AC-W27."""
    call = Message.assistant("", [ToolCall("c1", "search")])
    history = [SYSTEM, *talk(20, question=False), call, Message.tool("c1", "found"), Message.user("and now?")]

    got = sent(history, policy(10, keep=2))

    assert got == [SYSTEM, call, history[-2], history[-1]]  # no answer without its call, and one more than asked for


def test_what_fits_is_sent_as_it_is() -> None:
    messages = [SYSTEM, *talk(3)]
    assert sent(messages, policy(80)) == messages


def test_the_oldest_messages_go_first_and_no_more_than_must() -> None:
    messages = [SYSTEM, *talk(3)]
    assert sent(messages, policy(79)) == [SYSTEM, *messages[2:]]
    assert sent(messages, policy(50)) == [SYSTEM, *messages[4:]]


def test_recent_messages_are_sent_even_if_they_do_not_fit() -> None:
    messages = [SYSTEM, *talk(3)]
    assert sent(messages, policy(20, keep=4)) == [SYSTEM, *messages[-4:]]


def test_the_last_message_is_sent_whatever_the_policy() -> None:
    assert sent([SYSTEM, *talk(3)], policy(1)) == [SYSTEM, Message.user("what now?")]


def test_the_room_for_the_answer_and_the_tools_is_not_for_messages() -> None:
    messages = [SYSTEM, *talk(3)]
    plugin = ContextTransformPlugin(policy(80 + tool_tokens([SEARCH])))
    tight = ContextTransformPlugin(policy(79 + tool_tokens([SEARCH])))

    assert len(plugin.transform(InferenceRequest("m", messages, [SEARCH]), context()).messages) == 8
    assert len(tight.transform(InferenceRequest("m", messages, [SEARCH]), context()).messages) == 7


def test_without_an_estimator_characters_are_counted() -> None:
    messages = [SYSTEM, *talk(10, words=40)]
    given_policy = ContextPolicy(max_context_tokens=500, max_output_tokens=100, min_recent_messages=1)

    got = sent(messages, given_policy)

    assert 1 < len(got) < len(messages)
    assert total(got, message_tokens) <= 400


def test_the_summary_is_the_last_thing_to_be_left_out() -> None:
    history = talk(5)
    checkpoint = Checkpoint.of(history, 4, "they spoke of words")
    ctx = context(state={"compaction.checkpoint": checkpoint.plain()})
    messages = [SYSTEM, checkpoint.message, *history[4:]]

    def left(budget: int) -> list[Message]:
        request = InferenceRequest("m", messages)
        return list(ContextTransformPlugin(policy(budget, keep=1)).transform(request, ctx).messages)

    assert left(90) == messages
    assert left(40) == [SYSTEM, checkpoint.message, *history[-2:]]
    assert left(30) == [SYSTEM, checkpoint.message, history[-1]]
    assert left(29) == [SYSTEM, history[-1]]


def test_a_summary_is_none_of_the_recent_messages() -> None:
    history = talk(5)
    checkpoint = Checkpoint.of(history, 10, "they spoke of words")
    ctx = context(state={"compaction.checkpoint": checkpoint.plain()})
    request = InferenceRequest("m", [SYSTEM, checkpoint.message, history[-1]])
    assert ContextTransformPlugin(policy(20, keep=4)).transform(request, ctx).messages == [SYSTEM, history[-1]]


def test_a_summary_alone_is_sent_whatever_it_takes() -> None:
    summary = Message.user("<summary>\nso far\n</summary>")
    assert fit([SYSTEM, summary], budget=0, keep=0, count=ten, summary=summary) == [SYSTEM, summary]


def test_a_message_that_only_looks_like_a_summary_has_no_privilege() -> None:
    messages = [SYSTEM, Message.user("<summary>\nmine\n</summary>"), *talk(5)]
    assert sent(messages, policy(30)) == [SYSTEM, *messages[-2:]]


def test_messages_of_a_request_that_begin_alike_have_one_cache_key() -> None:
    plugin = ContextTransformPlugin(policy(500, cache=True))

    def key(*messages: Message, tools: tuple[ToolDescriptor, ...] = ()) -> str:
        text = plugin.transform(InferenceRequest("m", messages, tools), context()).params["prompt_cache_key"]
        assert isinstance(text, str)
        return text

    assert key(SYSTEM, Message.user("a")) == key(SYSTEM, Message.user("b"), Message.assistant("c"))
    assert key(SYSTEM, Message.user("a")) != key(Message.user("a"))
    assert key(SYSTEM) != key(SYSTEM, tools=(SEARCH,))
    assert len(key(SYSTEM)) <= 64


def test_a_cache_key_of_the_callers_own_stays() -> None:
    request = InferenceRequest("m", [SYSTEM], params={"prompt_cache_key": "mine", "seed": 1})
    transformed = ContextTransformPlugin(policy(500, cache=True)).transform(request, context())
    assert transformed.params == {"prompt_cache_key": "mine", "seed": 1}


def test_nothing_is_marked_where_the_policy_does_not_want_it() -> None:
    request = InferenceRequest("m", [SYSTEM], params={"temperature": 0})
    assert ContextTransformPlugin(policy(500)).transform(request, context()).params == {"temperature": 0}


def test_the_request_that_came_in_is_not_changed() -> None:
    messages = [SYSTEM, *talk(8)]
    request = InferenceRequest("m", list(messages), params={"seed": 1})

    ContextTransformPlugin(policy(20, cache=True)).transform(request, context())

    assert request.messages == messages
    assert request.params == {"seed": 1}


def test_an_unanswered_call_never_reaches_the_request() -> None:
    asked = Message.assistant("I look it up", [ToolCall("c1", "search")])
    got = sent([SYSTEM, Message.user("hi"), asked, Message.user("stop")], policy(500))
    assert [each.content for each in got] == ["Be brief.", "hi", "I look it up", "stop"]
    assert_sound(got)


@pytest.mark.parametrize("tools", [None, [SEARCH], [{"type": "function", "function": {"name": "search"}}]])
def test_any_form_of_tools_gives_a_cache_key(tools: list[object] | None) -> None:
    key = cache_key([SYSTEM], tools)  # type: ignore[arg-type]  # a list of either form
    assert key == cache_key([SYSTEM], tools)  # type: ignore[arg-type]  # as above
    assert json.dumps(key).isascii()


@given(ANY_MESSAGES, st.integers(0, 200), st.integers(0, 8))
def test_what_is_sent_is_sound_keeps_what_must_be_kept_and_fits_if_it_can(
    messages: list[Message], budget: int, keep: int
) -> None:
    got = fit(messages, budget=budget, keep=keep, count=message_tokens)

    start = prefix_length(messages)
    prefix, sound = messages[:start], mended(messages[start:])
    assert_sound(got)
    assert got[:start] == prefix
    kept = got[start:]
    assert kept == sound[len(sound) - len(kept) :]
    assert len(kept) >= min(keep, len(sound))
    assert bool(kept) == bool(sound)

    must = min((len(sound) - each for each in unit_starts(sound) if len(sound) - each >= keep), default=len(sound))
    if total([*prefix, *sound[len(sound) - must :]], message_tokens) <= budget:
        assert total(got, message_tokens) <= budget
        more = [each for each in unit_starts(sound) if each < len(sound) - len(kept)]
        assert not more or total([*prefix, *sound[more[-1] :]], message_tokens) > budget  # there was no room for more
    else:
        assert len(kept) == must


@given(ANY_MESSAGES, st.integers(0, 200), st.integers(0, 8))
def test_to_fit_twice_is_to_fit_once(messages: list[Message], budget: int, keep: int) -> None:
    once = fit(messages, budget=budget, keep=keep, count=message_tokens)
    assert fit(once, budget=budget, keep=keep, count=message_tokens) == once


@given(ANY_MESSAGES, st.integers(0, 200), st.integers(0, 8))
def test_a_summary_is_kept_as_long_as_it_fits_with_what_must_be_kept(
    messages: list[Message], budget: int, keep: int
) -> None:
    summary = Message.user("<summary>\nso far\n</summary>")
    whole = [SYSTEM, summary, *messages]
    got = fit(whole, budget=budget, keep=keep, count=message_tokens, summary=summary)
    without = fit([SYSTEM, *messages], budget=0, keep=keep, count=message_tokens)

    assert_sound(got)
    assert fit(got, budget=budget, keep=keep, count=message_tokens, summary=summary) == got
    if prefix_length(messages) == 0 and total([summary, *without], message_tokens) <= budget:
        assert got[:2] == [SYSTEM, summary]
        assert total(got, message_tokens) <= budget
