"""The model that declares shared state: its fields, their defaults, and how writes come together (E23)."""

from __future__ import annotations

from dataclasses import dataclass
from types import BuiltinFunctionType, FunctionType
from typing import TYPE_CHECKING, Annotated, Any, get_origin

from graphrt.errors import GraphError, GraphTypeError
from graphrt.graph.annotations import describe, parts_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pydantic import BaseModel, TypeAdapter
    from pydantic.fields import FieldInfo


@dataclass(frozen=True, slots=True)
class Reduce:
    """Say in a field's `Annotated` how a write joins what is there.

    For example `log: Annotated[list[str], Reduce(operator.add)] = []`. `fn(current, written)` returns the new
    value and changes neither. A field with a reducer may be written by steps that run side by side.
    """

    fn: Callable[[Any, Any], Any]

    def __post_init__(self) -> None:
        if not callable(self.fn):
            raise GraphTypeError(
                f"Reduce got {self.fn!r}, which cannot be called",
                hint="give a function of two values, such as operator.add",
            )


class StateField:
    """One field of the state."""

    __slots__ = ("_adapter", "_fixed", "_info", "_model", "name", "reducer")

    def __init__(self, model: type[BaseModel], name: str, info: FieldInfo) -> None:
        self.name = name
        self.reducer = _reducer_of(model, name, info)
        self._model = model
        self._info = info
        self._adapter: TypeAdapter[Any] | None = None
        self._fixed = _fixed_class(model, name, info)

    def convert(self, value: object, label: str) -> Any:
        """Give *value* as the model would take it.

        Raises:
            GraphTypeError: The model would not; *label* is who wrote it.
        """
        return self._validate(value, f"what {label!r} wrote", strict=None)

    def check(self, value: object, label: str) -> None:
        """Check what the reducer made of a write.

        Raises:
            GraphTypeError: It is not of the field's type; nothing is converted here.
        """
        if type(value) is not self._fixed:
            self._validate(value, f"what its reducer made of what {label!r} wrote", strict=True)

    def _validate(self, value: object, what: str, *, strict: bool | None) -> Any:
        if self._adapter is None:
            self._adapter = _adapter_for(self._model, self.name, self._info)
        try:
            return self._adapter.validator.validate_python(value, strict=strict)
        except ValueError as error:
            from pydantic import ValidationError  # costs more than the rest where nothing is wrong

            if not isinstance(error, ValidationError):
                raise
            first = error.errors(include_url=False, include_input=False, include_context=False)[0]
            where = "".join(f"[{part!r}]" for part in first["loc"])
            raise GraphTypeError(
                f"state field {self.name!r} does not take {what}: {self.name}{where}: {first['msg']}",
                hint=f"it is declared as {describe(self._info.annotation)}",
            ) from error


@dataclass(frozen=True, slots=True)
class StateSpec:
    """What a state model declares, as far as the engine needs it."""

    model: type[BaseModel]
    fields: Mapping[str, StateField]
    reducers: Mapping[str, Callable[[Any, Any], Any]]
    """Fields that have one."""

    @classmethod
    def of(cls, model: Any) -> StateSpec:
        """Read the declaration of *model*.

        Model validators are for whole models and do not run: a state comes about field by field.

        Raises:
            GraphTypeError: It is not a pydantic model class, or one of its types is not known.
            GraphError: A field has no default, or a reducer is in the wrong place.
        """
        from pydantic import BaseModel, PydanticUndefinedAnnotation, RootModel

        if not isinstance(model, type) or not issubclass(model, BaseModel) or issubclass(model, RootModel):
            raise GraphTypeError(
                f"state is declared as {describe(model)!r}, which is not a pydantic model class",
                hint="declare it as class State(BaseModel), with a default for every field",
            )
        try:
            model.model_rebuild()
        except PydanticUndefinedAnnotation as error:
            raise GraphTypeError(
                f"state {model.__name__!r} names a type that is not known: {error.name!r}",
                hint="define it before the workflow is compiled",
            ) from error
        for name, info in model.model_fields.items():
            if info.is_required():
                raise GraphError(
                    f"field {name!r} of state {model.__name__!r} has no default",
                    hint="give every field a default: a run starts from them",
                )
        fields = {name: StateField(model, name, info) for name, info in model.model_fields.items()}
        reducers = {name: field.reducer for name, field in fields.items() if field.reducer is not None}
        return cls(model, fields, reducers)

    def instance(self, values: dict[str, Any]) -> Any:
        """Make an instance of the model, which takes *values*, one for each field, without a look at them."""
        model = self.model
        if model.__pydantic_post_init__ is not None or model.model_config.get("extra") == "allow":
            return model.model_construct(**values)
        new = model.__new__(model)
        set_slot = object.__setattr__  # past what a frozen model refuses
        set_slot(new, "__dict__", values)
        set_slot(new, "__pydantic_fields_set__", set(values))
        set_slot(new, "__pydantic_extra__", None)
        set_slot(new, "__pydantic_private__", None)
        return new

    def field(self, name: str, label: str) -> StateField:
        """Find a field that *label* wrote.

        Raises:
            GraphError: There is none of that name.
        """
        found = self.fields.get(name)
        if found is None:
            raise _unknown_field(name, label, self)
        return found

    def defaults(self) -> dict[str, Any]:
        """Give a value for each field as a run starts with it; default factories are called.

        Raises:
            GraphError: The model does not take its own defaults.
        """
        from pydantic import ValidationError

        try:
            start = self.model()
        except ValidationError as error:
            raise GraphError(
                f"state {self.model.__name__!r} does not take its own defaults",
                hint="give every field a default that suits its type",
            ) from error
        return {name: getattr(start, name) for name in self.fields}


