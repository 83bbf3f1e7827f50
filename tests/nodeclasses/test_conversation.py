"""What travels through an agent's graph can be shared, and can be stored by the types that its nodes declare."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from pydantic import BaseModel, TypeAdapter

from graphrt import GraphTypeError
from graphrt.graph.values import copy_value, is_immutable
from graphrt.messages import Message, ToolCall
from graphrt.nodes.approval import CallNode
from graphrt.nodes.conversation import (
    AgentState,
    Called,
    Misfit,
    ToolCalls,
    Transcript,
    as_messages,
    new_state_class,
)
from graphrt.nodes.phased import settled
from graphrt.nodes.rounds import ReplyNode
from graphrt.nodes.structured import OutputFormat

HI = Message.user("hi")
CALL = ToolCall("c-1", "add", {"a": 1})


class Report(BaseModel):
    calls: list[str] = []


def test_transcript_is_shared_and_not_looked_through() -> None:
    """E22: what nobody changes has no copies, however long it is."""
    transcript = Transcript([Message.assistant("", [CALL])])

    assert is_immutable(transcript)
    assert copy_value(transcript, where="a", warned=None) is transcript
    assert copy.deepcopy([transcript])[0] is transcript
    assert copy.copy(transcript) is transcript
    assert copy_value(Called(CALL), where="a", warned=None).call is CALL


def test_adding_to_a_transcript_leaves_it_as_it_was() -> None:
    first = Transcript([HI])
    second = first + Transcript([Message.assistant("hello")])

    assert list(first) == [HI]
    assert [each.content for each in second] == ["hi", "hello"]
    assert second[1:] == Transcript([Message.assistant("hello")])


def test_state_is_stored_as_plain_messages() -> None:
    """E25: by the declared types, as JSON."""
    state = AgentState(messages=Transcript([HI, Message.assistant("", [CALL])]), given=1)
    stored = state.model_dump_json()

    assert AgentState.model_validate_json(stored) == state
    assert '"messages":[{"role":"user","content":"hi"' in stored


def test_every_agent_has_a_state_class_of_its_own() -> None:
    """E10b: graphs that hold one another share the state of one class."""
    assert new_state_class() is not new_state_class()
    assert issubclass(new_state_class(), AgentState)


@pytest.mark.parametrize("output", [str, Report, list[str]])
def test_what_a_reply_is_survives_being_stored(output: Any) -> None:
    """E25: the value comes back as what it was, whatever the agent's output is."""
    form = None if output is str else OutputFormat(output)
    declared = TypeAdapter(ReplyNode(output, form).signature.returns)
    values = [ToolCalls((CALL,)), {str: "text", Report: Report(calls=["x"])}.get(output, ["x"])]
    if form is not None:
        values.append(Misfit("no"))

    for value in values:
        assert declared.validate_json(declared.dump_json(value)) == value


def test_call_that_is_settled_stays_so_when_it_is_stored() -> None:
    declared = TypeAdapter(CallNode({}, None).signature.returns)
    refused = settled(CALL, "no", "denied")

    for value in (CALL, refused):
        again = declared.validate_json(declared.dump_json(value))
        assert (type(again), again) == (type(value), value)


def test_calls_at_the_end_without_an_answer_are_left_out() -> None:
    """AC-W25: also when an id comes again in every round."""
    asked, answered = Message.assistant("", [CALL]), Message.tool("c-1", "2")
    two = Message.assistant("", [CALL, ToolCall("c-2", "add")])

    for end, kept in (([], 3), ([asked], 3), ([asked, answered], 5), ([two, answered], 3), ([Message.user("x")], 4)):
        state = AgentState(messages=Transcript([HI, asked, answered, *end]))
        assert len(state.conversation()) == kept


@pytest.mark.parametrize(
    ("value", "messages"),
    [
        ("hi", (HI,)),
        (HI, (HI,)),
        ([HI, HI], (HI, HI)),
        ((HI,), (HI,)),
        ([{"role": "user", "content": "hi"}], (HI,)),
        ([], ()),
    ],
)
def test_messages_are_read(value: Any, messages: tuple[Message, ...]) -> None:
    assert as_messages(value) == messages


@pytest.mark.parametrize("value", [3, None, b"hi", ["hi"], {"role": "user"}, [{"role": "nobody"}]])
def test_what_is_no_message_is_refused(value: Any) -> None:
    with pytest.raises(GraphTypeError):
        as_messages(value)
