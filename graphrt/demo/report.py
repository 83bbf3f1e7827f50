"""The report: what the writer wrote, and below it what can be checked."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from pydantic import BaseModel, ConfigDict

from graphrt.demo.confined import DocumentError
from graphrt.demo.plan import PlanStep
from graphrt.demo.standin import STAND_IN_NAME

if TYPE_CHECKING:
    from collections.abc import Sequence

    from graphrt.demo.documents import Documents

_SOURCE: Final = re.compile(r"([^\s()\[\]`\"',;:]+):(\d+)")
_LONGEST_LINE: Final = 160


class Finding(BaseModel):
    """What became of one step of the plan."""

    model_config = ConfigDict(frozen=True)

    step: PlanStep
    answer: str | None = None
    problem: str | None = None
    """Why there is no answer."""


def make_report(goal: str, text: str, findings: Sequence[Finding], documents: Documents, model: str) -> str:
    """Put the report together: the text, what was not answered, the lines it names, how it was made."""
    parts = [
        f"# {goal}",
        text.strip(),
        _unanswered(findings),
        _sources(findings, documents),
        _origin(findings, model),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def cited(findings: Sequence[Finding]) -> list[tuple[str, int]]:
    """Give the places that the answers name as ``file:line``, each once, in order."""
    places = [
        (found[1].removeprefix("./"), int(found[2]))
        for finding in findings
        for found in _SOURCE.finditer(finding.answer or "")
    ]
    return list(dict.fromkeys(places))


def _unanswered(findings: Sequence[Finding]) -> str:
    failed = [finding for finding in findings if finding.problem is not None]
    lines = [f"- {finding.step.question}\n  {finding.problem}" for finding in failed]
    return "\n".join(["## Not answered", "", *lines]) if lines else ""


def _sources(findings: Sequence[Finding], documents: Documents) -> str:
    """List the lines that the answers name, as they stand in the files, or that a line is not there."""
    known = set(documents.paths())
    lines = [
        f"- {path}:{number} {_line(documents, path, number)}"
        for path, number in cited(findings)
        if path in known
    ]
    return "\n".join(["## Sources", "", *lines]) if lines else ""


def _line(documents: Documents, path: str, number: int) -> str:
    try:
        lines = documents.lines(path)
    except DocumentError as error:
        return f"(cannot be read: {error.message})"
    if not 1 <= number <= len(lines):
        return "(there is no such line)"
    text = lines[number - 1].strip().replace("`", "'")
    return f"`{text[:_LONGEST_LINE]}`" if text else "(an empty line)"


def _origin(findings: Sequence[Finding], model: str) -> str:
    answered = sum(finding.answer is not None for finding in findings)
    made = f"Made by `graphrt demo` from {answered} of {len(findings)} questions, with {model}."
    if model == STAND_IN_NAME:
        made += (
            " That is no language model: it turns headings into questions and quotes lines by rule. Set "
            "`OPENAI_API_KEY` or `OPENAI_BASE_URL` to ask a model."
        )
    return f"---\n\n{made}"
