"""How a phase is run: hooks see one state, their commands are committed at once, actions and effects follow."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import anyio

from graphrt.errors import StateError
from graphrt.notes import add_note
from graphrt.plugins.phases import GateDecision, Phase, PhaseContext, settle
from graphrt.plugins.state import RESERVED, MergeStrategy, Snapshot, StateCommand, StateKey, StateStore, copied

if TYPE_CHECKING:
    from graphrt.plugins.env import ExecutionEnv
    from graphrt.plugins.tagged import TaggedHandler, TaggedPhaseHook

log = logging.getLogger(__name__)

MAX_ACTIONS: Final = 16
"""How often in one phase actions may lead to more actions."""

FAILED_ACTIONS: Final = StateKey(f"{RESERVED}failed_actions", list, MergeStrategy.COMMUTATIVE)
"""Actions that failed, oldest first: mappings of `key`, `payload` and `error`, a text."""

Tell: TypeAlias = Callable[[Snapshot], PhaseContext]
"""Makes what a hook is told, from the state that it is to see."""
_Scheduled: TypeAlias = tuple[str, Any]


class PhaseDispatcher:
    """Runs the phases of one activation on its state.

    Phases of parallel tool calls may be run at a time. Each commit is made whole; an action has the state to itself
    while it is carried out; a hook that waits holds up nobody.
    """

    def __init__(self, env: ExecutionEnv, store: StateStore, *, active: frozenset[str], max_actions: int) -> None:
        """Take what there is to call; hooks of plugins that *active* does not name are left out, unless it is empty."""
        self._store = store
        self._actions = env.scheduled_action_handlers
        self._effects = env.effect_handlers
        self._hooks = {
            phase: tuple(each for each in hooks if not active or each.always_active or each.plugin_id in active)
            for phase, hooks in env.phase_hooks.items()
        }
        self._max_actions = max_actions
        self._pending: dict[Phase, list[_Scheduled]] = {}
        self._lock = anyio.Lock(fast_acquire=True)
        self.failed_effects: Counter[str] = Counter()
        """Effects that failed, by key."""

    def busy(self, phase: Phase) -> bool:
        """Say whether running *phase* now would call anything."""
        return bool(self._hooks.get(phase) or self._pending.get(phase))

    @property
    def pending(self) -> list[str]:
        """Keys of the actions that wait for their phase."""
        return [key for scheduled in self._pending.values() for key, _ in scheduled]

    async def run(self, phase: Phase, tell: Tell) -> None:
        """Run one phase.

        Raises:
            StateError: A command asks for something that is not there, or actions lead to ever more actions.
            Exception: What a hook raised; nothing of its round of hooks is committed.
        """
        scheduled: list[_Scheduled] = []
        todo: Sequence[TaggedPhaseHook] = self._hooks.get(phase, ())
        while todo:
            todo = await self._call_hooks(todo, phase, tell, scheduled)
        await self._act(phase, tell, scheduled)

    async def gate(self, tell: Tell) -> GateDecision | None:
        """Ask the gates about one call of a tool: the first block, else the first result, else None.

        Raises:
            StateError: A gate answered with something else.
            Exception: What a gate raised.
        """
        chosen: GateDecision | None = None
        ctx = tell(self._store.snapshot())
        for tagged in self._hooks.get(Phase.TOOL_GATE, ()):
            answer = await _call(tagged, ctx)
            if answer is None:
                continue
            if not isinstance(answer, GateDecision):
                raise StateError(
                    f"gate {tagged.name!r} of plugin {tagged.plugin_id!r} gave {type(answer).__name__}",
                    hint="return GateDecision.block(reason), GateDecision.set_result(result), or None",
                )
            if chosen is None or answer.kind == "block":
                chosen = replace(answer, plugin_id=tagged.plugin_id)
            if answer.kind == "block":
                break
        await self._act(Phase.TOOL_GATE, tell, [])
        return chosen

    async def apply(self, command: StateCommand, tell: Tell, *, plugin_id: str, always_active: bool) -> None:
        """Commit what a plugin wants outside of any phase; actions wait for theirs.

        Raises:
            StateError: It asks for something that is not there; nothing was changed.
        """
        self._check(command, f"plugin {plugin_id!r}", may_write_reserved=always_active)
        async with self._lock:
            self._store.commit(command)
        self._schedule(command, None, [])
        await self._emit(command, tell)

    async def _call_hooks(
        self, hooks: Sequence[TaggedPhaseHook], phase: Phase, tell: Tell, scheduled: list[_Scheduled]
    ) -> list[TaggedPhaseHook]:
        """Call hooks on one state, commit what they want, and give those whose commands came too late for it."""
        seen = self._store.snapshot()
        ctx = tell(seen)
        made: list[tuple[TaggedPhaseHook, StateCommand]] = []
        for tagged in hooks:
            command = await _call(tagged, ctx)
            if command is not None:
                self._check(command, f"hook {tagged.name!r} of plugin {tagged.plugin_id!r}", tagged.always_active)
                made.append((tagged, command))
        if not made:
            return []
        late: list[TaggedPhaseHook] = []
        accepted: list[StateCommand] = []
        taken: set[str] = set()
        async with self._lock:
            for tagged, command in made:
                exclusive = self._store.exclusive(command)
                if taken & exclusive or self._store.is_late(command, seen):
                    late.append(tagged)
                    continue
                taken |= exclusive
                accepted.append(command)
            self._store.commit(*accepted)
        for command in accepted:
            self._schedule(command, phase, scheduled)
        for command in accepted:
            await self._emit(command, tell)
        return late

    async def _act(self, phase: Phase, tell: Tell, scheduled: list[_Scheduled]) -> None:
        """Carry out the actions that wait for *phase*, and those that they lead to.

        Raises:
            StateError: They lead to more and more.
        """
        todo = [*self._pending.pop(phase, ()), *scheduled]
        for _ in range(self._max_actions):
            if not todo:
                return
            following: list[_Scheduled] = []
            for key, payload in todo:
                await self._carry_out(key, payload, phase, tell, following)
            todo = following
        if todo:
            keys = ", ".join(sorted({repr(key) for key, _ in todo}))
            raise StateError(
                f"actions of phase {phase.value!r} led to more {self._max_actions} times over, and {keys} still waits",
                hint="an action must not schedule itself without end",
            )

    async def _carry_out(self, key: str, payload: Any, phase: Phase, tell: Tell, following: list[_Scheduled]) -> None:
        """Carry out one action. One that fails goes on the list of those that did."""
        tagged = self._actions[key]
        async with self._lock:
            try:
                command = await self._act_once(tagged, key, payload, tell)
            except Exception as error:  # an action's mistakes stay its own
                log.warning("action %r of plugin %r failed", key, tagged.plugin_id, exc_info=error)
                self._store.commit(StateCommand().update(FAILED_ACTIONS, [_dead_letter(key, payload, error)]))
                return
        if command is not None:
            self._schedule(command, phase, following)
            await self._emit(command, tell)

    async def _act_once(self, tagged: TaggedHandler, key: str, payload: Any, tell: Tell) -> StateCommand | None:
        command = await settle(tagged.handler(tell(self._store.snapshot()), payload))
        if command is not None:
            self._check(command, f"action {key!r} of plugin {tagged.plugin_id!r}", tagged.always_active)
            self._store.commit(command)
        return command  # type: ignore[no-any-return]  # a StateCommand: what else there is, _check has refused

    async def _emit(self, command: StateCommand, tell: Tell) -> None:
        """Carry out the effects of a command that is committed. One that fails changes nothing of that."""
        for key, payload in command.effects:
            tagged = self._effects[key]
            try:
                answer = await settle(tagged.handler(tell(self._store.snapshot()), payload))
                if answer is not None:
                    raise StateError(
                        f"effect {key!r} gave {type(answer).__name__}, and an effect can ask for nothing more",
                        hint="return None; what changes state or schedules is an action",
                    )
            except Exception as error:  # an effect's mistakes stay its own
                self.failed_effects[key] += 1
                log.warning("effect %r of plugin %r failed", key, tagged.plugin_id, exc_info=error)

    def _schedule(self, command: StateCommand, phase: Phase | None, now: list[_Scheduled]) -> None:
        """Put actions where they wait for their phase; those of *phase* itself, which is being run, into *now*."""
        for key, payload in command.actions:
            its_phase = self._actions[key].phase
            assert its_phase is not None
            where = now if its_phase is phase else self._pending.setdefault(its_phase, [])
            where.append((key, payload))

    def _check(self, command: Any, who: str, may_write_reserved: bool) -> None:
        """See to it that everything a command asks for is there and fits, before anything is changed.

        Raises:
            StateError: Something is not, or does not.
        """
        if not isinstance(command, StateCommand):
            raise StateError(
                f"{who} gave {type(command).__name__}, which is no StateCommand", hint="return a StateCommand, or None"
            )
        self._store.check(command, by=who)
        for what, asked, known in (
            ("action", command.actions, self._actions),
            ("effect", command.effects, self._effects),
        ):
            for key, _ in asked:
                if key not in known:
                    raise StateError(
                        f"{who} asks for {what} {key!r}, which no plugin carries out",
                        hint=f"register a handler for it; {what}s so far: {', '.join(known) or 'none'}",
                    )
        for key, payload in command.actions:
            check = self._actions[key].check
            if check is not None:
                _check_payload(check, payload, who)
        if may_write_reserved:
            return
        for name, _ in command.updates:
            if name.startswith(RESERVED):
                raise StateError(
                    f"{who} writes state key {name!r}, which is the runtime's",
                    hint="read it, and keep what is yours under a key of your own",
                )


async def _call(tagged: TaggedPhaseHook, ctx: PhaseContext) -> Any:
    """Call one hook, in a span of its own unless it is a built-in's."""
    try:
        if tagged.always_active:
            return await settle(tagged.hook(ctx))
        with ctx.run.hook_span(tagged.name, event=ctx.phase.value, plugin_id=tagged.plugin_id):
            return await settle(tagged.hook(ctx))
    except Exception as error:
        add_note(error, f"in hook {tagged.name!r} of plugin {tagged.plugin_id!r} at {ctx.phase.value}")
        raise


def _check_payload(check: Callable[[Any], object], payload: Any, who: str) -> None:
    try:
        check(payload)
    except Exception as error:
        raise StateError(
            f"{who} schedules what does not fit: {getattr(error, 'message', error)}", hint=getattr(error, "hint", None)
        ) from error


def _dead_letter(key: str, payload: Any, error: Exception) -> dict[str, Any]:
    try:
        payload = copied(payload, FAILED_ACTIONS.name)
    except StateError:
        payload = repr(payload)
    return {"key": key, "payload": payload, "error": f"{type(error).__name__}: {error}"}
