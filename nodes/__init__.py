"""The kinds of node that a graph is made of.

This folder is the import package `graphrt.nodes`, wherever it lies in the source tree.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if __name__ != "graphrt.nodes":
    raise ImportError(
        f"this folder is the package 'graphrt.nodes' and cannot be imported as {__name__!r}\n"
        "  hint: write 'from graphrt.nodes import ...'; under two names every class would exist twice",
        name=__name__,
        path=__file__,
    )

__all__ = [
    "AgentNode",
    "AgentParts",
    "Approval",
    "Ask",
    "DelegateNode",
    "FallbackNode",
    "FunctionNode",
    "GraphNode",
    "InferenceNode",
    "JoinNode",
    "PlanStepNode",
    "RouterNode",
    "ToolNode",
    "UnknownToolNode",
    "Wait",
    "compile_agent",
    "compile_plan",
]

if TYPE_CHECKING:
    from graphrt.nodes.agent import AgentNode
    from graphrt.nodes.agent_graph import AgentParts, compile_agent
    from graphrt.nodes.approval import Approval
    from graphrt.nodes.ask import Ask
    from graphrt.nodes.delegate import DelegateNode
    from graphrt.nodes.function import FunctionNode, JoinNode, RouterNode
    from graphrt.nodes.graph import GraphNode
    from graphrt.nodes.inference import FallbackNode, InferenceNode
    from graphrt.nodes.plan import PlanStepNode, compile_plan
    from graphrt.nodes.tool import ToolNode, UnknownToolNode
    from graphrt.nodes.wait import Wait

if not TYPE_CHECKING:
    from graphrt._lazy import lazy_names

    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "graphrt.nodes.agent": ("AgentNode",),
            "graphrt.nodes.agent_graph": ("AgentParts", "compile_agent"),
            "graphrt.nodes.approval": ("Approval",),
            "graphrt.nodes.ask": ("Ask",),
            "graphrt.nodes.delegate": ("DelegateNode",),
            "graphrt.nodes.function": ("FunctionNode", "JoinNode", "RouterNode"),
            "graphrt.nodes.graph": ("GraphNode",),
            "graphrt.nodes.inference": ("FallbackNode", "InferenceNode"),
            "graphrt.nodes.plan": ("PlanStepNode", "compile_plan"),
            "graphrt.nodes.tool": ("ToolNode", "UnknownToolNode"),
            "graphrt.nodes.wait": ("Wait",),
        },
    )
