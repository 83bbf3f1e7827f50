"""The arguments of a tool: their JSON Schema, and what a model is told when they do not fit it."""

from __future__ import annotations

import inspect
import json
from dataclasses import dataclass
from functools import lru_cache, partial
from types import UnionType
from typing import TYPE_CHECKING, Annotated, Any, Final, Union, get_args, get_origin, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model
from pydantic.errors import PydanticUndefinedAnnotation, PydanticUserError
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema

from graphrt.errors import ToolError, ToolErrorKind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

MAX_COMPLAINTS: Final = 10
"""Lines a model is told of arguments that do not fit; the rest is counted."""
MAX_QUOTED: Final = 80
"""Characters that are quoted of a value that does not fit."""

_BRING_A_SCHEMA: Final = "name each parameter, or bring a JSON Schema with parameters="


# --- a schema from annotations


@dataclass(frozen=True, slots=True)
class _Parameter:
    """One parameter of a tool function, and where its value comes from."""

    name: str
    field: str | None
    """Field of the arguments' model; None for the context, which the model does not see."""
    has_default: bool
    """Whether the function itself knows what to do without a value."""
    positional: bool


class Signature:
    """What a tool function takes: some of it from the model, and the tool's context."""

    def __init__(
        self, model: type[BaseModel], parameters: Sequence[_Parameter], schema: dict[str, Any], tool_id: str
    ) -> None:
        self._model = model
        self._parameters = parameters
        self._tool_id = tool_id
        self.schema = schema
        """JSON Schema of the arguments."""

    def check(self, arguments: Mapping[str, Any]) -> BaseModel:
        """Validate *arguments*, and convert what can be converted.

        Raises:
            ToolError: They do not fit; one line for each field.
        """
        try:
            return self._model.model_validate(dict(arguments))
        except ValidationError as error:
            complaints = [_complaint(each) for each in error.errors(include_url=False)]
            raise _misfit(self._tool_id, complaints) from error

    def bind(self, arguments: Mapping[str, Any], context: object) -> tuple[list[object], dict[str, object]]:
        """Turn *arguments* into what the function is called with, *context* where it asks for it.

        Raises:
            ToolError: They do not fit.
        """
        values = self.check(arguments)
        positional: list[object] = []
        named: dict[str, object] = {}
        for each in self._parameters:
            if each.field is None:
                value = context
            elif each.field in values.model_fields_set or not each.has_default or each.positional:
                value = getattr(values, each.field)
            else:
                continue
            if each.positional:
                positional.append(value)
            else:
                named[each.name] = value
        return positional, named


def signature_of(
    fn: Callable[..., object],
    *,
    tool_id: str,
    context: type,
    descriptions: Mapping[str, str],
    namespace: Mapping[str, Any],
) -> Signature:
    """Read what *fn* takes from its annotations.

    Args:
        fn: The tool function.
        tool_id: Names the tool in errors.
        context: A parameter annotated with this class takes the tool's context.
        descriptions: What the docstring says of each parameter.
        namespace: Names that annotations may use besides those of *fn*'s module.

    Raises:
        ToolError: A parameter cannot be described to a model.
    """
    parameters: list[_Parameter] = []
    fields: dict[str, Any] = {}
    for parameter in _parameters_of(fn, tool_id):
        hint = _resolve(fn, parameter, tool_id, {context.__name__: context}, namespace)
        # Fields are numbered and have an alias: a parameter may have a name that no field may, such as json.
        field = None if _is_context(hint, context) else f"field{len(fields)}"
        if getattr(get_origin(hint) or hint, "__graphrt_context__", False):
            raise ToolError(
                f"parameter {parameter.name!r} of tool {tool_id!r} is a node's context, and a tool has its own",
                ToolErrorKind.REGISTRATION,
                tool_id,
                hint=f"annotate it with {context.__name__}",
            )
        default = parameter.default
        if isinstance(default, FieldInfo):
            hint, default = Annotated[hint, default], inspect.Parameter.empty
        has_default = default is not inspect.Parameter.empty
        positional = parameter.kind is inspect.Parameter.POSITIONAL_ONLY
        parameters.append(_Parameter(parameter.name, field, has_default, positional))
        if field is not None:
            fields[field] = (hint, _field(hint, parameter.name, default, descriptions.get(parameter.name)))
    try:
        model = create_model(f"{tool_id} arguments", __config__=_CONFIG, **fields)
        schema = model.model_json_schema(schema_generator=_SchemaWithoutTitles)
    except (PydanticUserError, PydanticUndefinedAnnotation) as error:
        raise ToolError(
            f"the parameters of tool {tool_id!r} have no JSON Schema: {error}".splitlines()[0],
            ToolErrorKind.REGISTRATION,
            tool_id,
            hint="annotate them with types that JSON can carry; what a model must not see comes by ctx.deps",
        ) from error
    schema.pop("title", None)
    return Signature(model, parameters, schema, tool_id)


