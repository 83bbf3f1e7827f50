"""One run of the demo leaves a report, a picture with the run's states, and a trace."""

from __future__ import annotations

import io
import json
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import anyio
import pytest
from rich.console import Console

from graphrt.demo.documents import Documents
from graphrt.demo.output import OutputFolder
from graphrt.demo.runner import DemoRun, run_demo
from graphrt.demo.sources import ChosenModel
from graphrt.demo.standin import STAND_IN_NAME, OfflineStandIn
from graphrt.errors import LlmError, LlmErrorKind
from graphrt.llm import LLMProvider
from graphrt.llm.provider import Tools
from graphrt.messages import LLMResponse, Message

pytestmark = pytest.mark.anyio


class Failing(OfflineStandIn):
    async def chat(self, messages: Sequence[Message], tools: Tools = None, **kwargs: Any) -> LLMResponse:
        raise LlmError("wrong key", LlmErrorKind.UNAUTHORIZED)


class Interrupted(OfflineStandIn):
    """Stands for a person who presses Ctrl-C while the model is being asked."""

    async def chat(self, messages: Sequence[Message], tools: Tools = None, **kwargs: Any) -> LLMResponse:
        os.kill(os.getpid(), signal.SIGINT)
        await anyio.sleep_forever()
        raise AssertionError


class Stuck(OfflineStandIn):
    async def chat(self, messages: Sequence[Message], tools: Tools = None, **kwargs: Any) -> LLMResponse:
        await anyio.sleep_forever()
        raise AssertionError


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "documents"
    root.mkdir()
    (root / "bees.md").write_text("# Bees\n\n## Food\n\nBees eat nectar.\n")
    (root / "ants.md").write_text("# Ants\n\n## Wings\n\nAnts have none.\n")
    return root


async def run(root: Path, provider: LLMProvider | None = None, **options: Any) -> tuple[DemoRun, Path, str]:
    shown = io.StringIO()
    model = ChosenModel(provider or OfflineStandIn(), STAND_IN_NAME, is_stand_in=True)
    out = OutputFolder(root.parent / "out")
    console = Console(file=shown, width=200)
    return await run_demo("Tell", model, Documents(root), out, console, **options), out.path, shown.getvalue()


def spans(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "trace.jsonl").read_text().splitlines()]


async def test_report_graph_and_trace_are_written(root: Path) -> None:
    ended, out, _ = await run(root)
    assert ended.driven.exit_code == 0
    assert ended.written == {each: out / name for each, name in NAMES.items()}
    assert (out / "report.md").read_text() == ended.driven.result.output
    picture = ET.fromstring((out / "graph.svg").read_text())  # noqa: S314  # graphrt has drawn it
    states = {each.get("data-node"): each.get("data-state") for each in picture.iter() if "data-state" in each.attrib}
    assert states["survey"] == states["report"] == "succeeded"


NAMES = {"report": "report.md", "graph": "graph.svg", "trace": "trace.jsonl"}


async def test_trace_is_one_tree_with_the_models_and_tools_calls_in_it(root: Path) -> None:
    _, out, _ = await run(root)
    found = spans(out)
    (top,) = (each for each in found if each["parent_id"] is None)
    assert top["attributes"]["gen_ai.operation.name"] == "invoke_workflow"
    assert {each["trace_id"] for each in found} == {top["trace_id"]}
    known = {each["span_id"] for each in found}
    assert all(each["parent_id"] in known for each in found if each is not top)
    operations = {each["attributes"].get("gen_ai.operation.name") for each in found}
    assert {"chat", "execute_tool", "invoke_agent"} <= operations


async def test_second_run_replaces_what_the_first_wrote(root: Path) -> None:
    await run(root)
    (root / "ants.md").write_text("# Ants\n\n## Wings\n\nSome have them.\n")
    _, out, _ = await run(root)
    assert "Some have them." in (out / "report.md").read_text()
    assert len([each for each in spans(out) if each["parent_id"] is None]) == 1


async def test_output_inside_the_documents_is_not_read(root: Path) -> None:
    OutputFolder(root / "graphrt-demo").write("report.md", "# Old report\n")
    ended, _, _ = await run(root)
    assert "Old report" not in ended.driven.result.output


async def test_failed_run_leaves_graph_and_trace_and_no_report_of_an_earlier_run(root: Path) -> None:
    await run(root)
    ended, out, shown = await run(root, Failing())
    assert ended.driven.exit_code == 1
    assert sorted(ended.written) == ["graph", "trace"]
    assert not (out / "report.md").exists()
    assert 'data-state="failed"' in (out / "graph.svg").read_text()
    assert any(each["status"]["code"] == "error" for each in spans(out))
    assert "[no] plan: wrong key" in shown


async def test_run_out_of_time_is_a_failure(root: Path) -> None:
    ended, _, _ = await run(root, Stuck(), timeout=0.05)
    assert ended.driven.result.status == "timed_out"
    assert ended.driven.exit_code == 1


@pytest.mark.skipif(sys.platform == "win32", reason="a process cannot send itself Ctrl-C there")
async def test_ctrl_c_cancels_the_run_and_what_there_is_is_written(root: Path) -> None:
    ended, out, shown = await run(root, Interrupted())
    assert ended.driven.result.status == "cancelled"
    assert ended.driven.exit_code == 130
    assert sorted(ended.written) == ["graph", "trace"]
    assert spans(out)
    assert "[--] plan" in shown
