from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from graphrt.messages import (
    ChatResponse,
    LLMResponse,
    Message,
    Role,
    TokenUsage,
    ToolCall,
    clean_text,
    clean_value,
)

CALL = ToolCall("c-1", "add", {"a": 1})
COUNTS = st.one_of(st.none(), st.integers(0, 10**9))
USAGES = st.builds(TokenUsage, COUNTS, COUNTS, COUNTS)


def test_shorthands_make_messages_of_each_role() -> None:
    assert Message.system("s") == Message(role="system", content="s")
    assert Message.user("u") == Message(Role.USER, "u")
    assert Message.assistant("a", [CALL]) == Message(role=Role.ASSISTANT, content="a", tool_calls=[CALL])
    assert Message.tool("c-1", "3") == Message(role="tool", content="3", tool_call_id="c-1")


def test_defaults_are_empty() -> None:
    message = Message("user")
    assert (message.content, message.tool_calls, message.tool_call_id, message.name) == ("", [], None, None)
    response = LLMResponse()
    assert (response.content, response.tool_calls, response.usage) == ("", [], None)


def test_message_survives_being_stored() -> None:
    message = Message.assistant("a", [ToolCall("c-1", "add", error="cut off", raw_arguments='{"a": ')])
    assert Message.model_validate_json(message.model_dump_json()) == message


@pytest.mark.parametrize("model", [Message, ToolCall, TokenUsage, LLMResponse, ChatResponse])
def test_unknown_key_in_data_is_refused(model: Any) -> None:
    with pytest.raises(ValidationError, match="bogus"):
        model.model_validate({"role": "user", "id": "1", "name": "n", "bogus": 1})


def test_message_cannot_be_changed() -> None:
    message = Message.user("u")
    with pytest.raises(ValidationError, match="frozen"):
        message.content = "other"


def test_reply_becomes_the_assistants_message() -> None:
    assert LLMResponse("a", [CALL]).to_message() == Message.assistant("a", [CALL])


def test_unknown_plus_unknown_is_unknown() -> None:
    assert TokenUsage() + TokenUsage() == TokenUsage(None, None, None)


def test_unknown_counts_are_left_out_of_a_sum() -> None:
    assert TokenUsage(10, 5) + TokenUsage(7, None, 9) == TokenUsage(17, 5, 9)


@pytest.mark.parametrize(
    ("usage", "total"),
    [(TokenUsage(1, 2), 3), (TokenUsage(1, 2, 9), 9), (TokenUsage(1), None), (TokenUsage(), None)],
)
def test_total_is_known_when_it_or_both_parts_are(usage: TokenUsage, total: int | None) -> None:
    assert usage.known_total == total


@given(USAGES, USAGES, USAGES)
def test_sum_of_usage_does_not_depend_on_order(a: TokenUsage, b: TokenUsage, c: TokenUsage) -> None:
    assert a + b == b + a
    assert (a + b) + c == a + (b + c)


@pytest.mark.parametrize(
    ("dirty", "clean"),
    [
        ("plain", "plain"),
        ("caf\u00e9 \U0001f600", "caf\u00e9 \U0001f600"),
        ("a\ud800b", "a\ufffdb"),
        ("low \udfff too", "low \ufffd too"),
        ("\ud83d\ude00", "\U0001f600"),
        ("nul \0 here", "nul \ufffd here"),
        (b"caf\xc3\xa9", "caf\u00e9"),
        (b"bad \xff bytes", "bad \ufffd bytes"),
    ],
)
def test_what_cannot_be_sent_is_replaced_visibly(dirty: str | bytes, clean: str) -> None:
    """B-119: a lone surrogate, NUL and invalid bytes."""
    assert clean_text(dirty) == clean


def test_dirty_tool_output_can_be_stored_hashed_and_sent() -> None:
    """B-119: at every exit, since it is cleaned at the entrance."""
    message = Message.tool("c-\ud800", "out \ud800 \0")
    call = ToolCall("c-1", "add", {"k\0": ["\udfff", {"n": b"\xff"}]})
    for model in (message, call, LLMResponse("\ud800", [call])):
        stored = model.model_dump_json()
        assert "\\u0000" not in stored
        assert type(model).model_validate_json(stored) == model
        hashlib.sha256(stored.encode()).hexdigest()
    assert message.content == "out \ufffd \ufffd"
    assert call.arguments == {"k\ufffd": ["\ufffd", {"n": "\ufffd"}]}


def test_values_that_hold_no_text_stay_as_they_are() -> None:
    value = {"a": 1, "b": [None, 2.5, True], "role": Role.USER, "t": ("x", "y")}
    assert clean_value(value) == value
    assert clean_value(value)["role"] is Role.USER


@given(st.text(st.characters(categories=None)))
def test_clean_text_is_sendable_and_stays_clean(text: str) -> None:
    clean = clean_text(text)
    json.dumps(clean, ensure_ascii=False).encode()
    assert "\0" not in clean
    assert clean_text(clean) == clean
    assert Message.user(text).content == clean
