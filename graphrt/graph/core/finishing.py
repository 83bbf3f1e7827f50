"""How scopes and runs end: a graph's value goes to the step that holds it, the root's is the run's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from graphrt.errors import GraphError
from graphrt.graph.core import ends, maps, routes
from graphrt.graph.states import RunStatus

if TYPE_CHECKING:
    from graphrt.graph.core.records import Scope, Step
    from graphrt.graph.core.run import RunCore
    from graphrt.graph.history import History


class Outcome:
    """How a run ended, in the core's own terms."""

    __slots__ = ("culprit", "error", "history", "output", "outputs", "status")

    def __init__(self, status: RunStatus, error: BaseException | None, culprit: Step | None) -> None:
        self.status = status
        self.error = error
        self.culprit = culprit
        self.output: Any = None
        self.outputs: dict[str, Any] = {}
        self.history: History | None = None


def scope_done(core: RunCore, scope: Scope) -> None:
    """Take the result of a scope in which everything has ended and nothing has failed it."""
    if scope.map_run is not None:
        maps.item_done(core, scope)
        return
    try:
        output, outputs, history = routes.result_of(core, scope)
    except GraphError as error:
        core.fail_scope(scope, error, None)
        return
    scope.close()
    holder = scope.holder
    if holder is None:
        outcome = Outcome(RunStatus.SUCCEEDED, None, None)
        outcome.output, outcome.outputs, outcome.history = output, outputs, history
        _finish(core, outcome)
        return
    holder.child = None
    core.active += 1
    around = holder.frame.scope.program
    if around.state is not None and scope.program.decl.state is around.decl.state:
        holder.history = history
    _graph_returned(core, holder, output)


def _graph_returned(core: RunCore, holder: Step, output: Any) -> None:
    """End the step of a node whose graph has ended well."""
    error = core.step_finished(holder, output, core.now)
    if error is not None:
        _holder_failed(core, holder, error, timed_out=False)


def graph_ended(core: RunCore, scope: Scope) -> None:
    """End the step of a node whose graph has failed, or was cancelled, and is over."""
    holder = scope.holder
    assert holder is not None
    holder.child = None
    core.active += 1
    if holder.cancelling or scope.error is None:
        core.step_cancelled(holder, core.now)
    else:
        _holder_failed(core, holder, scope.error, timed_out=scope.cause == "timed_out", culprit=scope.culprit)


def finish_root(core: RunCore) -> None:
    """End the run: its root has died and nothing in it is live."""
    root = core.root
    status = RunStatus(root.cause)
    outcome = Outcome(status, root.error, root.culprit)
    if root.error is not None:
        first = [f for f in core.failures if f.error is not root.error]
        core.failures = []
        ends.note_failure(core, root.error, root.culprit)
        core.failures.extend(first)
    outcome.outputs = routes.outputs_of(core, root)
    outcome.history = routes.history_of(core, root)
    _finish(core, outcome)


def _holder_failed(
    core: RunCore, holder: Step, error: BaseException, *, timed_out: bool, culprit: Step | None = None
) -> None:
    decl = holder.node.decl
    if decl is not None and decl.fallback and not holder.frame.scope.dead:
        holder.error = error
        core.ready.append(holder)
    else:
        core.step_failed(holder, error, core.now, timed_out=timed_out, culprit=culprit)


def leave(core: RunCore) -> None:
    """Let the run wait: everything stays as it is."""
    if core.sink is not None:
        data: dict[str, Any] = {"questions": list(core.questions)}
        if core.timers:
            data["until"] = min(core.timers.values()).isoformat()
        core.emit("run.waiting", None, data)
    core.outcome = Outcome(RunStatus.WAITING, None, None)


def _finish(core: RunCore, outcome: Outcome) -> None:
    core.outcome = outcome
    if core.sink is not None:
        kind = {RunStatus.SUCCEEDED: "run.completed"}.get(outcome.status, f"run.{outcome.status.value}")
        data: dict[str, Any] = {"status": outcome.status.value}
        if outcome.error is not None:
            data["error"] = outcome.error
        else:
            data["output"] = outcome.output
        core.emit(kind, None, data)
