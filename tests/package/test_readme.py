"""The README says what is true: its example runs and prints what stands below it (C-16)."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
MOST_LINES = 230

# A python block and, right below it, what it prints.
EXAMPLES = re.findall(r"^```python\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?", README, re.DOTALL | re.MULTILINE)
COMMANDS = re.findall(r"^python3 -m venv .*$", README, re.MULTILINE)


def test_readme_is_short() -> None:
    assert len(README.splitlines()) <= MOST_LINES


def test_readme_has_an_example() -> None:
    assert EXAMPLES


@pytest.mark.parametrize(("code", "printed"), EXAMPLES, ids=range(len(EXAMPLES)))
def test_example_prints_what_is_shown(code: str, printed: str, tmp_path: Path) -> None:
    script = tmp_path / "example.py"
    script.write_text(code)
    done = subprocess.run(
        [sys.executable, "-W", "error", script],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr == ""
    assert done.stdout == printed


def test_set_up_takes_one_line_for_the_demo_and_one_for_the_tests() -> None:
    demo, tests = COMMANDS
    assert demo.endswith(".venv/bin/graphrt demo")
    assert tests.endswith(".venv/bin/pytest -n auto --dist loadfile")


def test_links_lead_somewhere() -> None:
    targets = re.findall(r"\]\((?!https?://|#)([^)#]+)", README)
    assert [target for target in targets if not (ROOT / target).exists()] == []
