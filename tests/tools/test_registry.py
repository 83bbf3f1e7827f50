"""Which tools there are, and where they come from."""

from __future__ import annotations

import gc
import threading
from typing import Any

import pytest
from pydantic import BaseModel

from graphrt.errors import ToolError, ToolErrorKind
from graphrt.tools import (
    PermissionChecker,
    PermissionDecision,
    Tool,
    ToolContext,
    ToolDescriptor,
    ToolRegistry,
    function_tool,
)


@function_tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@function_tool(timeout=3, exclusive=True, requires_approval=True)
def drop(name: str) -> str:
    return f"dropped {name}"


class Clock(Tool):
    @property
    def descriptor(self) -> ToolDescriptor:
        return ToolDescriptor("clock", "Tell the time.")

    async def execute(self, arguments: dict[str, Any], ctx: ToolContext[Any]) -> str:
        return "noon"


class Strict(PermissionChecker):
    async def check(self, tool_id: str, arguments: Any, ctx: ToolContext[Any]) -> PermissionDecision:
        return PermissionDecision.deny("never")


def test_tools_are_found_by_id_and_listed_in_order() -> None:
    registry = ToolRegistry()
    registry.register(drop)
    registry.register(add)

    assert registry.ids() == ["drop", "add"]
    assert [each.id for each in registry.descriptors()] == ["drop", "add"]
    assert registry.get("add") is add
    assert registry.get("gone") is None
    assert "add" in registry
    assert "gone" not in registry


def test_plain_function_becomes_a_tool() -> None:
    class Local(BaseModel):
        size: int

    registry = ToolRegistry()

    @registry.register
    def fit(item: Local) -> int:
        return item.size

    assert registry.get("fit") is fit
    assert fit.descriptor.parameters["required"] == ["item"]


@pytest.mark.anyio
async def test_tool_may_be_registered_under_another_name() -> None:
    registry = ToolRegistry()
    tool = registry.register(drop, id="remove")

    assert registry.ids() == ["remove"]
    assert registry.descriptors()[0].to_openai()["function"]["name"] == "remove"
    assert (tool.timeout, tool.exclusive, tool.requires_approval) == (3, True, True)
    assert await tool.execute({"name": "x"}, ToolContext()) == "dropped x"
    with pytest.raises(ToolError, match="name: required"):
        tool.check({})


def test_second_tool_of_one_name_is_refused_and_both_sources_are_named() -> None:
    """D-17."""
    registry = ToolRegistry()
    registry.register(add)

    with pytest.raises(ToolError, match=r"'add' comes from .*\.add and again from plugin 'sums'") as caught:
        registry.register(Clock(), id="add", source="plugin 'sums'")

    assert caught.value.kind is ToolErrorKind.REGISTRATION
    assert registry.get("add") is add


def test_source_of_a_tool_is_where_it_is_defined_unless_given() -> None:
    registry = ToolRegistry()
    registry.register(add)
    registry.register(Clock(), id="time")
    registry.register(drop, source="global")

    assert str(registry.source("add")).endswith("test_registry.add")
    assert str(registry.source("time")).endswith("test_registry.Clock")
    assert registry.source("drop") == "global"
    assert registry.source("gone") is None


def test_overlay_sees_the_tools_below_and_leaves_them_alone() -> None:
    """D-16."""
    below = ToolRegistry()
    below.register(add)
    above, other = below.child(), below.child()
    above.register(Clock())

    assert above.ids() == ["add", "clock"]
    assert above.get("add") is add
    assert below.ids() == other.ids() == ["add"]
    below.register(drop)
    assert above.ids() == ["add", "drop", "clock"]


@pytest.mark.parametrize("upper_first", [True, False])
def test_overlay_and_base_cannot_hold_one_name(upper_first: bool) -> None:
    """D-17: whichever of the two comes first."""
    below = ToolRegistry()
    above = below.child().child()
    first, second = (above, below) if upper_first else (below, above)
    first.register(add, source="first")

    with pytest.raises(ToolError, match="from first and again from second"):
        second.register(add, source="second")


def test_two_overlays_may_hold_one_name_each() -> None:
    below = ToolRegistry()
    left, right = below.child(), below.child()
    left.register(add)
    right.register(add)

    assert left.ids() == right.ids() == ["add"]


def test_overlay_that_is_gone_is_no_conflict() -> None:
    below = ToolRegistry()
    above = below.child()
    above.register(add)
    del above
    gc.collect()

    below.register(add)


def test_overlay_asks_the_checker_below_unless_it_has_one() -> None:
    lenient, strict = Strict(), Strict()
    below = ToolRegistry(permission_checker=lenient)

    assert below.child().permission_checker is lenient
    assert below.child(permission_checker=strict).permission_checker is strict
    assert ToolRegistry().permission_checker is None


def test_threads_may_register_at_once_and_one_of_each_name_wins() -> None:
    below = ToolRegistry()
    above = below.child()
    start = threading.Barrier(8)
    refused: list[str] = []

    def register(registry: ToolRegistry) -> None:
        start.wait(10)
        for number in range(50):
            try:
                registry.register(add, id=f"tool{number}")
            except ToolError:
                refused.append(f"tool{number}")

    workers = [threading.Thread(target=register, args=(each,)) for each in [below, above] * 4]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(10)

    assert sorted(above.ids()) == sorted(f"tool{number}" for number in range(50))
    assert len(refused) == 7 * 50
