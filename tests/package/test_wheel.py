"""What a user installs: the wheel made from the sdist, and an editable checkout."""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from collections import Counter
from pathlib import Path

import pytest

import graphrt

pytestmark = pytest.mark.wheel

ROOT = Path(__file__).parents[2]
SOURCES = ("pyproject.toml", "README.md", "LICENSE", "graphrt", "nodes")
TRIVIAL_WORKFLOW = """
from graphrt import END, START, Workflow
from graphrt.nodes import FunctionNode

double = Workflow("double", input=int, output=int)

@double.node
def twice(number: int) -> int:
    return 2 * number

double.chain(START, twice, END)
print(FunctionNode.__module__, double.run_sync(21).output, end="")
"""


def run(*command: str | Path, cwd: Path | None = None) -> str:
    """Run *command* and give what it printed; fail with its output if it fails."""
    done = subprocess.run(list(map(str, command)), cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def environment(folder: Path) -> Path:
    """Make an environment that has this one's packages, graphrt left out, and give its interpreter."""
    run(sys.executable, "-m", "venv", "--without-pip", folder)
    python = folder / ("Scripts" if sys.platform == "win32" else "bin") / "python"
    site_packages = Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip())
    # A plain path: its own .pth files, an editable graphrt among them, are not read.
    (site_packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return python


def install(python: Path, *what: str | Path) -> None:
    """Install without the network, graphrt alone."""
    run(
        sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-index", "--no-deps",
        "--ignore-installed", "--no-build-isolation", *what,
    )  # fmt: skip


def where(python: Path, folder: Path) -> Path:
    """Give the folder from which *python* imports graphrt."""
    return Path(run(python, "-I", "-c", "import graphrt; print(graphrt.__path__[0])", cwd=folder).strip())


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Copy what a build reads, so that it leaves nothing in the source tree and finds no older build."""
    folder = tmp_path_factory.mktemp("checkout")
    for name in SOURCES:
        source = ROOT / name
        if source.is_dir():
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(source, folder / name, symlinks=True, ignore=ignored)
        else:
            shutil.copy(source, folder / name)
    return folder


@pytest.fixture(scope="module")
def dist(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the sdist, and the wheel from it."""
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, checkout)
    return folder


@pytest.fixture
def wheel(dist: Path) -> Path:
    """Give the wheel's path."""
    return dist / f"graphrt-{graphrt.__version__}-py3-none-any.whl"


def test_wheel_holds_every_module_once(wheel: Path) -> None:
    modules = [
        *(Path("graphrt", path.relative_to(ROOT / "graphrt")) for path in (ROOT / "graphrt").rglob("*.py")),
        *(Path("graphrt", path.relative_to(ROOT)) for path in (ROOT / "nodes").rglob("*.py")),
    ]
    with zipfile.ZipFile(wheel) as archive:
        names = Counter(name for name in archive.namelist() if ".dist-info/" not in name)
    concepts = {path.relative_to(ROOT).as_posix() for path in (ROOT / "graphrt/demo/concepts").iterdir()}
    assert concepts
    template = "graphrt/ledger/sql/migrations/script.py.mako"
    others = {*concepts, "graphrt/py.typed", "graphrt/graph/RULES.md", template}
    assert names == Counter({path.as_posix() for path in modules} | others)


def test_sdist_holds_the_sources_once(dist: Path) -> None:
    (path,) = dist.glob("graphrt-*.tar.gz")
    with tarfile.open(path) as archive:
        inside = [Path(*Path(name).parts[1:]).as_posix() for name in archive.getnames()]
    assert inside.count("nodes/__init__.py") == 1
    assert inside.count("graphrt/__init__.py") == 1
    assert [name for name in inside if name.startswith("graphrt/nodes")] == []


def test_wheel_runs_a_workflow(wheel: Path, tmp_path: Path) -> None:
    python = environment(tmp_path / "venv")
    install(python, wheel)
    assert tmp_path in where(python, tmp_path).parents
    printed = run(python, "-I", "-W", "error", "-c", TRIVIAL_WORKFLOW, cwd=tmp_path)
    assert printed == "graphrt.nodes.function 42"


def test_wheel_keeps_the_name_nodes_free(wheel: Path, tmp_path: Path) -> None:
    python = environment(tmp_path / "venv")
    install(python, wheel)
    code = "import importlib.util as util; print(util.find_spec('nodes'))"
    assert run(python, "-I", "-c", code, cwd=tmp_path) == "None\n"


def test_editable_checkout_runs_a_workflow(checkout: Path, tmp_path: Path) -> None:
    python = environment(tmp_path / "venv")
    install(python, "--editable", checkout)
    assert where(python, tmp_path) == checkout / "graphrt"
    printed = run(python, "-I", "-W", "error", "-c", TRIVIAL_WORKFLOW, cwd=tmp_path)
    assert printed == "graphrt.nodes.function 42"


def test_editable_checkout_without_the_link_finds_the_nodes(checkout: Path, tmp_path: Path) -> None:
    # As on a file system without links, where a build's map is all there is.
    linkless = tmp_path / "checkout"
    shutil.copytree(checkout, linkless, symlinks=True)
    (linkless / "graphrt" / "nodes").unlink()
    python = environment(tmp_path / "venv")
    install(python, "--editable", linkless)
    assert where(python, tmp_path) == linkless / "graphrt"
    code = "import graphrt.nodes; print(graphrt.nodes.__file__)"
    assert Path(run(python, "-I", "-c", code, cwd=tmp_path).strip()) == linkless / "nodes" / "__init__.py"


def test_installed_command_starts(wheel: Path, tmp_path: Path) -> None:
    python = environment(tmp_path / "venv")
    install(python, wheel)
    assert "demo" in run(python.parent / "graphrt", "--help", cwd=tmp_path)
