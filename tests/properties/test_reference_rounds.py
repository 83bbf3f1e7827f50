"""The reference, checked against examples worked out by hand: joins, rounds and exits (E1 to E6, E8, E20)."""

from __future__ import annotations

import pytest

from tests.properties.by_hand import (
    Edge,
    Gather,
    Hand,
    Map,
    count,
    edges,
    graph,
    never,
    node,
    reach,
    say,
    under,
)
from tests.properties.structure import InvalidDescriptionError, lay_out


def test_join_runs_once_after_branches_of_unequal_length() -> None:
    """B-013."""
    run = Hand(graph("a b c c2 d", edges("START a b d", "a c c2 d END")))
    assert run.end("a").running == ["b", "c"]
    assert run.end("b", "c").running == ["c2"]
    assert run.end("c2").running == ["d"]
    assert run.inputs("d") == {"b": 2, "c2": 3}
    assert run.rest().outputs == {"d": 4}


def test_join_does_not_wait_for_the_branch_not_chosen() -> None:
    """B-011, AC-C05."""
    run = Hand(graph("s a b c", edges("START s a c", "b c END"), Edge("s", "b", when=never)))
    run.end("s", "a")
    assert run.inputs("c") == {"a": 2}
    assert run.state("b") == "never"
    assert run.rest().status == "succeeded"


def test_node_whose_edges_were_all_skipped_is_skipped_with_what_follows() -> None:
    run = Hand(graph("s a b c d", edges("START s d", "a c d END", "b c"), Edge("s", "a", never), Edge("s", "b", never)))
    run.end("s")
    assert [run.state(name) for name in "abc"] == ["never"] * 3
    assert run.running == ["d"]


def test_any_join_runs_on_the_first_and_the_loser_is_waited_for() -> None:
    run = Hand(graph([node("a"), node("b"), node("j", count, join="any")], edges("START a j END", "START b j")))
    run.end("b", "j")
    assert run.inputs("j") == {"b": run.step("b").value}
    assert run.running == ["a"]
    run.end("a")
    assert run.run.status == "succeeded"


def test_late_arrival_at_a_join_in_an_inner_cycle_that_is_over_is_dropped() -> None:
    """The join fires in round 1.1 on its edge from START; a of round 1 ends when all of round 1.1 has ended."""
    nodes = [node("a"), node("b", join="any"), node("c")]
    links = [Edge("b", "a", lambda value: value == 1), Edge("b", "b", never), Edge("b", "END", reach(3))]
    run = Hand(graph(nodes, edges("START a b", "START b", "a c b"), links))
    run.end("b@1.1", "a@2", "a@1")
    assert run.running == ["b@2.1", "c@1", "c@2"]
    assert run.rest().outputs == {"b": 3}


def test_late_arrival_at_a_join_two_cycles_deep_is_dropped_when_both_rounds_are_over() -> None:
    nodes = [node("s"), node("o"), node("b", join="any")]
    links = [Edge("b", "b", never), Edge("b", "o", under(4)), Edge("b", "END", reach(4))]
    run = Hand(graph(nodes, edges("START s b", "START o b"), links)).end("o@1", "b@1.1", "o@2")
    assert run.running == ["b@2.1", "s"]
    assert run.end("s").running == ["b@2.1"]
    assert run.rest().outputs == {"b": 4}


def test_join_of_two_takes_values_in_declaration_order() -> None:
    nodes = [node("a", say(1)), node("b", say(2)), node("c", say(3)), node("j", count, join=2)]
    run = Hand(graph(nodes, edges("START a j END", "START b j", "START c j")))
    run.end("c", "a")
    assert list(run.inputs("j").items()) == [("a", 1), ("c", 3)]


def test_quorum_that_cannot_be_met_skips_the_node() -> None:
    nodes = [node("s"), node("a"), node("j", count, join=2), node("z")]
    run = Hand(graph(nodes, edges("START s a j z END", "s z"), Edge("s", "j", never)))
    run.end("s", "a")
    assert run.state("j") == "never"
    assert run.inputs("z") == {"s": 1}


