"""Sections of an agent's spec: what a plugin declares of its settings, and what it is given."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pydantic import BaseModel, ValidationError

from graphrt.errors import ConfigError, ToolError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

_MOST: Final = 10
"""Lines of a complaint; the rest is counted."""
_QUOTED: Final = 240
"""Characters that are quoted of a value that does not fit."""


@dataclass(frozen=True, slots=True)
class ConfigSchema:
    """The settings that a plugin takes under one key: a pydantic model, or a JSON Schema.

    Attributes:
        key: Key of the section in the agent's spec.
        model: The pydantic model that the section has to fit, or
        schema: the JSON Schema that it has to fit; one of the two is given.
    """

    key: str
    model: type[BaseModel] | None = None
    schema: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.key, str) or not self.key:
            raise ConfigError(f"the key of a section is {self.key!r}, which is no name", hint="give it a text")
        if (self.model is None) == (self.schema is None):
            given = "neither a model nor" if self.model is None else "a model and also"
            raise ConfigError(f"section {self.key!r} is declared with {given} a schema", hint="give one of the two")
        if self.model is not None and not (isinstance(self.model, type) and issubclass(self.model, BaseModel)):
            raise ConfigError(
                f"the model of section {self.key!r} is {self.model!r}, which is no pydantic model",
                hint="derive a class from pydantic.BaseModel, or give schema= a JSON Schema",
            )

    @property
    def json_schema(self) -> dict[str, Any]:
        """The JSON Schema of the section, as a copy."""
        if self.model is not None:
            return self.model.model_json_schema()
        return copy.deepcopy(dict(self.schema or {}))

    def check(self) -> None:
        """See to it that what the plugin declared is a schema.

        Raises:
            ValueError: It is none.
        """
        if self.model is None:
            self._validator()

    def validate(self, value: Any) -> Any:
        """Check a section; give an object of the model, or what was given where there is a JSON Schema.

        Raises:
            ValueError: It does not fit, one line for each field, which it names; or the schema is none.
        """
        if self.model is None:
            self._check_raw(value)
            return value
        try:
            return self.model.model_validate(value)
        except ValidationError as error:
            raise ValueError(_listed(_complaint(each) for each in error.errors(include_url=False))) from error

    def _check_raw(self, value: Any) -> None:
        validator = self._validator()
        try:
            found = sorted(validator.iter_errors(value), key=lambda each: [str(part) for part in each.absolute_path])
        except Exception as error:  # what a $ref raises that leads nowhere has no public class of its own
            raise ValueError(f"the schema of section {self.key!r} cannot be used: {error}") from error
        if found:
            raise ValueError(_listed(f"{_path(each.absolute_path)}{_short(each.message)}" for each in found))

    def _validator(self) -> Any:
        from graphrt.tools.schema import validator_for

        try:
            return validator_for(self.schema or {}, tool_id=self.key)
        except ToolError as error:
            raise ValueError(f"the schema of section {self.key!r} is no JSON Schema: {error.__cause__}") from error


def _complaint(error: Mapping[str, Any]) -> str:
    where = _path(error["loc"])
    if error["type"] == "missing":
        return f"{where}required, and missing"
    if error["type"] == "extra_forbidden":
        return f"{where}not a field of this section"
    message = str(error["msg"])
    return f"{where}{message[:1].lower()}{message[1:]}, not {_short(repr(error['input']))}"


def _path(parts: Iterable[str | int]) -> str:
    path = "".join(f"[{each}]" if isinstance(each, int) else f".{each}" for each in parts).removeprefix(".")
    return f"{path}: " if path else ""


def _listed(complaints: Iterable[str]) -> str:
    lines: Sequence[str] = list(complaints)
    more = [f"and {len(lines) - _MOST} more"] if len(lines) > _MOST else []
    return "\n".join([*lines[:_MOST], *more])


def _short(text: str) -> str:
    return text if len(text) <= _QUOTED else f"{text[: _QUOTED - 3]}..."
