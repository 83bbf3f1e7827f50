"""A node that waits for a person."""

from __future__ import annotations

import enum
from dataclasses import is_dataclass
from typing import TYPE_CHECKING, Any, Final, get_origin, is_typeddict

from graphrt.errors import GraphError, GraphTypeError
from graphrt.graph import typecheck
from graphrt.graph.protocols import NodeKind
from graphrt.graph.signature import MISSING, NodeSignature, Param
from graphrt.nodes.given import is_function, parameters_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pydantic import TypeAdapter

    from graphrt.graph.scheduler.context import RunContext

_VALUE: Final = Param("value", Any, None)


class Ask:
    """Ask a person, and give the answer. The run waits meanwhile, and holds no slot.

    `question` is what is shown: a text, any value, or a function that makes it of the node's inputs, which are
    then the function's parameters. The answer is checked against `answer`: one that does not fit is refused,
    and the question stays open. Where the type is a model, a dataclass, an enumeration or a type with
    arguments, a plain value is converted into it, so that an answer may come as JSON.
    """

    kind = NodeKind.ASK

    def __init__(self, name: str, *, question: Any, answer: Any = Any) -> None:
        """Take the question, and the type of the answer.

        Raises:
            GraphError: *question* is a function that is async, yields, or takes the run's context.
        """
        self._name = name
        self._question = question
        self._answer = answer
        self._adapter: TypeAdapter[Any] | None = None
        self._params = (_VALUE,) if not is_function(question) else parameters_of(question, name=name, what="question")
        self._check = None if _is_converted(answer) else typecheck.checker(answer)

    @property
    def name(self) -> str:
        """Name of the node."""
        return self._name

    @property
    def signature(self) -> NodeSignature:
        """Takes what the question is made of, else `value`, which may be missing; gives the answer."""
        return NodeSignature(self._params, MISSING if self._answer is Any else self._answer)

    def question_for(self, inputs: Mapping[str, Any]) -> Any:
        """Make the question; raises what its function raises."""
        return self._question(**inputs) if is_function(self._question) else self._question

    def accept(self, answer: Any) -> Any:
        """Check an answer, and convert it where the declared type asks for that.

        Raises:
            GraphTypeError: It does not fit.
        """
        if _is_converted(self._answer):
            return self._convert(answer)
        if self._check is not None and not self._check(answer):
            raise self._misfit(answer, type(answer).__name__)
        if self._answer in (int, float) and isinstance(answer, bool):
            raise self._misfit(answer, "bool")
        return answer

    async def run(self, inputs: Mapping[str, Any], ctx: RunContext[Any]) -> Any:
        """Refuse: in a graph the engine asks and waits, and elsewhere there is nobody to ask.

        Raises:
            GraphError: Always.
        """
        raise GraphError(
            f"node {self._name!r} asks a person, and cannot be called",
            hint="add it to a workflow, and answer with on_ask= or run.answer()",
        )

    def _convert(self, answer: Any) -> Any:
        from pydantic import TypeAdapter, ValidationError

        if self._adapter is None:
            self._adapter = TypeAdapter(self._answer)
        try:
            return self._adapter.validate_python(answer)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False, include_context=False)[0]
            where = ".".join(str(part) for part in first["loc"])
            raise self._misfit(answer, f"{where}: {first['msg']}" if where else first["msg"]) from error

    def _misfit(self, answer: Any, what: str) -> GraphTypeError:
        return GraphTypeError(
            f"{answer!r} is no answer to {self._name!r}, which takes {typecheck.describe(self._answer)}: {what}",
            hint="answer again; the question is still open",
        )


def _is_converted(answer: Any) -> bool:
    """Whether a plain value is made into one of the type, rather than looked at only."""
    if answer is Any or answer is MISSING:
        return False
    if not isinstance(answer, type) or get_origin(answer) is not None:
        return True
    model = hasattr(answer, "__pydantic_validator__")
    return model or is_dataclass(answer) or is_typeddict(answer) or issubclass(answer, enum.Enum)
