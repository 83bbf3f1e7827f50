"""The state that the plugins of one run share: its keys, what is read of it, and how it is changed."""

from __future__ import annotations

import copy
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum, StrEnum
from typing import Any, Final, Self

from graphrt.errors import StateError

RESERVED: Final = "runtime."
"""What the names of keys begin with that belong to the runtime: plugins read them, and do not write them."""


class MergeStrategy(StrEnum):
    """What becomes of a key that two commands write.

    Attributes:
        EXCLUSIVE: One of them comes too late, and is made again from newer state.
        COMMUTATIVE: Both are combined with the value before.
    """

    EXCLUSIVE = "exclusive"
    COMMUTATIVE = "commutative"


@dataclass(frozen=True, slots=True)
class StateKey:
    """One value of the state of a run's plugins. Values are plain data that can be copied.

    Hooks read it as `ctx.state[key.name]`. It is not on the result of the run: put what is wanted there into an event
    (`ctx.run.emit("custom.counted", {...})`), or hand it on in a hook of `Phase.RUN_END`.

    Attributes:
        name: Unique among the keys of an agent. `StateCommand.update` takes it, or the key itself.
        default: What it is at the start, copied for each run; or a function without arguments that makes it.
        merge: What becomes of it when two commands write it.
        combine: For COMMUTATIVE: gives the new value from the one before and what was written.
        keep: Whether a session carries the value from one turn to the next; else each run starts with the default.
    """

    name: str
    default: Any = field(default=None, hash=False)
    merge: MergeStrategy = MergeStrategy.EXCLUSIVE
    combine: Callable[[Any, Any], Any] = operator.add
    keep: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise StateError(f"the name of a state key is {self.name!r}, which is no name", hint="give it a text")
        object.__setattr__(self, "merge", MergeStrategy(self.merge))
        if not callable(self.combine):
            raise StateError(
                f"combine of state key {self.name!r} is {self.combine!r}, which cannot be called",
                hint="give a function of the value before and the new one, such as operator.add",
            )

    def make_default(self) -> Any:
        """Make the value that the key has at the start of a run.

        Raises:
            StateError: It cannot be copied.
        """
        return self.default() if callable(self.default) else copied(self.default, self.name)


class StateCommand:
    """What a hook wants done: state updated, actions scheduled, effects emitted, each kind in the order written.

    Its methods give the command itself, so that they can be chained.
    """

    __slots__ = ("_actions", "_effects", "_updates")

    def __init__(self) -> None:
        self._updates: list[tuple[str, Any]] = []
        self._actions: list[tuple[str, Any]] = []
        self._effects: list[tuple[str, Any]] = []

    def update(self, key: StateKey | str, value: Any) -> Self:
        """Write *value*, as it is now, to a key; on a COMMUTATIVE key it is combined with the value before.

        Raises:
            StateError: The value cannot be copied.
        """
        name = key.name if isinstance(key, StateKey) else key
        self._updates.append((name, copied(value, name)))
        return self

    def schedule(self, action_key: str, payload: Any = None) -> Self:
        """Have an action carried out when the phase of its handler is next run, which may be this one.

        Actions are what plugins have registered with `registrar.scheduled_action`. Four are there for every agent; each
        holds for the next request to the model, and the conversation keeps nothing of it:

            schedule(ADD_CONTEXT_MESSAGE, Message.system("..."))    # after the system prompt; others at the end
            schedule(SET_INFERENCE_OVERRIDE, {"model": "small", "temperature": 0})
            schedule(EXCLUDE_TOOL, "rm")                            # not offered
            schedule(INCLUDE_ONLY_TOOLS, ["ls", "cat"])             # nothing else offered

        A payload that does not fit makes the hook fail that returned the command.
        """
        self._actions.append((action_key, payload))
        return self

    def emit(self, effect_key: str, payload: Any = None) -> Self:
        """Have an effect carried out once the updates are committed."""
        self._effects.append((effect_key, payload))
        return self

    @property
    def updates(self) -> tuple[tuple[str, Any], ...]:
        """Names of keys and what is written to them, in order."""
        return tuple(self._updates)

    @property
    def actions(self) -> tuple[tuple[str, Any], ...]:
        """Keys of actions and their payloads, in order."""
        return tuple(self._actions)

    @property
    def effects(self) -> tuple[tuple[str, Any], ...]:
        """Keys of effects and their payloads, in order."""
        return tuple(self._effects)

    def __repr__(self) -> str:
        return f"StateCommand(updates={self._updates!r}, actions={self._actions!r}, effects={self._effects!r})"