def test_quorum_above_the_number_of_forward_edges_is_refused() -> None:
    nodes = [node("a"), node("j", join=3)]
    with pytest.raises(InvalidDescriptionError, match="waits for more"):
        lay_out(graph(nodes, edges("START a j END", "j a", "START j")))


def test_cancel_rest_cancels_what_leads_to_the_join_alone() -> None:
    nodes = [
        node("a"),
        node("b"),
        node("b2"),
        node("c"),
        node("log", side=True),
        node("j", count, join="any", cancel_rest=True),
    ]
    run = Hand(graph(nodes, edges("START a j END", "START b b2 j", "b log", "START c j", "c END")))
    run.end("b")
    assert run.running == ["a", "b2", "c", "log"]
    run.end("a")
    assert (run.state("b2"), run.state("c"), run.state("log")) == ("cancelled", "running", "running")


def test_cancel_rest_stops_what_has_not_begun() -> None:
    nodes = [node(name) for name in ("a", "b", "b2", "d")] + [node("j", count, join="any", cancel_rest=True)]
    run = Hand(graph(nodes, edges("START a j END", "START b b2 j", "START d b2", "d END")))
    run.end("a")
    assert (run.state("b"), run.state("b2")) == ("cancelled", "never")
    run.end("d", "j")
    assert run.run.status == "succeeded"


def test_cancel_rest_closes_an_open_map_that_leads_to_the_join_alone() -> None:
    nodes = [node("a"), node("s", say([1, 2])), node("x"), node("j", count, join="any", cancel_rest=True)]
    run = Hand(graph(nodes, edges("START a j END", "START s"), Map("s", "x"), Gather("x", "j", into="xs")))
    run.end("s", "a")
    assert (run.state("x#0"), run.state("x#1")) == ("cancelled", "cancelled")
    assert run.running == ["j"]


def test_cancel_rest_of_a_header_reaches_what_leads_into_its_cycle_alone() -> None:
    nodes = [node("a"), node("b"), node("c"), node("h", join="any", cancel_rest=True), node("x")]
    links = [Edge("x", "h", under(4)), Edge("x", "END", reach(4))]
    run = Hand(graph(nodes, edges("START a h x", "START b c h"), links))
    run.end("b", "a")
    assert run.state("c") == "cancelled"
    assert run.rest().status == "succeeded"


def test_cancel_rest_spares_what_leads_to_a_back_edge_around_the_join() -> None:
    nodes = [node("h"), node("a"), node("b"), node("j", count, join="any", cancel_rest=True)]
    links = [Edge("b", "h", under(4)), Edge("j", "END", reach(4)), Edge("j", "h", under(4))]
    run = Hand(graph(nodes, edges("START h a j", "h b j"), links))
    run.end("h@1", "a@1")
    assert run.running == ["b@1", "j@1"]


def test_cancel_rest_in_a_loop_touches_its_own_round_alone() -> None:
    """b of round 1 is cancelled each time; round 2 has a fresh one."""
    nodes = [node("h"), node("a"), node("b"), node("j", count, join="any", cancel_rest=True)]
    run = Hand(graph(nodes, edges("START h a j", "h b j"), Edge("j", "h", under(4)), Edge("j", "END", reach(4))))
    run.end("h@1", "a@1")
    assert run.state("b@1") == "cancelled"
    run.end("j@1", "h@2")
    assert run.running == ["a@2", "b@2"]
    run.end("b@2")
    assert run.state("a@2") == "cancelled"


def test_cancel_rest_ends_a_cycle_that_leads_to_the_join_alone() -> None:
    nodes = [node("a"), node("p"), node("q"), node("j", count, join="any", cancel_rest=True)]
    run = Hand(graph(nodes, edges("START a j END", "START p q"), Edge("q", "p", under(9)), Edge("q", "j", reach(9))))
    run.end("p@1", "q@1", "p@2", "a")
    assert run.state("q@2") == "cancelled"
    run.end("j")
    assert run.run.status == "succeeded"


