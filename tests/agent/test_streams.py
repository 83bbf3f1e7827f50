"""Turns and runs that are watched, and what they ask a person."""

from __future__ import annotations

import threading
from typing import Any

import anyio
import pytest

from graphrt import (
    AgentBuilder,
    AgentSession,
    ConfigError,
    GraphError,
    GraphTypeError,
    HookEvent,
    HookExecutor,
    LlmError,
    SimpleAgent,
    ToolRegistry,
    function_tool,
)
from graphrt.agent import AgentRuntime, RunRequest, Session
from graphrt.errors import AgentLlmError, LlmErrorKind
from graphrt.graph import Question, RunEvent, RunStatus, TerminationKind
from graphrt.hooks import HookContext
from graphrt.llm import ScriptedProvider
from graphrt.messages import LLMResponse, ToolCall
from tests.agent.helpers import Heard, add, asks, call, session_of, texts
from tests.engine.helpers import GUARD, check_whole, types, until, yield_often

pytestmark = pytest.mark.anyio


@function_tool(requires_approval=True)
async def delete(path: str) -> str:
    """Delete a file."""
    return f"deleted {path}"


# --- streams -----------------------------------------------------------------------------------------------


async def test_the_events_of_a_turn_are_read_as_they_come() -> None:
    session, _ = session_of([asks(call("1", a=1, b=2)), "that makes three"], add)
    events: list[RunEvent] = []
    async with session.stream_turn("add") as turn:
        with pytest.raises(GraphError, match="not ended"):
            _ = turn.response
        async for event in turn:
            events.append(event)  # noqa: PERF401 - read one by one, as an application does
    check_whole(events)
    assert "".join(each.data["text"] for each in events if each.type == "message.delta") == "that makes three"
    assert types(events).count("tool.call.completed") == 1
    assert turn.response.content == "that makes three"
    assert texts(session.messages)[-1] == "assistant: that makes three"
    assert session.turn_index == 1


async def test_the_end_of_a_turn_can_be_waited_for() -> None:
    session, _ = session_of(["one"])
    async with session.stream_turn("a") as turn:
        assert (await turn.wait()).content == "one"


async def test_a_turn_that_is_left_early_is_cancelled_and_undone() -> None:
    hooks = HookExecutor()
    left: list[str] = []

    async def hang(messages: Any, tools: Any, kwargs: Any) -> str:
        try:
            await anyio.sleep_forever()
        finally:
            left.append("left")
        return ""

    session, _ = session_of(["one", asks(call("1", a=1, b=2)), hang, "two"], add, hooks=hooks)
    await session.submit_turn("a")
    heard = Heard(hooks, [HookEvent.ON_ERROR, HookEvent.ON_TURN_END])
    with anyio.fail_after(GUARD):
        async with session.stream_turn("b") as turn:
            async for event in turn:
                if event.type == "tool.call.completed":
                    await yield_often(10)
                    break
    assert left == ["left"]
    assert (texts(session.messages), session.turn_index, heard) == (["user: a", "assistant: one"], 1, [])
    with pytest.raises(GraphError, match="left before its end"):
        _ = turn.response
    assert (await session.submit_turn("c")).content == "two"


async def test_the_error_of_a_turn_is_raised_to_whoever_asks_or_at_the_end_of_the_block() -> None:
    session, _ = session_of([LlmError("no", LlmErrorKind.UNAUTHORIZED)] * 2)
    async with session.stream_turn("a") as turn:
        events = [event async for event in turn]
        with pytest.raises(AgentLlmError):
            _ = turn.response
    assert types(events)[-1] == "run.failed"
    with pytest.raises(AgentLlmError):
        async with session.stream_turn("b") as turn:
            assert [event async for event in turn]
    assert session.messages == []


async def test_the_error_of_the_block_is_the_one_that_is_raised() -> None:
    session, _ = session_of(["one"])
    with pytest.raises(KeyError):
        async with session.stream_turn("a"):
            raise KeyError("own")
    assert session.messages == []


