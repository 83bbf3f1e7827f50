"""The engine: workflows, their compiled graphs, and the scheduler that runs them.

Numbers such as E5 in its docstrings are those of the rules in RULES.md, beside this file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

__all__ = [
    "END",
    "START",
    "Budget",
    "BudgetTracker",
    "CancelAnswer",
    "CompiledGraph",
    "Edge",
    "Failure",
    "GraphScheduler",
    "Limiter",
    "Node",
    "NodeKind",
    "NodeState",
    "Question",
    "RateLimit",
    "Reduce",
    "RetryPolicy",
    "RunContext",
    "RunEvent",
    "RunResult",
    "RunStatus",
    "RunStream",
    "StepRecord",
    "StepRef",
    "Termination",
    "TerminationKind",
    "Update",
    "Workflow",
]

if TYPE_CHECKING:
    from graphrt.graph.declared import Edge
    from graphrt.graph.graph import CompiledGraph
    from graphrt.graph.protocols import END, START, Failure, Node, NodeKind, Question, RunEvent, StepRef
    from graphrt.graph.scheduler.context import RunContext
    from graphrt.graph.scheduler.limits import BudgetTracker, Limiter
    from graphrt.graph.scheduler.result import RunResult
    from graphrt.graph.scheduler.run import GraphScheduler
    from graphrt.graph.scheduler.steprecord import StepRecord
    from graphrt.graph.scheduler.stream import CancelAnswer, RunStream
    from graphrt.graph.state import Update
    from graphrt.graph.statemodel import Reduce
    from graphrt.graph.states import NodeState, RunStatus, Termination, TerminationKind
    from graphrt.graph.workflow import Workflow
    from graphrt.policies import Budget, RateLimit, RetryPolicy

if not TYPE_CHECKING:
    from graphrt._lazy import lazy_names

    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "graphrt.graph.declared": ("Edge",),
            "graphrt.graph.graph": ("CompiledGraph",),
            "graphrt.graph.protocols": (
                "END",
                "START",
                "Failure",
                "Node",
                "NodeKind",
                "Question",
                "RunEvent",
                "StepRef",
            ),
            "graphrt.graph.scheduler.context": ("RunContext",),
            "graphrt.graph.scheduler.limits": ("BudgetTracker", "Limiter"),
            "graphrt.graph.scheduler.result": ("RunResult",),
            "graphrt.graph.scheduler.run": ("GraphScheduler",),
            "graphrt.graph.scheduler.steprecord": ("StepRecord",),
            "graphrt.graph.scheduler.stream": ("CancelAnswer", "RunStream"),
            "graphrt.graph.state": ("Update",),
            "graphrt.graph.statemodel": ("Reduce",),
            "graphrt.graph.states": ("NodeState", "RunStatus", "Termination", "TerminationKind"),
            "graphrt.graph.workflow": ("Workflow",),
            "graphrt.policies": ("Budget", "RateLimit", "RetryPolicy"),
        },
    )
