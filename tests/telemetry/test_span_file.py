"""Spans in a file of JSON lines."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExportResult
from opentelemetry.trace import Link, SpanKind, StatusCode

from graphrt.telemetry import JsonLinesSpanExporter


def exported(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "trace.jsonl"


@pytest.fixture
def provider(path: Path) -> Iterator[TracerProvider]:
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(JsonLinesSpanExporter(path)))
    yield provider
    provider.shutdown()


def test_each_span_is_a_line_written_as_it_ends(provider: TracerProvider, path: Path) -> None:
    tracer = provider.get_tracer("test")
    with tracer.start_as_current_span("outer", kind=SpanKind.CLIENT) as outer:
        with tracer.start_as_current_span("inner"):
            assert exported(path) == []
        (inner,) = exported(path)
        assert inner["name"] == "inner"
        assert inner["kind"] == "internal"
        assert inner["parent_id"] == f"{outer.get_span_context().span_id:016x}"
    last = exported(path)[-1]
    assert (last["name"], last["kind"], last["parent_id"]) == ("outer", "client", None)
    assert last["trace_id"] == inner["trace_id"]
    assert last["status"] == {"code": "unset", "description": None}
    assert datetime.fromisoformat(last["start"]) <= datetime.fromisoformat(inner["start"])
    assert datetime.fromisoformat(inner["end"]) <= datetime.fromisoformat(last["end"])


def test_attributes_events_links_and_status_are_kept(provider: TracerProvider, path: Path) -> None:
    tracer = provider.get_tracer("test")
    with tracer.start_as_current_span("first") as first:
        linked = first.get_span_context()
    span = tracer.start_span("second", links=[Link(linked, {"why": "before"})])
    span.set_attributes({"text": "Grüße\n", "number": 2, "flag": True, "many": ["a", "b"]})
    span.add_event("retry", {"attempt": 2})
    span.set_status(StatusCode.ERROR, "no luck")
    span.end()
    second = exported(path)[1]
    assert second["attributes"] == {"text": "Grüße\n", "number": 2, "flag": True, "many": ["a", "b"]}
    assert [(each["name"], each["attributes"]) for each in second["events"]] == [("retry", {"attempt": 2})]
    assert second["links"][0]["span_id"] == f"{linked.span_id:016x}"
    assert second["links"][0]["attributes"] == {"why": "before"}
    assert second["status"] == {"code": "error", "description": "no luck"}


def test_exception_on_a_span_is_an_event(provider: TracerProvider, path: Path) -> None:
    with pytest.raises(LookupError), provider.get_tracer("test").start_as_current_span("fails"):
        raise LookupError("gone")
    (span,) = exported(path)
    assert span["events"][0]["attributes"]["exception.message"] == "gone"
    assert span["status"]["code"] == "error"


def test_text_that_is_no_unicode_is_written_as_json_can(provider: TracerProvider, path: Path) -> None:
    with provider.get_tracer("test").start_as_current_span("odd") as span:
        span.set_attribute("text", "half a \ud83d pair")
    (line,) = exported(path)
    assert line["attributes"] == {"text": "half a \ud83d pair"}


def test_span_after_the_end_is_a_failure_and_raises_nothing(path: Path) -> None:
    exporter = JsonLinesSpanExporter(path)
    exporter.shutdown()
    exporter.shutdown()
    provider = TracerProvider(shutdown_on_exit=False)
    span = provider.get_tracer("test").start_span("late")
    span.end()
    assert exporter.export([span]) is SpanExportResult.FAILURE  # type: ignore[list-item]  # the SDK's spans are readable
    assert exporter.force_flush()
    assert exported(path) == []
