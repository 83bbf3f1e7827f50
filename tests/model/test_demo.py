"""The demo with a real model: it plans, reads files with tools, and writes a report."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from graphrt.demo.documents import Documents
from graphrt.demo.output import OutputFolder
from graphrt.demo.runner import run_demo
from graphrt.demo.sources import choose_model
from graphrt.demo.workflow import Research
from graphrt.graph.states import FINAL_STATES
from tests.model.conftest import KEY, NAME, URL

pytestmark = [pytest.mark.model, pytest.mark.anyio]


@pytest.fixture
def anyio_backend() -> str:
    """Run the demo on one event loop: it takes minutes on a small machine."""
    return "asyncio"


@pytest.fixture
def documents(tmp_path: Path) -> Documents:
    root = tmp_path / "documents"
    root.mkdir()
    (root / "bees.md").write_text("# Bees\n\n## Food\n\nBees eat nectar and pollen.\n")
    (root / "ants.md").write_text("# Ants\n\n## Homes\n\nAnts live in nests below the ground.\n")
    return Documents(root)


async def test_demo_leaves_a_report_a_picture_and_a_trace(documents: Documents, tmp_path: Path) -> None:
    environ = {"OPENAI_BASE_URL": URL or "", "OPENAI_API_KEY": KEY}
    shown = io.StringIO()
    ended = await run_demo(
        "Tell what bees eat and where ants live.",
        replace(choose_model(NAME, environ=environ), max_tokens=160),
        documents,
        OutputFolder(tmp_path / "out"),
        Console(file=shown, width=200),
        questions=2,
    )
    result = ended.driven.result
    assert result.status == "succeeded", result.error
    assert sorted(ended.written) == ["graph", "report", "trace"]
    assert result.output.startswith("# Tell what bees eat and where ants live.\n")
    assert f"with {NAME}." in result.output
    research = result.state
    assert isinstance(research, Research)
    assert research.plan is not None
    assert sorted(each.step.id for each in research.findings) == sorted(each.id for each in research.plan.steps)
    assert {step.state for step in result.steps} <= FINAL_STATES
    spans: list[dict[str, Any]] = [json.loads(line) for line in ended.written["trace"].read_text().splitlines()]
    assert len([span for span in spans if span["parent_id"] is None]) == 1
    operations = [span["attributes"].get("gen_ai.operation.name") for span in spans]
    assert operations.count("chat") >= 2 + len(research.findings)
    assert "[ok] write the report" in shown.getvalue()
