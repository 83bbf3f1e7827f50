"""Rough token counts."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from graphrt.config import ContextPolicy
from graphrt.messages import Message, ToolCall
from graphrt.plugins.tokens import counter, input_budget, message_tokens, text_tokens, tool_tokens, total
from graphrt.tools import ToolDescriptor


def test_four_bytes_count_as_a_token() -> None:
    assert text_tokens("") == 0
    assert text_tokens("abcd") == 1
    assert text_tokens("abcde") == 2


def test_scripts_with_longer_characters_take_more_tokens() -> None:
    assert text_tokens("水" * 40) > text_tokens("w" * 40)


def test_a_message_counts_with_its_calls_and_labels() -> None:
    bare = message_tokens(Message.assistant("done"))
    assert message_tokens(Message.assistant("done", [ToolCall("c1", "search", {"q": "x" * 400})])) > bare + 100
    assert message_tokens(Message.tool("call_12345678", "done")) > bare


def test_even_an_empty_message_takes_tokens() -> None:
    assert message_tokens(Message.user("")) > 0


def test_definitions_of_tools_count_whatever_their_form() -> None:
    described = ToolDescriptor("search", "Look something up. " * 20)
    assert tool_tokens([described]) > 90
    assert tool_tokens([{"type": "function", "function": {"name": "search"}}]) > 5
    assert tool_tokens(None) == 0


def test_the_policys_estimator_is_used() -> None:
    assert total([Message.user("a"), Message.user("b")], counter(ContextPolicy(estimator=lambda message: 7))) == 14
    assert counter(ContextPolicy()) is message_tokens
    assert counter(None) is message_tokens


def test_a_policy_that_leaves_nothing_leaves_no_less_than_nothing() -> None:
    assert input_budget(ContextPolicy(max_context_tokens=100, max_output_tokens=40)) == 60
    assert input_budget(ContextPolicy(max_context_tokens=100)) == 0


@given(st.text(max_size=60), st.text(max_size=60))
def test_more_text_never_takes_fewer_tokens(left: str, right: str) -> None:
    assert text_tokens(left + right) >= max(text_tokens(left), text_tokens(right))
    assert text_tokens(left + right) <= text_tokens(left) + text_tokens(right)
