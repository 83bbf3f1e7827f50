"""Tools made from functions."""

from __future__ import annotations

import functools
import inspect
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, overload

from graphrt.errors import GraphrtError, ToolError, ToolErrorKind
from graphrt.threads import run_in_thread
from graphrt.tools.base import Tool, ToolContext, ToolDescriptor
from graphrt.tools.docstring import parse_docstring
from graphrt.tools.schema import (
    Signature,
    check_against,
    context_parameters,
    plain_function,
    signature_of,
    validator_for,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

P = ParamSpec("P")
R = TypeVar("R")


class FunctionTool(Tool, Generic[P, R]):
    """A function that a model can call; calling the object calls the function. ``function_tool`` makes it."""

    def __init__(
        self,
        fn: Callable[P, R],
        *,
        id: str | None = None,
        description: str | None = None,
        parameters: Mapping[str, Any] | None = None,
        timeout: float | None = None,
        requires_approval: bool = False,
        exclusive: bool = False,
        namespace: Mapping[str, Any] | None = None,
    ) -> None:
        """Take what ``function_tool`` takes; *namespace* has further names for postponed annotations."""
        tool_id = id or _name_of(fn)
        _refuse(fn, tool_id, timeout)
        text, about = parse_docstring(inspect.getdoc(fn if isinstance(fn, type) else plain_function(fn)))
        self._signature: Signature | None = None
        self._contexts: list[str] = []
        if parameters is None:
            self._signature = signature_of(
                fn, tool_id=tool_id, context=ToolContext, descriptions=about, namespace=namespace or {}
            )
            parameters = self._signature.schema
        else:
            validator_for(parameters, tool_id=tool_id)
            self._contexts = context_parameters(fn, ToolContext)
        self._descriptor = ToolDescriptor(tool_id, text if description is None else description, parameters)
        self._fn: Callable[..., Any] = fn
        self._is_async = _is(inspect.iscoroutinefunction, fn)
        self.timeout = timeout
        self.requires_approval = requires_approval
        self.exclusive = exclusive
        self.__name__ = tool_id
        functools.update_wrapper(self, fn, updated=())

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function itself, as if it were no tool."""
        result: R = self._fn(*args, **kwargs)
        return result

    def __repr__(self) -> str:
        return f"FunctionTool({self._descriptor.id!r})"

    @property
    def descriptor(self) -> ToolDescriptor:
        """What the model is told of the tool."""
        return self._descriptor

    def check(self, arguments: Mapping[str, Any]) -> None:
        """Check arguments against the function's annotations, or the schema that it brings.

        Raises:
            ToolError: They do not fit; one line for each field.
        """
        if self._signature is None:
            check_against(self._descriptor.parameters, arguments, tool_id=self._descriptor.id)
        else:
            self._signature.check(arguments)

    async def execute(self, arguments: dict[str, Any], ctx: ToolContext[Any]) -> Any:
        """Convert *arguments* to what the function declares, and call it, in a thread if it is synchronous.

        Raises:
            ToolError: The arguments do not fit. What the function raises is raised as it is.
        """
        call: Callable[[], Any]
        if self._signature is None:
            self.check(arguments)
            call = functools.partial(self._fn, **{**arguments, **dict.fromkeys(self._contexts, ctx)})
        else:
            positional, named = self._signature.bind(arguments, ctx)
            call = functools.partial(self._fn, *positional, **named)
        if self._is_async:
            return await call()
        result = await run_in_thread(call, on_abandon=functools.partial(self._report_abandoned, ctx))
        return await result if inspect.isawaitable(result) else result

    def _report_abandoned(self, ctx: ToolContext[Any]) -> None:
        with suppress(GraphrtError):  # a run that has ended takes no more events
            ctx.emit("thread.abandoned", {"tool_id": self._descriptor.id, "tool_call_id": ctx.tool_call_id})


@overload
def function_tool(
    fn: Callable[P, R],
    *,
    id: str | None = None,
    description: str | None = None,
    parameters: Mapping[str, Any] | None = None,
    timeout: float | None = None,
    requires_approval: bool = False,
    exclusive: bool = False,
) -> FunctionTool[P, R]: ...


@overload
def function_tool(
    fn: None = None,
    *,
    id: str | None = None,
    description: str | None = None,
    parameters: Mapping[str, Any] | None = None,
    timeout: float | None = None,
    requires_approval: bool = False,
    exclusive: bool = False,
) -> Callable[[Callable[P, R]], FunctionTool[P, R]]: ...


def function_tool(
    fn: Callable[..., Any] | None = None,
    *,
    id: str | None = None,
    description: str | None = None,
    parameters: Mapping[str, Any] | None = None,
    timeout: float | None = None,
    requires_approval: bool = False,
    exclusive: bool = False,
) -> Any:
    """Make a tool from a function; also a decorator, with or without arguments.

    The schema comes from the annotations, which may be postponed; ``Annotated[..., Field(...)]`` is honoured.
    What those do not say of a parameter comes from the docstring (Google, NumPy or Sphinx style). A parameter
    annotated with ``ToolContext`` takes the context and is not shown to the model.

    Args:
        fn: The function. A synchronous one is called in a worker thread.
        id: The name for the model; the function's own by default.
        description: What the tool does; the docstring without its sections by default.
        parameters: A JSON Schema in place of the annotations; arguments are then passed by name, as they are.
        timeout: Seconds that one call may take.
        requires_approval: Whether a person has to say yes to each call.
        exclusive: Whether no other tool of the same round may run meanwhile.

    Raises:
        ToolError: The function has no name, or a parameter that cannot be described to a model.
    """
    namespace = sys._getframe(1).f_locals  # where a local class that a postponed annotation names is found

    def make(fn: Callable[P, R]) -> FunctionTool[P, R]:
        return FunctionTool(
            fn,
            id=id,
            description=description,
            parameters=parameters,
            timeout=timeout,
            requires_approval=requires_approval,
            exclusive=exclusive,
            namespace=namespace,
        )

    return make if fn is None else make(fn)


def _name_of(fn: Callable[..., Any]) -> str:
    while isinstance(fn, functools.partial):
        fn = fn.func
    name = str(getattr(fn, "__name__", type(fn).__name__))
    if name == "<lambda>":
        raise ToolError("a lambda has no name for a model to use", ToolErrorKind.REGISTRATION, hint="give id=")
    return name


def _is(test: Callable[[Any], bool], fn: Callable[..., Any]) -> bool:
    """Ask *test* about a function, or about the ``__call__`` of an object."""
    return test(fn) or (not inspect.isroutine(fn) and test(type(fn).__call__))


def _refuse(fn: Callable[..., Any], tool_id: str, timeout: float | None) -> None:
    """Raise ToolError for what can be no tool."""
    if _is(inspect.isgeneratorfunction, fn) or _is(inspect.isasyncgenfunction, fn):
        raise ToolError(
            f"tool {tool_id!r} is a generator function, and a call has one result",
            ToolErrorKind.REGISTRATION,
            tool_id,
            hint="return a list",
        )
    if timeout is not None and not timeout > 0:
        raise ToolError(
            f"the timeout of tool {tool_id!r} is {timeout!r}, which is no number of seconds above 0",
            ToolErrorKind.REGISTRATION,
            tool_id,
        )
