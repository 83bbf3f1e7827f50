"""The Agent2Agent protocol as JSON: what is sent, and how replies are read. Versions 1.0 and 0.3.

They differ in the names of methods, roles and states, and in how a part, a reply and an agent's card are laid out.
What is read is told apart by its form, since servers mix the two.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final
from urllib.parse import urlsplit

from graphrt.errors import GraphrtError, ToolErrorKind

CARD_PATH: Final = "/.well-known/agent-card.json"
"""Where an agent's card lies below its base URL."""
VERSION_HEADER: Final = "A2A-Version"
"""Header that names the version of a request; servers take its absence for 0.3."""


class A2AError(GraphrtError):
    """A remote agent could not be asked, or what it answers is of no use."""

    def __init__(self, message: str, *, kind: ToolErrorKind = ToolErrorKind.EXECUTION, may_pass: bool = False) -> None:
        super().__init__(message)
        self.kind = kind
        self.may_pass = may_pass
        """Whether the same question may be answered when it is asked again."""


class Version(StrEnum):
    """A version of the protocol."""

    V1_0 = "1.0"
    V0_3 = "0.3"


class TaskState(StrEnum):
    """Where a task is, by one name for both versions."""

    SUBMITTED = "submitted"
    WORKING = "working"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELED = "canceled"
    REJECTED = "rejected"
    INPUT_REQUIRED = "input_required"
    AUTH_REQUIRED = "auth_required"
    UNKNOWN = "unknown"


TERMINAL: Final = frozenset({TaskState.COMPLETED, TaskState.FAILED, TaskState.CANCELED, TaskState.REJECTED})
"""States that a task never leaves."""
INTERRUPTED: Final = frozenset({TaskState.INPUT_REQUIRED, TaskState.AUTH_REQUIRED})
"""States in which a task waits for its client."""


@dataclass(frozen=True, slots=True)
class Interface:
    """Where and how an agent is asked."""

    url: str
    version: Version
    tenant: str | None = None
    """Sent back with every request, if the card says so."""

    def send(self, prompt: str, message_id: str, metadata: Mapping[str, str]) -> tuple[str, dict[str, Any]]:
        """Make method and parameters of a message that begins a task; the server need not wait for its end."""
        message: dict[str, Any] = {"messageId": message_id}
        if self.version is Version.V1_0:
            message |= {"role": "ROLE_USER", "parts": [{"text": prompt}]}
            configuration: dict[str, Any] = {"returnImmediately": True}
        else:
            message |= {"kind": "message", "role": "user", "parts": [{"kind": "text", "text": prompt}]}
            configuration = {"blocking": False}
        params = {"message": message, "configuration": {"acceptedOutputModes": list(_MODES), **configuration}}
        if metadata:
            params["metadata"] = dict(metadata)
        return self._method("SendMessage", "message/send"), self._with_tenant(params)

    def get(self, task_id: str) -> tuple[str, dict[str, Any]]:
        """Make method and parameters of a question for a task."""
        return self._method("GetTask", "tasks/get"), self._with_tenant({"id": task_id})

    def cancel(self, task_id: str) -> tuple[str, dict[str, Any]]:
        """Make method and parameters of a wish to cancel a task."""
        return self._method("CancelTask", "tasks/cancel"), self._with_tenant({"id": task_id})

    def _method(self, name: str, old_name: str) -> str:
        return name if self.version is Version.V1_0 else old_name

    def _with_tenant(self, params: dict[str, Any]) -> dict[str, Any]:
        return params if self.tenant is None else {"tenant": self.tenant, **params}


_MODES: Final = ("text/plain", "application/json")


@dataclass(frozen=True, slots=True)
class Reply:
    """What an agent answered: a message, which is final, or a task as it is now."""

    text: str
    task_id: str | None = None
    """None: it is a message."""
    state: TaskState = TaskState.COMPLETED

    @property
    def is_open(self) -> bool:
        """Whether the agent is at work."""
        return self.state not in TERMINAL | INTERRUPTED


def read_card(card: Any) -> Interface:
    """Choose an interface from an agent's card: one over JSON-RPC, of 1.0 rather than 0.3.

    Raises:
        A2AError: There is none whose address is of use, or it is no card.
    """
    if not isinstance(card, Mapping):
        raise A2AError("its agent card is no JSON object")
    found = _interfaces(card)
    for version in Version:
        for each in found:
            if each.version is version:
                return each
    raise A2AError("its agent card offers no interface over JSON-RPC of version 1.0 or 0.3")


