"""Tools: what a model can call, and how its calls are answered."""

from __future__ import annotations

from typing import TYPE_CHECKING

__all__ = [
    "AgentTool",
    "FunctionTool",
    "McpOptions",
    "McpServer",
    "McpTool",
    "ParallelToolExecutor",
    "PermissionChecker",
    "PermissionDecision",
    "RetrieveTool",
    "SequentialToolExecutor",
    "Tool",
    "ToolContext",
    "ToolDefinition",
    "ToolDescriptor",
    "ToolExecutor",
    "ToolGate",
    "ToolRegistry",
    "ToolResult",
    "answer_call",
    "function_tool",
    "refuse_call",
]

if TYPE_CHECKING:
    from graphrt.tools.base import Tool, ToolContext, ToolDefinition, ToolDescriptor, ToolResult
    from graphrt.tools.delegate import AgentTool
    from graphrt.tools.executor import (
        ParallelToolExecutor,
        SequentialToolExecutor,
        ToolExecutor,
        ToolGate,
        answer_call,
        refuse_call,
    )
    from graphrt.tools.function import FunctionTool, function_tool
    from graphrt.tools.mcp import McpOptions, McpServer, McpTool
    from graphrt.tools.permission import PermissionChecker, PermissionDecision
    from graphrt.tools.registry import ToolRegistry
    from graphrt.tools.retrieve import RetrieveTool

if not TYPE_CHECKING:
    from graphrt._lazy import lazy_names

    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "graphrt.tools.base": ("Tool", "ToolContext", "ToolDefinition", "ToolDescriptor", "ToolResult"),
            "graphrt.tools.delegate": ("AgentTool",),
            "graphrt.tools.executor": (
                "ParallelToolExecutor",
                "SequentialToolExecutor",
                "ToolExecutor",
                "ToolGate",
                "answer_call",
                "refuse_call",
            ),
            "graphrt.tools.function": ("FunctionTool", "function_tool"),
            "graphrt.tools.mcp": ("McpOptions", "McpServer", "McpTool"),
            "graphrt.tools.permission": ("PermissionChecker", "PermissionDecision"),
            "graphrt.tools.registry": ("ToolRegistry",),
            "graphrt.tools.retrieve": ("RetrieveTool",),
        },
    )