_CONFIG: Final = ConfigDict(extra="forbid", protected_namespaces=())


class _SchemaWithoutTitles(GenerateJsonSchema):
    """Leave out titles that repeat the names of fields, and say nothing of defaults that JSON cannot show."""

    ignored_warning_kinds = {"skipped-choice", "non-serializable-default"}  # noqa: RUF012  declared so by pydantic

    def field_title_should_be_set(self, schema: Any) -> bool:
        """Never: the name of a field says what its title would."""
        return False


def context_parameters(fn: Callable[..., object], context: type) -> list[str]:
    """Find the parameters of *fn* that take the tool's context, for a function that brings its own schema."""
    found: list[str] = []
    for name, parameter in inspect.signature(fn).parameters.items():
        annotation = parameter.annotation
        if isinstance(annotation, str):  # not evaluated: no other annotation of such a function need be readable
            annotation = context if annotation.partition("[")[0].split(".")[-1] == context.__name__ else None
        if _is_context(annotation, context):
            found.append(name)
    return found


def _parameters_of(fn: Callable[..., object], tool_id: str) -> list[inspect.Parameter]:
    """List the parameters that a caller of *fn* has to think of.

    Raises:
        ToolError: One stands for any number of arguments, or is the ``self`` of a function in a class.
    """
    try:
        signature = inspect.signature(fn)
    except (TypeError, ValueError) as error:
        raise ToolError(
            f"the parameters of tool {tool_id!r} cannot be read: {error}",
            ToolErrorKind.REGISTRATION,
            tool_id,
            hint=_BRING_A_SCHEMA,
        ) from error
    bound = fn.keywords if isinstance(fn, partial) else {}
    parameters = [each for each in signature.parameters.values() if each.name not in bound]
    for each in parameters:
        if each.kind in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD):
            raise ToolError(
                f"parameter {str(each)!r} of tool {tool_id!r} has no name for a model to use",
                ToolErrorKind.REGISTRATION,
                tool_id,
                hint=_BRING_A_SCHEMA,
            )
    if parameters and parameters[0].name in ("self", "cls") and parameters[0].annotation is inspect.Parameter.empty:
        raise ToolError(
            f"tool {tool_id!r} is a method without its object",
            ToolErrorKind.REGISTRATION,
            tool_id,
            hint="make the tool from a bound method, as in function_tool(shop.buy)",
        )
    return parameters


def _resolve(
    fn: Callable[..., object],
    parameter: inspect.Parameter,
    tool_id: str,
    builtins: Mapping[str, Any],
    namespace: Mapping[str, Any],
) -> Any:
    """Evaluate one annotation, which may be postponed; none at all is ``Any``."""
    if parameter.annotation is inspect.Parameter.empty:
        return Any

    def holder() -> None: ...

    holder.__annotations__ = {parameter.name: parameter.annotation}
    known = {**builtins, **getattr(plain_function(fn), "__globals__", {})}
    try:
        try:
            return get_type_hints(holder, known, include_extras=True)[parameter.name]
        except NameError:
            return get_type_hints(holder, known, dict(namespace), include_extras=True)[parameter.name]
    except (NameError, AttributeError, SyntaxError, TypeError) as error:
        raise ToolError(
            f"annotation {parameter.annotation!r} of parameter {parameter.name!r} of tool {tool_id!r} "
            f"cannot be read: {error}",
            ToolErrorKind.REGISTRATION,
            tool_id,
            hint="import what it names at the top of the module, and not under TYPE_CHECKING only",
        ) from error


