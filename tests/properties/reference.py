"""A slow interpreter of the engine's rules, to judge the engine by.

It is written from the contract alone and knows nothing of the engine. After everything that happens it looks
at every node and every round again until nothing more follows. Rule numbers (E1 and so on) stand where the
rule is decided.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

from tests.properties.description import (
    END,
    START,
    Failed,
    Graph,
    Made,
    Map,
    Node,
    Outcome,
    ScopeKey,
    StepEnd,
    StepKey,
    find_branch,
)
from tests.properties.records import (
    AT_ONCE,
    BEHIND_A_LOSER,
    GraphError,
    GraphTypeError,
    History,
    LimitExceededError,
    MapRun,
    Rounds,
    Scope,
    StateConflictError,
    Step,
    StepsExceededError,
    Take,
    Write,
    conflict,
    fold_state,
    merge,
)
from tests.properties.structure import Arc, Cycle, Layout, lay_out

Chooser = Callable[[Sequence[StepKey]], StepKey]


class Interpreter:
    """One run, a step at a time."""

    def __init__(self, graph: Graph, value: Any) -> None:
        self.graph = graph
        self.status: Literal["running", "succeeded", "failed", "stopped"] = "running"
        self.error: Exception | None = None
        self.steps: dict[StepKey, Step] = {}
        self.doubts: set[str] = set()
        self.layouts: dict[int, Layout] = {}
        self.scopes: list[Scope] = []
        self.touched: list[Scope] = []
        """Scopes that the latest event can concern: its own, those around it, and those it opened."""
        self.started = 0
        self.root: Scope | None = None
        try:
            self.root = self._open((), self._layout(graph), (), Take(value, (), ()), None)
            self._settle()
        except StepsExceededError as error:
            self._stop(error)

    # -- what a caller does -------------------------------------------------------------------------

    def running(self) -> list[StepKey]:
        """Steps whose function runs now, in a fixed order."""
        return sorted(key for key, step in self.steps.items() if step.state == "running" and step.inner is None)

    def finish(self, key: StepKey) -> None:
        """Let a running step end as its function says."""
        scope, step = next((one, s) for one in self.scopes for s in one.steps.values() if s.key == key)
        assert step.state == "running"
        node = scope.region.nodes[key[1]]
        self.touched = [scope]
        while self.touched[0].owner is not None:
            self.touched.insert(0, self.touched[0].owner[0])
        try:
            self._end(scope, step, node)
            self._settle()
        except StepsExceededError as error:
            self._stop(error)

    def outcome(self) -> Outcome:
        """Say how the run ended."""
        assert self.status != "running"
        assert self.root is not None
        output: Any = None
        outputs: dict[str, Any] = {}
        state = None
        if self.status == "succeeded":
            output, outputs, history = self._result(self.root)
            state = fold_state(self.graph.state, history)
        ends = {}
        for key, step in self.steps.items():
            assert step.state != "running"
            ends[key] = StepEnd(step.state, step.value if step.state == "succeeded" else None)
        rounds = {
            (scope.key, cycle.header, around): last
            for scope in self.scopes
            for (cycle, around), last in scope.rounds.items()
        }
        name = type(self.error).__name__ if self.error is not None else None
        broken = frozenset(scope.key for scope in self.scopes if scope.state != "ended" or scope.cuts)
        doubts = frozenset(self.doubts)
        return Outcome(self.status, output, outputs, state, name, ends, rounds, broken, doubts)

    # -- scopes -------------------------------------------------------------------------------------

    def _layout(self, graph: Graph) -> Layout:
        if id(graph) not in self.layouts:
            self.layouts[id(graph)] = lay_out(graph)
        return self.layouts[id(graph)]

    def _open(
        self,
        key: ScopeKey,
        layout: Layout,
        region: tuple[int, ...],
        entry: Take,
        owner: tuple[Scope, Step] | tuple[Scope, MapRun] | None,
    ) -> Scope:
        scope = Scope(key, layout, layout.regions[region], entry, owner)
        self.scopes.append(scope)
        self.touched.append(scope)
        for arc in scope.region.out(START):
            if arc.map is None and (arc.edge is None or arc.edge.when is None or arc.edge.when(entry.value)):
                self._take(scope, arc, entry)
        if not region:
            self._map_input(scope, entry)
        return scope

    def _map_input(self, scope: Scope, entry: Take) -> None:
        source = Step((scope.key, START, ()), "succeeded", value=entry.value)
        for position, link in enumerate(scope.layout.links):
            if isinstance(link, Map) and link.src == START and (link.when is None or link.when(entry.value)):
                self._open_map(scope, source, position, entry.history)

    def _fail(self, scope: Scope, error: Exception, *, limit: bool = False) -> None:
        """Fail *scope* (E12): cancel what lives in it, then let whoever owns it decide."""
        if scope.state != "live":
            return
        scope.state, scope.error = "failed", error
        self._cancel_steps(scope)
        if scope.owner is None:
            self.status, self.error = ("stopped" if limit else "failed"), error  # E20: a cycle of the root
            return
        around, owner = scope.owner
        if isinstance(owner, Step):
            self._failed(around, owner, error)  # E10b, E13
        elif owner.link.on_error == "fail":
            self._fail(around, error)

    def _cancel_steps(self, scope: Scope) -> None:
        for step in scope.steps.values():
            self._cancel_step(step)
        for run in scope.maps.values():
            self._cancel_map(run)

    def _cancel_step(self, step: Step) -> None:
        if step.state != "running":
            return
        step.state = "cancelled"
        if step.inner is not None and step.inner.state == "live":
            step.inner.state = "cancelled"
            self._cancel_steps(step.inner)

    def _cancel_map(self, run: MapRun) -> None:
        run.open = False
        for item in run.items:
            if item.state == "live":
                item.state = "cancelled"
                self._cancel_steps(item)

    def _stop(self, error: Exception) -> None:
        self.status, self.error = "stopped", LimitExceededError(*error.args)
        for scope in self.scopes:
            if scope.state == "live":
                scope.state = "cancelled"
                self._cancel_steps(scope)

    # -- a step's end -------------------------------------------------------------------------------

    def _end(self, scope: Scope, step: Step, node: Node) -> None:
        fields = fold_state(scope.layout.graph.state, step.history)
        try:
            made = node.work(node.name, step.inputs, fields)
        except Exception as error:  # noqa: BLE001 - a node's own failure
            self._failed(scope, step, error)
            return
        self._succeeded(scope, step, made, step.history)

    def _succeeded(self, scope: Scope, step: Step, made: Made, history: History) -> None:
        try:
            chosen = self._choose(scope, step, made.value)
        except Exception as error:  # noqa: BLE001 - E13: conditions run before the step has succeeded
            self._failed(scope, step, error)
            return
        step.state, step.value = "succeeded", made.value
        if made.writes:
            history = (*history, Write(step.key, made.writes, frozenset(one.step for one in history)))
        rounds = step.key[2]
        for arc_or_map in chosen:
            if scope.state != "live":
                return
            if isinstance(arc_or_map, Arc):
                self._take(scope, arc_or_map, Take(made.value, history, rounds))
            else:
                self._open_map(scope, step, arc_or_map, history)

    def _choose(self, scope: Scope, step: Step, value: Any) -> list[Arc | int]:
        """Ask every condition, in declaration order."""
        chosen: list[Arc | int] = []
        layout, name = scope.layout, step.key[1]
        for position, link in enumerate(layout.links):
            if link.src != name:
                continue
            if isinstance(link, Map):
                if link.when is None or link.when(value):
                    if not isinstance(value, list):
                        raise GraphTypeError(name)
                    chosen.append(position)
                continue
            arc = next(one for one in scope.region.out(name) if one.position == position and one.map is None)
            edge = arc.edge
            assert edge is not None
            if edge.errors:
                continue
            if edge.case is not None:
                branch = find_branch(layout.graph, edge.case[0])
                key = branch.key(value)
                known = [case for case, _ in branch.cases]
                if key not in known and branch.default is None:
                    raise GraphError(f"no branch for {key}")
                if edge.case[1] == (key if key in known else None):
                    chosen.append(arc)
            elif edge.when is None or edge.when(value):
                chosen.append(arc)
        return chosen

    def _failed(self, scope: Scope, step: Step, error: Exception) -> None:
        """Decide what follows a failure (E11)."""
        step.state = "failed"
        for arc in scope.region.out(step.key[1]):
            edge = arc.edge
            if edge is None or not edge.errors or not isinstance(error, edge.errors):
                continue
            if edge.when is None or edge.when(error):
                self._take(scope, arc, Take(error, step.history, step.key[2]))
                return
        if scope.region.nodes[step.key[1]].on_error == "fail":
            self._fail(scope, error)

    # -- arcs ---------------------------------------------------------------------------------------

    def _take(self, scope: Scope, arc: Arc, take: Take) -> None:
        key = (arc.position, take.rounds[: scope.region.common(arc)])
        if key in scope.takes:  # E5: an exit, since a step ends once
            self._fail(scope, GraphError(f"exit taken twice: {arc}"))
            return
        scope.takes[key] = take
        if scope.region.key and arc.dst == END:  # E10: two gather edges of one gather
            same = [one for one in scope.region.arcs if one.dst == END and one.group == arc.group]
            if sum((one.position, ()) in scope.takes for one in same) > 1:
                self._fail(scope, GraphError("two gather edges taken"))

    # -- what follows -------------------------------------------------------------------------------

    def _settle(self) -> None:
        changed = True
        while changed:
            changed = False
            for scope in list(self.touched):
                while self.status == "running" and scope.state == "live" and self._advance(scope):
                    changed = True

    def _advance(self, scope: Scope) -> bool:
        """Let what has become due follow in *scope*; say whether anything did."""
        changed = False
        for name in scope.region.nodes:
            for rounds in scope.all_rounds(scope.region.chain(name)):
                if scope.state == "live" and (name, rounds) not in scope.steps:
                    changed |= self._decide(scope, name, rounds)
        for cycle in scope.region.cycles:
            for around in scope.all_rounds(cycle.around):
                if scope.state == "live":
                    changed |= self._turn(scope, cycle, around)
        for run in list(scope.maps.values()):
            if scope.state == "live" and run.open and all(item.state != "live" for item in run.items):
                self._close_map(scope, run)
                changed = True
        busy = any(step.state == "running" for step in scope.steps.values())
        if changed or busy or scope.state != "live" or any(run.open for run in scope.maps.values()):
            return changed
        self._close(scope)
        return True

    def _decide(self, scope: Scope, name: str, rounds: Rounds) -> bool:
        """Start or skip a step, if its time has come (E2, E3, E4)."""
        region = scope.region
        counted = [
            (arc, rounds[: region.common(arc)])
            for arc in region.forward(name)
            if set(rounds[region.common(arc) :]) <= {1}
        ]
        states = [scope.status(arc, key) for arc, key in counted]
        taken = [
            (arc, scope.takes[arc.position, key])
            for (arc, key), state in zip(counted, states, strict=True)
            if state == "taken"
        ]
        settled, join = "open" not in states, region.nodes[name].join
        needed = {"any": 1, "all": 1}.get(str(join), join)
        assert isinstance(needed, int)
        if len(taken) >= needed and (settled or join != "all"):
            if join != "all":
                if len(taken) > needed:
                    self.doubts.add(AT_ONCE)
                taken = taken[:needed]
            self._start(scope, name, rounds, taken)
            if region.nodes[name].cancel_rest:
                self._cancel_rest(scope, name, rounds)
            return True
        if settled:
            scope.steps[name, rounds] = self._record(Step((scope.key, name, rounds), "never"))
            return True
        return False

    def _turn(self, scope: Scope, cycle: Cycle, around: Rounds) -> bool:
        """Start the next round of *cycle*, if its time has come (E4, E20)."""
        region, last = scope.region, scope.last_round(cycle, around)
        rounds = (*around, last)
        back = region.back(cycle)
        states = [scope.status(arc, rounds) for arc in back]
        taken = [arc for arc, state in zip(back, states, strict=True) if state == "taken"]
        first = region.nodes[cycle.header].join == "any"
        if not taken or ("open" in states and not first):
            return False
        if scope.is_useless(set(cycle.nodes), cycle.header, rounds):
            return False
        if last == scope.layout.graph.max_rounds:
            self._fail(scope, LimitExceededError("max_rounds"), limit=True)
            return True
        if first and len(taken) > 1:
            self.doubts.add(AT_ONCE)
        scope.rounds[cycle, around] = last + 1
        delivered = [(arc, scope.takes[arc.position, rounds]) for arc in taken[: 1 if first else None]]
        self._start(scope, cycle.header, (*around, last + 1), delivered)
        return True

    def _kept(self, scope: Scope, name: str, rounds: Rounds) -> dict[str, Any]:
        """Edge values of a header's round 1, which it keeps by name (E4)."""
        first = scope.steps.get((name, (*rounds[:-1], 1)))
        if first is None:
            self.doubts.add("a header's round 1 comes after its round 2")
            return {}
        if first.state == "never" and any(
            (arc.position, rounds[: scope.region.common(arc)]) in scope.takes for arc in scope.region.forward(name)
        ):
            self.doubts.add("a header whose round 1 lacked a quorum")
        return first.inputs

    def _start(self, scope: Scope, name: str, rounds: Rounds, taken: list[tuple[Arc, Take]]) -> None:
        key = (scope.key, name, rounds)
        cap = self.graph.max_steps
        if cap is not None and self.started >= cap:
            raise StepsExceededError(name)
        self.started += 1
        chain = scope.region.chain(name)
        later = bool(chain) and chain[-1].header == name and rounds[-1] > 1
        inputs = dict(self._kept(scope, name, rounds)) if later else {}
        for arc, take in taken:
            inputs[arc.name] = take.value
        history = merge([take.history for _, take in taken])
        if later:
            kept = scope.steps.get((name, (*rounds[:-1], 1)))
            if kept is not None and merge([kept.history, history]) != history:
                self.doubts.add("a header's round 1 is not upstream of its next")
        step = self._record(Step(key, "running", inputs, taken[0][1].value, history))
        scope.steps[name, rounds] = step
        clash = conflict(scope.layout.graph.state, history)
        if clash is not None:  # E23, E13
            step.state = "failed"
            self._fail(scope, StateConflictError(clash))
            return
        graph = scope.region.nodes[name].graph
        if graph is not None:
            shared = history if graph.state == scope.layout.graph.state else ()
            layout = self._layout(graph)
            entry = Take(step.only, shared, ())
            step.inner = self._open((*scope.key, ("graph", name, rounds)), layout, (), entry, (scope, step))

    def _record(self, step: Step) -> Step:
        assert step.key not in self.steps
        self.steps[step.key] = step
        return step

    def _cancel_rest(self, scope: Scope, join: str, rounds: Rounds) -> None:
        """Cancel what can only lead to *join* (E3), now and when a map would open later."""
        region = scope.region
        losers = region.losers(join)
        scope.cuts.append((join, rounds, losers))
        for name in losers:
            for other in scope.all_rounds(region.chain(name)):
                if not scope.same_round(join, rounds, name, other):
                    continue
                if (name, other) in scope.steps:
                    self._cancel_step(scope.steps[name, other])
                    continue
                scope.steps[name, other] = self._record(Step((scope.key, name, other), "never"))
                if any(arc.dst != END and region.nodes[arc.dst].side for arc in region.out(name)):
                    self.doubts.add(BEHIND_A_LOSER)
        for (position, other), run in scope.maps.items():
            if run.open and scope.is_cut(position, other):
                self._cancel_map(run)

    # -- maps ---------------------------------------------------------------------------------------

    def _open_map(self, scope: Scope, step: Step, position: int, history: History) -> None:
        link = scope.layout.links[position]
        assert isinstance(link, Map)
        rounds = step.key[2]
        run = MapRun(link, step, history)
        if not isinstance(step.value, list):
            self._fail(scope, GraphTypeError(link.src))
            return
        scope.maps[position, rounds] = run
        if scope.is_cut(position, rounds):
            run.open = False
            return
        for index, value in enumerate(step.value):
            part = ("item", link.src, link.dst, rounds, index)
            region = (*scope.region.key, position)
            entry = Take(value, history, ())
            run.items.append(self._open((*scope.key, part), scope.layout, region, entry, (scope, run)))

    def _close_map(self, scope: Scope, run: MapRun) -> None:
        """Gather (E10), or find that too few succeeded (E12)."""
        run.open = False
        position = next(place for (place, _), one in scope.maps.items() if one is run)
        groups = scope.layout.maps[position]
        rounds = run.source.key[2]
        gathered = []
        delivered = set()
        for group in groups:
            entries, histories = [], [run.history]
            for index, item in enumerate(run.items):
                if item.state == "failed":
                    if run.link.on_error == "collect":
                        entries.append(Failed())
                    continue
                arcs = [arc for arc in item.region.arcs if arc.dst == END and arc.group == group]
                for take in [item.takes[arc.position, ()] for arc in arcs if (arc.position, ()) in item.takes]:
                    entries.append(take.value)
                    histories.append(take.history)
                    delivered.add(index)
            gathered.append((entries, merge(histories)))
        failed = [item for item in run.items if item.state == "failed"]
        if len(groups) > 1 and (failed or run.link.min_success is not None):
            self.doubts.add("a failed item of a map with several gathers")
        if run.link.min_success is not None and len(delivered) < run.link.min_success:
            error = failed[0].error if failed else GraphError("min_success")
            assert error is not None
            self._fail(scope, error)
            return
        for group, (entries, history) in zip(groups, gathered, strict=True):
            arc = next(one for one in scope.region.arcs if one.map == position and one.group == group)
            if scope.state == "live":
                self._take(scope, arc, Take(entries, history, rounds))

    # -- ends ---------------------------------------------------------------------------------------

    def _close(self, scope: Scope) -> None:
        """End a scope in which nothing is live (E8, E10)."""
        for name in scope.region.nodes:
            for rounds in scope.all_rounds(scope.region.chain(name)):
                assert (name, rounds) in scope.steps, f"{name} {rounds} never settled"
        scope.state = "ended"
        if scope.region.key:
            return
        arcs = [arc for arc in scope.region.arcs if arc.dst == END]
        if not any((arc.position, ()) in scope.takes for arc in arcs):
            scope.state = "live"
            self._fail(scope, GraphError("END was not reached"))
            return
        output, _, history = self._result(scope)
        clash = conflict(scope.layout.graph.state, history)
        if clash is not None:
            scope.state = "live"
            self._fail(scope, StateConflictError(clash))
        elif scope.owner is None:
            self.status = "succeeded"
        else:
            around, step = scope.owner
            assert isinstance(step, Step)
            shared = scope.layout.graph.state == around.layout.graph.state
            self._succeeded(around, step, Made(output), history if shared else step.history)

    def _result(self, scope: Scope) -> tuple[Any, dict[str, Any], History]:
        arcs = [arc for arc in scope.region.arcs if arc.dst == END and (arc.position, ()) in scope.takes]
        taken = [(arc, scope.takes[arc.position, ()]) for arc in arcs]
        spoken = [
            take.value
            for arc, take in taken
            if arc.reporter == START or not scope.layout.graph.node(arc.reporter).silent or arc.map is not None
        ]
        outputs = {arc.reporter: take.value for arc, take in taken}
        return spoken[0] if spoken else None, outputs, merge([take.history for _, take in taken])


def interpret(graph: Graph, value: Any, chooser: Chooser) -> Outcome:
    """Run *graph* on *value*; *chooser* picks which running step ends next."""
    run = Interpreter(graph, value)
    while run.status == "running":
        run.finish(chooser(run.running()))
    return run.outcome()
