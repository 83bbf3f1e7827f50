from __future__ import annotations

import copy
import pickle
import subprocess
import sys

import pytest

from graphrt.errors import (
    AgentError,
    AgentErrorKind,
    AgentLlmError,
    AgentMemoryError,
    AgentNotFoundError,
    AgentToolError,
    BuildError,
    ConfigError,
    GraphrtError,
    HookBlockedError,
    InvalidTransitionError,
    LimitExceededError,
    LlmError,
    LlmErrorKind,
    MemoryStoreError,
    OtherAgentError,
    PlanParseError,
    RecordedError,
    RunCancelledError,
    RunControlError,
    ToolError,
    ToolErrorKind,
    ToolIdConflictError,
)

RECOVERABLE = {
    LlmErrorKind.PROVIDER,
    LlmErrorKind.RATE_LIMITED,
    LlmErrorKind.OVERLOADED,
    LlmErrorKind.TIMEOUT,
}


def test_hint_stands_on_a_line_of_its_own() -> None:
    error = GraphrtError("node 'a' is unknown", hint="add it")
    assert str(error) == "node 'a' is unknown\n  hint: add it"
    assert (error.message, error.hint) == ("node 'a' is unknown", "add it")


def test_error_without_a_hint_is_its_message() -> None:
    assert str(GraphrtError("nothing to run")) == "nothing to run"


@pytest.mark.parametrize("kind", LlmErrorKind)
def test_kind_decides_whether_a_model_may_be_asked_again(kind: LlmErrorKind) -> None:
    assert LlmError("no", kind).is_recoverable() is (kind in RECOVERABLE)
    assert AgentLlmError("no", cause=LlmError("no", kind)).is_recoverable() is (kind in RECOVERABLE)


def test_llm_error_takes_kind_and_text_in_either_order() -> None:
    first = LlmError(LlmErrorKind.RATE_LIMITED, "slow down", retry_after=3)
    second = LlmError("slow down", kind="rate_limited", retry_after=3, status=429)
    assert (first.kind, first.message) == (second.kind, second.message)
    assert first.retry_after == second.retry_after == 3
    assert second.status == 429
    assert LlmError(LlmErrorKind.TIMEOUT).kind is LlmErrorKind.TIMEOUT


def test_tool_error_names_its_tool() -> None:
    error = ToolError(ToolErrorKind.TIMEOUT, "search")
    assert (error.kind, error.tool_name) == (ToolErrorKind.TIMEOUT, "search")
    assert "'search'" in str(error)


@pytest.mark.parametrize(
    ("error", "recoverable"),
    [
        (AgentMemoryError("gone"), True),
        (MemoryStoreError("gone"), True),
        (PlanParseError("no plan", cause=LlmError("busy", LlmErrorKind.OVERLOADED)), False),
        (ConfigError("no model", cause=LlmError("busy", LlmErrorKind.OVERLOADED)), False),
        (AgentToolError("broken"), False),
        (AgentToolError("broken", cause=ToolError("broken")), False),
        (AgentToolError("broken", cause=LlmError("busy", LlmErrorKind.OVERLOADED)), True),
        (HookBlockedError("no"), False),
        (HookBlockedError("no", cause=MemoryStoreError("gone")), True),
        (LimitExceededError(limit="timeout"), False),
        (LimitExceededError(limit="timeout", cause=LlmError("late", LlmErrorKind.TIMEOUT)), True),
        (OtherAgentError("odd"), False),
        (OtherAgentError("odd", cause=ValueError("odd")), False),
        (OtherAgentError("odd", cause=MemoryStoreError("gone")), True),
        (AgentLlmError("no cause"), False),
    ],
)
def test_agent_errors_are_recoverable_by_kind_or_by_cause(error: AgentError, recoverable: bool) -> None:
    assert error.is_recoverable() is recoverable


def test_error_raised_from_another_has_it_as_cause() -> None:
    busy = LlmError("busy", LlmErrorKind.OVERLOADED)
    with pytest.raises(AgentToolError) as caught:
        raise AgentToolError("broken") from busy
    assert caught.value.cause is busy
    assert caught.value.is_recoverable()


