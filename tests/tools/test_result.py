"""What a model reads of what a tool returned."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from enum import StrEnum

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from graphrt.errors import ToolError, ToolErrorKind
from graphrt.messages import Role
from graphrt.tools import ToolDefinition, ToolDescriptor, ToolResult


class Colour(StrEnum):
    RED = "red"


class Place(BaseModel):
    city: str
    since: date


@dataclass
class Point:
    x: int
    label: str = "here"


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ("plain", "plain"),
        ("", ""),
        (b"caf\xc3\xa9", "café"),
        (None, "None"),
        (7, "7"),
        (Decimal("1.10"), "1.10"),
        (date(2026, 1, 2), "2026-01-02"),
        (Colour.RED, "red"),
        ({"a": [1, None, "é"]}, '{"a":[1,null,"é"]}'),
        ([1, 2], "[1,2]"),
        ((1, "b"), '[1,"b"]'),
        (Place(city="Rome", since=date(2026, 1, 2)), '{"city":"Rome","since":"2026-01-02"}'),
        (Point(3), '{"x":3,"label":"here"}'),
        ({"at": Point(3), "when": date(2026, 1, 2)}, '{"at":{"x":3,"label":"here"},"when":"2026-01-02"}'),
        ([Place], f"[{json.dumps(str(Place))}]"),
        (Point, str(Point)),
    ],
)
def test_data_is_shown_as_text(data: object, text: str) -> None:
    assert ToolResult.success(data).text == text


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ("a\ud800b\0c", "a\ufffdb\ufffdc"),
        (b"a\xffb", "a\ufffdb"),
        ({"k\ud800": ["\0", b"\xff"]}, '{"k\ufffd":["\ufffd","\ufffd"]}'),
        (Point(1, "\udfff"), '{"x":1,"label":"\ufffd"}'),
        (
            [Place.model_construct(city="\0", since=date(2026, 1, 2))],
            '[{"city":"\ufffd","since":"2026-01-02"}]',
        ),
        ({3: "\0"}, '{"3":"\ufffd"}'),
        ({"path": "C:\\u0000"}, '{"path":"C:\\\\u0000"}'),
    ],
)
def test_what_cannot_be_sent_is_replaced_visibly(data: object, text: str) -> None:
    """B-119."""
    shown = ToolResult.success(data).text

    assert shown == text
    assert shown.encode()


def test_error_text_is_cleaned_as_well() -> None:
    """B-119."""
    assert ToolResult.error("bad \ud800").text == "bad \ufffd"


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text() | st.text(st.characters(codec=None)) | st.binary(),
        lambda inner: (
            st.lists(inner, max_size=3) | st.dictionaries(st.text(st.characters(codec=None)), inner, max_size=3)
        ),
        max_leaves=8,
    )
)
def test_any_data_gives_text_that_can_be_sent(data: object) -> None:
    """B-119."""
    text = ToolResult.success(data).text

    assert "\0" not in text
    assert text.encode().decode() == text
    if isinstance(data, (list, dict)):
        json.loads(text)


def test_error_says_so_and_keeps_its_kind_and_cause() -> None:
    cause = ValueError("disk full")
    result = ToolResult.error("no room", kind="timeout", cause=cause)

    assert result.is_error
    assert (result.text, result.kind, result.cause) == ("no room", ToolErrorKind.TIMEOUT, cause)
    assert not ToolResult.success(None).is_error


def test_result_becomes_the_message_that_answers_a_call() -> None:
    message = ToolResult.success([1]).to_message("call-1")

    assert (message.role, message.tool_call_id, message.content) == (Role.TOOL, "call-1", "[1]")


def test_descriptor_is_a_function_definition_of_its_own() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    descriptor = ToolDescriptor("add", "Add.", schema)
    schema["properties"] = {}
    definition = descriptor.to_openai()
    definition["function"]["parameters"].clear()

    assert descriptor.name == "add"
    assert descriptor.to_openai() == {
        "type": "function",
        "function": {
            "name": "add",
            "description": "Add.",
            "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}},
        },
    }
    assert ToolDefinition is ToolDescriptor


def test_descriptor_without_parameters_takes_an_empty_object() -> None:
    assert ToolDescriptor("now").parameters == {"type": "object", "properties": {}}


def test_tool_needs_an_id() -> None:
    with pytest.raises(ToolError, match="id is empty"):
        ToolDescriptor("")
