"""Runs and the processes that run them: deaths at any event, claims, and two who want the same run (E25, L-029b)."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PROGRAM = Path(__file__).parent / "programs" / "deaths.py"
ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.skipif(not hasattr(__import__("os"), "fork"), reason="processes are made by fork here")


@pytest.fixture(scope="module", params=["asyncio", "trio"])
def backend(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


def told(what: str, folder: Path, backend: str) -> Any:
    """Run the program, and read what it says."""
    done = subprocess.run(
        [sys.executable, str(PROGRAM), what, str(folder), backend],
        cwd=ROOT,
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_run_ends_the_same_whichever_event_its_process_dies_at(tmp_path: Path, backend: str) -> None:
    """B-073 among others: what is stored does not run again; the next process takes the run over at once."""
    assert told("deaths", tmp_path, backend) == []


def test_many_starts_with_one_id_in_two_processes_are_one_execution(tmp_path: Path, backend: str) -> None:
    """B-081."""
    found = told("starts", tmp_path, backend)
    assert found["codes"] == [0, 0]
    assert found["answers"] == ["11"] * 50
    assert found["calls"] == [f"n{number}" for number in range(10)]


def test_of_two_processes_that_resume_a_run_one_goes_on(tmp_path: Path, backend: str) -> None:
    found = told("race", tmp_path, backend)
    assert found["codes"] == [0, 0]
    assert found["answers"] == ["11", "conflict"]
    assert len({line.split()[1] for line in found["calls"]}) == 2


def test_process_that_wakes_after_its_lease_has_ended_writes_nothing(tmp_path: Path, backend: str) -> None:
    found = told("stale", tmp_path, backend)
    assert found == {"codes": [0, 0], "answers": ["11", "conflict"], "same": True, "status": "completed"}
