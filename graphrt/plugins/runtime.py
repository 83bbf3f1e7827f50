"""The plugins of an agent in one run: their state, and what they do at each phase."""

from __future__ import annotations

import logging
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Self

import anyio

from graphrt.errors import StateError
from graphrt.plugins.dispatch import FAILED_ACTIONS, MAX_ACTIONS, PhaseDispatcher
from graphrt.plugins.loop_actions import NO_CHANGES, LoopChanges, take_changes, tool_name
from graphrt.plugins.phases import GateDecision, Phase, PhaseContext, counted, settle
from graphrt.plugins.state import RESERVED, Snapshot, StateCommand, StateStore

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping

    from graphrt.llm.executor import InferenceRequest
    from graphrt.messages import LLMResponse, TokenUsage, ToolCall
    from graphrt.plugins.dispatch import Tell
    from graphrt.plugins.env import ExecutionEnv
    from graphrt.plugins.phases import RunView
    from graphrt.plugins.plugin import Plugin
    from graphrt.plugins.tagged import TaggedRequestTransform
    from graphrt.tools.base import ToolResult

log = logging.getLogger(__name__)

CLOSE_SECONDS: Final = 5.0
"""What one plugin, or the last phase, may take when a run is over; then it is cancelled, and a warning logged."""


@dataclass(slots=True)
class _Round:
    """What is known of the round that is under way."""

    number: int | None
    done: set[Phase] = field(default_factory=set)
    """Phases that are run once in a round and have been."""
    changes: LoopChanges = NO_CHANGES
    asked: InferenceRequest | None = None
    """What the caller wanted to send."""
    prepared: InferenceRequest | None = None
    """What the plugins made of it."""
    response: LLMResponse | None = None


