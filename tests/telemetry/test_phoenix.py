"""A real back end reads the traces: Arize Phoenix, where `GRAPHRT_PHOENIX` says its address (C-13)."""

from __future__ import annotations

import json
import os
import time
import urllib.error
import urllib.request
import uuid
from typing import Any

import pytest
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor

from graphrt.telemetry import Telemetry
from tests.telemetry.test_agent import researching

ADDRESS = os.environ.get("GRAPHRT_PHOENIX", "")

pytestmark = pytest.mark.skipif(not ADDRESS, reason="GRAPHRT_PHOENIX names no Phoenix to send traces to")


def read_back(project: str, count: int) -> list[dict[str, Any]]:
    """Wait until Phoenix shows *count* spans of *project*."""
    spans: list[dict[str, Any]] = []
    for _ in range(60):
        try:
            with urllib.request.urlopen(f"{ADDRESS}/v1/projects/{project}/spans?limit=200") as answer:  # noqa: S310 - a local address
                spans = json.load(answer)["data"]
        except urllib.error.HTTPError:  # the project is not there yet
            spans = []
        if len(spans) >= count:
            break
        time.sleep(0.5)
    return spans


@pytest.mark.anyio
async def test_phoenix_shows_the_tree_with_models_tools_tokens_and_messages() -> None:
    project = f"graphrt-{uuid.uuid4().hex}"
    provider = TracerProvider(resource=Resource({"openinference.project.name": project}), shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter(f"{ADDRESS}/v1/traces")))
    telemetry = Telemetry(provider, capture_content=True, openinference=True)
    with telemetry.turn("helper", session_id="s-1"):
        await researching().run("bees?", telemetry=telemetry)
    provider.shutdown()
    spans = read_back(project, 12)
    kinds = {(span["name"].partition(" ")[0], span["span_kind"]) for span in spans}
    assert kinds == {
        ("invoke_workflow", "CHAIN"),
        ("invoke_agent", "AGENT"),
        ("round", "CHAIN"),
        ("node", "CHAIN"),
        ("chat", "LLM"),
        ("execute_tool", "TOOL"),
    }
    by_id = {span["context"]["span_id"]: span for span in spans}
    (root,) = [span for span in spans if span["parent_id"] not in by_id]
    assert root["attributes"]["session.id"] == "s-1"
    first = next(span["attributes"] for span in spans if span["attributes"].get("llm.token_count.total"))
    assert (first["llm.token_count.prompt"], first["llm.token_count.completion"]) == (41, 3)
    assert first["llm.input_messages.0.message.content"] == "bees?"
    call = "llm.output_messages.0.message.tool_calls.0.tool_call.function"
    assert (first[f"{call}.name"], json.loads(first[f"{call}.arguments"])) == ("search", {"query": "bees"})
