"""What the engine asks of the things it runs, and the small values it hands out."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from datetime import datetime

    from graphrt.graph.signature import NodeSignature


class Terminal:
    """One of the two ends of every graph; use `START` and `END`."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return self.name

    def __deepcopy__(self, memo: object) -> Terminal:
        return self

    def __copy__(self) -> Terminal:
        return self


START: Final = Terminal("START")
"""Where a run begins: its edges carry the run's input."""

END: Final = Terminal("END")
"""Where a run ends: a join over all its edges, whose values are the run's outputs."""


class NodeKind(StrEnum):
    """What a node is, for pictures, spans and `graph.nx`."""

    START = "start"
    END = "end"
    FUNCTION = "function"
    AGENT = "agent"
    INFERENCE = "inference"
    TOOL = "tool"
    FALLBACK = "fallback"
    ROUTER = "router"
    JOIN = "join"
    ASK = "ask"
    TIMER = "timer"
    GRAPH = "graph"
    PLAN_STEP = "plan_step"


@runtime_checkable
class Node(Protocol):
    """One unit of work in a graph; `graphrt.nodes` has the usual ones, a class of your own needs only this."""

    @property
    def name(self) -> str:
        """Name, unique within its graph."""
        ...

    @property
    def kind(self) -> NodeKind:
        """What the node is; read when the graph is compiled."""
        ...

    @property
    def signature(self) -> NodeSignature:
        """The inputs and the value the node declares; read when the graph is compiled."""
        ...

    def run(self, inputs: Mapping[str, Any], ctx: Any) -> Awaitable[Any]:
        """Do the work once. The scheduler calls it once an attempt, with one entry for each declared input."""
        ...


@runtime_checkable
class HoldsGraph(Protocol):
    """A node that is a whole graph: the engine opens a scope for it instead of calling it."""

    def compiled_graph(self) -> Any:
        """Give the compiled graph to run; called once, when the graph around it is compiled."""
        ...


@runtime_checkable
class Asks(Protocol):
    """A node that waits for a person: the engine asks, waits without a slot, and checks the answer."""

    def question_for(self, inputs: Mapping[str, Any]) -> Any:
        """Give the question, a value that can be shown; called once when the step starts."""
        ...

    def accept(self, answer: Any) -> Any:
        """Turn an answer into the node's value, or raise `GraphTypeError` when it does not fit."""
        ...


@runtime_checkable
class WaitsUntil(Protocol):
    """A node that waits for a time: the engine waits without a slot, also over a restart, and then goes on."""

    def due(self, inputs: Mapping[str, Any], now: datetime) -> datetime:
        """Give the time, aware, until which the step waits; called once when it starts, which is *now*."""
        ...

    def passed_on(self, inputs: Mapping[str, Any]) -> Any:
        """Give the node's value; called once when the time has come."""
        ...


@runtime_checkable
class Conversation(Protocol):
    """State that is a conversation, as an agent's is: what `RunResult.messages` and `.response` are read from."""

    def conversation(self) -> list[Any]:
        """List the messages; called when they are asked for."""
        ...

    def chat_response(self, *, usage: Any, rounds: int, termination: Any) -> Any:
        """Sum the turn up as a `ChatResponse`; called when it is asked for."""
        ...

    def cut_short_by(self) -> str | None:
        """Name the limit at which the answer was given; None when none was reached."""
        ...


@dataclass(frozen=True, slots=True)
class Question:
    """One open question of a run; `id` is what an answer names.

    Attributes:
        id: What an answer names.
        node: The node that asks.
        scope: The scope of its step, as in `StepRef`.
        round: The round of its step.
        question: What is asked: a text or any value; of a call of a tool, its name, description and arguments.
        check: Raises `GraphTypeError` for an answer that does not fit; None where that cannot be told.
    """

    id: str
    node: str
    scope: str
    round: int
    question: Any
    check: Callable[[Any], Any] | None = field(default=None, repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class Failure:
    """What stands for an item that failed under `map(..., on_error="collect")`, and for a failure in `RunResult`.

    Attributes:
        error: What was raised.
        node: The node that failed.
        scope: The scope of its step.
        round: The round of its step.
        index: Index of the item in its map, from 0; None outside maps.
    """

    error: BaseException
    node: str
    scope: str = ""
    round: int = 1
    index: int | None = None


@dataclass(frozen=True, slots=True)
class StepRef:
    """Which step an event is about: stable across resume.

    Attributes:
        node: Name of the node.
        scope: Where the step is: empty in the graph of the run itself, else the path to a nested graph or an item
            of a map.
        round: The round of its cycle, from 1.
        attempt: The attempt, from 1.
        key: Readable, and different for every step of the run, in nested rounds too.
    """

    node: str
    scope: str
    round: int
    attempt: int = 1
    key: str = ""


@dataclass(frozen=True, slots=True)
class RunEvent:
    """One thing that happened in a run.

    Attributes:
        type: What happened; see below.
        run_id: The run's id.
        sequence: Counts from 1 without gaps. A `message.delta` has no number of its own: it carries the last one given,
            and a `data["index"]`.
        step: The step it is about; None where it is about the run, a round, or what a caller asked for.
        data: What else there is to say, by type.
        time: Seconds since the epoch.

    What is in `data`, by type; what stands in brackets is there only where it applies:

        run.started         input, graph (its name)
        run.waiting         questions (their ids) [until, an ISO time]
        run.resumed         what the one who resumed it says
        run.completed       status, output
        run.failed          status, error; run.stopped, run.cancelled, run.timed_out likewise
        step.started        [edges, the indices of those that fired a quorum join]
        step.completed      output [taken, the indices of the edges that were] [update, the state's fields written]
                            [text, as it was streamed]
        step.failed         error, handled [edge, of the handler] [partial, the text streamed so far];
                            step.timed_out likewise
        step.cancelled      [partial]
        step.skipped        [reason]
        step.waiting        question_id, question; or until, an ISO time
        attempt.failed      attempt, error, and delay or fallback [partial]
        round.started       cycle (its first node), round, scope; round.completed likewise
        map.item            map, index, scope [value]
        message.delta       text, index: a piece of a reply that is being streamed
        message.completed   message (as plain data), model, finish_reason, usage
        tool.call.started   tool_call_id, tool_name, parameters
        tool.call.completed tool_call_id, tool_name, and result or error, each a text
        action.requested    request ("answer", "cancel", "cancel_after_round", "timeout") and what belongs to it
        thread.abandoned    node; or tool_id, tool_call_id: a function that was cut off works on in its thread
        custom.<name>       what a node, a tool or a plugin has put there

    Errors are the exceptions themselves.
    """

    type: str
    run_id: str
    sequence: int
    step: StepRef | None = None
    data: Mapping[str, Any] = field(default_factory=dict)
    time: float = 0.0
