"""What the engine asks of the things it runs, and the small values it hands out."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Mapping

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
    """One open question of a run; `id` is what an answer names."""

    id: str
    node: str
    scope: str
    round: int
    question: Any


@dataclass(frozen=True, slots=True)
class Failure:
    """What stands for an item that failed under `map(..., on_error="collect")`, and for a failure in `RunResult`."""

    error: BaseException
    node: str
    scope: str = ""
    round: int = 1
    index: int | None = None
    """Index of the item in its map, from 0; None outside maps."""


@dataclass(frozen=True, slots=True)
class StepRef:
    """Which step an event is about: stable across resume."""

    node: str
    scope: str
    round: int
    attempt: int = 1
    key: str = ""
    """Readable, and different for every step of the run, in nested rounds too."""


@dataclass(frozen=True, slots=True)
class RunEvent:
    """One thing that happened in a run.

    `sequence` counts from 1 without gaps; a `message.delta` has no number of its own and carries the last one given,
    and its `data["index"]`. `time` is in seconds since the epoch.
    """

    type: str
    run_id: str
    sequence: int
    step: StepRef | None = None
    data: Mapping[str, Any] = field(default_factory=dict)
    time: float = 0.0