def _unknown_field(name: str, label: str, spec: StateSpec) -> GraphError:
    import difflib

    close = difflib.get_close_matches(name, spec.fields, n=1)
    guess = f"did you mean {close[0]!r}? " if close else ""
    if name == "output":
        guess = "the node's own value comes first, without a name: Update(value, ...). "
    return GraphError(
        f"node {label!r} wrote {name!r}, which is not a field of state {spec.model.__name__!r}",
        hint=f"{guess}fields: {', '.join(spec.fields) or 'none'}",
    )


def _reducer_of(model: type[BaseModel], name: str, info: FieldInfo) -> Callable[[Any, Any], Any] | None:
    found = [one.fn for one in info.metadata if isinstance(one, Reduce)]
    nested = (part for part in parts_of(info.annotation) if get_origin(part) is Annotated)
    bare = [one for one in info.metadata if isinstance(one, FunctionType | BuiltinFunctionType)]
    what = None
    if any(isinstance(one, Reduce) for part in nested for one in part.__metadata__):
        what = "has a Reduce inside its type"
    elif len(found) > 1:
        what = "has two reducers"
    elif bare:
        what = f"has the function {bare[0].__name__!r} in its annotation, which means nothing there"
    if what is not None:
        raise GraphError(
            f"field {name!r} of state {model.__name__!r} {what}",
            hint="write Annotated[<the whole type>, Reduce(fn)]",
        )
    return found[0] if found else None


def _fixed_class(model: type[BaseModel], name: str, info: FieldInfo) -> type | None:
    """Give a field's class if it answers for its own values: what it has made is not looked through again."""
    cls = info.annotation
    if not isinstance(cls, type) or vars(cls).get("__graphrt_immutable__") is not True:
        return None
    validators = model.__pydantic_decorators__.field_validators.values()
    return None if any(not {name, "*"}.isdisjoint(one.info.fields) for one in validators) else cls


def _adapter_for(model: type[BaseModel], name: str, info: FieldInfo) -> TypeAdapter[Any]:
    """Make what validates one field as the model does, its field validators included."""
    from pydantic import (
        AfterValidator,
        BeforeValidator,
        PlainValidator,
        PydanticUserError,
        TypeAdapter,
        WrapValidator,
    )

    modes: dict[str, Any] = {
        "after": AfterValidator,
        "before": BeforeValidator,
        "plain": PlainValidator,
        "wrap": WrapValidator,
    }
    validators = [
        modes[one.info.mode](one.func)
        for one in model.__pydantic_decorators__.field_validators.values()
        if not {name, "*"}.isdisjoint(one.info.fields)
    ]
    tp: Any = Annotated[(info.annotation, info, *validators)]
    try:
        return TypeAdapter(tp, config=model.model_config)
    except PydanticUserError as error:
        if error.code != "type-adapter-config-unused":
            raise
        return TypeAdapter(tp)  # a model or dataclass has a configuration of its own


__all__ = ["Reduce", "StateField", "StateSpec"]
