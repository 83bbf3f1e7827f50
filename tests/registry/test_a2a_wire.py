"""The Agent2Agent protocol as JSON, without a server."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphrt.registry.a2a_wire import (
    A2AError,
    Interface,
    Reply,
    TaskState,
    Version,
    origin,
    read_card,
    read_reply,
    read_response,
    read_version,
)

V1, V0 = Version.V1_0, Version.V0_3
KEYS = ["task", "message", "status", "state", "id", "parts", "text", "data", "file", "artifacts", "history", "url"]
KEYS += ["supportedInterfaces", "protocolBinding", "protocolVersion", "error", "result"]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=4),
    max_leaves=12,
)


def offer(url: str, version: str | None, binding: str = "JSONRPC") -> dict[str, Any]:
    return {"url": url, "protocolBinding": binding, "protocolVersion": version}


@pytest.mark.parametrize(
    ("card", "expected"),
    [
        ({"supportedInterfaces": [offer("http://a", "1.0")]}, Interface("http://a", V1)),
        ({"supportedInterfaces": [offer("http://a", "1.3.2")]}, Interface("http://a", V1)),
        ({"supportedInterfaces": [offer("http://a", None)]}, Interface("http://a", V1)),
        ({"supportedInterfaces": [offer("http://a", "0.3")]}, Interface("http://a", V0)),
        ({"supportedInterfaces": [offer("http://a", "0.3"), offer("http://b", "1.0")]}, Interface("http://b", V1)),
        ({"supportedInterfaces": [offer("a:1", "1.0", "GRPC"), offer("http://b", "0.3")]}, Interface("http://b", V0)),
        ({"supportedInterfaces": [offer("nowhere", "1.0"), offer("http://b", "1.0")]}, Interface("http://b", V1)),
        ({"url": "http://a"}, Interface("http://a", V0)),
        ({"url": "http://a", "protocolVersion": "0.3.0", "preferredTransport": "JSONRPC"}, Interface("http://a", V0)),
        (
            {
                "url": "http://a",
                "preferredTransport": "GRPC",
                "additionalInterfaces": [{"url": "http://b", "transport": "JSONRPC"}],
            },
            Interface("http://b", V0),
        ),
    ],
)
def test_the_best_interface_of_a_card_is_chosen(card: Any, expected: Interface) -> None:
    assert read_card(card) == expected


@pytest.mark.parametrize(
    "card",
    [
        {"supportedInterfaces": [offer("http://a", "2.0")]},
        {"supportedInterfaces": [offer("http://a", "1.0", "HTTP+JSON")]},
        {"supportedInterfaces": [offer("ftp://a", "1.0")]},
        {"supportedInterfaces": [{"protocolBinding": "JSONRPC"}]},
        {"url": "http://a", "preferredTransport": "GRPC"},
    ],
)
def test_a_card_without_an_interface_that_is_known_is_refused(card: Any) -> None:
    with pytest.raises(A2AError, match="offers no interface"):
        read_card(card)


@pytest.mark.parametrize(("text", "version"), [("1.0", V1), ("1", V1), ("0.3.0", V0), ("0.2", None), ("x", None)])
def test_a_version_is_read_without_its_patch(text: str, version: Version | None) -> None:
    assert read_version(text) is version


@pytest.mark.parametrize(
    ("parts", "text"),
    [
        ([{"text": "a"}, {"kind": "text", "text": "b"}], "a\nb"),
        ([{"data": {"b": [1, "é"]}}], '{"b": [1, "é"]}'),
        ([{"url": "http://x/y", "filename": "y.pdf", "mediaType": "application/pdf"}], "[file y.pdf: http://x/y]"),
        ([{"kind": "file", "file": {"name": "y.pdf", "bytes": "abc"}}], "[file y.pdf]"),
        ([{"raw": "abc"}], "[file]"),
        ([], ""),
    ],
)
def test_parts_of_each_kind_are_shown_as_text(parts: Any, text: str) -> None:
    assert read_reply({"message": {"parts": parts}}) == Reply(text)
    assert read_reply({"kind": "message", "parts": parts}) == Reply(text)


@pytest.mark.parametrize("name", ["TASK_STATE_{}", "{}"])
@pytest.mark.parametrize("state", list(TaskState))
def test_a_state_is_read_in_both_ways_of_writing_it(name: str, state: TaskState) -> None:
    written = name.format(state.name) if name != "{}" else state.replace("_", "-")
    assert read_reply({"id": "t", "status": {"state": written}}).state is state


def test_a_state_that_is_not_known_keeps_the_task_open() -> None:
    assert read_reply({"id": "t", "status": {"state": "TASK_STATE_UNSPECIFIED"}}).is_open


def said(text: str, role: str = "agent") -> dict[str, Any]:
    return {"role": role, "parts": [{"text": text}]}


def test_what_a_task_has_made_comes_before_what_it_says() -> None:
    task: dict[str, Any] = {"id": "t", "status": {"state": "completed", "message": said("done")}}
    assert read_reply(task).text == "done"
    task["artifacts"] = [said("one"), said("two")]
    assert read_reply(task).text == "one\n\ntwo"


def test_a_task_without_artifacts_ends_with_its_agents_last_words() -> None:
    history = [said("hello", "user"), said("good"), said("day", "ROLE_AGENT"), said("thanks", "ROLE_USER")]
    assert read_reply({"id": "t", "status": {"state": "completed"}, "history": history}).text == "day"


def test_a_failure_says_why_rather_than_what_was_made_before() -> None:
    task = {"id": "t", "status": {"state": "failed", "message": said("no disk")}, "artifacts": [said("half")]}
    assert read_reply(task).text == "no disk"


def test_the_port_that_goes_without_saying_is_the_same_server() -> None:
    assert origin("https://a/x") == origin("https://a:443/y")
    assert origin("https://a") != origin("http://a")
    assert origin("https://a") != origin("https://b")


@given(JSON)
def test_whatever_a_server_sends_is_read_or_refused(value: Any) -> None:
    for read in (read_card, read_response, read_reply):
        with suppress(A2AError):
            read(value)
