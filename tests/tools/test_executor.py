"""Answering tool calls: whatever becomes of a call, the model is told."""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio
import anyio.lowlevel
import pytest

from graphrt.errors import ToolError, ToolErrorKind
from graphrt.messages import ToolCall
from graphrt.threads import abandoned_count
from graphrt.tools import (
    FunctionTool,
    ParallelToolExecutor,
    PermissionChecker,
    PermissionDecision,
    SequentialToolExecutor,
    Tool,
    ToolContext,
    ToolDescriptor,
    ToolExecutor,
    ToolGate,
    ToolRegistry,
    ToolResult,
    answer_call,
    function_tool,
    refuse_call,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

pytestmark = pytest.mark.anyio

both_executors = pytest.mark.parametrize("executor", [SequentialToolExecutor, ParallelToolExecutor])


class Stop(BaseException):
    """No Exception: it stands for KeyboardInterrupt, which would end the test run."""


class Deny(PermissionChecker):
    """Deny by name, and remember what was asked."""

    def __init__(self, *denied: str) -> None:
        self.denied = denied
        self.asked: list[tuple[str, Mapping[str, Any], str | None]] = []

    async def check(self, tool_id: str, arguments: Mapping[str, Any], ctx: ToolContext[Any]) -> PermissionDecision:
        self.asked.append((tool_id, arguments, ctx.tool_call_id))
        if tool_id in self.denied:
            return PermissionDecision.deny("only admins may")
        return PermissionDecision.allow()


def recorder(**options: Any) -> tuple[FunctionTool[..., Any], list[str]]:
    """Make the tool ``delete``, and the list of what it has deleted."""
    deleted: list[str] = []

    async def delete(path: str) -> str:
        deleted.append(path)
        return f"deleted {path}"

    return function_tool(delete, **options), deleted


def failing(error: BaseException) -> FunctionTool[..., Any]:
    """Make a tool that raises *error*."""

    @function_tool
    async def save() -> None:
        raise error

    return save


CALL = ToolCall("c-1", "delete", {"path": "/a"})
SAVE = ToolCall("c-2", "save")


# --- one call


async def test_result_of_the_tool_is_the_answer() -> None:
    delete, deleted = recorder()

    result = await answer_call(delete, CALL, ToolContext())

    assert (result.text, result.is_error, deleted) == ("deleted /a", False, ["/a"])


async def test_result_that_a_tool_makes_itself_is_kept() -> None:
    @function_tool
    async def save() -> ToolResult:
        return ToolResult.error("no such shelf")

    result = await answer_call(save, SAVE, ToolContext())

    assert (result.text, result.is_error) == ("no such shelf", True)


async def test_context_names_the_call_and_the_tool() -> None:
    @function_tool
    async def save(ctx: ToolContext[str]) -> list[str | None]:
        return [ctx.run_id, ctx.tool_call_id, ctx.tool_id, ctx.deps]

    result = await answer_call(save, SAVE, ToolContext(run_id="r-1", deps="db"))

    assert result.data == ["r-1", "c-2", "save", "db"]


async def test_unknown_tool_is_told_with_the_known_ones() -> None:
    result = await answer_call(None, CALL, ToolContext(), known=["add", "search"])

    assert result.text == "unknown tool 'delete'; the tools are: add, search"
    assert result.kind is ToolErrorKind.UNKNOWN


async def test_call_with_malformed_arguments_is_not_executed_and_the_parse_error_is_told() -> None:
    """B-111."""
    delete, deleted = recorder()
    call = ToolCall("c-1", "delete", error="Unterminated string at char 9", raw_arguments='{"path": "/')

    result = await answer_call(delete, call, ToolContext())

    assert deleted == []
    assert result.kind is ToolErrorKind.INVALID_ARGUMENTS
    assert "not valid JSON: Unterminated string at char 9" in result.text


async def test_arguments_that_do_not_fit_are_told_and_the_tool_is_not_executed() -> None:
    delete, deleted = recorder()

    result = await answer_call(delete, ToolCall("c-1", "delete", {"file": 1}), ToolContext())

    assert deleted == []
    assert result.kind is ToolErrorKind.INVALID_ARGUMENTS
    assert result.text.splitlines() == [
        "tool 'delete' was not executed: the arguments do not fit:",
        "- path: required, and missing",
        "- file: not an argument of this tool",
    ]


async def test_denied_call_is_not_executed_and_the_reason_is_told() -> None:
    """AC-W33."""
    delete, deleted = recorder()

    result = await answer_call(delete, CALL, ToolContext(), permission=Deny("delete"))

    assert deleted == []
    assert result.kind is ToolErrorKind.DENIED
    assert result.text == "tool 'delete' was not executed: permission denied: only admins may"


async def test_checker_is_asked_about_arguments_that_fit_and_cannot_change_them() -> None:
    delete, deleted = recorder()

    class Meddler(Deny):
        async def check(self, tool_id: str, arguments: Any, ctx: ToolContext[Any]) -> PermissionDecision:
            decision = await super().check(tool_id, dict(arguments), ctx)
            arguments["path"] = "/"
            return decision

    checker = Meddler()
    await answer_call(delete, ToolCall("c-0", "delete"), ToolContext(), permission=checker)
    await answer_call(delete, CALL, ToolContext(), permission=checker)

    assert checker.asked == [("delete", {"path": "/a"}, "c-1")]
    assert deleted == ["/a"]


async def test_failure_of_the_checker_is_raised_and_the_tool_is_not_executed() -> None:
    delete, deleted = recorder()

    class Broken(PermissionChecker):
        async def check(self, tool_id: str, arguments: Any, ctx: ToolContext[Any]) -> PermissionDecision:
            raise ConnectionError("no directory")

    with pytest.raises(ConnectionError):
        await answer_call(delete, CALL, ToolContext(), permission=Broken())
    assert deleted == []


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ValueError("disk full"), "ValueError: disk full"),
        (TimeoutError("no reply"), "TimeoutError: no reply"),
        (ToolError("no such row", hint="for people"), "no such row"),
        (ExceptionGroup("both", [ValueError("a"), KeyError("b")]), "ValueError: a; KeyError: 'b'"),
        (SyntaxError("bad"), "SyntaxError: bad"),
    ],
)
async def test_exception_of_a_tool_is_told(error: Exception, text: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="graphrt"):
        result = await answer_call(failing(error), SAVE, ToolContext())

    assert result.text == f"tool 'save' failed: {text}"
    assert result.cause is error
    assert "save" in caplog.text


