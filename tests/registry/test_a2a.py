"""Agents behind the Agent2Agent protocol, asked over HTTP."""

from __future__ import annotations

import itertools
import socket
import sys
from collections.abc import Iterator
from typing import Any

import anyio
import pytest

from graphrt.errors import ConfigError, ToolErrorKind
from graphrt.registry import a2a
from graphrt.registry.a2a import FIRST_WAIT, LONGEST_WAIT, A2ABackend, waits
from graphrt.registry.specs import RemoteEndpoint
from graphrt.tools import ToolContext
from graphrt.tools.delegate import DelegateReply
from tests.engine.helpers import GUARD
from tests.registry.a2a_agent import CARD, Hang, Raw, Refusal, RemoteAgent, card, message, serving, task

pytestmark = pytest.mark.anyio


@pytest.fixture
def agent() -> Iterator[RemoteAgent]:
    with serving() as found:
        yield found


def backend(url: str, **options: Any) -> A2ABackend:
    return A2ABackend("far", RemoteEndpoint(url, options=options))


async def ask(agent: RemoteAgent, prompt: str = "hello", ctx: ToolContext[Any] | None = None, **options: Any) -> Any:
    with anyio.fail_after(GUARD):
        return await backend(agent.url, **options).run(prompt, ctx or ToolContext())


# --- answers


async def test_a_message_is_the_answer(agent: RemoteAgent) -> None:
    agent.replies["SendMessage"] = [message("good day")]
    assert await ask(agent) == DelegateReply("good day")


async def test_a_prompt_is_sent_as_version_1_wants_it(agent: RemoteAgent) -> None:
    agent.replies["SendMessage"] = [message("good day")]
    await ask(agent, "hello", ToolContext(run_id="run-1", tool_call_id="call-1"))
    request = agent.one("SendMessage")
    assert request.path == "/rpc"
    assert request.headers["A2A-Version"] == "1.0"
    assert request.body["jsonrpc"] == "2.0"
    assert request.params["message"].pop("messageId")
    assert request.params == {
        "message": {"role": "ROLE_USER", "parts": [{"text": "hello"}]},
        "configuration": {"acceptedOutputModes": ["text/plain", "application/json"], "returnImmediately": True},
        "metadata": {"graphrt.run_id": "run-1", "graphrt.tool_call_id": "call-1"},
    }


async def test_a_call_that_is_made_again_is_the_same_message(agent: RemoteAgent) -> None:
    agent.replies["SendMessage"] = [message("good day")]
    for key in ("run-1:a", "run-1:a", None, None):
        await ask(agent, ctx=ToolContext(idempotency_key=key))
    ids = [each.params["message"]["messageId"] for each in agent.seen if each.path != CARD]
    assert ids[:2] == ["run-1:a", "run-1:a"]
    assert len(set(ids)) == 3


async def test_an_agent_of_version_0_3_is_asked_in_its_own_way(agent: RemoteAgent) -> None:
    agent.card = card(agent.url, version="0.3")
    done: dict[str, Any] = {"kind": "task", "id": "t", "contextId": "c", "status": {"state": "completed"}}
    done["artifacts"] = [{"artifactId": "a", "parts": [{"kind": "text", "text": "good day"}]}]
    agent.replies["message/send"] = [{"kind": "task", "id": "t", "contextId": "c", "status": {"state": "submitted"}}]
    agent.replies["tasks/get"] = [done]
    assert await ask(agent) == DelegateReply("good day", "t")
    request = agent.one("message/send")
    assert "A2A-Version" not in request.headers
    assert request.params["message"].pop("messageId")
    assert request.params == {
        "message": {"kind": "message", "role": "user", "parts": [{"kind": "text", "text": "hello"}]},
        "configuration": {"acceptedOutputModes": ["text/plain", "application/json"], "blocking": False},
    }
    assert agent.one("tasks/get").params == {"id": "t"}


async def test_a_task_is_asked_for_until_it_is_done(agent: RemoteAgent) -> None:
    agent.replies["SendMessage"] = [{"task": task("SUBMITTED")}]
    agent.replies["GetTask"] = [task("WORKING", said="a moment"), task("COMPLETED", said="done", made="good day")]
    assert await ask(agent) == DelegateReply("good day", "task-1")
    assert agent.methods() == ["SendMessage", "GetTask", "GetTask"]