def test_useless_cycle_does_not_reach_its_limit() -> None:
    nodes = [node("h"), node("s"), node("j", join="any", cancel_rest=True)]
    links = [Edge("h", "h", under(9)), Edge("h", "j", lambda value: value == 2)]
    run = Hand(graph(nodes, edges("START h", "START s j END"), links, max_rounds=2)).end("h@1", "h@2")
    assert (run.running, run.state("s")) == (["j"], "cancelled")
    assert run.rest().output == 3


def test_loop_ends_by_its_condition_and_header_keeps_its_entry_value() -> None:
    run = Hand(graph("a h x", edges("START a h x"), Edge("x", "h", under(6)), Edge("x", "END", reach(6))))
    run.end("a", "h@1", "x@1", "h@2", "x@2")
    assert run.inputs("h@1") == {"a": 1}
    assert run.inputs("h@2") == {"a": 1, "x": 3}
    outcome = run.end("h@3", "x@3").run.outcome()
    assert outcome.output == 7
    assert outcome.rounds == {((), "h", ()): 3}


def test_next_round_waits_for_every_back_edge() -> None:
    run = Hand(
        graph(
            "h x y",
            edges("START h x", "h y"),
            Edge("x", "h", under(3)),
            Edge("y", "h", under(3)),
            edges("x END"),
        )
    )
    run.end("h@1", "x@1")
    assert run.running == ["y@1"]
    run.end("y@1")
    assert run.running == ["h@2"]
    assert run.inputs("h@2") == {"value": 0, "x": 2, "y": 2}


def test_any_header_goes_on_with_the_first_back_edge_and_drops_the_second() -> None:
    nodes = [node("h", count, join="any"), node("x"), node("y")]
    links = [Edge("x", "h", under(3)), Edge("y", "h", under(3)), Edge("x", "END", reach(3))]
    run = Hand(graph(nodes, edges("START h x", "h y"), links))
    run.end("h@1", "y@1")
    assert run.inputs("h@2") == {"value": 0, "y": 2}
    assert run.running == ["h@2", "x@1"]
    run.end("x@1", "h@2", "x@2", "y@2")
    assert run.run.status == "succeeded"
    assert run.run.outcome().rounds == {((), "h", ()): 2}


def test_number_of_a_header_counts_in_round_one_only() -> None:
    nodes = [node("a"), node("b"), node("h", count, join=2), node("x")]
    links = [Edge("x", "h", under(4)), Edge("x", "END", reach(4))]
    run = Hand(graph(nodes, edges("START a h x", "START b h"), links))
    run.end("a", "b", "h@1", "x@1")
    assert run.inputs("h@2") == {"a": 1, "b": 1, "x": 3}
    assert run.rest().status == "succeeded"


def test_header_with_a_number_waits_for_every_back_edge() -> None:
    nodes = [node("h", join=1), node("x"), node("y")]
    links = [Edge("x", "h", under(3)), Edge("y", "h", under(3)), Edge("x", "END", reach(3))]
    run = Hand(graph(nodes, edges("START h x", "h y"), links)).end("h@1", "x@1")
    assert run.running == ["y@1"]
    run.end("y@1")
    assert run.inputs("h@2") == {"value": 0, "x": 2, "y": 2}


def test_edge_into_the_middle_of_a_cycle_counts_in_round_one_only() -> None:
    run = Hand(graph("a h x", edges("START h x", "START a x"), Edge("x", "h", under(4)), Edge("x", "END", reach(4))))
    run.end("h@1")
    assert run.running == ["a"]
    run.end("a", "x@1", "h@2", "x@2")
    assert run.inputs("x@1") == {"a": 1, "h": 1}
    assert run.inputs("x@2") == {"h": 3}
    assert run.run.status == "succeeded"


def test_quorum_in_the_middle_of_a_cycle_lacks_the_outside_edge_from_round_two_on() -> None:
    nodes = [node("a"), node("h"), node("x", count, join=2), node("y")]
    links = [Edge("y", "h", under(5)), Edge("y", "END", reach(5))]
    run = Hand(graph(nodes, edges("START h x y", "h y", "START a x"), links))
    run.end("h@1", "a", "x@1", "y@1", "h@2")
    assert run.state("x@2") == "never"
    assert run.inputs("y@2") == {"h": 4}


