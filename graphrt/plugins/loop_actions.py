"""Actions that change the next inference: what plugins schedule to reach the agent's loop."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final

from graphrt.errors import StateError
from graphrt.messages import Message, Role
from graphrt.plugins.phases import Phase, PhaseContext
from graphrt.plugins.plugin import Plugin, PluginDescriptor
from graphrt.plugins.state import RESERVED, MergeStrategy, StateCommand, StateKey, StateStore

if TYPE_CHECKING:
    from graphrt.llm.executor import InferenceRequest
    from graphrt.plugins.registrar import PluginRegistrar

ADD_CONTEXT_MESSAGE: Final = "loop.add_context_message"
"""Payload: a `Message` that the model sees in the next inference, and the conversation does not keep."""
SET_INFERENCE_OVERRIDE: Final = "loop.set_inference_override"
"""Payload: a mapping of `model` and request parameters; for each the last writer counts."""
EXCLUDE_TOOL: Final = "loop.exclude_tool"
"""Payload: the id of a tool that is not offered in the next inference."""
INCLUDE_ONLY_TOOLS: Final = "loop.include_only_tools"
"""Payload: a list of ids; only tools on some such list are offered, and of these none that is excluded."""


def _union(before: frozenset[str] | None, added: frozenset[str]) -> frozenset[str]:
    return added if before is None else before | added


_COMMUTATIVE: Final = MergeStrategy.COMMUTATIVE
CONTEXT_MESSAGES: Final = StateKey(f"{RESERVED}context_messages", list, _COMMUTATIVE)
OVERRIDE: Final = StateKey(f"{RESERVED}inference_override", dict, _COMMUTATIVE, operator.or_)
EXCLUDED_TOOLS: Final = StateKey(f"{RESERVED}excluded_tools", frozenset, _COMMUTATIVE, operator.or_)
INCLUDED_TOOLS: Final = StateKey(f"{RESERVED}included_tools", None, _COMMUTATIVE, _union)
KEYS: Final = (CONTEXT_MESSAGES, OVERRIDE, EXCLUDED_TOOLS, INCLUDED_TOOLS)


class LoopActionHandlersPlugin(Plugin):
    """Carry out the actions that change the next inference. Each holds for one inference.

    They are `ADD_CONTEXT_MESSAGE`, `SET_INFERENCE_OVERRIDE`, `EXCLUDE_TOOL` and `INCLUDE_ONLY_TOOLS`; the package
    `graphrt.plugins` says what their payloads are.
    """

    always_active: ClassVar[bool] = True

    @property
    def descriptor(self) -> PluginDescriptor:
        """Who the plugin is: `loop_actions`."""
        return PluginDescriptor("loop_actions", "Changes the next inference for other plugins.")

    def register(self, registrar: PluginRegistrar) -> None:
        """Bring the four actions, and the keys where they leave what is to be changed."""
        for key in KEYS:
            registrar.state_key(key)
        for action, handler, check in (
            (ADD_CONTEXT_MESSAGE, _add_context_message, _check_context_message),
            (SET_INFERENCE_OVERRIDE, _set_override, _override_of),
            (EXCLUDE_TOOL, _exclude_tool, _check_tool),
            (INCLUDE_ONLY_TOOLS, _include_only_tools, _check_tools),
        ):
            registrar.scheduled_action(action, Phase.BEFORE_INFERENCE, handler, check=check)


@dataclass(frozen=True, slots=True)
class LoopChanges:
    """What actions want of one inference."""

    messages: Sequence[Message] = ()
    override: Mapping[str, Any] | None = None
    excluded: Set[str] = frozenset()
    included: Set[str] | None = None

    @property
    def sets_model(self) -> bool:
        """Whether the model is an action's choice."""
        return bool(self.override) and "model" in (self.override or {})

    def apply(self, request: InferenceRequest) -> InferenceRequest:
        """Give the request as the actions want it."""
        changes: dict[str, Any] = {}
        if self.messages:
            changes["messages"] = with_context(request.messages, self.messages)
        if self.override:
            params = {**request.params, **self.override}
            changes["model"] = params.pop("model", request.model) if self.sets_model else request.model
            changes["params"] = params
        if self.excluded or self.included is not None:
            changes["tools"] = [each for each in request.tools if self._offers(tool_name(each))]
        return request.replace(**changes) if changes else request

    def _offers(self, tool_id: str) -> bool:
        return tool_id not in self.excluded and (self.included is None or tool_id in self.included)


