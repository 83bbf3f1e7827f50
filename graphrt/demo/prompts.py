"""What the demo's models are told. Short, so that a model with a context of 4096 tokens can do the work."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from graphrt.demo.survey import first_headings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from graphrt.demo.report import Finding

DEFAULT_GOAL: Final = "Explain what these documents are about, and what a reader should know first."

RESEARCHER: Final = """\
You answer one question from the files of a folder. First call search with a few key words. Then call
read_lines around a hit. Then answer in one to four sentences. After each fact name its source as (file:line).
Say only what the files say; if they do not say it, say that."""

WRITER: Final = """\
You write a short report in Markdown from research findings. Begin with a paragraph that sums up what was
found for the goal. Then give each question a heading with ## and its findings in your own words. Keep the
sources, written as (file:line), as they are. Add nothing that the findings do not say."""

_PLANNER: Final = """\
You plan research in a folder of documents. Make a plan of at most {most_steps} steps. Each step has an id
(s1, s2, ...), one question that the documents can answer, and depends_on: the ids of earlier steps whose
answers it needs, which is empty for most steps. Ask about what the headings name, each time something
else."""

_NO_SOURCE: Final = (
    "Your last answer named no line of a file. Call search and read_lines first, and name each source as (file:line)."
)
_NO_ANSWER: Final = "This was not answered."
_ANSWER_CHARS: Final = 1_200
_KNOWN_CHARS: Final = 600
_ALL_ANSWERS_CHARS: Final = 6_000


def planner(most_steps: int) -> str:
    """Tell the planner what a plan is."""
    return _PLANNER.format(most_steps=most_steps)


def planning(goal: str, survey: str, problems: Sequence[str] = ()) -> str:
    """Ask for a plan, and say what was wrong with the one before.

    The example is made of the documents' own headings: a small model copies it, and may.
    """
    lines = [f"Goal: {goal}", "", "The files and their headings:", survey]
    questions = [f"What does {path} say about {heading}?" for path, heading in first_headings(survey)]
    steps = [{"id": f"s{at}", "question": each, "depends_on": []} for at, each in enumerate(questions, start=1)]
    if steps:
        lines += ["", f"The form of a plan: {json.dumps({'steps': steps}, ensure_ascii=False)}"]
    if problems:
        lines += ["", "Your last plan was refused:", *(f"- {each}" for each in problems), "Make a better one."]
    return "\n".join(lines)


def research(question: str, known: Sequence[Finding] = (), *, again: bool = False) -> str:
    """Ask one question, with the answers it depends on; *again*: the answer before named no source."""
    lines = [f"Question: {question}"]
    if known:
        lines += ["", "What is known already:"]
    lines += [f"- {each.step.question} {_cut(each.answer or _NO_ANSWER, _KNOWN_CHARS)}" for each in known]
    if again:
        lines += ["", _NO_SOURCE]
    return "\n".join(lines)


def writing(goal: str, findings: Sequence[Finding]) -> str:
    """Ask for the report, with all that was found; long answers are cut so that all fit."""
    most = min(_ANSWER_CHARS, _ALL_ANSWERS_CHARS // max(len(findings), 1))
    lines = [f"Goal: {goal}"]
    for finding in findings:
        lines += ["", f"## {finding.step.question}", _cut(finding.answer or _NO_ANSWER, most)]
    return "\n".join(lines)


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]}..."
