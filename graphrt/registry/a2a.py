"""An agent behind the Agent2Agent protocol, asked by JSON-RPC over HTTP."""

from __future__ import annotations

import json
import logging
import uuid
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import anyio
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from graphrt.errors import ConfigError, ToolErrorKind
from graphrt.registry.a2a_wire import (
    CARD_PATH,
    TERMINAL,
    VERSION_HEADER,
    A2AError,
    Interface,
    Reply,
    TaskState,
    Version,
    check_url,
    origin,
    read_card,
    read_reply,
    read_response,
    shown,
)
from graphrt.threads import run_in_thread
from graphrt.tools.delegate import DelegateReply, tell_started

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import httpx

    from graphrt.registry.specs import RemoteEndpoint
    from graphrt.tools.base import ToolContext

log = logging.getLogger(__name__)

CONNECT_SECONDS: Final = 10.0
"""How long it may take to reach the server."""
QUESTION_SECONDS: Final = 30.0
"""How long the server may take for its card, or to say how a task is."""
CANCEL_SECONDS: Final = 2.0
"""How long telling the server that a task is not wanted any more may hold its caller up."""
FIRST_WAIT: Final = 0.1
"""Seconds before a task is asked for the first time."""
LONGEST_WAIT: Final = 5.0
"""Seconds between two questions at most."""
MOST_FAILURES: Final = 3
"""How often in a row the server may be out of reach while a task is waited for."""
MOST_BYTES: Final = 16 * 1024 * 1024
"""How long a reply may be."""


class A2AOptions(BaseModel):
    """What an endpoint's options may say."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    headers: dict[str, str] = Field(default_factory=dict, repr=False)
    """Sent with every request, such as ``Authorization``; only to the server that ``base_url`` names."""
    timeout: Annotated[float, Field(gt=0)] | None = 300
    """Seconds in which the agent has to answer; None: the run's own limits are all there are."""
    protocol: Literal["1.0", "0.3"] | None = None
    """Version of the protocol; ``base_url`` is then where requests go. None: the agent's card says both."""

    @field_validator("headers")
    @classmethod
    def _can_be_sent(cls, headers: dict[str, str]) -> dict[str, str]:
        for name, value in headers.items():
            if not (name.isascii() and name.replace("-", "").replace("_", "").isalnum()):
                raise ValueError(f"{name!r} is no name of a header")
            if not (value.isascii() and value.isprintable() and value == value.strip()):
                raise ValueError(f"the value of header {name!r} is not plain ASCII on one line")
        return headers


class A2ABackend:
    """Asks one remote agent.

    A prompt is sent as a message. If the agent makes a task of it, the task is asked for until it is done, at
    growing intervals; when the call is cancelled, or its time is up, so is the task. An agent that asks back, or
    wants a login, gets no answer: that is an error, with what it asks.
    """

    def __init__(self, agent_id: str, endpoint: RemoteEndpoint) -> None:
        """Check the endpoint's settings; nothing is sent.

        Raises:
            ConfigError: They are wrong, or the package ``httpx`` is missing.
        """
        self._agent_id = agent_id
        self._url = endpoint.base_url
        try:
            self._options = A2AOptions.model_validate(endpoint.options)
            check_url(self._url)
            if shown(self._url) != self._url:
                raise A2AError("has a query or a fragment")
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False, include_context=False)[0]
            where = ".".join(map(str, first["loc"]))
            known = ", ".join(A2AOptions.model_fields)
            raise ConfigError(f"option {where!r}: {first['msg']}", hint=f"options are: {known}") from error
        except A2AError as error:
            raise ConfigError(f"base_url {error.message}") from error
        _check_package()

    async def run(self, prompt: str, ctx: ToolContext[Any]) -> DelegateReply:
        """Ask the agent; what goes wrong on the way is an error for the model to read."""
        options = self._options
        async with await run_in_thread(_new_client, options.headers) as client:
            call = _Call(client, self._agent_id, ctx)
            try:
                with anyio.fail_after(options.timeout):
                    call.interface = await self._find_interface(client)
                    reply = await call.answer(prompt)
            except A2AError as error:
                return self._failed(call, f"could not answer: {error.message}", error.kind, error)
            except TimeoutError as error:
                reason = f"had no answer after {options.timeout:g} seconds"
                return self._failed(call, reason, ToolErrorKind.TIMEOUT, error)
            finally:
                await call.abandon()
        if reply.state is TaskState.COMPLETED:
            return DelegateReply(reply.text, reply.task_id)
        return self._failed(call, _ENDED[reply.state] + (f": {reply.text}" if reply.text else ""))

    async def _find_interface(self, client: httpx.AsyncClient) -> Interface:
        options = self._options
        if options.protocol is not None:
            return Interface(self._url, Version(options.protocol))
        interface = read_card(await _exchange(client, "GET", self._url.rstrip("/") + CARD_PATH, QUESTION_SECONDS))
        if options.headers and origin(interface.url) != origin(self._url):
            raise A2AError(
                f"its card names {shown(interface.url)!r}, which is another server than {self._url!r}, and gets no "
                "headers of the endpoint: give its address as base_url, and options 'protocol'"
            )
        return interface

    def _failed(
        self,
        call: _Call,
        how: str,
        kind: ToolErrorKind = ToolErrorKind.EXECUTION,
        cause: BaseException | None = None,
    ) -> DelegateReply:
        reason = f"remote agent {self._agent_id!r} {how}"
        return DelegateReply(error=reason, run_id=call.task_id, kind=kind, cause=cause)


