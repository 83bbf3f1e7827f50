"""States and legal moves: one table for the core, the documents and the picture."""

from __future__ import annotations

from importlib.resources import files
from itertools import product

import pytest

from graphrt import InvalidTransitionError
from graphrt.graph.states import FINAL_STATES, LEGAL_MOVES, NodeState, check_move, state_diagram


@pytest.mark.parametrize(("before", "after"), list(product(NodeState, NodeState)))
def test_a_move_is_refused_unless_the_table_holds_it(before: NodeState, after: NodeState) -> None:
    if after in LEGAL_MOVES[before]:
        check_move("step 'a'", before, after)
        return
    with pytest.raises(InvalidTransitionError, match="step 'a'") as caught:
        check_move("step 'a'", before, after)
    assert (caught.value.from_, caught.value.to) == (before.value, after.value)


def test_every_state_has_its_row_and_final_states_lead_nowhere() -> None:
    assert set(LEGAL_MOVES) == set(NodeState)
    assert {"succeeded", "failed", "skipped", "cancelled", "timed_out"} == {s.value for s in FINAL_STATES}


def test_picture_shows_every_legal_move_and_no_other() -> None:
    moves = [line.strip() for line in state_diagram().splitlines() if " --> " in line and "[*]" not in line]
    drawn = {tuple(move.split(" --> ")) for move in moves}
    assert drawn == {(b.value, a.value) for b, following in LEGAL_MOVES.items() for a in following}


def test_document_about_states_shows_the_table_as_it_is() -> None:
    text = files("graphrt.demo").joinpath("concepts", "states.md").read_text(encoding="utf-8")
    assert f"```mermaid\n{state_diagram()}\n```" in text