class PhaseRuntime:
    """One activation of one agent: the state of its plugins, and the phases at which they act.

    Phases in which no plugin acts cost nothing.
    """

    def __init__(
        self,
        env: ExecutionEnv,
        *,
        spec: Any = None,
        agent_id: str | None = None,
        session_id: str | None = None,
        turn_index: int | None = None,
        active: Iterable[str] = frozenset(),
        state: Mapping[str, Any] | None = None,
        max_actions: int = MAX_ACTIONS,
        on_usage: Callable[[TokenUsage | None], None] | None = None,
    ) -> None:
        """Take what acts, and for whom.

        Args:
            env: What the plugins bring.
            spec: What plugins are activated with: the agent's spec.
            agent_id: Whom hooks are told of.
            session_id: The session, if the run is one of its turns.
            turn_index: Turns that the session had finished before.
            active: Ids of the plugins whose hooks, gates and transforms act; empty: all.
            state: Values to start with, such as the session kept from its last turn. Values whose keys no plugin
                declares are kept for the plugin that does.
            max_actions: How often in one phase actions may lead to more actions.
            on_usage: Told what the plugins' own calls of models use, besides the run.
        """
        self._env = env
        self._spec = spec
        self._agent_id = agent_id
        self._session_id = session_id
        self._turn_index = turn_index
        self._active = frozenset(active)
        self._given = dict(state or {})
        self._max_actions = max_actions
        self._on_usage = on_usage
        self._transforms: tuple[TaggedRequestTransform, ...] = tuple(
            each
            for each in env.request_transforms
            if not self._active or each.always_active or each.plugin_id in self._active
        )
        self._store: StateStore | None = None
        self._opened: tuple[PhaseDispatcher, StateStore, RunView] | None = None
        self._round = _Round(None)
        self._finished = False

    # ------------------------------------------------------------ life

    def opened(self, run: RunView) -> AbstractAsyncContextManager[Self]:
        """Give the context manager around a run: plugins are activated on the way in, and deactivated on the way out.

        Entered once. When entering fails, the plugins that were activated are deactivated, and the error is raised.
        On the way out, `RUN_END` is run if `finish` has not been called; errors there are logged.

        Raises:
            StateError: It has been entered before, or the state could not be set up.
        """
        return self._open(run)

    @asynccontextmanager
    async def _open(self, run: RunView) -> AsyncIterator[Self]:
        if self._opened is not None:
            raise StateError("the plugins of a run are activated again", hint="make a PhaseRuntime for each run")
        if self._on_usage is not None:
            run = counted(run, self._on_usage)
        store = self._store = self._new_store()
        dispatcher = PhaseDispatcher(self._env, store, active=self._active, max_actions=self._max_actions)
        self._opened = (dispatcher, store, run)
        activated: list[Plugin] = []
        started = False
        try:
            for plugin in self._env.plugins:
                await self._activate(plugin, activated)
            await self._run(Phase.RUN_START)
            started = True
            yield self
        finally:
            if started and not self._finished:
                await _at_last("phase 'run_end'", self.finish)
            for plugin in reversed(activated):
                await _at_last(f"plugin {plugin.descriptor.id!r}", partial(self._deactivate, plugin))
            if dispatcher.pending:
                log.warning("run %r ended before actions could be carried out: %s", run.run_id, dispatcher.pending)

    def _new_store(self) -> StateStore:
        keys = (FAILED_ACTIONS, *self._env.key_registrations)
        names = {key.name for key in keys if not key.name.startswith(RESERVED)}
        return StateStore(keys, {name: value for name, value in self._given.items() if name in names})

    async def _activate(self, plugin: Plugin, activated: list[Plugin]) -> None:
        command = StateCommand()
        await settle(plugin.on_activate(self._spec, command))
        activated.append(plugin)
        await self._apply(command, plugin, Phase.RUN_START)

    async def _deactivate(self, plugin: Plugin) -> None:
        command = StateCommand()
        await settle(plugin.on_deactivate(command))
        await self._apply(command, plugin, Phase.RUN_END)

    async def _apply(self, command: StateCommand, plugin: Plugin, phase: Phase) -> None:
        if command.updates or command.actions or command.effects:
            await self._dispatcher.apply(
                command, self._tell(phase), plugin_id=plugin.descriptor.id, always_active=plugin.always_active
            )

    async def finish(self) -> None:
        """Run `RUN_END`, once.

        Raises:
            Exception: What a hook raised.
        """
        if not self._finished:
            self._finished = True
            await self._run(Phase.RUN_END, response=self._round.response)

    def kept_state(self) -> dict[str, Any]:
        """Give what a session carries to its next turn: the values of keys with `keep`, as they are now."""
        if self._store is None:
            return dict(self._given)
        state = self._store.snapshot()
        kept = {name: value for name, value in self._given.items() if name not in state}
        return kept | {key.name: state[key] for key in self._store.keys if key.keep}

    # ------------------------------------------------------------ inference

    async def prepare(self, request: InferenceRequest, *, round: int) -> InferenceRequest:  # noqa: A002  # the word for it
        """Give the request that the plugins make of *request*; `STEP_START` and `BEFORE_INFERENCE` are run on the way.

        Those are run once in a round. Another call in the same round, a retry or a fallback, gives the same request
        with the model that its caller names, unless an action has chosen one.

        Raises:
            HookBlockedError: A hook refused the request.
            Exception: What a hook or a transform raised.
        """
        if self._round.number != round:
            self._round = _Round(round)
        current = self._round
        await self._once(Phase.STEP_START, request)
        await self._once(Phase.BEFORE_INFERENCE, request)
        if not self._transforms and current.changes is NO_CHANGES:
            current.asked = current.prepared = request
            return request
        if current.asked is None or not _same_question(current.asked, request):
            current.prepared = await self._transform(current.changes.apply(request))
            current.asked = request
        prepared = current.prepared
        assert prepared is not None
        model = prepared.model
        if request.model != current.asked.model and not current.changes.sets_model:
            model = request.model
        return prepared.replace(model=model, messages=list(prepared.messages), params=dict(prepared.params))

    async def _once(self, phase: Phase, request: InferenceRequest) -> None:
        current = self._round
        if phase in current.done:
            return
        if self._dispatcher.busy(phase):
            told = request.replace(messages=tuple(request.messages), params=dict(request.params))  # not theirs to edit
            await self._run(phase, request=told)
            if phase is Phase.BEFORE_INFERENCE:
                current.changes = take_changes(self._opened_store)
        current.done.add(phase)

    async def _transform(self, request: InferenceRequest) -> InferenceRequest:
        for each in self._transforms:
            given = request.replace(messages=list(request.messages), params=dict(request.params))
            tell = self._tell(Phase.BEFORE_INFERENCE, request=given)
            request = await each.apply(given, tell(self._opened_store.snapshot()))
        return request

    @property
    def offered(self) -> tuple[str, ...]:
        """Names of the tools that the last prepared request offers, in order."""
        prepared = self._round.prepared
        return () if prepared is None else tuple(tool_name(each) for each in prepared.tools)

    def offers(self, tool_id: str) -> bool:
        """Say whether the last prepared request offers a tool; before there is one, every tool is offered."""
        return self._round.prepared is None or tool_id in self.offered

    async def answered(self, response: LLMResponse) -> None:
        """Run `AFTER_INFERENCE`.

        Raises:
            Exception: What a hook raised.
        """
        self._round.response = response
        await self._run(Phase.AFTER_INFERENCE, response=response)

    async def end_round(self) -> None:
        """Run `STEP_END`, once in a round.

        Raises:
            Exception: What a hook raised.
        """
        current = self._round
        if Phase.STEP_END not in current.done:
            current.done.add(Phase.STEP_END)
            await self._run(Phase.STEP_END, response=current.response)

    # ------------------------------------------------------------ tools

    async def gate(self, call: ToolCall) -> GateDecision | None:
        """Ask the gates whether a call is carried out; None: it is. A block comes before a result, else the first.

        Raises:
            Exception: What a gate raised.
        """
        if not self._dispatcher.busy(Phase.TOOL_GATE):
            return None
        return await self._dispatcher.gate(self._tell(Phase.TOOL_GATE, tool_call=call))

    async def before_tool(self, call: ToolCall) -> None:
        """Run `BEFORE_TOOL_EXECUTE`.

        Raises:
            Exception: What a hook raised.
        """
        await self._run(Phase.BEFORE_TOOL_EXECUTE, tool_call=call)

    async def after_tool(self, call: ToolCall, result: ToolResult) -> None:
        """Run `AFTER_TOOL_EXECUTE`.

        Raises:
            Exception: What a hook raised.
        """
        await self._run(Phase.AFTER_TOOL_EXECUTE, tool_call=call, tool_result=result)

    # ------------------------------------------------------------ what there is to do

    def needs(self, phase: Phase) -> bool:
        """Say whether a plugin would act if *phase* were run now."""
        return self._dispatcher.busy(phase)

    @property
    def has_gates(self) -> bool:
        """Whether calls of tools have to be asked about."""
        return self.needs(Phase.TOOL_GATE)

    @property
    def needs_tool_phases(self) -> bool:
        """Whether a plugin would act before or after a call of a tool."""
        return self.needs(Phase.BEFORE_TOOL_EXECUTE) or self.needs(Phase.AFTER_TOOL_EXECUTE)

    @property
    def state(self) -> Snapshot:
        """The state as it is now.

        Raises:
            StateError: No run has begun.
        """
        return self._opened_store.snapshot()

    @property
    def failed_effects(self) -> dict[str, int]:
        """How many effects failed, by key."""
        return dict(self._dispatcher.failed_effects)

    # ------------------------------------------------------------ inside

    @property
    def _dispatcher(self) -> PhaseDispatcher:
        return self._known[0]

    @property
    def _opened_store(self) -> StateStore:
        return self._known[1]

    @property
    def _known(self) -> tuple[PhaseDispatcher, StateStore, RunView]:
        if self._opened is None:
            raise StateError("a phase is run before the run has begun", hint="async with runtime.opened(run): ...")
        return self._opened

    async def _run(self, phase: Phase, **told: Any) -> None:
        dispatcher = self._dispatcher
        if dispatcher.busy(phase):
            await dispatcher.run(phase, self._tell(phase, **told))

    def _tell(self, phase: Phase, **told: Any) -> Tell:
        """Give what makes the context of a phase, once it is known which state the hook is to see."""
        current = self._round
        if phase not in (Phase.RUN_START, Phase.STEP_START, Phase.BEFORE_INFERENCE):
            told = {"request": current.prepared, "response": current.response} | told
        request, response = told.get("request"), told.get("response")
        messages = () if request is None else tuple(request.messages)
        if response is not None:
            messages = (*messages, response.to_message())
        number, run = current.number, self._known[2]

        def tell(state: Snapshot) -> PhaseContext:
            return PhaseContext(
                phase,
                run.run_id,
                state,
                self._agent_id,
                self._session_id,
                self._turn_index,
                number,
                messages,
                run=run,
                **told,
            )

        return tell


async def _at_last(what: str, call: Callable[[], Awaitable[None]]) -> None:
    """Call at the end of a run what must be called in every ending; what goes wrong there hides nothing."""
    with anyio.move_on_after(CLOSE_SECONDS, shield=True) as scope:
        try:
            await call()
        except Exception:  # an error of cleaning up must not hide how the run ended
            log.exception("%s failed at the end of a run", what)
    if scope.cancelled_caught:
        log.warning("%s did not end within %g s of the end of a run, and was cancelled", what, CLOSE_SECONDS)


def _same_question(one: InferenceRequest, other: InferenceRequest) -> bool:
    """Say whether two requests differ in nothing but the model."""
    return (
        list(one.messages) == list(other.messages)
        and list(one.tools) == list(other.tools)
        and one.params == other.params
    )
