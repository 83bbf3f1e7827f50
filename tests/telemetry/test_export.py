"""Sending traces away: over the wire as OTLP, by the standard variables, and never in a program's way (C-13)."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from graphrt import ConfigError
from graphrt.telemetry import configure_tracing
from tests.telemetry.receiver import plain, receiving

ROOT = Path(__file__).parents[2]

PROGRAM = """
from graphrt import START, END, Workflow
from graphrt.telemetry import configure_tracing

flow = Workflow("flow")

@flow.node
async def one(x: int) -> int: return x

@flow.node(on_error="skip")
async def two(x: int) -> int: raise ValueError("half a \\ud83d pair")

flow.chain(START, one, END)
flow.edge(one, two)
flow.edge(two, END)
"""


def run_program(code: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a traced program in a fresh interpreter, with these variables and no other of OpenTelemetry."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("OTEL_")}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM + code],
        cwd=ROOT,
        env=environment | variables,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done


def test_spans_arrive_as_they_are_when_the_program_ends() -> None:
    with receiving() as collector:
        done = run_program(f"configure_tracing('my program', {collector.address!r})\nprint(flow.run_sync(7).output)")
        assert (done.stdout, done.stderr) == ("7\n", "")
    assert set(collector.paths) == {"/v1/traces"}
    assert collector.headers[0]["content-type"] == "application/x-protobuf"
    assert collector.resources[0]["service.name"] == "my program"
    spans = {span.name: span for span in collector.spans}
    assert set(spans) == {"invoke_workflow flow", "node one", "node two"}
    root, step, failed = spans["invoke_workflow flow"], spans["node one"], spans["node two"]
    assert root.parent_span_id == b""
    assert {step.parent_span_id, failed.parent_span_id} == {root.span_id}
    assert {span.trace_id for span in spans.values()} == {root.trace_id}
    assert plain(step.attributes) == {
        "graphrt.kind": "node",
        "graphrt.node.id": "one",
        "graphrt.scope": "",
        "graphrt.round": 1,
    }
    assert failed.status.code == 2
    assert failed.status.message == "half a \ufffd pair"
    assert plain(failed.events[0].attributes)["exception.message"] == "half a \ufffd pair"
    assert root.start_time_unix_nano <= step.start_time_unix_nano
    assert step.end_time_unix_nano <= root.end_time_unix_nano
    (scope,) = collector.scopes
    assert scope.scope.name == "graphrt"
    assert "graphrt.gen_ai.conventions" in plain(scope.scope.attributes)


def test_standard_variables_say_where_and_who() -> None:
    with receiving() as collector:
        run_program(
            "configure_tracing()\nflow.run_sync(7)",
            OTEL_EXPORTER_OTLP_ENDPOINT=collector.address,
            OTEL_EXPORTER_OTLP_HEADERS="x-key=secret",
            OTEL_EXPORTER_OTLP_COMPRESSION="gzip",
            OTEL_SERVICE_NAME="from outside",
            OTEL_RESOURCE_ATTRIBUTES="team=blue",
        )
    assert collector.resources[0]["service.name"] == "from outside"
    assert collector.resources[0]["team"] == "blue"
    assert collector.headers[0]["x-key"] == "secret"
    assert collector.headers[0]["content-encoding"] == "gzip"
    assert len(collector.spans) == 3


def test_program_without_a_name_is_called_graphrt_and_arguments_go_before_variables() -> None:
    with receiving() as collector:
        endpoint = f"{collector.address}/otlp/v1/traces"
        run_program(f"configure_tracing(endpoint={endpoint!r})\nflow.run_sync(7)", OTEL_SERVICE_NAME="")
        run_program(f"configure_tracing('one', {endpoint!r})\nflow.run_sync(7)", OTEL_SERVICE_NAME="other")
    assert set(collector.paths) == {"/otlp/v1/traces"}
    assert [each["service.name"] for each in collector.resources] == ["graphrt", "one"]


def test_exporter_of_ones_own_gets_the_spans_of_all_instrumented_code() -> None:
    done = run_program(
        "from opentelemetry import trace\n"
        "from graphrt.telemetry import JsonLinesSpanExporter, Telemetry\n"
        "import sys\n"
        "telemetry = configure_tracing(exporter=JsonLinesSpanExporter('/dev/stdout'))\n"
        "assert telemetry.tracer_provider is trace.get_tracer_provider() is Telemetry().tracer_provider\n"
        "with trace.get_tracer('mine').start_as_current_span('mine'):\n"
        "    flow.run_sync(7, telemetry=Telemetry(capture_content=True))\n"
        "assert not any('otlp' in name for name in sys.modules)\n"
    )
    assert [line.split('"')[3] for line in done.stdout.splitlines()] == [
        "node one",
        "node two",
        "invoke_workflow flow",
        "mine",
    ]
    assert '"graphrt.input": "7"' in done.stdout


def test_asking_for_the_same_again_is_harmless_and_for_something_else_refused() -> None:
    done = run_program(
        "from graphrt import ConfigError\n"
        "first = configure_tracing('a', 'http://localhost:1')\n"
        "second = configure_tracing('a', 'http://localhost:1')\n"
        "print(first.tracer_provider is second.tracer_provider)\n"
        "try: configure_tracing('b')\n"
        "except ConfigError as error: print(error)\n"
    )
    same, message = done.stdout.split("\n", 1)
    assert same == "True"
    assert message.startswith("tracing of this program is set up already, with a _Provider\n  hint: runs use it")


def test_collector_that_is_away_or_refuses_costs_a_run_nothing_and_the_end_a_moment() -> None:
    code = (
        "import graphrt.telemetry.export as export, time\n"
        "export.EXIT_SECONDS = 0.2\n"
        "configure_tracing('a', {address!r})\n"
        "print(flow.run_sync(7).output)\n"
    )
    with socket.create_server(("127.0.0.1", 0)) as silent:  # takes connections, and never answers
        address = f"http://127.0.0.1:{silent.getsockname()[1]}"
        done = run_program(code.format(address=address))
        assert done.stdout == "7\n"
        assert "could not be sent within 0.2 s" in done.stderr
    with receiving() as collector:
        collector.answer = 400
        done = run_program(code.format(address=collector.address))
    assert done.stdout == "7\n"
    assert len(collector.spans) == 3


def test_endpoint_and_exporter_exclude_each_other() -> None:
    with pytest.raises(ConfigError, match="was given the endpoint 'http://localhost:4318' and an exporter"):
        configure_tracing("a", "http://localhost:4318", InMemorySpanExporter())


@pytest.mark.parametrize("endpoint", ["localhost:4318", "ftp://localhost", "http://", ""])
def test_endpoint_that_is_no_address_is_refused(endpoint: str) -> None:
    with pytest.raises(ConfigError, match="which is no address of a collector"):
        configure_tracing("a", endpoint)


def test_missing_exporter_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    with pytest.raises(ConfigError, match=r"pip install 'graphrt\[otlp\]'"):
        configure_tracing("a")
