"""Where a conversation may be cut, and what is left out because no model takes it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from graphrt.messages import Message, Role, ToolCall
from graphrt.plugins.units import awaits_answers, last_cut, mended, prefix_length, unit_starts
from tests.plugins.conversations import ANY_MESSAGES, assert_sound, conversations

ASKED = Message.assistant("let me see", [ToolCall("a", "search"), ToolCall("b", "search")])
PAIR = [ASKED, Message.tool("b", "two"), Message.tool("a", "one")]


def test_calls_and_their_answers_are_one_unit() -> None:
    assert unit_starts([Message.user("hi"), *PAIR, Message.assistant("done")]) == [0, 1, 4]


def test_what_comes_between_a_call_and_its_answer_belongs_to_the_unit() -> None:
    assert unit_starts([ASKED, Message.tool("a", "one"), Message.user("hurry"), Message.tool("b", "two")]) == [0]


def test_the_same_ids_in_the_next_round_are_calls_of_their_own() -> None:
    assert unit_starts([*PAIR, *PAIR]) == [0, 3]


def test_the_system_messages_at_the_beginning_are_the_prefix() -> None:
    messages = [Message.system("one"), Message.system("two"), Message.user("hi"), Message.system("three")]
    assert prefix_length(messages) == 2
    assert prefix_length([]) == 0


def test_a_cut_leaves_as_many_messages_as_are_to_be_kept() -> None:
    messages = [Message.user("hi"), *PAIR, Message.assistant("done")]
    assert last_cut(messages, 1) == 4
    assert last_cut(messages, 2) == 1  # it may not go through the pair
    assert last_cut(messages, 5) == 0
    assert last_cut(messages, 99) == 0
    assert last_cut([], 0) == 0


def test_a_cut_leaves_one_unit_even_if_nothing_is_to_be_kept() -> None:
    assert last_cut([Message.user("hi"), *PAIR], 0) == 1


def test_calls_without_an_answer_are_left_out_and_the_text_stays() -> None:
    mended_messages = mended([ASKED, Message.tool("b", "two"), Message.user("never mind")])
    assert [call.id for call in mended_messages[0].tool_calls] == ["b"]
    assert [each.content for each in mended_messages] == ["let me see", "two", "never mind"]


def test_of_calls_with_one_id_the_first_is_the_one_that_was_answered() -> None:
    twice = Message.assistant("", [ToolCall("a", "search", {"q": "x"}), ToolCall("a", "search", {"q": "y"})])
    (asked, _) = mended([twice, Message.tool("a", "one")])
    assert [call.arguments["q"] for call in asked.tool_calls] == ["x"]


def test_a_message_of_nothing_but_unanswered_calls_is_left_out() -> None:
    assert mended([Message.user("hi"), Message.assistant("", [ToolCall("a", "search")])]) == [Message.user("hi")]


def test_an_answer_without_a_call_is_left_out() -> None:
    assert mended([Message.tool("x", "?"), *PAIR, Message.tool("a", "again")]) == PAIR


def test_calls_at_the_end_wait_for_their_answers() -> None:
    assert awaits_answers(PAIR[:2])
    assert not awaits_answers(PAIR)
    assert not awaits_answers([*PAIR[:2], Message.user("never mind")])
    assert not awaits_answers([])


@given(ANY_MESSAGES)
def test_mended_conversations_are_sound_and_stay_as_they_are(messages: list[Message]) -> None:
    once = mended(messages)
    assert_sound(once)
    assert mended(once) == once
    assert [each for each in once if each.role in (Role.USER, Role.SYSTEM)] == [
        each for each in messages if each.role in (Role.USER, Role.SYSTEM)
    ]


@given(conversations())
def test_a_sound_conversation_is_not_changed_by_mending(messages: list[Message]) -> None:
    assert mended(messages) == messages


@given(ANY_MESSAGES, st.integers(0, 16))
def test_both_sides_of_a_cut_are_sound(messages: list[Message], keep: int) -> None:
    sound = mended(messages)
    cut = last_cut(sound, keep)
    assert_sound(sound[:cut])
    assert_sound(sound[cut:])
    assert len(sound) - cut >= min(keep, len(sound))


@given(ANY_MESSAGES)
def test_units_begin_at_the_first_message_and_part_all_others(messages: list[Message]) -> None:
    starts = unit_starts(messages)
    assert starts == sorted(set(starts))
    assert starts[:1] == ([0] if messages else [])
