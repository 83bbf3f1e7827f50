"""Events of a run as they are stored, and as they are fed back into the core."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from graphrt.errors import GraphTypeError
from graphrt.graph.durable.codec import ValueCodec, codec_of
from graphrt.graph.durable.comparing import shown
from graphrt.graph.durable.errors import dump_error, known_errors, load_error
from graphrt.graph.durable.plain import is_json, write_json
from graphrt.graph.protocols import NodeKind, RunEvent, StepRef
from graphrt.graph.signature import MISSING
from graphrt.graph.state import Update
from graphrt.messages import clean_text, clean_value

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from graphrt.graph.compiled import CompiledNode, Program
    from graphrt.graph.core.records import Step
    from graphrt.graph.statemodel import StateSpec

_ENDINGS: Final = frozenset({"run.completed", "run.failed", "run.stopped", "run.cancelled", "run.timed_out"})
_WITH_ERROR: Final = ("run.", "step.", "attempt.", "action.")
"""Beginnings of the types of events whose `error` is an exception."""
_STEP: Final = "step"
_ESCAPE: Final = "~"


class EventCodec:
    """Writes the events of one compiled graph as JSON, and reads them back."""

    def __init__(self, program: Program) -> None:
        """Take the graph; nothing is made before it is needed, or `check` asks for it."""
        self._program = program
        self._values: dict[CompiledNode, ValueCodec] = {}
        self._items: dict[CompiledNode, ValueCodec] = {}
        self._fields: dict[tuple[Program, str], ValueCodec] = {}
        self._input: ValueCodec | dict[str, ValueCodec] | None = None
        self._known: dict[str, type[BaseException]] | None = None

    def check(self) -> None:
        """Make every codec that a run can need.

        Raises:
            GraphTypeError: Values of a declared type could not be loaded again; it names the node, or the field.
        """
        self._of_input()
        self._program.walk(self._check_part)

    def _check_part(self, program: Program) -> None:
        for node in program.nodes:
            if not _is_holder(node):
                self._of(node)
                if node.lazy:
                    self._item_of(node)
        for name in program.state.fields if program.state is not None else ():
            self._field_of(program, name)

    # ------------------------------------------------------------ codecs

    def _of(self, node: CompiledNode) -> ValueCodec:
        found = self._values.get(node)
        if found is None:
            declared = node.decl.signature.returns if node.decl is not None else MISSING
            found = codec_of(None if node.lazy else declared, what=f"the value of node {node.name!r}")
            self._values[node] = found
        return found

    def _item_of(self, node: CompiledNode) -> ValueCodec:
        found = self._items.get(node)
        if found is None:
            declared = node.decl.signature.item_type if node.decl is not None else MISSING
            found = self._items[node] = codec_of(declared, what=f"an item of node {node.name!r}")
        return found

    def _field_of(self, program: Program, name: str) -> ValueCodec:
        found = self._fields.get((program, name))
        if found is None:
            assert program.state is not None
            what = f"field {name!r} of the state of graph {program.name!r}"
            found = codec_of(_declared(program.state, name), what=what)
            self._fields[program, name] = found
        return found

    def _of_input(self) -> ValueCodec | dict[str, ValueCodec]:
        if self._input is None:
            declared = self._program.decl.input
            of = f"of graph {self._program.name!r}"
            if isinstance(declared, dict):
                parts = {name: codec_of(part, what=f"input {name!r} {of}") for name, part in declared.items()}
                self._input = parts
            else:
                self._input = codec_of(declared, what=f"the input {of}")
        return self._input

    # ------------------------------------------------------------ values

    def dump_input(self, value: Any) -> str:
        """Write the run's input.

        Raises:
            GraphTypeError: It is not what is declared, or would not come back equal.
        """
        codec = self._of_input()
        if isinstance(codec, dict):
            return _object((_text(name), codec[name].dump(value[name])) for name in codec)
        return codec.dump(value)

    def load_input(self, stored: Any) -> Any:
        """Read the run's input back.

        Raises:
            GraphTypeError: The graph now takes something else.
        """
        codec = self._of_input()
        if not isinstance(codec, dict):
            return codec.load(stored)
        missing = [name for name in codec if not isinstance(stored, dict) or name not in stored]
        if missing:
            raise GraphTypeError(
                f"the stored input of graph {self._program.name!r} is without {', '.join(map(repr, missing))}",
                hint="go on with the code that the run was started with",
            )
        return {name: part.load(stored[name]) for name, part in codec.items()}

    def dump_value(self, step: Step, value: Any) -> str:
        """Write what a step gives, with what it writes into the state: members of a JSON object, without braces.

        What is written is as declared, or a JSON value: a reducer may take what its field is not.

        Raises:
            GraphTypeError: A value is not what is declared, or would not come back equal.
        """
        codec = self._values.get(step.node) or self._of(step.node)
        if not isinstance(value, Update):
            return f'"output":{codec.dump(value)}'
        program = step.frame.scope.program
        typed, bare = [], []
        for name, written in value.fields.items():
            if program.state is None or name not in program.state.fields:
                continue  # the core refuses it, and says why
            try:
                typed.append((_text(name), self._field_of(program, name).dump(written)))
            except GraphTypeError:
                if not is_json(written):
                    raise
                bare.append((_text(name), codec_of(MISSING, what=f"what {step.node.name!r} wrote").dump(written)))
        text = f'"output":{codec.dump(value.output)},"update":{_object(typed)}'
        return f'{text},"plain":{_object(bare)}' if bare else text

    def dump_item(self, step: Step, value: Any) -> str:
        """Write an item that an iterator has given: a member of a JSON object, without braces.

        Raises:
            GraphTypeError: It is not what is declared, or would not come back equal.
        """
        return f'"value":{self._item_of(step.node).dump(value)}'

    def dump_answer(self, question_id: str, value: Any) -> str:
        """Write an answer that comes before its question: a member of a JSON object, without braces.

        A model, a dataclass or an enumeration becomes what a person would have answered in JSON.

        Raises:
            GraphTypeError: It is nothing that JSON has.
        """
        try:
            return f'"value":{write_json(value) if is_json(value) else _to_json(value)}'
        except (TypeError, ValueError, RecursionError) as error:
            raise GraphTypeError(
                f"the answer to {question_id!r} cannot be stored: {shown(value)} is no JSON value",
                hint="answer with plain values, such as the fields of what is asked for",
            ) from error

    # ------------------------------------------------------------ events

    def write(self, event: RunEvent, step: Step | None, value: str | None) -> str:
        """Write the data of an event as JSON text.

        *value* is what `dump_value` gave for a step that has succeeded, `dump_item` for an item, `dump_answer` for an
        early answer; without it the value is written here, but for that of a graph inside, which follows from what its
        steps gave. What an event only shows is written as well as JSON can.

        Raises:
            GraphTypeError: There was no *value*, and it cannot be stored.
        """
        kind = event.type
        data = event.data
        members = "" if step is None or event.step is None else f',"step":{_ref(event.step)}'
        if kind == "step.completed" and step is not None:
            if value is None and step.node.graph is None:
                value = self.dump_value(step, _value_of(data))
            if value is not None:
                members += f",{value}"
            if len(data) == 1:
                return f"{{{members[1:]}}}"
            data = {key: each for key, each in data.items() if key not in ("output", "update")}
        elif kind == "run.started":
            members += f',"input":{self.dump_input(data["input"])}'
            data = {key: each for key, each in data.items() if key != "input"}
        elif kind == "map.item" and "value" in data and step is not None:
            members += f",{self.dump_item(step, data['value']) if value is None else value}"
            data = {key: each for key, each in data.items() if key != "value"}
        elif kind == "action.requested" and data.get("request") == "answer":
            members += f",{self.dump_answer(data['question_id'], data['value']) if value is None else value}"
            data = {key: each for key, each in data.items() if key != "value"}
        elif kind == "step.waiting":
            data = {key: each for key, each in data.items() if key != "question_id"}
        for key, each in data.items():
            members += f",{_text(_escaped(key))}:{write_shown(each)}"
        return f"{{{members[1:]}}}"

    def read(self, event: RunEvent, step: Step | None) -> Mapping[str, Any]:
        """Read the data of a stored event, for a step that the core knows.

        Raises:
            GraphTypeError: The graph now declares another type.
        """
        kind = event.type
        data = {_unescaped(key): each for key, each in event.data.items() if key != _STEP}
        if isinstance(data.get("error"), dict) and kind.startswith(_WITH_ERROR):
            data["error"] = load_error(data["error"], self._errors())
        if kind == "run.started":
            data["input"] = self.load_input(data.get("input"))
        elif kind == "step.waiting" and event.step is not None and "until" not in data:
            data["question_id"] = event.step.key
        elif kind == "map.item" and "value" in data and step is not None:
            data["value"] = self._item_of(step.node).load(data["value"])
        elif kind == "step.completed" and step is not None and "output" in data:
            data["output"] = self._of(step.node).load(data["output"])
            bare = data.pop("plain", {})
            if "update" in data:
                program = step.frame.scope.program
                typed = {name: self._load_field(program, name, each) for name, each in data["update"].items()}
                data["update"] = typed | bare
        return data

    def _load_field(self, program: Program, name: str, stored: Any) -> Any:
        if program.state is None or name not in program.state.fields:
            raise GraphTypeError(
                f"a step has written {name!r}, which is now no field of the state of graph {program.name!r}",
                hint="go on with the code that the run was started with",
            )
        return self._field_of(program, name).load(stored)

    def _errors(self) -> dict[str, type[BaseException]]:
        if self._known is None:
            self._known = known_errors(self._program)
        return self._known


def stored_event(run_id: str, sequence: int, kind: str, data: Mapping[str, Any], time: float) -> RunEvent:
    """Make the engine's event of a stored one; its values are still JSON.

    Raises:
        GraphTypeError: It names a step in no way that this version knows.
    """
    ref = data.get(_STEP)
    step = None
    if ref is not None:
        try:
            step = StepRef(ref["node"], ref["scope"], ref["round"], ref["attempt"], ref.get("key") or ref["node"])
        except (KeyError, TypeError, AttributeError) as error:
            raise GraphTypeError(f"event {sequence} of run {run_id!r} names its step as {shown(ref)}") from error
    return RunEvent(kind, run_id, sequence, step, data, time)


def is_ending(kind: str) -> bool:
    """Say whether an event of this type is the last one of a run."""
    return kind in _ENDINGS


def is_holder(step: Step | None) -> bool:
    """Say whether a step's value comes from a graph inside it alone, and need not be stored."""
    return step is not None and _is_holder(step.node)


