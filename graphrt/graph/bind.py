"""The binding pass of the compiler: apply the six rules to every parameter of every node."""

from __future__ import annotations

from types import FunctionType
from typing import TYPE_CHECKING, Any

from graphrt.errors import GraphError
from graphrt.graph import reach, typecheck
from graphrt.graph.binding import Bind, Binder, How
from graphrt.graph.compiled import EdgeKind
from graphrt.graph.signature import MISSING, is_context, unresolved_hint

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from graphrt.graph.compiled import CompiledEdge, CompiledNode, Program
    from graphrt.graph.declared import NodeDecl
    from graphrt.graph.signature import NodeSignature, Param


def bind_all(program: Program) -> None:
    """Give every node its binder, and every edge what it has to carry for reading by name.

    Raises:
        GraphError: Nobody fills a parameter, or two edges would.
    """
    types = InputTypes(program)
    paths = reach.Paths(program)
    placed = {node: _place(program, node, types, paths) for node in program.nodes}
    entries = _entry_names(program, placed)
    for node in program.nodes:
        binds = [
            bind or _fill(program, node, param, types, entries, paths)
            for param, bind in zip(_signature(node).params, placed[node], strict=True)
        ]
        _check_into(program, node, types)
        for bind in binds:
            if bind.how is How.EDGES:
                reach.check_delivery(paths, node, bind)
        node.binder = Binder(node, binds)
        decl = node.decl
        assert decl is not None
        attempts = decl.retry is not None and decl.retry.attempts > 1
        keeps = bool(node.header_of) and any(b.how is How.EDGES and any(not e.back for e in b.edges) for b in binds)
        node.copies_inputs = attempts or bool(decl.fallback) or (keeps and bool(node.back_in))
    _carry(program)


class InputTypes:
    """What a graph's declared input offers by name, and what the annotations of its nodes say."""

    def __init__(self, program: Program) -> None:
        declared = program.decl.input
        self.is_context = typecheck.remembered(is_context)
        self.whole: Any = declared
        self.parts: Mapping[str, Any] = {}
        self.by_name = isinstance(declared, dict)
        if isinstance(declared, dict):
            self.parts = declared
            program.input_names = tuple(declared)
        elif isinstance(declared, type) and hasattr(declared, "model_fields"):
            self.parts = {name: field.annotation for name, field in declared.model_fields.items()}


def _signature(node: CompiledNode) -> NodeSignature:
    decl = node.decl
    assert decl is not None
    return decl.signature


def _in_edges(node: CompiledNode) -> Sequence[CompiledEdge]:
    if not node.back_in:
        return node.forward_in
    return sorted((*node.forward_in, *node.back_in), key=lambda e: e.index)


def _place(program: Program, node: CompiledNode, types: InputTypes, paths: reach.Paths) -> list[Bind | None]:
    """Apply rules 1 to 3."""
    params = _signature(node).params
    edges = _in_edges(node)
    binds: list[Bind | None] = []
    left = list(edges)
    for param in params:
        bind = None
        if types.is_context(param.annotation):
            bind = Bind(param, How.CONTEXT)
        elif program.state is not None and param.annotation is program.decl.state:
            bind = Bind(param, How.STATE)
        else:
            named = tuple(e for e in edges if e.name == param.name)
            if named:
                bind = Bind(param, How.EDGES)
                bind.edges = named
                _check_alternatives(paths, node, param, named)
                left = [e for e in left if e not in named]
        binds.append(bind)
    for i, param in enumerate(params):
        if binds[i] is None:
            usable = tuple(e for e in left if not _by_rule_four(e, param, types, program))
            if usable and not _valueless(program, usable, param, types, paths, node):
                bind = Bind(param, How.EDGES)
                bind.edges = usable
                _check_alternatives(paths, node, param, usable)
                binds[i] = bind
            break
    return binds


def _check_into(program: Program, node: CompiledNode, types: InputTypes) -> None:
    """Refuse an `into=` that names no parameter of a function that takes values."""
    named = [e for e in _in_edges(node) if e.decl.into is not None]
    if not named or node.decl is None or not isinstance(node.decl.target, FunctionType):
        return
    state = program.decl.state
    known = [
        p.name
        for p in _signature(node).params
        if not types.is_context(p.annotation) and (state is None or p.annotation is not state)
    ]
    for edge in named:
        into = edge.decl.into
        if into is None or into in known or not known:
            continue
        import difflib

        close = difflib.get_close_matches(into, known, n=1, cutoff=0.6)
        meant = f"did you mean {close[0]!r}? " if close else ""
        written = edge.members[0] if edge.members else edge
        raise GraphError(
            f"edge {written} has into={into!r}, and node {node.name!r} has no such parameter",
            hint=f"{meant}parameters that take a value: {', '.join(known)}",
        )


def _by_rule_four(edge: CompiledEdge, param: Param, types: InputTypes, program: Program) -> bool:
    """Whether START's edge brings this parameter a part of the input rather than all of it."""
    if edge.src is not program.start or param.name not in types.parts or edge.kind is EdgeKind.MAP:
        return False
    return types.by_name or not typecheck.fits(types.whole, param.annotation)


def _valueless(
    program: Program,
    edges: Sequence[CompiledEdge],
    param: Param,
    types: InputTypes,
    paths: reach.Paths,
    node: CompiledNode,
) -> bool:
    """Whether the edges bring nothing (sources declared `-> None`) and another rule has something to bring."""
    if not all(e.kind is EdgeKind.PLAIN and e.src.decl and e.src.decl.signature.returns_none for e in edges):
        return False
    known = param.name in types.parts or param.default is not MISSING
    return known or _upstream(program, node, param, paths) is not None or param.name in _entry_params(program)


