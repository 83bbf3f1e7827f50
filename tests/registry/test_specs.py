"""What is said of agents and models, and how it is checked."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError

from graphrt.config import ContextPolicy
from graphrt.messages import TokenUsage
from graphrt.registry import AgentSpec, ModelSpec, RemoteEndpoint


def test_spec_of_an_id_alone_has_the_defaults_of_the_contract() -> None:
    spec = AgentSpec("boss")

    assert spec.model_dump() == {
        "id": "boss",
        "model": "default",
        "system_prompt": "",
        "max_rounds": 10,
        "plugin_ids": [],
        "sections": {},
        "context_policy": None,
        "delegates": [],
        "endpoint": None,
        "allowed_tools": None,
        "excluded_tools": [],
        "active_hook_filter": frozenset(),
    }


def test_fields_may_be_given_by_position_and_by_name() -> None:
    assert ModelSpec("m", "p", "n") == ModelSpec(id="m", provider="p", name="n")
    assert RemoteEndpoint("http://x", "own", {"key": 1}) == RemoteEndpoint(
        base_url="http://x", backend="own", options={"key": 1}
    )
    assert AgentSpec("a", "m", "Be brief.", 3) == AgentSpec(id="a", model="m", system_prompt="Be brief.", max_rounds=3)


def test_field_given_twice_and_one_too_many_are_type_errors() -> None:
    with pytest.raises(TypeError, match="ModelSpec is given 'id' twice"):
        ModelSpec("m", "p", "n", id="m")  # type: ignore[misc]  # the mistake is what is tested
    with pytest.raises(TypeError, match="RemoteEndpoint takes 3 fields by position, and 4 are given"):
        RemoteEndpoint("http://x", "a2a", {}, 1)  # type: ignore[call-arg]  # the mistake is what is tested


def test_spec_survives_a_file() -> None:
    spec = AgentSpec(
        "boss",
        "big",
        plugin_ids=["p"],
        sections={"retry": {"max_retries": 1}},
        context_policy=ContextPolicy(max_context_tokens=100),
        delegates=["worker"],
        allowed_tools=[],
        active_hook_filter={"p"},
    )

    assert AgentSpec.model_validate(json.loads(spec.model_dump_json())) == spec


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        (AgentSpec, {"id": "a", "modle": "m"}),
        (AgentSpec, {"id": ""}),
        (AgentSpec, {"id": "a", "max_rounds": 0}),
        (AgentSpec, {"id": "a", "plugin_ids": "p1"}),
        (AgentSpec, {"id": "a", "active_hook_filter": "p1"}),
        (AgentSpec, {"id": "a", "plugin_ids": ["p", "p"]}),
        (AgentSpec, {"id": "a", "delegates": ["b", "b"]}),
        (AgentSpec, {}),
        (ModelSpec, {"id": "m", "provider": "p", "name": ""}),
        (ModelSpec, {"id": "m", "provider": "p", "name": "n", "input_price": 1.0}),
        (ModelSpec, {"id": "m", "provider": "p", "name": "n", "input_price": -1, "output_price": 1}),
        (RemoteEndpoint, {"base_url": ""}),
        (RemoteEndpoint, {"base_url": "http://x", "token": "s"}),
    ],
)
def test_what_does_not_fit_is_refused_by_keyword_and_from_data(kind: type[BaseModel], fields: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        kind(**fields)
    with pytest.raises(ValidationError):
        kind.model_validate(fields)


def test_specs_cannot_be_changed() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        AgentSpec("a").max_rounds = 3


def test_options_of_an_endpoint_are_not_shown() -> None:
    assert "s3cret" not in repr(AgentSpec("a", endpoint=RemoteEndpoint("http://x", options={"token": "s3cret"})))


def test_model_without_prices_does_not_know_what_a_call_costs() -> None:
    assert ModelSpec("m", "p", "n").cost_of is None


@pytest.mark.parametrize(
    ("usage", "cost"),
    [
        (TokenUsage(1_000_000, 1_000_000), 5.0),
        (TokenUsage(500_000, 0), 1.0),
        (TokenUsage(), 0.0),
        (TokenUsage(total_tokens=1_000_000), 3.0),
        (TokenUsage(1_000_000, None, 2_000_000), 5.0),
        (TokenUsage(None, 1_000_000, 2_000_000), 5.0),
        (TokenUsage(1_000_000), 2.0),
    ],
)
def test_prices_are_per_million_tokens(usage: TokenUsage, cost: float) -> None:
    cost_of = ModelSpec("m", "p", "n", input_price=2, output_price=3).cost_of
    assert cost_of is not None
    assert cost_of(usage) == pytest.approx(cost)


_TOKENS = st.none() | st.integers(0, 10_000)


@given(_TOKENS, _TOKENS, _TOKENS, st.floats(0, 100), st.floats(0, 100))
def test_cost_is_never_less_than_that_of_the_tokens_known(
    sent: int | None, received: int | None, total: int | None, dear: float, cheap: float
) -> None:
    cost_of = ModelSpec("m", "p", "n", dear, cheap).cost_of
    assert cost_of is not None
    least = ((sent or 0) * dear + (received or 0) * cheap) / 1_000_000
    assert cost_of(TokenUsage(sent, received, total)) >= least - 1e-12
