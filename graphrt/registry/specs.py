"""What a user or a file says of an agent, a model, and an agent that lives elsewhere."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from graphrt.config import ContextPolicy
from graphrt.positional import by_position

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from graphrt.messages import TokenUsage

_CONFIG = ConfigDict(frozen=True, extra="forbid")
_MILLION = 1_000_000

Text = Annotated[str, Field(min_length=1)]


class ModelSpec(BaseModel):
    """A model under the id that agents ask for it by.

    Attributes:
        id: What ``AgentSpec.model`` and ``fallback_models`` name.
        provider: Id in the registry of providers.
        name: The provider's own name of the model.
        input_price: Cost of a million tokens sent, in the unit of ``Budget(cost=...)``; None: not known.
        output_price: Cost of a million tokens received.
    """

    model_config = _CONFIG

    id: Text
    provider: Text
    name: Text
    input_price: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    output_price: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None

    if TYPE_CHECKING:

        def __init__(
            self,
            id: str,
            provider: str,
            name: str,
            input_price: float | None = ...,
            output_price: float | None = ...,
        ) -> None: ...

    else:
        __init__ = by_position("id", "provider", "name", "input_price", "output_price")

    @model_validator(mode="after")
    def _has_both_prices(self) -> Self:
        if (self.input_price is None) != (self.output_price is None):
            raise ValueError(f"model {self.id!r} has one price: give input_price and output_price, or neither")
        return self

    @property
    def cost_of(self) -> Callable[[TokenUsage], float] | None:
        """Give the function that says what a call has cost; None without prices.

        Tokens that nobody told apart into sent and received count at the higher price.
        """
        if self.input_price is None or self.output_price is None:
            return None
        sent, received = self.input_price / _MILLION, self.output_price / _MILLION

        def cost(usage: TokenUsage) -> float:
            tokens_in, tokens_out, total = usage.input_tokens, usage.output_tokens, usage.total_tokens or 0
            if tokens_in is None and tokens_out is None:
                return total * max(sent, received)
            tokens_in = max(total - (tokens_out or 0), 0) if tokens_in is None else tokens_in
            tokens_out = max(total - tokens_in, 0) if tokens_out is None else tokens_out
            return tokens_in * sent + tokens_out * received

        return cost


class RemoteEndpoint(BaseModel):
    """Where an agent lives that is not run here.

    Attributes:
        base_url: Address of the agent.
        backend: Kind of the back end that talks to it.
        options: What else that back end wants to know; not shown, since a secret may be among it.
    """

    model_config = _CONFIG

    base_url: Text
    backend: Text = "a2a"
    options: dict[str, Any] = Field(default_factory=dict, repr=False)

    if TYPE_CHECKING:

        def __init__(self, base_url: str, backend: str = ..., options: Mapping[str, Any] = ...) -> None: ...

    else:
        __init__ = by_position("base_url", "backend", "options")


class AgentSpec(BaseModel):
    """What an agent consists of, by ids in the registries.

    Attributes:
        id: What requests, ``delegates`` and spans name the agent by.
        model: Id in the registry of models.
        system_prompt: What the model is told first; empty: no system message is sent.
        max_rounds: Inferences of one run.
        plugin_ids: Ids of plugins, in the order in which their hooks are called.
        sections: Settings of plugins by key. Built in are ``retry``, which takes the fields of ``RetryConfig``, and
            with a context policy ``compaction``, which takes those of ``CompactConfig``.
        context_policy: What of a conversation is sent to the model; None: all of it.
        delegates: Ids of the agents that this one may ask; the model calls each as the tool ``agent_run_<id>``,
            with a ``prompt``.
        endpoint: Where the agent lives, if that is elsewhere; it can then only be a delegate.
        allowed_tools: Ids of the tools it may have; None: all, an empty list: none. An id that no tool has does
            nothing.
        excluded_tools: Ids of tools it does not get, also if they are allowed.
        active_hook_filter: Ids of the plugins whose hooks, tools and transforms are in force; empty: all.
    """

    model_config = _CONFIG

    id: Text
    model: Text = "default"
    system_prompt: str = ""
    max_rounds: Annotated[int, Field(ge=1)] = 10
    plugin_ids: list[Text] = Field(default_factory=list)
    sections: dict[str, Any] = Field(default_factory=dict)
    context_policy: ContextPolicy | None = None
    delegates: list[Text] = Field(default_factory=list)
    endpoint: RemoteEndpoint | None = None
    allowed_tools: list[str] | None = None
    excluded_tools: list[str] = Field(default_factory=list)
    active_hook_filter: frozenset[str] = frozenset()

    if TYPE_CHECKING:

        def __init__(  # noqa: PLR0917  # the order is that of the public signature
            self,
            id: str,
            model: str = ...,
            system_prompt: str = ...,
            max_rounds: int = ...,
            plugin_ids: Sequence[str] = ...,
            sections: Mapping[str, Any] = ...,
            context_policy: ContextPolicy | None = ...,
            delegates: Sequence[str] = ...,
            endpoint: RemoteEndpoint | None = ...,
            allowed_tools: Sequence[str] | None = ...,
            excluded_tools: Sequence[str] = ...,
            active_hook_filter: Collection[str] = ...,
        ) -> None: ...

    else:
        __init__ = by_position(
            "id",
            "model",
            "system_prompt",
            "max_rounds",
            "plugin_ids",
            "sections",
            "context_policy",
            "delegates",
            "endpoint",
            "allowed_tools",
            "excluded_tools",
            "active_hook_filter",
        )

    @field_validator("plugin_ids", "delegates")
    @classmethod
    def _names_each_once(cls, ids: list[str]) -> list[str]:
        if twice := [id for id, times in Counter(ids).items() if times > 1]:
            raise ValueError(f"{', '.join(map(repr, twice))} is named twice: name each once")
        return ids
