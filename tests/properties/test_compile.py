"""The compiler accepts and refuses what the reference does."""

from __future__ import annotations

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from graphrt import GraphError
from tests.properties.building import build, build_shape
from tests.properties.description import Graph
from tests.properties.graphs import Flavour, graphs, spoiled
from tests.properties.structure import InvalidDescriptionError, lay_out

CALM = Flavour(races=False, failures=False, wrong=False)


@settings(max_examples=40)
@given(graphs(Flavour()))
def test_every_drawn_workflow_compiles(graph: Graph) -> None:
    compiled = build(graph).compile()
    assert compiled.fingerprint == build(graph).compile().fingerprint


@settings(max_examples=80)
@given(st.sampled_from((CALM, Flavour())).flatmap(spoiled))
def test_compiler_refuses_what_the_reference_refuses_and_nothing_else(graph: Graph) -> None:
    workflow = build_shape(graph)
    try:
        lay_out(graph)
    except InvalidDescriptionError as wrong:
        event(str(wrong).split(":")[0])
        with pytest.raises(GraphError) as caught:
            workflow.compile()
        assert caught.value.hint
        assert any(node.name in str(caught.value) for node in graph.nodes)
    else:
        workflow.compile()
