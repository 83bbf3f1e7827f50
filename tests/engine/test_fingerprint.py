"""A fingerprint is the same for the same graph anywhere, and another for what a stored run would notice (E26)."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from graphrt import END, START, RetryPolicy, Workflow

ROOT = Path(__file__).parents[2]


async def first(x: int) -> int:
    return x


async def second(x: int) -> int:
    return x


def plain(**options: Any) -> Workflow:
    """Make a chain of two; *options* are the second node's."""
    workflow = Workflow("g", input=int, output=int)
    workflow.add(first)
    workflow.add(second, **options)
    workflow.chain(START, first, second, END)
    return workflow


def print_of(workflow: Workflow) -> str:
    """Give the fingerprint."""
    return workflow.compile().fingerprint


def test_equal_graphs_have_equal_fingerprints() -> None:
    assert print_of(plain()) == print_of(plain())


def test_fingerprint_is_the_same_in_another_process() -> None:
    code = "from tests.engine.test_fingerprint import plain, print_of\nprint(print_of(plain()))"
    prints = {
        subprocess.run(
            [sys.executable, "-c", code],
            cwd=ROOT,
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        for seed in ("1", "2")
    }
    assert prints == {print_of(plain())}


def _chain(*functions: Callable[..., Any], names: tuple[str, ...] = ()) -> Workflow:
    workflow = Workflow("g", input=int, output=int)
    used = [workflow.add(fn, name=name) for fn, name in zip(functions, names or [None] * len(functions), strict=True)]
    workflow.chain(START, *used, END)
    return workflow


async def second_takes_more(x: int, more: int = 0) -> int:
    return x


async def second_gives_text(x: int) -> Any:
    return x


def with_condition() -> Workflow:
    workflow = Workflow("g", input=int, output=int)
    workflow.add(first)
    workflow.add(second)
    workflow.edge(START, first)
    workflow.edge(first, second, when=bool)
    workflow.edge(second, END)
    return workflow


def with_an_edge_more() -> Workflow:
    workflow = plain()
    workflow.edge(first, END)
    return workflow


def with_a_graph_inside(inner: Workflow) -> Workflow:
    workflow = Workflow("outer")
    workflow.add(inner, name="inner")
    workflow.chain(START, "inner", END)
    return workflow


CHANGES: list[Any] = [
    pytest.param(lambda: _chain(first, second, names=("first", "other")), id="another name"),
    pytest.param(lambda: _chain(first), id="a node less"),
    pytest.param(lambda: _chain(second, first), id="another order"),
    pytest.param(lambda: _chain(first, second_takes_more, names=("first", "second")), id="another parameter"),
    pytest.param(lambda: _chain(first, second_gives_text, names=("first", "second")), id="another type"),
    pytest.param(lambda: plain(version="2"), id="another version"),
    pytest.param(lambda: plain(join="any"), id="another join"),
    pytest.param(with_condition, id="a condition"),
    pytest.param(with_an_edge_more, id="an edge more"),
]


@pytest.mark.parametrize("changed", CHANGES)
def test_change_of_the_graph_changes_its_fingerprint(changed: Callable[[], Workflow]) -> None:
    assert print_of(changed()) != print_of(plain())


@pytest.mark.parametrize("changed", CHANGES)
def test_change_of_a_graph_inside_changes_the_outers(changed: Callable[[], Workflow]) -> None:
    assert print_of(with_a_graph_inside(changed())) != print_of(with_a_graph_inside(plain()))


@pytest.mark.parametrize(
    "options",
    [{"timeout": 5}, {"retry": RetryPolicy()}, {"max_concurrency": 3}, {"step_timeout": 9}],
)
def test_limits_are_not_part_of_it(options: dict[str, Any]) -> None:
    """A run that was stored may go on with other limits."""
    assert print_of(plain(**options)) == print_of(plain())


def test_body_of_a_function_is_not_part_of_it() -> None:
    async def second(x: int) -> int:
        return x + 100

    assert print_of(_chain(first, second)) == print_of(plain())
