"""Who answers which events."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from graphrt.errors import ConfigError
from graphrt.ledger.authorization import AuthorizationSnapshot
from graphrt.platform import AgentBinding, EventRouter, Resources
from graphrt.platform.resources import FIELDS, narrowed
from graphrt.platform.router import fit
from tests.platform.helpers import binding, event, rights

PARTS = st.lists(st.sampled_from(["a", "b", "c"]), min_size=1, max_size=4)


@pytest.mark.parametrize(
    ("pattern", "event_type", "fits"),
    [
        ("message.received", "message.received", True),
        ("message.received", "message.received.twice", False),
        ("message.*", "message.received", True),
        ("message.*", "message", False),
        ("message.*", "messages.received", False),
        ("github.*", "github.issue.opened", True),
        ("github.*.opened", "github.issue.opened", True),
        ("github.*.opened", "github.issue.closed", False),
        ("github.*.opened", "github.issue.comment.opened", False),
        ("*.opened", "issue.opened", True),
        ("*", "anything.at.all", True),
        ("[a-z]*", "abc", False),
    ],
)
def test_a_star_stands_for_one_part_and_at_the_end_for_more(pattern: str, event_type: str, fits: bool) -> None:
    assert bool(fit(pattern, event_type)) is fits


@given(PARTS, st.sets(st.integers(0, 3)))
def test_a_type_fits_every_pattern_made_of_it_and_itself_most_closely(parts: list[str], starred: set[int]) -> None:
    name = ".".join(parts)
    pattern = ".".join("*" if index in starred else part for index, part in enumerate(parts))
    assert () < fit(pattern, name) <= fit(name, name)


def test_the_closest_binding_comes_first_and_equals_in_their_order() -> None:
    patterns = ["*", "github.*", "github.issue.opened", "github.*.opened", "github.issue.opened"]
    router = EventRouter(binding(binding_id=str(index), event_types=[each]) for index, each in enumerate(patterns))
    found = router.route(event("github.issue.opened"))
    assert [each.binding_id for each in found.bindings] == ["2", "4", "3", "1", "0"]
    assert router.resolve(event("github.issue.opened")) is found.bindings[0]


def test_an_event_that_nobody_answers_has_a_clear_result() -> None:
    router = EventRouter([binding(event_types=["message.*"], enabled=False)])
    nobody, off = router.route(event("scheduler.tick")), router.route(event("message.received"))
    assert (bool(nobody), nobody.bindings, nobody.reason) == (False, (), "no binding answers 'scheduler.tick'")
    assert (bool(off), off.reason) == (False, "what answers 'message.received' is not enabled: 'b'")
    assert router.resolve(event("scheduler.tick")) is None


def test_a_binding_is_there_once() -> None:
    router = EventRouter([binding()])
    with pytest.raises(ConfigError, match="'b' already"):
        router.add(binding())
    assert (router.remove("b"), router.remove("b"), router.bindings) == (True, False, ())


def test_a_binding_without_rights_allows_nothing() -> None:
    assert binding().authorization == AuthorizationSnapshot(runner_id="r", binding_id="b")


@pytest.mark.parametrize("wrong", [{"runner_id": "other"}, {"runner_id": "r", "binding_id": "other"}])
def test_a_bindings_rights_are_those_of_its_runner(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match="'other' in the authorization"):
        AgentBinding(binding_id="b", runner_id="r", authorization=AuthorizationSnapshot(**wrong))


NAMES = st.lists(st.sampled_from(["a", "b", "c", "d"]), unique=True).map(tuple)
LIMITS = st.none() | st.builds(Resources, **dict.fromkeys(FIELDS, st.none() | NAMES))


@given(st.fixed_dictionaries(dict.fromkeys(FIELDS.values(), NAMES)), LIMITS, LIMITS)
def test_rights_are_what_all_have_in_common(
    lists: dict[str, Any], declares: Resources | None, permits: Resources | None
) -> None:
    """X-45."""
    snapshot = narrowed(rights(**lists), declares, permits)
    for name, field in FIELDS.items():
        limits = [getattr(each, name) for each in (declares, permits) if each is not None]
        wanted = set(lists[field]).intersection(*(set(each) for each in limits if each is not None))
        assert set(getattr(snapshot, field)) == wanted


def test_a_scope_with_an_id_is_allowed_by_its_name() -> None:
    limited = narrowed(rights(state_scopes=("project:p1", "run")), Resources(state_scopes=("project",)))
    assert limited.state_scopes == ("project:p1",)
