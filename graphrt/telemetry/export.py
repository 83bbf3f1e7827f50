"""Sending traces to a collector: one call sets up the SDK, the official exporter, and a flush at exit."""

from __future__ import annotations

import atexit
import logging
import threading
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from opentelemetry import trace
from opentelemetry.sdk.resources import SERVICE_NAME, OTELResourceDetector, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from graphrt.errors import ConfigError
from graphrt.telemetry.spans import Telemetry

if TYPE_CHECKING:
    from opentelemetry.sdk.trace.export import SpanExporter

log = logging.getLogger("graphrt.telemetry")

EXIT_SECONDS: Final = 5.0
"""Seconds that the end of the program waits for spans to be sent; what is left then is lost."""
_DEFAULT_SERVICE: Final = "graphrt"
_TRACES_PATH: Final = "/v1/traces"


class _Provider(TracerProvider):
    """A provider of `configure_tracing`, which remembers what it was asked for."""

    def __init__(self, asked: tuple[object, ...], resource: Resource) -> None:
        super().__init__(resource=resource, shutdown_on_exit=False)
        self.asked = asked


def configure_tracing(
    service_name: str | None = None,
    endpoint: str | None = None,
    exporter: SpanExporter | None = None,
) -> Telemetry:
    """Send the spans of this program to a collector, from now on.

    Call it once, in a program and not in a library. It makes a tracer provider the global one of
    OpenTelemetry, so that graphrt and all other instrumented code use it. Spans are sent in batches by a
    thread; a collector that is slow or away is logged, and delays neither runs nor, by more than
    `EXIT_SECONDS`, the end of the program.

    Args:
        service_name: What the program is called; by default what `OTEL_SERVICE_NAME` or
            `OTEL_RESOURCE_ATTRIBUTES` say, else "graphrt".
        endpoint: Where the collector takes OTLP over HTTP, such as "http://localhost:4318"; without a path,
            `/v1/traces` is added. By default what `OTEL_EXPORTER_OTLP_ENDPOINT` says, else that address.
            Headers, certificates, compression and time-outs come from the standard variables too.
        exporter: What sends the spans, in place of the OTLP exporter.

    Returns:
        A `Telemetry` of the new provider. Runs need it no more than any other: they find the provider
        themselves, and a `Telemetry(capture_content=True)` does.

    Raises:
        ConfigError: Tracing is set up already, in another way; both an endpoint and an exporter are given;
            the endpoint is no address; or the package of the OTLP exporter is missing. Nothing has changed.
    """
    if endpoint is not None and exporter is not None:
        raise ConfigError(
            f"configure_tracing() was given the endpoint {endpoint!r} and an exporter",
            hint="give the endpoint to the exporter, or leave one of them out",
        )
    asked = (service_name, endpoint, exporter)
    present = trace.get_tracer_provider()
    if isinstance(present, _Provider) and present.asked == asked:
        return Telemetry(present)  # a notebook cell that is run again
    if not isinstance(present, trace.ProxyTracerProvider):
        raise ConfigError(
            f"tracing of this program is set up already, with a {type(present).__name__}",
            hint="runs use it as it is; to send the spans of single runs elsewhere, give run() a "
            "telemetry=Telemetry(tracer_provider)",
        )
    provider = _Provider(asked, _resource(service_name))
    provider.add_span_processor(BatchSpanProcessor(exporter or _otlp_exporter(endpoint)))
    _Closing(provider)
    trace.set_tracer_provider(provider)
    return Telemetry(provider)


def _resource(service_name: str | None) -> Resource:
    if service_name is None and SERVICE_NAME not in OTELResourceDetector().detect().attributes:
        service_name = _DEFAULT_SERVICE
    return Resource.create({} if service_name is None else {SERVICE_NAME: service_name})


def _otlp_exporter(endpoint: str | None) -> SpanExporter:
    if endpoint is not None:
        endpoint = _traces_address(endpoint)
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    except ImportError as error:
        raise ConfigError(
            "traces cannot be sent: the OTLP exporter is not installed",
            hint="pip install 'graphrt[otlp]', or give configure_tracing() an exporter",
        ) from error
    return OTLPSpanExporter(endpoint=endpoint)


def _traces_address(endpoint: str) -> str:
    parts = urlsplit(endpoint)
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise ConfigError(
            f"endpoint is {endpoint!r}, which is no address of a collector",
            hint='give one such as "http://localhost:4318"',
        )
    return parts._replace(path=_TRACES_PATH).geturl() if parts.path in ("", "/") else endpoint


class _Closing:
    """Shuts a provider down at exit, and waits for it no longer than `EXIT_SECONDS`.

    The provider's own shutdown may take half a minute when the collector is away. It is left to a thread that
    is there before the exit, since none can be started then.
    """

    def __init__(self, provider: TracerProvider) -> None:
        self._provider = provider
        self._begin = threading.Event()
        self._thread = threading.Thread(target=self._close, name="graphrt-telemetry-exit", daemon=True)
        self._thread.start()
        atexit.register(self._at_exit)

    def _close(self) -> None:
        self._begin.wait()
        self._provider.shutdown()

    def _at_exit(self) -> None:
        if not self._thread.is_alive():  # in a forked child
            self._provider.shutdown()
            return
        self._begin.set()
        self._thread.join(EXIT_SECONDS)
        if self._thread.is_alive():
            log.warning("the last spans could not be sent within %g s, and are lost", EXIT_SECONDS)