_ENDED: Final = {
    TaskState.FAILED: "failed",
    TaskState.CANCELED: "was cancelled",
    TaskState.REJECTED: "declined",
    TaskState.INPUT_REQUIRED: "asks back, and there is nobody to answer it",
    TaskState.AUTH_REQUIRED: "wants a login, which it was not given",
}


class _Call:
    """One prompt on its way to an agent, and the task that it has become."""

    def __init__(self, client: httpx.AsyncClient, agent_id: str, ctx: ToolContext[Any]) -> None:
        self._client = client
        self._agent_id = agent_id
        self._ctx = ctx
        self._open = False
        self.interface: Interface | None = None
        self.task_id: str | None = None

    async def answer(self, prompt: str) -> Reply:
        """Send the prompt, and wait for what the agent has to say.

        Raises:
            A2AError: It cannot be asked, or its reply cannot be read.
        """
        assert self.interface is not None
        ctx = self._ctx
        called = {"graphrt.run_id": ctx.run_id, "graphrt.tool_call_id": ctx.tool_call_id}
        metadata = {name: value for name, value in called.items() if value is not None}
        message_id = ctx.idempotency_key or uuid.uuid4().hex  # the server may know a message again by it
        reply = await self._ask(*self.interface.send(prompt, message_id, metadata), None)
        if reply.task_id is not None:
            self.task_id = reply.task_id
            tell_started(self._agent_id, reply.task_id, ctx)
        failures = 0
        for wait in waits():
            self._open = reply.task_id is not None and reply.state not in TERMINAL
            if not reply.is_open:
                break
            await anyio.sleep(wait)
            try:
                reply = await self._ask(*self.interface.get(self.task_id or ""), QUESTION_SECONDS)
                failures = 0
            except A2AError as error:
                failures += 1
                if not error.may_pass or failures == MOST_FAILURES:
                    raise
        return reply

    async def abandon(self) -> None:
        """Tell the server that a task is not wanted any more, if it may still be at work; whoever is cancelled."""
        if not self._open or self.interface is None or self.task_id is None:
            return
        self._open = False
        with anyio.move_on_after(CANCEL_SECONDS, shield=True):
            try:
                await self._ask(*self.interface.cancel(self.task_id), CANCEL_SECONDS)
            except A2AError as error:
                log.info("task %r of agent %r was not cancelled: %s", self.task_id, self._agent_id, error.message)

    async def _ask(self, method: str, params: Mapping[str, Any], seconds: float | None) -> Reply:
        assert self.interface is not None
        request = {"jsonrpc": "2.0", "id": uuid.uuid4().hex, "method": method, "params": params}
        version = self.interface.version
        headers = {} if version is Version.V0_3 else {VERSION_HEADER: version}
        body = await _exchange(self._client, "POST", self.interface.url, seconds, json=request, headers=headers)
        return read_reply(read_response(body))


def _new_client(headers: Mapping[str, str]) -> httpx.AsyncClient:
    """Make a client; that reads certificates from the disk, and takes a while."""
    import httpx

    return httpx.AsyncClient(headers=headers)


def waits() -> Iterator[float]:
    """Give the seconds between questions for a task, without end: each half as long again, up to a limit."""
    wait = FIRST_WAIT
    while True:
        yield wait
        wait = min(wait * 1.5, LONGEST_WAIT)


async def _exchange(client: httpx.AsyncClient, method: str, url: str, seconds: float | None, **request: Any) -> Any:
    """Send a request, and give the JSON of the reply; *seconds* may pass without a byte of it.

    Raises:
        A2AError: There is no connection, no JSON, or a status of failure without an error in JSON-RPC.
    """
    import httpx

    timeout = httpx.Timeout(seconds, connect=CONNECT_SECONDS)
    try:
        async with client.stream(method, url, timeout=timeout, **request) as response:
            content = await _read(response)
    except httpx.TimeoutException as error:
        raise A2AError(f"{shown(url)} gave no reply in time", kind=ToolErrorKind.TIMEOUT, may_pass=True) from error
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise A2AError(f"no connection to {shown(url)}: {str(error) or type(error).__name__}", may_pass=True) from error
    try:
        body = json.loads(content)
    except ValueError as error:
        if response.is_success:
            raise A2AError(f"the reply of {shown(url)} is no JSON") from error
        body = None
    if response.is_success or (isinstance(body, dict) and isinstance(body.get("error"), dict) and "jsonrpc" in body):
        return body
    answered = f"{shown(url)} answered with HTTP status {response.status_code} {response.reason_phrase}".rstrip()
    raise A2AError(answered, may_pass=response.status_code in _MAY_PASS)


_MAY_PASS: Final = frozenset({429, 502, 503, 504})


async def _read(response: httpx.Response) -> bytes:
    content = bytearray()
    with anyio.CancelScope() as scope:
        async for piece in response.aiter_bytes():
            if len(content) > MOST_BYTES:
                scope.cancel()  # and not ``break``, which would leave the client's generators half read
            else:
                content += piece
    if len(content) > MOST_BYTES:
        raise A2AError(f"the reply of {shown(str(response.url))} is longer than {MOST_BYTES} bytes")
    return bytes(content)


def _check_package() -> None:
    """See whether the package that speaks HTTP is there.

    Raises:
        ConfigError: It is missing.
    """
    try:
        import httpx  # noqa: F401  # looked for here, used where a request is sent
    except ImportError as error:
        raise ConfigError("remote agents need the package 'httpx'", hint="pip install 'graphrt[a2a]'") from error
