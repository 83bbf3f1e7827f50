"""The report: what the writer wrote, and below it what can be checked."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from pydantic import BaseModel, ConfigDict

from graphrt.cli import counted
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
        f"# {' '.join(goal.split())}",
        text.strip(),
        _unanswered(findings),
        _without_source(findings, documents),
        _sources(findings, documents),
        _origin(findings, model),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def cited(text: str) -> list[tuple[str, int]]:
    """Give the places that a text names as ``file:line``, each once, in order."""
    places = [(found[1].removeprefix("./"), int(found[2])) for found in _SOURCE.finditer(text)]
    return list(dict.fromkeys(places))


def is_backed(text: str, documents: Documents) -> bool:
    """Say whether a text names a line that is in the documents."""
    return any(line_at(documents, path, number) is not None for path, number in cited(text))


def line_at(documents: Documents, path: str, number: int) -> str | None:
    """Give a line of a document; None when there is no such document or line."""
    try:
        lines = documents.lines(path)
    except DocumentError:
        return None
    return lines[number - 1].strip() if 1 <= number <= len(lines) else None


def _unanswered(findings: Sequence[Finding]) -> str:
    failed = [finding for finding in findings if finding.problem is not None]
    lines = [f"- {finding.step.question}\n  {finding.problem}" for finding in failed]
    return "\n".join(["## Not answered", "", *lines]) if lines else ""


def _without_source(findings: Sequence[Finding], documents: Documents) -> str:
    """Name the questions whose answers nothing in the documents backs."""
    bare = [each for each in findings if each.answer is not None and not is_backed(each.answer, documents)]
    lines = [f"- {finding.step.question}" for finding in bare]
    return "\n".join(["## Answered without a source", "", *lines]) if lines else ""


def _sources(findings: Sequence[Finding], documents: Documents) -> str:
    """List the lines that the answers name, as they stand in the files, or that a line is not there."""
    known = set(documents.paths())
    places = cited("\n".join(finding.answer or "" for finding in findings))
    lines = [f"- {path}:{number} {_quoted(documents, path, number)}" for path, number in places if path in known]
    return "\n".join(["## Sources", "", *lines]) if lines else ""


def _quoted(documents: Documents, path: str, number: int) -> str:
    line = line_at(documents, path, number)
    if line is None:
        return "(there is no such line)"
    shown = line[:_LONGEST_LINE].replace("`", "'")
    return f"`{shown}`" if shown else "(an empty line)"


def _origin(findings: Sequence[Finding], model: str) -> str:
    answered = sum(finding.answer is not None for finding in findings)
    made = f"Made by `graphrt demo` from {answered} of {counted(len(findings), 'question')}, with {model}."
    if model == STAND_IN_NAME:
        made += (
            " That is no language model: it turns headings into questions and quotes lines by rule. Set "
            "`OPENAI_API_KEY` or `OPENAI_BASE_URL` to ask a model."
        )
    return f"---\n\n{made}"
