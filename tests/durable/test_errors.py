"""Exceptions as JSON: the class is the same if it is known, the text in any case (E25)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphrt import END, START, RetryPolicy, Workflow, errors
from graphrt.errors import (
    AgentLlmError,
    GraphError,
    HookBlockedError,
    LimitExceededError,
    LlmError,
    LlmErrorKind,
    RecordedError,
    RunCancelledError,
    ToolError,
    ToolErrorKind,
)
from graphrt.graph.durable.errors import dump_error, known_errors, load_error


class NamedError(Exception):
    """What the graph names on an edge."""

    def __init__(self, code: int, *, where: str) -> None:
        super().__init__(f"code {code} at {where}")
        self.code = code
        self.where = where
        self.tried: tuple[int, ...] = ()


class RetriedError(ConnectionError):
    """What the graph names in a policy."""


class UnnamedError(ConnectionError):
    """What the graph does not name, of a class that Python has."""


class AlienError(Exception):
    """What the graph does not name."""


class StubbornError(Exception):
    """Cannot be written as text, nor be made again."""

    def __init__(self) -> None:
        super().__init__(object())
        self._lines = ["a"]

    def __str__(self) -> str:
        return self._lines[0]


def known(*more: type[Exception]) -> dict[str, type[BaseException]]:
    """List the classes that a small graph knows."""
    workflow = Workflow("w")

    @workflow.node(retry=RetryPolicy(retry_on=(RetriedError, TimeoutError)))
    async def work(x: int) -> int:
        return x

    @workflow.node
    async def mend(error: Exception) -> int:
        return 0

    workflow.chain(START, work, END)
    workflow.edge(work, mend, on_error=(NamedError, *more))
    workflow.chain(mend, END)
    return known_errors(workflow.compile().program)


def through(error: BaseException, *more: type[Exception]) -> Any:
    """Write an exception as JSON text and read it back."""
    text = json.dumps(dump_error(error), ensure_ascii=False, allow_nan=False)
    text.encode()
    return load_error(json.loads(text), known(*more))


SAME: list[BaseException] = [
    ValueError("bad", 3),
    ValueError(),
    KeyError("a"),
    TimeoutError("late"),
    FileNotFoundError(2, "no such file", "/x"),
    ConnectionRefusedError(111, "refused"),
    ImportError("no", name="x", path="/y"),
    StopAsyncIteration(),
    KeyboardInterrupt(),
    SystemExit(3),
    ZeroDivisionError("division by zero"),
    UnicodeError("odd"),
    RetriedError("again"),
    GraphError("wrong", hint="mend it"),
    LimitExceededError("too many", limit="max_steps"),
    LimitExceededError(limit="timeout"),
    LlmError("slow down", LlmErrorKind.RATE_LIMITED, retry_after=2.5, status=429),
    LlmError(LlmErrorKind.OVERLOADED),
    ToolError(ToolErrorKind.DENIED, "save"),
    HookBlockedError("no", event="input", hook="check"),
    RunCancelledError("stopped", reason="user"),
    errors.ToolIdConflictError("t", "a", "b"),
    errors.RunControlError("conflict", "twice", retryable=True, details={"a": 1}),
    errors.InvalidPluginConfigError("p", "k", "bad"),
]


@pytest.mark.parametrize("error", SAME, ids=lambda error: type(error).__name__)
def test_known_error_comes_back_as_it_was(error: BaseException) -> None:
    back = through(error)
    assert type(back) is type(error)
    assert str(back) == str(error)
    assert back.args == error.args
    assert vars(back) == vars(error)


def test_class_on_an_edge_comes_back_with_its_fields_and_without_its_constructor() -> None:
    back = through(NamedError(7, where="x"))
    assert type(back) is NamedError
    assert (str(back), back.code, back.where) == ("code 7 at x", 7, "x")
    assert back.tried is None  # a tuple is no JSON


def test_error_that_nobody_knows_says_what_it_was() -> None:
    error = AlienError("gone", 3)
    back = through(error)
    assert type(back) is RecordedError
    assert (back.type_name, back.recorded_message, back.arguments) == (
        f"{__name__}.AlienError",
        "('gone', 3)",
        ("gone", 3),
    )
    assert "AlienError: ('gone', 3)" in str(back)


def test_recorded_error_written_again_stands_for_the_same() -> None:
    first = dump_error(UnnamedError("gone", 3))
    back = load_error(first, known())
    assert dump_error(back) == first
    assert type(load_error(dump_error(back), known(UnnamedError))) is UnnamedError
    mine = RecordedError("mine.Gone", "text", ("a",))
    assert str(through(mine)) == str(mine)


def test_unknown_error_is_still_caught_as_the_known_class_above_it() -> None:
    """An edge for ConnectionError took it, and takes it again."""
    back = through(UnnamedError("reset"))
    assert isinstance(back, RecordedError)
    assert isinstance(back, ConnectionError)
    assert isinstance(back, OSError)
    assert "UnnamedError: reset" in str(back)
    assert not isinstance(through(AlienError("x")), OSError)


def test_unknown_error_of_an_own_class_keeps_its_fields() -> None:
    class StoppedError(LimitExceededError):
        pass

    back = through(StoppedError("enough", limit="pages"))
    assert isinstance(back, RecordedError)
    assert isinstance(back, LimitExceededError)
    assert back.limit == "pages"
    assert "StoppedError: enough" in str(back)


def test_known_class_that_cannot_be_made_again_is_still_caught() -> None:
    back = through(UnicodeDecodeError("utf-8", b"\xff", 0, 1, "odd"))
    assert isinstance(back, UnicodeDecodeError)
    assert isinstance(back, RecordedError)
    assert "'utf-8' codec can't decode" in str(back)
    back = through(StubbornError(), StubbornError)
    assert isinstance(back, StubbornError)


def test_group_comes_back_with_the_errors_in_it() -> None:
    back = through(ExceptionGroup("several", [ValueError("a"), UnnamedError("b")]))
    assert type(back) is ExceptionGroup
    assert str(back) == "several (2 sub-exceptions)"
    assert [isinstance(each, RecordedError) for each in back.exceptions] == [False, True]


def test_cause_is_kept_and_decides_whether_another_try_may_help() -> None:
    error = AgentLlmError("no answer", cause=LlmError("slow", LlmErrorKind.OVERLOADED))
    back = through(error)
    assert back.is_recoverable()
    assert isinstance(back.cause, LlmError)


def test_chain_of_causes_that_goes_round_is_cut() -> None:
    one, other = ValueError("a"), ValueError("b")
    one.__cause__, other.__cause__ = other, one
    assert str(through(one)) == "a"


def test_text_that_is_no_unicode_is_mended() -> None:
    assert str(through(ValueError("\ud800"))) == "\ufffd"
    assert through(ValueError("a\0b")).args == ("a\0b",)


def test_notes_are_not_stored_as_they_are_made_again() -> None:
    error = ValueError("x")
    error.add_note("in node 'a'")
    assert not hasattr(through(error), "__notes__")


@settings(max_examples=100)
@given(
    st.lists(st.none() | st.integers() | st.floats() | st.text(st.characters()) | st.binary() | st.just(object())),
    st.sampled_from(
        [
            ValueError,
            OSError,
            KeyError,
            AlienError,
            UnnamedError,
            RetriedError,
            GraphError,
            ExceptionGroup,
            UnicodeDecodeError,
        ]
    ),
)
def test_whatever_an_error_holds_it_is_written_and_read(args: list[Any], cls: Any) -> None:
    try:
        error = cls(*args)
    except (TypeError, ValueError):
        return
    back = through(error)
    assert isinstance(back, cls if cls is not AlienError and cls is not UnnamedError else RecordedError)
    assert dump_error(through(back))["type"] == dump_error(error)["type"]
