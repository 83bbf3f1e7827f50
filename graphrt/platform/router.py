"""`EventRouter`: finds the bindings that answer an event."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from graphrt.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from graphrt.platform.binding import AgentBinding
    from graphrt.platform.envelope import EventEnvelope


@dataclass(frozen=True, slots=True)
class Routing:
    """Who answers an event, the most closely fitting first; when nobody does, why not."""

    event: EventEnvelope
    bindings: tuple[AgentBinding, ...]
    reason: str | None = None

    def __bool__(self) -> bool:
        return bool(self.bindings)


class EventRouter:
    """Finds bindings by the type of an event. What is done with more than one is for the caller to decide.

    A pattern is a type in which `*` stands for one part of the name, and at its end for one or more:
    `github.*` fits `github.issue.opened`, `github.*.opened` fits it too, and `*` fits everything.
    """

    def __init__(self, bindings: Iterable[AgentBinding] = ()) -> None:
        """Take the bindings, in an order that decides where they fit equally well."""
        self._bindings: dict[str, AgentBinding] = {}
        for binding in bindings:
            self.add(binding)

    @property
    def bindings(self) -> tuple[AgentBinding, ...]:
        """The bindings, in their order."""
        return tuple(self._bindings.values())

    def add(self, binding: AgentBinding) -> None:
        """Add a binding.

        Raises:
            ConfigError: There is one of this id.
        """
        if binding.binding_id in self._bindings:
            raise ConfigError(
                f"there is a binding {binding.binding_id!r} already", hint="remove() it first, or give another id"
            )
        self._bindings[binding.binding_id] = binding

    def remove(self, binding_id: str) -> bool:
        """Take a binding out; False when there is none of this id."""
        return self._bindings.pop(binding_id, None) is not None

    def route(self, event: EventEnvelope) -> Routing:
        """Find who answers an event."""
        found = [
            (closeness, binding)
            for binding in self._bindings.values()
            if (closeness := max((fit(each, event.event_type) for each in binding.event_types), default=())) != ()
        ]
        enabled = [(closeness, binding) for closeness, binding in found if binding.enabled]
        if enabled:
            ordered = sorted(enabled, key=lambda each: each[0], reverse=True)  # stable: equals keep their order
            return Routing(event, tuple(binding for _, binding in ordered))
        if found:
            names = ", ".join(repr(binding.binding_id) for _, binding in found)
            return Routing(event, (), f"what answers {event.event_type!r} is not enabled: {names}")
        return Routing(event, (), f"no binding answers {event.event_type!r}")

    def resolve(self, event: EventEnvelope) -> AgentBinding | None:
        """Find the binding that fits an event most closely; None when none does."""
        return next(iter(self.route(event).bindings), None)


def fit(pattern: str, event_type: str) -> tuple[int, ...]:
    """Say how closely a pattern fits a type: 2 for a part by name, 1 for a `*`, greater is closer; () is not at all."""
    wanted, parts = pattern.split("."), event_type.split(".")
    rest = wanted[-1] == "*"
    if len(parts) < len(wanted) or (len(parts) > len(wanted) and not rest):
        return ()
    if any(want not in ("*", part) for want, part in zip(wanted, parts, strict=False)):
        return ()
    return (*(1 if want == "*" else 2 for want in wanted), *([0] if rest else []))