def test_header_is_the_first_declared_node_that_is_entered_from_outside() -> None:
    """x is declared first, but only h is entered."""
    layout = lay_out(graph("x h", edges("START h x h", "x END")))
    assert {cycle.header for cycle in layout.regions[()].cycles} == {"h"}


def test_inner_cycle_starts_afresh_in_each_outer_round() -> None:
    links = [
        Edge("q", "p", lambda value: value % 10 < 4),
        Edge("q", "r", lambda value: value % 10 >= 4),
        Edge("r", "o", under(20)),
        Edge("r", "END", reach(20)),
    ]
    nodes = [
        node("o", lambda name, inputs, state: say(20 if "r" in inputs else 0)(name, inputs, state)),
        node("p"),
        node("q"),
        node("r"),
    ]
    layout = lay_out(graph(nodes, edges("START o p q"), links))
    region = layout.regions[()]
    assert [cycle.header for cycle in region.chain("q")] == ["o", "p"]
    assert [cycle.header for cycle in region.chain("r")] == ["o"]
    run = Hand(graph(nodes, edges("START o p q"), links))
    run.end("o@1", "p@1.1", "q@1.1", "p@1.2", "q@1.2", "r@1", "o@2", "p@2.1", "q@2.1")
    assert run.inputs("p@2.1") == {"o": 20}
    assert run.inputs("p@2.2") == {"o": 20, "q": 22}
    outcome = run.rest()
    assert outcome.status == "succeeded"
    assert outcome.rounds == {((), "o", ()): 2, ((), "p", (1,)): 2, ((), "p", (2,)): 2}


def test_swarm_with_two_entries_enters_where_it_is_told() -> None:
    """Hand-over: h is not entered in round 1, x is, and hands over to h."""
    nodes = [node("t"), node("h"), node("x")]
    links = [Edge("t", "h", never), Edge("t", "x"), Edge("h", "x", under(4)), Edge("x", "h", under(4))]
    ends = [Edge("h", "END", reach(4)), Edge("x", "END", reach(4))]
    run = Hand(graph(nodes, edges("START t"), links, ends))
    run.end("t")
    assert run.running == ["x@1"]
    run.end("x@1")
    assert run.running == ["h@2"]
    assert run.inputs("h@2") == {"x": 2}
    run.end("h@2", "x@2")
    assert run.inputs("x@2") == {"h": 3}
    assert run.run.status == "succeeded"
    assert run.run.outcome().outputs == {"x": 4}


def test_both_entries_run_in_round_one_and_the_inner_one_waits_for_the_header() -> None:
    run = Hand(graph("t h x", edges("START t h x", "t x"), Edge("x", "h", under(5)), Edge("x", "END", reach(5))))
    run.end("t")
    assert run.running == ["h@1"]
    run.end("h@1")
    assert run.inputs("x@1") == {"h": 2, "t": 1}


def test_inner_header_entered_from_far_outside_is_skipped_in_the_second_outer_round() -> None:
    """p heads the inner cycle by its edge from a, which counts in the very first round alone."""
    nodes = [node("a"), node("o"), node("p"), node("q"), node("r")]
    links = [
        Edge("q", "p", never),
        Edge("q", "r"),
        Edge("r", "o", under(8)),
        Edge("r", "END", reach(8)),
    ]
    made = graph(nodes, edges("START a p q", "START o q"), links)
    region = lay_out(made).regions[()]
    assert [cycle.header for cycle in region.chain("p")] == ["o", "p"]
    run = Hand(made)
    run.end("a", "o@1", "p@1.1", "q@1.1", "r@1", "o@2")
    assert run.state("p@2.1") == "never"
    assert run.inputs("q@2.1") == {"o": 5}
    run.end("q@2.1", "r@2")
    assert run.state("o@3") == "running"


