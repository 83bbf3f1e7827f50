"""`GatewayMessage`: what a person wrote, as a gateway to some channel hands it on."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GatewayMessage:
    """A text and where it comes from; `AgentRuntime.process` takes one in the place of the plain text.

    Attributes:
        channel: Where it was written, such as `"cli"` or a chat's name.
        sender: Who wrote it, in the channel's word.
        session_id: The conversation it belongs to, in the channel's word; which `Session` that is, the caller says.
        text: What was written.
    """

    channel: str
    sender: str
    session_id: str
    text: str
