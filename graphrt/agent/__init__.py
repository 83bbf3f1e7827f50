"""Agents in conversation: roles, sessions, plans, and the runtime that runs the agents of registries.

None of these has a loop of its own: each turn is one run of the agent's compiled graph.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

__all__ = [
    "Agent",
    "AgentBuilder",
    "AgentCycle",
    "AgentRunStream",
    "AgentRuntime",
    "AgentRuntimeBuilder",
    "AgentSession",
    "FailurePolicy",
    "GatewayMessage",
    "JsonPlanParser",
    "Plan",
    "PlanParser",
    "RunRequest",
    "RunResult",
    "RuntimeBundle",
    "Session",
    "SessionTaskAgent",
    "SimpleAgent",
    "Step",
    "StepState",
    "StepStatus",
    "SystemPromptBuilder",
    "TaskAgent",
    "TurnStream",
]

if TYPE_CHECKING:
    from graphrt.agent.agent import Agent, SimpleAgent
    from graphrt.agent.builder import AgentBuilder
    from graphrt.agent.bundle import RuntimeBundle
    from graphrt.agent.cycle import AgentCycle
    from graphrt.agent.gateway import GatewayMessage
    from graphrt.agent.parser import JsonPlanParser, PlanParser
    from graphrt.agent.plan import FailurePolicy, Plan, Step, StepState, StepStatus
    from graphrt.agent.run_request import RunRequest
    from graphrt.agent.runtime import AgentRuntime
    from graphrt.agent.runtime_builder import AgentRuntimeBuilder
    from graphrt.agent.session import AgentSession
    from graphrt.agent.session_state import Session
    from graphrt.agent.task import SessionTaskAgent, TaskAgent
    from graphrt.agent.watching import AgentRunStream, TurnStream
    from graphrt.config import SystemPromptBuilder
    from graphrt.graph import RunResult

if not TYPE_CHECKING:
    from graphrt._lazy import lazy_names

    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "graphrt.agent.agent": ("Agent", "SimpleAgent"),
            "graphrt.agent.builder": ("AgentBuilder",),
            "graphrt.agent.bundle": ("RuntimeBundle",),
            "graphrt.agent.cycle": ("AgentCycle",),
            "graphrt.agent.gateway": ("GatewayMessage",),
            "graphrt.agent.parser": ("JsonPlanParser", "PlanParser"),
            "graphrt.agent.plan": ("FailurePolicy", "Plan", "Step", "StepState", "StepStatus"),
            "graphrt.agent.run_request": ("RunRequest",),
            "graphrt.agent.runtime": ("AgentRuntime",),
            "graphrt.agent.runtime_builder": ("AgentRuntimeBuilder",),
            "graphrt.agent.session": ("AgentSession",),
            "graphrt.agent.session_state": ("Session",),
            "graphrt.agent.task": ("SessionTaskAgent", "TaskAgent"),
            "graphrt.agent.watching": ("AgentRunStream", "TurnStream"),
            "graphrt.config": ("SystemPromptBuilder",),
            "graphrt.graph": ("RunResult",),
        },
    )