def test_entry_three_cycles_deep_is_passed_over_once_in_the_second_outer_round() -> None:
    """y heads the innermost cycle by its edge from START, which counts in the very first round alone."""
    nodes = [node("o"), node("h"), node("y"), node("x")]
    links = [Edge("x", "y", never), Edge("y", "h", never), Edge("h", "o", under(5)), Edge("x", "END", reach(6))]
    made = graph(nodes, edges("START o h x", "START y x"), links)
    region = lay_out(made).regions[()]
    assert [cycle.header for cycle in region.chain("y")] == ["o", "h", "y"]
    run = Hand(made).end("o@1", "h@1.1", "y@1.1.1", "x@1.1.1", "o@2", "h@2.1")
    assert run.state("y@2.1.1") == "never"
    assert run.inputs("x@2.1.1") == {"h": 4}
    run.rest()


def test_header_of_an_inner_cycle_keeps_the_values_of_the_outer_round() -> None:
    run = nested()
    run.end("b", "o@1", "p@1.1", "q@1.1")
    assert run.inputs("p@1.2") == {"o": 1, "q": 3}
    run.end("p@1.2", "q@1.2", "r@1", "o@2")
    assert run.inputs("p@2.1") == {"o": 7}


def test_round_may_start_before_the_header_of_the_round_before() -> None:
    """The only back edge comes from p, which waits for nothing in the cycle: so o runs in round 2."""
    nodes = [node("a"), node("b"), node("o"), node("p"), node("q")]
    links = [Edge("p", "o", under(3)), Edge("q", "p", never), Edge("q", "END")]
    made = graph(nodes, edges("START a p q", "START b o q"), links)
    run = Hand(made)
    run.end("a", "p@1.1")
    assert run.state("o@1") == "absent"
    assert run.state("o@2") == "running"
    assert "a header's round 1 comes after its round 2" in run.run.doubts


def test_exit_is_taken_at_once_while_the_loop_goes_on() -> None:
    links = [Edge("x", "h", under(5)), Edge("x", "z", lambda value: value == 2)]
    run = Hand(graph("h x z", edges("START h x", "z END"), links))
    run.end("h@1", "x@1")
    assert run.running == ["h@2", "z"]
    run.end("z", "h@2", "x@2")
    assert run.running == ["h@3"]
    assert run.rest().output == 3


def test_exit_not_taken_is_skipped_when_the_cycle_is_over_and_not_before() -> None:
    links = [Edge("x", "h", under(4)), Edge("x", "z", never), Edge("x", "END", reach(4))]
    run = Hand(graph("a h x z", edges("START h x", "START a z END"), links))
    run.end("a", "h@1", "x@1", "h@2")
    assert run.running == ["x@2"]
    run.end("x@2")
    assert run.inputs("z") == {"a": 1}


def test_exit_taken_in_two_rounds_fails_the_run() -> None:
    run = Hand(graph("h x z", edges("START h x z END"), Edge("x", "h", under(4))))
    outcome = run.end("h@1", "x@1", "h@2", "x@2").run.outcome()
    assert (outcome.status, outcome.error) == ("failed", "GraphError")


def nested(*links: Edge) -> Hand:
    """Outer cycle o p q r, inner cycle p q; z hangs on q by an edge out of both."""
    inner = [Edge("q", "p", lambda value: value in {3, 8}), Edge("q", "r", lambda value: value not in {3, 8})]
    outer = [Edge("r", "o", under(7)), Edge("r", "END", reach(7))]
    return Hand(graph("b o p q r z", edges("START o p q", "START b z END"), inner, outer, list(links)))


def test_exit_from_two_cycles_waits_for_the_outer_one_to_be_skipped() -> None:
    run = nested(Edge("q", "z", never))
    run.end("b", "o@1", "p@1.1", "q@1.1", "p@1.2", "q@1.2")
    assert run.running == ["r@1"]
    run.end("r@1")
    assert run.running == ["o@2"]
    run.end("o@2", "p@2.1", "q@2.1")
    assert run.state("z") == "absent"
    run.rest()
    assert run.inputs("z") == {"b": 1}