async def test_a_stream_is_used_once_and_inside_its_block() -> None:
    session, _ = session_of(["one"])
    turn = session.stream_turn("a")
    with pytest.raises(GraphError, match="not started"):
        turn.__aiter__()
    with pytest.raises(GraphError, match="not started"):
        _ = turn.response
    async with turn:
        assert [event async for event in turn]
        with pytest.raises(GraphError, match="a reader"):
            turn.__aiter__()
    with pytest.raises(GraphError, match="entered before"):
        async with turn:
            pass


async def test_streams_and_turns_wait_for_one_another() -> None:
    session, _ = session_of(["one", "two", "three"])
    async with anyio.create_task_group() as tasks, session.stream_turn("a") as turn:
        await yield_often(3)
        tasks.start_soon(session.submit_turn, "b")
        assert [event async for event in turn]
        tasks.start_soon(session.submit_turn, "c")
    assert [each for each in texts(session.messages) if each.startswith("user")] == ["user: a", "user: b", "user: c"]


async def test_a_run_is_watched_too() -> None:
    runtime = AgentRuntime.from_provider(ScriptedProvider(["hello there", LlmError("no", LlmErrorKind.UNAUTHORIZED)]))
    async with runtime.stream(RunRequest("default", "hi")) as run:
        events = [event async for event in run]
    check_whole(events)
    assert run.result.output == "hello there"
    async with runtime.stream(RunRequest("default", "hi")) as run:
        assert (await run.wait()).termination.kind is TerminationKind.ERROR


# --- questions ---------------------------------------------------------------------------------------------


def approval(answer: str) -> list[Any]:
    return [asks(call("1", "delete", path="notes.txt")), answer]


async def test_the_caller_of_a_turn_answers_its_questions() -> None:
    asked: list[Question] = []

    async def yes(question: Question) -> bool:
        asked.append(question)
        return True

    session, _ = session_of(approval("done"), delete)
    assert (await session.submit_turn("delete", on_ask=yes)).content == "done"
    assert [each.question["arguments"] for each in asked] == [{"path": "notes.txt"}]
    assert texts(session.messages)[2] == "tool: deleted notes.txt"


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (True, "deleted notes.txt"),
        (False, "not executed"),
        ({"approved": False, "reason": "keep it"}, "keep it"),
        ({"approved": True, "arguments": {"path": "other.txt"}}, "deleted other.txt"),
    ],
)
async def test_a_turn_waits_until_somebody_answers(answer: Any, told: str) -> None:
    session, _ = session_of(approval("done"), delete)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(session.submit_turn, "delete")
        with anyio.fail_after(GUARD):
            while not session.questions:
                await yield_often(1)
        (question,) = session.questions
        for unfit in ("yes", None, {"approve": True}):
            with pytest.raises(GraphTypeError, match="no answer"):
                await session.answer(question.id, unfit)
        assert session.questions == [question]
        await session.answer(question.id, answer)
        assert session.questions == []
    assert told in texts(session.messages)[2]


async def test_only_open_questions_are_answered() -> None:
    session, _ = session_of([])
    with pytest.raises(ConfigError, match="'q' is open"):
        await session.answer("q", True)


async def test_a_question_is_gone_when_its_turn_is_left() -> None:
    session, _ = session_of(approval("never"), delete)
    async with session.stream_turn("delete") as turn:
        with anyio.fail_after(GUARD):
            while not turn.questions:
                await yield_often(1)
    assert session.questions == []


async def test_questions_of_several_runs_are_told_apart() -> None:
    provider = ScriptedProvider([asks(call("1", "delete", path=path)) for path in "ab"] + ["done"] * 2)
    runtime = AgentRuntime.from_provider(provider, tools=[delete])
    sessions = [Session(id) for id in "xy"]
    async with anyio.create_task_group() as tasks:
        for session in sessions:
            tasks.start_soon(runtime.process, "delete", session)
        with anyio.fail_after(GUARD):
            while len(runtime.questions) < 2:
                await yield_often(1)
        open_ones = runtime.questions
        assert len({each.id for each in open_ones}) == 2
        for each in open_ones:
            await runtime.answer(each.id, each.question["arguments"]["path"] == "a")
    told = sorted(texts(each.messages)[2] for each in sessions)
    assert told[0] == "tool: deleted a"
    assert "not executed" in told[1]


