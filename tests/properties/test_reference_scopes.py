"""The reference, checked against examples worked out by hand: maps, failure, state (E9 to E14, E23)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from tests.properties.by_hand import (
    LAST,
    NOTES,
    TOTAL,
    Edge,
    Gather,
    Hand,
    Map,
    Node,
    count,
    edges,
    fail,
    graph,
    never,
    node,
    only_if,
    reach,
    say,
    under,
)
from tests.properties.description import Bang, Boom, Branch, Crash, Failed, Key, Made, State
from tests.properties.structure import InvalidDescriptionError, lay_out

ITEMS = [node("s", say([10, 20, 30])), node("x"), node("g")]


def test_gather_keeps_the_order_of_items_whatever_ends_first() -> None:
    run = Hand(graph(ITEMS, edges("START s", "g END"), Map("s", "x"), Gather("x", "g", into="xs")))
    run.end("s", "x#2", "x#0", "x#1")
    assert run.inputs("x#1") == {"s": 20}
    assert run.inputs("g") == {"xs": [11, 21, 31]}


def test_empty_map_is_gathered() -> None:
    nodes = [node("s", say([])), node("x"), node("g")]
    run = Hand(graph(nodes, edges("START s", "g END"), Map("s", "x"), Gather("x", "g", into="xs")))
    assert run.end("s").inputs("g") == {"xs": []}


def test_map_not_taken_skips_its_gather() -> None:
    links = [Map("s", "x", when=never), Gather("x", "g", into="xs")]
    run = Hand(graph(ITEMS, edges("START s g END"), links))
    assert run.end("s").inputs("g") == {"s": [10, 20, 30]}


def test_item_whose_edges_were_all_skipped_is_left_out() -> None:
    nodes = [node("s", say([1, 2, 3])), node("x"), node("y"), node("g")]
    links = [Map("s", "x"), Edge("x", "y", lambda value: value != 3), Gather("y", "g", into="ys")]
    run = Hand(graph(nodes, edges("START s", "g END"), links))
    run.end("s", "x#0", "x#1", "x#2", "y#2", "y#0")
    assert run.inputs("g") == {"ys": [3, 5]}


def test_item_contributes_the_one_gather_edge_it_took() -> None:
    nodes = [node("s", say([1, 2])), node("x"), node("a"), node("b", say("b")), node("g")]
    links = [
        Map("s", "x"),
        Branch("x", Key(2), ((0, "a"), (1, "b"))),
        Gather("a", "g", into="all"),
        Gather("b", "g", into="all"),
    ]
    run = Hand(graph(nodes, edges("START s", "g END"), links))
    run.end("s", "x#0", "x#1")
    assert run.running == ["a#0", "b#1"]
    assert run.end("b#1", "a#0").inputs("g") == {"all": [3, "b"]}


def test_item_that_takes_two_gather_edges_of_one_gather_fails() -> None:
    nodes = [node("s", say([1])), node("x"), node("y"), node("g")]
    links = [Map("s", "x"), Gather("x", "g", into="all"), Gather("y", "g", into="all")]
    outcome = Hand(graph(nodes, edges("START s", "x y", "g END"), links)).rest()
    assert (outcome.status, outcome.error) == ("failed", "GraphError")


def test_two_gathers_of_one_map_both_get_every_item() -> None:
    nodes = [node("s", say([1, 2])), node("x"), node("y"), node("g"), node("k")]
    links = [Map("s", "x"), Gather("x", "g", into="xs"), Gather("y", "k", into="ys")]
    run = Hand(graph(nodes, edges("START s", "x y", "g END", "k END"), links))
    run.end("s", "x#0", "x#1")
    assert run.state("g") == "absent"
    run.end("y#0", "y#1")
    assert (run.inputs("g"), run.inputs("k")) == ({"xs": [2, 3]}, {"ys": [3, 4]})


def test_maps_nest() -> None:
    nodes = [
        node("s", say([1, 2])),
        node("t", lambda name, inputs, state: say([inputs["s"], 7])(name, inputs, state)),
        node("x"),
        node("g", lambda name, inputs, state: say(sum(inputs["xs"]))(name, inputs, state)),
        node("z"),
    ]
    links = [Map("s", "t"), Map("t", "x"), Gather("x", "g", into="xs"), Gather("g", "z", into="gs")]
    run = Hand(graph(nodes, edges("START s", "z END"), links))
    run.end("s", "t#1", "x#1#1", "x#1#0", "g#1", "t#0", "x#0#0", "x#0#1", "g#0")
    assert run.inputs("z") == {"gs": [10, 11]}


def test_map_body_may_hold_a_cycle() -> None:
    nodes = [node("s", say([0, 3])), node("x"), node("y"), node("g")]
    links = [Map("s", "x"), Edge("y", "x", under(4)), Gather("y", "g", into="ys")]
    outcome = Hand(graph(nodes, edges("START s", "x y", "g END"), links)).rest()
    assert (outcome.status, outcome.error) == (
        "failed",
        "GraphError",
    )  # item 0 leaves its cycle in two rounds
    nodes = [node("s", say([0, 3])), node("x"), node("y"), node("z"), node("g")]
    links = [Map("s", "x"), Edge("y", "x", under(4)), Edge("y", "z", reach(4)), Gather("z", "g", into="zs")]
    run = Hand(graph(nodes, edges("START s", "x y", "g END"), links))
    run.end("s", "x@1#0", "y@1#0", "x@2#0", "y@2#0", "x@1#1", "y@1#1")
    assert run.end("z#1", "z#0").inputs("g") == {"zs": [5, 6]}


def test_map_over_the_input_of_the_run() -> None:
    nodes = [node("x"), node("g")]
    run = Hand(graph(nodes, edges("g END"), Map("START", "x"), Gather("x", "g", into="xs")), value=[4, 5])
    assert run.end("x#1", "x#0").inputs("g") == {"xs": [5, 6]}


def test_gather_may_go_straight_to_the_end() -> None:
    nodes = [node("s", say([1, 2])), node("x")]
    outcome = Hand(graph(nodes, edges("START s"), Map("s", "x"), Gather("x", "END"))).rest()
    assert (outcome.output, outcome.outputs) == ([2, 3], {"x": [2, 3]})


def test_borders_of_a_map_are_checked() -> None:
    for link in (Edge("x", "z"), Edge("z", "x"), Gather("s", "z")):
        made = graph("s x g z", edges("START s z END", "g END"), Map("s", "x"), Gather("x", "g", "xs"), link)
        with pytest.raises(InvalidDescriptionError):
            lay_out(made)


def odd(error: Exception) -> Node:
    """Counts, and fails on the item 20."""
    return node("x", only_if(lambda value: value == 21, error))


def mapped(map_options: dict[str, object], *more: Node) -> Hand:
    nodes = [node("s", say([10, 20, 30])), odd(Boom("x")), node("g"), *more]
    links = [Map("s", "x", **map_options), Gather("x", "g", into="xs")]  # type: ignore[arg-type]
    return Hand(graph(nodes, edges("START s", "g END"), links))


def test_failed_item_is_left_out() -> None:
    run = mapped({"on_error": "skip"}).end("s", "x#1", "x#0", "x#2")
    assert run.inputs("g") == {"xs": [11, 31]}
    assert run.state("x#1") == "failed"


def test_failed_item_is_collected_in_its_place() -> None:
    run = mapped({"on_error": "collect"}).end("s", "x#1", "x#0", "x#2")
    assert run.inputs("g") == {"xs": [11, Failed(), 31]}


def test_failed_item_fails_the_run_and_its_siblings_are_cancelled() -> None:
    """B-028."""
    run = mapped({}).end("s", "x#1")
    assert (run.state("x#0"), run.state("x#2")) == ("cancelled", "cancelled")
    assert run.run.outcome().error == "Boom"


def test_too_few_successes_raise_the_first_failure() -> None:
    assert mapped({"on_error": "skip", "min_success": 2}).rest().status == "succeeded"
    outcome = mapped({"on_error": "collect", "min_success": 3}).rest()
    assert (outcome.status, outcome.error) == ("failed", "Boom")


def test_too_few_items_fail_even_when_none_failed() -> None:
    nodes = [node("s", say([])), node("x"), node("g")]
    links = [Map("s", "x", min_success=1), Gather("x", "g", into="xs")]
    outcome = Hand(graph(nodes, edges("START s", "g END"), links)).rest()
    assert (outcome.status, outcome.error) == ("failed", "GraphError")


def test_item_left_out_does_not_count_as_a_success() -> None:
    nodes = [node("s", say([1, 2])), node("x"), node("y"), node("g")]
    links = [Map("s", "x", min_success=2), Edge("x", "y", reach(3)), Gather("y", "g", into="ys")]
    assert Hand(graph(nodes, edges("START s", "g END"), links)).rest().error == "GraphError"


def test_failing_item_cancels_what_lives_in_its_scope_alone() -> None:
    nodes = [
        node("s", say([1, 2])),
        node("x"),
        node("y", only_if(lambda value: value == 3, Boom("y"))),
        node("w"),
        node("z"),
        node("g"),
    ]
    links = [Map("s", "x", on_error="skip"), Gather("z", "g", into="zs")]
    run = Hand(graph(nodes, edges("START s", "x y z", "x w z", "g END"), links))
    run.end("s", "x#0", "x#1", "y#0")
    assert run.state("w#0") == "cancelled"
    assert run.running == ["w#1", "y#1"]
    run.end("w#1", "y#1", "z#1")
    assert run.inputs("g") == {"zs": [5]}


def test_inner_failure_is_handled_by_the_nearest_map() -> None:
    nodes = [
        node("s", say([1, 2])),
        node("t", lambda name, inputs, state: say([inputs["s"], 7])(name, inputs, state)),
        node("x", only_if(lambda value: value == 2, Boom("x"))),
        node("g"),
        node("z"),
    ]
    inner = [Map("t", "x"), Gather("x", "g", into="xs")]
    outer = [Map("s", "t", on_error="collect"), Gather("g", "z", into="gs")]
    run = Hand(graph(nodes, edges("START s", "z END"), outer, inner))
    run.end("s", "t#0", "t#1", "x#0#0")
    assert run.state("x#0#1") == "cancelled"
    run.end("x#1#0", "x#1#1", "g#1")
    assert run.inputs("z") == {"gs": [Failed(), 1]}


def test_error_edge_is_taken_alone_and_the_error_is_its_value() -> None:
    """B-030."""
    error = Boom("a")
    links = [
        Edge("a", "h1", errors=(Bang,)),
        Edge("a", "h2", errors=(Boom,)),
        Edge("a", "h3", errors=(Exception,)),
    ]
    nodes = [node("a", fail(error)), node("b"), node("h1"), node("h2"), node("h3"), node("z")]
    run = Hand(graph(nodes, edges("START a z END", "START b z", "h1 z", "h2 z", "h3 z"), links))
    run.end("a")
    assert run.running == ["b", "h2"]
    assert run.inputs("h2") == {"a": error}
    run.end("h2", "b")
    assert sorted(run.inputs("z")) == ["b", "h2"]
    assert run.rest().status == "succeeded"


def test_error_edge_asks_its_condition() -> None:
    links = [Edge("a", "h1", lambda error: str(error) == "no", (Boom,)), Edge("a", "h2", None, (Boom,))]
    run = Hand(
        graph(
            [node("a", fail(Boom("yes"))), node("h1"), node("h2")],
            edges("START a END", "h1 END", "h2 END"),
            links,
        )
    )
    assert run.end("a").running == ["h2"]


def test_error_edges_of_a_node_that_succeeds_are_skipped() -> None:
    run = Hand(graph("a h", edges("START a END", "h END"), Edge("a", "h", errors=(Exception,))))
    outcome = run.end("a").run.outcome()
    assert outcome.outputs == {"a": 1}
    assert run.state("h") == "never"


def test_error_edge_comes_before_the_policy_and_skip_skips() -> None:
    nodes = [node("a", fail(Crash("a")), on_error="skip"), node("b"), node("h"), node("z")]
    run = Hand(graph(nodes, edges("START a z END", "START b z", "h z"), Edge("a", "h", errors=(Boom,))))
    run.end("a")
    assert (run.state("a"), run.state("h")) == ("failed", "never")
    assert run.end("b").inputs("z") == {"b": 1}


def test_failure_without_a_handler_cancels_the_siblings() -> None:
    """AC-C07."""
    outcome = Hand(graph([node("a", fail(Boom("a"))), node("b"), node("z")], edges("START a z END", "START b z"))).end(
        "a"
    )
    assert outcome.state("b") == "cancelled"
    assert outcome.run.outcome().error == "Boom"


def test_error_edge_may_close_a_cycle() -> None:
    nodes = [node("h"), node("x", only_if(lambda value: value == 2, Boom("x")))]
    run = Hand(graph(nodes, edges("START h x END"), Edge("x", "h", errors=(Boom,))))
    run.end("h@1", "x@1")
    assert sorted(run.inputs("h@2")) == ["value", "x"]


def test_condition_that_raises_is_a_failure_of_the_source() -> None:
    def wrong(value: object) -> bool:
        raise Crash("condition")

    nodes = [node("a", count, on_error="skip"), node("b"), node("z")]
    made = graph(nodes, edges("START a", "START b z END"), Edge("a", "z", when=wrong))
    run = Hand(made).end("a", "b")
    assert run.state("a") == "failed"
    assert run.inputs("z") == {"b": 1}


def test_branch_takes_one_edge_or_the_default() -> None:
    branch = Branch("a", Key(4), ((0, "b"), (1, "c")), "d")
    run = Hand(
        graph(
            [node("a", say(1)), node("b"), node("c"), node("d")],
            edges("START a", "b END", "c END", "d END"),
            branch,
        )
    )
    assert run.end("a").running == ["c"]
    run = Hand(
        graph(
            [node("a", say(3)), node("b"), node("c"), node("d")],
            edges("START a", "b END", "c END", "d END"),
            branch,
        )
    )
    assert run.end("a").running == ["d"]


def test_branch_without_a_match_is_a_failure_of_the_source() -> None:
    branch = Branch("a", Key(4), ((0, "b"), (1, "c")))
    links = [Edge("a", "h", errors=(Exception,))]
    nodes = [node("a", say(3)), node("b"), node("c"), node("h")]
    run = Hand(graph(nodes, edges("START a", "b END", "c END", "h END"), branch, links))
    run.end("a")
    assert run.state("a") == "failed"
    assert run.running == ["h"]


def inner_loop(limit: int) -> Node:
    links = [Edge("p", "p", under(limit)), Edge("p", "END", reach(limit))]
    return node("sub", graph=graph("p", edges("START p"), links, max_rounds=3))


def test_graph_as_a_node_gives_its_output() -> None:
    run = Hand(graph([node("a"), inner_loop(4), node("z")], edges("START a sub z END")))
    run.end("a", "sub/p@1", "sub/p@2", "sub/p@3")
    assert run.inputs("z") == {"sub": 4}


def test_round_limit_inside_is_an_ordinary_failure_of_the_step() -> None:
    run = Hand(
        graph(
            [node("a"), inner_loop(9), node("h")],
            edges("START a sub END", "h END"),
            Edge("sub", "h", errors=(Exception,)),
        )
    )
    run.end("a", "sub/p@1", "sub/p@2", "sub/p@3")
    assert run.state("sub") == "failed"
    assert run.running == ["h"]
    outcome = Hand(graph([node("a"), inner_loop(9)], edges("START a sub END"))).rest()
    assert (outcome.status, outcome.error) == ("failed", "LimitExceededError")


def test_round_limit_inside_a_map_is_the_failure_of_that_item() -> None:
    nodes = [node("s", say([1, 5])), node("x"), node("y"), node("g")]
    links = [
        Map("s", "x", on_error="skip"),
        Edge("x", "x", under(6)),
        Edge("x", "y", reach(6)),
        Gather("y", "g", "ys"),
    ]
    run = Hand(graph(nodes, edges("START s", "g END"), links, max_rounds=3))
    run.end("s", "x@1#0", "x@2#0", "x@3#0", "x@1#1", "y#1")
    assert run.inputs("g") == {"ys": [7]}


def test_step_limit_counts_inner_steps_and_no_policy_absorbs_it() -> None:
    nodes = [node("s", say([1, 2])), node("x"), node("g")]
    links = [Map("s", "x", on_error="skip"), Gather("x", "g", into="xs")]
    outcome = Hand(graph(nodes, edges("START s", "g END"), links, max_steps=2)).rest()
    assert (outcome.status, len(outcome.started)) == ("stopped", 2)
    assert Hand(graph(nodes, edges("START s", "g END"), links, max_steps=4)).rest().status == "succeeded"
    sub = node("sub", graph=graph("p", edges("START p END")))
    assert Hand(graph([sub], edges("START sub END"), max_steps=2)).rest().status == "succeeded"
    assert Hand(graph([sub], edges("START sub END"), max_steps=1)).rest().status == "stopped"


def test_node_policies_do_not_catch_the_graphs_own_errors_but_a_map_does() -> None:
    nodes = [
        node("h", count, on_error="skip"),
        node("x", count, on_error="skip"),
        node("z", count, on_error="skip"),
    ]
    links = [Edge("x", "h", under(4)), Edge("x", "e", errors=(Exception,)), Edge("e", "END")]
    made = graph([*nodes, node("e")], edges("START h x z END"), links)
    assert Hand(made).rest().error == "GraphError"
    nodes = [node("s", say([0, 9])), node("x"), node("y"), node("g")]
    items = [Map("s", "x", on_error="collect"), Edge("x", "x", under(2)), Gather("y", "g", into="ys")]
    run = Hand(graph(nodes, edges("START s", "x y", "g END"), items))
    run.end("s", "x@1#0", "x@2#0", "x@1#1", "y#1")
    assert run.inputs("g") == {"ys": [Failed(), 11]}


STATE = State("Shared", (LAST, TOTAL, NOTES))


def test_state_follows_the_edges_and_folds_in_declaration_order() -> None:
    nodes = [
        node("a", say(1, last=1, notes=[1])),
        node("b", say(2, notes=[2], total=2)),
        node("c", say(3, notes=[3], total=3)),
        node("z"),
    ]
    run = Hand(graph(nodes, edges("START a", "a c z END", "a b z"), state=STATE))
    outcome = run.end("a", "b", "c", "z").run.outcome()
    assert outcome.state == {"last": 1, "total": 5, "notes": [1, 3, 2]}


def test_two_writes_of_a_field_without_a_reducer_conflict_where_they_meet() -> None:
    nodes = [
        node("a", say(1, last=1)),
        node("b", say(2, last=2)),
        node("z", count, on_error="skip"),
        node("y"),
    ]
    run = Hand(graph(nodes, edges("START a z END", "START b z y END"), state=STATE))
    outcome = run.end("a", "b").run.outcome()
    assert (outcome.status, outcome.error, run.state("z")) == ("failed", "StateConflictError", "failed")


def test_write_downstream_of_all_others_is_no_conflict() -> None:
    nodes = [node("a", say(1, last=1)), node("b", say(2, last=2)), node("z")]
    outcome = Hand(graph(nodes, edges("START a b z END", "a z"), state=STATE)).rest()
    assert outcome.state == {"last": 2, "total": 0, "notes": []}


def test_writes_that_meet_at_the_end_conflict_there() -> None:
    nodes = [node("a", say(1, last=1)), node("b", say(2, last=2))]
    assert Hand(graph(nodes, edges("START a END", "START b END"), state=STATE)).rest().error == "StateConflictError"


def test_writes_of_items_are_merged_by_index_and_items_left_out_bring_none() -> None:
    work = lambda name, inputs, state: say(inputs["s"], notes=[inputs["s"]])(name, inputs, state)  # noqa: E731
    nodes = [
        node("s", say([1, 2, 3], total=9)),
        node("x", work),
        node("y", only_if(lambda value: value == 3, Boom("y"))),
        node("g"),
    ]
    links = [Map("s", "x", on_error="collect"), Gather("y", "g", into="ys")]
    run = Hand(graph(nodes, edges("START s", "x y", "g END"), links, state=STATE))
    outcome = run.end("s", "x#2", "x#0", "x#1", "y#1", "y#2", "y#0", "g").run.outcome()
    assert outcome.state == {"last": 0, "total": 9, "notes": [1, 3]}


def test_dropped_arrivals_and_failed_steps_bring_no_writes() -> None:
    nodes = [node("a", say(1, total=1)), node("b", say(1, total=10)), node("j", count, join="any")]
    outcome = Hand(graph(nodes, edges("START a j END", "START b j"), state=STATE)).end("b", "a", "j").run.outcome()
    assert outcome.state == {"last": 0, "total": 10, "notes": []}


def test_writes_in_a_loop_add_up_once_each() -> None:
    work = lambda name, inputs, state: say(1 + max(inputs.values()), total=1)(name, inputs, state)  # noqa: E731
    nodes = [node("h", work), node("x", work)]
    links = [Edge("x", "h", under(6)), Edge("x", "END", reach(6))]
    outcome = Hand(graph(nodes, edges("START h x"), links, state=STATE)).rest()
    assert outcome.state == {"last": 0, "total": 6, "notes": []}


def test_state_of_a_graph_as_a_node_is_shared_when_the_model_is_the_same() -> None:
    inner = graph([node("p", say(1, total=5))], edges("START p END"), state=STATE)
    nodes = [node("a", say(1, total=1)), node("sub", graph=inner), node("z", say(1, total=100))]
    outcome = Hand(graph(nodes, edges("START a sub z END"), state=STATE)).rest()
    assert outcome.state == {"last": 0, "total": 106, "notes": []}
    other = graph([node("p", say(1, total=5))], edges("START p END"), state=State("Own", (TOTAL,)))
    nodes[1] = node("sub", graph=other)
    outcome = Hand(graph(nodes, edges("START a sub z END"), state=STATE)).rest()
    assert outcome.state == {"last": 0, "total": 101, "notes": []}


def test_two_writes_conflict_at_a_side_node_too() -> None:
    nodes = [
        node("a", say(1, last=1)),
        node("b", say(2, last=2)),
        node("log", side=True),
        node("z"),
    ]
    run = Hand(graph(nodes, edges("START a log", "START b log", "a z END", "b END"), state=STATE))
    assert run.end("a", "b").run.outcome().error == "StateConflictError"


def test_writes_upstream_of_a_failure_travel_along_its_error_edge_and_its_own_do_not() -> None:
    def work(name: str, inputs: Mapping[str, Any], state: Mapping[str, Any] | None) -> Made:
        return Made("no list", {"total": 10})

    nodes = [node("a", say(1, total=1)), node("b", work), node("x"), node("g"), node("h")]
    links = [Map("b", "x"), Gather("x", "g", into="xs"), Edge("b", "h", errors=(Exception,))]
    outcome = Hand(graph(nodes, edges("START a b", "g END", "h END"), links, state=STATE)).rest()
    assert outcome.state == {"last": 0, "total": 1, "notes": []}


def test_conflict_inside_an_item_is_that_items_failure() -> None:
    nodes = [
        node("s", say([1])),
        node("x"),
        node("a", say(1, last=1)),
        node("b", say(2, last=2)),
        node("y"),
        node("g", say("end")),
    ]
    links = [Map("s", "x", on_error="collect"), Gather("y", "g", into="ys")]
    run = Hand(graph(nodes, edges("START s", "x a y", "x b y", "g END"), links, state=STATE))
    run.end("s", "x#0", "a#0", "b#0")
    assert run.inputs("g") == {"ys": [Failed()]}


def test_error_edge_takes_the_error_of_a_condition() -> None:
    def wrong(value: object) -> bool:
        raise Bang("condition")

    links = [Edge("a", "b", wrong), Edge("a", "h", errors=(Bang,))]
    run = Hand(graph("a b h", edges("START a", "b END", "h END"), links)).end("a")
    assert (run.state("a"), run.state("b"), run.running) == ("failed", "never", ["h"])


def test_cancelled_graph_stops_all_that_is_in_it() -> None:
    inner = graph("p q r", edges("START p r END", "START q r"))
    nodes = [node("a"), node("sub", graph=inner), node("j", join="any", cancel_rest=True)]
    run = Hand(graph(nodes, edges("START a j END", "START sub j"))).end("sub/p", "a")
    assert (run.state("sub"), run.state("sub/q")) == ("cancelled", "cancelled")
    assert run.rest().outputs == {"j": 2}


def test_gather_closes_a_cycle_at_an_any_header() -> None:
    """The list of round 1 comes before x has ended: round 2 starts with it alone."""
    nodes = [node("h", say([1]), join="any"), node("x"), node("i")]
    links = [
        Map("h", "i"),
        Gather("i", "h", into="items"),
        Edge("h", "x"),
        Edge("x", "h", never),
        Edge("x", "END", lambda value: value == 2),
    ]
    run = Hand(graph(nodes, edges("START h"), links, max_rounds=2)).end("h@1", "i#0")
    assert run.inputs("h@2") == {"value": 0, "items": [2]}
    assert run.rest().status == "stopped"


def test_quorum_cancels_the_rest_when_it_is_reached() -> None:
    nodes = [node("a"), node("b"), node("c"), node("j", join=2, cancel_rest=True)]
    run = Hand(graph(nodes, edges("START a j END", "START b j", "START c j"))).end("c", "a")
    assert (run.state("b"), run.inputs("j")) == ("cancelled", {"a": 1, "c": 1})


def test_item_left_out_of_one_gather_may_be_in_another() -> None:
    nodes = [node("s", say([1, 2])), node("x"), node("y"), node("z"), node("g")]
    links = [
        Map("s", "x"),
        Edge("x", "y", when=lambda value: value == 2),
        Edge("x", "z", when=lambda value: value == 3),
        Gather("y", "g", into="ys"),
        Gather("z", "g", into="zs"),
    ]
    run = Hand(graph(nodes, edges("START s", "g END"), links)).end("s", "x#1", "x#0", "z#1", "y#0")
    assert run.inputs("g") == {"ys": [3], "zs": [4]}
