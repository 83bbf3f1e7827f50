"""`module:workflow` and `--input`, as people write them."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import pytest
from pydantic import BaseModel

from graphrt.cli import UsageError, one_line
from graphrt.cli.target import load_graph, read_input
from graphrt.errors import GraphError
from graphrt.messages import Message

NUMBERS = itertools.count()

WORKFLOWS = """
from graphrt import END, START, Workflow

double = Workflow("double", input=int, output=int)

@double.node
async def twice(number: int) -> int:
    return 2 * number

double.chain(START, twice, END)
compiled = double.compile()
broken = Workflow("broken")
broken.node(twice)
class Inner:
    flow = double
"""


class Order(BaseModel):
    what: str
    count: int = 1


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], str]:
    """Write a module into the current folder, and give its name."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)  # takes what the command adds away again

    def write(text: str) -> str:
        name = f"made_{next(NUMBERS)}"
        (tmp_path / f"{name}.py").write_text(text)
        return name

    return write


@pytest.mark.parametrize("attribute", ["double", "compiled", "Inner.flow"])
def test_workflow_is_found(module: Callable[[str], str], attribute: str) -> None:
    assert load_graph(f"{module(WORKFLOWS)}:{attribute}").name == "double"


@pytest.mark.parametrize("target", ["double", "m:", ":w", ""])
def test_target_without_module_or_workflow_is_refused(target: str) -> None:
    with pytest.raises(UsageError, match="not of the form module:workflow"):
        load_graph(target)


@pytest.mark.parametrize(
    ("target", "way"),
    [
        ("../a:wf", "write a:wf, a module's name and not a path, in the folder '..'"),
        ("a.py:wf", "write a:wf, a module's name and not a path"),
        ("./a.py:wf", "write a:wf, a module's name and not a path"),
        ("sub/a.py:wf", "write sub.a:wf, a module's name and not a path"),
        ("/x/y/a.py:wf", "write a:wf, a module's name and not a path, in the folder '/x/y'"),
        ("..\\a.py:wf", "write a:wf, a module's name and not a path, in the folder '..'"),
        ("..a:wf", "write a:wf, a module's name and not a path"),
    ],
)
def test_path_is_refused_with_the_modules_name(target: str, way: str) -> None:
    with pytest.raises(UsageError, match="is a path") as caught:
        load_graph(target)
    assert caught.value.hint == way


@pytest.mark.parametrize("name", ["no_such_module", "no_such.module", "json.no_such"])
def test_unknown_module_is_named(name: str) -> None:
    with pytest.raises(UsageError, match=f"there is no module '{name}'"):
        load_graph(f"{name}:flow")


def test_unknown_attribute_is_named_with_what_there_is(module: Callable[[str], str]) -> None:
    with pytest.raises(UsageError, match="has no 'triple'") as caught:
        load_graph(f"{module(WORKFLOWS)}:triple")
    assert "workflows in it: double, compiled, broken" in one_line(caught.value)


def test_attribute_that_is_no_workflow_is_refused(module: Callable[[str], str]) -> None:
    with pytest.raises(UsageError, match="is a function and not a workflow"):
        load_graph(f"{module(WORKFLOWS)}:twice")


@pytest.mark.parametrize(
    ("text", "problem"),
    [("1 / 0", "ZeroDivisionError"), ("import no_such_thing", "ModuleNotFoundError"), ("def", "SyntaxError")],
)
def test_module_that_fails_says_how(module: Callable[[str], str], text: str, problem: str) -> None:
    with pytest.raises(UsageError, match=f"cannot be imported: {problem}"):
        load_graph(f"{module(text)}:flow")


def test_graph_that_breaks_a_rule_is_the_graphs_own_error(module: Callable[[str], str]) -> None:
    with pytest.raises(GraphError):
        load_graph(f"{module(WORKFLOWS)}:broken")


@pytest.mark.parametrize(
    ("text", "declared", "value"),
    [
        ("5", int, 5),
        ("5", str, "5"),
        ('"bees"', str, "bees"),
        ("bees and ants", str, "bees and ants"),
        ('{"a": 1}', str, '{"a": 1}'),
        ("bees", Any, "bees"),
        ("[1, 2]", Any, [1, 2]),
        ("[1, 2]", list[int], [1, 2]),
        ('{"what": "tea"}', Order, Order(what="tea")),
        ('{"topic": "bees"}', {"topic": str}, {"topic": "bees"}),
        ("3", float, 3.0),
        ("hi", str | list[Message], "hi"),
        ('"hi"', str | list[Message], "hi"),
        ("5", str | list[Message], "5"),
        ('[{"role": "user", "content": "hi"}]', str | list[Message], [Message.user("hi")]),
        ("hi", str | None, "hi"),
        ("null", str | None, None),
        ("5", str | int, 5),
        ("tea", Literal["tea", "ale"], "tea"),
        (None, Any, None),
    ],
)
def test_input_is_json_or_a_text_where_one_is_taken(text: str | None, declared: Any, value: Any) -> None:
    assert read_input(text, declared) == value


@pytest.mark.parametrize(
    ("text", "declared", "problem"),
    [
        ("bees", int, "the input is not JSON"),
        ("{", Order, "the input is not JSON"),
        ("milk", Literal["tea", "ale"], "does not fit"),
        ('[{"role": "nobody"}]', str | list[Message], "does not fit"),
        ("bees", {"topic": str}, "the input is not JSON"),
        ("bees", None, "the input is not JSON"),
        ('"bees"', int, "does not fit int"),
        ('{"count": 2}', Order, "does not fit Order: what: Field required"),
        (None, str, "takes str as its input"),
        (None, {"topic": str}, "takes an object with 'topic' as its input"),
    ],
)
def test_input_that_does_not_fit_is_refused(text: str | None, declared: Any, problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        read_input(text, declared)
