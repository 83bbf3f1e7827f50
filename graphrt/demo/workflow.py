"""The demo's workflow: plan questions, research them side by side, write a report.

    START -> survey -> brief -> planner -> check -[the plan is refused]-> brief
    check -[it is accepted]-> wave -map-> question -> researcher -> weigh -[it names no source]-> question
    weigh -> answer -gather-> collect
    collect -[steps are left]-> wave
    collect -[none is left]-> digest -> writer -> report -> END

A wave is the steps whose dependencies have been worked on. An answer that names no line of the documents is
sent back once. A question whose research fails is kept as a failure and named in the report.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Annotated, Any, Final

from pydantic import BaseModel, ConfigDict

from graphrt.cli import one_line
from graphrt.config import RetryConfig
from graphrt.demo import prompts
from graphrt.demo.documents import Documents, document_tools
from graphrt.demo.plan import MOST_STEPS, Plan, PlanError, PlanStep, check_plan
from graphrt.demo.report import Finding, is_backed, make_report
from graphrt.demo.survey import survey
from graphrt.errors import ConfigError, GraphrtError, LimitExceededError, LlmError, LlmErrorKind
from graphrt.graph import END, START, Failure, Reduce, RunContext, Update, Workflow
from graphrt.nodes import AgentNode

if TYPE_CHECKING:
    from pathlib import Path

    from graphrt.llm import LLMProvider

PLANNING_ROUNDS: Final = 3
"""Plans that the planner may make until one can be run."""

FORM_ROUNDS: Final = 2
"""Times that the planner is asked for one plan: again when its reply is not of the form asked for."""

RESEARCH_ROUNDS: Final = 5
"""Times that a researcher asks its model; the last time it has to answer."""

ANSWERS: Final = 2
"""Answers that a researcher may give until one names its sources; the last one is taken as it is."""


class Research(BaseModel):
    """The workflow's shared state."""

    plan: Plan | None = None
    findings: Annotated[list[Finding], Reduce(operator.add)] = []


class Verdict(BaseModel):
    """What the check says of a plan."""

    model_config = ConfigDict(frozen=True)

    problems: tuple[str, ...] = ()
    """Empty: the plan can be run."""


class Assignment(BaseModel):
    """One step for one researcher, with what is known of the steps it depends on."""

    model_config = ConfigDict(frozen=True)

    step: PlanStep
    known: tuple[Finding, ...] = ()


class Answer(BaseModel):
    """What a researcher says, and whether it is good enough."""

    model_config = ConfigDict(frozen=True)

    text: str
    accepted: bool


class _Nodes:
    """The functions of the workflow, over one folder."""

    def __init__(self, documents: Documents, model: str, most_steps: int) -> None:
        self.documents = documents
        self.model = model
        self.most_steps = most_steps

    def survey(self, goal: str) -> str:
        """Look over the documents; in a thread, since it reads files."""
        return survey(self.documents)

    async def brief(self, survey: str, goal: str, check: Verdict | None = None) -> str:
        """Write the planner's prompt, with what was wrong with the plan before."""
        return prompts.planning(goal, survey, check.problems if check else ())

    async def check(self, plan: Plan | LimitExceededError | LlmError, ctx: RunContext[Any]) -> Update[Verdict]:
        """Accept a plan or refuse it; the last one has to be right."""
        try:
            accepted = check_plan(_as_plan(plan), most=self.most_steps)
        except PlanError as error:
            ctx.emit("custom.plan.refused", {"problems": list(error.problems), "round": ctx.step.round})
            if ctx.step.round >= PLANNING_ROUNDS:
                hint = f"the planner made {PLANNING_ROUNDS} plans that cannot be run: try another model"
                raise PlanError(error.problems, hint=hint) from error
            return Update(Verdict(problems=error.problems))
        ctx.emit("custom.plan.accepted", {"steps": [step.model_dump() for step in accepted.steps]})
        return Update(Verdict(), plan=accepted)

    async def wave(self, before: Verdict | int, state: Research) -> list[Assignment]:
        """Give the steps that can be researched now."""
        plan = state.plan or Plan(steps=[])
        known = {finding.step.id: finding for finding in state.findings}
        return [
            Assignment(step=step, known=tuple(known[needed] for needed in step.depends_on))
            for step in plan.ready(known)
        ]

    async def question(self, assignment: Assignment, ctx: RunContext[Any], weigh: Answer | None = None) -> str:
        """Write a researcher's prompt; the second time with what was wrong with the answer."""
        step, again = assignment.step, weigh is not None
        ctx.emit("custom.research", {"id": step.id, "question": step.question, "again": again})
        return prompts.research(step.question, assignment.known, again=again)

    def weigh(self, text: str, ctx: RunContext[Any]) -> Answer:
        """Accept an answer that names a line of the documents; in a thread, since it looks there."""
        return Answer(text=text, accepted=ctx.step.round >= ANSWERS or is_backed(text, self.documents))

    async def answer(self, answer: Answer) -> str:
        """Give the text of an accepted answer."""
        return answer.text

    async def collect(self, answers: list[str | Failure], wave: list[Assignment], state: Research) -> Update[int]:
        """Note what the wave found, and say how many steps are left."""
        findings = [
            Finding(step=each.step, problem=one_line(answer.error))
            if isinstance(answer, Failure)
            else Finding(step=each.step, answer=answer.strip())
            for each, answer in zip(wave, answers, strict=True)
        ]
        steps = state.plan.steps if state.plan else []
        return Update(len(steps) - len(state.findings) - len(findings), findings=findings)

    async def digest(self, left: int, state: Research, goal: str) -> str:
        """Write the writer's prompt from the findings, in the plan's order.

        Raises:
            GraphrtError: There are none.
        """
        findings = _in_order(state)
        if not any(finding.answer for finding in findings):
            problems = [finding.problem for finding in findings if finding.problem]
            raise GraphrtError(f"no question could be researched: {problems[0] if problems else 'no answers'}")
        return prompts.writing(goal, findings)

    def report(self, text: str, state: Research, goal: str) -> str:
        """Add to the writer's text what it rests on; in a thread, since it looks the sources up."""
        return make_report(goal, text, _in_order(state), self.documents, self.model)