def plain_function(fn: Any) -> Any:
    """Find the function under partials, decorators, methods and callable objects."""
    while True:
        if isinstance(fn, partial):
            fn = fn.func
        elif inspect.ismethod(fn):
            fn = fn.__func__
        elif (wrapped := inspect.unwrap(fn)) is not fn:
            fn = wrapped
        elif not inspect.isroutine(fn) and not isinstance(fn, type) and inspect.ismethod(fn.__call__):
            fn = fn.__call__.__func__
        else:
            return fn


def _is_context(hint: Any, context: type) -> bool:
    origin = get_origin(hint)
    if origin is Annotated:
        return _is_context(get_args(hint)[0], context)
    if origin in (Union, UnionType):
        return any(_is_context(each, context) for each in get_args(hint))
    kind = origin or hint
    return isinstance(kind, type) and issubclass(kind, context)


def _field(hint: Any, name: str, default: Any, from_docstring: str | None) -> Any:
    """Make the field for a parameter; what *hint* says of it goes before the docstring."""
    own = FieldInfo.from_annotation(hint)
    description = own.description
    if description is None and get_origin(hint) is Annotated:
        description = next((each for each in get_args(hint)[1:] if isinstance(each, str)), None)
    options: dict[str, Any] = {"alias": name, "description": description or from_docstring}
    if default is not inspect.Parameter.empty:
        options["default"] = default
    elif own.default_factory is not None:
        options["default_factory"] = own.default_factory
    elif not own.is_required():
        options["default"] = own.default
    return Field(**options)


# --- a schema that a tool brings


def check_against(schema: Mapping[str, Any], arguments: Mapping[str, Any], *, tool_id: str) -> None:
    """Check *arguments* against a JSON Schema, which may refer to nothing outside itself.

    Raises:
        ToolError: They do not fit, one line for each place; or *schema* is no JSON Schema.
    """
    if not schema.keys() - {"type", "description", "title"} and schema.get("type", "object") == "object":
        return  # anything goes
    complaints = [
        f"{_path(error.absolute_path) or 'arguments'}: {_short(error.message, 3 * MAX_QUOTED)}"
        for error in validator_for(schema, tool_id=tool_id).iter_errors(dict(arguments))
    ]
    if complaints:
        raise _misfit(tool_id, complaints)


def validator_for(schema: Mapping[str, Any], *, tool_id: str) -> Any:
    """Make the jsonschema validator for *schema*, or take it from the last time.

    Raises:
        ToolError: It is no JSON Schema.
    """
    try:
        return _validator(json.dumps(schema))
    except (TypeError, ValueError) as error:
        raise ToolError(
            f"the parameters of tool {tool_id!r} are no JSON Schema: {error}",
            ToolErrorKind.REGISTRATION,
            tool_id,
        ) from error


@lru_cache(maxsize=256)
def _validator(schema: str) -> Any:
    import jsonschema
    from referencing import Registry

    loaded = json.loads(schema)
    kind = jsonschema.validators.validator_for(loaded, default=jsonschema.Draft202012Validator)
    try:
        kind.check_schema(loaded)
    except jsonschema.SchemaError as error:
        raise ValueError(error.message) from error
    # A registry of its own: without one, a $ref to an address would be fetched from the network.
    return kind(loaded, registry=Registry())


# --- what the model is told


def _misfit(tool_id: str, complaints: Sequence[str]) -> ToolError:
    shown = [f"- {each}" for each in complaints[:MAX_COMPLAINTS]]
    if len(complaints) > MAX_COMPLAINTS:
        shown.append(f"- and {len(complaints) - MAX_COMPLAINTS} more")
    text = "\n".join(["the arguments do not fit:", *shown])
    return ToolError(text, ToolErrorKind.INVALID_ARGUMENTS, tool_id)


def _complaint(error: Mapping[str, Any]) -> str:
    where = _path(error["loc"]) or "arguments"
    if error["type"] == "missing":
        return f"{where}: required, and missing"
    if error["type"] == "extra_forbidden":
        return f"{where}: not an argument of this tool"
    message = str(error["msg"])
    return f"{where}: {message[:1].lower()}{message[1:]}, not {_short(repr(error['input']), MAX_QUOTED)}"


def _path(parts: Iterable[str | int]) -> str:
    return "".join(f"[{each}]" if isinstance(each, int) else f".{each}" for each in parts).removeprefix(".")


def _short(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[: limit - 3]}..."
