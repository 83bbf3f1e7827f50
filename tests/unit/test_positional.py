"""Values of the public signatures take their first fields by position, and say what is wrong with them."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from graphrt.config import RetryConfig
from graphrt.ledger import AuthorizationSnapshot, CallerIdentity
from graphrt.platform import AgentBinding, EventEnvelope
from graphrt.positional import by_position
from graphrt.registry import AgentSpec, ModelSpec, RemoteEndpoint


@pytest.mark.parametrize(
    ("made", "named"),
    [
        (CallerIdentity("runner", None, "r"), CallerIdentity(kind="runner", runner_id="r")),
        (AuthorizationSnapshot("r", "b"), AuthorizationSnapshot(runner_id="r", binding_id="b")),
        (AgentBinding("b", "r", ["x.*"]), AgentBinding(binding_id="b", runner_id="r", event_types=["x.*"])),
        (
            EventEnvelope("e", "t", "s", "c"),
            EventEnvelope(event_id="e", event_type="t", source="s", conversation_id="c"),
        ),
        (RetryConfig(1, ["b"]), RetryConfig(max_retries=1, fallback_models=["b"])),
        (ModelSpec("m", "p", "n"), ModelSpec(id="m", provider="p", name="n")),
        (AgentSpec("a", "m"), AgentSpec(id="a", model="m")),
        (RemoteEndpoint("http://x"), RemoteEndpoint(base_url="http://x")),
    ],
)
def test_fields_by_position_are_those_by_name(made: BaseModel, named: BaseModel) -> None:
    assert made == named
    assert type(made).model_validate(made.model_dump()) == made
    assert type(made).model_validate_json(made.model_dump_json()) == made


class Pair(BaseModel):
    left: int
    right: int = 0

    __init__ = by_position("left")


def test_too_many_twice_and_wrong_are_told() -> None:
    make: Any = Pair
    assert make(1, right=2).right == 2
    with pytest.raises(TypeError, match="takes 1 fields by position, and 2 are given"):
        make(1, 2)
    with pytest.raises(TypeError, match="given 'left' twice"):
        make(1, left=1)
    with pytest.raises(ValidationError, match="left"):
        make("x")