async def test_a_task_that_is_done_at_once_is_not_asked_for(agent: RemoteAgent) -> None:
    agent.replies["SendMessage"] = [{"task": task("COMPLETED", made="good day")}]
    assert await ask(agent) == DelegateReply("good day", "task-1")
    assert agent.methods() == ["SendMessage"]


async def test_the_tenant_of_the_card_goes_into_every_request(agent: RemoteAgent) -> None:
    agent.card = card(agent.url, tenant="acme")
    agent.replies["SendMessage"] = [{"task": task("WORKING")}]
    agent.replies["GetTask"] = [task("COMPLETED", made="good day")]
    await ask(agent)
    assert [each.params["tenant"] for each in agent.seen if each.path != CARD] == ["acme", "acme"]


async def test_with_a_protocol_the_card_is_not_read(agent: RemoteAgent) -> None:
    agent.replies["SendMessage"] = [message("good day")]
    assert (await ask(agent, protocol="1.0")).text == "good day"
    assert [each.path for each in agent.seen] == ["/"]


async def test_headers_go_with_every_request(agent: RemoteAgent) -> None:
    agent.replies["SendMessage"] = [{"task": task("WORKING")}]
    agent.replies["GetTask"] = [task("COMPLETED")]
    await ask(agent, headers={"Authorization": "Bearer abc"})
    assert [each.headers["Authorization"] for each in agent.seen] == ["Bearer abc"] * 3


async def test_headers_are_not_sent_to_another_server_that_the_card_names(agent: RemoteAgent) -> None:
    with serving() as other:
        agent.card = card(other.url)
        reply = await ask(agent, headers={"Authorization": "Bearer abc"})
        assert "is another server than" in reply.error
        assert other.seen == []


async def test_without_headers_the_card_may_name_another_server(agent: RemoteAgent) -> None:
    with serving() as other:
        agent.card = card(other.url)
        other.replies["SendMessage"] = [message("good day")]
        assert (await ask(agent)).text == "good day"


async def test_the_run_is_told_as_soon_as_the_task_is_known(agent: RemoteAgent) -> None:
    agent.replies["SendMessage"] = [{"task": task("WORKING")}]
    agent.replies["GetTask"] = [task("COMPLETED")]
    told: list[tuple[str, Any]] = []
    await ask(agent, ctx=ToolContext(run_id="r", tool_call_id="c", emit=lambda type, data: told.append((type, data))))
    data = {"agent_id": "far", "run_id": "task-1", "parent_run_id": "r", "tool_call_id": "c"}
    assert told == [("custom.delegate.started", data)]


# --- failures


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        ({"task": task("FAILED", said="no disk")}, "remote agent 'far' failed: no disk"),
        ({"task": task("FAILED")}, "remote agent 'far' failed"),
        ({"task": task("CANCELED")}, "remote agent 'far' was cancelled"),
        ({"task": task("REJECTED", said="not my trade")}, "remote agent 'far' declined: not my trade"),
        (Refusal(-32602, "no parts"), "remote agent 'far' could not answer: it answered with error -32602: no parts"),
        (Refusal(-32603, "broken", 500), "could not answer: it answered with error -32603: broken"),
        (Raw(b"<html>oops</html>", 500), "/rpc answered with HTTP status 500 Internal Server Error"),
        (Raw(b'{"detail": "no"}', 401), "/rpc answered with HTTP status 401 Unauthorized"),
        (Raw(b"", 307, {"Location": "http://127.0.0.1:1/"}), "/rpc answered with HTTP status 307 Temporary Redirect"),
        (Raw(b"hello"), "/rpc is no JSON"),
        (Raw(b"\xff\xfe"), "/rpc is no JSON"),
        (Raw(b"[]"), "its reply is no JSON-RPC response"),
        (Raw(b"{}"), "its reply is no JSON-RPC response"),
        (None, "its reply is neither a message nor a task"),
        ({"task": {"id": "t"}}, "its reply is neither a message nor a task"),
        ({"task": {"status": {"state": "TASK_STATE_WORKING"}}}, "its reply is neither a message nor a task"),
    ],
)
async def test_a_failure_is_an_error_in_words(agent: RemoteAgent, reply: Any, error: str) -> None:
    agent.replies["SendMessage"] = [reply]
    answer = await ask(agent)
    assert answer.text == ""
    assert answer.error is not None
    assert error in answer.error
    assert agent.methods() == ["SendMessage"]


