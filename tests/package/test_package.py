"""The package as Python and the tools around it see it (D-29, B-131)."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

import graphrt
import graphrt.nodes

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())

# What a program that only builds and runs a graph does without.
HEAVY = frozenset(
    {
        "IPython",
        "httpx",
        "jsonschema",
        "networkx",
        "openai",
        "opentelemetry",
        "pydantic",
        "rich",
        "sqlalchemy",
        "tenacity",
    }
)
LAZY = [(package, name) for package in (graphrt, graphrt.nodes) for name in package.__all__]


def run_python(code: str, *, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """Run *code* in a fresh interpreter that finds modules in *cwd*."""
    return subprocess.run([sys.executable, "-c", code], cwd=cwd, capture_output=True, text=True, check=False)


def names_for_the_type_checker(package: Path) -> set[str]:
    """Read the names that `__init__.py` imports under `if TYPE_CHECKING`."""
    body = ast.parse((package / "__init__.py").read_text()).body
    blocks = [node for node in body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"]
    return {
        alias.asname or alias.name
        for block in blocks
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }


def test_declared_packages_are_the_folders_on_disk() -> None:
    inside = {
        ".".join(path.parent.relative_to(ROOT).parts)
        for path in (ROOT / "graphrt").rglob("__init__.py")
        if ROOT / "graphrt" / "nodes" not in path.parents
    }
    nodes = {
        ".".join(("graphrt", *path.parent.relative_to(ROOT).parts)) for path in (ROOT / "nodes").rglob("__init__.py")
    }
    declared = PROJECT["tool"]["setuptools"]["packages"]
    assert sorted(declared) == sorted(inside | nodes)


def test_every_folder_with_modules_is_a_package() -> None:
    folders = {path.parent for top in ("graphrt", "nodes") for path in (ROOT / top).rglob("*.py")}
    assert [str(folder) for folder in sorted(folders) if not (folder / "__init__.py").is_file()] == []


def test_link_points_at_the_nodes_folder() -> None:
    link = ROOT / "graphrt" / "nodes"
    assert link.is_symlink()
    assert link.readlink() == Path("../nodes")
    assert link.resolve() == ROOT / "nodes"


def test_no_test_folder_is_passed_over() -> None:
    # `norecursedirs` goes by a folder's own name, so tests in one called "nodes" would never run.
    assert [str(path) for path in (ROOT / "tests").rglob("nodes") if path.is_dir()] == []


def test_nodes_refuse_another_name() -> None:
    done = run_python("import nodes")
    assert done.returncode != 0
    assert "ImportError: this folder is the package 'graphrt.nodes'" in done.stderr
    assert "cannot be imported as 'nodes'" in done.stderr
    assert "hint: write 'from graphrt.nodes import ...'" in done.stderr


def test_module_below_nodes_refuses_another_name() -> None:
    done = run_python("import nodes.function")
    assert "ImportError: this folder is the package 'graphrt.nodes'" in done.stderr


def test_nodes_beside_a_users_own_nodes_module(tmp_path: Path) -> None:
    (tmp_path / "nodes.py").write_text("MINE = True\n")
    code = (
        f"import sys; sys.path.append({str(ROOT)!r})\n"
        "import nodes, graphrt.nodes\n"
        "assert nodes.MINE and graphrt.nodes.__name__ == 'graphrt.nodes'"
    )
    done = run_python(code, cwd=tmp_path)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(("package", "name"), LAZY, ids=lambda part: getattr(part, "__name__", part))
def test_listed_name_can_be_imported(package: ModuleType, name: str) -> None:
    assert getattr(package, name) is not None


@pytest.mark.parametrize("package", [graphrt, graphrt.nodes], ids=lambda package: package.__name__)
def test_type_checkers_see_the_names_that_are_loaded_lazily(package: ModuleType) -> None:
    listed = set(package.__all__) - {"__version__"}
    fresh = run_python(f"import {package.__name__} as package; print(*dir(package))")
    folder = ROOT.joinpath(*package.__name__.split("."))
    assert names_for_the_type_checker(folder) == listed
    assert listed <= set(fresh.stdout.split())


@pytest.mark.parametrize("package", [graphrt, graphrt.nodes], ids=lambda package: package.__name__)
def test_unknown_name_is_an_attribute_error(package: ModuleType) -> None:
    with pytest.raises(AttributeError, match=r"module 'graphrt[.a-z]*' has no attribute 'Wrokflow'"):
        _ = package.Wrokflow


def test_lazy_name_is_the_object_of_its_module() -> None:
    assert graphrt.RetryPolicy is importlib.import_module("graphrt.policies").RetryPolicy
    assert graphrt.Ask is graphrt.nodes.Ask


@pytest.mark.parametrize(
    "statement",
    [
        "import graphrt",
        "import graphrt.nodes",
        "from graphrt import END, START, RetryPolicy, RunContext, Workflow",
    ],
)
def test_import_loads_nothing_heavy(statement: str) -> None:
    done = run_python(f"{statement}\nimport sys; print(*{{name.split('.')[0] for name in sys.modules}})")
    assert done.returncode == 0, done.stderr
    assert HEAVY & set(done.stdout.split()) == set()
