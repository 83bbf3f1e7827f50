"""What of a conversation may be sent."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from graphrt.agent.history import without_dangling
from graphrt.messages import Message, ToolCall
from tests.agent.helpers import call, is_paired

IDS = st.sampled_from("abc")
MESSAGES = st.one_of(
    st.builds(Message.user, st.sampled_from(["", "hi"])),
    st.builds(Message.system, st.just("be good")),
    st.builds(
        lambda text, ids: Message.assistant(text, [ToolCall(id, "add", {}) for id in ids]),
        st.sampled_from(["", "text"]),
        st.lists(IDS, max_size=3),
    ),
    st.builds(Message.tool, IDS, st.just("3")),
)


@settings(max_examples=300)
@given(st.lists(MESSAGES, max_size=10))
def test_every_call_has_its_answer_and_every_answer_its_call(messages: list[Message]) -> None:
    cleaned = without_dangling(messages)
    assert is_paired(cleaned)
    assert without_dangling(cleaned) == cleaned
    assert [each for each in cleaned if each.role in ("user", "system")] == [
        each for each in messages if each.role in ("user", "system")
    ]
    if is_paired(messages):
        assert cleaned == messages


def test_calls_without_an_answer_are_left_out_and_the_text_stays() -> None:
    answered = [Message.user("go"), Message.assistant("", [call("1"), call("2")]), Message.tool("1", "3")]
    assert without_dangling(answered) == [
        Message.user("go"),
        Message.assistant("", [call("1")]),
        Message.tool("1", "3"),
    ]
    assert without_dangling([Message.assistant("let me see", [call("1")])]) == [Message.assistant("let me see")]
    assert without_dangling([Message.assistant("", [call("1")]), Message.user("hello?")]) == [Message.user("hello?")]
    assert without_dangling([Message.tool("9", "late")]) == []