async def test_waiting_for_a_person_takes_no_time_of_the_turn() -> None:
    async def slowly(question: Question) -> bool:
        await anyio.sleep(0.3)
        return True

    session, _ = session_of(approval("done"), delete, timeout_seconds=0.2)
    assert (await session.submit_turn("delete", on_ask=slowly)).content == "done"


async def test_a_run_can_be_answered_as_well() -> None:
    runtime = AgentRuntime.from_provider(ScriptedProvider(approval("done")), tools=[delete])

    async def no(question: Question) -> bool:
        return False

    result = await runtime.run(RunRequest("default", "delete"), on_ask=no)
    assert result.status is RunStatus.SUCCEEDED
    assert "not executed" in result.messages[2].content


async def test_hooks_of_a_watched_turn_are_called_once() -> None:
    hooks = HookExecutor()
    seen: list[HookContext] = []
    hooks.register(HookEvent.ON_TURN_END, seen.append)
    session, _ = session_of(["one"], hooks=hooks)
    async with session.stream_turn("a") as turn:
        await turn.wait()
    assert [ctx.data["response"].content for ctx in seen] == ["one"]


def test_a_question_is_answered_from_another_event_loop() -> None:
    session, _ = session_of(approval("done"), delete)
    answered: list[str] = []

    async def submit() -> None:
        answered.append((await session.submit_turn("delete")).content)

    async def answer() -> None:
        await until(lambda: session.questions)
        await session.answer(session.questions[0].id, True)

    thread = threading.Thread(target=anyio.run, args=(submit,))
    thread.start()
    anyio.run(answer, backend="trio")
    thread.join(GUARD)
    assert answered == ["done"]


@pytest.mark.parametrize("number", [1, 3])
async def test_approvals_are_answered_where_the_events_are_read(number: int) -> None:
    """B-093: by the ids of the questions, or those that the events have."""
    bought: list[str] = []

    @function_tool(requires_approval=True)
    async def buy(item: str) -> str:
        bought.append(item)
        return f"bought {item}"

    tools = ToolRegistry()
    tools.register(buy)
    calls = [ToolCall(f"c-{n}", "buy", {"item": f"item {n}"}) for n in range(number)]
    provider = ScriptedProvider([LLMResponse(tool_calls=calls), "done"] * 2)
    bundle = AgentBuilder().provider(provider).tool_registry(tools).hook_executor(HookExecutor()).build()
    session = AgentSession("s-1", SimpleAgent("clerk"), bundle)
    with anyio.fail_after(30):
        async with session.stream_turn("buy") as turn:
            async for event in turn:
                if event.type == "step.waiting":
                    for question in turn.questions:
                        await turn.answer(question.id, True)
        assert turn.response.content == "done"
        async with session.stream_turn("buy again") as turn:
            async for event in turn:
                if event.type == "step.waiting":
                    await turn.answer(event.data["question_id"], True)

    assert sorted(bought) == sorted(2 * [f"item {n}" for n in range(number)])


async def test_edited_arguments_that_do_not_fit_are_refused_and_the_question_stays() -> None:
    bought: list[int] = []

    @function_tool(requires_approval=True)
    async def buy(item: str, count: int = 1) -> str:
        bought.append(count)
        return "bought"

    tools = ToolRegistry()
    tools.register(buy)
    provider = ScriptedProvider([LLMResponse(tool_calls=[ToolCall("c-1", "buy", {"item": "lamp"})]), "done"])
    bundle = AgentBuilder().provider(provider).tool_registry(tools).hook_executor(HookExecutor()).build()
    session = AgentSession("s-1", SimpleAgent("clerk"), bundle)
    with anyio.fail_after(30):
        async with session.stream_turn("buy") as turn:
            async for event in turn:
                if event.type == "step.waiting":
                    (question,) = turn.questions
                    with pytest.raises(GraphTypeError, match="item: required"):
                        await turn.answer(question.id, {"approved": True, "arguments": {"count": 3}})
                    assert [each.id for each in turn.questions] == [question.id]
                    await turn.answer(question.id, {"approved": True, "arguments": {"item": "lamp", "count": 3}})

    assert bought == [3]
