"""A collector: takes OTLP over HTTP, and decodes what it is sent."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


class Receiver:
    """What has arrived."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.paths: list[str] = []
        self.headers: list[dict[str, str]] = []
        self.requests: list[Any] = []
        self.answer = 200

    @property
    def spans(self) -> list[Any]:
        """Spans of all requests."""
        return [span for scope in self.scopes for span in scope.spans]

    @property
    def scopes(self) -> list[Any]:
        """Spans by instrumentation scope, of all requests."""
        return [scope for one in self.requests for part in one.resource_spans for scope in part.scope_spans]

    @property
    def resources(self) -> list[dict[str, str]]:
        """Attributes of the resources that have sent something."""
        return [plain(part.resource.attributes) for one in self.requests for part in one.resource_spans]


def plain(attributes: Any) -> dict[str, Any]:
    """Give encoded attributes as a dict."""
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in attributes}


@contextmanager
def receiving() -> Iterator[Receiver]:
    """Listen on a free port of this machine."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            receiver.paths.append(self.path)
            receiver.headers.append({key.lower(): value for key, value in self.headers.items()})
            receiver.requests.append(ExportTraceServiceRequest.FromString(body))
            self.send_response(receiver.answer)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        receiver = Receiver(f"http://127.0.0.1:{server.server_address[1]}")
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield receiver
        finally:
            server.shutdown()
            thread.join()
