from __future__ import annotations

import subprocess
import sys

import pytest

import graphrt.plugins
from graphrt.plugins import PhaseRuntime


@pytest.mark.parametrize("name", graphrt.plugins.__all__)
def test_public_name_can_be_imported_and_says_what_it_is(name: str) -> None:
    value = getattr(graphrt.plugins, name)
    assert value.__doc__
    assert name in dir(graphrt.plugins)


def test_package_is_light_until_a_name_is_used() -> None:
    code = (
        "import sys, graphrt.plugins, graphrt.plugins.plugin; "
        "print({'pydantic', 'jsonschema', 'anyio'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_engine_knows_the_run_as_plugins_see_it() -> None:
    """The engine's handle of a run has what `RunView` asks for."""
    from graphrt.graph.scheduler.resources import RunHandle
    from graphrt.plugins import RunView

    asked = {name for name in vars(RunView) if not name.startswith("_")}
    assert asked <= set(dir(RunHandle))
    assert PhaseRuntime.opened.__annotations__["run"] == "RunView"
