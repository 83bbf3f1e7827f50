"""Answers of a declared type: what the model is asked for, and how its reply is read."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, TypeAdapter, ValidationError, create_model

from graphrt.graph.signature import MISSING
from graphrt.messages import LLMResponse

_MOST = 5  # complaints in one message


class OutputFormat:
    """A type that a model's reply has to be of.

    The model is asked for a pydantic model; any other type is the one field `answer` of one made for it.
    """

    def __init__(self, output: Any) -> None:
        """Take the type.

        Raises:
            pydantic.PydanticSchemaGenerationError: There is no JSON Schema for it.
        """
        self._is_model = isinstance(output, type) and issubclass(output, BaseModel)
        self.model: type[BaseModel] = output if self._is_model else create_model("Answer", answer=(output, ...))
        """What `response_format` is."""
        self._bare: TypeAdapter[Any] | None = None if self._is_model else TypeAdapter(output)
        parsed: Any = self.model | None
        self.reply_type = create_model("Reply", __base__=LLMResponse, parsed=(parsed, None))
        """The class of replies: what is read already is of its own type there, so that it can be stored."""

    def typed(self, response: LLMResponse) -> LLMResponse:
        """Give a reply as one of `reply_type`; what a provider has read that is not of the type is left out."""
        parsed = response.parsed if isinstance(response.parsed, self.model) else None
        return self.reply_type.model_construct(**{**vars(response), "parsed": parsed})

    def read(self, response: LLMResponse) -> Any:
        """Give the value in a reply.

        Raises:
            ValueError: There is none of the type; the message is written for the model.
        """
        if isinstance(response.parsed, self.model):
            return response.parsed if self._is_model else response.parsed.answer  # type: ignore[attr-defined]
        text = _without_fence(response.content)
        try:
            value = self.model.model_validate_json(text)
        except ValidationError as error:
            if self._bare is not None:
                try:
                    return self._bare.validate_json(text)
                except ValidationError:
                    pass
            raise ValueError(_complaint(error)) from error
        return value if self._is_model else value.answer  # type: ignore[attr-defined]


def output_format(output: Any) -> OutputFormat | None:
    """Give the format to ask a model for; None where any text will do."""
    return None if output is str or output is Any or output is MISSING else OutputFormat(output)


def _without_fence(text: str) -> str:
    """Take away the Markdown code fence that some models put around JSON."""
    text = text.strip()
    if not text.startswith("```") or not text.endswith("```"):
        return text
    return text.removesuffix("```").partition("\n")[2].strip()


def _complaint(error: ValidationError) -> str:
    """Say to the model what is wrong with its reply."""
    found = error.errors(include_url=False, include_input=False, include_context=False)
    lines = []
    for each in found[:_MOST]:
        where = ".".join(str(part) for part in each["loc"])
        lines.append(f"- {where}: {each['msg']}" if where else f"- {each['msg']}")
    if len(found) > _MOST:
        lines.append(f"- and {len(found) - _MOST} more")
    problems = "\n".join(lines)
    return f"That reply is not of the form asked for:\n{problems}\nAnswer again, with JSON of that form alone."