def _entry_params(program: Program) -> set[str]:
    return {
        e.dst.decl.signature.params[0].name
        for e in program.start.out
        if e.dst.decl is not None and e.dst.decl.signature.params
    }


def _check_alternatives(paths: reach.Paths, node: CompiledNode, param: Param, edges: Sequence[CompiledEdge]) -> None:
    """Refuse two edges of which nothing decides that only one delivers; what conditions decide is seen in the run."""
    if len(edges) == 1 or node.quorum == 1:
        return
    sure = [e for e in edges if paths.unconditional(e)]
    for i, a in enumerate(sure):
        for b in sure[i + 1 :]:
            if a.back != b.back:
                continue
            one, other = (a.name, b.name) if a.name != b.name else (a.src.name, b.src.name)
            raise GraphError(
                f"two edges bring a value for parameter {param.name!r} of node {node.name!r}: {a} and {b}",
                hint=f"name a parameter for each: {one!r} and {other!r}, or use into= on the edges",
            )


def _entry_names(program: Program, placed: Mapping[CompiledNode, Sequence[Bind | None]]) -> set[str]:
    """Names of the parameters of entry nodes that take the whole input."""
    return {
        bind.name
        for edge in program.start.out
        if edge.kind is EdgeKind.PLAIN
        for bind in placed.get(edge.dst, ())
        if bind is not None and bind.how is How.EDGES and edge in bind.edges
    }


def _fill(
    program: Program,
    node: CompiledNode,
    param: Param,
    types: InputTypes,
    entries: set[str],
    paths: reach.Paths,
) -> Bind:
    """Apply rules 4 to 6."""
    if param.name in types.parts or param.name in entries:
        bind = Bind(param, How.INPUT)
        program.reads_input = True
        bind.part = param.name if param.name in types.parts else None
        return bind
    source = _upstream(program, node, param, paths)
    if source is not None:
        bind = Bind(param, How.UPSTREAM)
        bind.source = source
        source.read_by_name = True
        return bind
    if param.default is not MISSING:
        return Bind(param, How.DEFAULT)
    raise _nobody(program, node, param, types, entries, paths)


def _upstream(program: Program, node: CompiledNode, param: Param, paths: reach.Paths) -> CompiledNode | None:
    source = program.by_name.get(param.name)
    if source is None or source is node or not paths.around(source, node) or not paths.always_before(source, node):
        return None
    return source


def _nobody(
    program: Program,
    node: CompiledNode,
    param: Param,
    types: InputTypes,
    entries: set[str],
    paths: reach.Paths,
) -> GraphError:
    names = [e.name for e in _in_edges(node) if e.src is not program.start]
    upstream = [
        n.name for n in program.nodes if n is not node and paths.around(n, node) and paths.always_before(n, node)
    ]
    known = list(dict.fromkeys([*names, *types.parts, *sorted(entries), *upstream]))
    import difflib

    close = difflib.get_close_matches(param.name, known, n=1, cutoff=0.6)
    source = program.by_name.get(param.name)
    if close:
        hint = f"did you mean {close[0]!r}? "
    elif source is not None and source is not node:
        hint = (
            f"{source.name!r} is a node, but not every way from START to {node.name!r} leaves it normally; "
            "add an edge, or a default. "
        )
    else:
        hint = ""
    unresolved = unresolved_hint(param.annotation)
    if unresolved is not None:
        hint += f"{unresolved}; "
    offer = f"values to be had here: {', '.join(known)}" if known else "no values are to be had here"
    return GraphError(
        f"nobody fills parameter {param.name!r} of node {node.name!r}",
        hint=f"{hint}{offer}",
    )


# ---------------------------------------------------------------- reading by name


def _carry(program: Program) -> None:
    """Let each node between a source and its reader keep the source's step at hand."""
    wanted: dict[CompiledNode, dict[CompiledNode, None]] = {}
    todo: list[tuple[CompiledNode, CompiledNode]] = []
    for node in program.nodes:
        todo.extend((node, bind.source) for bind in node.binder.binds if bind.source is not None)
    while todo:
        node, source = todo.pop()
        mine = wanted.setdefault(node, {})
        if source in mine:
            continue
        mine[source] = None
        todo.extend((e.src, source) for e in _in_edges(node) if e.src is not source)
    for node, sources in wanted.items():
        node.carry = tuple(sources)
        for bind in node.binder.binds:
            if bind.source is not None:
                bind.place = node.carry.index(bind.source)
    for node, sources in wanted.items():
        for edge in _in_edges(node):
            edge.carry = tuple(-1 if s is edge.src else edge.src.carry.index(s) for s in sources)


def fallback_inputs(decl: NodeDecl, signature: NodeSignature) -> list[str]:
    """Say, for each parameter of a fallback function, which input of the node it takes; "" for the exception.

    Raises:
        GraphError: The function wants something the node does not have.
    """
    names = [p.name for p in decl.signature.params if not p.is_context]
    plan: list[str] = []
    for param in signature.params:
        annotation = param.annotation
        if param.is_context:
            plan.append("ctx")
        elif param.name in names:
            plan.append(param.name)
        elif param.name == "error" or (isinstance(annotation, type) and issubclass(annotation, BaseException)):
            plan.append("")
        else:
            free = [n for n in names if n not in plan]
            if not free and param.default is not MISSING:
                continue
            if not free:
                raise GraphError(
                    f"fallback of node {decl.name!r} wants parameter {param.name!r}, which the node does not have",
                    hint=f"it may take {', '.join([*names, 'error'])}",
                )
            plan.append(free[0])
    return plan