@pytest.mark.parametrize(
    ("card", "error"),
    [
        (Raw(b"", 404), f"{CARD} answered with HTTP status 404 Not Found"),
        ([], "its agent card is no JSON object"),
        ({"name": "far"}, "offers no interface over JSON-RPC"),
    ],
)
async def test_a_card_that_is_of_no_use_is_an_error(agent: RemoteAgent, card: Any, error: str) -> None:
    agent.card = card
    answer = await ask(agent)
    assert error in answer.error
    assert agent.methods() == []


@pytest.mark.parametrize("state", ["INPUT_REQUIRED", "AUTH_REQUIRED"])
async def test_an_agent_that_waits_for_its_client_is_an_error_and_stopped(agent: RemoteAgent, state: str) -> None:
    agent.replies["SendMessage"] = [{"task": task(state, said="which one?")}]
    agent.replies["CancelTask"] = [task("CANCELED")]
    answer = await ask(agent)
    assert answer.error.endswith(": which one?")
    assert answer.run_id == "task-1"
    assert agent.methods() == ["SendMessage", "CancelTask"]
    assert agent.one("CancelTask").params == {"id": "task-1"}


async def test_a_task_that_can_no_longer_be_asked_for_is_stopped(agent: RemoteAgent) -> None:
    agent.replies["SendMessage"] = [{"task": task("WORKING")}]
    agent.replies["GetTask"] = [Refusal(-32001, "Task not found")]
    agent.replies["CancelTask"] = [Refusal(-32001, "Task not found")]
    answer = await ask(agent)
    assert "error -32001: Task not found" in answer.error
    assert agent.methods() == ["SendMessage", "GetTask", "CancelTask"]


async def test_a_server_may_be_out_of_reach_for_a_moment_while_a_task_is_waited_for(agent: RemoteAgent) -> None:
    agent.replies["SendMessage"] = [{"task": task("WORKING")}]
    agent.replies["GetTask"] = [Raw(b"", 503), Raw(b"", 502), task("COMPLETED", made="good day")]
    assert (await ask(agent)).text == "good day"


async def test_a_server_that_stays_out_of_reach_is_given_up(agent: RemoteAgent) -> None:
    agent.replies["SendMessage"] = [{"task": task("WORKING")}]
    agent.replies["GetTask"] = agent.replies["CancelTask"] = [Raw(b"", 503)]
    answer = await ask(agent)
    assert "HTTP status 503" in answer.error
    assert agent.methods() == ["SendMessage", "GetTask", "GetTask", "GetTask", "CancelTask"]


async def test_a_message_is_never_sent_twice(agent: RemoteAgent) -> None:
    agent.replies["SendMessage"] = [Raw(b"", 503)]
    await ask(agent)
    assert agent.methods() == ["SendMessage"]


