"""What the tests of plans share: a session that answers by itself, and its hooks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import anyio

from graphrt.agent.plan import Plan, Step, StepState
from graphrt.config import AgentConfig
from graphrt.hooks import HookContext, HookEvent, HookExecutor
from graphrt.llm import CostTracker, ScriptedProvider
from graphrt.messages import ChatResponse, LLMResponse, Message
from graphrt.telemetry import Telemetry

Answer = Callable[[str], Any]
"""Gives the answer to a turn: a text, or an exception to raise."""


@dataclass
class Bundle:
    """What a session has its hooks and its provider from."""

    provider: ScriptedProvider
    hook_executor: HookExecutor = field(default_factory=HookExecutor)
    config: AgentConfig = field(default_factory=AgentConfig)


@dataclass
class Turn:
    """One turn as the session saw it."""

    text: str
    turn_index: int
    history: list[str]
    began: float
    ended: float = 0.0


class FakeSession:
    """A session that takes some seconds for each turn, keeps turns apart as a real one, and writes all down."""

    def __init__(
        self,
        *script: LLMResponse | Exception,
        answer: Answer = "did {}".format,
        seconds: float | Callable[[str], float] = 0.0,
        telemetry: Telemetry | None = None,
        config: AgentConfig | None = None,
    ) -> None:
        self.session_id = "s-1"
        self.bundle = Bundle(ScriptedProvider(list(script)), config=config or AgentConfig())
        self.cost_so_far = CostTracker()
        self.telemetry = telemetry
        self.messages: list[Message] = []
        self.turn_index = 0
        self.turns: list[Turn] = []
        self.absorbed: list[int] = []
        self.answer = answer
        self.seconds = seconds
        self._lock = anyio.Lock()

    async def submit_turn(self, text: str) -> ChatResponse:
        async with self._lock:
            turn = Turn(text, self.turn_index, [each.content for each in self.messages], anyio.current_time())
            self.turns.append(turn)
            with (self.telemetry or Telemetry()).turn("helper", session_id=self.session_id, turn_index=self.turn_index):
                await anyio.sleep(self.seconds(text) if callable(self.seconds) else self.seconds)
                turn.ended = anyio.current_time()
                said = self.answer(text)
                if isinstance(said, Exception):
                    raise said
            self.messages += [Message.user(text), Message.assistant(said)]
            self.turn_index += 1
            return ChatResponse(said, rounds=1)

    def branch(self, index_offset: int, history: Sequence[Message]) -> FakeSession:
        other = FakeSession(answer=self.answer, seconds=self.seconds, telemetry=self.telemetry)
        other.turn_index = self.turn_index + index_offset
        other.messages = list(history)
        other.turns = self.turns
        return other

    def absorb(self, turns: Sequence[Sequence[Message]], count: int) -> None:
        assert len(turns) == count
        self.absorbed.append(count)
        self.messages += [message for turn in turns for message in turn]
        self.turn_index += count

    @property
    def texts(self) -> list[str]:
        """What was submitted, in order."""
        return [turn.text for turn in self.turns]


def plan_of(*descriptions: str, **depends_on: Sequence[int]) -> Plan:
    """Make a plan with id "p"; `_2=[0]` lets step 2 depend on step 0."""
    steps = [Step(i, text, depends_on=depends_on.get(f"_{i}")) for i, text in enumerate(descriptions)]
    return Plan("a goal", steps, id="p")


def states(plan: Plan) -> list[str]:
    """The states of a plan's steps."""
    return [step.status.state.value for step in plan.steps]


def fails_on(*texts: str) -> Answer:
    """Answer every turn but these."""
    return lambda text: ValueError(f"cannot {text}") if text in texts else f"did {text}"


def told(session: FakeSession) -> list[HookContext]:
    """Collect what the session's hooks are told of steps from now on."""
    found: list[HookContext] = []

    def hook(context: HookContext) -> None:
        found.append(context)

    session.bundle.hook_executor.register(HookEvent.ON_PLAN_STEP_COMPLETE, hook, name="watch")
    return found


def moves(contexts: list[HookContext]) -> list[tuple[int | None, str]]:
    """Index and status of what hooks were told."""
    return [(context.plan_step_index, StepState(context.data["status"]).value) for context in contexts]