NO_CHANGES: Final = LoopChanges()


def take_changes(store: StateStore) -> LoopChanges:
    """Give what actions want of the next inference, and forget it: it holds for that one only."""
    state = store.snapshot()
    if CONTEXT_MESSAGES.name not in state:
        return NO_CHANGES
    wanted = {key.name: state[key] for key in KEYS}
    changed = [key.name for key in KEYS if wanted[key.name] != key.make_default()]
    store.reset(changed)
    return LoopChanges(*wanted.values()) if changed else NO_CHANGES


def with_context(messages: Sequence[Message], added: Iterable[Message]) -> list[Message]:
    """Put what *added* says as the system after the system's words at the start, and all else at the end."""
    start = next((place for place, each in enumerate(messages) if each.role is not Role.SYSTEM), len(messages))
    added = list(added)
    system = [each for each in added if each.role is Role.SYSTEM]
    others = [each for each in added if each.role is not Role.SYSTEM]
    return [*messages[:start], *system, *messages[start:], *others]


def tool_name(tool: Any) -> str:
    """Give the name that a model calls a tool by, also where the tool is in a vendor's own form."""
    if isinstance(tool, Mapping):
        function = tool.get("function", tool)
        return str(function.get("name", ""))
    name: str = tool.name
    return name


def _add_context_message(ctx: PhaseContext, payload: Message) -> StateCommand:
    return StateCommand().update(CONTEXT_MESSAGES, [payload])


def _set_override(ctx: PhaseContext, payload: Mapping[str, Any]) -> StateCommand:
    return StateCommand().update(OVERRIDE, _override_of(payload))


def _exclude_tool(ctx: PhaseContext, payload: str) -> StateCommand:
    return StateCommand().update(EXCLUDED_TOOLS, frozenset({payload}))


def _include_only_tools(ctx: PhaseContext, payload: Iterable[str]) -> StateCommand:
    return StateCommand().update(INCLUDED_TOOLS, frozenset(payload))


# ---------------------------------------------------------------- payloads


def _check_context_message(payload: Any) -> None:
    if not isinstance(payload, Message):
        raise _wrong(ADD_CONTEXT_MESSAGE, payload, 'a Message, such as Message.system("...")')
    if payload.role is Role.TOOL or payload.tool_calls:
        raise StateError(
            f"{ADD_CONTEXT_MESSAGE!r} got a message that belongs to a call of a tool, which the conversation lacks",
            hint="add what a system, a user or an assistant says",
        )


def _override_of(payload: Any) -> dict[str, Any]:
    """Give the fields of an override, those under `params` among them.

    Raises:
        StateError: The payload is no override.
    """
    if not isinstance(payload, Mapping) or not all(isinstance(name, str) for name in payload):
        raise _wrong(SET_INFERENCE_OVERRIDE, payload, "a mapping of names to values")
    fields = dict(payload)
    params = fields.pop("params", {})
    if not isinstance(params, Mapping) or not all(isinstance(name, str) for name in params):
        raise _wrong(f"{SET_INFERENCE_OVERRIDE}: params", params, "a mapping of names to values")
    model = fields.get("model")
    if model is not None and not isinstance(model, str):
        raise _wrong(f"{SET_INFERENCE_OVERRIDE}: model", model, "the name of a model")
    for name, way_out in (("messages", f"schedule {ADD_CONTEXT_MESSAGE!r}"), ("tools", f"schedule {EXCLUDE_TOOL!r}")):
        if name in fields:
            raise StateError(
                f"{SET_INFERENCE_OVERRIDE!r} cannot set {name!r}", hint=f"{way_out}, or register a request transform"
            )
    return {**params, **fields}


def _check_tool(payload: Any) -> None:
    if not isinstance(payload, str):
        raise _wrong(EXCLUDE_TOOL, payload, "the id of a tool")


def _check_tools(payload: Any) -> None:
    if not isinstance(payload, (list, tuple, Set)) or not all(isinstance(each, str) for each in payload):
        raise _wrong(INCLUDE_ONLY_TOOLS, payload, "a list of ids of tools")


def _wrong(what: str, payload: Any, wanted: str) -> StateError:
    return StateError(f"{what!r} got {payload!r} as its payload", hint=f"give {wanted}")
