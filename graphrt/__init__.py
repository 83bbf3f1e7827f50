"""Workflows of functions, agents and tools, written as graphs in plain Python.

What is needed on the first day is here; the rest is in the subpackages. A name is loaded when it is first
used, so `import graphrt` costs nothing for the parts that a program does without.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

__version__ = "0.1.0.dev0"

__all__ = [
    "END",
    "START",
    "Agent",
    "AgentBuilder",
    "AgentConfig",
    "AgentError",
    "AgentNode",
    "AgentRuntime",
    "AgentRuntimeBuilder",
    "AgentSession",
    "AgentSpec",
    "Ask",
    "Budget",
    "CompiledGraph",
    "ConfigError",
    "Failure",
    "GraphError",
    "GraphTypeError",
    "GraphrtError",
    "HookEvent",
    "HookExecutor",
    "InvalidTransitionError",
    "JsonPlanParser",
    "LLMProvider",
    "LimitExceededError",
    "LlmError",
    "Message",
    "ModelSpec",
    "OpenAIProvider",
    "Plan",
    "Plugin",
    "RateLimit",
    "Reduce",
    "RetryPolicy",
    "RunCancelledError",
    "RunContext",
    "RunControl",
    "RunEvent",
    "RunResult",
    "Session",
    "SessionTaskAgent",
    "SimpleAgent",
    "SqliteRunLedgerStore",
    "StateConflictError",
    "Step",
    "ToolError",
    "ToolRegistry",
    "Update",
    "Workflow",
    "__version__",
    "configure_tracing",
    "function_tool",
    "retrying",
    "with_fallback",
]

if TYPE_CHECKING:
    from graphrt.agent import (
        Agent,
        AgentBuilder,
        AgentRuntime,
        AgentSession,
        JsonPlanParser,
        Plan,
        Session,
        SessionTaskAgent,
        SimpleAgent,
        Step,
    )
    from graphrt.config import AgentConfig
    from graphrt.errors import (
        AgentError,
        ConfigError,
        GraphError,
        GraphrtError,
        GraphTypeError,
        InvalidTransitionError,
        LimitExceededError,
        LlmError,
        RunCancelledError,
        StateConflictError,
        ToolError,
    )
    from graphrt.graph import (
        END,
        START,
        CompiledGraph,
        Failure,
        Reduce,
        RunContext,
        RunEvent,
        RunResult,
        Update,
        Workflow,
    )
    from graphrt.hooks import HookEvent, HookExecutor
    from graphrt.ledger import RunControl, SqliteRunLedgerStore
    from graphrt.llm import LLMProvider, OpenAIProvider, retrying, with_fallback
    from graphrt.messages import Message
    from graphrt.nodes import AgentNode, Ask
    from graphrt.plugins import Plugin
    from graphrt.policies import Budget, RateLimit, RetryPolicy
    from graphrt.registry import AgentRuntimeBuilder, AgentSpec, ModelSpec
    from graphrt.telemetry import configure_tracing
    from graphrt.tools import ToolRegistry, function_tool

if not TYPE_CHECKING:
    from graphrt._lazy import lazy_names

    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "graphrt.agent": (
                "Agent",
                "AgentBuilder",
                "AgentRuntime",
                "AgentSession",
                "JsonPlanParser",
                "Plan",
                "Session",
                "SessionTaskAgent",
                "SimpleAgent",
                "Step",
            ),
            "graphrt.config": ("AgentConfig",),
            "graphrt.errors": (
                "AgentError",
                "ConfigError",
                "GraphError",
                "GraphTypeError",
                "GraphrtError",
                "InvalidTransitionError",
                "LimitExceededError",
                "LlmError",
                "RunCancelledError",
                "StateConflictError",
                "ToolError",
            ),
            "graphrt.graph": (
                "END",
                "START",
                "CompiledGraph",
                "Failure",
                "Reduce",
                "RunContext",
                "RunEvent",
                "RunResult",
                "Update",
                "Workflow",
            ),
            "graphrt.hooks": ("HookEvent", "HookExecutor"),
            "graphrt.ledger": ("RunControl", "SqliteRunLedgerStore"),
            "graphrt.llm": ("LLMProvider", "OpenAIProvider", "retrying", "with_fallback"),
            "graphrt.messages": ("Message",),
            "graphrt.nodes": ("AgentNode", "Ask"),
            "graphrt.plugins": ("Plugin",),
            "graphrt.policies": ("Budget", "RateLimit", "RetryPolicy"),
            "graphrt.registry": ("AgentRuntimeBuilder", "AgentSpec", "ModelSpec"),
            "graphrt.telemetry": ("configure_tracing",),
            "graphrt.tools": ("ToolRegistry", "function_tool"),
        },
    )