def test_exit_from_two_cycles_taken_in_two_outer_rounds_fails() -> None:
    """q is 3 in round 1.1, 5 in round 1.2, 9 in round 2.1."""
    run = nested(Edge("q", "z", lambda value: value in {3, 9}))
    run.end("b", "o@1", "p@1.1", "q@1.1")
    assert run.inputs("z") == {"b": 1, "q": 3}
    run.end("p@1.2", "q@1.2", "r@1", "o@2", "p@2.1")
    assert run.run.status == "running"
    run.end("q@2.1")
    assert run.run.outcome().error == "GraphError"


def test_exit_from_an_inner_cycle_settles_once_for_each_outer_round() -> None:
    run = nested(Edge("q", "z", never))
    outcome = run.rest()
    assert outcome.status == "succeeded"
    taken = [key[2] for key in run.run.steps if key[1] == "r"]
    assert taken == [(1,), (2,)]


def test_back_edge_out_of_an_inner_cycle_turns_the_outer_one() -> None:
    """q hands back to o: no node of the outer cycle lies between."""
    links = [Edge("q", "p", lambda value: value == 3), Edge("q", "o", lambda value: value == 5)]
    run = Hand(graph("o p q", edges("START o p q"), links, Edge("q", "END", reach(6))))
    run.end("o@1", "p@1.1", "q@1.1", "p@1.2", "q@1.2")
    assert run.running == ["o@2"]
    assert run.end("o@2", "p@2.1", "q@2.1").run.outcome().output == 8


def test_open_map_keeps_a_cycle_from_being_over() -> None:
    nodes = [node("h", say([1, 2])), node("x"), node("b"), node("g"), node("z")]
    links = [Map("h", "x"), Gather("x", "g", into="xs"), Edge("b", "h", never), Edge("b", "z", never)]
    run = Hand(graph(nodes, edges("START h b", "START z END", "g END"), links))
    run.end("h@1", "b@1", "x#0")
    assert "z" not in run.running
    run.end("x#1")
    assert run.running == ["g", "z"]


def test_gather_outside_the_cycle_is_an_exit() -> None:
    nodes = [node("h"), node("m", say([5, 6])), node("x"), node("g")]
    links = [Map("m", "x", when=never), Edge("m", "h", never), Gather("x", "g", into="xs")]
    run = Hand(graph(nodes, edges("START h m END", "h g END"), links))
    run.end("h@1")
    assert run.running == ["m@1"]
    run.end("m@1")
    assert run.inputs("g") == {"h": 1}


def test_gather_out_of_a_cycle_taken_in_two_rounds_fails() -> None:
    nodes = [
        node("h"),
        node("m", lambda name, inputs, state: say([inputs["h"]])(name, inputs, state)),
        node("x"),
        node("g"),
    ]
    links = [Map("m", "x"), Gather("x", "g", into="xs"), Edge("h", "h2", under(3)), Edge("h2", "h")]
    run = Hand(graph([*nodes, node("h2")], edges("START h m END", "g END"), links))
    assert run.rest().error == "GraphError"


def test_gather_inside_a_cycle_belongs_to_its_round() -> None:
    nodes = [
        node("h"),
        node("m", lambda name, inputs, state: say([inputs["h"], 9])(name, inputs, state)),
        node("x"),
        node("g", say(0)),
    ]
    links = [Map("m", "x"), Gather("x", "g", into="xs"), Edge("g", "h", never), Edge("g", "END")]
    made = graph(nodes, edges("START h m"), links)
    assert [cycle.nodes for cycle in lay_out(made).regions[()].cycles] == [frozenset({"h", "m", "g"})]
    run = Hand(made).end("h@1", "m@1", "x#1", "x#0")
    assert run.inputs("g@1") == {"xs": [2, 10]}


def test_gather_may_close_a_cycle_at_the_source_of_its_map() -> None:
    def split(name: str, inputs: dict[str, object], state: object) -> object:
        return say([1, 2] if "xs" not in inputs else [3])(name, inputs, None)

    links = [Map("m", "x", when=lambda value: len(value) > 1), Gather("x", "m", into="xs")]
    links_out = [Edge("m", "END", lambda value: len(value) == 1)]
    run = Hand(graph([node("m", split), node("x")], edges("START m"), links, links_out))  # type: ignore[arg-type]
    run.end("m@1", "x#0", "x#1")
    assert run.inputs("m@2") == {"value": 0, "xs": [2, 3]}
    assert run.end("m@2").run.outcome().output == [3]