def build_workflow(
    provider: LLMProvider,
    folder: Documents | str | Path,
    *,
    most_steps: int = 4,
    max_concurrency: int = 4,
    model: str | None = None,
    temperature: float | None = None,
    max_tokens: int | None = None,
) -> Workflow:
    """Build the workflow: a goal in, a report in Markdown out.

    Args:
        provider: The model that plans, researches and writes.
        folder: What it may read, and nothing else.
        most_steps: Questions of a plan, 8 at most.
        max_concurrency: Questions researched at the same time.
        model: What the report calls the model; None: the provider's own name for it.
        temperature: Of every request; None: the server's own.
        max_tokens: Of every reply; None: the server's own.

    Raises:
        ConfigError: A number is out of its range.
        DocumentError: There is no such folder.
    """
    if not 1 <= most_steps <= MOST_STEPS:
        raise ConfigError(f"a plan may have 1 to {MOST_STEPS} steps, not {most_steps}")
    documents = folder if isinstance(folder, Documents) else Documents(folder)
    name = model or str(getattr(provider, "model", type(provider).__name__))
    wf = Workflow("plan-and-execute", input=str, output=str, state=Research)
    nodes = _Nodes(documents, name, most_steps)
    for each in ("survey", "brief", "check", "wave", "question", "weigh", "answer", "collect", "digest", "report"):
        wf.add_node(each, getattr(nodes, each))
    asked: dict[str, Any] = {
        "model": provider,
        "retry": RetryConfig(),
        "temperature": temperature,
        "max_tokens": max_tokens,
    }
    wf.add(
        AgentNode("planner", **asked, system_prompt=prompts.planner(most_steps), output=Plan, max_rounds=FORM_ROUNDS)
    )
    wf.add(
        AgentNode(
            "researcher",
            **asked,
            tools=document_tools(documents),
            system_prompt=prompts.RESEARCHER,
            max_rounds=RESEARCH_ROUNDS,
            on_limit="answer",
        )
    )
    wf.add(AgentNode("writer", **asked, system_prompt=prompts.WRITER))

    wf.chain(START, "survey", "brief", "planner", "check")
    wf.edge("planner", "check", on_error=(LimitExceededError, LlmError), when=_is_no_plan, label="replies with no plan")
    wf.edge("check", "brief", when=lambda verdict: bool(verdict.problems), label="refused")
    wf.edge("check", "wave", when=lambda verdict: not verdict.problems, label="accepted")
    wf.map("wave", "question", into="assignment", on_error="collect", max_concurrency=max_concurrency)
    wf.chain("question", "researcher", "weigh")
    wf.edge("weigh", "question", when=lambda answer: not answer.accepted, label="names no source")
    wf.edge("weigh", "answer", when=lambda answer: answer.accepted, label="accepted")
    wf.gather("answer", "collect", into="answers")
    wf.edge("collect", "wave", when=lambda left: left > 0, label="steps are left")
    wf.edge("collect", "digest", when=lambda left: left == 0, label="all done")
    wf.chain("digest", "writer", "report", END)
    return wf


def _in_order(state: Research) -> list[Finding]:
    order = [step.id for step in state.plan.steps] if state.plan else []
    return sorted(state.findings, key=lambda finding: order.index(finding.step.id))


def _is_no_plan(error: LimitExceededError | LlmError) -> bool:
    """Say whether the planner did answer, if not with a plan: it can be told so."""
    return isinstance(error, LimitExceededError) or error.kind is LlmErrorKind.INVALID_REQUEST


def _as_plan(plan: Plan | LimitExceededError | LlmError) -> Plan:
    if isinstance(plan, Plan):
        return plan
    is_limit = isinstance(plan, LimitExceededError)
    raise PlanError(["no reply was a plan in the form asked for" if is_limit else plan.message]) from plan
