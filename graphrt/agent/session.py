"""`AgentSession`: an agent in conversation, one turn after another."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from graphrt.agent.agent import Agent
from graphrt.agent.bundle import RuntimeBundle
from graphrt.agent.history import without_dangling
from graphrt.agent.questions import Questions
from graphrt.agent.registered import RegisteredAgent, prompt_of
from graphrt.agent.session_state import Session
from graphrt.agent.turn import Assembled, Turn, TurnSetting
from graphrt.agent.watching import TurnStream
from graphrt.clock import SystemClock
from graphrt.errors import ConfigError, LimitExceededError
from graphrt.llm.cost import CostTracker
from graphrt.memory.session_memory import SessionMemory
from graphrt.memory.store import InMemoryStore
from graphrt.registry.recording import checked_ledger

if TYPE_CHECKING:
    from collections.abc import Sequence

    from graphrt.agent.questions import OnAsk
    from graphrt.agent.watching import Tell
    from graphrt.clock import Clock
    from graphrt.graph.durable.work import Ledger
    from graphrt.graph.protocols import Question
    from graphrt.ledger.store import RunLedgerStore
    from graphrt.messages import ChatResponse, Message
    from graphrt.registry import RegistrySet
    from graphrt.telemetry import Telemetry
    from graphrt.tools.base import Tool

__all__ = ["AgentSession", "Session"]


@dataclass(slots=True)
class _Context:
    """An agent, from the time it was put into the session."""

    agent: Agent
    bridged: bool = False
    """Whether it came after another agent, and is told what the session remembers."""
    notes: str = ""
    """What it is told of that."""
    settled: bool = False
    """Whether a turn of it has succeeded: its notes stay as they are then."""


class AgentSession:
    """A conversation with an agent. It keeps the history, counts turns and cost, and has a small memory.

    Turns that are submitted at once run one after another, in the order in which they came. A turn is all or nothing:
    one that fails, or is cancelled, leaves history and `turn_index` as they were.
    """

    def __init__(
        self,
        session_id: str,
        agent: Agent,
        bundle: RuntimeBundle,
        *,
        telemetry: Telemetry | None = None,
        clock: Clock | None = None,
        memory_tools: bool = False,
        session: Session | None = None,
        ledger: RunLedgerStore | Ledger | None = None,
    ) -> None:
        """Open a conversation.

        Args:
            session_id: Names it; sessions of one id and one memory back end share their memory.
            agent: Who answers; see `agent`.
            bundle: What the agent runs with.
            telemetry: Where spans go; the global tracer provider when None.
            clock: Tells how long the session has lain idle.
            memory_tools: Offer the model tools for the session's memory. What it holds from before is in the prompt
                only after `agent` was replaced or `open_context` called; else put `session_memory.snapshot()` there.
            session: A conversation to go on with; a new one when None.
            ledger: Where the run of each turn is recorded, with the session's id as its conversation. A turn still
                waits for a person in this process.

        Raises:
            ConfigError: An argument is of the wrong kind, or *session* has another id.
        """
        if not isinstance(bundle, RuntimeBundle):
            raise ConfigError(
                f"the bundle of session {session_id!r} is of type {type(bundle).__name__}",
                hint="give what AgentBuilder()....build() returns",
            )
        if session is not None and session.id != session_id:
            raise ConfigError(f"session {session_id!r} is to go on with the conversation of {session.id!r}")
        self._context = _Context(_checked(agent))
        self._bundle = bundle
        self._telemetry = telemetry
        self._clock = clock or SystemClock()
        self._last_used = self._clock.monotonic()
        self._memory_tools = memory_tools
        self._ledger: RunLedgerStore | Ledger | None = checked_ledger(ledger)
        self._questions = Questions()
        self._is_branch = False
        self.session = Session(session_id) if session is None else session
        """The conversation as plain data."""
        self.cost_so_far = CostTracker()
        """What all model calls so far have used, those of failed turns too."""
        store = bundle.session_memory_backend
        self.session_memory = SessionMemory.for_session(InMemoryStore() if store is None else store, session_id)
        """Notes that the session's agents share."""

    def __repr__(self) -> str:
        return f"AgentSession({self.session_id!r}, agent={self.agent.name!r}, turn_index={self.turn_index})"

    @property
    def session_id(self) -> str:
        """The session's id."""
        return self.session.id

    @property
    def bundle(self) -> RuntimeBundle:
        """What the agents run with."""
        return self._bundle

    @property
    def telemetry(self) -> Telemetry | None:
        """Where spans go; None: to the global tracer provider."""
        return self._telemetry

    @property
    def agent(self) -> Agent:
        """Who answers. Another one may be put in its place, from the next turn on.

        It gets the history, and at the end of its system prompt what the session memory holds when its first turn
        begins.
        """
        return self._context.agent

    @agent.setter
    def agent(self, agent: Agent) -> None:
        self._context = _Context(_checked(agent), bridged=True)

    @property
    def turn_index(self) -> int:
        """Turns that have succeeded."""
        return self.session.turn_index

    @property
    def messages(self) -> list[Message]:
        """What was said so far, without the system prompt."""
        return self.session.messages

    def open_context(self, agent: Agent) -> None:
        """Go on with *agent* and an empty history; what it has to know is in the session memory, which it is told.

        The turn that is going on, if any, is the last one with the agent and the history before.
        """
        context = _Context(_checked(agent), bridged=True)

        def switch() -> None:
            self._context = context
            self.session.messages = []

        self.session.queue.between_turns(switch)

    # ------------------------------------------------------------ turns

    async def submit_turn(self, text: str, *, on_ask: OnAsk | None = None) -> ChatResponse:
        """Say *text*, and give what the agent answers.

        Where a call needs a person's approval, *on_ask* is called; without it the turn waits for `answer()`.

        Raises:
            AgentError: The turn failed, and the session is as it was: a `LimitExceededError` at a limit, a
                `HookBlockedError` when a hook refused, an `AgentLlmError` when no model could be asked, ...
        """
        return await self._turn(text, on_ask).take()

    def stream_turn(self, text: str, *, on_ask: OnAsk | None = None) -> TurnStream:
        """Say *text*, and read along: `async with session.stream_turn("hi") as turn: async for event in turn: ...`.

        Of the events, listed at `RunEvent`, four matter to a chat: `message.delta` (`data["text"]`),
        `tool.call.started`, `tool.call.completed`, and `step.waiting`, which says that a call needs approval: then
        answer each of `turn.questions` with `await turn.answer(question.id, ...)`. `question.question` has the call's
        `tool`, `description` and `arguments`.

        When the events are at their end, `turn.response` has the answer, or raises what the turn ended with. Leaving
        the block early cancels the turn.

        Raises:
            ConfigError: *text* is none.
        """
        _check_text(text)
        return TurnStream(partial(self._watched_turn, text, on_ask), self._questions)

    async def _watched_turn(self, text: str, on_ask: OnAsk | None, tell: Tell) -> ChatResponse:
        return await self._turn(text, on_ask, tell).take()

    def _turn(self, text: str, on_ask: OnAsk | None, tell: Tell | None = None) -> Turn:
        _check_text(text)
        return Turn(self.session, text, self._setting, questions=self._questions, on_ask=on_ask, on_event=tell)

    def _setting(self) -> TurnSetting:
        """Say how the turn that begins now is run."""
        self._admit()
        context = self._context

        def succeeded() -> None:
            context.settled = True
            self._last_used = self._clock.monotonic()

        return TurnSetting(
            agent=context.agent.name,
            config=self._bundle.config,
            assemble=partial(self._assemble, context),
            hooks=self._bundle.hook_executor,
            telemetry=self._telemetry,
            on_usage=self.cost_so_far.add,
            succeeded=succeeded,
            branched=self._is_branch,
            ledger=self._ledger,
        )

    def _admit(self) -> None:
        """Refuse a turn when the session is at a limit.

        Raises:
            LimitExceededError: It is.
        """
        config = self._bundle.config
        check_max_turns(self.session, config.max_turns)
        ttl = config.session_ttl
        if ttl is not None and self._clock.monotonic() - self._last_used > ttl.total_seconds():
            raise LimitExceededError(
                f"session {self.session_id!r} has lain idle for more than {ttl}",
                limit="session_ttl",
                hint="open a new session, or give it longer with AgentConfig(session_ttl=...)",
            )

    async def _assemble(self, context: _Context) -> Assembled:
        from graphrt.registry import resolve

        agent = context.agent
        prompt = await prompt_of(agent, self._bundle.config, self.session)
        if context.bridged and not context.settled:
            context.notes = await self.session_memory.snapshot()
        prompt = "\n\n".join(part for part in (prompt, context.notes) if part)
        registries = self._registries(agent)
        return Assembled(resolve(registries, agent.name), registries, prompt)

    def _registries(self, agent: Agent) -> RegistrySet:
        tools: Sequence[Tool] = ()
        if self._memory_tools:
            from graphrt.memory.tools import session_memory_tools

            tools = session_memory_tools(self.session_memory)
        if isinstance(agent, RegisteredAgent):
            return agent.world(tools)
        return self._bundle.to_registry_set(agent, tools=tools)

    # ------------------------------------------------------------ questions

    @property
    def questions(self) -> list[Question]:
        """Questions of turns that wait for a person."""
        return self._questions.open()

    async def answer(self, question_id: str, value: Any) -> None:
        """Answer a question: True, False, or `{"approved": ..., "reason": ..., "arguments": ...}`.

        Raises:
            ConfigError: No such question is open.
            GraphTypeError: The answer does not fit the question, which stays open.
        """
        await self._questions.answer(question_id, value)

    # ------------------------------------------------------------ turns beside one another

    def branch(self, index_offset: int, history: Sequence[Message]) -> AgentSession:
        """Give a session for turns beside this one's: the same in all, with a conversation and a queue of its own.

        Its first turn counts as the one *index_offset* turns after this session's next.
        """
        branch = copy.copy(self)
        branch._is_branch = True
        branch.session = Session(
            self.session_id, list(history), dict(self.session.state), self.turn_index + index_offset
        )
        return branch

    def absorb(self, turns: Sequence[Sequence[Message]], count: int) -> None:
        """Add the messages of *count* turns that branches have finished, and count the turns.

        A turn of this session that is going on ends first.
        """

        def add() -> None:
            added = [message for turn in turns for message in turn]
            self.session.messages[:] = without_dangling([*self.session.messages, *added])
            self.session.turn_index += count
            self._last_used = self._clock.monotonic()

        self.session.queue.between_turns(add)


def check_max_turns(session: Session, limit: int | None) -> None:
    """Refuse a turn beyond the limit on turns.

    Raises:
        LimitExceededError: The session has had as many turns as it may.
    """
    if limit is not None and session.turn_index >= limit:
        raise LimitExceededError(
            f"session {session.id!r} has had {session.turn_index} turns, and may have {limit}",
            limit="max_turns",
            hint="open a new session, or allow more with AgentConfig(max_turns=...)",
        )


def _check_text(text: object) -> None:
    if not isinstance(text, str):
        raise ConfigError(f"a turn is submitted with a {type(text).__name__}, which is no text", hint="give a str")


def _checked(agent: object) -> Agent:
    if isinstance(agent, Agent):
        if not isinstance(agent.name, str) or not agent.name:
            raise ConfigError(f"the name of {agent!r} is {agent.name!r}", hint="let the property give a text")
        return agent
    shown = f"the class {agent.__name__}" if isinstance(agent, type) else f"of type {type(agent).__name__}"
    raise ConfigError(f"the agent of a session is {shown}", hint="give a SimpleAgent(name), or an Agent of your own")