def test_side_node_runs_in_every_round_and_the_next_round_does_not_wait_for_it() -> None:
    nodes = [node("h"), node("x"), node("log", side=True), node("z")]
    links = [Edge("x", "h", under(4)), Edge("x", "END", reach(4)), Edge("x", "z", never)]
    run = Hand(graph(nodes, edges("START h x log", "START z END"), links))
    run.end("h@1", "x@1", "h@2", "x@2")
    assert run.running == ["log@1", "log@2"]
    run.end("log@2")
    assert run.state("z") == "absent"
    run.end("log@1")
    assert run.running == ["z"]


def test_side_node_with_sources_in_and_out_of_a_cycle_is_outside_it() -> None:
    nodes = [node("a"), node("h"), node("log", side=True)]
    made = graph(nodes, edges("START a h log", "a log"), Edge("h", "h", under(4)), Edge("h", "END", reach(4)))
    assert lay_out(made).regions[()].chain("log") == ()
    assert Hand(made).rest().error == "GraphError"


def test_side_node_of_an_item_runs_in_the_item() -> None:
    nodes = [node("s", say([1, 2])), node("x"), node("log", side=True), node("g")]
    run = Hand(graph(nodes, edges("START s", "x log", "g END"), Map("s", "x"), Gather("x", "g", into="xs")))
    run.end("s", "x#0", "x#1", "log#0")
    assert run.running == ["log#1"]
    run.end("log#1")
    assert run.running == ["g"]


def test_run_that_does_not_reach_its_end_is_an_error() -> None:
    run = Hand(graph("a b", edges("START a", "b END"), Edge("a", "b", never)))
    outcome = run.end("a").run.outcome()
    assert (outcome.status, outcome.error) == ("failed", "GraphError")


def test_output_is_the_first_declared_edge_into_end_that_was_taken() -> None:
    run = Hand(graph("s a b c", edges("START s", "b END", "a END", "c END", "s c", "s a"), Edge("s", "b", never)))
    outcome = run.end("s", "c", "a").run.outcome()
    assert outcome.output == 2
    assert outcome.outputs == {"a": 2, "c": 2}


def test_three_rounds_are_allowed_and_no_fourth() -> None:
    links = [Edge("x", "h"), Edge("x", "END", never)]
    run = Hand(graph("h x", edges("START h x"), links, max_rounds=3))
    outcome = run.rest()
    assert (outcome.status, outcome.error) == ("stopped", "LimitExceededError")
    assert outcome.rounds == {((), "h", ()): 3}
    assert run.state("x@3") == "succeeded"


def test_loop_that_needs_just_its_rounds_succeeds() -> None:
    links = [Edge("x", "h", under(6)), Edge("x", "END", reach(6))]
    assert Hand(graph("h x", edges("START h x"), links, max_rounds=3)).rest().status == "succeeded"


def test_round_limit_counts_every_activation_of_an_inner_cycle_anew() -> None:
    inner = [Edge("q", "p", lambda value: value in {3, 8}), Edge("q", "r", lambda value: value not in {3, 8})]
    outer = [Edge("r", "o", under(7)), Edge("r", "END", reach(7))]
    made = graph("o p q r", edges("START o p q"), inner, outer, max_rounds=2)
    outcome = Hand(made).rest()
    assert outcome.status == "succeeded"


def test_step_limit_is_exact() -> None:
    """B-024."""
    assert Hand(graph("a b c", edges("START a b c END"), max_steps=3)).rest().status == "succeeded"
    outcome = Hand(graph("a b c", edges("START a b c END"), max_steps=2)).rest()
    assert (outcome.status, outcome.error) == ("stopped", "LimitExceededError")
    assert len(outcome.started) == 2
