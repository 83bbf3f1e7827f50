"""A remote agent for tests: a small HTTP server, in a thread of its own, that answers as it is told."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

CARD = "/.well-known/agent-card.json"


@dataclass
class Raw:
    """A reply as it goes over the wire."""

    body: bytes = b""
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass
class Refusal:
    """An error in JSON-RPC."""

    code: int
    message: str
    status: int = 200


class Hang:
    """No reply before the server is closed."""


@dataclass
class Seen:
    """One request."""

    path: str
    headers: dict[str, str]
    body: Any = None

    @property
    def method(self) -> str:
        """The method in JSON-RPC; the path for what is none."""
        return self.body["method"] if self.body is not None else self.path

    @property
    def params(self) -> Any:
        return self.body["params"]


class RemoteAgent:
    """Answers each method with the next of its replies, and with the last one again and again."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.card: Any = card(url)
        self.replies: dict[str, list[Any]] = {}
        self.seen: list[Seen] = []
        self.closing = threading.Event()
        self.asked = threading.Event()
        """Set when a message has come."""

    def methods(self) -> list[str]:
        """List what was asked for, in order, the card left out."""
        return [each.method for each in self.seen if each.path != CARD]

    def one(self, method: str) -> Seen:
        """Give the only request for a method."""
        [found] = [each for each in self.seen if each.method == method]
        return found

    def reply_to(self, request: Seen) -> Any:
        self.seen.append(request)
        if request.path == CARD:
            return self.card
        self.asked.set()
        replies = self.replies[request.method]
        return replies.pop(0) if len(replies) > 1 else replies[0]


def card(url: str, *, version: str = "1.0", **more: Any) -> dict[str, Any]:
    """Make an agent's card, in the form of its version."""
    if version == "0.3":
        return {"name": "far", "url": f"{url}/rpc", "preferredTransport": "JSONRPC", "protocolVersion": "0.3.0", **more}
    interface = {"url": f"{url}/rpc", "protocolBinding": "JSONRPC", "protocolVersion": version, **more}
    return {"name": "far", "supportedInterfaces": [interface]}


def task(state: str, *, id: str = "task-1", said: str | None = None, made: str | None = None) -> dict[str, Any]:
    """Make a task of version 1.0; its state is named in short."""
    status: dict[str, Any] = {"state": f"TASK_STATE_{state}"}
    if said is not None:
        status["message"] = {"messageId": "m", "role": "ROLE_AGENT", "parts": [{"text": said}]}
    whole: dict[str, Any] = {"id": id, "contextId": "c", "status": status}
    if made is not None:
        whole["artifacts"] = [{"artifactId": "a", "parts": [{"text": made}]}]
    return whole


def message(text: str) -> dict[str, Any]:
    """Make the reply of version 1.0 that is a message."""
    return {"message": {"messageId": "m", "role": "ROLE_AGENT", "parts": [{"text": text}]}}


class _Server(ThreadingHTTPServer):
    daemon_threads = False  # closing waits for what is being answered
    agent: RemoteAgent


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def do_GET(self) -> None:
        self._answer(Seen(self.path, dict(self.headers)))

    def do_POST(self) -> None:
        length = int(self.headers["Content-Length"])
        content = self.rfile.read(length)
        if len(content) < length:
            return  # the client has gone
        self._answer(Seen(self.path, dict(self.headers), json.loads(content)))

    def _answer(self, request: Seen) -> None:
        reply = self.server.agent.reply_to(request)
        if isinstance(reply, Hang):
            self.server.agent.closing.wait()
            return
        if isinstance(reply, Raw):
            self._send(reply)
        elif request.body is None:
            self._send(Raw(json.dumps(reply).encode()))
        elif isinstance(reply, Refusal):
            self._send_rpc(request, reply.status, error={"code": reply.code, "message": reply.message})
        else:
            self._send_rpc(request, 200, result=reply)

    def _send_rpc(self, request: Seen, status: int, **outcome: Any) -> None:
        body = {"jsonrpc": "2.0", "id": request.body["id"], **outcome}
        self._send(Raw(json.dumps(body).encode(), status))

    def _send(self, reply: Raw) -> None:
        with suppress(ConnectionError):  # the client may have gone
            self._write(reply)

    def _write(self, reply: Raw) -> None:
        self.send_response(reply.status)
        for name, value in {"Content-Type": "application/json", **reply.headers}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(reply.body)))
        self.end_headers()
        self.wfile.write(reply.body)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


@contextmanager
def serving() -> Iterator[RemoteAgent]:
    """Have an agent listen on a port of its own, and nothing of it left at the end."""
    with _Server(("127.0.0.1", 0), _Handler) as server:
        agent = server.agent = RemoteAgent(f"http://127.0.0.1:{server.server_port}")
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), name="remote-agent")
        thread.start()
        try:
            yield agent
        finally:
            agent.closing.set()
            server.shutdown()
            thread.join()