async def test_exception_that_cannot_say_what_it_is_is_told_all_the_same() -> None:
    class MuteError(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    result = await answer_call(failing(MuteError()), SAVE, ToolContext())

    assert "MuteError" in result.text


async def test_result_that_cannot_be_shown_is_told() -> None:
    class Mute:
        def __str__(self) -> str:
            raise ValueError("no words")

    loop: list[object] = []
    loop.append(loop)

    @function_tool
    async def save(circle: bool) -> object:
        return loop if circle else Mute()

    for arguments in ({"circle": True}, {"circle": False}):
        result = await answer_call(save, ToolCall("c", "save", arguments), ToolContext())
        assert result.text.startswith("tool 'save' failed: ")


@pytest.mark.parametrize(
    ("data", "text"), [("a\ud800b\0", "a\ufffdb\ufffd"), (b"\xff", "\ufffd"), (["\udfff"], '["\ufffd"]')]
)
async def test_output_that_cannot_be_sent_is_replaced_in_the_message(data: object, text: str) -> None:
    """B-119."""

    @function_tool
    async def save() -> object:
        return data

    message = (await answer_call(save, SAVE, ToolContext())).to_message(SAVE.id)

    assert (message.content, message.tool_call_id) == (text, "c-2")
    assert message.model_dump_json().encode()


async def test_surrogate_in_an_exception_is_replaced() -> None:
    """B-119."""
    result = await answer_call(failing(ValueError("\ud800")), SAVE, ToolContext())

    assert result.text == "tool 'save' failed: ValueError: \ufffd"


async def test_tool_cannot_change_the_call() -> None:
    class Greedy(Tool):
        @property
        def descriptor(self) -> ToolDescriptor:
            return ToolDescriptor("greedy")

        async def execute(self, arguments: dict[str, Any], ctx: ToolContext[Any]) -> str:
            arguments["items"].clear()
            return "eaten"

    call = ToolCall("c-1", "greedy", {"items": [1, 2]})

    assert (await answer_call(Greedy(), call, ToolContext())).text == "eaten"
    assert call.arguments == {"items": [1, 2]}


class Weather(Tool):
    """A tool that brings its own schema."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self._schema = schema

    @property
    def descriptor(self) -> ToolDescriptor:
        return ToolDescriptor("weather", parameters=self._schema)

    async def execute(self, arguments: dict[str, Any], ctx: ToolContext[Any]) -> Any:
        return arguments["days"]


async def test_tool_with_a_schema_of_its_own_is_checked_by_it() -> None:
    tool = Weather({"type": "object", "properties": {"days": {"type": "integer"}}, "required": ["days"]})

    good = await answer_call(tool, ToolCall("c", "weather", {"days": 3}), ToolContext())
    bad = await answer_call(tool, ToolCall("c", "weather", {"days": "3"}), ToolContext())

    assert good.data == 3
    assert "- days: '3' is not of type 'integer'" in bad.text


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        ({"type": 7}, "are no JSON Schema"),
        ({"default": object()}, "are no JSON Schema"),
        ({"$ref": "http://schemas.invalid/days"}, "Unresolvable"),  # and nothing is fetched
    ],
)
async def test_schema_that_cannot_be_used_is_told(schema: Mapping[str, Any], text: str) -> None:
    result = await answer_call(Weather(schema), ToolCall("c", "weather", {"days": 3}), ToolContext())

    assert text in result.text


# --- approval


async def test_tool_that_needs_approval_is_not_executed_without_anybody_to_ask() -> None:
    delete, deleted = recorder(requires_approval=True)

    result = await answer_call(delete, CALL, ToolContext())

    assert deleted == []
    assert "needs a person's approval" in result.text


@pytest.mark.parametrize("yes", [True, False])
async def test_person_decides_on_a_tool_that_needs_approval(yes: bool) -> None:
    delete, deleted = recorder(requires_approval=True)

    async def ask(tool: Tool, call: ToolCall, ctx: ToolContext[Any]) -> PermissionDecision:
        assert (tool, call.arguments, ctx.tool_call_id) == (delete, {"path": "/a"}, "c-1")
        return PermissionDecision.allow() if yes else PermissionDecision.deny("not today")

    result = await answer_call(delete, CALL, ToolContext(), approve=ask)

    assert (deleted, result.is_error) == ((["/a"], False) if yes else ([], True))
    assert yes or "not today" in result.text


async def test_nobody_is_asked_about_a_call_that_cannot_be_made() -> None:
    delete, _ = recorder(requires_approval=True)

    refused = await refuse_call(delete, ToolCall("c-1", "delete"), ToolContext())

    assert refused is not None
    assert refused.kind is ToolErrorKind.INVALID_ARGUMENTS
    assert await refuse_call(delete, CALL, ToolContext()) is None


# --- time and cancellation


async def test_tool_out_of_time_is_stopped_and_told() -> None:
    stopped: list[str] = []

    @function_tool(timeout=0.01)
    async def save() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            stopped.append("save")

    result = await answer_call(save, SAVE, ToolContext())

    assert result.text == "tool 'save' was stopped: it had no result after 0.01 seconds"
    assert (result.kind, stopped) == (ToolErrorKind.TIMEOUT, ["save"])


@pytest.mark.parametrize(("own", "given"), [(0.01, 60), (60, 0.01), (None, 0.01)])
async def test_nearest_limit_wins(own: float | None, given: float) -> None:
    @function_tool(timeout=own)
    async def save() -> None:
        await anyio.sleep_forever()

    assert "after 0.01 seconds" in (await answer_call(save, SAVE, ToolContext(), timeout=given)).text


async def test_synchronous_tool_out_of_time_is_told_while_its_thread_goes_on() -> None:
    """B-049."""
    gate = threading.Event()
    late: list[str] = []

    @function_tool(timeout=0.01)
    def save() -> str:
        gate.wait()
        late.append("saved")
        return "saved"

    before = abandoned_count()
    result = await answer_call(save, SAVE, ToolContext())

    assert (result.kind, late, abandoned_count()) == (ToolErrorKind.TIMEOUT, [], before + 1)
    gate.set()
    with anyio.fail_after(10):
        while abandoned_count() > before:  # noqa: ASYNC110  what is waited for is no event of this loop
            await anyio.sleep(0.001)
    assert result.is_error


async def test_deadline_around_the_call_is_not_turned_into_text() -> None:
    @function_tool(timeout=60)
    async def save() -> None:
        await anyio.sleep_forever()

    with pytest.raises(TimeoutError), anyio.fail_after(0.01):
        await answer_call(save, SAVE, ToolContext())


async def test_cancellation_is_not_turned_into_text() -> None:
    answers: list[ToolResult] = []

    @function_tool
    async def save() -> None:
        scope.cancel()
        await anyio.sleep_forever()

    with anyio.CancelScope() as scope:
        answers.append(await answer_call(save, SAVE, ToolContext()))

    assert scope.cancelled_caught
    assert answers == []


@pytest.mark.parametrize("synchronous", [True, False])
async def test_what_is_no_exception_passes_through(synchronous: bool) -> None:
    @function_tool
    def save() -> None:
        raise Stop

    with pytest.raises(Stop):
        await answer_call(save if synchronous else failing(Stop()), SAVE, ToolContext())


# --- several calls


def registry_of(*tools: Tool | Callable[..., Any], checker: PermissionChecker | None = None) -> ToolRegistry:
    registry = ToolRegistry(permission_checker=checker)
    for tool in tools:
        registry.register(tool)
    return registry


@both_executors
async def test_every_call_is_answered_whatever_becomes_of_it(executor: type[ToolExecutor]) -> None:
    """X-34."""
    delete, deleted = recorder()
    save = failing(ValueError("disk full"))
    calls = [CALL, SAVE, ToolCall("c-3", "gone"), ToolCall("c-4", "delete", error="cut"), CALL]

    results = await executor(registry_of(delete, save)).execute(calls)

    assert [result.kind for result in results] == [
        None,
        ToolErrorKind.EXECUTION,
        ToolErrorKind.UNKNOWN,
        ToolErrorKind.INVALID_ARGUMENTS,
        None,
    ]
    assert "the tools are: delete, save" in results[2].text
    assert deleted == ["/a", "/a"]


@both_executors
async def test_registrys_checker_is_asked(executor: type[ToolExecutor]) -> None:
    """AC-W33: the others go on."""
    delete, deleted = recorder()
    registry = registry_of(delete, add_one, checker=Deny("delete"))

    denied, added = await executor(registry).execute([CALL, ToolCall("c-2", "add_one", {"a": 1})])

    assert (deleted, denied.kind, added.data) == ([], ToolErrorKind.DENIED, 2)


def add_one(a: int) -> int:
    return a + 1


async def test_results_are_in_the_order_of_the_calls_not_of_their_ends() -> None:
    """B-120."""
    ended: list[int] = []
    turns = [anyio.Event() for _ in range(4)]
    turns[3].set()

    async def wait(number: int) -> str:
        await turns[number + 1].wait()
        ended.append(number)
        turns[number].set()
        return f"result {number}"

    calls = [ToolCall(f"c-{number}", "wait", {"number": number}) for number in range(3)]
    results = await ParallelToolExecutor(registry_of(wait)).execute(calls)

    assert ended == [2, 1, 0]
    assert [result.text for result in results] == ["result 0", "result 1", "result 2"]


async def test_synchronous_tools_run_side_by_side() -> None:
    """B-052."""
    everyone = threading.Barrier(10)

    def meet() -> int:
        return everyone.wait(10)

    calls = [ToolCall(f"c-{number}", "meet") for number in range(10)]
    results = await ParallelToolExecutor(registry_of(meet)).execute(calls)

    assert sorted(result.data for result in results) == list(range(10))


async def test_exclusive_tool_runs_alone_and_in_its_place() -> None:
    """D-30."""
    steps: list[str] = []

    async def log(name: str) -> None:
        steps.append(f"+{name}")
        for _ in range(5):
            await anyio.lowlevel.checkpoint()
        steps.append(f"-{name}")

    @function_tool
    async def read(name: str) -> None:
        await log(name)

    @function_tool(exclusive=True)
    async def write(name: str) -> None:
        await log(name)

    calls = [ToolCall(f"c-{name}", "write" if name in "XY" else "read", {"name": name}) for name in "abXYcd"]
    await ParallelToolExecutor(registry_of(read, write)).execute(calls)

    assert [set(steps[:2]), set(steps[2:4])] == [{"+a", "+b"}, {"-a", "-b"}]
    assert steps[4:8] == ["+X", "-X", "+Y", "-Y"]
    assert [set(steps[8:10]), set(steps[10:])] == [{"+c", "+d"}, {"-c", "-d"}]


async def test_cancelled_turn_gives_its_place_back() -> None:
    gate = ToolGate()
    order: list[str] = []

    async def enter(name: str, *, exclusive: bool) -> None:
        async with gate.turn(exclusive=exclusive):
            order.append(name)

    async with anyio.create_task_group() as tasks, gate.turn(exclusive=False):
        with anyio.move_on_after(0.001):
            await enter("cancelled", exclusive=True)
        await enter("reader", exclusive=False)
        tasks.start_soon(partial(enter, "writer", exclusive=True))
        await anyio.wait_all_tasks_blocked()
        assert order == ["reader"]

    assert order == ["reader", "writer"]


async def test_what_is_no_exception_cancels_the_siblings_and_leaves_bare() -> None:
    stopped: list[str] = []
    started = anyio.Event()

    async def wait() -> None:
        started.set()
        try:
            await anyio.sleep_forever()
        finally:
            stopped.append("wait")

    async def halt() -> None:
        await started.wait()
        raise Stop

    executor = ParallelToolExecutor(registry_of(wait, halt))
    with pytest.raises(Stop):
        await executor.execute([ToolCall("c-1", "wait"), ToolCall("c-2", "halt")])

    assert stopped == ["wait"]


@both_executors
async def test_cancellation_ends_all_calls(executor: type[ToolExecutor]) -> None:
    started: list[str] = []
    ended: list[str] = []
    at_once = 2 if executor is ParallelToolExecutor else 1

    async def wait(name: str) -> None:
        started.append(name)
        if len(started) == at_once:
            scope.cancel()
        try:
            await anyio.sleep_forever()
        finally:
            ended.append(name)

    calls = [ToolCall(f"c-{name}", "wait", {"name": name}) for name in "ab"]
    with anyio.CancelScope() as scope:
        await executor(registry_of(wait)).execute(calls)

    assert scope.cancelled_caught
    assert sorted(ended) == ["a", "b"][:at_once]


async def test_time_limit_of_the_executor_counts_for_each_call() -> None:
    async def wait() -> None:
        await anyio.sleep_forever()

    results = await ParallelToolExecutor(registry_of(wait, add_one), timeout=0.01).execute(
        [ToolCall("c-1", "wait"), ToolCall("c-2", "add_one", {"a": 1})]
    )

    assert [result.kind for result in results] == [ToolErrorKind.TIMEOUT, None]


def test_import_of_the_package_loads_nothing_that_is_not_asked_for() -> None:
    script = "import sys, graphrt.tools; print(sorted({'pydantic', 'jsonschema', 'anyio'} & set(sys.modules)))"

    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)

    assert done.stdout == "[]\n", done.stderr


def test_function_tools_do_without_jsonschema() -> None:
    script = """
import sys
from graphrt.tools import function_tool
function_tool(lambda a: a, id="same").check({"a": 1})
print("jsonschema" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)

    assert done.stdout == "False\n", done.stderr
