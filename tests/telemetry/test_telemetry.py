"""Where spans go: nowhere without a provider, each run's to its own, and never into the way of a run (C-12)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from opentelemetry.trace import NoOpTracerProvider

from graphrt import END, START, ConfigError, RetryPolicy, Workflow
from graphrt.telemetry import Telemetry, observer_for
from tests.telemetry.collecting import Collected, logged

ROOT = Path(__file__).parents[2]


def simple() -> Workflow:
    workflow = Workflow("simple")

    @workflow.node
    async def one(x: int) -> int:
        return x + 1

    @workflow.node(retry=RetryPolicy(attempts=2, wait_initial=0), fallback=7)
    async def two(x: int) -> int:
        raise ValueError("no luck")

    workflow.chain(START, one, two)
    workflow.edge(two, one, when=lambda x: x < 0)
    workflow.edge(two, END, when=lambda x: x >= 0)
    return workflow


def run_python(code: str) -> str:
    """Run *code* in a fresh interpreter, and give what it prints."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


RUNNING = """
import sys
from graphrt import Workflow, START, END
flow = Workflow("flow")
@flow.node
async def one(x: int) -> int: return x
flow.chain(START, one, END)
"""


def test_run_without_opentelemetry_imports_nothing_of_it() -> None:
    code = f"{RUNNING}\nflow.run_sync(1)\nprint([m for m in sys.modules if 'telemetry' in m])"
    assert run_python(code).strip() == "[]"


def test_run_of_a_program_without_a_provider_has_no_observer() -> None:
    """AC-C17."""
    code = (
        f"from opentelemetry import trace\n{RUNNING}\nflow.run_sync(1)\n"
        "from graphrt.telemetry import Telemetry, observer_for\n"
        "print(observer_for(None, flow.compile().program, 'r'), Telemetry().tracer,"
        " any(m.startswith('opentelemetry.sdk') for m in sys.modules))"
    )
    assert run_python(code).split() == ["None", "None", "False"]


def test_spans_go_to_the_global_provider_once_there_is_one() -> None:
    code = (
        "from opentelemetry import trace\n"
        "from opentelemetry.sdk.trace import TracerProvider\n"
        "from opentelemetry.sdk.trace.export import SimpleSpanProcessor\n"
        "from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter\n"
        f"{RUNNING}\nfrom graphrt.telemetry import Telemetry\n"
        "telemetry = Telemetry()\nflow.run_sync(0, telemetry=telemetry)\n"
        "exporter, provider = InMemorySpanExporter(), TracerProvider()\n"
        "provider.add_span_processor(SimpleSpanProcessor(exporter))\n"
        "trace.set_tracer_provider(provider)\n"
        "flow.run_sync(1)\nflow.run_sync(2, telemetry=telemetry)\n"
        "print(*[s.name.replace(' ', ':') for s in exporter.get_finished_spans()])"
    )
    assert run_python(code).split() == ["node:one", "invoke_workflow:flow"] * 2


@pytest.mark.parametrize("provider", [NoOpTracerProvider(), trace.ProxyTracerProvider()], ids=["noop", "proxy"])
def test_provider_that_makes_no_spans_is_none(provider: Any) -> None:
    telemetry = Telemetry(provider)
    assert telemetry.tracer is None
    assert telemetry.tracer_provider is None
    assert observer_for(telemetry, simple().compile().program, "r") is None


def test_disabled_sdk_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    assert Telemetry(TracerProvider(shutdown_on_exit=False)).tracer is None


def test_what_makes_no_tracers_is_refused() -> None:
    with pytest.raises(ConfigError, match="tracer_provider is 'stdout', which makes no tracers"):
        Telemetry("stdout")  # type: ignore[arg-type]  # what is refused


@pytest.mark.anyio
async def test_runs_with_different_providers_export_only_their_own_spans() -> None:
    """AC-C17."""
    one, two = Collected(), Collected()
    graph = simple().compile()
    outer = Workflow("outer")

    @outer.node
    async def calls(x: int) -> int:
        return (await graph.run(x, telemetry=two.telemetry)).output  # type: ignore[no-any-return]  # an int

    outer.chain(START, calls, END)
    await outer.run(1, telemetry=one.telemetry)
    await graph.run(1)
    assert [span.name for span in one.spans] == ["node calls", "invoke_workflow outer"]
    assert "node calls" not in {span.name for span in two.spans}
    assert len(two.of_kind("run")) == 1


@pytest.mark.anyio
async def test_run_that_is_not_sampled_goes_on_and_records_nothing() -> None:
    collected = Collected(capture_content=True)
    collected.provider.sampler = ALWAYS_OFF
    result = await simple().run(1, telemetry=collected.telemetry)
    assert result.output == 7
    assert collected.spans == []


class Broken(SpanProcessor):
    """Fails when a span begins, or when it ends."""

    def __init__(self, when: str) -> None:
        self.when = when

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        if self.when == "start":
            raise OSError("the disk is full")

    def on_end(self, span: ReadableSpan) -> None:
        if self.when == "end":
            raise OSError("the disk is full")


@pytest.mark.anyio
@pytest.mark.parametrize("when", ["start", "end"])
async def test_broken_span_processor_does_not_reach_the_run(when: str) -> None:
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(Broken(when))
    telemetry = Telemetry(provider)
    with logged() as texts:
        result = await simple().run(1, telemetry=telemetry)
        with telemetry.turn("agent"):
            pass
    assert result.output == 7
    assert result.status == "succeeded"
    assert len(texts) == 2  # one for the run, one for the turn
    assert all("span" in text for text in texts)


def test_telemetry_shows_where_spans_go_and_what_they_hold() -> None:
    assert repr(Telemetry()) == "Telemetry(the global provider, capture_content=False, openinference=False)"
    shown = repr(Telemetry(TracerProvider(shutdown_on_exit=False), capture_content=True))
    assert shown == "Telemetry(TracerProvider, capture_content=True, openinference=False)"
