"""What a run leaves: its result, a record of every step, and the error that `run()` raises."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from graphrt.errors import HookBlockedError, LimitExceededError
from graphrt.graph.protocols import Conversation
from graphrt.graph.states import NodeState, RunStatus, Termination, TerminationKind
from graphrt.notes import add_note

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from graphrt.graph.core.run import RunCore
    from graphrt.graph.history import History
    from graphrt.graph.protocols import Failure, Question
    from graphrt.graph.scheduler.run import GraphScheduler
    from graphrt.graph.scheduler.steprecord import StepRecord
    from graphrt.messages import ChatResponse, Message

_KINDS = {
    RunStatus.SUCCEEDED: TerminationKind.NATURAL_END,
    RunStatus.FAILED: TerminationKind.ERROR,
    RunStatus.STOPPED: TerminationKind.STOPPED,
    RunStatus.CANCELLED: TerminationKind.CANCELLED,
    RunStatus.TIMED_OUT: TerminationKind.TIMEOUT,
    RunStatus.WAITING: TerminationKind.SUSPENDED,
    RunStatus.RUNNING: TerminationKind.SUSPENDED,
}


class RunResult:
    """How a run ended and what it made. Steps and states are worked out when they are asked for.

    Attributes:
        run_id: The run's id.
        status: How it ended, a `RunStatus`.
        output: What reached END: the one value, or by node where there are several; None for a run that did not
            succeed.
        outputs: Every value that reached END, by source node.
        error: What `run()` raises; None for a run that succeeded.
        failures: Failures that nobody handled, the one that failed the run first.
    """

    __slots__ = (
        "_conversation",
        "_run",
        "_state",
        "_steps",
        "error",
        "failures",
        "output",
        "outputs",
        "run_id",
        "status",
    )

    def __init__(self, run: GraphScheduler) -> None:
        core = run.core
        outcome = core.outcome
        assert outcome is not None
        self._run = run
        self._steps: list[StepRecord] | None = None
        self._state: tuple[Any] | None = None
        self._conversation: tuple[Conversation | None] | None = None
        self.run_id = run.run_id
        self.status = outcome.status
        self.output: Any = outcome.output
        self.outputs: Mapping[str, Any] = outcome.outputs
        self.error = outcome.error
        self.failures: Sequence[Failure] = tuple(core.failures)

    @property
    def termination(self) -> Termination:
        """Why the run is over; an agent that answered at its round limit, without tools, was stopped by it."""
        if self.status is RunStatus.SUCCEEDED:
            said = self._said()
            limit = said.cut_short_by() if said is not None else None
            if limit is not None:
                return Termination(TerminationKind.STOPPED, limit, f"limit {limit!r} was reached, and answered at")
        return _termination(self.status, self.error)

    @property
    def messages(self) -> list[Message]:
        """The conversation of an agent's run, what it was given included; empty for other graphs.

        After a run that did not end well: what was said up to then, each call of a tool with its answer; a reply whose
        calls were not answered, as where a gate blocked the run, is not part of it.
        """
        said = self._said()
        return [] if said is None else said.conversation()

    @property
    def response(self) -> ChatResponse | None:
        """The turn of an agent's run that has succeeded, or was stopped by a limit; else None."""
        said = self._said()
        if said is None or self.status not in (RunStatus.SUCCEEDED, RunStatus.STOPPED):
            return None
        turn: ChatResponse = said.chat_response(usage=self.usage, rounds=self.rounds, termination=self.termination)
        return turn

    def _said(self) -> Conversation | None:
        """Read the conversation that an agent's graph has for its state."""
        if self._conversation is None:
            core = self._run.core
            spec = core.program.state
            said = None
            if spec is not None and issubclass(spec.model, Conversation):
                from graphrt.graph.state import read

                said = read(_last_history(core), spec, core.folds, where="END", copies=False)
            self._conversation = (said,)
        return self._conversation[0]

    @property
    def state(self) -> Any:
        """The workflow's state at END; None when it declares none.

        What the plugins of an agent keep is not part of it: see `StateKey`.
        """
        if self._state is None:
            core = self._run.core
            spec = core.program.state
            history = core.outcome.history if core.outcome is not None else None
            if spec is None:
                self._state = (None,)
            else:
                from graphrt.graph.state import read

                self._state = (read(history, spec, core.folds, where="END", copies=core.copies),)
        return self._state[0]

    @property
    def steps(self) -> list[StepRecord]:
        """Every step in the order of their start; those passed over stand where that was decided."""
        if self._steps is None:
            from graphrt.graph.scheduler.steprecord import record_of

            self._steps = [record_of(step) for step in self._run.core.steps]
        return self._steps

    @property
    def node_states(self) -> dict[str, NodeState]:
        """For each node of the graph, the state of its last step; pending when it had none."""
        core = self._run.core
        states = {node.name: NodeState.PENDING for node in core.program.nodes}
        for step in core.steps:
            if step.frame.scope.program is core.program and step.frame.scope.graph is core.root:
                states[step.node.name] = step.state
        return states

    @property
    def rounds(self) -> int:
        """Most rounds that a cycle of the graph went through; 1 when it has none."""
        return max(1, self._run.core.rounds)

    @property
    def usage(self) -> Any:
        """Tokens that the run's models reported, as a `TokenUsage`; None when none did."""
        return self._run.usage

    @property
    def questions(self) -> list[Question]:
        """Questions that are still open."""
        return list(self._run.core.questions.values())

    @property
    def wake_at(self) -> datetime | None:
        """When the first time comes for which a step waits, in UTC; None when none does."""
        return min(self._run.core.timers.values(), default=None)

    def __repr__(self) -> str:
        made = f"output={self.output!r}" if self.error is None else f"error={_show(self.error)}"
        return f"RunResult(run_id={self.run_id!r}, status={self.status.value!r}, {made})"


def _last_history(core: RunCore) -> History | None:
    """Give the writes at END; where END was not reached, those up to the last step that succeeded."""
    if core.outcome is not None and core.outcome.history is not None:
        return core.outcome.history
    root = core.root
    done = (step for step in reversed(core.steps) if step.frame.scope is root)
    return next((s.history for s in done if s.state is NodeState.SUCCEEDED and s.history is not None), None)


def _termination(status: RunStatus, error: BaseException | None) -> Termination:
    code = error.limit if status is RunStatus.STOPPED and isinstance(error, LimitExceededError) else None
    kind = TerminationKind.BLOCKED if isinstance(error, HookBlockedError) else _KINDS[status]
    return Termination(kind, code, _text_of(error) if error is not None else None)


def _text_of(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - a class of the user's, whose text may fail as well
        return f"<{type(error).__name__} without a text>"


def _show(error: BaseException) -> str:
    try:
        return repr(error)
    except Exception:  # noqa: BLE001 - as above
        return _text_of(error)


def annotate(run: GraphScheduler) -> None:
    """Add to the run's error a note that says where it came from, and one for each further failure (E14)."""
    outcome = run.core.outcome
    if outcome is None or outcome.error is None:
        return
    step = outcome.culprit
    note = f"run {run.run_id!r}"
    if step is not None:
        scope = step.frame.scope.path
        where = f" in {scope!r}" if scope else ""
        note = f"node {step.node.name!r}{where}, round {step.round}, attempt {max(1, step.attempts)}, {note}"
    add_note(outcome.error, note)
    for failure in run.core.failures:
        if failure.error is not outcome.error:
            where = f" in {failure.scope!r}" if failure.scope else ""
            add_note(outcome.error, f"also failed: node {failure.node!r}{where}: {_show(failure.error)}")
