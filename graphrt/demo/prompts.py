"""What the demo's models are told. Short, so that a model with a context of 4096 tokens can do the work."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

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
answers it needs, which is empty for most steps. Ask about what the headings name, each time something else.
For example, for documents about gardens:
{{"steps": [{{"id": "s1", "question": "Which plants need shade?", "depends_on": []}},
{{"id": "s2", "question": "When are roses cut?", "depends_on": []}}]}}"""

_NO_ANSWER: Final = "This was not answered."
_ANSWER_CHARS: Final = 1_200
_KNOWN_CHARS: Final = 600
_ALL_ANSWERS_CHARS: Final = 6_000


def planner(most_steps: int) -> str:
    """Tell the planner what a plan is."""
    return _PLANNER.format(most_steps=most_steps)


def planning(goal: str, survey: str, problems: Sequence[str] = ()) -> str:
    """Ask for a plan, and say what was wrong with the one before."""
    refused = ["", "Your last plan was refused:", *(f"- {each}" for each in problems), "Make a better one."]
    return "\n".join(
        [f"Goal: {goal}", "", "The files and their headings:", survey, *(refused if problems else [])]
    )


def research(question: str, known: Sequence[Finding] = ()) -> str:
    """Ask one question, with the answers it depends on."""
    lines = [f"Question: {question}"]
    if known:
        lines += ["", "What is known already:"]
    for finding in known:
        lines.append(
            f"- {finding.step.question} {_cut(finding.answer or 'This was not answered.', _KNOWN_CHARS)}"
        )
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
