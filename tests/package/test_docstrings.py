"""What `help()` says of settings, contexts and members: each is named in the docstring of its class."""

from __future__ import annotations

import dataclasses
import enum
import importlib
import pkgutil
from typing import Any

import pytest
from pydantic import BaseModel

import graphrt.plugins
from graphrt.agent.bundle import RuntimeBundle
from graphrt.agent.gateway import GatewayMessage
from graphrt.agent.plan import FailurePolicy, Plan, Step, StepStatus
from graphrt.agent.run_request import RunRequest
from graphrt.agent.session_state import Session
from graphrt.graph.protocols import Failure, Question, RunEvent, StepRef
from graphrt.graph.scheduler.result import RunResult
from graphrt.llm.executor import InferenceRequest
from graphrt.nodes.plan_order import StepState
from graphrt.tools import McpOptions, ToolContext, ToolDescriptor, ToolResult

MODULES = [
    "graphrt.config",
    "graphrt.graph.states",
    "graphrt.hooks",
    "graphrt.messages",
    "graphrt.policies",
    "graphrt.registry.specs",
    *(f"graphrt.plugins.{each}" for each in ("env", "phases", "plugin", "sections", "state", "tagged")),
]
OTHERS = [
    *(Plan, Step, StepStatus, StepState, FailurePolicy),
    *(RunRequest, RuntimeBundle, Session, GatewayMessage, InferenceRequest),
    *(Question, Failure, StepRef, RunEvent),
    *(McpOptions, ToolContext, ToolDescriptor, ToolResult),
]


def _classes() -> list[type]:
    """List the public models, dataclasses and enumerations."""
    found: list[type] = []
    for name in MODULES:
        values = vars(importlib.import_module(name)).values()
        found += [each for each in values if isinstance(each, type) and each.__module__ == name]
    return [each for each in found if _members(each) and not each.__name__.startswith("_")] + OTHERS


def _members(cls: Any) -> list[str]:
    if issubclass(cls, BaseModel):
        return list(cls.model_fields)
    if dataclasses.is_dataclass(cls):
        return [each.name for each in dataclasses.fields(cls)]
    if issubclass(cls, enum.Enum):
        return list(cls.__members__)
    return list(cls.__annotations__) if cls is McpOptions else []


@pytest.mark.parametrize("cls", _classes(), ids=lambda cls: cls.__name__)
def test_help_names_every_field_and_member(cls: Any) -> None:
    _, found, attributes = (cls.__doc__ or "").partition("Attributes:")
    assert found
    told = [line.strip().partition(":")[0] for line in attributes.splitlines()]
    assert [each for each in _members(cls) if each not in told] == []


def test_there_is_something_to_tell_of() -> None:
    names = {cls.__name__ for cls in _classes()}
    assert {"AgentSpec", "AgentConfig", "RetryConfig", "Phase", "PhaseContext", "HookEvent", "StateKey"} <= names


def test_help_of_a_result_names_what_it_holds() -> None:
    for name in RunResult.__slots__:
        assert name.startswith("_") or f"\n        {name}: " in (RunResult.__doc__ or "")


def test_modules_of_plugins_that_are_left_out_hold_no_public_settings() -> None:
    """A new module with a public dataclass belongs on the list above."""
    public = {
        getattr(graphrt.plugins, name) for name in graphrt.plugins.__all__ if name[0].isupper() and "_" not in name
    }
    for info in pkgutil.iter_modules(graphrt.plugins.__path__, "graphrt.plugins."):
        if info.name not in MODULES:
            for value in vars(importlib.import_module(info.name)).values():
                assert not (dataclasses.is_dataclass(value) and value in public and value.__module__ == info.name)