def _is_holder(node: CompiledNode) -> bool:
    if node.graph is None:
        return node.kind is NodeKind.START
    return node.decl is None or not node.decl.fallback


def _declared(state: StateSpec, name: str) -> Any:
    """Give the type of a field of the state, with what its `Annotated` says of reading and writing."""
    from typing import Annotated

    info = state.model.model_fields[name]
    return Annotated[(info.annotation, *info.metadata)] if info.metadata else info.annotation


def _value_of(data: Mapping[str, Any]) -> Any:
    return Update(data["output"], **data["update"]) if "update" in data else data["output"]


# --- JSON ---------------------------------------------------------------------------------------------------


def _ref(ref: StepRef) -> str:
    key = "" if ref.key == ref.node else f',"key":{_text(ref.key)}'
    head = f'{{"node":{_text(ref.node)},"scope":{_text(ref.scope)}'
    return f'{head},"round":{ref.round},"attempt":{ref.attempt}{key}}}'


def _escaped(key: Any) -> str:
    """Keep the name of the member that says which step an event is about free of what the event's data says."""
    name = str(key)
    return _ESCAPE + name if name.lstrip(_ESCAPE) == _STEP else name


def _unescaped(key: str) -> str:
    return key[1:] if key.startswith(_ESCAPE) and key.lstrip(_ESCAPE) == _STEP else key


def write_shown(value: Any) -> str:
    """Write what is only shown: as JSON where that can be, else as near to it as possible; never fails."""
    if isinstance(value, BaseException):
        value = dump_error(value)
    try:
        return write_json(value)
    except (TypeError, ValueError, RecursionError):
        pass
    try:
        return _to_json(clean_value(value), fallback=_name_of_odd)
    except Exception:  # noqa: BLE001 - values of the user's classes
        return json.dumps(clean_text(shown(value)))


def _to_json(value: Any, **options: Any) -> str:
    from pydantic_core import to_json

    text: bytes = to_json(value, inf_nan_mode="strings", bytes_mode="base64", **options)
    return text.decode()


def _name_of_odd(value: Any) -> Any:
    return dump_error(value) if isinstance(value, BaseException) else clean_text(shown(value))


def _object(members: Iterable[tuple[str, str]]) -> str:
    return "{" + ",".join(f"{name}:{text}" for name, text in members) + "}"


def _text(value: str) -> str:
    try:
        return write_json(value)
    except UnicodeError:
        return json.dumps(value)


__all__ = ["EventCodec", "is_ending", "is_holder", "stored_event", "write_shown"]
