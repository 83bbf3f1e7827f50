"""Asking models: providers, executors, retries and fallbacks, cost."""

from __future__ import annotations

from typing import TYPE_CHECKING

__all__ = [
    "CostTracker",
    "InferenceRequest",
    "LLMDelta",
    "LLMExecutor",
    "LLMProvider",
    "LlmCycle",
    "OpenAIProvider",
    "ProviderExecutor",
    "RecordedCall",
    "RetryConfig",
    "RetryingExecutor",
    "ScriptedProvider",
    "ToolCallPart",
    "ToolSpec",
    "retrying",
    "with_fallback",
]

if TYPE_CHECKING:
    from graphrt.config import RetryConfig
    from graphrt.llm.cost import CostTracker
    from graphrt.llm.executor import InferenceRequest, LlmCycle, LLMExecutor, ProviderExecutor
    from graphrt.llm.openai import OpenAIProvider
    from graphrt.llm.provider import LLMDelta, LLMProvider, ToolCallPart, ToolSpec
    from graphrt.llm.retries import RetryingExecutor, retrying, with_fallback
    from graphrt.llm.scripted import RecordedCall, ScriptedProvider

if not TYPE_CHECKING:
    from graphrt._lazy import lazy_names

    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "graphrt.config": ("RetryConfig",),
            "graphrt.llm.cost": ("CostTracker",),
            "graphrt.llm.executor": ("InferenceRequest", "LlmCycle", "LLMExecutor", "ProviderExecutor"),
            "graphrt.llm.openai": ("OpenAIProvider",),
            "graphrt.llm.provider": ("LLMDelta", "LLMProvider", "ToolCallPart", "ToolSpec"),
            "graphrt.llm.retries": ("RetryingExecutor", "retrying", "with_fallback"),
            "graphrt.llm.scripted": ("RecordedCall", "ScriptedProvider"),
        },
    )
