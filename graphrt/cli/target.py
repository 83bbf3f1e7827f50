"""Finding the graph that `module:workflow` names, and reading its input."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter, ValidationError
from pydantic.errors import PydanticSchemaGenerationError

from graphrt.cli import UsageError
from graphrt.graph import CompiledGraph, Workflow
from graphrt.graph.typecheck import fits

if TYPE_CHECKING:
    from types import ModuleType


def load_graph(target: str) -> CompiledGraph:
    """Import the module, look the workflow up, and compile it. The current folder is on the path.

    Raises:
        UsageError: There is no such module or attribute, or it is no workflow and no node with a graph.
        GraphError: The graph breaks a rule.
    """
    module_name, colon, attribute = target.partition(":")
    if not module_name or not colon or not attribute:
        raise UsageError(f"{target!r} is not of the form module:workflow", hint="such as report:report")
    _check_is_no_path(*target.rsplit(":", 1))
    module = _import(module_name)
    found: Any = module
    for name in attribute.split("."):
        if not hasattr(found, name):
            raise UsageError(f"module {module_name!r} has no {attribute!r}", hint=_known(module))
        found = getattr(found, name)
    graph = _graph_of(found)
    if graph is not None:
        return graph
    raise UsageError(f"{target!r} is a {type(found).__name__} and not a workflow", hint=_known(module))


def read_input(text: str | None, declared: Any) -> Any:
    """Read a run's input: JSON of the *declared* type; what is not JSON is a text where one is taken.

    Raises:
        UsageError: It is missing, is no JSON, or does not fit.
    """
    if text is None:
        if declared in (Any, None, type(None)):
            return None
        raise UsageError(f"the workflow takes {_describe(declared)} as its input", hint="give it with --input")
    try:
        value = json.loads(text)
    except ValueError as error:
        if declared in (str, Any):
            return text
        if _takes_text(declared):
            return _fitting(text, declared)
        raise UsageError(f"the input is not JSON: {error}", hint=f"the workflow takes {_describe(declared)}") from error
    if declared is str:
        return value if isinstance(value, str) else text
    try:
        return _fitting(value, declared)
    except UsageError:
        if isinstance(value, (str, list, dict)) or not _takes_text(declared):
            raise
        return _fitting(text, declared)  # a number, where a text is taken and no number


def _takes_text(declared: Any) -> bool:
    return not isinstance(declared, dict) and declared not in (None, type(None)) and fits(str, declared)


def _fitting(value: Any, declared: Any) -> Any:
    if isinstance(declared, dict):  # inputs by name
        return value
    try:
        return TypeAdapter(declared).validate_python(value)
    except PydanticSchemaGenerationError:
        return value  # no type that pydantic knows: the graph checks it
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise UsageError(
            f"the input does not fit {_describe(declared)}: {where}{': ' if where else ''}{first['msg']}"
        ) from error


def _graph_of(found: Any) -> CompiledGraph | None:
    """Compile a workflow, or take the graph that a node has; None where there is none."""
    if isinstance(found, Workflow):
        return found.compile()
    if isinstance(found, CompiledGraph):
        return found
    compiled = None if isinstance(found, type) else getattr(found, "compiled_graph", None)
    graph = compiled() if callable(compiled) else None
    return graph if isinstance(graph, CompiledGraph) else None


def _check_is_no_path(module: str, attribute: str) -> None:
    """Refuse a file's path where a module's name belongs.

    Raises:
        UsageError: It is one; the hint has the module's name.
    """
    parts = [part for part in module.removesuffix(".py").replace("\\", "/").split("/") if part != "."]
    if len(parts) == 1 and parts[0] == module and not module.startswith("."):
        return
    inside = all(part.isidentifier() for part in parts)
    name = ".".join(parts) if inside else parts[-1].lstrip(".") if parts else "module"
    folder = "" if inside or len(parts) < 2 else f", in the folder {'/'.join(parts[:-1]) or '/'!r}"  # noqa: PLR2004
    raise UsageError(f"{module!r} is a path", hint=f"write {name}:{attribute}, a module's name and not a path{folder}")


def _import(name: str) -> ModuleType:
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not (name == error.name or name.startswith(f"{error.name}.")):
            raise _not_importable(name, error) from error
        raise UsageError(f"there is no module {name!r}", hint=f"looked in {here} and where Python does") from error
    except Exception as error:  # whatever the module raises
        raise _not_importable(name, error) from error


def _not_importable(name: str, error: Exception) -> UsageError:
    return UsageError(f"module {name!r} cannot be imported: {type(error).__name__}: {error}")


def _known(module: ModuleType) -> str:
    names = [name for name, value in vars(module).items() if _has_graph(value)]
    return f"workflows in it: {', '.join(names) or 'none'}"


def _has_graph(value: Any) -> bool:
    is_node = not isinstance(value, type) and callable(getattr(value, "compiled_graph", None))
    return is_node or isinstance(value, (Workflow, CompiledGraph))


def _describe(declared: Any) -> str:
    if isinstance(declared, dict):
        return f"an object with {', '.join(map(repr, declared))}"
    return getattr(declared, "__name__", None) or str(declared)