class Snapshot(Mapping[str, Any]):
    """The state as it was at one moment, by key name. Each reading gives a copy."""

    __slots__ = ("_values", "version")

    def __init__(self, values: Mapping[str, Any], version: int) -> None:
        self._values = values
        self.version = version
        """Commits before this moment."""

    def __getitem__(self, key: StateKey | str) -> Any:
        name = key.name if isinstance(key, StateKey) else key
        return copied(self._values[name], name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __contains__(self, key: object) -> bool:
        return (key.name if isinstance(key, StateKey) else key) in self._values

    def __repr__(self) -> str:
        return f"Snapshot({dict(self._values)!r}, version={self.version})"


class StateStore:
    """The state of one run. Every commit is made whole, or refused and nothing written."""

    def __init__(self, keys: Iterable[StateKey], initial: Mapping[str, Any] | None = None) -> None:
        """Start with the defaults of *keys*, and *initial* values in the place of some.

        Raises:
            StateError: Two different keys have one name, or an initial value has no key.
        """
        self._keys: dict[str, StateKey] = {}
        for key in keys:
            if self._keys.setdefault(key.name, key) != key:
                raise StateError(
                    f"state key {key.name!r} is declared twice, and differently", hint="share one StateKey object"
                )
        given = {name: copied(value, self._key(name).name) for name, value in (initial or {}).items()}
        self._values = {name: given[name] if name in given else key.make_default() for name, key in self._keys.items()}
        self._written = dict.fromkeys(self._keys, 0)
        self._version = 0

    @property
    def keys(self) -> tuple[StateKey, ...]:
        """The keys, in the order in which they were declared."""
        return tuple(self._keys.values())

    def snapshot(self) -> Snapshot:
        """Give the state as it is now; later commits do not show in it."""
        return Snapshot(self._values, self._version)

    def check(self, command: StateCommand, *, by: str | None = None) -> None:
        """See to it that every key that *command* updates is there; *by* says in the error whose command it is.

        Raises:
            StateError: One is not.
        """
        for name, _ in command.updates:
            self._key(name, by)

    def is_late(self, command: StateCommand, seen: Snapshot) -> bool:
        """Say whether an EXCLUSIVE key that *command* writes has been written since *seen*, which it was made from."""
        return any(self._written[name] > seen.version for name in self.exclusive(command))

    def exclusive(self, command: StateCommand) -> frozenset[str]:
        """Name the EXCLUSIVE keys that *command* writes.

        Raises:
            StateError: It updates a key that is not there.
        """
        names = {name for name, _ in command.updates}
        return frozenset(name for name in names if self._key(name).merge is MergeStrategy.EXCLUSIVE)

    def commit(self, *commands: StateCommand) -> Snapshot:
        """Apply the updates of *commands* in order, at once. Of two updates in one command, both count, in order.

        Raises:
            StateError: A key is not there, two commands write one EXCLUSIVE key, or values could not be combined;
                nothing was written.
        """
        writer: dict[str, StateCommand] = {}
        values = dict(self._values)
        for command in commands:
            for name, value in command.updates:
                key = self._key(name)
                if key.merge is MergeStrategy.COMMUTATIVE:
                    values[name] = _combined(key, values[name], value)
                    continue
                if writer.setdefault(name, command) is not command:
                    raise StateError(
                        f"state key {name!r} is exclusive, and two commands of one commit write it",
                        hint="commit them one after the other, or declare the key with MergeStrategy.COMMUTATIVE",
                    )
                values[name] = value
        touched = {name for command in commands for name, _ in command.updates}
        self._put({name: values[name] for name in touched})
        return self.snapshot()

    def reset(self, names: Iterable[str]) -> None:
        """Give keys the values back that they had at the start of a run without initial values.

        Raises:
            StateError: A key is not there; nothing was written.
        """
        self._put({name: self._key(name).make_default() for name in names})

    def _put(self, changed: Mapping[str, Any]) -> None:
        if changed:
            self._version += 1
            self._values = {**self._values, **changed}  # snapshots keep the mapping they were given
            self._written.update(dict.fromkeys(changed, self._version))

    def _key(self, name: str, by: str | None = None) -> StateKey:
        key = self._keys.get(name)
        if key is None:
            raise StateError(
                f"state key {name!r} is not declared" if by is None else f"{by} writes state key {name!r}, undeclared",
                hint=f"declare it with registrar.state_key(); keys so far: {', '.join(self._keys) or 'none'}",
            )
        return key


_ATOMS: Final = frozenset({type(None), bool, int, float, complex, str, bytes})


def copied(value: Any, name: str) -> Any:
    """Give a copy of *value*, which belongs to the key *name*, that shares nothing that can be changed.

    Raises:
        StateError: It cannot be copied.
    """
    if type(value) in _ATOMS or isinstance(value, Enum):
        return value
    try:
        return copy.deepcopy(value)
    except Exception as error:
        raise StateError(
            f"value of state key {name!r}, a {type(value).__name__}, cannot be copied: {error}",
            hint="keep plain data in the state; what cannot be copied belongs into the plugin",
        ) from error


def _combined(key: StateKey, before: Any, value: Any) -> Any:
    """Combine on copies: a function that changes its first argument must not reach what others have read."""
    if key.combine is not operator.add:  # which changes neither, for the values that state is made of
        before, value = copied(before, key.name), copied(value, key.name)
    try:
        return key.combine(before, value)
    except Exception as error:
        raise StateError(
            f"state key {key.name!r} cannot combine {before!r} with {value!r}: {error}",
            hint="write what its combine function takes",
        ) from error
