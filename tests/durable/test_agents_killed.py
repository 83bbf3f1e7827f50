"""Agents whose process is killed in the middle of a round of tools (E25)."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PROGRAM = Path(__file__).parent / "programs" / "agent_deaths.py"
ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="no process is killed by a signal there")


@pytest.fixture(scope="module", params=["asyncio", "trio"])
def backend(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the program to its end, whichever that is."""
    return subprocess.run(
        [sys.executable, str(PROGRAM), *arguments],
        cwd=ROOT,
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def killed_and_gone_on(folder: Path, backend: str, case: str, how: str) -> tuple[Any, dict[str, list[str]]]:
    """Have a process killed, and another one go on; give what that one says, and the keys of all calls by tool."""
    died = run(str(folder), backend, case, "die")
    assert died.returncode == -signal.SIGKILL, died.stderr
    went_on = run(str(folder), backend, case, how)
    assert went_on.returncode == 0, went_on.stderr
    keys: dict[str, list[str]] = {}
    for line in (folder / "calls").read_text().splitlines():
        tool, number, key = line.split(maxsplit=2)
        keys.setdefault(f"{tool} {number}", []).append(key)
    return json.loads(went_on.stdout), keys


def check_calls(keys: dict[str, list[str]]) -> None:
    """Assert that what had ended was called once, and what had not was called again with the same key."""
    assert {name: len(each) for name, each in keys.items()} == {"count 1": 1, "count 2": 1, "fatal 0": 2}
    assert len(set(keys["fatal 0"])) == 1
    assert len({key for each in keys.values() for key in each}) == 3


@pytest.mark.parametrize("how", ["resume", "run"])
def test_finished_tools_are_not_called_again_when_another_process_goes_on(
    tmp_path: Path, backend: str, how: str
) -> None:
    """B-073."""
    said, keys = killed_and_gone_on(tmp_path, backend, "tools", how)
    check_calls(keys)
    assert said["told"] == [["1", "2", "alive"]]
    assert (said["output"], said["asked"], said["runs"]) == ("done", [1, 0], {"boss": "completed"})


def test_an_agent_that_was_called_goes_on_in_the_middle_of_its_own_round(tmp_path: Path, backend: str) -> None:
    """B-072, B-073."""
    said, keys = killed_and_gone_on(tmp_path, backend, "delegate", "resume")
    check_calls(keys)
    assert said["told"] == [["counted"], ["1", "2", "alive"]]
    assert (said["output"], said["asked"], said["rows"]) == ("done", [1, 1], 2)
    assert said["runs"] == {"boss": "completed", "worker": "completed"}