@pytest.mark.parametrize(
    ("error", "wrapper", "kind"),
    [
        (LlmError("busy"), AgentLlmError, AgentErrorKind.LLM),
        (ToolError("broken"), AgentToolError, AgentErrorKind.TOOL),
        (MemoryStoreError("gone"), AgentMemoryError, AgentErrorKind.MEMORY),
        (ValueError("odd"), OtherAgentError, AgentErrorKind.OTHER),
    ],
)
def test_wrapping_keeps_the_error_as_cause(error: Exception, wrapper: type[AgentError], kind: AgentErrorKind) -> None:
    wrapped = AgentError.wrap(error)
    assert type(wrapped) is wrapper
    assert wrapped.kind is kind
    assert wrapped.cause is error
    assert wrapped.__cause__ is error


def test_agent_error_is_never_wrapped_twice() -> None:
    error = PlanParseError("no plan")
    assert AgentError.wrap(error) is error


def test_wrapping_an_error_with_a_hint_keeps_one_hint() -> None:
    assert str(AgentError.wrap(LlmError("no key", hint="set it"))) == "no key\n  hint: set it"


def test_eight_kinds_of_agent_error_exist() -> None:
    assert {kind.value for kind in AgentErrorKind} == {
        "llm",
        "tool",
        "memory",
        "plan_parse",
        "hook_blocked",
        "limit_exceeded",
        "config",
        "other",
    }


def test_block_carries_its_reason() -> None:
    error = HookBlockedError("no", event="pre_request", hook="guard")
    assert error.reason == "no"
    assert str(error) == "blocked by hook 'guard' on pre_request: no"


def test_limit_names_itself() -> None:
    assert LimitExceededError(limit="max_rounds").limit == "max_rounds"
    assert "'max_rounds'" in str(LimitExceededError(limit="max_rounds"))


def test_illegal_move_names_both_ends() -> None:
    error = InvalidTransitionError("a", "succeeded", "running")
    assert (error.entity, error.from_, error.to) == ("a", "succeeded", "running")
    with pytest.raises(InvalidTransitionError, match="'a' is succeeded"):
        raise error


def test_cancelled_run_says_why() -> None:
    assert RunCancelledError(reason="shutdown").reason == "shutdown"
    assert str(RunCancelledError(reason="shutdown")) == "run was cancelled: shutdown"
    assert str(RunCancelledError()) == "run was cancelled"


def test_build_error_reports_every_problem() -> None:
    error = BuildError(problems=[ConfigError("tool 'a' is given twice"), AgentNotFoundError("b")])
    assert str(error) == "tool 'a' is given twice; agent 'b' is not registered"
    assert len(error.problems) == 2


def test_control_error_carries_code_and_details() -> None:
    error = RunControlError("conflict", "run 'r' is over", details={"status": "completed"})
    assert (error.code, error.retryable, error.details) == ("conflict", False, {"status": "completed"})


@pytest.mark.parametrize(
    "error",
    [
        LlmError("slow down", LlmErrorKind.RATE_LIMITED, retry_after=3.0),
        ToolIdConflictError("add", "global", "plugin 'p'"),
        InvalidTransitionError("a", "succeeded", "running"),
        RecordedError("app.Oops", "no", ["x"]),
        LimitExceededError("too much", limit="max_rounds", hint="raise it"),
        RunControlError("not_found", "run 'r' is unknown"),
    ],
)
def test_copied_error_is_the_same(error: GraphrtError) -> None:
    for again in (copy.copy(error), pickle.loads(pickle.dumps(error))):  # noqa: S301  # made one line above
        assert type(again) is type(error)
        assert str(again) == str(error)
        assert vars(again) == vars(error)


def test_notes_can_be_added() -> None:
    error = GraphrtError("no")
    error.add_note("node 'a', round 1")
    assert error.__notes__ == ["node 'a', round 1"]


def test_errors_and_policies_import_nothing_heavy() -> None:
    code = "import sys, graphrt.errors, graphrt.policies, graphrt.retry; print(*sys.modules)"
    modules = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert not {"pydantic", "tenacity", "openai", "anyio"} & set(modules.split())
