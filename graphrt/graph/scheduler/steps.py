"""One step from its start to its end: a function, a graph, a question to a person, a time to wait for."""

from __future__ import annotations

import inspect
import time
from typing import TYPE_CHECKING, Any

from graphrt.graph.scheduler.drive import drive
from graphrt.graph.scheduler.runner import Way
from graphrt.graph.states import NodeState

if TYPE_CHECKING:
    from collections.abc import Callable

    import anyio

    from graphrt.graph.core.records import Slots, Step
    from graphrt.graph.protocols import Question
    from graphrt.graph.scheduler.run import GraphScheduler
    from graphrt.graph.scheduler.runner import Runner
    from graphrt.graph.scheduler.work import Work

_RUNNING = NodeState.RUNNING


async def run_step(run: GraphScheduler, step: Step, scope: anyio.CancelScope, limits: tuple[Slots, ...]) -> None:
    """Run a started step to its end and report it to the core; never raises what the node raises."""
    runner = step.node.run
    if runner.way is Way.GRAPH:
        _enter_graph(run, step, runner)
        return
    if runner.way is Way.ASK:
        await _ask(run, step)
        return
    if runner.way is Way.TIMER:
        run.timers.start(step)
        return
    from graphrt.graph.scheduler.work import Work

    step.task = scope
    work = Work(run, step, runner, limits)
    try:
        value = await work.all_attempts()
    except Exception as error:  # noqa: BLE001 - a node's error is an event, whatever it is (E11)
        run.core.step_failed(step, error, time.time(), timed_out=error is work.out_of_time)
    except BaseException as error:
        run.interrupted(step, error)
        if run.is_cancellation(error):
            raise
    else:
        problem = run.finished(step, value)
        if problem is not None:
            await _after_problem(run, step, work, problem)
    finally:
        work.give_slots()
    run.settle()


async def _after_problem(run: GraphScheduler, step: Step, work: Work, problem: Exception) -> None:
    """Try the fallbacks of a node whose value could not leave it (E13); there is no further attempt."""
    for i, fallback in enumerate(work.runner.fallbacks):
        if work.fallbacks_used > i:
            continue
        try:
            value = await work.fall_back(fallback, problem)
        except Exception as error:  # noqa: BLE001 - a fallback's error is a node's error
            problem = error
            continue
        refused = run.finished(step, value)
        if refused is None:
            return
        problem = refused
    run.core.step_failed(step, problem, time.time())


def finish(run: GraphScheduler, step: Step, value: Any) -> None:
    """End a step that needs no more work with *value*."""
    problem = run.finished(step, value)
    if problem is not None:
        run.core.step_failed(step, problem, time.time())


async def holder_fallback(run: GraphScheduler, step: Step, scope: anyio.CancelScope) -> None:
    """Try the fallbacks of a node whose graph has failed."""
    step.task = scope
    error = step.error
    step.error = None
    assert isinstance(error, Exception)
    from graphrt.graph.scheduler.work import Work

    work = Work(run, step, step.node.run, ())
    try:
        await _after_problem(run, step, work, error)
    except BaseException as interrupt:
        run.interrupted(step, interrupt)
        if run.is_cancellation(interrupt):
            raise
    run.settle()


def _enter_graph(run: GraphScheduler, step: Step, runner: Runner) -> None:
    run.core.enter_graph(step, time.time())
    if runner.step_timeout is not None and step.child is not None:
        run.clocks.add(step, runner.step_timeout)
    run.settle()


async def _ask(run: GraphScheduler, step: Step) -> None:
    core = run.core
    target = step.node.decl.target if step.node.decl is not None else None
    assert target is not None
    try:
        question = target.question_for(step.node.binder.inputs(core, step, None))
    except Exception as error:  # noqa: BLE001 - the question is made by user code
        core.step_failed(step, error, time.time())
        run.settle()
        return
    except BaseException as error:  # noqa: BLE001 - the same, interrupted: run() raises it bare
        run.interrupted(step, error)
        return
    if not core.step_waiting(step, question, time.time()):
        take_answer(run, step, core.early_answers[step.key])
    if step.state is NodeState.WAITING and run.on_ask is not None:
        ask_again(run, step)
    run.settle()


def take_answer(run: GraphScheduler, step: Step, answer: Any) -> None:
    """Answer an open question with what was given before; what does not fit is dropped, and the question stays open."""
    core = run.core
    try:
        run.answer(step.key, answer)
    except Exception as error:  # noqa: BLE001 - accepting an answer may be user code
        core.early_answers.pop(step.key, None)
        core.note("action.requested", step, {"refused": "answer", "error": error}, time.time())


def ask_again(run: GraphScheduler, step: Step) -> None:
    """Have the question of a waiting step put to whoever answers for this run."""
    run.start_task(_call_on_ask, run, step)


async def _call_on_ask(run: GraphScheduler, step: Step) -> None:
    assert run.on_ask is not None
    key = step.key
    question = run.core.questions.get(key)
    if question is None:
        return
    context = run.base.copy()
    if run.observer is not None:
        run.observer.enter(step, context)
    try:
        run.answer(key, await drive(_ask_person(run.on_ask, question), context, run.suspended))
    except (KeyboardInterrupt, SystemExit) as error:
        run.cancel(error)
    except Exception as error:  # noqa: BLE001 - on_ask is user code: its error is the asking step's
        if step.state is NodeState.WAITING:
            run.core.questions.pop(key, None)
            run.core.step_failed(step, error, time.time())
            run.settle()
            run.wake()


async def _ask_person(on_ask: Callable[[Question], Any], question: Question) -> Any:
    answer = on_ask(question)
    return await answer if inspect.isawaitable(answer) else answer