def _interfaces(card: Mapping[str, Any]) -> list[Interface]:
    """List the interfaces over JSON-RPC whose version is known, as the card orders them."""
    offered: list[tuple[Any, Any, Any, Any]] = []
    for each in _mappings(card.get("supportedInterfaces")):
        version = each.get("protocolVersion") or Version.V1_0
        offered.append((each.get("url"), each.get("protocolBinding"), version, each.get("tenant")))
    if not offered:
        version = card.get("protocolVersion") or Version.V0_3
        offered.append((card.get("url"), card.get("preferredTransport") or "JSONRPC", version, None))
        others = _mappings(card.get("additionalInterfaces"))
        offered.extend((each.get("url"), each.get("transport"), version, None) for each in others)
    known = [(url, read_version(version), tenant) for url, binding, version, tenant in offered if binding == "JSONRPC"]
    return [Interface(url, version, tenant or None) for url, version, tenant in known if version and _is_url(url)]


def _is_url(url: Any) -> bool:
    try:
        check_url(url)
    except A2AError:
        return False
    return True


def read_version(text: Any) -> Version | None:
    """Read ``major.minor``, and pass over what comes after; None for a version that is not known here."""
    major, _, rest = str(text).partition(".")
    minor = rest.partition(".")[0]
    if major == "1":
        return Version.V1_0
    return Version.V0_3 if (major, minor) == ("0", "3") else None


def check_url(url: Any) -> None:
    """Check that *url* is a full address of the web, without the name and password that one may hold.

    Raises:
        A2AError: It is not; the text shows nothing that may be secret.
    """
    try:
        parts = urlsplit(url if isinstance(url, str) else "")
        usable = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
        usable = usable and "@" not in parts.netloc
    except ValueError:
        usable = False
    if not usable:
        raise A2AError("is no URL that starts with http:// or https:// and names a host, and no user")


def origin(url: str) -> tuple[str, str | None, int | None]:
    """Give scheme, host and port: what a secret in a header may be sent to."""
    parts = urlsplit(url)
    return parts.scheme, parts.hostname, parts.port or {"http": 80, "https": 443}.get(parts.scheme)


def shown(url: str) -> str:
    """Give *url* as an error may show it: a secret may be behind the question mark."""
    return url.partition("?")[0].partition("#")[0]


def read_response(body: Any) -> Any:
    """Give the result in a JSON-RPC response.

    Raises:
        A2AError: It is an error, or no response.
    """
    if isinstance(body, Mapping):
        error = body.get("error")
        if isinstance(error, Mapping):
            raise A2AError(f"it answered with error {error.get('code')}: {error.get('message') or 'no message'}")
        if "result" in body:
            return body["result"]
    raise A2AError("its reply is no JSON-RPC response")


def read_reply(result: Any) -> Reply:
    """Read the answer to a message, or to a question for a task.

    Raises:
        A2AError: It is neither a message nor a task.
    """
    if isinstance(result, Mapping):
        inner = result.get("task") or result.get("message")
        found = inner if isinstance(inner, Mapping) else result
        status, id = found.get("status"), found.get("id")
        if isinstance(status, Mapping) and isinstance(id, str) and id:
            state = _read_state(status.get("state"))
            return Reply(_text_of_task(found, status, state), id, state)
        if isinstance(found.get("parts"), Sequence):
            return Reply(_text_of(found))
    raise A2AError("its reply is neither a message nor a task")


def _read_state(state: Any) -> TaskState:
    name = str(state).lower().removeprefix("task_state_").replace("-", "_")
    try:
        return TaskState(name)
    except ValueError:
        return TaskState.CANCELED if name == "cancelled" else TaskState.UNKNOWN


def _text_of_task(task: Mapping[str, Any], status: Mapping[str, Any], state: TaskState) -> str:
    """Give a task's artifacts, else what its status says, else the agent's last message; of a failure, the reason."""
    said = _text_of(status.get("message"))
    if state is not TaskState.COMPLETED and said:
        return said
    made = [text for text in map(_text_of, _mappings(task.get("artifacts"))) if text]
    if made:
        return "\n\n".join(made)
    if said:
        return said
    spoken = [each for each in _mappings(task.get("history")) if each.get("role") in {"agent", "ROLE_AGENT"}]
    return _text_of(spoken[-1]) if spoken and state is TaskState.COMPLETED else ""


def _text_of(holder: Any) -> str:
    """Give the parts of a message or an artifact as a text."""
    if not isinstance(holder, Mapping):
        return ""
    return "\n".join(text for text in map(_text_of_part, _mappings(holder.get("parts"))) if text)


def _text_of_part(part: Mapping[str, Any]) -> str:
    text = part.get("text")
    if isinstance(text, str):
        return text
    if "data" in part:
        return json.dumps(part["data"], ensure_ascii=False)
    file = part.get("file")
    file = file if isinstance(file, Mapping) else part
    name = file.get("filename") or file.get("name") or ""
    address = file.get("url") or file.get("uri") or ""
    shown = ": ".join(str(each) for each in (name, address) if each)
    return f"[file {shown}]" if shown else "[file]"


def _mappings(values: Any) -> list[Mapping[str, Any]]:
    """Give the objects in a list; what is no list has none."""
    if not isinstance(values, Sequence) or isinstance(values, str):
        return []
    return [each for each in values if isinstance(each, Mapping)]