async def test_a_question_for_a_task_that_hangs_is_asked_again(
    agent: RemoteAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(a2a, "QUESTION_SECONDS", 0.5)
    agent.replies["SendMessage"] = [{"task": task("WORKING")}]
    agent.replies["GetTask"] = [Hang(), task("COMPLETED", made="good day")]
    assert (await ask(agent)).text == "good day"


async def test_a_server_that_is_not_there_is_an_error() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    with anyio.fail_after(GUARD):
        answer = await backend(url).run("hello", ToolContext())
    assert answer.error is not None
    assert f"could not answer: no connection to {url}{CARD}" in answer.error


async def test_no_answer_in_time_is_an_error(agent: RemoteAgent) -> None:
    agent.replies["SendMessage"] = [Hang()]
    answer = await ask(agent, timeout=0.2)
    assert answer.error == "remote agent 'far' had no answer after 0.2 seconds"
    assert answer.kind is ToolErrorKind.TIMEOUT


async def test_a_task_that_is_not_done_in_time_is_stopped(agent: RemoteAgent) -> None:
    agent.replies["SendMessage"] = agent.replies["GetTask"] = [task("WORKING")]
    agent.replies["CancelTask"] = [task("CANCELED")]
    answer = await ask(agent, timeout=1)
    assert answer.kind is ToolErrorKind.TIMEOUT
    assert answer.run_id == "task-1"
    assert agent.one("CancelTask").params == {"id": "task-1"}


async def test_who_is_cancelled_has_the_task_stopped(agent: RemoteAgent) -> None:
    agent.replies["SendMessage"] = agent.replies["GetTask"] = [task("WORKING")]
    agent.replies["CancelTask"] = [task("CANCELED")]
    known = anyio.Event()
    ctx: ToolContext[Any] = ToolContext(emit=lambda type, data: known.set())
    with anyio.fail_after(GUARD):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(backend(agent.url).run, "hello", ctx)
            await known.wait()
            tasks.cancel_scope.cancel()
    assert agent.one("CancelTask").params == {"id": "task-1"}


async def test_who_is_cancelled_does_not_wait_for_a_server_that_hangs(
    agent: RemoteAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(a2a, "CANCEL_SECONDS", 0.1)
    agent.replies["SendMessage"] = agent.replies["GetTask"] = [task("WORKING")]
    agent.replies["CancelTask"] = [Hang()]
    answer = await ask(agent, timeout=1)
    assert answer.kind is ToolErrorKind.TIMEOUT
    assert agent.methods()[-1] == "CancelTask"


async def test_a_reply_without_end_is_not_read_to_its_end(agent: RemoteAgent, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(a2a, "MOST_BYTES", 1000)
    agent.replies["SendMessage"] = [message("x" * 1001)]
    assert "is longer than 1000 bytes" in (await ask(agent)).error


async def test_what_may_be_secret_in_an_address_is_not_shown(agent: RemoteAgent) -> None:
    agent.card = card(agent.url)
    agent.card["supportedInterfaces"][0]["url"] += "?key=abc"
    agent.replies["SendMessage"] = [Raw(b"", 500)]
    answer = await ask(agent)
    assert "HTTP status 500" in answer.error
    assert "abc" not in answer.error


# --- settings


@pytest.mark.parametrize(
    ("url", "options", "error"),
    [
        ("ftp://host", {}, "base_url is no URL"),
        ("host:80", {}, "base_url is no URL"),
        ("http://", {}, "base_url is no URL"),
        ("http://host:port", {}, "base_url is no URL"),
        ("http://me:abc@host", {}, "base_url is no URL"),
        ("http://host?key=abc", {}, "base_url has a query"),
        ("http://host", {"timeout": 0}, "option 'timeout'"),
        ("http://host", {"retries": 3}, "option 'retries'"),
        ("http://host", {"protocol": "0.1"}, "option 'protocol'"),
        ("http://host", {"headers": {"Authorization": "abc\r\nX: y"}}, "the value of header 'Authorization'"),
        ("http://host", {"headers": {"Authorization": ["abc"]}}, "option 'headers.Authorization'"),
        ("http://host", {"headers": {"A b": "c"}}, "'A b' is no name of a header"),
    ],
)
def test_wrong_settings_are_refused_before_anything_is_sent(url: str, options: dict[str, Any], error: str) -> None:
    with pytest.raises(ConfigError) as caught:
        backend(url, **options)
    assert error in str(caught.value)
    assert "abc" not in str(caught.value)
    assert "abc" not in str(caught.value.__cause__)


def test_without_the_package_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "httpx", None)
    with pytest.raises(ConfigError, match=r"(?s)need the package 'httpx'.*graphrt\[a2a\]"):
        backend("http://host")


def test_pauses_between_questions_grow_up_to_a_limit() -> None:
    pauses = list(itertools.islice(waits(), 20))
    assert pauses[0] == FIRST_WAIT
    assert pauses == sorted(pauses)
    assert pauses[-1] == LONGEST_WAIT
